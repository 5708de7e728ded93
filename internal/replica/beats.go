package replica

import (
	"math"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Heartbeats. On every tick each group that leads and is awake has raft make a heartbeat to every replica. They are
// gathered, by the shard that they are for, into one frame, which is a ping as well and is sent without groups too. The
// receiving shard answers the frame at the end of the turn in which it stepped what came before and in it: the answer says
// that all of them were taken, but for the exceptions that it names. It stands for the heartbeat responses of raft, for the
// proof that leases are made of (lease.go), and for the consent to sleep (sleep.go).
//
// A frame without groups, and its answer, wake nobody: they are taken with the next tick. So what an idle node has to say to
// another one leaves in one write a tick.

// gather takes a heartbeat of raft into the frame for its receiver; false = it has to travel alone.
func (s *shard) gather(g *Group, m *raftpb.Message) bool {
	if s.host.controls == nil || m.GetTerm() > math.MaxUint32 {
		return false
	}
	if g.asleep {
		return len(m.Context) == 0 // since this very turn
	}
	if !s.ticked {
		// Outside of a tick raft only asks for a confirmation of reads.
		return len(m.Context) == 0
	}
	l := s.link(m.GetTo())
	if l.shards == 0 {
		return len(m.Context) == 0 // there is nobody yet
	}
	out := &l.outgoing[l.of(g.cfg.ID)]
	b := beat{group: g.cfg.ID, term: m.GetTerm(), commit: m.GetCommit()}
	if g.sleepy {
		b.flags |= beatSleep
	}
	if n := len(out.beats); n >= beatsHeader+beatSize && GroupID(le.Uint64(out.beats[n-beatSize:])) == b.group {
		out.beats = out.beats[:n-beatSize] // two ticks at once
	}
	if len(out.beats) == 0 {
		out.beats = appendBeatsHeader(out.beats, s.number, 0)
	}
	out.beats = appendBeat(out.beats, b)
	out.used = true
	if a := g.ackOf(l); a.since == 0 {
		a.since = max(1, s.host.cfg.Clock.Mono())
	}
	return len(m.Context) == 0
}

// sendBeats ends the turn of a tick.
func (s *shard) sendBeats() {
	for _, l := range s.links {
		if l.shards == 0 || l.left || (l.shared == 0 && s.number != 0) {
			continue
		}
		for i := range l.outgoing {
			out := &l.outgoing[i]
			if !out.used && len(out.beats) == 0 {
				continue
			}
			if len(out.beats) == 0 {
				out.beats = appendBeatsHeader(out.beats, s.number, 0)
			}
			// Before it is queued: what it proves is true from then on.
			le.PutUint64(out.beats[2:], uint64(max(1, s.host.cfg.Clock.Mono())))
			s.host.controls.Control(l.node, controlBeats, uint16(i), out.beats)
			out.beats = out.beats[:0]
			if cap(out.beats) > 64<<10 {
				out.beats = nil
			}
		}
	}
}

// beatsControl is a frame of heartbeats that arrived.
type beatsControl struct {
	from  uint64
	shard int // of the sender
	sent  time.Duration
	beats []beat
}

// heartbeat is one as raft takes it, in one piece of memory.
type heartbeat struct {
	m            raftpb.Message
	term, commit uint64
}

func (c *beatsControl) run(s *shard) {
	l := s.link(c.from)
	if c.shard >= len(l.incoming) || l.left {
		return
	}
	in := &l.incoming[c.shard]
	in.silent = 0
	in.down = false
	s.unanswered = append(s.unanswered, c)
	var slab []heartbeat
	for i := range c.beats {
		b := &c.beats[i]
		g := s.find(b.group)
		if g == nil || g.gone() || g.rn == nil {
			continue // an exception, see answer
		}
		if g.asleep && b.flags&beatSleep != 0 && g.follows(c.from, b.term) && g.commit.Load() == b.commit {
			continue // nothing new
		}
		if slab == nil {
			slab = make([]heartbeat, len(c.beats)-i)
		}
		h := &slab[0]
		slab = slab[1:]
		h.term, h.commit = b.term, b.commit
		h.m.Type, h.m.From, h.m.To, h.m.Term, h.m.Commit = s.kinds.heartbeat, &l.node, &s.host.cfg.NodeID, &h.term, &h.commit
		g.msgs = append(g.msgs, &h.m)
		s.touch(g)
	}
}

// follows reports whether this replica follows the node in the term.
func (g *Group) follows(node, term uint64) bool {
	return g.leader.Load() == node && g.term.Load() == term && g.state == raft.StateFollower
}

// answer ends the turn in which heartbeats arrived.
func (s *shard) answer() {
	for _, c := range s.unanswered {
		l := s.link(c.from)
		if c.shard >= len(l.incoming) {
			continue
		}
		// What is promised by the answer is promised from now on.
		now := s.host.cfg.Clock.Mono()
		in := &l.incoming[c.shard]
		in.heard, in.ever = now, true
		s.frame = appendAnswerHeader(s.frame[:0], s.number, c.sent, len(c.beats) > 0)
		for i := range c.beats {
			b := &c.beats[i]
			g := s.find(b.group)
			if g != nil {
				g.woken &^= 1 << l.number // the leader is awake, or this answer says why it should be
			}
			switch {
			case g == nil || g.gone() || g.rn == nil || !g.follows(c.from, b.term) || g.suspicion&votesLost != 0 && !g.contact.known:
				s.frame = appendExcept(s.frame, except{b.group, exceptOther})
				continue
			case b.flags&beatSleep != 0 && !g.asleep && !g.fallAsleep(b):
				s.frame = appendExcept(s.frame, except{b.group, exceptAwake})
			}
			g.promisedTo, g.promised = c.from, now
		}
		kept := l.woken[:0]
		for _, g := range l.woken {
			if g.woken&(1<<l.number) == 0 {
				continue
			}
			kept = append(kept, g)
			if l.of(g.cfg.ID) == c.shard {
				s.frame = appendExcept(s.frame, except{g.cfg.ID, exceptOther})
			}
		}
		clear(l.woken[len(kept):])
		l.woken = kept
		s.host.controls.Control(c.from, controlAnswer, uint16(c.shard), s.frame)
	}
	clear(s.unanswered)
	s.unanswered = s.unanswered[:0]
}

// answerControl is the answer to a frame of heartbeats.
type answerControl struct {
	from    uint64
	shard   int // that answered
	sent    time.Duration
	excepts []except
}

func (c *answerControl) run(s *shard) {
	l := s.link(c.from)
	if c.shard >= len(l.outgoing) || c.sent > s.host.cfg.Clock.Mono() {
		return
	}
	s.answers++
	for _, e := range c.excepts {
		g := s.find(e.group)
		if g == nil || g.gone() || g.leadTerm == 0 || g.rn == nil {
			continue
		}
		g.wake()
		a := g.ackOf(l)
		if e.what == exceptAwake {
			g.sleepSince = s.host.cfg.Clock.Mono()
		} else {
			a.excepted = s.answers
		}
	}
	// After the exceptions, see Group.leased.
	acked := l.outgoing[c.shard].acked
	if time.Duration(acked.Load()) < c.sent {
		acked.Store(int64(c.sent))
	}
	if s.number == 0 {
		s.host.answered(c.from, c.sent)
	}
	for _, g := range s.ticking {
		if g.leadTerm == 0 || g.gone() || !g.memberOn(c.from) || l.of(g.cfg.ID) != c.shard {
			continue
		}
		a := g.ackOf(l)
		if a.since == 0 || a.since > c.sent || a.excepted == s.answers || a.sent >= c.sent {
			continue
		}
		a.sent = c.sent
		s.response.Term = &g.leadTerm
		s.response.From = &l.node
		_ = g.rn.Step(&s.response) // of a member, which is all that it can be refused for
		g.renewLease()
		g.maybeSleep()
		s.touch(g)
	}
}

// find gives the group of this shard.
func (s *shard) find(id GroupID) *Group { return s.byID[id] }
