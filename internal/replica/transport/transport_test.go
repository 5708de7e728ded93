package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/whippetmq/whippet/internal/replica"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is one end with a handler that records.
type node struct {
	*Transport
	address  string
	log      *logs
	messages chan replica.Message
	controls chan string
	calls    chan string
	joined   chan Hello
	lost     chan uint64
	onCall   atomic.Pointer[func(request []byte, answer func(Answer))]
	onBulk   atomic.Pointer[func(conn net.Conn)]
}

func (n *node) Messages(_ uint64, messages []replica.Message) {
	for _, m := range messages {
		n.messages <- m
	}
}

func (n *node) Control(from uint64, kind uint8, shard uint16, body []byte) {
	n.controls <- fmt.Sprintf("%d %d %d %s", from, kind, shard, body)
}

func (n *node) Call(_ uint64, request []byte, answer func(Answer)) {
	(*n.onCall.Load())(request, answer)
}

func (n *node) Bulk(_ context.Context, _ uint64, conn net.Conn) { (*n.onBulk.Load())(conn) }

func (n *node) Connected(h Hello) {
	select {
	case n.joined <- h:
	default:
	}
}

func (n *node) Lost(id uint64) {
	select {
	case n.lost <- id:
	default:
	}
}

type logs struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// start runs a node with the given id among the addresses of all nodes (index = id - 1).
func start(t *testing.T, id uint64, addresses []string, listener net.Listener, change func(*Config)) *node {
	t.Helper()
	n := &node{
		address: listener.Addr().String(), log: &logs{},
		messages: make(chan replica.Message, 4096), controls: make(chan string, 64), calls: make(chan string, 64),
		joined: make(chan Hello, 8), lost: make(chan uint64, 8),
	}
	cfg := Config{
		Hello:   Hello{NodeID: id, ClusterID: [16]byte{1}, StartCount: 1, Directory: [16]byte{byte(id)}},
		Handler: n, Secret: []byte("a secret of at least thirty-two bytes"),
		Logger:    slog.New(slog.NewTextHandler(n.log, nil)),
		RedialMin: time.Millisecond, RedialMax: 20 * time.Millisecond,
	}
	for i, address := range addresses {
		if other := uint64(i + 1); other != id {
			cfg.Peers = append(cfg.Peers, Peer{NodeID: other, Name: fmt.Sprint("node-", other), Address: address})
		}
	}
	if change != nil {
		change(&cfg)
	}
	transport, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n.Transport = transport
	transport.Start(listener)
	t.Cleanup(transport.Close)
	return n
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func pair(t *testing.T, changeA, changeB func(*Config)) (a, b *node) {
	t.Helper()
	la, lb := listen(t), listen(t)
	addresses := []string{la.Addr().String(), lb.Addr().String()}
	return start(t, 1, addresses, la, changeA), start(t, 2, addresses, lb, changeB)
}

func receive[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(10 * time.Second):
		t.Fatalf("no %s within 10 s", what)
		panic("unreachable")
	}
}

func waitUp(t *testing.T, n *node, peer uint64) {
	t.Helper()
	eventually(t, fmt.Sprintf("link to node %d", peer), func() bool { return n.Up(peer) })
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
		<-tick.C
	}
}

func appendMessage(from, to, index uint64, datas ...[]byte) *raftpb.Message {
	m := &raftpb.Message{
		Type: raftpb.MsgApp.Enum(), From: &from, To: &to, Term: proto.Uint64(7), LogTerm: proto.Uint64(6),
		Index: &index, Commit: proto.Uint64(index), Vote: proto.Uint64(0), Reject: proto.Bool(false), RejectHint: proto.Uint64(0),
	}
	for i, data := range datas {
		m.Entries = append(m.Entries, &raftpb.Entry{
			Type: raftpb.EntryNormal.Enum(), Term: proto.Uint64(7), Index: proto.Uint64(index + 1 + uint64(i)), Data: data,
		})
	}
	return m
}

func TestMessagesArriveWholeAndInOrder(t *testing.T) {
	a, b := pair(t, nil, nil)
	waitUp(t, a, 2)
	big := bytes.Repeat([]byte("x"), 3<<20)
	var sent []*raftpb.Message
	for i := range uint64(200) {
		datas := [][]byte{[]byte(fmt.Sprint("entry ", i)), nil, bytes.Repeat([]byte{byte(i)}, 5000)}
		if i == 100 {
			datas = append(datas, big)
		}
		sent = append(sent, appendMessage(1, 2, i, datas...))
	}
	context := &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: proto.Uint64(1), To: proto.Uint64(2), Term: proto.Uint64(9),
		LogTerm: proto.Uint64(0), Index: proto.Uint64(0), Commit: proto.Uint64(3), Vote: proto.Uint64(0),
		Reject: proto.Bool(true), RejectHint: proto.Uint64(4), Context: []byte("a read")}
	snapshot := &raftpb.Message{Type: raftpb.MsgSnap.Enum(), From: proto.Uint64(1), To: proto.Uint64(2), Term: proto.Uint64(9),
		LogTerm: proto.Uint64(0), Index: proto.Uint64(0), Commit: proto.Uint64(0), Vote: proto.Uint64(0),
		Reject: proto.Bool(false), RejectHint: proto.Uint64(0),
		Snapshot: &raftpb.Snapshot{Data: []byte("manifest"), Metadata: &raftpb.SnapshotMetadata{Index: proto.Uint64(5), Term: proto.Uint64(2)}}}
	sent = append(sent, context, snapshot)
	for i, m := range sent {
		a.Send(2, []replica.Message{{Group: replica.GroupID(i), Raft: m}})
	}
	for i, want := range sent {
		got := receive(t, "message", b.messages)
		if got.Group != replica.GroupID(i) {
			t.Fatalf("message %d of group %d", i, got.Group)
		}
		for _, e := range want.Entries {
			if len(e.Data) == 0 {
				e.Data = nil
			}
		}
		if !proto.Equal(want, got.Raft) {
			t.Fatalf("message %d arrived altered:\n%v\n%v", i, want.String()[:80], got.Raft.String()[:80])
		}
	}
	if !a.Transport.Control(2, 17, 3, []byte("ping")) {
		t.Fatal("control frame refused")
	}
	if got := receive(t, "control frame", b.controls); got != "1 17 3 ping" {
		t.Fatalf("control frame %q", got)
	}
}

func TestCallsArriveInOrderAndAreAnswered(t *testing.T) {
	a, b := pair(t, nil, nil)
	order := make(chan string, 500)
	onCall := func(request []byte, answer func(Answer)) {
		order <- string(request[:4]) // one goroutine per incoming link
		go answer(Answer{Bytes: append([]byte("re "), request...)})
	}
	b.onCall.Store(&onCall)
	waitUp(t, a, 2)
	var wg sync.WaitGroup
	const n = 500
	failed := make(chan error, n)
	for i := range n {
		wg.Add(1)
		body := bytes.Repeat([]byte("b"), i*20)
		want := fmt.Sprintf("re %04d%s", i, body)
		a.Transport.Call(2, [][]byte{[]byte(fmt.Sprintf("%04d", i)), body}, func(reply []byte, err error) {
			defer wg.Done()
			if err != nil || string(reply) != want {
				failed <- fmt.Errorf("call %d: %q, %w", i, reply, err)
			}
		})
	}
	wg.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
	for i := range n {
		if got := <-order; got != fmt.Sprintf("%04d", i) {
			t.Fatalf("call %s arrived as number %d", got, i)
		}
	}
}

// TestAnswersAreTold: whoever answers hears when the bytes are written, and when they never will be.
func TestAnswersAreTold(t *testing.T) {
	a, b := pair(t, nil, nil)
	written := make(chan string, 10)
	answers := make(chan func(Answer), 10)
	onCall := func(_ []byte, answer func(Answer)) { answers <- answer }
	b.onCall.Store(&onCall)
	waitUp(t, a, 2)
	got := make(chan error, 10)
	call := func() func(Answer) {
		a.Transport.Call(2, [][]byte{[]byte("x")}, func(_ []byte, err error) { got <- err })
		return receive(t, "call", answers)
	}
	call()(Answer{Bytes: []byte("y"), Written: func() { written <- "one" }})
	if err := receive(t, "answer", got); err != nil {
		t.Fatal(err)
	}
	if s := receive(t, "word of the first", written); s != "one" {
		t.Fatal(s)
	}
	late := call()
	a.Close()
	if err := receive(t, "outcome", got); err == nil {
		t.Fatal("answered by nobody")
	}
	// The other side hears of the lost link a little later; until then the answer may go into the socket.
	late(Answer{Bytes: make([]byte, 8<<20), Written: func() { written <- "two" }})
	if s := receive(t, "word of the second", written); s != "two" {
		t.Fatal(s)
	}
}

func TestCallThatIsNotTaken(t *testing.T) {
	a, b := pair(t, nil, nil)
	onCall := func(_ []byte, answer func(Answer)) { answer(Answer{Refused: true}) }
	b.onCall.Store(&onCall)
	waitUp(t, a, 2)
	errs := make(chan error, 1)
	a.Transport.Call(2, [][]byte{[]byte("x")}, func(_ []byte, err error) { errs <- err })
	if err := receive(t, "outcome", errs); !errors.Is(err, ErrNotTaken) {
		t.Fatalf("got %v", err)
	}
}

func TestCallsOfALostLink(t *testing.T) {
	a, b := pair(t, nil, nil)
	arrived := make(chan struct{}, 1)
	onCall := func([]byte, func(Answer)) { arrived <- struct{}{} }
	b.onCall.Store(&onCall)
	waitUp(t, a, 2)
	errs := make(chan error, 1)
	a.Transport.Call(2, [][]byte{[]byte("swallowed")}, func(_ []byte, err error) { errs <- err })
	receive(t, "arrival", arrived)
	b.Close()
	if err := receive(t, "outcome", errs); !errors.Is(err, ErrLinkLost) {
		t.Fatalf("a call that had left ended with %v", err)
	}
	eventually(t, "link down", func() bool { return !a.Up(2) })
	a.Transport.Call(2, [][]byte{[]byte("refused")}, func(_ []byte, err error) { errs <- err })
	if err := receive(t, "outcome", errs); !errors.Is(err, ErrNotSent) {
		t.Fatalf("a call without a link ended with %v", err)
	}
	receive(t, "word of the loss", a.lost)
}

func TestRefusals(t *testing.T) {
	cases := []struct {
		name string
		b    func(*Config)
		want string
	}{
		{"wrong secret", func(c *Config) { c.Secret = []byte("another secret, also of thirty-two bytes") }, "does not know the cluster's secret"},
		{"no secret", func(c *Config) { c.Secret = nil }, "does not know the cluster's secret"},
		{"another cluster", func(c *Config) { c.Hello.ClusterID = [16]byte{9} }, "another cluster"},
		{"wrong address in the roster", func(c *Config) { c.Hello.NodeID = 3; c.Peers = []Peer{{NodeID: 1, Address: c.Peers[0].Address}} }, "check the roster"},
		{"same node id", func(c *Config) { c.Hello.NodeID = 1; c.Peers[0].NodeID = 2 }, "--replica-id"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a, b := pair(t, nil, c.b)
			eventually(t, "a log line that says "+c.want, func() bool {
				return strings.Contains(a.log.String()+b.log.String(), c.want)
			})
			if a.Up(2) || b.Up(1) {
				t.Fatal("the link came up")
			}
		})
	}
}

func TestPreviousSecretIsAccepted(t *testing.T) {
	old := []byte("the secret that was used until yesterday")
	a, b := pair(t, func(c *Config) { c.PreviousSecret = old }, func(c *Config) {
		c.PreviousSecret = c.Secret
		c.Secret = old
	})
	waitUp(t, a, 2)
	waitUp(t, b, 1)
}

func TestOldCopyIsRefused(t *testing.T) {
	a, b := pair(t, nil, func(c *Config) { c.Hello.StartCount = 5 })
	receive(t, "hello of b", a.joined)
	b.Close()
	listener, err := net.Listen("tcp", b.address)
	if err != nil {
		t.Fatal(err)
	}
	old := start(t, 2, []string{a.address, b.address}, listener, func(c *Config) { c.Hello.StartCount = 4 })
	eventually(t, "refusal of the old copy", func() bool { return strings.Contains(old.log.String(), "old copy") })
	if old.Up(1) {
		t.Fatal("the link came up")
	}
}

func TestVersionsMustAgree(t *testing.T) {
	a, _ := pair(t, nil, nil)
	conn, err := net.Dial("tcp", a.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	hello := (&Hello{Version: Version + 1, Purpose: Link, NodeID: 2, ClusterID: [16]byte{1}}).append(nil)
	if _, err := conn.Write(hello); err != nil {
		t.Fatal(err)
	}
	refused := &RefusedError{}
	if err := readVerdict(conn); !errors.As(err, &refused) || refused.Reason != ReasonVersion {
		t.Fatalf("got %v", err)
	}
}

func TestGarbageIsCutOff(t *testing.T) {
	a, b := pair(t, func(c *Config) { c.HandshakeTimeout = 200 * time.Millisecond }, nil)
	waitUp(t, b, 1)
	for name, garbage := range map[string][]byte{
		"http":     []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n" + strings.Repeat("x", 200)),
		"zeros":    make([]byte, 4096),
		"silence":  nil,
		"one byte": {'W'},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", a.address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Write(garbage); err != nil {
				t.Fatal(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, conn); n != 0 || isTimeout(err) {
				t.Fatalf("%d bytes came back, %v: the connection must be closed without a word", n, err)
			}
		})
	}
	if !b.Up(1) {
		t.Fatal("a stranger disturbed a peer")
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func TestFramesOfAPeerGoneWrongEndTheLink(t *testing.T) {
	frames := map[string][]byte{
		"unknown kind":      header{kind: 99}.append(nil),
		"too long":          header{kind: frameRaft, length: 1 << 31}.append(nil),
		"short message":     append(header{kind: frameRaft, length: 3}.append(nil), 1, 2, 3),
		"entries not there": append(header{kind: frameRaft, length: messageFields}.append(nil), manyEntries()...),
	}
	for name, frame := range frames {
		t.Run(name, func(t *testing.T) {
			l := listen(t)
			a := start(t, 1, []string{l.Addr().String(), "127.0.0.1:1"}, l, nil)
			b := &Transport{cfg: a.cfg, hello: Hello{Version: Version, NodeID: 2, ClusterID: [16]byte{1}}, peers: map[uint64]*peer{1: {}}}
			conn, err := net.Dial("tcp", a.address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := b.handshake(conn, 1, Link); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write(frame); err != nil {
				t.Fatal(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
				t.Fatal("the link stayed open")
			}
			eventually(t, "a log line", func() bool { return strings.Contains(a.log.String(), "malformed frame") })
		})
	}
}

func manyEntries() []byte {
	body := make([]byte, messageFields)
	body[0] = byte(raftpb.MsgApp)
	binary.LittleEndian.PutUint32(body[4:], 1<<31)
	return body
}

func TestAStuckPeerBoundsTheQueue(t *testing.T) {
	l := listen(t) // nobody accepts on it beyond the hello
	defer l.Close()
	la := listen(t)
	a := start(t, 1, []string{la.Addr().String(), l.Addr().String()}, la, func(c *Config) {
		c.QueueBytes = 1 << 20
		c.SilentTimeout = time.Minute
	})
	b := &Transport{cfg: a.cfg, hello: Hello{Version: Version, NodeID: 2, ClusterID: [16]byte{1}}, peers: map[uint64]*peer{1: {}}, known: map[uint64]Hello{}}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := b.handshake(conn, 0, Link); err != nil {
		t.Fatal(err)
	}
	waitUp(t, a, 2)
	data := make([]byte, 512<<10)
	for i := range uint64(256) { // far more than socket buffers and the queue take
		a.Send(2, []replica.Message{{Group: 1, Raft: appendMessage(1, 2, i, data)}})
	}
	if node := receive(t, "word of dropped messages", a.lost); node != 2 {
		t.Fatalf("lost to node %d", node)
	}
	p := a.peers[2]
	p.mu.Lock()
	queued := p.filling.bytes
	p.mu.Unlock()
	if queued > 2<<20 {
		t.Fatalf("%d bytes are queued, the bound is 1 MiB and one message", queued)
	}
	// The writer may have taken one queue more meanwhile, as long as the socket's buffers still grow.
	eventually(t, "a call above the bound is refused", func() bool {
		a.Send(2, []replica.Message{{Group: 1, Raft: appendMessage(1, 2, 1, data)}})
		refused := make(chan error, 1)
		a.Transport.Call(2, [][]byte{{1}}, func(_ []byte, err error) { refused <- err })
		select {
		case err := <-refused:
			if !errors.Is(err, ErrNotSent) {
				t.Fatalf("a call above the bound ended with %v", err)
			}
			return true
		default:
			return false
		}
	})
	if !a.Transport.Control(2, 1, 1, []byte("still goes")) {
		t.Fatal("a control frame was refused by a full queue")
	}
}

func TestBulkConnection(t *testing.T) {
	a, b := pair(t, nil, nil)
	onBulk := func(conn net.Conn) { _, _ = io.Copy(conn, conn) }
	b.onBulk.Store(&onBulk)
	conn, err := a.DialBulk(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	want := bytes.Repeat([]byte("segment "), 10000)
	go func() { _, _ = conn.Write(want) }()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("bytes came back altered: %v", err)
	}
}

func FuzzDecodeMessage(f *testing.F) {
	q := &queue{open: -1}
	if err := q.appendMessage(1, appendMessage(1, 2, 3, []byte("a"), nil, []byte("b"))); err != nil {
		f.Fatal(err)
	}
	f.Add(bytes.Join(q.buffers, nil)[frameHeader:])
	f.Add(manyEntries())
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := decodeMessage(body, 1, 2)
		if err == nil && m.GetTo() != 2 {
			t.Fatal("wrong receiver")
		}
	})
}
