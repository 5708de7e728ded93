package tcp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/internal/broker"
	"github.com/whippetmq/whippet/wire"
)

const (
	// readBuffer holds what is read beside a header: the small rest of most
	// requests, and what follows a frame.
	readBuffer = 1024 - wire.HeaderSize
	// firstStep is what a body gets at once, or as much as an earlier body of the
	// connection had; then four times what has arrived. Where many bodies are being
	// read it begins with smallBody.
	firstStep = 1 << 20
	// unboundBody is the largest body that is read before sign-in.
	unboundBody = 64 << 10
	// slowBody is the rate, in bytes per second, below which a body is given up.
	slowBody = 64 << 10
)

var (
	errMalformed = errors.New("malformed frame")
	errTooLarge  = errors.New("frame larger than the limit")
	errStopping  = errors.New("the node stops")
	errPanic     = errors.New("panic")
)

// conn is one connection.
type conn struct {
	g  *Gateway
	nc net.Conn
	h  broker.Conn

	out outbox

	// What is in work: handed to the broker, or answered and not yet written.
	mu       sync.Mutex
	requests int
	bytes    int
	waiting  bool          // the reader waits for room
	room     chan struct{} // capacity 1
	gone     chan struct{} // closed by abort
	aborted  atomic.Bool
	draining atomic.Bool

	// Times are ns since the gateway's epoch; the janitor reads them.
	activity  atomic.Int64 // of the last frame
	readUntil atomic.Int64 // when the frame being read has to be complete; 0 = none is

	in     receiver
	header wire.RequestHeader
	head   [wire.HeaderSize]byte
	// Unread bytes: those of ahead first, then those of buf.
	ahead      *broker.Buffer // memory for a body like the one before, see readHeader; nil = none
	from, upTo int            // of ahead
	buf        [readBuffer]byte
	start, end int // of buf
	proven     int // size of the largest body that came whole
	expect     int // size of the last body, when a buffer for it may be taken before its header is known

	share share // of the body being read

	held bool // replies wait for Handle to return
}

// Reply implements broker.Sink.
func (c *conn) Reply(r *broker.Reply) { c.out.put(r) }

// Close implements broker.Sink.
func (c *conn) Close() { c.abort() }

// Hold implements broker.Sink.
func (c *conn) Hold(on bool) {
	if c.held == on {
		return
	}
	if c.held = on; on {
		c.out.hold()
	} else {
		c.out.release()
	}
}

// abort ends the connection from any goroutine without waiting.
func (c *conn) abort() {
	if c.aborted.CompareAndSwap(false, true) {
		close(c.gone)
		// Unblocks the reader and the writer. An error would only say that it is closed.
		_ = c.nc.Close()
	}
}

func (c *conn) signalRoom() {
	select {
	case c.room <- struct{}{}:
	default:
	}
}

// admit counts a request in, waiting until the connection and the node have room
// for it. After an error the connection is to end.
func (c *conn) admit(size int) error {
	lim := &c.g.cfg
	for {
		c.mu.Lock()
		if c.requests == 0 || c.requests < lim.MaxRequests && c.bytes+size <= lim.MaxRequestBytes {
			c.requests++
			c.bytes += size
			alone := c.requests == 1
			c.mu.Unlock()
			return c.g.work.take(size, alone, c.gone)
		}
		c.waiting = true
		c.mu.Unlock()
		select {
		case <-c.room:
		case <-c.gone:
			return net.ErrClosed
		}
	}
}

// answered counts a request out: its reply was written or dropped.
func (c *conn) answered(r *broker.Reply) {
	if r.Unasked() {
		return
	}
	c.mu.Lock()
	c.requests--
	c.bytes -= r.Cost()
	c.g.work.give(r.Cost())
	wake := c.waiting || c.draining.Load() && c.requests == 0
	c.waiting = false
	c.mu.Unlock()
	if wake {
		c.signalRoom()
	}
}

// serve is the reader. It owns the connection's end.
func (c *conn) serve() {
	defer c.g.wg.Done()
	err := c.recovered()
	if errors.Is(err, errMalformed) || errors.Is(err, errTooLarge) {
		c.g.stats.Malformed.Add(1)
		c.g.cfg.Logger.Debug("connection closed", "remote", c.nc.RemoteAddr().String(), "error", err)
	}
	if !errors.Is(err, errPanic) { // whose request will never be answered
		// A client that will not send more may still read what it is owed.
		c.settle()
	}
	c.h.Close()
	c.abort()
	c.out.close()
	c.g.forget(c)
}

// recovered runs the loop; a panic is a bug of ours that must not end the node.
func (c *conn) recovered() (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.g.stats.Panics.Add(1)
			c.g.cfg.Logger.Error("panic while serving a request", "remote", c.nc.RemoteAddr().String(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = errPanic
		}
	}()
	for {
		if err := c.next(); err != nil {
			return err
		}
	}
}

// settle waits until everything in work is answered and written.
func (c *conn) settle() {
	c.draining.Store(true)
	deadline := time.NewTimer(c.g.cfg.DrainTimeout)
	defer deadline.Stop()
	for {
		c.mu.Lock()
		n := c.requests
		c.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-c.room:
		case <-c.gone:
			return
		case <-deadline.C:
			return
		}
	}
}

// next reads one frame and hands it over.
func (c *conn) next() error {
	if err := c.readHeader(); err != nil {
		return err
	}
	h := &c.header
	head := c.head[:]
	size, err := wire.FrameSize(head)
	if err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	if uint64(size) > uint64(c.g.cfg.MaxFrame) {
		return fmt.Errorf("%w: %d bytes", errTooLarge, size)
	}
	// Operations 64 to 127 get an answer of their own from the broker.
	if err := h.Decode(head); err != nil && !errors.Is(err, wire.ErrInternalOperation) {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	n := int(size) - wire.HeaderSize
	c.g.stats.Frames.Add(1)
	c.g.stats.BytesIn.Add(uint64(size))

	if n > unboundBody && !c.h.Bound() {
		if err := c.discard(n); err != nil {
			return err
		}
		c.touch()
		if err := c.admit(int(size)); err != nil {
			return err
		}
		c.out.direct(c.h.Refuse(h))
		return nil
	}
	var body *broker.Buffer
	if n > 0 {
		if body, err = c.readBody(n); err != nil {
			return err
		}
	}
	c.touch()
	err = c.admit(int(size))
	c.g.budget.release(&c.share) // it counts as work now
	if err != nil {
		body.Release()
		return err
	}
	r := c.h.Handle(h, body)
	if c.held {
		c.held = false
		c.out.flush()
	}
	if r != nil {
		c.out.direct(r)
	}
	return nil
}

func (c *conn) touch() {
	c.activity.Store(c.g.now())
	c.readUntil.Store(0)
}

// readHeader fills head. There is no deadline before its first byte, and a short
// one after it. A client that sends frames of one size gets them read with one
// call each, the body in its place: for that, memory for a body like the one
// before is taken as soon as there is something to read.
func (c *conn) readHeader() error {
	have := c.take(c.head[:])
	for have < wire.HeaderSize {
		if c.draining.Load() {
			return errStopping
		}
		if have > 0 && c.readUntil.Load() == 0 {
			c.readUntil.Store(c.g.now() + int64(c.g.cfg.HeaderTimeout))
		}
		n, err := c.fill(have)
		have += n
		if err != nil && have < wire.HeaderSize {
			if c.draining.Load() {
				return errStopping
			}
			if errors.Is(err, io.EOF) && have > 0 {
				return fmt.Errorf("%w: ends inside a header", errMalformed)
			}
			return err
		}
	}
	return nil
}

// fill reads into head[have:], and what comes behind into ahead and buf, which
// are empty. It returns what it added to head.
func (c *conn) fill(have int) (int, error) {
	c.start, c.end = 0, 0
	if !c.in.direct {
		n, err := c.nc.Read(c.buf[:])
		c.end = n
		return c.take(c.head[have:]), err
	}
	n, ahead, err := c.in.readAhead(c.head[have:], c.expect, c.buf[:], have > 0)
	added := min(n, wire.HeaderSize-have)
	n -= added
	if ahead != nil {
		c.ahead, c.from, c.upTo = ahead, 0, min(n, len(ahead.B))
		n -= c.upTo
		if c.upTo == 0 {
			c.drop()
		}
	}
	c.end = n
	return added, err
}

// drop gives the memory of ahead back.
func (c *conn) drop() {
	c.ahead.Release()
	c.ahead, c.from, c.upTo = nil, 0, 0
}

// unread is the number of bytes that were read and not taken.
func (c *conn) unread() int { return c.upTo - c.from + c.end - c.start }

// take moves unread bytes to dst.
func (c *conn) take(dst []byte) int {
	n := 0
	if c.ahead != nil {
		n = copy(dst, c.ahead.B[c.from:c.upTo])
		if c.from += n; c.from == c.upTo {
			c.drop()
		}
	}
	m := copy(dst[n:], c.buf[c.start:c.end])
	c.start += m
	return n + m
}

// limitBody gives a body its time: it may pause, and then has to come at slowBody.
// What it announces buys none.
func (c *conn) limitBody(began int64, have int) {
	c.readUntil.Store(began + int64(c.g.cfg.BodyTimeout) + int64(have/slowBody)*int64(time.Second))
}

// readBody reads n bytes into pooled memory that grows as they arrive. The share of
// a body that came whole is released by the caller.
func (c *conn) readBody(n int) (*broker.Buffer, error) {
	c.expect = 0
	if n > readBuffer && n <= smallBody {
		c.expect = n
	}
	s := &c.share
	b, have := c.begun(n, c.g.budget.begin(s, min(n, max(firstStep, c.proven))))
	if have == n {
		return b, nil
	}
	began := c.g.now()
	var err error
	for {
		for c.limitBody(began, have); have < len(b.B) && err == nil; c.limitBody(began, have) {
			var m int
			m, err = c.in.read(b.B[have:])
			have += m
		}
		if err != nil || have == n {
			break
		}
		size := min(n, 4*have)
		waits := c.g.now()
		c.readUntil.Store(0)
		if !c.g.budget.grow(s, size, c.gone) {
			err = net.ErrClosed
			break
		}
		began += c.g.now() - waits
		grown := broker.GetBuffer(size)
		copy(grown.B, b.B[:have])
		b.Release()
		b = grown
	}
	if err == nil || have == n {
		c.proven = max(c.proven, n)
		return b, nil
	}
	c.g.budget.release(s)
	b.Release()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: ends inside a body", errMalformed)
	}
	return nil, err
}

// begun returns memory for the first bytes of a body of n, or for all of it, and
// how much of it has been read already.
func (c *conn) begun(n, first int) (b *broker.Buffer, have int) {
	if b = c.ahead; b != nil && c.from == 0 && c.upTo <= n && n <= cap(b.B) {
		have = c.upTo
		c.ahead, c.from, c.upTo = nil, 0, 0
		b.B = b.B[:n]
	} else {
		b = broker.GetBuffer(first)
	}
	return b, have + c.take(b.B[have:])
}

// discard reads n bytes away.
func (c *conn) discard(n int) error {
	c.expect = 0
	began := c.g.now()
	for had := 0; n > 0; {
		c.limitBody(began, had)
		if c.unread() > 0 {
			m := c.take(c.head[:min(n, len(c.head))])
			n, had = n-m, had+m
			continue
		}
		m, err := c.in.read(c.buf[:min(n, len(c.buf))])
		n, had = n-m, had+m
		if err != nil {
			return err
		}
	}
	return nil
}
