package client

import (
	"bufio"
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/whippetmq/whippet/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// verdict is what a script does with a request of the fake server.
type verdict struct {
	kind   verdictKind
	code   wire.ErrorCode
	reason wire.EvictionReason
	n      int
	wait   <-chan struct{}
	reply  wire.Reply
}

type verdictKind int

const (
	pass       verdictKind = iota // execute and answer
	refuse                        // answer code in the status, do not execute
	refuseBody                    // answer code in the result section, do not execute
	swallow                       // execute, never answer
	ignore                        // neither execute nor answer
	cutReply                      // execute, send n bytes of the answer, close
	hangUp                        // close without executing
	evict                         // answer an eviction, do not execute
	after                         // wait, then execute and answer
	execAs                        // execute, answer code in the status
	bare                          // execute, answer without a body
	say                           // answer with reply, do not execute
)

type fakeRequest struct {
	wire.RequestHeader
	command wire.Code
	body    []byte
	conn    *fakeConn
	n       int // counts requests of this command, from 0
}

// fakeServer is a scripted server: one stream (1, "s") with one topic (2, "t").
// It keeps exactly-once tables like a real one, so that what the client does
// after a fault can be checked by what is in the log.
type fakeServer struct {
	t  testing.TB
	ln net.Listener
	wg sync.WaitGroup

	mu         sync.Mutex
	whippet    bool
	fence      bool
	window     uint16
	frame      int // the largest that it takes
	script     func(*fakeRequest) verdict
	cut        int // close after so many bytes of the next send; -1 = off
	conns      map[*fakeConn]struct{}
	count      map[wire.Code]int
	clients    []wire.U128 // of every registration
	session    uint64
	commit     uint64
	parts      []*fakePartition
	meta       map[wire.U128]fakeMeta
	streams    []string
	members    map[wire.U128]bool
	assigned   []uint32
	generation uint64
	readable   bool
	bound      map[wire.U128]uint64 // client → its newest session
	closed     bool
	created    uint64 // of the topic; 0 = not told
	untold     bool   // replies to reads carry no metadata position
}

type fakeMeta struct {
	last  uint64
	reply []byte
}

type fakePartition struct {
	log     []fakeMessage
	seen    map[wire.U128]map[uint64]uint64 // client → request → base offset
	offsets map[string]uint64
	twice   int // batches that were absorbed
	born    uint64
}

type fakeMessage struct {
	payload string
	id      wire.U128
	batch   wire.Batch // set on the first message of a batch
}

type fakeConn struct {
	s        *fakeServer
	c        net.Conn
	mu       sync.Mutex
	client   wire.U128
	session  uint64
	declared bool
	fenced   map[uint32]bool
}

func newFake(t testing.TB, partitions int) *fakeServer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &fakeServer{
		t: t, ln: ln, whippet: true, fence: true, window: 16, frame: wire.DefaultMaxFrame, cut: -1, readable: true,
		conns: map[*fakeConn]struct{}{}, count: map[wire.Code]int{}, meta: map[wire.U128]fakeMeta{}, members: map[wire.U128]bool{},
		commit: 1, bound: map[wire.U128]uint64{},
	}
	for range partitions {
		s.parts = append(s.parts, &fakePartition{seen: map[wire.U128]map[uint64]uint64{}, offsets: map[string]uint64{}})
	}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			fc := &fakeConn{s: s, c: c, fenced: map[uint32]bool{}}
			s.mu.Lock()
			if s.closed {
				s.mu.Unlock()
				_ = c.Close()
				continue
			}
			s.conns[fc] = struct{}{}
			s.wg.Add(1)
			s.mu.Unlock()
			go func() {
				defer s.wg.Done()
				fc.serve()
				_ = c.Close()
				s.mu.Lock()
				delete(s.conns, fc)
				s.mu.Unlock()
			}()
		}
	}()
	t.Cleanup(s.close)
	return s
}

func (s *fakeServer) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	_ = s.ln.Close()
	s.kill()
	s.wg.Wait()
}

// set changes the server's state.
func (s *fakeServer) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// remake makes the topic anew, or only its partitions.
func (s *fakeServer) remake(partitionsOnly bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commit++
	if !partitionsOnly {
		s.created = s.commit
	}
	for i := range s.parts {
		s.parts[i] = &fakePartition{seen: map[wire.U128]map[uint64]uint64{}, offsets: map[string]uint64{}, born: s.commit}
	}
}

// kill closes every connection.
func (s *fakeServer) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.c.Close()
	}
}

func (s *fakeServer) on(f func(*fakeRequest) verdict) {
	s.mu.Lock()
	s.script = f
	s.mu.Unlock()
}

// cutAt closes the connection after n bytes of the next send.
func (s *fakeServer) cutAt(n int) {
	s.mu.Lock()
	s.cut = n
	s.mu.Unlock()
}

func (s *fakeServer) address() string { return s.ln.Addr().String() }

// connect makes a client of the server.
func (s *fakeServer) connect(t testing.TB, opts ...Option) *Client {
	t.Helper()
	o := Options{
		Addresses: []string{s.address()}, Username: "iggy", Password: "iggy",
		Reconnect: Reconnect{Interval: 20 * time.Millisecond},
	}
	for _, f := range opts {
		f(&o)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := c.Connect(ctx); err != nil {
		t.Fatal(err)
	}
	return c
}

// payloads gives the log of a partition.
func (s *fakeServer) payloads(partition int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for _, m := range s.parts[partition].log {
		list = append(list, m.payload)
	}
	return list
}

func (s *fakeServer) counted(c wire.Code) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count[c]
}

func (s *fakeServer) registered() []wire.U128 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.clients)
}

func (c *fakeConn) serve() {
	br := bufio.NewReaderSize(c.c, 1<<16)
	for {
		var head [wire.HeaderSize]byte
		if _, err := io.ReadFull(br, head[:]); err != nil {
			return
		}
		if c.cut(br, head[:]) {
			return
		}
		size, err := wire.FrameSize(head[:])
		if err != nil || int(size) > c.s.frame {
			return
		}
		body := make([]byte, size-wire.HeaderSize)
		if _, err := io.ReadFull(br, body); err != nil {
			return
		}
		req := &fakeRequest{body: body, conn: c}
		if err := req.Decode(head[:]); err != nil {
			c.s.t.Errorf("bad request header: %v", err)
			return
		}
		if err := req.VerifyBody(body); err != nil {
			c.s.t.Errorf("bad stamp: %v", err)
			return
		}
		req.command, _ = req.Command()
		if !c.handle(req) {
			return
		}
	}
}

// cut reports whether the connection ends inside this frame: the send that the
// test wanted cut. What was not read is lost with the connection.
func (c *fakeConn) cut(br *bufio.Reader, head []byte) bool {
	var h wire.RequestHeader
	if h.DecodeLoose(head) != nil || h.Operation != wire.OpSendMessages {
		return false
	}
	c.s.mu.Lock()
	n := c.s.cut
	c.s.cut = -1
	c.s.mu.Unlock()
	if n < 0 || n >= int(h.Size) {
		return false
	}
	_, _ = io.CopyN(io.Discard, br, int64(max(n-len(head), 0)))
	return true
}

// handle executes a request; false closes the connection.
func (c *fakeConn) handle(req *fakeRequest) bool {
	s := c.s
	s.mu.Lock()
	req.n = s.count[req.command]
	s.count[req.command]++
	script := s.script
	s.mu.Unlock()
	var v verdict
	if script != nil {
		v = script(req)
	}
	h := req.Reply()
	switch v.kind {
	case hangUp:
		return false
	case ignore:
		return true
	case refuse:
		c.note(req, v.code)
		return c.send(wire.AppendStatus(nil, h, v.code))
	case refuseBody:
		return c.send(wire.AppendReply(nil, h, wire.AppendResultError(nil, v.code)))
	case say:
		return c.send(wire.AppendSuccess(nil, h, v.reply))
	case evict:
		s.mu.Lock()
		c.session = 0
		s.mu.Unlock()
		return c.send(wire.AppendEviction(nil, wire.EvictionHeader{Client: req.Client, Reason: v.reason}))
	case after:
		// Replies may overtake one another: answer from another goroutine.
		s.wg.Add(1)
		go func() {
			defer s.wg.Done()
			<-v.wait
			c.send(c.execute(req, h))
		}()
		return true
	}
	frame := c.execute(req, h)
	switch v.kind {
	case swallow:
		return true
	case cutReply:
		if frame != nil {
			_, _ = c.c.Write(frame[:min(v.n, len(frame))])
		}
		return false
	case bare:
		return c.send(wire.AppendReply(nil, h, nil))
	case execAs:
		c.note(req, v.code)
		return c.send(wire.AppendStatus(nil, h, v.code))
	}
	return frame != nil && c.send(frame)
}

// note raises the fence after a send that was not answered with success.
func (c *fakeConn) note(req *fakeRequest, _ wire.ErrorCode) {
	if req.Operation != wire.OpSendMessages {
		return
	}
	var m wire.SendMessages
	if m.Decode(req.body) != nil {
		return
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.declared && c.s.fence {
		c.fenced[m.Partitioning.ID] = true
	}
}

func (c *fakeConn) send(frame []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.c.Write(frame)
	return err == nil
}

// execute gives the reply frame.
func (c *fakeConn) execute(req *fakeRequest, h wire.ReplyHeader) []byte {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.Commit = s.commit; s.untold && req.Operation == wire.OpNonReplicated {
		h.Commit = 0
	}
	ok := func(p wire.Reply) []byte { return wire.AppendSuccess(nil, h, p) }
	fail := func(code wire.ErrorCode) []byte { return wire.AppendStatus(nil, h, code) }
	switch {
	case req.Operation == wire.OpRegister:
		s.session += 10
		s.commit++
		c.client, c.session = req.Client, s.session
		s.bound[req.Client] = s.session
		s.clients = append(s.clients, req.Client)
		h.Commit = s.commit
		return ok(&wire.LoginReply{UserID: 0, Session: s.session, ProtocolVersion: wire.CurrentVersion, ServerVersion: "fake"})
	case req.command == wire.CodePing:
		return ok(nil)
	case req.Operation.Replicated() && req.Operation != wire.OpLogout && c.session != s.bound[c.client]:
		// No session, or the same client id registered on a newer connection (G8).
		return wire.AppendEviction(nil, wire.EvictionHeader{Client: req.Client, Reason: wire.EvictSessionTooLow})
	case c.session == 0:
		return fail(wire.ErrUnauthenticated)
	case req.Operation == wire.OpLogout:
		c.session = 0
		delete(s.members, c.client)
		return ok(nil)
	case req.Operation == wire.OpSendMessages:
		return c.append(req, h)
	case req.Operation == wire.OpStoreConsumerOffset:
		var o wire.StoreConsumerOffset
		if o.Decode(req.body) != nil || int(o.Partition.ID) >= len(s.parts) {
			return fail(wire.ErrResourceNotFound)
		}
		s.parts[o.Partition.ID].offsets[o.Consumer.ID.String()] = o.Offset
		return ok(nil)
	case req.Operation.Metadata():
		return c.change(req, h)
	}
	switch req.command {
	case wire.CodeCapabilities:
		if !s.whippet {
			return fail(wire.ErrInvalidCommand)
		}
		var q wire.Capabilities
		_ = q.Decode(req.body)
		c.declared = q.Flags&wire.WantFence != 0
		r := &wire.CapabilitiesReply{Version: 1, MaxInFlight: s.window, RememberedIDs: 64, MaxFrame: uint32(s.frame), ClusterID: wire.U128{Lo: 7}, NodeName: "n"}
		if s.fence {
			r.Flags |= wire.CanFence | wire.CanRouteBySendRight
		}
		return ok(r)
	case wire.CodeGetTopic:
		if !s.readable {
			return fail(wire.ErrUnauthorized)
		}
		var q wire.GetTopic
		if q.Decode(req.body) != nil || q.Topic != wire.Name("t") && q.Topic != wire.ID(2) {
			return ok(nil)
		}
		d := &wire.TopicDetails{Topic: wire.Topic{ID: 2, Name: "t", CreatedAt: s.created, Compression: wire.CompressionNone}}
		for i, p := range s.parts {
			d.Partitions = append(d.Partitions, wire.Partition{ID: uint32(i), CreatedAt: p.born})
		}
		return ok(d)
	case wire.CodeGetStream:
		return ok(&wire.StreamDetails{Stream: wire.Stream{ID: 1, Name: "s"}})
	case wire.CodeGetPollRouting:
		var q wire.GetPollRouting
		if q.Decode(req.body) != nil {
			return fail(wire.ErrInvalidCommand)
		}
		if int(q.Partition.ID) >= len(s.parts) {
			return fail(wire.ErrPartitionNotFound)
		}
		delete(c.fenced, q.Partition.ID)
		return ok(&wire.Route{Session: wire.Attachment{ClientID: c.client, Session: c.session}, Primary: wire.Node{Name: "n", IP: "127.0.0.1"}})
	case wire.CodePollMessages:
		return c.pollReply(req, h)
	case wire.CodeGetConsumerOffset:
		var q wire.GetConsumerOffset
		_ = q.Decode(req.body)
		p := s.parts[q.Partition.ID]
		if o, found := p.offsets[q.Consumer.ID.String()]; found {
			return ok(&wire.OffsetReply{PartitionID: q.Partition.ID, CurrentOffset: uint64(len(p.log)) - 1, StoredOffset: o})
		}
		return ok(nil)
	case wire.CodeSyncConsumerGroup:
		if !s.members[c.client] {
			return ok(nil)
		}
		return ok(&wire.GroupAssignment{Generation: s.generation, Partitions: s.assigned})
	}
	return fail(wire.ErrFeatureUnavailable)
}

// append executes a send once per identity.
func (c *fakeConn) append(req *fakeRequest, h wire.ReplyHeader) []byte {
	s := c.s
	var m wire.SendMessages
	if err := m.Decode(req.body); err != nil {
		s.t.Errorf("send does not decode: %v", err)
		return wire.AppendStatus(nil, h, wire.ErrInvalidCommand)
	}
	if err := m.Batch.Verify(); err != nil {
		s.t.Errorf("batch does not verify: %v", err)
	}
	id := m.Partitioning.ID
	if m.Partitioning.Kind != wire.PartitioningPartitionID {
		id = 0
	}
	if int(id) >= len(s.parts) {
		return wire.AppendStatus(nil, h, wire.ErrResourceNotFound)
	}
	if c.fenced[id] {
		return wire.AppendStatus(nil, h, wire.ErrTransientNotAccepted)
	}
	p := s.parts[id]
	row := p.seen[req.Client]
	if row == nil {
		row = map[uint64]uint64{}
		p.seen[req.Client] = row
	}
	base, again := row[req.Request]
	if again {
		p.twice++
	} else {
		base = uint64(len(p.log))
		row[req.Request] = base
		batch := wire.Batch(slices.Clone(m.Batch))
		batch.Stamp(id, base, uint64(time.Now().UnixMicro()))
		for v := range batch.Messages() {
			e := fakeMessage{payload: string(v.Payload), id: v.ID}
			if v.Offset == base {
				e.batch = batch
			}
			p.log = append(p.log, e)
		}
	}
	if !s.whippet && again {
		return wire.AppendReply(nil, h, nil)
	}
	return wire.AppendSuccess(nil, h, &wire.SendConfirmations{Confirmations: []wire.SendConfirmation{{StreamID: 1, TopicID: 2, PartitionID: id, BaseOffset: base}}})
}

// change executes a metadata operation once per identity.
func (c *fakeConn) change(req *fakeRequest, h wire.ReplyHeader) []byte {
	s := c.s
	row := s.meta[req.Client]
	if req.Request <= row.last {
		if req.Request == row.last {
			return row.reply
		}
		return wire.AppendReply(nil, h, wire.AppendResultError(nil, wire.ErrRequestAlreadyApplied))
	}
	s.commit++
	h.Commit = s.commit
	var reply []byte
	switch req.Operation {
	case wire.OpCreateStream:
		var q wire.CreateStream
		_ = q.Decode(req.body)
		if slices.Contains(s.streams, q.Name) {
			reply = wire.AppendReply(nil, h, wire.AppendResultError(nil, wire.ErrStreamNameAlreadyExists))
			break
		}
		s.streams = append(s.streams, q.Name)
		reply = wire.AppendSuccess(nil, h, &wire.StreamDetails{Stream: wire.Stream{ID: uint32(len(s.streams)), Name: q.Name}})
	case wire.OpCreatePartitions:
		var q wire.CreatePartitions
		_ = q.Decode(req.body)
		for range q.PartitionsCount {
			s.parts = append(s.parts, &fakePartition{seen: map[wire.U128]map[uint64]uint64{}, offsets: map[string]uint64{}})
		}
		reply = wire.AppendSuccess(nil, h, nil)
	case wire.OpJoinConsumerGroup:
		s.members[c.client] = true
		reply = wire.AppendSuccess(nil, h, nil)
	default:
		reply = wire.AppendSuccess(nil, h, nil)
	}
	s.meta[req.Client] = fakeMeta{last: req.Request, reply: reply}
	return reply
}

func (c *fakeConn) pollReply(req *fakeRequest, h wire.ReplyHeader) []byte {
	s := c.s
	var q wire.PollMessages
	if err := q.Decode(req.body); err != nil {
		return wire.AppendStatus(nil, h, wire.ErrInvalidCommand)
	}
	if int(q.Partition.ID) >= len(s.parts) {
		return wire.AppendStatus(nil, h, wire.ErrPartitionNotFound)
	}
	if q.Consumer.Kind == wire.ConsumerGroup && (!s.members[c.client] || !slices.Contains(s.assigned, q.Partition.ID)) {
		return wire.AppendSuccess(nil, h, &wire.PolledMessages{PartitionID: wire.PollResync})
	}
	p := s.parts[q.Partition.ID]
	from := uint64(0)
	switch q.Strategy.Kind {
	case wire.StrategyOffset:
		from = q.Strategy.Value
	case wire.StrategyLast:
		from = uint64(max(0, len(p.log)-int(q.Count)))
	case wire.StrategyNext:
		if o, ok := p.offsets[q.Consumer.ID.String()]; ok {
			from = o + 1
		}
	}
	r := &wire.PolledMessages{PartitionID: q.Partition.ID, CurrentOffset: uint64(max(0, len(p.log)-1))}
	for i := 0; i < len(p.log) && r.Count < q.Count; i++ {
		b := p.log[i].batch
		if b == nil || b.LastOffset() < from {
			continue
		}
		part := wire.Slice(slices.Clone(b), max(from, b.BaseOffset()), q.Count-r.Count)
		r.Records = append(r.Records, part...)
		r.Count += part.Count()
	}
	if q.AutoCommit && r.Count > 0 {
		p.offsets[q.Consumer.ID.String()] = from + uint64(r.Count) - 1
	}
	return wire.AppendSuccess(nil, h, r)
}

// The topic of the fake server, and contexts for tests.
var stream, topic = wire.Name("s"), wire.Name("t")

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func text(s string) Message { return Message{Payload: []byte(s)} }
