package harness

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// sink is a server that keeps what it reads and answers every request frame with an empty reply.
type sink struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns []*sinkConn
}

type sinkConn struct {
	conn   net.Conn
	got    bytes.Buffer
	err    error
	closed bool
}

func newSink(t *testing.T) *sink {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &sink{listener: l}
	s.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c := &sinkConn{conn: conn}
			s.mu.Lock()
			s.conns = append(s.conns, c)
			s.mu.Unlock()
			s.wg.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		s.mu.Lock()
		for _, c := range s.conns {
			_ = c.conn.Close()
		}
		s.mu.Unlock()
		s.wg.Wait()
	})
	return s
}

func (s *sink) serve(c *sinkConn) {
	answered := 0
	buf := make([]byte, 4096)
	for {
		n, err := c.conn.Read(buf)
		s.mu.Lock()
		c.got.Write(buf[:n])
		var replies []byte
		for b := c.got.Bytes()[answered:]; len(b) >= wire.HeaderSize; b = c.got.Bytes()[answered:] {
			var h wire.RequestHeader
			if h.DecodeLoose(b) != nil || int(h.Size) > len(b) || h.Size < wire.HeaderSize {
				break
			}
			answered += int(h.Size)
			replies = wire.AppendReply(replies, h.Reply(), []byte("the answer"))
		}
		if err != nil {
			c.err, c.closed = err, true
		}
		s.mu.Unlock()
		if err != nil {
			return
		}
		_, _ = c.conn.Write(replies) // who reads them finds out
	}
}

// state of the n-th connection.
func (s *sink) state(n int) (got []byte, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n >= len(s.conns) {
		return nil, false
	}
	return bytes.Clone(s.conns[n].got.Bytes()), s.conns[n].closed
}

func newTestProxy(t *testing.T, upstream string, protocol Protocol) *Proxy {
	t.Helper()
	p, err := NewProxy("test", "127.0.0.1:0", upstream, protocol)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	return ctx
}

func dialTest(t *testing.T, address string) *Raw {
	t.Helper()
	r, err := DialRaw(testContext(t), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	r.Session = 1
	return r
}

// send is the frame of a send of some bytes to a partition.
func send(t *testing.T, r *Raw, partition uint32, payload string) []byte {
	t.Helper()
	req, err := SendRequest(wire.ID(1), wire.Name("topic"), partition, wire.Message{Payload: []byte(payload)})
	if err != nil {
		t.Fatal(err)
	}
	return r.Frame(req)
}

func isSend(f *Frame) bool { return f.Dir == ToServer && f.Code == wire.CodeSendMessages }

func TestProxyPasses(t *testing.T) {
	s := newSink(t)
	p := newTestProxy(t, s.listener.Addr().String(), ClientProtocol)
	r := dialTest(t, p.Addr())
	want := []byte{}
	for i := range 50 {
		frame := send(t, r, uint32(i), strings.Repeat("x", 1+i*5000))
		if i == 0 {
			frame = r.Frame(&wire.Ping{})
		}
		want = append(want, frame...)
		a, err := r.Exchange(testContext(t), frame)
		if err != nil || string(a.Body) != "the answer" {
			t.Fatalf("frame %d: %v", i, err)
		}
	}
	if got, _ := s.state(0); !bytes.Equal(got, want) {
		t.Fatalf("%d bytes arrived altered, %d were sent", len(got), len(want))
	}
	c := p.Counts()
	if c.Requests[wire.CodeSendMessages] != 49 || c.Requests[wire.CodePing] != 1 || c.Accepted != 1 || c.Bytes[ToServer] != int64(len(want)) {
		t.Fatalf("counts: %+v", c)
	}
	if recent := p.Recent(); !strings.Contains(recent, "partition 49") || !strings.Contains(recent, "<- SendMessages") {
		t.Fatalf("recent frames: %s", recent)
	}
}

func TestProxyCutsAtEveryByte(t *testing.T) {
	s := newSink(t)
	p := newTestProxy(t, s.listener.Addr().String(), ClientProtocol)
	size := len(send(t, &Raw{}, 3, strings.Repeat("y", 100_000)))
	cuts := []int{0, 1, 47, 48, 51, 52, wire.HeaderSize - 1, wire.HeaderSize, wire.HeaderSize + 1, prefixSize - 1, prefixSize, prefixSize + 1, 40_000, size - 1, size, size + 1}
	for i, n := range cuts {
		rule := p.Rule(Rule{Name: "cut", Match: isSend, Skip: 1, Times: 1, Do: Cut(n)})
		r := dialTest(t, p.Addr())
		first := send(t, r, 3, "passes")
		if _, err := r.Exchange(testContext(t), first); err != nil {
			t.Fatalf("cut at %d: the frame before it: %v", n, err)
		}
		frame := send(t, r, 3, strings.Repeat("y", 100_000))
		if err := r.Write(testContext(t), frame); err != nil {
			t.Logf("cut at %d: write: %v", n, err) // it may see the end early
		}
		Eventually(t, Patience, "the server to see the end", func(context.Context) error {
			if _, closed := s.state(i); !closed {
				return ErrNotYet
			}
			return nil
		})
		got, _ := s.state(i)
		want := append(bytes.Clone(first), frame[:min(n, len(frame))]...)
		if !bytes.Equal(got, want) {
			t.Fatalf("cut at %d: %d bytes arrived, want %d", n, len(got), len(want))
		}
		if _, err := r.Read(testContext(t)); err == nil && n < size {
			t.Fatalf("cut at %d: an answer came", n)
		}
		rule.Remove()
	}
}

func TestProxyCutsReplies(t *testing.T) {
	s := newSink(t)
	p := newTestProxy(t, s.listener.Addr().String(), ClientProtocol)
	size := wire.HeaderSize + len("the answer")
	for _, n := range []int{0, 1, 255, 256, 257, size - 1, size} {
		rule := p.Rule(Rule{Match: func(f *Frame) bool { return f.Dir == ToClient && f.Code == wire.CodeSendMessages }, Times: 1, Do: Cut(n)})
		r := dialTest(t, p.Addr())
		if err := r.Write(testContext(t), send(t, r, 3, "z")); err != nil {
			t.Fatal(err)
		}
		_ = r.conn.SetReadDeadline(time.Now().Add(Patience))
		got, err := io.ReadAll(r.conn)
		if len(got) != n {
			t.Fatalf("cut at %d: %d bytes came, %v", n, len(got), err)
		}
		rule.Remove()
	}
}

func TestProxySwallows(t *testing.T) {
	s := newSink(t)
	p := newTestProxy(t, s.listener.Addr().String(), ClientProtocol)
	r := dialTest(t, p.Addr())
	rule := p.Rule(Rule{Name: "swallow", Match: func(f *Frame) bool { return f.Dir == ToClient && f.Request == 2 }, Do: Swallow()})
	for range 3 {
		if err := r.Write(testContext(t), send(t, r, 0, "m")); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []uint64{1, 3} {
		a, err := r.Read(testContext(t))
		if err != nil || a.Header.Request != want {
			t.Fatalf("got an answer to %d, %v, want %d", a.Header.Request, err, want)
		}
	}
	if rule.Hits() != 1 {
		t.Fatalf("%d hits", rule.Hits())
	}
	request := p.Rule(Rule{Match: isSend, Times: 1, Do: Swallow()})
	before, _ := s.state(0)
	if err := r.Write(testContext(t), send(t, r, 0, strings.Repeat("w", 200_000))); err != nil {
		t.Fatal(err)
	}
	if err := request.Wait(testContext(t), 1); err != nil {
		t.Fatal(err)
	}
	next := send(t, r, 0, "after the swallowed one")
	if _, err := r.Exchange(testContext(t), next); err != nil {
		t.Fatal(err)
	}
	after, _ := s.state(0)
	if !bytes.Equal(after[len(before):], next) {
		t.Fatal("the swallowed request arrived")
	}
}

func TestProxyDelays(t *testing.T) {
	s := newSink(t)
	p := newTestProxy(t, s.listener.Addr().String(), ClientProtocol)
	r := dialTest(t, p.Addr())
	const delay = 60 * time.Millisecond
	exchange := func() time.Duration {
		start := time.Now()
		if _, err := r.Exchange(testContext(t), send(t, r, 0, "m")); err != nil {
			t.Fatal(err)
		}
		return time.Since(start)
	}
	exchange()
	p.SetDelay(ToServer, delay)
	p.SetDelay(ToClient, delay)
	if took := exchange(); took < 2*delay {
		t.Fatalf("took %v with %v in each direction", took, delay)
	}
	// Twenty frames at once are not delayed one after another.
	start := time.Now()
	for range 20 {
		if err := r.Write(testContext(t), send(t, r, 0, "m")); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		if _, err := r.Read(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(start); took < 2*delay || took > 15*delay {
		t.Fatalf("twenty frames took %v", took)
	}
	p.SetDelay(ToServer, 0)
	p.SetDelay(ToClient, 0)
	rule := p.Rule(Rule{Match: isSend, Times: 1, Do: Delay(delay)})
	if took := exchange(); took < delay {
		t.Fatalf("a delayed frame took %v", took)
	}
	rule.Remove()
}

func TestProxyHoldsAndStalls(t *testing.T) {
	s := newSink(t)
	p := newTestProxy(t, s.listener.Addr().String(), ClientProtocol)
	r := dialTest(t, p.Addr())
	frame := send(t, r, 0, "held")
	rule := p.Rule(Rule{Match: isSend, Times: 1, Do: Hold()})
	if err := r.Write(testContext(t), frame); err != nil {
		t.Fatal(err)
	}
	if err := rule.Wait(testContext(t), 1); err != nil {
		t.Fatal(err)
	}
	if got, _ := s.state(0); len(got) != 0 {
		t.Fatal("a held frame arrived")
	}
	rule.Remove()
	if _, err := r.Read(testContext(t)); err != nil {
		t.Fatal(err)
	}

	p.Stall(ToClient)
	second := send(t, r, 0, "its answer is stalled")
	if err := r.Write(testContext(t), second); err != nil {
		t.Fatal(err)
	}
	Eventually(t, Patience, "the request to arrive", func(context.Context) error {
		if got, _ := s.state(0); len(got) < len(frame)+len(second) {
			return ErrNotYet
		}
		return nil
	})
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.Read(short); err == nil {
		t.Fatal("a stalled answer came")
	}
	p.Resume()
	if _, err := r.Read(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

func TestProxyIsolates(t *testing.T) {
	s := newSink(t)
	p := newTestProxy(t, s.listener.Addr().String(), ClientProtocol)
	r := dialTest(t, p.Addr())
	if _, err := r.Exchange(testContext(t), send(t, r, 0, "m")); err != nil {
		t.Fatal(err)
	}
	p.Isolate()
	if _, err := r.Read(testContext(t)); err == nil {
		t.Fatal("the connection lives")
	}
	// The proxy accepts and resets: the dial may hear of that already.
	if cut, err := DialRaw(testContext(t), p.Addr()); err == nil {
		defer cut.Close()
		if _, err := cut.Exchange(testContext(t), send(t, cut, 0, "m")); err == nil {
			t.Fatal("a new connection passes")
		}
	}
	p.Heal()
	healed := dialTest(t, p.Addr())
	if _, err := healed.Exchange(testContext(t), send(t, healed, 0, "m")); err != nil {
		t.Fatal(err)
	}
}

func TestProxyPassesGarbage(t *testing.T) {
	s := newSink(t)
	p := newTestProxy(t, s.listener.Addr().String(), ClientProtocol)
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	garbage := bytes.Repeat([]byte("GET / HTTP/1.1\r\n\r\n\x00"), 1000)
	for i := range garbage[:20] {
		garbage[48+i] = 0 // a size field of zero is no frame
	}
	if _, err := conn.Write(garbage); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	Eventually(t, Patience, "the garbage to arrive", func(context.Context) error {
		if got, closed := s.state(0); !closed || !bytes.Equal(got, garbage) {
			return ErrNotYet
		}
		return nil
	})
}

// TestProxyReadsPeerFrames plays both ends of a link between nodes.
func TestProxyReadsPeerFrames(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := newTestProxy(t, l.Addr().String(), PeerProtocol)
	dialler, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer dialler.Close()
	acceptor, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer acceptor.Close()
	pass := func(from, to net.Conn, b []byte) {
		t.Helper()
		if _, err := from.Write(b); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(b))
		_ = to.SetReadDeadline(time.Now().Add(Patience))
		if _, err := io.ReadFull(to, got); err != nil || !bytes.Equal(got, b) {
			t.Fatalf("%d bytes did not pass: %v", len(b), err)
		}
	}
	hello := make([]byte, 117) // whatever its size
	hello[peerPurpose] = peerLink
	pass(dialler, acceptor, hello)
	pass(acceptor, dialler, append([]byte{0, 0}, hello...))
	pass(acceptor, dialler, make([]byte, peerProof))
	pass(dialler, acceptor, make([]byte, peerProof))
	pass(acceptor, dialler, []byte{0, 0})

	frame := func(kind uint8, group uint64, body []byte) []byte {
		b := binary.LittleEndian.AppendUint32(nil, uint32(len(body)))
		b = append(b, kind, 0, 0, 0)
		return append(binary.LittleEndian.AppendUint64(b, group), body...)
	}
	rule := p.Rule(Rule{Name: "appends of group 7", Do: Swallow(), Match: func(f *Frame) bool {
		return f.Dir == ToServer && f.PeerKind == PeerRaft && f.Group == 7 && f.RaftType == RaftAppend
	}})
	large := append([]byte{RaftAppend}, make([]byte, 300_000)...)
	pass(dialler, acceptor, frame(PeerControl, 7, []byte("ping")))
	pass(dialler, acceptor, frame(PeerRaft, 8, large))
	if _, err := dialler.Write(frame(PeerRaft, 7, large)); err != nil {
		t.Fatal(err)
	}
	pass(dialler, acceptor, frame(PeerCall, 7, nil))
	pass(acceptor, dialler, frame(PeerAnswer, 7, []byte("x")))
	if rule.Hits() != 1 {
		t.Fatalf("%d hits", rule.Hits())
	}
}

func TestUntilNamesWhatItWaitedFor(t *testing.T) {
	err := Until(t.Context(), 20*time.Millisecond, "the moon to rise", func(context.Context) error { return errors.New("it is noon") })
	if err == nil || !strings.Contains(err.Error(), "the moon to rise") || !strings.Contains(err.Error(), "it is noon") {
		t.Fatalf("got %v", err)
	}
}
