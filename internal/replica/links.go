package replica

import (
	"slices"
	"sync/atomic"
	"time"
)

// link is what a shard knows of another node. Shard goroutine only, except acked.
type link struct {
	node      uint64
	number    int // of the link in its shard
	directory [16]byte
	starts    uint64
	shards    int  // partitions' shards of the other node; 0 = it was never heard of
	left      bool // it said goodbye
	shared    int  // groups of this shard that have a replica there

	// To the other node, by its shard (0 = the metadata's).
	outgoing []outgoing
	// From the other node, by its shard.
	incoming []incoming
	received uint64 // Controls.Received at the last tick
	// woken are the groups that were asleep under this node's lead and are not any more: it is told so with every answer,
	// until it is heard to know.
	woken []*Group
}

// outgoing is what goes to one shard of another node.
type outgoing struct {
	used  bool   // some group here leads replicas there, or the shards are counterparts
	beats []byte // frame that is being gathered
	// acked is the sending time of the newest ping that was answered, 0 = none.
	acked *atomic.Int64
}

// incoming is what comes from one shard of another node.
type incoming struct {
	heard  time.Duration // when the newest ping was answered
	ever   bool          // one was
	silent int           // ticks since then
	down   bool          // silent for an election timeout, and the groups were told
}

// link finds or makes what the shard knows of a node.
func (s *shard) link(node uint64) *link {
	for _, l := range s.links {
		if l.node == node {
			return l
		}
	}
	l := &link{node: node, number: len(s.links)}
	s.links = append(s.links, l)
	l.setShards(s, 0)
	return l
}

// setShards notes how many shards the other node has; what was known of them is forgotten.
func (l *link) setShards(s *shard, n int) {
	l.shards = n
	l.outgoing = make([]outgoing, n+1)
	l.incoming = make([]incoming, n+1)
	for i := range l.outgoing {
		l.outgoing[i].acked = new(atomic.Int64)
		// Shards of equal number hold the same groups when both nodes have equally many of them.
		l.outgoing[i].used = n > 0 && (s.number == 0) == (i == 0) && (n != s.host.cfg.Shards || i == s.number)
	}
}

// of is the shard of the other node that the group belongs to.
func (l *link) of(id GroupID) int { return shardIndex(id, l.shards) }

// up reports whether the other node's shard of the group is heard of.
func (l *link) up(id GroupID) bool {
	if l.shards == 0 || l.left {
		return false
	}
	in := &l.incoming[l.of(id)]
	return in.ever && !in.down
}

// shardIndex is the shard of a group on a node with n shards for partitions; the metadata has a shard of its own.
func shardIndex(id GroupID, n int) int {
	if id == MetadataGroup || n <= 0 {
		return 0
	}
	return 1 + int(shardHash(uint64(id))%uint64(n))
}

// peerControl says that a link from a node came up.
type peerControl struct{ peer Peer }

func (c *peerControl) run(s *shard) {
	p := &c.peer
	l := s.link(p.Node)
	again := l.starts != 0 && (l.starts != p.Starts || l.directory != p.Directory)
	if l.shards != p.Shards || again {
		l.setShards(s, p.Shards)
	}
	l.directory, l.starts = p.Directory, p.Starts
	for i := range l.incoming {
		l.incoming[i].silent = 0
	}
	if !again {
		return
	}
	l.left = false
	// What it promised and what it was told went with the process. Nobody leads with it any more, and where this node
	// leads, it has to learn what is committed.
	for _, g := range l.woken {
		g.woken &^= 1 << l.number
	}
	l.woken = nil
	for _, g := range s.groups {
		if !g.memberOn(p.Node) {
			continue
		}
		if g.promisedTo == p.Node {
			g.promisedTo = 0
		}
		if g.leader.Load() == p.Node {
			g.bereaved(l)
			continue
		}
		g.forgetAcks(p.Node)
		if g.distrust == p.Node {
			g.distrust = 0 // what it was told, it has forgotten
		}
		g.wake()
	}
}

// tickLinks counts the silence of the other nodes.
func (s *shard) tickLinks(n int) {
	if s.host.controls == nil {
		return
	}
	for _, l := range s.links {
		if l.shards == 0 {
			continue
		}
		if got := s.host.controls.Received(l.node); got != l.received {
			// A frame that is still arriving is a sign of life too: what is behind it cannot be here yet.
			l.received = got
			continue
		}
		for i := range l.incoming {
			in := &l.incoming[i]
			if !in.ever || in.down {
				continue
			}
			if in.silent += n; in.silent >= s.host.cfg.ElectionTicks {
				in.down = true
				s.silent(l, i)
			}
		}
	}
}

// silent acts on a node, or one of its shards, that was not heard of for an election timeout: the groups that it led look
// for another leader at once, and those that sleep here stay awake until it is back.
func (s *shard) silent(l *link, shard int) {
	s.log.Warn("a node is silent", "node", l.node, "its_shard", shard)
	for _, g := range s.groups {
		if l.of(g.cfg.ID) != shard || !g.memberOn(l.node) {
			continue
		}
		if g.leader.Load() == l.node {
			g.bereaved(l)
		} else {
			g.wake()
		}
	}
}

// goodbyeControl says that a node leaves. It keeps no lease, so nobody has to wait.
type goodbyeControl struct{ node uint64 }

func (c *goodbyeControl) run(s *shard) {
	l := s.link(c.node)
	l.left = true
	for i := range l.incoming {
		l.incoming[i].ever = false
	}
	for _, g := range s.groups {
		if !g.memberOn(c.node) {
			continue
		}
		g.forgetAcks(c.node)
		if g.promisedTo == c.node {
			g.promisedTo = 0
		}
		g.cancelTransfer(c.node)
		if g.leader.Load() == c.node {
			g.bereaved(l)
		} else {
			g.wake()
		}
	}
}

// memberOn reports whether the group has a replica on the node.
func (g *Group) memberOn(node uint64) bool { return slices.Contains(g.members, node) }

// setMembers notes which other nodes have a replica.
func (g *Group) setMembers(listed bool) {
	var now []uint64
	if listed {
		for _, ids := range [][]uint64{g.conf.Voters, g.conf.VotersOutgoing, g.conf.Learners, g.conf.LearnersNext} {
			for _, id := range ids {
				if id != g.host.cfg.NodeID && !slices.Contains(now, id) {
					now = append(now, id)
				}
			}
		}
	}
	slices.Sort(now)
	if slices.Equal(now, g.members) {
		return
	}
	for _, id := range g.members {
		g.shard.link(id).shared--
	}
	for _, id := range now {
		g.shard.link(id).shared++
	}
	g.members = now
}
