package replica

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// joinControl brings a recovered group to its shard.
type joinControl struct{ g *Group }

func (c *joinControl) run(s *shard) {
	g := c.g
	if s.closing != nil {
		g.leave() // Close takes it from the host's table
		return
	}
	s.list(g)
	g.flushedAt = s.lastTick
	g.guard((*Group).join)
	s.touch(g)
}

// join starts raft's part. A sole voter has nobody to wait for; the preferred leader asks soon, which disturbs nobody who
// has a leader, because of the pre-vote.
func (g *Group) join() {
	g.weigh()
	g.setMembers(true)
	switch {
	case g.solo.Load():
		g.campaign()
	case g.cfg.Preferred:
		tries, every := survivorTries, survivorEvery
		if g.log.LastIndex() == 0 && g.vote.term == 0 {
			tries, every = eagerTries, eagerEvery
		}
		g.campaignSoon(g.host.cfg.Clock.Mono(), tries, every)
	}
	g.checkRole()
}

// stopControl ends a group in its shard.
type stopControl struct {
	g    *Group
	done chan struct{}
}

func (c *stopControl) run(s *shard) {
	g := c.g
	if !g.listed {
		close(c.done)
		return
	}
	g.stopping = c
	s.touch(g)
}

// finish ends the group when nothing of it is under way.
func (g *Group) finish() {
	c := g.stopping
	g.stopping = nil
	g.leave()
	g.shard.unlist(g)
	close(c.done)
}

// closeControl ends the shard.
type closeControl struct {
	force <-chan struct{} // closed when Close may wait no longer
}

func (c *closeControl) run(s *shard) {
	s.closing = c
	for _, g := range s.groups {
		s.touch(g)
	}
}

func (c *closeControl) forced() bool {
	select {
	case <-c.force:
		return true
	default:
		return false
	}
}

// unreachableControl tells raft that messages to a node were lost.
type unreachableControl struct{ node uint64 }

func (c *unreachableControl) run(s *shard) {
	for _, g := range s.groups {
		if g.gone() || g.rn == nil || g.state != raft.StateLeader || g.asleep {
			continue // what sleeps has nothing under way
		}
		g.rn.ReportUnreachable(c.node)
		s.touch(g)
	}
}

// readWait is a caller of ReadBarrier.
type readWait struct {
	g     *Group
	done  chan error // capacity 1
	seq   uint64     // of the read-index request it waits for
	index uint64     // that has to be applied; 0 = not known yet
}

func (w *readWait) run(s *shard) {
	g := w.g
	if g.gone() || !g.admits || s.host.leaving.Load() {
		w.done <- ErrNotLeader
		return
	}
	// All that arrive in one turn share one request: the first of them makes it.
	if g.rn == nil {
		w.done <- nil
		return
	}
	g.wake()
	if !g.readFresh {
		g.readSeq++
		g.readFresh = true
		g.rn.ReadIndex(le.AppendUint64(nil, g.readSeq))
		s.touch(g)
	}
	w.seq = g.readSeq
	g.reads = append(g.reads, w)
}

// readReady takes raft's answer to a read-index request, which also answers the earlier ones.
func (g *Group) readReady(rs raft.ReadState) {
	if len(rs.RequestCtx) != 8 {
		return
	}
	seq := le.Uint64(rs.RequestCtx)
	for _, w := range g.reads {
		if w.seq <= seq && w.index == 0 {
			w.index = rs.Index
		}
	}
	g.readsApplied(g.applied.Load())
}

// readsApplied answers who waits for an index up to the applied one.
func (g *Group) readsApplied(applied uint64) {
	if len(g.reads) == 0 {
		return
	}
	g.reads = slices.DeleteFunc(g.reads, func(w *readWait) bool {
		if w.index == 0 || w.index > applied {
			return false
		}
		w.done <- nil
		return true
	})
}

func (g *Group) failReads(err error) {
	for _, w := range g.reads {
		w.done <- err
	}
	g.reads = nil
}

// progressControl is a caller of Progress.
type progressControl struct {
	g    *Group
	done chan []Progress // capacity 1
}

func (c *progressControl) run(*shard) {
	g := c.g
	if g.gone() || g.state != raft.StateLeader {
		c.done <- nil
		return
	}
	ps := []Progress{}
	if g.rn == nil {
		last := g.last.Load()
		c.done <- append(ps, Progress{Node: g.host.cfg.NodeID, Match: last, Next: last + 1, Active: true, State: tracker.StateReplicate.String()})
		return
	}
	g.rn.WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
		ps = append(ps, Progress{
			Node: id, Match: pr.Match, Next: pr.Next, Active: pr.RecentActive,
			Learner: typ == raft.ProgressTypeLearner, Suspect: g.doubted(id), State: pr.State.String(),
		})
	})
	slices.SortFunc(ps, func(a, b Progress) int { return int(a.Node) - int(b.Node) })
	c.done <- ps
}
