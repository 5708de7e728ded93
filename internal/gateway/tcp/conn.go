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
	// readBuffer holds a header and the small rest of most requests.
	readBuffer = 1024
	// firstStep is what a body gets at once; then four times what has arrived.
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

	in         receiver
	header     wire.RequestHeader
	buf        [readBuffer]byte
	start, end int // unread bytes of buf
}

// Reply implements broker.Sink.
func (c *conn) Reply(r *broker.Reply) { c.out.put(r) }

// Close implements broker.Sink.
func (c *conn) Close() { c.abort() }

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

// admit counts a request in, waiting until the connection has room for it.
func (c *conn) admit(size int) error {
	lim := &c.g.cfg
	for {
		c.mu.Lock()
		if c.requests == 0 || c.requests < lim.MaxRequests && c.bytes+size <= lim.MaxRequestBytes {
			c.requests++
			c.bytes += size
			c.mu.Unlock()
			return nil
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
	head := c.buf[c.start : c.start+wire.HeaderSize]
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
	c.start += wire.HeaderSize
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
	if err := c.admit(int(size)); err != nil {
		body.Release()
		return err
	}
	if r := c.h.Handle(h, body); r != nil {
		c.out.direct(r)
	}
	return nil
}

func (c *conn) touch() {
	c.activity.Store(c.g.now())
	c.readUntil.Store(0)
}

// readHeader makes buf[start:] begin with a whole header. There is no deadline
// before its first byte, and a short one after it.
func (c *conn) readHeader() error {
	if c.end-c.start >= wire.HeaderSize {
		return nil
	}
	copy(c.buf[:], c.buf[c.start:c.end])
	c.end -= c.start
	c.start = 0
	for c.end < wire.HeaderSize {
		if c.draining.Load() {
			return errStopping
		}
		if c.end > 0 && c.readUntil.Load() == 0 {
			c.readUntil.Store(c.g.now() + int64(c.g.cfg.HeaderTimeout))
		}
		read := c.nc.Read
		if c.end > 0 {
			read = c.in.read
		}
		n, err := read(c.buf[c.end:])
		c.end += n
		if err != nil && c.end < wire.HeaderSize {
			if c.draining.Load() {
				return errStopping
			}
			if errors.Is(err, io.EOF) && c.end > 0 {
				return fmt.Errorf("%w: ends inside a header", errMalformed)
			}
			return err
		}
	}
	return nil
}

// take moves buffered bytes to dst.
func (c *conn) take(dst []byte) int {
	n := copy(dst, c.buf[c.start:c.end])
	c.start += n
	return n
}

// limitBody gives a body of n bytes its time.
func (c *conn) limitBody(n int) {
	c.readUntil.Store(c.g.now() + int64(c.g.cfg.BodyTimeout) + int64(n/slowBody)*int64(time.Second))
}

// readBody reads n bytes into pooled memory that grows as they arrive.
func (c *conn) readBody(n int) (*broker.Buffer, error) {
	if c.end-c.start >= n {
		b := broker.GetBuffer(n)
		c.take(b.B)
		return b, nil
	}
	if !c.g.budget.acquire(n, c.gone) {
		return nil, net.ErrClosed
	}
	c.limitBody(n)
	b := broker.GetBuffer(min(n, firstStep))
	have := c.take(b.B)
	var err error
	for {
		for have < len(b.B) && err == nil {
			var m int
			m, err = c.in.read(b.B[have:])
			have += m
		}
		if err != nil || have == n {
			break
		}
		grown := broker.GetBuffer(min(n, 4*have))
		copy(grown.B, b.B[:have])
		b.Release()
		b = grown
	}
	c.g.budget.release(n)
	if err == nil {
		return b, nil
	}
	b.Release()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: ends inside a body", errMalformed)
	}
	return nil, err
}

// discard reads n bytes away.
func (c *conn) discard(n int) error {
	c.limitBody(n)
	k := min(n, c.end-c.start)
	c.start += k
	if c.start == c.end {
		c.start, c.end = 0, 0
	}
	for n -= k; n > 0; {
		m, err := c.in.read(c.buf[:min(n, len(c.buf))])
		n -= m
		if err != nil {
			return err
		}
	}
	return nil
}
