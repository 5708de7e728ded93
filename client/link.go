package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// firstReadID is where the request ids of non-replicated requests start on a
// link that may pipeline (routing D.4): unique without spending ids of the
// server's duplicate detection.
const firstReadID = uint64(1) << 63

// Bounds of what one writev gathers.
const (
	gatherCalls = 64
	gatherBytes = 1 << 20
)

// scratchSize is the largest reply body that is read into the link's own memory.
const scratchSize = 4 << 10

// identity is who a request comes from as far as duplicate detection goes: a
// client id and its request ids. It outlives links; ids never restart.
type identity struct {
	client wire.U128
	last   atomic.Uint64 // the newest id given out; the first one is 1
}

func newIdentity() *identity { return &identity{client: wire.NewID()} }

func (i *identity) take() uint64 { return i.last.Add(1) }

// next is the id that take would give: what a released client writes into
// non-replicated requests (framing §5).
func (i *identity) next() uint64 { return i.last.Load() + 1 }

// capabilities is what the server declared (command 9000). The zero value is a
// released 0.11.0 server.
type capabilities struct {
	whippet     bool
	fence       bool
	forwarding  bool
	sendRouting bool
	tickets     bool
	maxInFlight int
	remembered  int
	maxFrame    int
	cluster     wire.U128
	node        string
}

// wrote says how much of a call's frame was handed to the kernel.
type wrote uint8

const (
	// wroteNothing: the server cannot have executed it.
	wroteNothing wrote = iota
	// wrotePart: part of the frame on a plain TCP connection; a frame that is cut
	// cannot have been executed either.
	wrotePart
	// wroteAll: the server may have executed it.
	wroteAll
)

// callState is where a call is inside its link; guarded by link.mu.
type callState uint8

const (
	callIdle callState = iota
	callWaiting
	callQueued
	callWriting
	callWritten
)

// completer gets the outcome of a call, exactly once per submission, on a
// goroutine of the link. It must not block. The reply's body is valid only until
// it returns when the call is inline.
type completer interface {
	complete(*call)
}

// call is one request frame. Between submit and complete it belongs to the link;
// the bytes in meta and bulk must not change meanwhile.
type call struct {
	op    wire.Operation
	code  wire.Code // with OpNonReplicated
	stamp wire.U128
	meta  []byte
	bulk  []byte
	// id is the request id. 0 lets the link take the next one; a replay keeps its
	// own. Register always travels with 0.
	id uint64
	// inline: the reply is small and read in place.
	inline bool
	// hard: when no reply came by the deadline, the link is taken for dead.
	hard     bool
	deadline time.Time
	to       completer
	// pool, when set, supplies the memory of the reply's body; buf then owns it.
	pool *bufferPool

	// The outcome: a whole reply (err nil), or why there is none.
	reply wire.ReplyHeader
	body  []byte
	buf   *buffer
	err   error
	wrote wrote

	state  callState
	held   bool // answered while the writer still had it
	given  bool // its caller has gone; the reply is late
	seq    uint64
	sent   time.Time
	header [wire.HeaderSize]byte
	copied [64]byte // body of a held inline reply
}

func (c *call) size() int { return wire.HeaderSize + len(c.meta) + len(c.bulk) }

// roomWaiter is somebody who waits for room on a link; guarded by link.mu.
type roomWaiter struct {
	done  chan struct{}
	ended bool
	err   error
}

func (w *roomWaiter) end(err error) {
	w.ended, w.err = true, err
	close(w.done)
}

// errWithdrawn says that a call was taken back while it waited for room.
var errWithdrawn = errors.New("withdrawn")

// errNoRoom says that a call left the line before there was room for it.
var errNoRoom = errors.New("no room")

// errLinkClosed says that a call was not taken because the link is gone.
var errLinkClosed = errors.New("link closed")

// link is one connection under one identity: a writer and a reader goroutine and
// the table of what is unanswered. It lives until the first failure of framing.
//
// A complete reply of any status keeps it; a short read, a bad header, an
// eviction, a write that fails, or a hard call without a reply ends it. When it
// ends, every call that is still unanswered gets its outcome before done closes,
// so whoever waits for done before using another link sees outcomes in order.
type link struct {
	o       *Options
	h       *hooks
	conn    net.Conn
	address string
	ident   *identity
	plain   bool // a failed write tells exactly how many bytes left
	started time.Time

	// Set before the link is shared.
	session uint64
	user    uint32
	gen     uint64
	wanted  int // the credentials it was signed in with, session.wanted
	caps    capabilities
	roster  *wire.Roster  // of a coordinator: what the server said at sign-in
	node    *node         // of a data link
	attempt time.Duration // with a request unanswered and nothing heard for so long it ends; 0 = never

	// What a data link is attached to: the coordinator's generation, and the
	// metadata position that its node has applied. Generation and position are
	// those of the newest attachment that was answered.
	attachedGen atomic.Uint64
	attachedPos atomic.Uint64

	watermark *atomic.Uint64

	mu       sync.Mutex
	lockstep bool // one request at a time, as released servers expect
	nextRead uint64
	seq      uint64
	queue    []*call
	pending  map[uint64]*call
	waiting  []*call
	waiters  map[*call]*roomWaiter
	bytes    int
	err      error
	used     time.Time     // when the last call was taken
	drained  chan struct{} // set by retire: closes when nothing is unanswered
	replies  uint64        // counts signs of life
	over     atomic.Bool   // takes no more calls

	wake   chan struct{}
	closed chan struct{}
	done   chan struct{}
}

func newLink(o *Options, h *hooks, conn net.Conn, address string, ident *identity, watermark *atomic.Uint64) *link {
	_, plain := conn.(*net.TCPConn)
	return &link{
		o: o, h: h, conn: conn, address: address, ident: ident, plain: plain, started: time.Now(),
		watermark: watermark,
		lockstep:  true, nextRead: firstReadID,
		pending: make(map[uint64]*call), waiters: make(map[*call]*roomWaiter),
		wake: make(chan struct{}, 1), closed: make(chan struct{}), done: make(chan struct{}),
	}
}

// start runs the link's goroutines; they end after fail, and done closes then.
func (l *link) start() {
	readerDone := make(chan struct{})
	go func() {
		defer close(readerDone)
		l.fail("read", l.read())
	}()
	go func() {
		defer close(l.done)
		l.write()
		<-readerDone
		l.settle()
	}()
}

// usable reports whether the link takes calls.
func (l *link) usable() bool { return !l.over.Load() }

var errRetired = errors.New("retired")

// retire takes no more calls, waits until those that were taken are answered, at
// most for so long, and ends the link. It returns when the link has settled.
func (l *link) retire(grace time.Duration, why error) {
	l.mu.Lock()
	wait := l.err == nil && len(l.pending) > 0
	if wait && l.drained == nil {
		l.drained = make(chan struct{})
	}
	l.over.Store(true)
	l.turnAway()
	drained := l.drained
	l.mu.Unlock()
	if wait {
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-drained:
		case <-l.closed:
		case <-t.C:
		}
	}
	l.fail("retire", why)
	<-l.done
}

// turnAway sends those away that wait for room; l.mu is held.
func (l *link) turnAway() {
	for c, w := range l.waiters {
		c.state = callIdle
		w.end(errLinkClosed)
	}
	l.waiting = nil
	clear(l.waiters)
}

// fail ends the link. The first reason stays.
func (l *link) fail(op string, err error) {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	var le *LinkError
	if !errors.As(err, &le) {
		err = &LinkError{Address: l.address, Op: op, Err: err}
	}
	l.err = err
	l.over.Store(true)
	l.turnAway()
	l.mu.Unlock()
	close(l.closed)
	_ = l.conn.Close()
}

// reason is why the link ended.
func (l *link) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// pipeline lets the link have many calls in flight, on a server that echoes
// request ids.
func (l *link) pipeline() {
	l.mu.Lock()
	l.lockstep = false
	l.admitWaiting()
	l.mu.Unlock()
}

func (c *call) reset() {
	c.reply, c.body, c.buf, c.err = wire.ReplyHeader{}, nil, nil, nil
	c.wrote, c.held, c.given = wroteNothing, false, false
}

// offer is submit without waiting. While the link is full it puts c in line and
// gives its place there: whoever offered it must leave the line.
func (l *link) offer(c *call) (*roomWaiter, error) {
	c.reset()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over.Load() {
		return nil, errLinkClosed
	}
	if len(l.waiting) == 0 && l.room(c) {
		l.admit(c)
		l.wakeWriter()
		return nil, nil
	}
	w := &roomWaiter{done: make(chan struct{})}
	c.state = callWaiting
	l.waiting = append(l.waiting, c)
	l.waiters[c] = w
	return w, nil
}

// await waits until somebody decides about a place in line or ctx ends.
func (l *link) await(ctx context.Context, w *roomWaiter) {
	start := time.Now()
	select {
	case <-w.done:
	case <-ctx.Done():
	}
	l.h.onBackpressure("link", time.Since(start))
}

// leave ends the wait of an offered call. Without an error the link took it and
// may even have answered it, so it is not the caller's any more.
func (l *link) leave(c *call, w *roomWaiter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.ended {
		return w.err
	}
	l.drop(c)
	return errNoRoom
}

// submit hands a call to the link. It waits while the link is full, in order of
// arrival. On an error the call was not taken: ctx ended, or errLinkClosed. The
// request id is assigned when the call is taken, so ids are in order of writing.
func (l *link) submit(ctx context.Context, c *call) error {
	w, err := l.offer(c)
	if w == nil {
		return err
	}
	l.await(ctx, w)
	if err := l.leave(c, w); !errors.Is(err, errNoRoom) {
		return err
	}
	return context.Cause(ctx)
}

// room reports whether c fits the bounds now; l.mu is held.
func (l *link) room(c *call) bool {
	if len(l.pending) == 0 {
		return true
	}
	return !l.lockstep && len(l.pending) < l.o.MaxPending && l.bytes+c.size() <= l.o.MaxUnanswered
}

// admit takes a call: number, header, pending table, queue; l.mu is held.
func (l *link) admit(c *call) {
	session := l.session
	switch {
	case c.op == wire.OpRegister:
		c.id, session = 0, 0
	case c.op != wire.OpNonReplicated:
		if c.id == 0 {
			c.id = l.ident.take()
		}
	case l.lockstep:
		c.id = l.ident.next()
	default:
		c.id = l.nextRead
		l.nextRead++
	}
	h := wire.RequestHeader{
		Size: uint32(c.size()), Client: l.ident.client, RequestChecksum: c.stamp,
		Request: c.id, Operation: c.op, Session: session, Code: c.code,
	}
	h.Put(c.header[:])
	l.seq++
	c.seq, c.state, c.sent = l.seq, callQueued, time.Now()
	l.used = c.sent
	l.pending[c.id] = c
	l.queue = append(l.queue, c)
	l.bytes += c.size()
}

// admitWaiting takes waiting calls as far as there is room; l.mu is held.
func (l *link) admitWaiting() {
	n := 0
	for _, c := range l.waiting {
		if !l.room(c) {
			break
		}
		l.admit(c)
		l.waiters[c].end(nil)
		delete(l.waiters, c)
		n++
	}
	if n > 0 {
		l.waiting = l.waiting[n:]
		l.wakeWriter()
	}
}

func (l *link) drop(c *call) {
	for i, w := range l.waiting {
		if w == c {
			l.waiting = append(l.waiting[:i:i], l.waiting[i+1:]...)
			break
		}
	}
	delete(l.waiters, c)
	c.state = callIdle
}

func (l *link) wakeWriter() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// withdraw takes a call back that the writer has not touched. True means that
// nothing of it was written and that it will not be completed.
func (l *link) withdraw(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return false
	}
	if c.state == callWaiting {
		w := l.waiters[c]
		l.drop(c)
		w.end(errWithdrawn)
		return true
	}
	if c.state != callQueued {
		return false
	}
	for i, q := range l.queue {
		if q == c {
			l.queue = append(l.queue[:i:i], l.queue[i+1:]...)
			break
		}
	}
	l.release(c)
	c.state = callIdle
	return true
}

// release frees a call's place; l.mu is held.
func (l *link) release(c *call) {
	delete(l.pending, c.id)
	l.bytes -= c.size()
	if l.drained != nil && len(l.pending) == 0 {
		close(l.drained)
		l.drained = nil
	}
	l.admitWaiting()
}

// write is the writer goroutine.
func (l *link) write() {
	every := l.o.RequestTimeout
	if l.attempt > 0 {
		every = l.attempt
	}
	tick := time.NewTicker(max(every/8, 50*time.Millisecond))
	defer tick.Stop()
	quiet := silence{since: time.Now()}
	var bufs net.Buffers
	var batch []*call
	for {
		select {
		case <-l.closed:
			return
		case <-tick.C:
			l.checkSilence(time.Now(), &quiet)
		case <-l.wake:
		}
		for {
			batch = l.takeQueued(batch[:0])
			if len(batch) == 0 {
				break
			}
			bufs = bufs[:0]
			for _, c := range batch {
				bufs = append(bufs, c.header[:])
				if len(c.meta) > 0 {
					bufs = append(bufs, c.meta)
				}
				if len(c.bulk) > 0 {
					bufs = append(bufs, c.bulk)
				}
			}
			_ = l.conn.SetWriteDeadline(time.Now().Add(l.writeTimeout(batch)))
			rest := bufs // WriteTo consumes its receiver
			n, err := rest.WriteTo(l.conn)
			l.written(batch, n, err)
			clear(bufs)
			clear(batch)
			if err != nil {
				l.fail("write", err)
				return
			}
		}
	}
}

// writeTimeout bounds the writing of a gather: a data link gives up early, but not
// on a large frame.
func (l *link) writeTimeout(batch []*call) time.Duration {
	if l.attempt <= 0 {
		return l.o.RequestTimeout
	}
	size := 0
	for _, c := range batch {
		size += c.size()
	}
	return min(l.attempt+time.Duration(size>>20)*time.Second, max(l.attempt, l.o.RequestTimeout))
}

func (l *link) takeQueued(batch []*call) []*call {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return batch
	}
	bytes, n := 0, 0
	for _, c := range l.queue {
		if n == gatherCalls || n > 0 && bytes+c.size() > gatherBytes {
			break
		}
		bytes += c.size()
		c.state = callWriting
		batch = append(batch, c)
		n++
	}
	l.queue = l.queue[:copy(l.queue, l.queue[n:])]
	return batch
}

// written records how far the calls of one gather got and completes those that
// were answered while they were being written.
func (l *link) written(batch []*call, n int64, err error) {
	var held []*call
	l.mu.Lock()
	l.replies++ // the other side reads
	end := int64(0)
	for _, c := range batch {
		start := end
		end += int64(c.size())
		switch {
		case err == nil || end <= n:
			c.wrote = wroteAll
		case !l.plain && start <= n:
			// Under TLS the failed write may have sent a whole record without
			// counting it.
			c.wrote = wroteAll
		case start < n:
			c.wrote = wrotePart
		default:
			c.wrote = wroteNothing
		}
		c.state = callWritten
		if c.held {
			c.wrote = wroteAll
			held = append(held, c)
		}
	}
	l.mu.Unlock()
	for _, c := range held {
		c.to.complete(c)
	}
}

// checkSilence ends the link when a call has been waiting for too long: a hard
// call, or any call of a lockstep link, past its deadline; any other past twice
// its time, which is how long a late reply is waited for (routing D.6), but not
// before a server had time to answer: callers may be in a hurry. A data
// link also ends when it says nothing at all while it is asked.
func (l *link) checkSilence(now time.Time, quiet *silence) {
	l.mu.Lock()
	silent := false
	if quiet.replies != l.replies {
		quiet.replies, quiet.since = l.replies, now
	}
	for _, c := range l.pending {
		if l.attempt > 0 && c.state == callWritten && now.Sub(c.sent) > l.attempt && now.Sub(quiet.since) > l.attempt {
			silent = true
			break
		}
		limit := c.deadline
		if !c.hard && !l.lockstep {
			limit = later(limit.Add(c.deadline.Sub(c.sent)), c.sent.Add(2*l.o.AttemptTimeout))
		}
		if c.state == callWritten && !c.held && now.After(limit) {
			silent = true
			break
		}
	}
	l.mu.Unlock()
	if silent {
		l.fail("timeout", errNoReply)
	}
}

var errNoReply = errors.New("no reply in time")

// silence is since when nothing was heard.
type silence struct {
	replies uint64
	since   time.Time
}

// settle gives every unanswered call its outcome, oldest first, after both
// goroutines stopped touching calls.
func (l *link) settle() {
	l.mu.Lock()
	rest := make([]*call, 0, len(l.pending))
	for _, c := range l.pending {
		rest = append(rest, c)
	}
	clear(l.pending)
	l.queue, l.bytes = nil, 0
	reason := l.err
	l.mu.Unlock()
	for i := 1; i < len(rest); i++ { // few, and nearly always short
		for j := i; j > 0 && rest[j].seq < rest[j-1].seq; j-- {
			rest[j], rest[j-1] = rest[j-1], rest[j]
		}
	}
	for _, c := range rest {
		if c.state == callQueued {
			c.wrote = wroteNothing
		}
		c.err = reason
		c.to.complete(c)
	}
}

// evictedError is an eviction frame.
type evictedError struct {
	reason wire.EvictionReason
	err    error
}

func (e *evictedError) Error() string {
	if e.reason == wire.EvictInvalidCredentials {
		return e.err.Error() // which says the same
	}
	return fmt.Sprintf("%v: %v", e.reason, e.err)
}

func (e *evictedError) Unwrap() error { return e.err }

// read is the reader goroutine; it returns why it stopped.
func (l *link) read() error {
	br := bufio.NewReaderSize(l.conn, 64<<10)
	var head [wire.HeaderSize]byte
	scratch := make([]byte, scratchSize)
	var reply wire.ReplyHeader
	for {
		if _, err := io.ReadFull(br, head[:]); err != nil {
			return err
		}
		size, err := wire.FrameSize(head[:])
		if err != nil {
			return err
		}
		if int64(size) > int64(l.o.MaxReply) {
			return fmt.Errorf("frame of %d bytes is larger than the limit of %d: %w", size, l.o.MaxReply, wire.ErrInvalidCommand)
		}
		if wire.KindOf(head[:]) == wire.FrameEviction {
			var ev wire.EvictionHeader
			if err := ev.DecodeLoose(head[:]); err != nil {
				return err
			}
			return &LinkError{Address: l.address, Op: "evicted", Err: &evictedError{reason: ev.Reason, err: ev.Err(wire.CurrentVersion)}}
		}
		if err := reply.Decode(head[:]); err != nil {
			return err
		}
		if reply.Operation.Watermark() {
			raise(l.watermark, reply.Commit)
		}
		if err := l.readReply(br, &reply, int(size)-wire.HeaderSize, scratch); err != nil {
			return err
		}
	}
}

func (l *link) readReply(br *bufio.Reader, reply *wire.ReplyHeader, n int, scratch []byte) error {
	c := l.lookup(reply.Request)
	if c == nil {
		l.h.onLate(l.address)
		_, err := br.Discard(n)
		return err
	}
	var body []byte
	var buf *buffer
	switch {
	case n == 0:
	case c.inline && n <= len(scratch):
		body = scratch[:n]
	case c.pool != nil:
		buf = c.pool.get(n)
		body = buf.b
	default:
		body = make([]byte, n)
	}
	if _, err := io.ReadFull(br, body); err != nil {
		return err
	}
	l.mu.Lock()
	c.reply, c.body, c.buf, c.err = *reply, body, buf, nil
	l.replies++
	l.release(c)
	if c.state == callWriting {
		// The server answered before the writer came back from the system call:
		// the buffers are still in use, so the writer completes the call.
		if c.inline {
			c.body = append(c.copied[:0], body...) // scratch is used again
		}
		c.held = true
		l.mu.Unlock()
		return nil
	}
	c.wrote = wroteAll
	late := c.given
	l.mu.Unlock()
	if late {
		l.h.onLate(l.address)
	}
	c.to.complete(c)
	return nil
}

// lookup finds the call that a reply answers. A lockstep link has only one.
func (l *link) lookup(id uint64) *call {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c, ok := l.pending[id]; ok {
		return c
	}
	if l.lockstep && len(l.pending) == 1 {
		for _, c := range l.pending {
			return c
		}
	}
	return nil
}

func raise(v *atomic.Uint64, to uint64) {
	for {
		old := v.Load()
		if to <= old || v.CompareAndSwap(old, to) {
			return
		}
	}
}

// syncCall is a call that somebody waits for.
type syncCall struct {
	call
	answered chan struct{}
}

func (s *syncCall) complete(*call) { close(s.answered) }

// roundTrip writes one request and waits for its reply. err is nil when a whole
// reply came; the caller reads reply and body from the result. When ctx ends
// first, the result's wrote says whether the request may have been executed;
// its late reply is swallowed.
func (l *link) roundTrip(ctx context.Context, req call) (*syncCall, error) {
	s := &syncCall{call: req, answered: make(chan struct{})}
	s.to = s
	if s.deadline.IsZero() {
		s.deadline = time.Now().Add(l.o.RequestTimeout)
	}
	if err := l.submit(ctx, &s.call); err != nil {
		return s, err
	}
	select {
	case <-s.answered:
		return s, s.err
	case <-ctx.Done():
	}
	if l.withdraw(&s.call) {
		return s, context.Cause(ctx)
	}
	l.mu.Lock()
	s.given = true
	l.mu.Unlock()
	// The link still owns s: report on a copy.
	return &syncCall{call: call{wrote: wroteAll}}, context.Cause(ctx)
}
