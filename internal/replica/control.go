package replica

import (
	"fmt"
	"slices"
	"time"

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

// join starts raft's part. A sole voter has nobody to wait for; the preferred leader asks at once, which disturbs nobody
// who has a leader, because of the pre-vote.
func (g *Group) join() {
	if g.solo.Load() || g.cfg.Preferred {
		_ = g.rn.Campaign() // refused only when it leads already, or is no voter
	}
	if g.cfg.Preferred && !g.solo.Load() && g.log.LastIndex() == 0 && g.vote.term == 0 {
		// The others may not have the new group yet, and drop the first request for a vote.
		g.eager = eagerTries
		g.eagerAt = g.host.cfg.Clock.Mono()
		g.shard.eager = append(g.shard.eager, g)
	}
	g.checkRole()
}

// The preferred leader of a new group asks for votes this often, in short intervals, before it leaves it to raft's clock.
const (
	eagerTries = 20
	eagerEvery = 25 * time.Millisecond
)

// tickEager lets the preferred leaders of new groups ask once more; it reports whether any did.
func (s *shard) tickEager() bool {
	if len(s.eager) == 0 {
		return false
	}
	now, did := s.host.cfg.Clock.Mono(), false
	s.eager = slices.DeleteFunc(s.eager, func(g *Group) bool {
		if g.gone() || g.leader.Load() != 0 || g.eager == 0 {
			return true
		}
		if now-g.eagerAt < eagerEvery {
			return false
		}
		g.eagerAt = now
		g.eager--
		// An election under way, with a vote that is being stored, is not disturbed.
		if g.rn != nil && g.state != raft.StateCandidate && g.jobs.len() == 0 {
			_ = g.rn.Campaign()
			s.touch(g)
			did = true
		}
		return false
	})
	return did
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
		if g.gone() || g.rn == nil || g.state != raft.StateLeader {
			continue
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
	if g.gone() || !g.admits {
		w.done <- ErrNotLeader
		return
	}
	// All that arrive in one turn share one request: the first of them makes it.
	if g.rn == nil {
		w.done <- nil
		return
	}
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

// transfer is a hand-over of leadership under way.
type transfer struct {
	to    uint64
	done  chan error // nil = none
	since time.Duration
}

// transferControl is a caller of TransferLeader.
type transferControl struct {
	g    *Group
	to   uint64
	done chan error // capacity 1
}

// transferWindow is how many entries the other replica may lack for a transfer to be started: it must get them within an
// election timeout, while requests are held.
const transferWindow = 1024

func (c *transferControl) run(s *shard) {
	g := c.g
	switch {
	case g.gone() || !g.admits:
		c.done <- ErrNotLeader
		return
	case c.to == s.host.cfg.NodeID:
		c.done <- nil
		return
	case g.transfer.done != nil:
		c.done <- fmt.Errorf("%w: a transfer to node %d is under way", ErrBusy, g.transfer.to)
		return
	}
	if g.rn == nil {
		c.done <- fmt.Errorf("replica: group %s: node %d is no voter", g.cfg.ID, c.to)
		return
	}
	found, behind := false, false
	g.rn.WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
		if id == c.to && typ == raft.ProgressTypePeer {
			found = true
			behind = pr.Match+transferWindow < g.last.Load() || pr.State != tracker.StateReplicate
		}
	})
	if !found {
		c.done <- fmt.Errorf("replica: group %s: node %d is no voter", g.cfg.ID, c.to)
		return
	}
	if behind {
		c.done <- ErrBehind
		return
	}
	g.transfer = transfer{to: c.to, done: c.done, since: s.host.cfg.Clock.Mono()}
	g.rn.TransferLeader(c.to)
	s.touch(g)
}

// checkTransfer ends a transfer that raft has given up.
func (g *Group) checkTransfer() {
	if g.transfer.done != nil && g.state == raft.StateLeader && g.rn.BasicStatus().LeadTransferee != g.transfer.to {
		g.transferEnded(fmt.Errorf("%w: node %d did not take over", ErrBusy, g.transfer.to))
	}
}

// transferEnded tells the caller of TransferLeader. With nil this node has just lost the leadership, which is all that it
// can do for the other one.
func (g *Group) transferEnded(err error) {
	if g.transfer.done == nil {
		return
	}
	g.transfer.done <- err
	g.transfer = transfer{}
	g.shard.touch(g) // held requests
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
			Learner: typ == raft.ProgressTypeLearner, State: pr.State.String(),
		})
	})
	slices.SortFunc(ps, func(a, b Progress) int { return int(a.Node) - int(b.Node) })
	c.done <- ps
}
