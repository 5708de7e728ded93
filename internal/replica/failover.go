package replica

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Who asks for votes, and when, beside raft's own election timeout: the preferred leader when its group starts here, and
// the designated survivor when the leader's node is gone. Which survivor is designated follows from a hash of group and
// node, so that the groups of a dead node spread over the others, and so that only one asks. The next in that order asks
// campaignStep later, in case that the first cannot.

const (
	// A preferred leader of a new group asks this often before it leaves it to raft's clock: the others may not have the new
	// group yet, and drop the first request.
	eagerTries = 20
	// A survivor asks this often: the others may notice the silence a tick later.
	survivorTries = 4
	survivorEvery = 100 * time.Millisecond
	eagerEvery    = 25 * time.Millisecond
	campaignStep  = 300 * time.Millisecond
)

// campaignSoon lets this replica ask for votes at a time, and a number of times, until there is a leader.
func (g *Group) campaignSoon(at time.Duration, tries int, every time.Duration) {
	g.tryAt, g.tryEvery = at, every
	if g.tries == 0 {
		g.shard.eager = append(g.shard.eager, g)
	}
	g.tries = tries
}

// tickEager lets those ask for votes whose time it is and for which nothing has just arrived; it reports whether any did.
func (s *shard) tickEager() bool {
	if len(s.eager) == 0 {
		return false
	}
	now, did := s.host.cfg.Clock.Mono(), false
	s.eager = slices.DeleteFunc(s.eager, func(g *Group) bool {
		if g.gone() || g.leader.Load() != 0 || g.tries == 0 || g.rn == nil {
			g.tries = 0
			return true
		}
		if now < g.tryAt || len(g.msgs) > 0 || !g.mayCampaign() {
			return false
		}
		g.tryAt = now + g.tryEvery
		g.tries--
		// An election under way, with a vote that is being stored, is not disturbed.
		if g.state != raft.StateCandidate && g.jobs.len() == 0 {
			g.guard((*Group).campaign)
			did = true
		}
		return false
	})
	return did
}

func (g *Group) campaign() {
	_ = g.rn.Campaign() // refused only when it leads already, or is no voter
	g.shard.touch(g)
}

// bereaved acts on the end of the group's leader, or of its node's silence: this replica is free to follow another.
func (g *Group) bereaved(l *link) {
	if g.gone() || g.rn == nil {
		return
	}
	g.wake()
	_ = g.rn.ForgetLeader() // a follower can
	g.shard.touch(g)
	if rank := g.rank(l.node); rank >= 0 {
		g.campaignSoon(g.host.cfg.Clock.Mono()+time.Duration(rank)*campaignStep, survivorTries, survivorEvery)
	}
}

// rank is this node's place among the voters that are alive, without the one that is gone, in the order in which they ask;
// -1 = it is no voter.
func (g *Group) rank(gone uint64) int {
	self := g.host.cfg.NodeID
	if !slices.Contains(g.conf.Voters, self) {
		return -1
	}
	own, rank := g.rankOf(self), 0
	for _, v := range g.conf.Voters {
		if v != self && v != gone && g.shard.link(v).up(g.cfg.ID) && g.rankOf(v) > own {
			rank++
		}
	}
	return rank
}

func (g *Group) rankOf(node uint64) uint64 {
	return shardHash(uint64(g.cfg.ID) ^ node*0x9e3779b97f4a7c15)
}

// heardCandidate is told of a request for a vote that may be granted. Whoever asks thinks that the leader is gone: when this
// replica has not heard of it either, for as long as it was bound to it, it need not wait for its own next tick. A candidate
// that can win is given time. One that lacks entries which this replica has cannot: then this one asks.
func (g *Group) heardCandidate(m *raftpb.Message) {
	if g.state == raft.StateLeader || g.suspicion != 0 {
		return
	}
	if node := g.leader.Load(); node != 0 && node != g.host.cfg.NodeID && g.host.controls != nil {
		l := g.shard.link(node)
		if l.shards == 0 || l.incoming[l.of(g.cfg.ID)].silent < g.host.cfg.ElectionTicks/2 {
			return
		}
		_ = g.rn.ForgetLeader()
	}
	now := g.host.cfg.Clock.Mono()
	last := g.log.LastIndex()
	term, err := g.store.Term(last)
	switch {
	case err != nil:
	case m.GetLogTerm() > term || m.GetLogTerm() == term && m.GetIndex() >= last:
		g.tryAt = max(g.tryAt, now+campaignStep)
	case m.GetType() == raftpb.MsgPreVote && g.tries == 0 && g.mayCampaign():
		g.campaignSoon(now, 2, survivorEvery)
	}
}
