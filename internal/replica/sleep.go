package replica

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// Sleep. A group without work for a while, whose replicas all have everything, needs no heartbeats: the pings between the
// nodes say that its leader is alive. The leader marks its heartbeats, each replica goes to sleep when it has all that the
// leader has and says otherwise in its answer, and when all have answered the leader sleeps too. Anything that arrives for
// the group wakes it: a request, a message, a change. A replica that is awake while its leader's frames do not name the
// group says so in every answer. A node that turns silent wakes what it has a part in.

// wantsSleep reports whether the group, which this node leads, has nothing to do.
func (g *Group) wantsSleep() bool {
	if g.asleep || !g.admits || g.active || g.gone() || g.rn == nil || g.host.controls == nil || g.solo.Load() || g.host.leaving.Load() ||
		g.transfer.done != nil || g.change != nil || len(g.reads) > 0 || g.waiters.len() > 0 || g.jobs.len() > 0 ||
		len(g.in) > 0 || len(g.msgs) > 0 || g.stopping != nil || g.stalled || g.distrust != 0 || g.shard.closing != nil {
		return false
	}
	last := g.last.Load()
	if g.applied.Load() != last || g.commit.Load() != last {
		return false
	}
	for _, m := range g.members {
		if !g.shard.link(m).up(g.cfg.ID) {
			return false
		}
	}
	all := true
	g.rn.WithProgress(func(_ uint64, _ raft.ProgressType, pr tracker.Progress) {
		all = all && pr.Match == last && pr.State == tracker.StateReplicate
	})
	return all
}

// getSleepy is asked on every tick of a group that leads.
func (g *Group) getSleepy() {
	wants := g.wantsSleep()
	if wants && !g.sleepy {
		g.sleepSince = g.host.cfg.Clock.Mono()
	}
	g.sleepy = wants
}

// maybeSleep lets the leader sleep when all replicas do.
func (g *Group) maybeSleep() {
	if !g.sleepy || !g.wantsSleep() {
		g.sleepy = false
		return
	}
	for _, m := range g.members {
		// Before sleepSince it was not asked, or said that it does not sleep.
		if a := g.ackOf(g.shard.link(m)); a.since == 0 || a.sent <= g.sleepSince {
			return
		}
	}
	g.sleepy = false
	g.asleep = true
	g.sleep.Store(g.shard.sleepersOf(g))
	g.acks = nil
}

// fallAsleep lets a follower sleep, if it has what its leader has.
func (g *Group) fallAsleep(b *beat) bool {
	if g.last.Load() != b.commit || g.commit.Load() != b.commit || g.applied.Load() != b.commit || g.log.LastIndex() != b.commit ||
		g.jobs.len() > 0 || len(g.msgs) > 0 || g.stopping != nil || g.shard.closing != nil || g.dirty || g.suspicion != 0 || g.copy != nil {
		return false
	}
	g.asleep = true
	return true
}

// wake ends the group's sleep.
func (g *Group) wake() {
	if !g.asleep {
		g.sleepy = false
		return
	}
	g.asleep = false
	s := g.shard
	if g.leadTerm != 0 {
		// What was promised while it slept is not lost.
		g.sleep.Store(nil)
		for _, m := range g.members {
			l := s.link(m)
			if l.shards == 0 {
				continue
			}
			a := g.ackOf(l)
			a.sent = max(a.sent, time.Duration(l.outgoing[l.of(g.cfg.ID)].acked.Load()))
		}
		g.renewLease()
	} else if node := g.leader.Load(); node != 0 {
		l := s.link(node)
		if l.shards != 0 && g.promisedTo == node {
			g.promised = max(g.promised, l.incoming[l.of(g.cfg.ID)].heard)
		}
		if l.number < 64 && g.woken&(1<<l.number) == 0 {
			g.woken |= 1 << l.number
			l.woken = append(l.woken, g)
		}
	}
	g.needTicks()
}

// needTicks gives the group raft's clock if it needs it.
func (g *Group) needTicks() {
	if g.needsTicks() && !g.ticks {
		g.ticks = true
		g.shard.ticking = append(g.shard.ticking, g)
	}
}

// sleepersOf finds or makes where the promises for a sleeping group are found.
func (s *shard) sleepersOf(g *Group) *sleepers {
	if len(g.conf.VotersOutgoing) > 0 {
		return nil
	}
	acked := make([]*atomic.Int64, 0, len(g.members))
	for _, v := range g.conf.Voters {
		if v == s.host.cfg.NodeID {
			continue
		}
		l := s.link(v)
		acked = append(acked, l.outgoing[l.of(g.cfg.ID)].acked)
	}
	for _, sl := range s.sleepers {
		if sl.voters == len(g.conf.Voters) && slices.Equal(sl.acked, acked) {
			return sl
		}
	}
	sl := &sleepers{host: s.host, acked: acked, voters: len(g.conf.Voters)}
	if len(s.sleepers) > 64 {
		s.sleepers = nil // of nodes that are gone
	}
	s.sleepers = append(s.sleepers, sl)
	return sl
}

// gathered reports whether a response to a heartbeat is given with the answer to the frame.
func (g *Group) gathered(m *raftpb.Message) bool {
	return g.host.controls != nil && len(m.Context) == 0 && m.GetTerm() <= math.MaxUint32
}
