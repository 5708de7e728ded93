package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/whippetmq/whippet/internal/credential"
	"github.com/whippetmq/whippet/internal/vfs"
	"github.com/whippetmq/whippet/wire"
)

// start runs a node on a free port with iggy/iggy as root.
func start(t testing.TB, change func(*Config), opts ...Option) *Server {
	t.Helper()
	s, err := tryStart(t, change, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

// startIn runs a node on a directory; the test stops it itself, and starts it again.
func startIn(t testing.TB, dir string) *Server {
	t.Helper()
	s, err := tryStart(t, func(c *Config) { c.Path = dir })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func tryStart(t testing.TB, change func(*Config), opts ...Option) (*Server, error) {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Path = t.TempDir()
	cfg.TCP.Address = "127.0.0.1:0"
	cfg.Root.Default = true
	if change != nil {
		change(cfg)
	}
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	return Start(ctx, cfg, append([]Option{WithLogger(log), cheap}, opts...)...)
}

func stop(t testing.TB, s *Server) {
	t.Helper()
	if err := s.Close(context.Background()); err != nil {
		t.Errorf("close: %v", err)
	}
}

// cheap is for every test that is not about the cost of passwords.
var cheap = WithHasher(credential.Config{Cheap: true})

func withFS(fs vfs.FS) Option { return func(o *options) { o.fs = fs } }

// raw is a client that writes frames as it likes.
type raw struct {
	t       testing.TB
	nc      net.Conn
	client  wire.U128
	session uint64
	request uint64 // the last one used
}

const patience = 30 * time.Second

func dial(t testing.TB, s *Server) *raw {
	t.Helper()
	return dialAt(t, s.Addr())
}

func dialAt(t testing.TB, addr net.Addr) *raw {
	t.Helper()
	nc, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	return &raw{t: t, nc: nc, client: wire.NewID()}
}

// login signs in as root.
func login(t testing.TB, s *Server) *raw {
	t.Helper()
	r := dial(t, s)
	r.login("iggy", "iggy")
	return r
}

func loginAt(t testing.TB, addr net.Addr) *raw {
	t.Helper()
	r := dialAt(t, addr)
	r.login("iggy", "iggy")
	return r
}

func loginBody(user, password string) *wire.LoginRegister {
	return &wire.LoginRegister{Version: wire.ClientVersion{Protocol: wire.CurrentVersion, SDKName: "raw", SDKVersion: "1"}, Username: user, Password: password}
}

func (r *raw) login(user, password string) {
	r.t.Helper()
	rep := r.do(loginBody(user, password))
	payload, err := rep.payload()
	if err != nil {
		r.t.Fatalf("login: %v", err)
	}
	var lr wire.LoginReply
	if err := lr.Decode(payload); err != nil || lr.Session == 0 {
		r.t.Fatalf("login reply: %+v %v", lr, err)
	}
	r.session = lr.Session
	r.request = 0
}

// answer is a frame from the server.
type answer struct {
	head     []byte
	h        wire.ReplyHeader
	body     []byte
	eviction wire.EvictionReason
	ev       wire.EvictionHeader
}

// code is the error of an answer wherever it is, 0 = none.
func (a answer) code() wire.ErrorCode {
	if a.eviction != 0 {
		return wire.StatusOf(a.eviction.Err(wire.CurrentVersion, 0, 0))
	}
	if a.h.Status != 0 {
		return a.h.Status
	}
	if a.h.Operation.Framed() && len(a.body) > 0 {
		if _, err := wire.SplitResult(a.body); err != nil {
			return wire.StatusOf(err)
		}
	}
	return 0
}

// payload is the body without the result section.
func (a answer) payload() ([]byte, error) {
	if c := a.code(); c != 0 {
		return nil, c
	}
	if a.eviction != 0 {
		return nil, errors.New(a.eviction.String())
	}
	if a.h.Operation.Framed() && len(a.body) > 0 {
		return wire.SplitResult(a.body)
	}
	return a.body, nil
}

// header of the next request for a command.
func (r *raw) header(c wire.Code) wire.RequestHeader {
	h := wire.RequestHeader{Client: r.client, Session: r.session}
	op := wire.OperationFor(c)
	switch {
	case op == wire.OpRegister:
		h.Session = 0
	case op == wire.OpNonReplicated:
		h.Request = r.request + 1
	default:
		r.request++
		h.Request = r.request
	}
	return h
}

func (r *raw) frame(req wire.Request) []byte {
	return wire.AppendCommand(nil, r.header(req.Code()), req)
}

func (r *raw) write(b []byte) {
	r.t.Helper()
	if _, err := r.nc.Write(b); err != nil {
		r.t.Fatalf("write: %v", err)
	}
}

// do sends a request and reads its answer.
func (r *raw) do(req wire.Request) answer {
	r.t.Helper()
	r.write(r.frame(req))
	return r.read()
}

// must decodes the payload of a success.
func (r *raw) must(req wire.Request, into wire.Reply) answer {
	r.t.Helper()
	a := r.do(req)
	payload, err := a.payload()
	if err != nil {
		r.t.Fatalf("%s: %v", req.Code(), err)
	}
	if into != nil {
		if err := into.Decode(payload); err != nil {
			r.t.Fatalf("%s: decode reply: %v", req.Code(), err)
		}
	}
	return a
}

// want demands an error code.
func (r *raw) want(req wire.Request, code wire.ErrorCode) answer {
	r.t.Helper()
	a := r.do(req)
	if got := a.code(); got != code {
		r.t.Fatalf("%s: code %d (%v), want %d (%v)", req.Code(), got, got, code, code)
	}
	return a
}

func (r *raw) read() answer {
	r.t.Helper()
	a, err := r.tryRead(patience)
	if err != nil {
		r.t.Fatalf("read: %v", err)
	}
	return a
}

func (r *raw) tryRead(limit time.Duration) (a answer, err error) {
	_ = r.nc.SetReadDeadline(time.Now().Add(limit))
	a.head = make([]byte, wire.HeaderSize)
	if _, err := io.ReadFull(r.nc, a.head); err != nil {
		return a, err
	}
	if wire.KindOf(a.head) == wire.FrameEviction {
		if err := a.ev.Decode(a.head); err != nil {
			return a, err
		}
		a.eviction = a.ev.Reason
		return a, nil
	}
	if err := a.h.Decode(a.head); err != nil {
		return a, err
	}
	a.body = make([]byte, a.h.Size-wire.HeaderSize)
	_, err = io.ReadFull(r.nc, a.body)
	return a, err
}

// closed demands that the server ends the connection without another frame.
func (r *raw) closed() {
	r.t.Helper()
	_ = r.nc.SetReadDeadline(time.Now().Add(patience))
	n, err := io.Copy(io.Discard, r.nc)
	if n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		r.t.Fatalf("connection stays open: %d bytes, %v", n, err)
	}
}

// topic makes a stream and a topic and gives their ids.
func (r *raw) topic(partitions uint32, options ...wire.Option) (stream, topic wire.Identifier) {
	r.t.Helper()
	var sd wire.StreamDetails
	r.must(&wire.CreateStream{Name: "s" + wire.NewID().Hex()[:8]}, &sd)
	var td wire.TopicDetails
	r.must(&wire.CreateTopic{Stream: wire.ID(sd.ID), PartitionsCount: partitions, Name: "t", Options: options}, &td)
	return wire.ID(sd.ID), wire.ID(td.ID)
}

// batch builds a batch of payloads.
func batch(t testing.TB, payloads ...string) wire.Batch {
	t.Helper()
	ms := make([]wire.Message, len(payloads))
	for i, p := range payloads {
		ms[i] = wire.Message{ID: wire.NewID(), Payload: []byte(p)}
	}
	b, err := wire.BuildBatch(nil, ms)
	if err != nil {
		t.Fatal(err)
	}
	return wire.Batch(b)
}

func (r *raw) send(stream, topic wire.Identifier, p wire.Partitioning, payloads ...string) wire.SendConfirmation {
	r.t.Helper()
	var c wire.SendConfirmations
	r.must(&wire.SendMessages{Stream: stream, Topic: topic, Partitioning: p, Batch: batch(r.t, payloads...)}, &c)
	if len(c.Confirmations) != 1 {
		r.t.Fatalf("%d confirmations", len(c.Confirmations))
	}
	return c.Confirmations[0]
}

// replay sends a batch as released clients do: as long as the outcome is unknown, the same frame again.
func (r *raw) replay(stream, topic wire.Identifier, p wire.Partitioning, payloads ...string) wire.SendConfirmation {
	r.t.Helper()
	frame := r.frame(&wire.SendMessages{Stream: stream, Topic: topic, Partitioning: p, Batch: batch(r.t, payloads...)})
	for end := time.Now().Add(patience); ; {
		r.write(frame)
		a := r.read()
		if a.code() == wire.ErrTransientNotCommitted && time.Now().Before(end) {
			continue
		}
		payload, err := a.payload()
		if err != nil {
			r.t.Fatalf("send: %v", err)
		}
		var c wire.SendConfirmations
		if err := c.Decode(payload); err != nil || len(c.Confirmations) != 1 {
			r.t.Fatalf("%d confirmations, %v", len(c.Confirmations), err)
		}
		return c.Confirmations[0]
	}
}

func pollRequest(stream, topic wire.Identifier, partition uint32, from uint64, count uint32) *wire.PollMessages {
	return &wire.PollMessages{
		Consumer: wire.SingleConsumer(wire.ID(1)), Stream: stream, Topic: topic, Partition: wire.SomePartition(partition),
		Strategy: wire.PollingStrategy{Kind: wire.StrategyOffset, Value: from}, Count: count,
	}
}

func (r *raw) poll(req wire.Request) ([]string, wire.PolledMessages) {
	r.t.Helper()
	var pm wire.PolledMessages
	r.must(req, &pm)
	var out []string
	for m := range pm.Messages() {
		out = append(out, string(m.Payload))
	}
	return out, pm
}

// eventually waits for a condition that another goroutine brings about.
func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("did not happen")
		}
	}
}
