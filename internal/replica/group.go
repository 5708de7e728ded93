package replica

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/whippetmq/whippet/internal/segment"
)

// Group is one group on this node. Its methods may be called from any goroutine.
type Group struct {
	host    *Host
	shard   *shard
	cfg     GroupConfig
	log     *segment.Log
	machine Machine

	// Read by everybody, written by the shard.
	role    atomic.Uint32
	ready   atomic.Bool
	full    atomic.Bool // a write waits for room
	term    atomic.Uint64
	leader  atomic.Uint64
	commit  atomic.Uint64
	applied atomic.Uint64
	last    atomic.Uint64
	fenced  atomic.Pointer[FencedError]
	solo    atomic.Bool // the only voter

	readable atomic.Pointer[segment.Log] // log, for everybody

	leaseUntil atomic.Int64 // Clock.Mono
	sleep      atomic.Pointer[sleepers]

	// Who waits for a change of the above.
	watchers atomic.Int32
	watch    struct {
		sync.Mutex
		changed chan struct{}
	}

	// Under shard.inbox.mu.
	pending int64 // bytes of requests without an outcome
	closed  bool  // no more requests and messages

	// writerFailed tells the log writer to skip what is queued of this group, since an earlier write failed.
	writerFailed atomic.Bool

	// The rest belongs to the shard's goroutine.
	rn    *raft.RawNode // nil while this node leads as the sole voter, see solo.go
	store storage

	dirty  bool          // in shard.dirty
	active bool          // in shard.active
	ticks  bool          // in shard.ticking
	listed bool          // in shard.groups
	quiet  time.Duration // Clock.Mono of its last entry

	in    []queued          // requests of this turn, or held ones
	msgs  []*raftpb.Message // messages of peers of this turn
	owed  outcome           // settled and not yet told to the inbox
	owing bool              // in shard.owing

	state    raft.StateType
	leadTerm uint64 // the term in which this node leads, 0 = it does not
	admits   bool   // Lead(true) was told
	vote     vote   // what was handed to the votes log or is durable
	waiters  queue[waiter]
	unbound  int // waiters at the end of the queue that have no index yet

	soloLast uint64 // newest index given by proposeSolo

	jobs    queue[*job] // storage work in order
	storing storageWork // argument of storeNext
	tickBy  int         // argument of tickRaft
	started int         // how many of them, from the first on, are with the log writer
	stalled bool        // the first failed for want of room; tried again by the tick

	conf       *raftpb.ConfState
	confDirty  bool // changed since the last checkpoint
	keeping    bool // the keeper works for this group
	checkpoint uint64
	sealed     uint64 // LastSealed at the last checkpoint
	appended   uint64 // Appended at the last checkpoint
	flushed    uint64 // Appended at the last background flush
	flushedAt  time.Duration
	news       bool // entries other than a term's first were applied since the last checkpoint
	unflushed  bool // and since the last background flush

	transfer  transfer
	reads     []*readWait
	readSeq   uint64
	readFresh bool // the newest read-index request was made in this turn

	change   *changeWait
	stopping *stopControl

	// Filling by copying and suspicion, see catchup.go and suspect.go.
	raftLast  uint64 // newest index in raft's hands
	offer     *offer
	offering  bool                     // the keeper makes one
	filling   map[uint64]time.Duration // replicas that raft waits for after a snapshot, and when they were last heard of
	fits      *raftpb.Message          // a snapshot that the log has, not yet told to raft
	copy      *copyJob                 // under way or complete
	refill    *copyJob                 // being put in place: the group has no raft node and takes no part
	suspicion suspicion
	contact   contact
	contacts  uint64 // counts them
	embargo   int    // ticks until a replica that has matched may vote
	granted   vote   // the last vote that it gave as a suspect
	doubts    doubts

	members    []uint64 // other nodes with a replica, ascending
	tries      int      // requests for votes left, see tickEager
	tryAt      time.Duration
	tryEvery   time.Duration
	holdUntil  time.Duration // requests are held until there is a leader, but no longer; 0 = they are not
	distrust   uint64        // node of the last transfer, which failed; no lease before it promised again
	distrustAt time.Duration

	acks       []ack         // while it leads and is awake
	promisedTo uint64        // as a follower: node
	promised   time.Duration // when

	asleep     bool
	sleepy     bool          // heartbeats ask to sleep
	sleepSince time.Duration // when the first of them was made
	woken      uint64        // by link.number: nodes to be told that it does not sleep
}

// queued is a request in the turn in which it is proposed.
type queued struct {
	r    Request
	size int64
}

// waiter is the local origin of one entry that is in raft's hands.
type waiter struct {
	index, term uint64
	one         Request
	many        []Request // of a folded entry; then one is nil
	bytes       int64
	count       int
}

// ID is the group's id.
func (g *Group) ID() GroupID { return g.cfg.ID }

// Log is the group's log, for reading. It is another one after the replica was filled by copying; the old one then refuses
// with segment.ErrClosed, and the Machine's Restore has been called again with the new one.
func (g *Group) Log() *segment.Log { return g.readable.Load() }

// Submit hands a request over; it waits for room, as long as ctx allows. While there is room it does not look at ctx and
// does not allocate. An error means that the request was not taken and will get no outcome: ErrStopped, ErrTooLarge,
// *FencedError, or the context's. Requests of one goroutine keep their order.
func (g *Group) Submit(ctx context.Context, r Request) error { return g.submit(ctx, r) }

// TrySubmit is Submit that never waits: ErrBusy when there is no room.
func (g *Group) TrySubmit(r Request) error {
	var never context.Context // nil = do not wait
	return g.submit(never, r)
}

func (g *Group) submit(ctx context.Context, r Request) error {
	if err := g.admissible(r); err != nil {
		return err
	}
	return g.shard.inbox.submit(ctx, g, r)
}

func (g *Group) admissible(r Request) error {
	if err := g.fenced.Load(); err != nil {
		return err
	}
	if r.Size() > g.host.cfg.MaxEntryBytes {
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, r.Size(), g.host.cfg.MaxEntryBytes)
	}
	return nil
}

// Status is a snapshot of the group's state; it costs a few atomic loads.
func (g *Group) Status() Status {
	return Status{
		Role:      Role(g.role.Load()),
		Term:      g.term.Load(),
		Leader:    g.leader.Load(),
		Commit:    g.commit.Load(),
		Applied:   g.applied.Load(),
		LastIndex: g.last.Load(),
		Ready:     g.ready.Load(),
		DiskFull:  g.full.Load(),
	}
}

// Err is why the group is fenced, a *FencedError, else nil.
func (g *Group) Err() error {
	if err := g.fenced.Load(); err != nil {
		return err
	}
	return nil
}

// WaitApplied waits until the entry at index is applied here.
func (g *Group) WaitApplied(ctx context.Context, index uint64) error {
	return g.wait(ctx, func() bool { return g.applied.Load() >= index })
}

// WaitReady waits until there is a leader and, when it is this node, it admits requests.
func (g *Group) WaitReady(ctx context.Context) error {
	return g.wait(ctx, func() bool {
		leader := g.leader.Load()
		return leader != 0 && (leader != g.host.cfg.NodeID || g.ready.Load())
	})
}

// wait returns when done reports true, which it is asked again after each change of the group's state.
func (g *Group) wait(ctx context.Context, done func() bool) error {
	if done() {
		return nil
	}
	g.watchers.Add(1)
	defer g.watchers.Add(-1)
	for {
		g.watch.Lock()
		if g.watch.changed == nil {
			g.watch.changed = make(chan struct{})
		}
		changed := g.watch.changed
		g.watch.Unlock()
		// Asked after the channel was taken: a change between the two closes the channel.
		if done() {
			return nil
		}
		switch Role(g.role.Load()) {
		case Fenced:
			return g.Err()
		case Stopped:
			return ErrStopped
		case Follower, Candidate, Leader:
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("replica: group %s: %w", g.cfg.ID, ctx.Err())
		}
	}
}

// tell wakes who waits for a change.
func (g *Group) tell() {
	if g.watchers.Load() == 0 {
		return
	}
	g.watch.Lock()
	changed := g.watch.changed
	g.watch.changed = nil
	g.watch.Unlock()
	if changed != nil {
		close(changed)
	}
}

// ReadBarrier returns nil when this node leads the group, has proof of it from the time of the call or later, and has
// applied what was committed then. Otherwise ErrNotLeader. A lease is such a proof and costs nothing; a group of one voter
// needs none.
func (g *Group) ReadBarrier(ctx context.Context) error {
	if !g.ready.Load() {
		if err := g.Err(); err != nil {
			return err
		}
		return ErrNotLeader
	}
	if g.solo.Load() || !g.host.leaving.Load() && g.leased() {
		return nil
	}
	w := &readWait{g: g, done: make(chan error, 1)}
	if !g.shard.inbox.post(item{g: g, ctl: w}) {
		return ErrStopped
	}
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("replica: group %s: prove leadership: %w", g.cfg.ID, ctx.Err())
	}
}

// TransferLeader hands leadership to another voter and waits until it has it or the attempt failed. Requests that arrive
// meanwhile are held; when the other node leads they fail with ErrNotAdmitted. ErrBehind when the other
// node lacks too much of the log.
func (g *Group) TransferLeader(ctx context.Context, to uint64) error {
	if err := g.giveUp(ctx, to); err != nil || to == g.host.cfg.NodeID {
		return err
	}
	// This node has given up the leadership. Who has it now?
	if err := g.wait(ctx, func() bool { return g.leader.Load() != 0 }); err != nil {
		return err
	}
	if leader := g.leader.Load(); leader != to {
		return fmt.Errorf("%w: node %d leads now, not node %d", ErrBusy, leader, to)
	}
	return nil
}

// giveUp is the part of a transfer that this node has in hand: with nil it does not lead any more, and the other node
// campaigns, as far as it is there.
func (g *Group) giveUp(ctx context.Context, to uint64) error {
	c := &transferControl{g: g, to: to, done: make(chan error, 1)}
	if !g.shard.inbox.post(item{g: g, ctl: c}) {
		return ErrStopped
	}
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("replica: group %s: transfer to node %d: %w", g.cfg.ID, to, ctx.Err())
	}
}

// Progress is what this node, as the leader, knows of the replicas, ordered by node; ErrNotLeader when it does not lead.
func (g *Group) Progress(ctx context.Context) ([]Progress, error) {
	c := &progressControl{g: g, done: make(chan []Progress, 1)}
	if !g.shard.inbox.post(item{g: g, ctl: c}) {
		return nil, ErrStopped
	}
	select {
	case ps := <-c.done:
		if ps == nil {
			return nil, ErrNotLeader
		}
		return ps, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("replica: group %s: %w", g.cfg.ID, ctx.Err())
	}
}

// queue is a FIFO on a slice that is let go when it is empty and large.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) len() int { return len(q.items) - q.head }

func (q *queue[T]) at(i int) *T { return &q.items[q.head+i] }

func (q *queue[T]) push(v T) {
	if q.head > 32 && q.head*2 >= len(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, v)
}

func (q *queue[T]) pop() T {
	var zero T
	v := q.items[q.head]
	q.items[q.head] = zero
	q.head++
	if q.head == len(q.items) {
		q.head = 0
		if cap(q.items) > 256 {
			q.items = nil
		} else {
			q.items = q.items[:0]
		}
	}
	return v
}
