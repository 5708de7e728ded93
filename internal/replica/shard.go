package replica

import (
	"encoding/binary"
	"log/slog"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/whippetmq/whippet/internal/segment"
)

var le = binary.LittleEndian

const (
	// machineTick is how often the Machine of an active group is ticked.
	machineTick = 100 * time.Millisecond
	// activeFor is how long a group counts as active after its last entry.
	activeFor = 2 * time.Second
	// idleRound is the number of machine ticks in which every idle group is ticked once.
	idleRound = 100
	// restEvery is the tick of a shard that has nothing to do.
	restEvery = time.Second
	// maxTicks is how many raft ticks a turn makes up for when the shard was late: more would only cause elections.
	maxTicks = 2
)

// shard runs its groups on one goroutine at a time (see inbox): turn after turn, each of them a function of what the inbox
// held and of the clock. "The shard's goroutine" is whoever runs it.
type shard struct {
	host   *Host
	number int
	log    *slog.Logger
	inbox  *inbox
	writer *writer
	cache  *segment.Cache
	done   chan struct{} // closed when the loop ended

	groups  []*Group // by id
	byID    map[GroupID]*Group
	links   []*link
	dirty   []*Group // to be looked at in this turn
	active  []*Group // had an entry lately
	ticking []*Group // need raft's clock
	stalled []*Group // a write waits for room
	eager   []*Group // ask for votes soon, see failover.go
	owing   []*Group // have settled requests that the inbox still counts

	items   []item
	settled []outcome
	writes  []storageWork // of this turn
	votes   []*job        // of this turn
	out     []outbox      // messages of this turn, by node

	ticked     bool // the turn began with a tick
	tickedBy   int
	unanswered []*beatsControl // heartbeats of this turn
	answers    uint64          // answers to heartbeats so far
	sleepers   []*sleepers

	lastTick    time.Duration
	lastMachine time.Duration
	idleNext    int // next of groups for the idle round

	closing *closeControl

	every    time.Duration // the longest time that the loop sleeps
	panicked any           // what a submitter met while it ran the shard

	// Scratch of one turn.
	props    []waiter
	entries  []*raftpb.Entry
	slab     []raftpb.Entry
	proposal raftpb.Message
	undo     []Request
	one      [1]Request
	queues   [][]queued
	freeJobs []*job
	finished *job // argument of completeFinished
	placing  []segment.Entry
	solos    [][]segment.Entry
	frame    []byte
	response raftpb.Message
	kinds    struct{ heartbeat, response *raftpb.MessageType }
}

// outbox are the messages of a turn for one node.
type outbox struct {
	node     uint64
	messages []Message
}

// storageWork is a MsgStorageAppend of this turn, or the entries of a sole voter.
type storageWork struct {
	g    *Group
	m    *raftpb.Message
	solo []segment.Entry
}

func newShard(h *Host, number int) *shard {
	s := &shard{
		host: h, number: number,
		log:   h.cfg.Logger.With("shard", number),
		inbox: newInbox(&h.cfg),
		cache: segment.NewCache(h.cfg.CacheBytes),
		done:  make(chan struct{}),
	}
	s.proposal.Type = raftpb.MsgProp.Enum()
	s.proposal.From = &h.cfg.NodeID
	s.byID = map[GroupID]*Group{}
	s.kinds.heartbeat, s.kinds.response = raftpb.MsgHeartbeat.Enum(), raftpb.MsgHeartbeatResp.Enum()
	s.response.Type, s.response.To = s.kinds.response, &h.cfg.NodeID
	s.writer = newWriter(s)
	now := h.cfg.Clock.Mono()
	now -= now % h.cfg.Tick
	s.lastTick, s.lastMachine = now, now
	s.every = h.cfg.Tick
	return s
}

// loop is the goroutine that runs the shard whenever it was handed over, and on every tick.
func (s *shard) loop() {
	defer close(s.done)
	timer := time.NewTimer(s.untilNext(s.every))
	defer timer.Stop()
	every := s.every
	for {
		select {
		case <-s.inbox.wake:
		case <-timer.C:
			timer.Reset(s.untilNext(every))
			if !s.inbox.enter() {
				continue // who runs it looks at the clock too
			}
		}
		if p := s.panicked; p != nil {
			panic(p)
		}
		for left := false; !left; left = s.inbox.free() {
			s.turn()
			if s.ended() {
				return
			}
			s.every = s.wakeEvery()
			if every != s.every {
				every = s.every
				timer.Reset(s.untilNext(every))
			}
		}
	}
}

// untilNext is the time to the next multiple of an interval: the shards of a node tick together, so that what they have to
// say to another node leaves together.
func (s *shard) untilNext(every time.Duration) time.Duration {
	return every - s.host.cfg.Clock.Mono()%every
}

// wakeEvery is the longest time that the loop may sleep.
func (s *shard) wakeEvery() time.Duration {
	switch {
	case len(s.eager) > 0:
		return min(s.host.cfg.Tick, eagerEvery)
	case len(s.ticking) == 0 && len(s.active) == 0 && len(s.stalled) == 0 && !s.meets():
		return max(s.host.cfg.Tick, restEvery)
	}
	return s.host.cfg.Tick
}

// meets reports whether the shard has to do with shards of other nodes.
func (s *shard) meets() bool {
	return slices.ContainsFunc(s.links, func(l *link) bool { return l.shared > 0 || s.number == 0 && l.shards > 0 })
}

// turn does all there is to do; it reports whether that was anything.
func (s *shard) turn() bool {
	did := false
	for s.round() {
		did = true
	}
	return did
}

// round does what is there now; it reports whether that was anything.
func (s *shard) round() bool {
	s.settle()
	s.items = s.inbox.take(s.items[:0], s.settled)
	clear(s.settled)
	s.settled = s.settled[:0]
	s.ticked = s.tick()
	s.handle(s.items)
	asked := s.tickEager()
	if len(s.items) == 0 && !s.ticked && !asked {
		return false
	}
	clear(s.items)
	if s.ticked {
		// After what arrived: it may be a sign of life.
		s.tickLinks(s.tickedBy)
	}
	s.work()
	if len(s.unanswered) > 0 {
		s.answer()
	}
	if s.ticked && s.host.controls != nil && !s.host.leaving.Load() {
		s.sendBeats()
	}
	return true
}

// handle sorts the items out to their groups.
func (s *shard) handle(items []item) {
	for i := range items {
		it := &items[i]
		switch {
		case it.req != nil:
			g := it.g
			if g.in == nil {
				g.in = s.takeQueue()
			}
			g.in = append(g.in, queued{it.req, it.size})
			s.touch(g)
		case it.msg != nil:
			it.g.msgs = append(it.g.msgs, it.msg)
			s.touch(it.g)
		case it.job != nil:
			s.storageDone(it.job)
		default:
			it.ctl.run(s)
		}
	}
}

// work looks at the dirty groups until nothing is left: first all groups step, propose and say what they want written;
// then the messages leave, so that the followers write while this node does; then it writes.
func (s *shard) work() {
	for len(s.dirty) > 0 {
		for i := 0; i < len(s.dirty); i++ {
			g := s.dirty[i]
			g.dirty = false
			g.guard((*Group).advance)
		}
		clear(s.dirty)
		s.dirty = s.dirty[:0]
		s.send()
		for i := 0; i < len(s.writes); i++ {
			w := s.writes[i]
			w.g.storing = w
			w.g.guard((*Group).storeNext)
		}
		clear(s.writes)
		s.writes = s.writes[:0]
	}
	s.send()
	if len(s.votes) > 0 {
		s.host.votes.turns.put(votesTurn{shard: s, jobs: slices.Clone(s.votes)})
		clear(s.votes)
		s.votes = s.votes[:0]
	}
}

func (s *shard) touch(g *Group) {
	if !g.dirty {
		g.dirty = true
		s.dirty = append(s.dirty, g)
	}
}

// post queues a message for another node until the end of the step. One that says all that the group's message before it
// says takes its place.
func (s *shard) post(g *Group, m *raftpb.Message) {
	if !g.outgoing(m) {
		return
	}
	to := m.GetTo()
	for i := range s.out {
		o := &s.out[i]
		if o.node != to {
			continue
		}
		if n := len(o.messages); n > 0 && o.messages[n-1].Group == g.cfg.ID && covers(m, o.messages[n-1].Raft) {
			o.messages[n-1].Raft = m
		} else {
			o.messages = append(o.messages, Message{g.cfg.ID, m})
		}
		return
	}
	s.out = append(s.out, outbox{to, []Message{{g.cfg.ID, m}}})
}

// covers reports whether a message says all that an older one to the same node says: an append, or another notice of the
// commit index, after such a notice; an acknowledgement after one of less.
func covers(m, old *raftpb.Message) bool {
	if m.GetType() != old.GetType() || m.GetTerm() != old.GetTerm() || m.Context != nil || old.Context != nil {
		return false
	}
	switch m.GetType() {
	case raftpb.MsgApp:
		return len(old.Entries) == 0 && old.GetIndex() == m.GetIndex() && old.GetLogTerm() == m.GetLogTerm() && old.GetCommit() <= m.GetCommit()
	case raftpb.MsgAppResp:
		return !old.GetReject() && !m.GetReject() && old.GetIndex() <= m.GetIndex()
	}
	return false
}

func (s *shard) send() {
	for i := range s.out {
		o := &s.out[i]
		if len(o.messages) == 0 {
			continue
		}
		if s.host.cfg.Transport != nil {
			s.host.cfg.Transport.Send(o.node, o.messages)
		}
		clear(o.messages)
		o.messages = o.messages[:0]
	}
}

// tick does what is due by the clock; it reports whether that was anything.
func (s *shard) tick() bool {
	now := s.host.cfg.Clock.Mono()
	elapsed := now - s.lastTick
	if elapsed < s.host.cfg.Tick {
		return false
	}
	n := int(elapsed / s.host.cfg.Tick)
	if n > maxTicks {
		n = maxTicks
		s.lastTick = now - now%s.host.cfg.Tick
	} else {
		s.lastTick += time.Duration(n) * s.host.cfg.Tick
	}
	s.tickedBy = n
	kept := s.ticking[:0]
	for _, g := range s.ticking {
		if g.needsTicks() {
			kept = append(kept, g)
			g.tickBy = n
			if g.leadTerm != 0 {
				g.getSleepy()
			}
			g.guard((*Group).tickRaft)
			s.touch(g)
		} else {
			g.ticks = false
		}
	}
	clear(s.ticking[len(kept):])
	s.ticking = kept

	s.host.space.tick(now)
	s.retry()
	if late := now - s.lastMachine; late >= machineTick {
		s.lastMachine = now
		s.tickMachines(now, min(int(late/machineTick), int(restEvery/machineTick)))
	}
	return true
}

// tickMachines ticks the active groups, and a hundredth of the others in turn.
func (s *shard) tickMachines(now time.Duration, rounds int) {
	kept := s.active[:0]
	for _, g := range s.active {
		if now-g.quiet > activeFor {
			g.active = false
			g.housekeep(true)
			continue
		}
		kept = append(kept, g)
		g.housekeep(false)
		g.guard((*Group).tickMachine)
	}
	clear(s.active[len(kept):])
	s.active = kept
	for range min(len(s.groups), rounds*((len(s.groups)+idleRound-1)/idleRound)) {
		if s.idleNext >= len(s.groups) {
			s.idleNext = 0
		}
		g := s.groups[s.idleNext]
		s.idleNext++
		if !g.active {
			g.guard((*Group).tickMachine)
		}
	}
}

// retry tries the writes again that found no room.
func (s *shard) retry() {
	if len(s.stalled) == 0 {
		return
	}
	kept := s.stalled[:0]
	for _, g := range s.stalled {
		if !g.stalled {
			continue
		}
		if g.started > 0 {
			kept = append(kept, g) // the writer has not given all of them back
			continue
		}
		g.stalled = false
		g.writerFailed.Store(false)
		g.guard((*Group).pump)
		if g.stalled {
			kept = append(kept, g)
		} else {
			s.touch(g)
		}
	}
	clear(s.stalled[len(kept):])
	s.stalled = kept
}

// settle collects what the groups owe to the inbox's books.
func (s *shard) settle() {
	for _, g := range s.owing {
		g.owing = false
		g.owed.g = g
		s.settled = append(s.settled, g.owed)
		g.owed = outcome{}
	}
	clear(s.owing)
	s.owing = s.owing[:0]
}

// owe takes requests that have their outcome out of the books at the start of the next turn.
func (s *shard) owe(g *Group, bytes int64, requests int) {
	if requests == 0 {
		return
	}
	g.owed.bytes += bytes
	g.owed.requests += requests
	if !g.owing {
		g.owing = true
		s.owing = append(s.owing, g)
	}
}

// ended reports whether the loop may end: the host closes, and no group has anything under way.
func (s *shard) ended() bool {
	if s.closing == nil {
		return false
	}
	for _, g := range s.groups {
		if !g.idle(s.closing.forced()) {
			return false
		}
	}
	for _, g := range s.groups {
		g.guard((*Group).leave)
	}
	s.settle()
	return s.inbox.end()
}

func (s *shard) list(g *Group) {
	at, _ := slices.BinarySearchFunc(s.groups, g.cfg.ID, compareGroup)
	s.groups = slices.Insert(s.groups, at, g)
	s.byID[g.cfg.ID] = g
	g.listed = true
}

func (s *shard) unlist(g *Group) {
	if at, ok := slices.BinarySearchFunc(s.groups, g.cfg.ID, compareGroup); ok && s.groups[at] == g {
		s.groups = slices.Delete(s.groups, at, at+1)
		delete(s.byID, g.cfg.ID)
	}
	g.listed = false
	drop := func(gs []*Group) []*Group {
		return slices.DeleteFunc(gs, func(o *Group) bool { return o == g })
	}
	s.active, s.ticking, s.stalled, s.eager = drop(s.active), drop(s.ticking), drop(s.stalled), drop(s.eager)
	g.active, g.ticks, g.tries = false, false, 0
	g.setMembers(false)
	for _, l := range s.links {
		l.woken = drop(l.woken)
	}
}

func compareGroup(g *Group, id GroupID) int {
	switch {
	case g.cfg.ID < id:
		return -1
	case g.cfg.ID > id:
		return 1
	}
	return 0
}

func (s *shard) takeQueue() []queued {
	if n := len(s.queues); n > 0 {
		q := s.queues[n-1]
		s.queues = s.queues[:n-1]
		return q
	}
	return make([]queued, 0, 16)
}

func (s *shard) giveQueue(q []queued) {
	clear(q)
	if cap(q) <= 1024 && len(s.queues) < 64 {
		s.queues = append(s.queues, q[:0])
	}
}
