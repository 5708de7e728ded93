package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"golang.org/x/sys/unix"

	"github.com/whippetmq/whippet/internal/replica"
)

// lostEvery bounds how often the host is told that messages to a peer are lost.
const lostEvery = 100 * time.Millisecond

// peer is the link that this node dials to another one.
type peer struct {
	t *Transport
	Peer

	wake chan struct{} // capacity 1: the queue is not empty
	soon atomic.Bool   // it has more than control frames

	mu       sync.Mutex
	conn     net.Conn // nil = down
	filling  *queue
	calls    map[uint64]func([]byte, error) // without an answer
	lastCall uint64
	written  uint64 // calls up to here were handed to the kernel, or may have been
	lastLost time.Time
}

func newPeer(t *Transport, p Peer) *peer {
	return &peer{t: t, Peer: p, wake: make(chan struct{}, 1), filling: &queue{open: -1}, calls: map[uint64]func([]byte, error){}}
}

func (p *peer) up() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conn != nil
}

// send queues raft messages; false = some were lost, and it is time to say so.
func (p *peer) send(messages []replica.Message) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == nil {
		return !p.tellLost()
	}
	lost := false
	for _, m := range messages {
		full := int64(p.filling.bytes) >= p.t.cfg.QueueBytes
		if full && m.Raft.GetType() == raftpb.MsgApp && len(m.Raft.Entries) > 0 {
			lost = true
			continue
		}
		if err := p.filling.appendMessage(m.Group, m.Raft); err != nil {
			p.t.cfg.Logger.Error("peer link: message dropped", "node", p.NodeID, "group", m.Group.String(), "error", err)
			lost = true
		}
	}
	p.soon.Store(true)
	p.signal()
	return !lost || !p.tellLost()
}

// tellLost reports whether the host should be told now that messages are lost.
func (p *peer) tellLost() bool {
	now := time.Now()
	if now.Sub(p.lastLost) < lostEvery {
		return false
	}
	p.lastLost = now
	return true
}

func (p *peer) control(kind uint8, shard uint16, body []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == nil {
		return false
	}
	q := p.filling
	q.take(header{length: uint32(len(body)), kind: frameControl, flags: kind, shard: shard}.append(q.room(frameHeader)))
	q.take(append(q.room(len(body)), body...))
	p.signal()
	return true
}

func (p *peer) call(pieces [][]byte, done func([]byte, error)) {
	length := 0
	for _, piece := range pieces {
		length += len(piece)
	}
	p.mu.Lock()
	if p.conn == nil || int64(p.filling.bytes) >= p.t.cfg.QueueBytes {
		p.mu.Unlock()
		done(nil, fmt.Errorf("%w: the link to node %d is down or full", ErrNotSent, p.NodeID))
		return
	}
	p.lastCall++
	p.calls[p.lastCall] = done
	q := p.filling
	q.take(header{length: uint32(length), kind: frameCall, group: p.lastCall}.append(q.room(frameHeader)))
	for _, piece := range pieces {
		q.piece(piece)
	}
	p.soon.Store(true)
	p.signal()
	p.mu.Unlock()
}

// signal wakes the writer. The lock is held.
func (p *peer) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run keeps the link up until the transport ends.
func (p *peer) run() {
	ctx := p.t.ctx
	pause := p.t.cfg.RedialMin
	var said string // what was logged last, so that a node that stays away is logged once
	for ctx.Err() == nil {
		conn, hello, err := p.dial(ctx, Link)
		if err != nil {
			if text := err.Error(); ctx.Err() == nil && text != said {
				said = text
				p.t.cfg.Logger.Warn("peer link: cannot connect", "node", p.Name, "address", p.Address, "error", err)
			}
			var refused *RefusedError
			if errors.As(err, &refused) {
				pause = p.t.cfg.RedialMax
				if refused.Reason == ReasonOutdated {
					p.outdated(refused.own)
				}
			}
			if !sleep(ctx, pause/2+rand.N(pause/2+1)) {
				return
			}
			pause = min(2*pause, p.t.cfg.RedialMax)
			continue
		}
		said, pause = "", p.t.cfg.RedialMin
		p.t.cfg.Logger.Info("peer link: connected", "node", p.Name, "address", p.Address, "start", hello.StartCount)
		err = p.serve(ctx, conn)
		if ctx.Err() == nil {
			p.t.cfg.Logger.Warn("peer link: lost", "node", p.Name, "error", err)
		}
	}
}

// outdated tells the host that another node refused this one's directory.
func (p *peer) outdated(directory [16]byte) {
	if p.t.cfg.Outdated == nil {
		return
	}
	if err := p.t.cfg.Outdated(directory); err != nil {
		p.t.cfg.Logger.Error("peer link: this node's directory is outdated, and that could not be recorded", "error", err)
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// dial makes a connection and runs the hello.
func (p *peer) dial(ctx context.Context, purpose Purpose) (net.Conn, Hello, error) {
	dialCtx, cancel := context.WithTimeout(ctx, p.t.cfg.DialTimeout)
	defer cancel()
	conn, err := p.t.cfg.Dial(dialCtx, p.Address)
	if err != nil {
		return nil, Hello{}, fmt.Errorf("dial: %w", err)
	}
	if purpose == Link {
		setUserTimeout(conn, p.t.cfg.SilentTimeout)
	}
	if p.t.cfg.ClientTLS != nil {
		conn = tls.Client(conn, p.t.cfg.ClientTLS)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	hello, err := p.t.handshake(conn, p.NodeID, purpose)
	if err != nil {
		_ = conn.Close() // the error says why
		return nil, Hello{}, err
	}
	return conn, hello, nil
}

// setUserTimeout lets the kernel give up a connection whose bytes are not acknowledged in time, so that a dead host is
// noticed as fast as a dead process.
func setUserTimeout(conn net.Conn, d time.Duration) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // without it the link only dies later
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
}

// serve runs a fresh link until it breaks: this goroutine writes, another one reads the answers of calls.
func (p *peer) serve(ctx context.Context, conn net.Conn) error {
	p.mu.Lock()
	p.conn = conn
	p.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()

	broken := make(chan error, 1)
	go func() { broken <- p.readAnswers(conn) }()
	err := p.write(conn, broken)
	p.disconnect()
	_ = conn.Close()
	if err == nil {
		err = <-broken
	} else {
		<-broken
	}
	p.drop()
	p.t.cfg.Handler.Lost(p.NodeID)
	return err
}

// write sends what is queued until the link breaks. nil = the reader noticed it first, and its error is still in broken.
func (p *peer) write(conn net.Conn, broken chan error) error {
	spare := &queue{open: -1}
	for {
		select {
		case <-p.wake:
		case err := <-broken:
			broken <- err
			return nil
		}
		if !p.soon.Load() {
			// The other shards are about to have something to say too.
			runtime.Gosched()
		}
		p.soon.Store(false)
		p.mu.Lock()
		full := p.filling
		p.filling = spare
		p.written = p.lastCall
		p.mu.Unlock()
		buffers := full.buffers
		if _, err := buffers.WriteTo(conn); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		full.reset()
		spare = full
	}
}

func (p *peer) readAnswers(conn net.Conn) error {
	r := bufio.NewReaderSize(conn, 16<<10)
	var head [frameHeader]byte
	for {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return fmt.Errorf("read: %w", err)
		}
		h := decodeHeader(head[:])
		if h.kind != frameAnswer || int64(h.length) > int64(p.t.cfg.MaxFrame) {
			return fmt.Errorf("%w: kind %d of %d bytes among the answers", errFrame, h.kind, h.length)
		}
		body := make([]byte, h.length)
		if _, err := io.ReadFull(r, body); err != nil {
			return fmt.Errorf("read: %w", err)
		}
		p.mu.Lock()
		done := p.calls[h.group]
		delete(p.calls, h.group)
		p.mu.Unlock()
		switch {
		case done == nil:
			return fmt.Errorf("%w: answer to the unknown call %d", errFrame, h.group)
		case h.flags != 0:
			done(nil, ErrNotTaken)
		default:
			done(body, nil)
		}
	}
}

// disconnect stops new frames from being queued.
func (p *peer) disconnect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn = nil
}

// drop forgets what was queued and ends the calls without an answer.
func (p *peer) drop() {
	p.mu.Lock()
	calls, written := p.calls, p.written
	p.calls = map[uint64]func([]byte, error){}
	p.filling.reset()
	p.written = p.lastCall
	p.mu.Unlock()
	for id, done := range calls {
		if id <= written {
			done(nil, fmt.Errorf("%w: node %d", ErrLinkLost, p.NodeID))
		} else {
			done(nil, fmt.Errorf("%w: the link to node %d went down", ErrNotSent, p.NodeID))
		}
	}
}
