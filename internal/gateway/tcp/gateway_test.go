package tcp

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/whippetmq/whippet/internal/broker"
	"github.com/whippetmq/whippet/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

// fake is a handler whose answers a test decides: a request whose number is even
// is answered at once, an odd one by another goroutine, when the test says so.
type fake struct {
	bound   bool
	release chan struct{} // one answer for each
	crash   uint64        // request number that panics

	mu     sync.Mutex
	closed int
	wg     sync.WaitGroup
}

type fakeConn struct {
	f *fake
	s broker.Sink
}

func (f *fake) Connect(_ broker.Peer, s broker.Sink) broker.Conn { return &fakeConn{f, s} }

func (c *fakeConn) Bound() bool { return c.f.bound }

func (c *fakeConn) Handle(h *wire.RequestHeader, body *broker.Buffer) *broker.Reply {
	if h.Request == c.f.crash && c.f.crash != 0 {
		panic("as the test wanted")
	}
	r := broker.Echo(h, body.Bytes())
	body.Release()
	if h.Request%2 == 0 {
		return r
	}
	c.f.wg.Go(func() {
		<-c.f.release
		c.s.Reply(r)
	})
	return nil
}

func (c *fakeConn) Refuse(h *wire.RequestHeader) *broker.Reply { return broker.Echo(h, nil) }

func (c *fakeConn) Close() {
	c.f.mu.Lock()
	c.f.closed++
	c.f.mu.Unlock()
}

func serve(t *testing.T, f *fake, cfg Config) *Gateway {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if f.release == nil {
		f.release = make(chan struct{}, 1<<16)
	}
	if cfg.Handler == nil {
		cfg.Handler = f
	}
	g := Serve(ln, cfg)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = g.Close(ctx)
		close(f.release)
		f.wg.Wait()
	})
	return g
}

type client struct {
	t *testing.T
	net.Conn
}

func dial(t *testing.T, g *Gateway) *client {
	t.Helper()
	nc, err := net.Dial("tcp", g.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	return &client{t, nc}
}

func request(number uint64, body string) []byte {
	h := wire.RequestHeader{Client: wire.U128{Lo: 1}, Request: number, Operation: wire.OpNonReplicated, Code: wire.CodePing}
	return wire.AppendRequest(nil, h, []byte(body))
}

func (c *client) send(b []byte) {
	c.t.Helper()
	if _, err := c.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// read gives number and body of the next reply.
func (c *client) read() (uint64, string, error) {
	_ = c.SetReadDeadline(time.Now().Add(patience))
	head := make([]byte, wire.HeaderSize)
	if _, err := io.ReadFull(c, head); err != nil {
		return 0, "", err
	}
	var h wire.ReplyHeader
	if err := h.Decode(head); err != nil {
		return 0, "", err
	}
	body := make([]byte, h.Size-wire.HeaderSize)
	_, err := io.ReadFull(c, body)
	return h.Request, string(body), err
}

func (c *client) expect(number uint64, body string) {
	c.t.Helper()
	n, b, err := c.read()
	if err != nil || n != number || b != body {
		c.t.Fatalf("reply %d of %d bytes, %v; want %d of %d bytes", n, len(b), err, number, len(body))
	}
}

func TestBodiesOfManySizes(t *testing.T) {
	f := &fake{bound: true}
	g := serve(t, f, Config{})
	c := dial(t, g)
	for i, n := range []int{0, 1, 700, 767, 768, 769, 1024, 5000, 64 << 10, 1<<20 - 1, 1 << 20, 1<<20 + 1, 5 << 20} {
		body := make([]byte, n)
		for j := range body {
			body[j] = byte(j * 7)
		}
		// Two in one write: the second begins in the first one's read.
		go func() {
			_, _ = c.Write(append(request(uint64(4*i+2), string(body)), request(uint64(4*i+4), "next")...))
		}()
		c.expect(uint64(4*i+2), string(body))
		c.expect(uint64(4*i+4), "next")
	}
}

func TestRepliesOfBothKinds(t *testing.T) {
	f := &fake{bound: true}
	g := serve(t, f, Config{})
	c := dial(t, g)
	const n = 200
	var out []byte
	for i := range uint64(n) {
		out = append(out, request(i+1, "b")...)
	}
	c.send(out)
	for range n / 2 {
		f.release <- struct{}{}
	}
	seen := map[uint64]bool{}
	for range n {
		number, body, err := c.read()
		if err != nil || seen[number] || body != "b" {
			t.Fatal(number, body, err)
		}
		seen[number] = true
	}
}

// At the bound of requests in work the reader stops, and goes on when there is room.
func TestRequestsInWorkAreBounded(t *testing.T) {
	f := &fake{bound: true, release: make(chan struct{})}
	g := serve(t, f, Config{MaxRequests: 4})
	c := dial(t, g)
	for i := range uint64(10) {
		c.send(request(2*i+1, ""))
	}
	eventually(t, func() bool { return g.Stats().Frames.Load() == 5 }) // the fifth is read and waits
	for range 10 {
		f.release <- struct{}{}
	}
	for range 10 {
		if _, _, err := c.read(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() bool { return g.Stats().Frames.Load() == 10 })
}

func TestBytesInWorkAreBounded(t *testing.T) {
	f := &fake{bound: true, release: make(chan struct{})}
	g := serve(t, f, Config{MaxRequestBytes: 10_000})
	c := dial(t, g)
	body := string(make([]byte, 6000))
	for i := range uint64(4) {
		c.send(request(2*i+1, body))
	}
	eventually(t, func() bool { return g.Stats().Frames.Load() == 2 })
	for range 4 {
		f.release <- struct{}{}
		if _, b, err := c.read(); err != nil || b != body {
			t.Fatal(err)
		}
	}
	// One that is larger than the bound is let through alone.
	big := string(make([]byte, 50_000))
	go func() { _, _ = c.Write(request(2, big)) }()
	c.expect(2, big)
}

func TestCloseAnswersWhatWasRead(t *testing.T) {
	f := &fake{bound: true, release: make(chan struct{})}
	g := serve(t, f, Config{})
	c := dial(t, g)
	c.send(request(1, "late"))
	c.send(request(3, "later"))
	half := request(5, "never")
	eventually(t, func() bool { return g.Stats().Frames.Load() == 2 })
	c.send(half[:100])
	idle := dial(t, g)
	idle.send(request(2, ""))
	idle.expect(2, "")
	closed := make(chan error, 1)
	go func() { closed <- g.Close(context.Background()) }()
	if _, _, err := idle.read(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	f.release <- struct{}{}
	f.release <- struct{}{}
	for range 2 {
		if _, _, err := c.read(); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("tcp", g.Addr().String()); err == nil {
		t.Fatal("still accepts")
	}
	if f.closed != 2 {
		t.Fatalf("%d of 2 connections closed at the handler", f.closed)
	}
}

func TestCloseIsBounded(t *testing.T) {
	f := &fake{bound: true, release: make(chan struct{})}
	g := serve(t, f, Config{})
	c := dial(t, g)
	c.send(request(1, ""))
	eventually(t, func() bool { return g.Stats().Frames.Load() == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := g.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestPanicEndsOneConnection(t *testing.T) {
	f := &fake{bound: true, crash: 8}
	g := serve(t, f, Config{})
	c, other := dial(t, g), dial(t, g)
	c.send(request(8, ""))
	if _, _, err := c.read(); err == nil {
		t.Fatal("answered")
	}
	other.send(request(2, ""))
	other.expect(2, "")
	if g.Stats().Panics.Load() != 1 {
		t.Error("not counted")
	}
}

func TestUnfinishedBodyIsCutOff(t *testing.T) {
	f := &fake{bound: true}
	g := serve(t, f, Config{BodyTimeout: 40 * time.Millisecond, HeaderTimeout: 40 * time.Millisecond})
	c := dial(t, g)
	c.send(request(2, string(make([]byte, 5000)))[:3000])
	if _, _, err := c.read(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	if g.Stats().Slow.Load() != 1 {
		t.Error("not counted")
	}
}

func TestSilentBeforeSignIn(t *testing.T) {
	f := &fake{}
	g := serve(t, f, Config{UnboundIdle: 40 * time.Millisecond})
	c := dial(t, g)
	if _, _, err := c.read(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestIdleWriterEnds(t *testing.T) {
	f := &fake{bound: true}
	g := serve(t, f, Config{HeaderTimeout: 20 * time.Millisecond})
	c := dial(t, g)
	writer := func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		for c := range g.conns {
			c.out.mu.Lock()
			running := c.out.running
			c.out.mu.Unlock()
			return running
		}
		return false
	}
	for range 3 {
		f.release <- struct{}{}
		c.send(request(1, "x"))
		c.expect(1, "x")
		eventually(t, func() bool { return !writer() })
	}
}

func TestBudget(t *testing.T) {
	b := budget{limit: 1 << 20}
	gone := make(chan struct{})
	waiting := func(n int) {
		t.Helper()
		eventually(t, func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.waiters) == n })
	}
	var first, large, small, late share
	if b.begin(&small, smallBody) != smallBody || b.used != 0 {
		t.Fatal("small bodies count")
	}
	if n := b.begin(&first, 400<<10); n != 400<<10 {
		t.Fatal(n)
	}
	if n := b.begin(&large, 200<<10); n != smallBody || large.n != 0 {
		t.Fatalf("%d bytes at once beyond half of the budget", n)
	}
	if !b.grow(&large, 600<<10, gone) || !b.grow(&first, 500<<10, gone) || b.over != &first {
		t.Fatal("nobody may go over the limit")
	}
	granted := make(chan *share, 3)
	grow := func(s *share, n int) {
		if b.grow(s, n, gone) {
			granted <- s
		}
	}
	go grow(&large, 900<<10)
	waiting(1)
	// A later, smaller one does not overtake, but the one that is over the limit goes on.
	go grow(&small, 100<<10)
	waiting(2)
	if !b.grow(&first, 900<<10, gone) {
		t.Fatal("the one over the limit has to wait")
	}
	b.release(&first)
	if one, other := <-granted, <-granted; one == other || b.used != 1000<<10 {
		t.Fatalf("not both were granted: %d bytes", b.used)
	}
	b.over = &first // somebody else goes over the limit
	go func() { grow(&late, 900<<10); granted <- nil }()
	waiting(1)
	close(gone)
	if <-granted != nil {
		t.Fatal("granted to one that is gone")
	}
	b.release(&large)
	b.release(&small)
	b.release(&late)
	if b.used != 0 || len(b.waiters) != 0 {
		t.Fatalf("%d bytes left, %d wait", b.used, len(b.waiters))
	}
}

// Headers that announce large bodies, with little or nothing behind, neither keep others out nor stay.
func TestAnnouncedBodiesKeepNobodyOut(t *testing.T) {
	g := serve(t, &fake{bound: true}, Config{MaxBodyBytes: 8 << 20, BodyTimeout: 2 * time.Second})
	body := string(make([]byte, 3<<20))
	liars := make([]*client, 24)
	for i := range liars {
		liars[i] = dial(t, g)
		if i < 4 { // proven connections
			liars[i].send(request(2, body))
			liars[i].expect(2, body)
		}
		header := request(4, "")
		binary.LittleEndian.PutUint32(header[48:], 64<<20)
		liars[i].send(append(header, make([]byte, i*1000)...))
	}
	c := dial(t, g)
	for i := range uint64(3) {
		began := time.Now()
		go func() { _, _ = c.Write(request(2*i+2, body)) }()
		c.expect(2*i+2, body)
		if took := time.Since(began); took > time.Second {
			t.Fatalf("an honest body took %v", took)
		}
	}
	for _, l := range liars {
		if _, _, err := l.read(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a body that does not come is waited for: %v", err)
		}
	}
	g.budget.mu.Lock()
	defer g.budget.mu.Unlock()
	if g.budget.used != 0 {
		t.Fatalf("%d bytes are still held", g.budget.used)
	}
}

// Bodies that together need more than there is do not wait for each other for ever.
func TestBodiesBeyondTheBudgetGetThrough(t *testing.T) {
	g := serve(t, &fake{bound: true}, Config{MaxBodyBytes: 4 << 20})
	body := string(make([]byte, 3<<20))
	var wg sync.WaitGroup
	for range 12 {
		c := dial(t, g)
		wg.Go(func() {
			for i := range uint64(2) {
				go func() { _, _ = c.Write(request(2*i+2, body)) }()
				if n, got, err := c.read(); err != nil || n != 2*i+2 || len(got) != len(body) {
					t.Errorf("reply %d of %d bytes, %v", n, len(got), err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// What all connections together have in work is bounded; whoever has nothing else in work is served all the same.
func TestWorkOfAllConnectionsIsBounded(t *testing.T) {
	f := &fake{bound: true, release: make(chan struct{})}
	g := serve(t, f, Config{MaxWorkBytes: 1 << 20})
	body := string(make([]byte, 200<<10))
	const conns, each = 8, 4
	clients := make([]*client, conns)
	for i := range clients {
		clients[i] = dial(t, g)
		go func() {
			for k := range uint64(each) {
				_, _ = clients[i].Write(request(2*k+1, body))
			}
		}()
	}
	eventually(t, func() bool { return g.Stats().Frames.Load() >= conns && g.work.waiters.Waiting() >= conns-5 })
	if used := g.work.used.Load(); used > 1<<20 {
		t.Fatalf("%d bytes in work", used)
	}
	idle := dial(t, g)
	idle.send(request(2, "a heartbeat"))
	idle.expect(2, "a heartbeat")
	go func() {
		for range conns * each {
			f.release <- struct{}{}
		}
	}()
	for _, c := range clients {
		for range each {
			if _, got, err := c.read(); err != nil || len(got) != len(body) {
				t.Fatal(len(got), err)
			}
		}
	}
	eventually(t, func() bool { return g.work.used.Load() == 0 })
	g.budget.mu.Lock()
	defer g.budget.mu.Unlock()
	if g.budget.used != 0 {
		t.Fatalf("%d bytes of bodies are still held", g.budget.used)
	}
}

// FuzzStream plays any bytes as a stream: never a panic, and the gateway ends.
func FuzzStream(f *testing.F) {
	f.Add(request(2, "hello"))
	f.Add(append(request(2, ""), request(4, "x")[:200]...))
	big := request(2, "")
	binary.LittleEndian.PutUint32(big[48:], 1<<20)
	f.Add(big)
	f.Fuzz(func(t *testing.T, data []byte) {
		here, there := net.Pipe()
		fk := &fake{bound: len(data)%2 == 0, release: make(chan struct{})}
		close(fk.release)
		ln := &oneListener{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
		ln.conns <- there
		g := Serve(ln, Config{Handler: fk, MaxFrame: 1 << 20, DrainTimeout: time.Second})
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.Copy(io.Discard, here)
		}()
		_, _ = here.Write(data)
		_ = here.Close()
		<-done
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			t.Fatal(err)
		}
		fk.wg.Wait()
		if g.Stats().Panics.Load() != 0 {
			t.Fatal("panic")
		}
	})
}

// oneListener accepts one connection.
type oneListener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *oneListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *oneListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *oneListener) Addr() net.Addr { return &net.TCPAddr{} }

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("did not happen")
		}
	}
}
