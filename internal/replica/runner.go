package replica

import (
	"errors"
	"fmt"
	"runtime/debug"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/whippetmq/whippet/internal/segment"
)

// This file is a group's part of a turn. Everything runs on the shard's goroutine.

// guard runs a step of the group. A panic, of raft or of the Machine, is a broken invariant: it fences the group, and the
// others go on. Requests whose entry was being applied then get no outcome from the host, since the Machine may have told
// some of them.
func (g *Group) guard(step func(*Group)) {
	defer func() {
		if p := recover(); p != nil {
			g.shard.log.Error("a group broke an invariant", "group", g.cfg.ID, "panic", p, "stack", string(debug.Stack()))
			g.fence(fmt.Errorf("invariant broken: %v", p))
		}
	}()
	step(g)
}

// gone reports whether the group takes no part, for good or while its files are replaced.
func (g *Group) gone() bool { return g.fenced.Load() != nil || !g.listed || g.refill != nil }

// advance steps what arrived, proposes, and takes what raft wants done.
func (g *Group) advance() {
	if g.gone() {
		g.refuse()
		return
	}
	if g.rn == nil {
		g.advanceSolo()
		if g.rn == nil || g.gone() {
			return
		}
	}
	if g.asleep && (len(g.msgs) > 0 || len(g.in) > 0 && g.leadTerm != 0) {
		g.wake()
	}
	for i, m := range g.msgs {
		g.step(m)
		g.msgs[i] = nil
	}
	g.msgs = g.msgs[:0]
	// What was stepped may have cost this node the leadership; requests must not be numbered then.
	g.collect()
	g.beginTransfer()
	if len(g.in) > 0 && !g.holds() {
		g.propose(nil)
	}
	g.collect()
	g.stepTransfer()
	if g.change != nil && !g.change.stepped {
		g.proposeChange()
		g.collect()
	}
	g.goSolo()
	g.tryFit()
	g.tryInstall()
	if g.stopping != nil && g.idle(false) {
		g.finish()
	}
}

// refuse answers what arrived for a group that takes no part any more.
func (g *Group) refuse() {
	clear(g.msgs)
	g.msgs = nil
	g.failIncoming(g.outOfUse())
	if g.stopping != nil && g.idle(false) {
		g.finish()
	}
}

// outOfUse is the outcome of requests that came too late.
func (g *Group) outOfUse() error {
	if err := g.fenced.Load(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotAdmitted, err)
	}
	if g.refill != nil {
		return ErrNotAdmitted
	}
	return fmt.Errorf("%w: %w", ErrNotAdmitted, ErrStopped)
}

// failIncoming answers the requests that were not proposed.
func (g *Group) failIncoming(err error) {
	if g.in == nil {
		return
	}
	in := g.in
	g.in = nil
	var bytes int64
	for _, q := range in {
		q.r.Fail(err)
		bytes += q.size
	}
	g.shard.owe(g, bytes, len(in))
	g.shard.giveQueue(in)
}

// keepVital answers the requests that a full disk refuses, and leaves those that it does not.
func (g *Group) keepVital() {
	in := g.in
	vital := in[:0]
	var bytes int64
	for _, q := range in {
		if v, ok := q.r.(Vital); ok && v.Vital() && g.host.space.admitVital() {
			vital = append(vital, q)
			continue
		}
		q.r.Fail(ErrDiskFull)
		bytes += q.size
	}
	g.shard.owe(g, bytes, len(in)-len(vital))
	clear(in[len(vital):])
	if g.in = vital; len(vital) == 0 {
		g.in = nil
		g.shard.giveQueue(in)
	}
}

// propose admits the requests of this turn and gives them to raft as one proposal. more are control entries of the
// Machine.
func (g *Group) propose(more [][]byte) {
	s := g.shard
	if len(g.in) > 0 {
		switch {
		case !g.admits || g.stopping != nil || s.closing != nil || s.host.leaving.Load() && !g.solo.Load():
			g.failIncoming(ErrNotAdmitted)
		case g.stalled:
			g.failIncoming(ErrDiskFull)
		case !s.host.space.admit(g.incoming()):
			g.keepVital()
		}
	}
	if !g.admits {
		return
	}
	props := s.props[:0]
	if room := len(g.in) + 1 + len(more); room > len(s.slab) {
		s.slab = make([]raftpb.Entry, max(16, room, 2*len(s.slab)))
	}
	add := func(data []byte, w waiter) {
		e := &s.slab[len(props)]
		e.Data = data
		s.entries = append(s.entries, e)
		props = append(props, w)
	}
	in := g.in
	g.in = nil
	for _, q := range in {
		data := g.machine.Admit(q.r)
		if len(data) == 0 {
			s.owe(g, q.size, 1) // answered, or counted again when it is folded
			continue
		}
		add(data, waiter{one: q.r, bytes: q.size, count: 1})
	}
	if in != nil {
		s.giveQueue(in)
		if data, rs := g.machine.Fold(); len(data) > 0 {
			// The Machine reuses its slice at the next Fold, the waiter lives longer.
			add(data, waiter{many: append(make([]Request, 0, len(rs)), rs...)})
		}
	}
	for _, data := range more {
		if len(data) > 0 {
			add(data, waiter{})
		}
	}
	switch {
	case len(props) == 0:
	case g.rn == nil:
		g.proposeSolo(props)
	default:
		s.proposal.Entries = s.entries
		err := g.rn.Step(&s.proposal)
		if err != nil {
			g.rejected(props)
		} else {
			for i := range props {
				g.proposed(&props[i])
			}
			g.unbound += len(props)
			g.touched()
		}
	}
	for i := range s.entries {
		s.entries[i].Data = nil
	}
	clear(s.entries)
	clear(props)
	s.entries, s.props = s.entries[:0], props[:0]
	s.proposal.Entries = nil
}

// proposed tells the requests of an entry that their bytes were copied, and lets the entry wait for its outcome.
func (g *Group) proposed(w *waiter) {
	if w.one != nil {
		w.one.Proposed()
	}
	for _, r := range w.many {
		r.Proposed()
	}
	g.waiters.push(*w)
}

// rejected undoes the admissions of a proposal that raft did not take.
func (g *Group) rejected(props []waiter) {
	s := g.shard
	s.undo = s.undo[:0]
	for i := len(props) - 1; i >= 0; i-- {
		if props[i].one != nil {
			s.undo = append(s.undo, props[i].one)
		}
		for j := len(props[i].many) - 1; j >= 0; j-- {
			s.undo = append(s.undo, props[i].many[j])
		}
	}
	if len(s.undo) > 0 {
		g.machine.Rejected(s.undo)
	}
	for i := range props {
		g.failWaiter(&props[i], ErrNotAdmitted)
	}
	clear(s.undo)
	s.undo = s.undo[:0]
}

func (g *Group) incoming() int64 {
	var n int64
	for _, q := range g.in {
		n += q.size
	}
	return n
}

func (g *Group) failWaiter(w *waiter, err error) {
	if w.one != nil {
		w.one.Fail(err)
	}
	for _, r := range w.many {
		r.Fail(err)
	}
	g.shard.owe(g, w.bytes, w.count)
}

// collect takes what raft has ready until there is nothing more.
func (g *Group) collect() {
	g.readFresh = false
	for g.rn.HasReady() {
		rd := g.rn.Ready()
		if rd.HardState != nil {
			g.commit.Store(rd.HardState.GetCommit())
		}
		// What is committed is applied before a loss of leadership is acted on: its waiters get their true outcome.
		for _, m := range rd.Messages {
			if m.GetTo() == raft.LocalApplyThread {
				g.apply(m)
				if g.gone() {
					return
				}
			}
		}
		if !raft.IsEmptyHardState(rd.HardState) {
			g.term.Store(rd.HardState.GetTerm())
		}
		if rd.SoftState != nil {
			g.state = rd.SoftState.RaftState
			had := g.leader.Swap(rd.SoftState.Lead)
			if rd.SoftState.Lead != 0 {
				g.tries, g.holdUntil = 0, 0
			} else if had != 0 {
				g.leaderless(leaderlessTicks)
			}
		}
		g.checkRole()
		for _, rs := range rd.ReadStates {
			g.readReady(rs)
		}
		for _, m := range rd.Messages {
			switch m.GetTo() {
			case raft.LocalApplyThread:
			case raft.LocalAppendThread:
				if n := len(m.Entries); n > 0 {
					g.raftLast = m.Entries[n-1].GetIndex()
				}
				g.bind(m.Entries)
				g.bindChange(m.Entries)
				g.shard.writes = append(g.shard.writes, storageWork{g: g, m: m})
			default:
				if t := m.GetType(); t == raftpb.MsgHeartbeat && g.shard.gather(g, m) || t == raftpb.MsgHeartbeatResp && g.gathered(m) {
					continue
				}
				g.shard.post(g, m)
			}
		}
		if rd.SoftState != nil || !raft.IsEmptyHardState(rd.HardState) {
			g.tell()
		}
	}
}

// bind gives the waiters of the proposal that was just stepped the index and term that raft gave to their entries. They
// are the newest waiters, and their entries the only ones in the append that have data and are not of the configuration.
func (g *Group) bind(es []*raftpb.Entry) {
	if g.unbound == 0 {
		return
	}
	next := g.waiters.len() - g.unbound
	for _, e := range es {
		if e.GetType() != raftpb.EntryNormal || len(e.GetData()) == 0 || e.GetTerm() != g.leadTerm {
			continue
		}
		w := g.waiters.at(next)
		w.index, w.term = e.GetIndex(), e.GetTerm()
		next++
		g.unbound--
		if g.unbound == 0 {
			return
		}
	}
}

// checkRole acts on a change of leadership. A new term counts as one even when this node leads in both.
func (g *Group) checkRole() {
	leads := g.state == raft.StateLeader
	if g.leadTerm != 0 && (!leads || g.term.Load() != g.leadTerm) {
		g.lose()
	}
	if leads {
		g.leadTerm = g.term.Load()
		g.trySound()
	}
	switch g.state {
	case raft.StateLeader:
		g.role.Store(uint32(Leader))
	case raft.StateFollower:
		g.role.Store(uint32(Follower))
	default:
		g.role.Store(uint32(Candidate))
	}
	g.needTicks()
}

// lose ends this node's leadership of the group: what entered the log has an unknown outcome.
func (g *Group) lose() {
	term := g.leadTerm
	g.leadTerm = 0
	g.doubts = doubts{}
	g.ready.Store(false)
	g.dropLease()
	g.distrust = 0
	g.asleep, g.sleepy = false, false
	if g.admits {
		g.admits = false
		g.machine.Lead(term, false)
	}
	g.failWaiters(ErrOutcomeUnknown)
	g.failReads(ErrNotLeader)
	g.transferEnded(nil)
	if g.change != nil && g.change.stepped {
		g.changeEnded(ErrOutcomeUnknown)
	}
}

func (g *Group) failWaiters(err error) {
	for g.waiters.len() > 0 {
		w := g.waiters.pop()
		g.failWaiter(&w, err)
	}
	g.unbound = 0
}

// apply applies committed entries and tells raft.
func (g *Group) apply(m *raftpb.Message) {
	for _, e := range m.Entries {
		if e.GetType() != raftpb.EntryNormal {
			g.news, g.unflushed = true, true
			g.applyConf(e)
		} else if !g.applyEntry(segment.Entry{Index: e.GetIndex(), Term: e.GetTerm(), Data: e.Data}) {
			return
		}
	}
	index := m.Entries[len(m.Entries)-1].GetIndex()
	g.store.applied(index)
	for _, r := range m.Responses {
		_ = g.rn.Step(r) // local, cannot fail
	}
	g.appliedTo(index)
}

// applyEntry applies one entry that is not of the configuration, and ends the wait of its requests. It reports false when
// the group was fenced by it.
func (g *Group) applyEntry(e segment.Entry) bool {
	w, local := g.waiterOf(e.Index, e.Term)
	if len(e.Data) == 0 {
		g.applyTerm(e.Term)
		return true
	}
	g.news, g.unflushed = true, true
	rs := w.many
	if w.one != nil {
		g.shard.one[0] = w.one
		rs = g.shard.one[:]
	}
	err := g.machine.Apply(e, rs)
	g.shard.one[0] = nil
	if err != nil {
		g.failWaiter(&w, ErrOutcomeUnknown)
		g.fence(fmt.Errorf("apply index %d: %w", e.Index, err))
		return false
	}
	if local {
		g.shard.owe(g, w.bytes, w.count)
	}
	return true
}

// appliedTo notes what follows from a higher applied index.
func (g *Group) appliedTo(index uint64) {
	g.applied.Store(index)
	g.log.Applied(index)
	g.touched()
	g.readsApplied(index)
	g.keep(false)
	g.tell()
}

// waiterOf takes the waiter of the entry out of the queue. One of an older index, or of another term, belonged to an
// entry that is not in the log any more.
func (g *Group) waiterOf(index, term uint64) (waiter, bool) {
	for g.waiters.len()-g.unbound > 0 {
		first := g.waiters.at(0)
		if first.index > index {
			break
		}
		w := g.waiters.pop()
		if w.index == index && w.term == term {
			return w, true
		}
		g.failWaiter(&w, ErrOutcomeUnknown)
	}
	return waiter{}, false
}

// applyTerm applies a leader's first entry. When it is this node's own, everything older is applied now.
func (g *Group) applyTerm(term uint64) {
	if g.leadTerm == 0 || term != g.leadTerm || g.admits {
		return
	}
	g.admits = true
	g.machine.Lead(term, true)
	g.ready.Store(true)
}

func (g *Group) applyConf(e *raftpb.Entry) {
	cc := &raftpb.ConfChangeV2{}
	if err := proto.Unmarshal(e.GetData(), cc); err != nil {
		panic(fmt.Sprintf("configuration change at index %d: %v", e.GetIndex(), err))
	}
	g.conf = g.rn.ApplyConfChange(cc)
	g.confDirty = true
	g.confChanged()
	g.setMembers(true)
	g.dropLease() // to be renewed by a quorum of these
	if g.change != nil && g.change.index == e.GetIndex() {
		g.changeEnded(nil)
	}
}

// confChanged notes what follows from the configuration.
func (g *Group) confChanged() {
	c := g.conf
	g.solo.Store(len(c.Voters) == 1 && c.Voters[0] == g.host.cfg.NodeID && len(c.VotersOutgoing) == 0 && len(c.Learners) == 0)
}

// needsTicks reports whether raft's clock must run: not for a sole voter that leads, who has nobody to hear from.
func (g *Group) needsTicks() bool {
	return g.listed && g.fenced.Load() == nil && g.refill == nil && !g.asleep && !(g.solo.Load() && g.state == raft.StateLeader)
}

func (g *Group) tickRaft() {
	for range g.tickBy {
		switch {
		case g.suspicion != 0:
			g.suspectTick()
		case g.state == raft.StateLeader || g.mayTick():
			g.rn.Tick()
		}
		g.tickCopy()
	}
	g.tickFilling()
	g.checkTransfer()
}

func (g *Group) tickMachine() {
	if !g.admits || g.gone() || g.stopping != nil || g.stalled || g.transfer.done != nil {
		return
	}
	if more := g.machine.Tick(g.host.cfg.Clock.Now()); len(more) > 0 {
		g.propose(more)
		g.shard.touch(g)
	}
}

// touched notes that the group is active.
func (g *Group) touched() {
	g.quiet = g.shard.lastTick
	g.sleepy = false
	if !g.active {
		g.active = true
		g.shard.active = append(g.shard.active, g)
	}
}

// fence stops the group for good, because what it would do next could be wrong. Its files stay as they are.
func (g *Group) fence(cause error) {
	if g.fenced.Load() != nil {
		return
	}
	var fenced *FencedError
	if !errors.As(cause, &fenced) {
		fenced = &FencedError{g.cfg.ID, cause}
	}
	g.shard.log.Error("a group is fenced", "group", g.cfg.ID, "error", cause)
	g.fenced.Store(fenced)
	g.role.Store(uint32(Fenced))
	g.leader.Store(0)
	g.full.Store(false)
	g.stalled, g.asleep = false, false
	g.drop(ErrOutcomeUnknown)
	g.shard.inbox.closeGroup(g)
	g.shard.touch(g) // to refuse what arrived
	g.tell()
}

// drop ends whatever the group has under way, except what the log writer holds.
func (g *Group) drop(outcome error) {
	defer func() {
		if p := recover(); p != nil { // the Machine once more
			g.shard.log.Error("a group broke an invariant while it stopped", "group", g.cfg.ID, "panic", p)
		}
	}()
	g.endCatchup()
	term := g.leadTerm
	g.leadTerm = 0
	g.ready.Store(false)
	g.dropLease()
	g.failWaiters(outcome)
	g.failReads(ErrNotLeader)
	g.transferEnded(ErrStopped)
	g.changeEnded(ErrOutcomeUnknown)
	if g.admits {
		g.admits = false
		g.machine.Lead(term, false)
	}
}

// idle reports whether nothing of the group is under way on another goroutine or in the log; what waits for room, and with
// forced everything in the log, is given up.
func (g *Group) idle(forced bool) bool {
	if g.copying() || g.keeping || g.started > 0 || g.voting() {
		return false
	}
	return g.jobs.len() == 0 || g.fenced.Load() != nil || forced || g.stalled
}

// leave ends the group's part in the shard. Its Machine belongs to the caller of Close or StopGroup afterwards.
func (g *Group) leave() {
	if g.fenced.Load() == nil {
		g.role.Store(uint32(Stopped))
	}
	g.failIncoming(g.outOfUse())
	g.drop(ErrOutcomeUnknown)
	g.leader.Store(0)
	g.tell()
}
