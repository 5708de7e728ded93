package broker

import (
	"encoding/binary"
	"testing"

	"github.com/whippetmq/whippet/internal/metadata"
	"github.com/whippetmq/whippet/wire"
)

func TestBufferClasses(t *testing.T) {
	prev := -1
	for n := 1; n <= 70<<20; n += 1 + n/7 {
		c := classOf(n)
		if n > 1<<26+1<<24 {
			if c != -1 {
				t.Fatalf("%d bytes in class %d", n, c)
			}
			continue
		}
		if c < prev || classSize(c) < n || n > 512 && classSize(c) > n+n/4+1 {
			t.Fatalf("%d bytes in class %d of %d bytes", n, c, classSize(c))
		}
		if n > 512 && classOf(classSize(c)) != c {
			t.Fatalf("class %d does not hold its own size", c)
		}
		prev = c
		b := GetBuffer(n)
		if len(b.B) != n {
			t.Fatal(len(b.B))
		}
		b.Release()
	}
	(*Buffer)(nil).Release()
}

func TestGroupFence(t *testing.T) {
	a, b, c := wire.NewID(), wire.NewID(), wire.NewID()
	g := &metadata.Group{ID: 3, Members: []*metadata.Member{
		{Client: a, Partitions: []uint32{0, 1}, Revocations: []metadata.Revocation{{Partition: 1}}}, nil, {Client: b, Partitions: []uint32{2}},
	}}
	for _, tt := range []struct {
		client    wire.U128
		partition uint32
		want      fence
	}{{a, 0, owned}, {a, 1, pending}, {a, 2, refused}, {b, 2, owned}, {b, 0, refused}, {c, 0, refused}} {
		if got := groupFence(g, tt.client, tt.partition); got != tt.want {
			t.Errorf("partition %d: %d, want %d", tt.partition, got, tt.want)
		}
	}
	if groupFence(nil, a, 0) != refused {
		t.Error("a group that does not exist")
	}
}

func TestEveryCommandNeedsItsSession(t *testing.T) {
	r := newRig(t)
	p := r.connect()
	defer p.conn.Close()
	for _, info := range wire.Commands() {
		h := wire.RequestHeader{Client: p.client, Operation: info.Operation, Session: 1, Request: 1}
		switch info.Operation {
		case wire.OpNonReplicated:
			h.Code = info.Code
		case wire.OpRegister:
			continue
		}
		rh, reason, _ := p.handle(&h, nil)
		ok := info.Auth == wire.AuthNone || info.Code == wire.CodeLogoutUser
		if !ok && rh.Status != wire.ErrUnauthenticated && reason != wire.EvictNoSession {
			t.Errorf("%s: %v %v", info.Name, rh.Status, reason)
		}
	}
}

// A command of the table that has no row is known, and answered as not offered.
func TestEveryCommandIsAnswered(t *testing.T) {
	r := newRig(t)
	p := r.connect()
	defer p.conn.Close()
	p.login()
	for _, info := range wire.Commands() {
		if info.Operation == wire.OpRegister || info.Operation == wire.OpLogout {
			continue
		}
		req := info.New()
		_, err := p.do(req)
		if lookup(info.Code).run == nil && info.Operation == wire.OpNonReplicated && !info.Legacy && err != wire.ErrFeatureUnavailable {
			t.Errorf("%s: %v", info.Name, err)
		}
	}
}

func TestOnlyMembersAreEvictedForSilence(t *testing.T) {
	r := newRig(t)
	p := r.connect()
	defer p.conn.Close()
	p.login()
	if isMember(r.machine.Catalog(), p.client) {
		t.Fatal("a member of no group would be evicted")
	}
}

// A client evicted for silence is told so, and its session is over.
func TestEvictSilent(t *testing.T) {
	r := newRig(t)
	p := r.connect()
	defer p.conn.Close()
	p.login()
	c := p.conn.(*conn)
	c.evictSilent(c.bound.Load())
	rep := <-p.replies
	if !rep.Unasked() || rep.Size() != wire.HeaderSize {
		t.Fatal("eviction counts as an answer")
	}
	rep.Release()
	if p.conn.Bound() {
		t.Fatal("still bound")
	}
	if _, err := p.do(&wire.GetStreams{}); err != wire.ErrUnauthenticated {
		t.Fatal(err)
	}
}

// FuzzHandle plays any sequence of requests on one connection: never a panic,
// and exactly one answer each.
func FuzzHandle(f *testing.F) {
	seed := func(op wire.Operation, code wire.Code, req wire.Request) {
		b := []byte{byte(op)}
		b = binary.LittleEndian.AppendUint16(b, uint16(code))
		body := req.Append(nil)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(body)))
		f.Add(append(b, body...))
	}
	id := wire.ID(0)
	ms, err := wire.BuildBatch(nil, []wire.Message{{Payload: []byte("x")}})
	if err != nil {
		f.Fatal(err)
	}
	for _, req := range []wire.Request{
		&wire.CreateStream{Name: "s"}, &wire.CreateTopic{Stream: id, Name: "t", PartitionsCount: 2}, &wire.DeleteTopic{Stream: id, Topic: id},
		&wire.SendMessages{Stream: id, Topic: id, Partitioning: wire.PartitionID(0), Batch: ms},
		&wire.PollMessages{Consumer: wire.SingleConsumer(id), Stream: id, Topic: id, Strategy: wire.PollingStrategy{Kind: 1}, Count: 5, AutoCommit: true},
		&wire.StoreConsumerOffset{Consumer: wire.SingleConsumer(id), Stream: id, Topic: id, Partition: wire.SomePartition(0)},
		&wire.UpdateTopic{Stream: id, Topic: id, Name: "u"}, &wire.CreatePartitions{Stream: id, Topic: id, PartitionsCount: 3},
		&wire.Capabilities{Flags: 3}, &wire.AttachConsumerSession{}, &wire.ClusterStatus{Flags: 1}, &wire.LogoutUser{}, &wire.GetClient{ClientID: 1},
		&wire.LoginRegister{Version: wire.ClientVersion{Protocol: wire.CurrentVersion, SDKName: "x", SDKVersion: "1"}, Username: "ab", Password: "cd"},
	} {
		seed(wire.OperationFor(req.Code()), req.Code(), req)
	}
	r := newRig(f)
	setup := r.connect()
	setup.login()
	f.Fuzz(func(t *testing.T, data []byte) {
		p := r.connect()
		p.t = t
		defer p.conn.Close()
		c := p.conn.(*conn)
		signIn := func() {
			// Signed in without a hash: the session of the setup's connection is borrowed.
			s := setup.conn.(*conn).bound.Load()
			c.bind(&binding{client: s.client, session: s.session, user: s.user})
		}
		signIn()
		// The session belongs to the setup: nobody else may log it out.
		defer c.bound.Store(nil)
		for n := 0; n < 16 && len(data) >= 5; n++ {
			op, code, size := wire.Operation(data[0]), binary.LittleEndian.Uint16(data[1:]), int(binary.LittleEndian.Uint16(data[3:]))
			data = data[5:]
			body := data[:min(size, len(data))]
			data = data[len(body):]
			setup.request++
			h := wire.RequestHeader{Kind: wire.FrameRequest, Client: p.client, Session: 1, Request: setup.request, Operation: op, Code: wire.Code(code)}
			if op == wire.OpRegister {
				h.Session, h.Request = 0, 0
			}
			if op == wire.OpLogout || h.Validate() != nil && !op.Internal() {
				continue
			}
			p.handle(&h, body)
			if !c.Bound() {
				signIn()
			}
		}
		select {
		case rep := <-p.replies:
			t.Fatalf("a second answer of %d bytes", rep.Size())
		default:
		}
	})
}
