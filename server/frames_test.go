package server

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// sized is a ping whose size field says something else.
func sized(r *raw, size uint32) []byte {
	f := r.frame(&wire.Ping{})
	binary.LittleEndian.PutUint32(f[48:], size)
	return f
}

func TestFramesThatEndTheConnection(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	change := func(at int, v ...byte) func(*raw) []byte {
		return func(r *raw) []byte {
			f := wire.AppendCommand(nil, wire.RequestHeader{Client: r.client, Session: 5, Request: 5}, &wire.CreateStream{Name: "x"})
			copy(f[at:], v)
			return f
		}
	}
	zeros := make([]byte, 16)
	tests := []struct {
		name  string
		frame func(*raw) []byte
	}{
		{"size 0", func(r *raw) []byte { return sized(r, 0) }},
		{"size 1", func(r *raw) []byte { return sized(r, 1) }},
		{"size 255", func(r *raw) []byte { return sized(r, 255) }},
		{"size above the limit", func(r *raw) []byte { return sized(r, 64<<20+1) }},
		{"size 2^31", func(r *raw) []byte { return sized(r, 1<<31) }},
		{"size 2^32-1", func(r *raw) []byte { return sized(r, 1<<32-1) }},
		{"unknown command byte", change(60, 30)},
		{"command byte 255", change(60, 255)},
		{"a reply", change(60, 8)},
		{"an eviction", change(60, 13)},
		{"a replica's frame", change(60, 6)},
		{"client 0", change(128, zeros...)},
		{"operation 0", change(176, 0)},
		{"operation 4", change(176, 4)},
		{"operation 150", change(176, 150)},
		{"operation 163", change(176, 163)},
		{"operation 255", change(176, 255)},
		{"session 0", change(184, zeros[:8]...)},
		{"request 0", change(168, zeros[:8]...)},
		{"register with a session", change(176, 1)},
		{"text", func(*raw) []byte { return bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 20) }},
		{"zeros", func(*raw) []byte { return make([]byte, 512) }},
	}
	before := s.gateway.Stats().Malformed.Load()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := dial(t, s)
			r.write(tt.frame(r))
			r.closed()
		})
	}
	if n := s.gateway.Stats().Malformed.Load() - before; n != uint64(len(tests)) {
		t.Errorf("%d of %d counted", n, len(tests))
	}
	login(t, s).must(&wire.GetStreams{}, nil)
}

// A frame that ends anywhere gets no answer and leaves nothing behind.
func TestTruncatedAtEveryByte(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	r := login(t, s)
	stream, topic := r.topic(1)
	whole := r.frame(&wire.SendMessages{Stream: stream, Topic: topic, Partitioning: wire.PartitionID(0), Batch: batch(t, "x")})
	for n := 0; n < len(whole); n += 1 + n/300*7 {
		c := dial(t, s)
		c.write(whole[:n])
		if err := c.nc.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		c.closed()
		_ = c.nc.Close()
	}
	eventually(t, func() bool { return s.gateway.Stats().Active.Load() == 1 && s.broker.ConnectionCount() == 1 })
	if got, _ := r.poll(pollRequest(stream, topic, 0, 0, 10)); len(got) != 0 {
		t.Fatal(got)
	}
}

// Each command with its body cut at every byte, and with bytes behind it: one
// answer each, and a node that starts again on what it logged.
func TestBodiesOfEveryLength(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := tryStart(t, func(c *Config) { c.Path = dir })
	if err != nil {
		t.Fatal(err)
	}
	r := login(t, s)
	id, name := wire.ID(0), wire.Name("name")
	cons := wire.SingleConsumer(wire.ID(1))
	for _, req := range []wire.Request{
		&wire.CreateStream{Name: "stream", Options: wire.Options{}}, &wire.UpdateStream{Stream: id, Name: "other"}, &wire.GetStream{Stream: name},
		&wire.CreateTopic{Stream: id, PartitionsCount: 1, Name: "topic", Options: wire.Options{{Key: wire.OptSegmentSize, Value: wire.Uint64Value(1 << 20)}}},
		&wire.UpdateTopic{Stream: id, Topic: id, Name: "topic2"}, &wire.GetTopic{Stream: id, Topic: name}, &wire.GetTopics{Stream: name},
		&wire.CreatePartitions{Stream: id, Topic: id, PartitionsCount: 1}, &wire.DeletePartitions{Stream: id, Topic: id, PartitionsCount: 1},
		pollRequest(id, id, 0, 0, 10), &wire.GetConsumerOffset{Consumer: cons, Stream: id, Topic: id, Partition: wire.SomePartition(0)},
		&wire.StoreConsumerOffset{Consumer: cons, Stream: id, Topic: id, Partition: wire.SomePartition(0), Ack: 1},
		&wire.DeleteConsumerOffset{Consumer: cons, Stream: id, Topic: id, Partition: wire.SomePartition(0), Ack: 1},
		&wire.AttachConsumerSession{Attachment: wire.Attachment{ClientID: r.client, Session: 1}}, &wire.GetClient{ClientID: 1}, &wire.DescribeOptions{Scope: 1},
		&wire.Capabilities{Version: 1}, &wire.ClusterStatus{}, &wire.SendMessages{Stream: id, Topic: id, Partitioning: wire.PartitionID(0), Batch: batch(t, "x")},
		&wire.CreateUser{Username: "user", Password: "password"}, &wire.DeleteTopic{Stream: id, Topic: id}, &wire.DeleteStream{Stream: id},
	} {
		body := req.Append(nil)
		step := 1 + len(body)/60
		var out []byte
		n := 0
		for cut := 0; cut <= len(body); cut += step {
			h := r.header(req.Code())
			h.SetCommand(req.Code(), body[:cut])
			out = wire.AppendRequest(out, h, body[:cut])
			n++
		}
		for _, more := range [][]byte{{0}, {0xff}, bytes.Repeat([]byte{0xff}, 300)} {
			long := append(bytes.Clone(body), more...)
			h := r.header(req.Code())
			h.SetCommand(req.Code(), long)
			out = wire.AppendRequest(out, h, long)
			n++
		}
		sent := make(chan error, 1)
		go func() {
			_, err := r.nc.Write(out)
			sent <- err
		}()
		for range n {
			r.read()
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
	}
	r.must(&wire.Ping{}, nil)
	stop(t, s)
	if s, err = tryStart(t, func(c *Config) { c.Path = dir }); err != nil {
		t.Fatal(err)
	}
	login(t, s).must(&wire.GetStreams{}, nil)
	stop(t, s)
}

func TestSlowBytes(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	r := dial(t, s)
	f := r.frame(loginBody("iggy", "iggy"))
	for i := range f {
		r.write(f[i : i+1])
	}
	if a := r.read(); a.code() != 0 {
		t.Fatal(a.code())
	}
}

func TestUnfinishedFramesAreCutOff(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *Config) { c.Bus.HandshakeGrace = 50 * time.Millisecond })
	r := dial(t, s)
	r.write(r.frame(&wire.Ping{})[:100])
	r.closed()
	// Silence between frames is no reason.
	q := login(t, s)
	timer := time.NewTimer(200 * time.Millisecond)
	<-timer.C
	q.must(&wire.Ping{}, nil)
}

// A connection that announces a large body and sends little of it holds little memory.
func TestHalfOpenBodiesHoldLittleMemory(t *testing.T) {
	s := start(t, nil)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const conns = 12
	bound := make([]*raw, conns)
	for i := range bound {
		bound[i] = login(t, s)
	}
	before := heap()
	for i := range conns {
		h := bound[i].header(wire.CodeSendMessages)
		h.Operation = wire.OpSendMessages
		frame := wire.AppendRequest(nil, h, make([]byte, 5000))
		binary.LittleEndian.PutUint32(frame[48:], 64<<20)
		bound[i].write(frame)
		// Before sign-in not even that is kept.
		u := dial(t, s)
		u.write(frame)
	}
	bound[0].t.Logf("connections: %d", s.gateway.Stats().Active.Load())
	other := login(t, s)
	other.must(&wire.GetStreams{}, nil)
	if grown := int64(heap()) - int64(before); grown > conns*3<<20/2 {
		t.Errorf("%d half-open bodies of 64 MiB hold %d KiB", conns, grown>>10)
	}
}

// Before sign-in a large body is read away, and the request answered as without it.
func TestLargeBodyBeforeSignIn(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	r := dial(t, s)
	body := make([]byte, 1<<20)
	if a := r.bare(r.replicated(wire.OpSendMessages), body); a.eviction != wire.EvictNoSession {
		t.Fatal(a.eviction)
	}
	if a := r.bare(r.nonReplicated(wire.CodePollMessages), body); a.h.Status != wire.ErrUnauthenticated {
		t.Fatal(a.h.Status)
	}
	if a := r.bare(wire.RequestHeader{Client: r.client, Operation: wire.OpRegister}, body); a.eviction != wire.EvictMalformedLogin {
		t.Fatal(a.eviction)
	}
	r.login("iggy", "iggy")
}

// The largest batch that a frame holds goes through, in the body's growing buffers too.
func TestLargestFrame(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *Config) { c.Bus.MaxMessage = 8 << 20 })
	r := login(t, s)
	stream, topic := r.topic(1)
	req := &wire.SendMessages{Stream: stream, Topic: topic, Partitioning: wire.PartitionID(0), Batch: batch(t, "x")}
	overhead := len(r.frame(req)) - 1
	payload := string(bytes.Repeat([]byte("payload."), 1<<20))[:8<<20-overhead]
	r.send(stream, topic, wire.PartitionID(0), payload)
	// The reply is larger by 16 bytes of prefix less the send's metadata: a first message is served all the same.
	got, _ := r.poll(pollRequest(stream, topic, 0, 0, 1))
	if len(got) != 1 || got[0] != payload {
		t.Fatal("payload changed on the way")
	}
	r.write(sized(r, 8<<20+1))
	r.closed()
}

func TestConnectionLimit(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *Config) { c.Bus.MaxConnections = 3 })
	for range 3 {
		dial(t, s).must(&wire.Ping{}, nil)
	}
	dial(t, s).closed()
	if s.gateway.Stats().Refused.Load() != 1 {
		t.Error("not counted")
	}
}

// A client that sends and does not read is held back, not served from memory without bound.
func TestClientThatDoesNotRead(t *testing.T) {
	s := start(t, func(c *Config) { c.Bus.ClientQueue = 16 })
	r := login(t, s)
	stream, topic := r.topic(1)
	big := string(make([]byte, 512<<10))
	r.send(stream, topic, wire.PartitionID(0), big)
	frames := bytes.Repeat(r.frame(pollRequest(stream, topic, 0, 0, 1)), 5000)
	_ = r.nc.SetWriteDeadline(time.Now().Add(2 * time.Second))
	n, err := r.nc.Write(frames)
	t.Logf("%d of %d bytes taken, %v", n, len(frames), err)
	other := login(t, s)
	other.must(&wire.GetStreams{}, nil)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > 200<<20 {
		t.Errorf("heap %d MiB", m.HeapAlloc>>20)
	}
	_ = r.nc.Close()
	eventually(t, func() bool { return s.gateway.Stats().Active.Load() == 1 })
}

func TestManyConnections(t *testing.T) {
	s := start(t, nil)
	const n = 1500
	for range n {
		dial(t, s).must(&wire.Ping{}, nil)
	}
	eventually(t, func() bool { return s.gateway.Stats().Active.Load() == n })
	if g := runtime.NumGoroutine(); g > n+200 {
		t.Errorf("%d goroutines for %d idle connections", g, n)
	}
}

// Replies to what was read come before the connection ends.
func TestHalfClose(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	r := login(t, s)
	stream, topic := r.topic(1)
	var out []byte
	for range 20 {
		out = append(out, r.frame(&wire.SendMessages{Stream: stream, Topic: topic, Partitioning: wire.PartitionID(0), Batch: batch(t, "x")})...)
	}
	r.write(out)
	if err := r.nc.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if a := r.read(); a.code() != 0 {
			t.Fatal(a.code())
		}
	}
	if n, _ := io.Copy(io.Discard, r.nc); n != 0 {
		t.Fatal(n)
	}
}
