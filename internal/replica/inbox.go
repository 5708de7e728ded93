package replica

import (
	"context"
	"sync"

	"go.etcd.io/raft/v3/raftpb"
)

// item is one thing for a shard to do. Exactly one of req, msg, job and ctl is set.
type item struct {
	g    *Group
	req  Request
	size int64 // of req or msg
	msg  *raftpb.Message
	job  *job    // its storage work ended
	ctl  control // anything rare
}

// control is a rare request to a shard, run on its goroutine in the order of the inbox.
type control interface{ run(s *shard) }

// inbox is the only way into a shard: a slice under a mutex, taken as a whole, and a channel that wakes the loop.
//
// It also says who runs the shard, one goroutine at a time: whoever puts something in while nobody runs it makes it busy,
// and either runs it (Group.SubmitHere) or hands it to the loop with a signal. Who runs it takes what is in the inbox until
// free finds nothing urgent left, or hands it on with a signal. So at most one signal is under way, and what was put in is
// looked at by who runs the shard or by who runs it next.
//
// Bounds: requests count from submission to outcome, per group and per shard, in bytes and in number; at a bound Submit
// waits. Messages of peers count while they are in the inbox; above the bound they are dropped. Storage results and
// controls are bounded by what causes them and are always taken.
type inbox struct {
	maxGroup, maxShard, maxPeer int64
	maxRequests                 int

	wake chan struct{} // capacity 1: the shard was handed to the loop

	mu       sync.Mutex
	items    []item
	bytes    int64 // of requests without an outcome
	requests int   // their number
	peer     int64 // bytes of messages of peers in items
	waiting  chan struct{}
	urgent   bool // something came since the last take that cannot wait for the next tick
	busy     bool // the shard is being run, or was handed to the loop
	stopped  bool // no more requests and messages
	ended    bool // nothing at all
}

func newInbox(cfg *Config) *inbox {
	return &inbox{
		maxGroup:    cfg.MaxGroupBytes,
		maxShard:    cfg.MaxShardBytes,
		maxRequests: cfg.MaxShardRequests,
		maxPeer:     cfg.MaxPeerBytes,
		wake:        make(chan struct{}, 1),
	}
}

// submit puts a request in, waiting for room unless ctx is nil. An error means that the request was not taken.
func (b *inbox) submit(ctx context.Context, g *Group, r Request) error {
	run, err := b.put(ctx, g, r)
	if run {
		b.signal()
	}
	return err
}

// put is submit that leaves the shard to the caller when run is true: to be run, or handed on with a signal.
func (b *inbox) put(ctx context.Context, g *Group, r Request) (run bool, err error) {
	size := int64(r.Size())
	for {
		b.mu.Lock()
		if b.stopped || g.closed {
			b.mu.Unlock()
			if err := g.Err(); err != nil {
				return false, err
			}
			return false, ErrStopped
		}
		if (g.pending == 0 || g.pending+size <= b.maxGroup) &&
			(b.requests == 0 || b.bytes+size <= b.maxShard && b.requests < b.maxRequests) {
			g.pending += size
			b.bytes += size
			b.requests++
			b.items = append(b.items, item{g: g, req: r, size: size})
			run = b.claim()
			b.mu.Unlock()
			return run, nil
		}
		if ctx == nil {
			b.mu.Unlock()
			return false, ErrBusy
		}
		if b.waiting == nil {
			b.waiting = make(chan struct{})
		}
		room := b.waiting
		b.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// step puts a message of a peer in; it reports whether it was taken.
func (b *inbox) step(g *Group, m *raftpb.Message, size int64) bool {
	b.mu.Lock()
	if b.stopped || g.closed || b.peer+size > b.maxPeer && b.peer > 0 {
		b.mu.Unlock()
		return false
	}
	b.peer += size
	b.items = append(b.items, item{g: g, msg: m, size: size})
	b.unlockAndWake()
	return true
}

// post puts in what no bound may refuse; it reports false when the loop has ended.
func (b *inbox) post(it item) bool {
	b.mu.Lock()
	if b.ended {
		b.mu.Unlock()
		return false
	}
	b.items = append(b.items, it)
	b.unlockAndWake()
	return true
}

// leave is post for what can wait for the next tick.
func (b *inbox) leave(it item) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.items = append(b.items, it)
	}
}

// putControl is post or leave.
func (b *inbox) putControl(c control, urgent bool) {
	if urgent {
		b.post(item{ctl: c})
	} else {
		b.leave(item{ctl: c})
	}
}

// claim says that something urgent was put in, makes the shard busy, and reports whether it was not; the mutex is held.
func (b *inbox) claim() bool {
	was := b.busy
	b.urgent, b.busy = true, true
	return !was
}

// unlockAndWake hands the shard to the loop, unless somebody runs it.
func (b *inbox) unlockAndWake() {
	run := b.claim()
	b.mu.Unlock()
	if run {
		b.signal()
	}
}

// enter makes the shard busy and reports whether it was not.
func (b *inbox) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.busy
	b.busy = true
	return !was
}

// free ends what enter began; it refuses when something urgent is left.
func (b *inbox) free() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.urgent {
		return false
	}
	b.busy = false
	return true
}

// postJobs is post for storage work that ended.
func (b *inbox) postJobs(jobs []*job) {
	b.mu.Lock()
	for _, j := range jobs {
		b.items = append(b.items, item{g: j.g, job: j})
	}
	b.unlockAndWake()
}

// end refuses everything when the inbox is empty, and reports whether it was.
func (b *inbox) end() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.items) > 0 {
		return false
	}
	b.ended = true
	return true
}

// signal hands the shard to its loop. The caller runs it, so no other signal can be under way.
func (b *inbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default: // a manual host has no loop
	}
}

// take swaps the inbox's slice with the given one, which the caller has cleared, and takes the requests that had their
// outcome since the last call out of the books.
func (b *inbox) take(empty []item, done []outcome) []item {
	var wake chan struct{}
	b.mu.Lock()
	for i := range done {
		d := &done[i]
		d.g.pending -= d.bytes
		b.bytes -= d.bytes
		b.requests -= d.requests
	}
	items := b.items
	b.items = empty
	b.peer = 0
	b.urgent = false
	if b.waiting != nil && (len(done) > 0 || b.stopped) {
		wake, b.waiting = b.waiting, nil
	}
	b.mu.Unlock()
	if wake != nil {
		close(wake)
	}
	return items
}

// stop refuses requests and messages from now on, and wakes who waits for room.
func (b *inbox) stop() {
	b.mu.Lock()
	b.stopped = true
	wake := b.waiting
	b.waiting = nil
	b.mu.Unlock()
	if wake != nil {
		close(wake)
	}
}

// closeGroup refuses requests and messages of the group from now on.
func (b *inbox) closeGroup(g *Group) {
	b.mu.Lock()
	g.closed = true
	wake := b.waiting
	b.waiting = nil
	b.mu.Unlock()
	if wake != nil {
		close(wake)
	}
}

// outcome is how much of a group's submitted requests is settled.
type outcome struct {
	g        *Group
	bytes    int64
	requests int
}
