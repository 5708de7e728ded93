package replica

import (
	"bytes"
	"slices"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// Leases. An answer to a ping of a leader is a promise: the replica will neither vote for another nor ask for votes until
// promiseTicks have passed on its own clock since it answered, unless the leader itself tells it to (a transfer). A leader
// with promises of a quorum is the only one for as long, counted from when it sent the pings and with a tenth taken off for
// clocks that do not run equally fast. The promises are kept here, not by raft: raft forgets its leader on some messages.
//
// A promise of a group that sleeps is renewed by every ping of the leader's shard, until the replica says otherwise.
//
// A node that starts does not know what it promised before, and keeps quiet for as long as that could have been.
//
// A leader that starts a transfer gives its lease up, and has it back after the transfer failed only with a promise of the
// replica it was to go to, given after that: the order of the link says that what it was told is done with by then.

// promiseTime is how long an answered ping binds: a tick less than raft's own election timeout, since ticks count only when
// they end.
func (h *Host) promiseTime() time.Duration {
	return time.Duration(h.cfg.ElectionTicks-1) * h.cfg.Tick
}

func (h *Host) leaseTime() time.Duration { return h.promiseTime() / 10 * 9 }

// ack is what a leader knows of the promises of one replica.
type ack struct {
	link     *link
	since    time.Duration // when the first heartbeat of this leadership was gathered for it, 0 = none yet
	sent     time.Duration // when the newest ping that it answered was sent
	excepted uint64        // number of the newest answer that named the group as an exception
}

// ackOf finds or makes the record of a node.
func (g *Group) ackOf(l *link) *ack {
	for i := range g.acks {
		if g.acks[i].link == l {
			return &g.acks[i]
		}
	}
	g.acks = append(g.acks, ack{link: l})
	return &g.acks[len(g.acks)-1]
}

// forgetAcks forgets what a node promised.
func (g *Group) forgetAcks(node uint64) {
	g.leaseUntil.Store(0)
	g.acks = slices.DeleteFunc(g.acks, func(a ack) bool { return a.link.node == node })
}

// dropLease ends the lease; the next answers can renew it.
func (g *Group) dropLease() {
	g.leaseUntil.Store(0)
	g.sleep.Store(nil)
	g.acks = g.acks[:0]
}

// renewLease computes the lease from the promises.
func (g *Group) renewLease() {
	h := g.host
	if !g.admits || g.transfer.begun || h.leaving.Load() {
		return
	}
	if g.distrust != 0 {
		if g.ackOf(g.shard.link(g.distrust)).sent <= g.distrustAt {
			return
		}
		g.distrust = 0
	}
	at := g.quorumSent(g.conf.Voters)
	if len(g.conf.VotersOutgoing) > 0 {
		at = min(at, g.quorumSent(g.conf.VotersOutgoing))
	}
	if at > 0 {
		g.leaseUntil.Store(int64(at + h.leaseTime()))
	}
}

// quorumSent is when the newest pings were sent that a majority has answered, 0 = never.
func (g *Group) quorumSent(voters []uint64) time.Duration {
	var room [16]time.Duration
	times := room[:0]
	for _, v := range voters {
		if v == g.host.cfg.NodeID {
			times = append(times, 1<<62)
			continue
		}
		t := time.Duration(0)
		for i := range g.acks {
			if g.acks[i].link.node == v {
				t = g.acks[i].sent
			}
		}
		times = append(times, t)
	}
	return majority(times)
}

// majority is the newest time that a majority has reached. It sorts its argument.
func majority(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[(len(times)-1)/2]
}

// sleepers is where the promises of a group that sleeps are found: one for each other voter. Groups share it.
type sleepers struct {
	host   *Host
	acked  []*atomic.Int64
	voters int
}

// until is how long the promises last.
func (s *sleepers) until() time.Duration {
	var room [16]time.Duration
	times := room[:0]
	for _, a := range s.acked {
		times = append(times, time.Duration(a.Load()))
	}
	for len(times) < s.voters {
		times = append(times, 1<<62) // this node
	}
	at := majority(times)
	if at == 0 {
		return 0
	}
	return at + s.host.leaseTime()
}

// leased reports whether this node is certain to be the only leader now. Any goroutine; no allocation.
func (g *Group) leased() bool {
	now := g.host.cfg.Clock.Mono()
	if now < time.Duration(g.leaseUntil.Load()) {
		return true
	}
	sl := g.sleep.Load()
	if sl == nil || now >= sl.until() {
		return false
	}
	// An exception wakes the group before the answer that named it counts.
	return g.sleep.Load() == sl
}

// bound reports whether a promise forbids this replica to take part in an election.
func (g *Group) bound() bool {
	h := g.host
	now := h.cfg.Clock.Mono()
	if now < h.quietUntil && !g.solo.Load() {
		return true
	}
	if g.promisedTo == 0 {
		return false
	}
	at := g.promised
	if g.asleep && g.leader.Load() == g.promisedTo {
		l := g.shard.link(g.promisedTo)
		at = max(at, l.incoming[l.of(g.cfg.ID)].heard)
	}
	return now < at+h.promiseTime()
}

var campaignTransfer = []byte("CampaignTransfer")

// mayVote reports whether a request for a vote may be stepped.
func (g *Group) mayVote(m *raftpb.Message) bool {
	return bytes.Equal(m.GetContext(), campaignTransfer) || !g.bound()
}

// mayCampaign reports whether this replica may ask for votes.
func (g *Group) mayCampaign() bool {
	return !g.host.leaving.Load() && !g.bound()
}

// mayTick reports whether raft's election clock may run: it would ask for votes by itself. While the leader's node is silent
// altogether it stands: if that goes on, all its groups are dealt with at once, one survivor each (failover.go).
func (g *Group) mayTick() bool {
	if g.host.leaving.Load() && !g.solo.Load() {
		return false
	}
	node := g.leader.Load()
	if node == 0 || g.host.controls == nil {
		return true
	}
	l := g.shard.link(node)
	if l.shards == 0 {
		return true
	}
	in := &l.incoming[l.of(g.cfg.ID)]
	return !in.ever || in.down || in.silent < 2
}
