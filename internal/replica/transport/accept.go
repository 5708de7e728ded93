package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/internal/replica"
)

// maxGathered bounds the messages that are handed over at once.
const maxGathered = 256

// accept takes connections of peers until the listener is closed.
func (t *Transport) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || t.ctx.Err() != nil {
				return
			}
			t.cfg.Logger.Warn("peer link: accept failed", "error", err)
			if !sleep(t.ctx, 50*time.Millisecond) {
				return
			}
			continue
		}
		if !t.track(conn) {
			return
		}
		t.strangers.enter(conn)
		t.wg.Go(func() {
			defer t.untrack(conn)
			t.serve(conn)
		})
	}
}

// track remembers a connection so that Close cuts it; false = the transport ends.
func (t *Transport) track(conn net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		_ = conn.Close()
		return false
	}
	t.incoming[conn] = struct{}{}
	return true
}

func (t *Transport) untrack(conn net.Conn) {
	_ = conn.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.incoming, conn)
}

func (t *Transport) serve(raw net.Conn) {
	conn := raw
	if t.cfg.ServerTLS != nil {
		conn = tls.Server(raw, t.cfg.ServerTLS)
	}
	peer, err := t.handshake(conn, 0, Link)
	t.strangers.leave(raw)
	if err != nil {
		if t.ctx.Err() == nil {
			t.refusals.of(err).Log(t.cfg.Logger.Warn, "peer link: refused", "remote", raw.RemoteAddr().String(), "error", err)
		}
		return
	}
	if peer.Purpose == Bulk {
		ctx, cancel := context.WithCancel(t.ctx)
		defer cancel()
		t.cfg.Handler.Bulk(ctx, peer.NodeID, conn)
		return
	}
	setUserTimeout(raw, t.cfg.SilentTimeout)
	ended := t.follow(&peer, conn)
	defer ended()
	t.cfg.Handler.Connected(peer)
	answers := newAnswers(conn)
	done := make(chan struct{})
	go func() {
		defer close(done)
		answers.run()
	}()
	err = t.readFrames(conn, peer.NodeID, answers)
	answers.close()
	_ = conn.Close()
	<-done
	if t.ctx.Err() == nil && !errors.Is(err, io.EOF) {
		t.cfg.Logger.Warn("peer link: incoming link ended", "node", peer.NodeID, "error", err)
	}
}

// incoming is a link of a peer that is read.
type incoming struct {
	run   uint64 // of the peer's process
	conn  net.Conn
	ended chan struct{}
}

// follow makes the link the peer's only one: the one before is cut, and its last frame handed over, before this one is read.
// What a node says arrives in the order in which it said it, also over a break. The function ends the link's part.
func (t *Transport) follow(peer *Hello, conn net.Conn) (ended func()) {
	node := peer.NodeID
	own := &incoming{peer.Run, conn, make(chan struct{})}
	t.mu.Lock()
	before := t.serving[node]
	t.serving[node] = own
	t.mu.Unlock()
	if before != nil {
		_ = before.conn.Close()
		<-before.ended
	}
	return func() {
		close(own.ended)
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.serving[node] == own {
			delete(t.serving, node)
		}
	}
}

// largeBody is the size from which a frame counts as a sign of life while it arrives.
const largeBody = 64 << 10

// readBody reads the body of a frame.
func readBody(r io.Reader, body []byte, received *atomic.Uint64) error {
	if len(body) < largeBody {
		_, err := io.ReadFull(r, body)
		return err
	}
	for read := 0; read < len(body); {
		n, err := r.Read(body[read:])
		read += n
		received.Add(uint64(n))
		if err != nil && read < len(body) {
			return err
		}
	}
	return nil
}

// readFrames hands over what a peer sends until the link ends.
func (t *Transport) readFrames(conn net.Conn, from uint64, out *answers) error {
	r := bufio.NewReaderSize(conn, 64<<10)
	var gathered []replica.Message
	var scratch []byte
	flush := func() {
		if len(gathered) > 0 {
			t.cfg.Handler.Messages(from, gathered)
			clear(gathered)
			gathered = gathered[:0]
		}
	}
	for {
		// Messages are handed over together as far as they have arrived: one wake-up of a shard then serves many.
		if r.Buffered() < frameHeader || len(gathered) >= maxGathered {
			flush()
		}
		head, err := r.Peek(frameHeader)
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		h := decodeHeader(head)
		if int64(h.length) > int64(t.cfg.MaxFrame) {
			return fmt.Errorf("%w: %d bytes announced, at most %d are accepted", errFrame, h.length, t.cfg.MaxFrame)
		}
		if _, err := r.Discard(frameHeader); err != nil {
			return fmt.Errorf("read: %w", err)
		}
		if r.Buffered() < int(h.length) {
			flush()
		}
		var body []byte
		if h.transient() {
			if cap(scratch) < int(h.length) {
				scratch = make([]byte, h.length)
			}
			body = scratch[:h.length]
		} else {
			body = make([]byte, h.length)
		}
		if err := readBody(r, body, t.received[from]); err != nil {
			return fmt.Errorf("read: %w", err)
		}
		switch h.kind {
		case frameRaft:
			m, err := decodeMessage(body, from, t.hello.NodeID)
			if err != nil {
				return err
			}
			gathered = append(gathered, replica.Message{Group: replica.GroupID(h.group), Raft: m})
		case frameControl:
			flush()
			t.cfg.Handler.Control(from, h.flags, h.shard, body)
		case frameCall:
			flush()
			t.cfg.Handler.Call(from, body, out.answerTo(h.group))
		default:
			return fmt.Errorf("%w: kind %d", errFrame, h.kind)
		}
	}
}

// answers writes the replies to calls of one incoming link.
type answers struct {
	conn net.Conn
	wake chan struct{}

	mu      sync.Mutex
	filling *replies
	closed  bool
}

// replies are answers that are gathered for one write.
type replies struct {
	queue
	written []func()
}

// end tells that the answers are written or given up.
func (r *replies) end() {
	for _, f := range r.written {
		f()
	}
	clear(r.written)
	r.written = r.written[:0]
	r.reset()
}

func newAnswers(conn net.Conn) *answers {
	return &answers{conn: conn, wake: make(chan struct{}, 1), filling: &replies{queue: queue{open: -1}}}
}

// answerTo gives the function that answers one call.
func (a *answers) answerTo(id uint64) func(Answer) {
	return func(answer Answer) {
		if !a.put(id, answer) && answer.Written != nil {
			answer.Written()
		}
	}
}

// put queues an answer; false = the link is closed.
func (a *answers) put(id uint64, answer Answer) bool {
	flags := uint8(0)
	if answer.Refused {
		flags, answer.Bytes = 1, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	q := a.filling
	q.take(header{length: uint32(len(answer.Bytes)), kind: frameAnswer, flags: flags, group: id}.append(q.room(frameHeader)))
	q.piece(answer.Bytes)
	if answer.Written != nil {
		q.written = append(q.written, answer.Written)
	}
	a.signal()
	return true
}

func (a *answers) signal() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *answers) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	a.signal()
}

// run writes until the link is closed or breaks. A peer that does not read its answers breaks the link by the kernel's
// timeout, so what is queued stays bounded by the calls that it made meanwhile.
func (a *answers) run() {
	spare := &replies{queue: queue{open: -1}}
	for range a.wake {
		a.mu.Lock()
		full, closed := a.filling, a.closed
		a.filling = spare
		a.mu.Unlock()
		if closed {
			full.end()
			return
		}
		buffers := full.buffers
		_, err := buffers.WriteTo(a.conn)
		full.end()
		if err != nil {
			_ = a.conn.Close() // the reader ends on it and closes this side too
			a.mu.Lock()
			a.closed = true
			left := a.filling
			a.mu.Unlock()
			left.end()
			return
		}
		spare = full
	}
}
