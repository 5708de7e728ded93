package broker

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/whippetmq/whippet/internal/clock"
	"github.com/whippetmq/whippet/internal/credential"
	"github.com/whippetmq/whippet/internal/metadata"
	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/internal/vfs"
	"github.com/whippetmq/whippet/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a broker on a node of one, in memory.
type rig struct {
	t       testing.TB
	b       *Broker
	host    *replica.Host
	machine *metadata.Machine
	parts   *Partitions
}

const rootPassword = "secret"

func newRig(t testing.TB) *rig {
	t.Helper()
	return newRigWith(t, metadata.Config{}, nil)
}

// newRigWith makes a rig with a configuration of its own.
func newRigWith(t testing.TB, mc metadata.Config, change func(*Config)) *rig {
	t.Helper()
	return newRigOn(t, vfs.NewMem(1), "", mc, change)
}

// newRigOn makes a rig on a disk that was in use before, since this boot of the machine or an earlier one.
func newRigOn(t testing.TB, fs vfs.FS, bootID string, mc metadata.Config, change func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t}
	clk := clock.System(nil)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var err error
	if r.host, err = replica.Open(ctx, replica.Config{FS: fs, Dir: "/node", NodeID: 1, BootID: bootID, Clock: clk, Shards: 1, BallastBytes: -1}); err != nil {
		t.Fatal(err)
	}
	r.machine = metadata.New(mc)
	g, err := r.host.StartGroup(ctx, replica.GroupConfig{ID: replica.MetadataGroup, Dir: "/node/metadata", Voters: []uint64{1}, Machine: r.machine})
	if err == nil {
		err = g.WaitReady(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	hasher := credential.NewHasher(credential.Config{Cheap: true})
	hash, err := hasher.Hash(ctx, rootPassword)
	if err != nil {
		t.Fatal(err)
	}
	r.parts = NewPartitions(PartitionsConfig{Host: r.host, Metadata: r.machine, FS: fs, Dir: "/node", Clock: clk, Node: 1})
	cfg := Config{
		Metadata: r.machine, MetadataGroup: g, Partitions: r.parts, Hasher: hasher, Clock: clk, NodeName: "n", Version: "1.2.3", DataDir: "/",
		Heartbeat: time.Minute,
		Roster: func(netip.Addr) wire.Roster {
			return wire.Roster{Name: "c", Nodes: []wire.Node{{Name: "n", IP: "127.0.0.1", TCP: 1}}}
		},
	}
	if change != nil {
		change(&cfg)
	}
	r.b = New(cfg)
	done := make(chan metadata.Result, 1)
	boot := metadata.Bootstrap{Username: "root", PasswordHash: hash}
	if err := g.Submit(ctx, &metadata.Command{Operation: metadata.OpBootstrap, Body: boot.Append(nil), Now: clk.Now(), Done: func(r metadata.Result) { done <- r }}); err != nil {
		t.Fatal(err)
	}
	if res := <-done; res.Err != nil {
		t.Fatal(res.Err)
	}
	t.Cleanup(func() {
		r.parts.Close()
		r.b.Close()
		if err := r.host.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// peer is a connection without a socket.
type peer struct {
	r       *rig
	t       testing.TB
	conn    Conn
	client  wire.U128
	session uint64
	request uint64
	replies chan *Reply
}

// Reply implements Sink.
func (p *peer) Reply(r *Reply) { p.replies <- r }

func (p *peer) Hold(bool) {}

// Close implements Sink.
func (p *peer) Close() {}

func (r *rig) connect() *peer {
	p := &peer{r: r, t: r.t, client: wire.NewID(), replies: make(chan *Reply, 1024)}
	p.conn = r.b.Connect(Peer{Transport: TCP, Address: netip.MustParseAddrPort("127.0.0.1:1")}, p)
	return p
}

// handle hands a request over and waits for its one answer.
func (p *peer) handle(h *wire.RequestHeader, body []byte) (wire.ReplyHeader, wire.EvictionReason, []byte) {
	p.t.Helper()
	var b *Buffer
	if len(body) > 0 {
		b = GetBuffer(len(body))
		copy(b.B, body)
	}
	h.Size = uint32(wire.HeaderSize + len(body))
	rep := p.conn.Handle(h, b)
	if rep == nil {
		select {
		case rep = <-p.replies:
		case <-time.After(20 * time.Second):
			p.t.Fatalf("no answer to operation %d, code %d", h.Operation, h.Code)
		}
	}
	var frame []byte
	for _, s := range rep.Segments(nil) {
		frame = append(frame, s...)
	}
	if len(frame) != rep.Size() || rep.Cost() != int(h.Size) {
		p.t.Fatalf("reply of %d bytes says %d, cost %d of %d", len(frame), rep.Size(), rep.Cost(), h.Size)
	}
	rep.Release()
	if wire.KindOf(frame) == wire.FrameEviction {
		var ev wire.EvictionHeader
		if err := ev.Decode(frame); err != nil {
			p.t.Fatal(err)
		}
		return wire.ReplyHeader{}, ev.Reason, nil
	}
	var rh wire.ReplyHeader
	if err := rh.Decode(frame); err != nil {
		p.t.Fatal(err)
	}
	if int(rh.Size) != len(frame) || rh.Request != h.Request || rh.Client != h.Client {
		p.t.Fatalf("reply %+v to %+v", rh, h)
	}
	return rh, 0, frame[wire.HeaderSize:]
}

// do sends a command and gives the payload of a success.
func (p *peer) do(req wire.Request) ([]byte, error) {
	p.t.Helper()
	h := wire.RequestHeader{Client: p.client, Session: p.session, Kind: wire.FrameRequest}
	body := req.Append(nil)
	h.SetCommand(req.Code(), body)
	switch {
	case h.Operation == wire.OpRegister:
		h.Session = 0
	case h.Operation.Replicated():
		p.request++
		h.Request = p.request
	}
	rh, reason, payload := p.handle(&h, body)
	switch {
	case reason != 0:
		return nil, reason.Err(wire.CurrentVersion, 0, 0)
	case rh.Status != 0:
		return nil, rh.Status
	case rh.Operation.Framed() && len(payload) > 0:
		return wire.SplitResult(payload)
	}
	return payload, nil
}

func (p *peer) login() {
	p.t.Helper()
	payload, err := p.do(&wire.LoginRegister{
		Version: wire.ClientVersion{Protocol: wire.CurrentVersion, SDKName: "x", SDKVersion: "1"}, Username: "root", Password: rootPassword,
	})
	var lr wire.LoginReply
	if err != nil || lr.Decode(payload) != nil {
		p.t.Fatal(err)
	}
	p.session = lr.Session
}
