package replica

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// Handing leadership over. From the moment that a transfer starts, new requests are held. What is in the log already is
// committed and applied first, so that nothing is left whose outcome this node could not tell. Then raft asks the other
// replica to take over. What was held fails with ErrNotAdmitted when the new leader is known here, not before: whoever sent
// it finds the new leader in Status. A new leader holds what arrives before it may admit.
//
// A replica that is suspect has no vote and would not take over: requests would wait for an election timeout and be none the
// further. Nor would one that lacks much of the log in time. Neither is chosen, and a transfer to one does not begin.

// transfer is a hand-over of leadership under way.
type transfer struct {
	to      uint64
	done    chan error // nil = none
	since   time.Duration
	begun   bool // requests are held; before that the other replica is waited for
	stepped bool // raft was told
}

// transferControl is a caller of TransferLeader.
type transferControl struct {
	g    *Group
	to   uint64
	done chan error // capacity 1
}

const (
	// transferWindow is how many entries the other replica may lack for a transfer to begin: it must get them within an
	// election timeout, while requests are held.
	transferWindow = 1024
	// behindTicks is how long it is waited for otherwise: a new leader does not know yet what the others have.
	behindTicks = 3
	// leaderlessTicks is how long requests are held by a replica whose leader is gone: most often by a transfer between two
	// others, which is over in no time.
	leaderlessTicks = 2
)

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
	if !slices.Contains(g.conf.Voters, c.to) {
		c.done <- fmt.Errorf("replica: group %s: node %d is no voter", g.cfg.ID, c.to)
		return
	}
	g.wake()
	g.transfer = transfer{to: c.to, done: c.done, since: s.host.cfg.Clock.Mono()}
	g.ask(c.to)
	s.touch(g)
}

// beginTransfer begins when the other replica has nearly everything, and may lead.
func (g *Group) beginTransfer() {
	t := &g.transfer
	if t.done == nil || t.begun || g.state != raft.StateLeader || g.doubted(t.to) {
		return
	}
	g.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id == t.to && pr.Match+transferWindow >= g.last.Load() && pr.State == tracker.StateReplicate {
			t.begun = true
		}
	})
	if t.begun {
		t.since = g.host.cfg.Clock.Mono()
		g.leaseUntil.Store(0) // the other one is about to be free of its promise
	}
}

// stepTransfer lets raft begin when nothing is in flight any more.
func (g *Group) stepTransfer() {
	t := &g.transfer
	if t.done == nil || !t.begun || t.stepped || g.state != raft.StateLeader || g.waiters.len() > 0 || g.applied.Load() != g.last.Load() || g.jobs.len() > 0 {
		return
	}
	t.stepped = true
	g.rn.TransferLeader(t.to)
	g.collect()
}

// checkTransfer ends a transfer that raft has given up, or that could not begin.
func (g *Group) checkTransfer() {
	t := &g.transfer
	now := g.host.cfg.Clock.Mono()
	timeout := time.Duration(g.host.cfg.ElectionTicks) * g.host.cfg.Tick
	if t.done != nil && g.state == raft.StateLeader {
		switch {
		case t.stepped && g.rn.BasicStatus().LeadTransferee != t.to:
			g.distrust, g.distrustAt = t.to, now
		case t.begun && !t.stepped && now-t.since > timeout:
		case !t.begun && now-t.since > behindTicks*g.host.cfg.Tick:
			g.transferEnded(ErrBehind)
			return
		default:
			return
		}
		g.transferEnded(fmt.Errorf("%w: node %d did not take over", ErrBusy, t.to))
	}
	if g.holdUntil != 0 && now > g.holdUntil {
		g.holdUntil = 0
		g.shard.touch(g)
	}
}

// leaderless notes that the group has no leader for now.
func (g *Group) leaderless(ticks int) {
	g.holdUntil = max(g.holdUntil, g.host.cfg.Clock.Mono()+time.Duration(ticks)*g.host.cfg.Tick)
}

// cancelTransfer gives up a transfer to a node that leaves.
func (g *Group) cancelTransfer(to uint64) {
	if g.transfer.done == nil || g.transfer.to != to || g.gone() || g.rn == nil || g.state != raft.StateLeader {
		return
	}
	if g.transfer.stepped {
		g.rn.TransferLeader(g.host.cfg.NodeID)
		g.distrust, g.distrustAt = to, g.host.cfg.Clock.Mono()
	}
	g.transferEnded(fmt.Errorf("%w: node %d leaves", ErrBusy, to))
}

// transferEnded tells the caller of TransferLeader. With nil this node has just lost the leadership, which is all that it
// can do for the other one.
func (g *Group) transferEnded(err error) {
	if g.transfer.done == nil {
		return
	}
	g.transfer.done <- err
	if err == nil {
		g.leaderless(g.host.cfg.ElectionTicks)
	}
	g.transfer = transfer{}
	g.shard.touch(g) // held requests
}

// holds reports whether requests wait instead of being proposed or refused.
func (g *Group) holds() bool {
	switch {
	case g.stopping != nil || g.shard.closing != nil:
		return false
	case g.admits:
		return g.transfer.begun || g.change != nil && !g.change.stepped
	case g.state == raft.StateLeader:
		return true // until its first entry is applied, or it steps down
	}
	return g.holdUntil != 0 && g.leader.Load() == 0 || g.change != nil && !g.change.stepped
}

// HandOver gives all leaderships of this node to other nodes that can take them at once, as far as there are such, then tells
// the others that this node is leaving: they need not wait for its silence. Afterwards its groups only follow; requests fail
// with ErrNotAdmitted. It returns how many groups found no taker before ctx ended. Close does the same first when it was
// not done.
func (h *Host) HandOver(ctx context.Context) (left int, err error) {
	h.mu.RLock()
	var led []*Group
	for _, g := range h.groups {
		if g != nil && Role(g.role.Load()) == Leader && !g.solo.Load() {
			led = append(led, g)
		}
	}
	h.mu.RUnlock()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		next int
	)
	for range min(handOverParallel, len(led)) {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= len(led) {
					return
				}
				if err := led[i].handOver(ctx); err != nil {
					mu.Lock()
					left++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	h.goodbye()
	if left > 0 {
		return left, fmt.Errorf("%w: %d groups found no other leader", ErrBehind, left)
	}
	return 0, nil
}

const handOverParallel = 256

// handOver gives the group to one of the others, the first that takes it.
func (g *Group) handOver(ctx context.Context) error {
	for {
		to, err := g.heir(ctx)
		if err != nil {
			return err
		}
		switch err = g.giveUp(ctx, to); {
		case err == nil:
			return g.awaitHeir(ctx)
		case Role(g.role.Load()) != Leader:
			return nil
		case ctx.Err() != nil:
			return err
		}
		// It is behind, or another transfer is under way: what could be better may be so after a tick.
		g.pause(ctx)
	}
}

// awaitHeir waits until the other node leads, so that it has this one's vote. When all nodes stop at the same time it may
// have left before it did: nobody campaigns then, and there is nothing to wait for.
func (g *Group) awaitHeir(ctx context.Context) error {
	for g.leader.Load() == 0 && ctx.Err() == nil {
		c := &companyControl{g: g, done: make(chan bool, 1)}
		if !g.shard.inbox.post(item{g: g, ctl: c}) {
			return ErrStopped
		}
		select {
		case company := <-c.done:
			if !company {
				return ErrBehind
			}
		case <-ctx.Done():
		}
		tick, cancel := context.WithTimeout(ctx, g.host.cfg.Tick)
		_ = g.wait(tick, func() bool { return g.leader.Load() != 0 }) // the loop looks at what came of it
		cancel()
		if Role(g.role.Load()) == Fenced || Role(g.role.Load()) == Stopped {
			return nil
		}
	}
	return nil
}

// companyControl asks whether another voter of the group is there.
type companyControl struct {
	g    *Group
	done chan bool // capacity 1
}

func (c *companyControl) run(s *shard) {
	g := c.g
	if s.host.controls == nil {
		c.done <- true // nothing is known of the others
		return
	}
	c.done <- !g.gone() && slices.ContainsFunc(g.conf.Voters, func(v uint64) bool {
		if v == s.host.cfg.NodeID {
			return false
		}
		l := s.link(v)
		return l.shards > 0 && !l.left && !l.incoming[l.of(g.cfg.ID)].down
	})
}

// pause is that of one tick.
func (g *Group) pause(ctx context.Context) {
	timer := time.NewTimer(g.host.cfg.Tick)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// heirControl asks for the best replica to hand over to.
type heirControl struct {
	g    *Group
	done chan uint64 // capacity 1; 0 = there is none
}

func (c *heirControl) run(s *shard) {
	g := c.g
	if g.gone() || g.leadTerm == 0 || g.rn == nil {
		c.done <- 0
		return
	}
	var best uint64
	var most tracker.Progress
	var doubted []uint64
	g.rn.WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
		if id == s.host.cfg.NodeID || typ != raft.ProgressTypePeer {
			return
		}
		if g.doubted(id) {
			doubted = append(doubted, id)
			return
		}
		if pr.State != tracker.StateReplicate || (s.host.controls != nil && !s.link(id).up(g.cfg.ID)) {
			return
		}
		if best == 0 || pr.Match > most.Match || pr.Match == most.Match && g.rankOf(id) > g.rankOf(best) {
			best, most = id, pr
		}
	})
	for _, id := range doubted {
		g.ask(id) // for the next time
	}
	c.done <- best
}

// heir is the replica that should lead next.
func (g *Group) heir(ctx context.Context) (uint64, error) {
	c := &heirControl{g: g, done: make(chan uint64, 1)}
	if !g.shard.inbox.post(item{g: g, ctl: c}) {
		return 0, ErrStopped
	}
	select {
	case to := <-c.done:
		if to == 0 {
			return 0, ErrBehind
		}
		return to, nil
	case <-ctx.Done():
		return 0, fmt.Errorf("replica: group %s: hand over: %w", g.cfg.ID, ctx.Err())
	}
}

// goodbye tells the other nodes that this one leads nothing any more, keeps no lease, and asks for no votes.
func (h *Host) goodbye() {
	if h.leaving.Swap(true) || h.controls == nil {
		return
	}
	for _, s := range h.shards {
		s.inbox.post(item{ctl: leaveControl{}})
	}
}

// leaveControl ends this node's part as a leader. The metadata's shard says goodbye when all have done so.
type leaveControl struct{}

func (leaveControl) run(s *shard) {
	for _, g := range s.groups {
		if g.solo.Load() {
			continue
		}
		g.dropLease()
		if g.admits {
			s.touch(g)
		}
	}
	if s.host.left.Add(1) < int64(len(s.host.shards)) {
		return
	}
	for _, l := range s.links {
		s.host.controls.Control(l.node, controlGoodbye, 0, nil)
	}
}
