package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// fakeCluster is a scripted cluster: several nodes with one stream (1, "s") and one
// topic (2, "t"), whose partitions' state they share, as if replication took no
// time. The test says who leads what, what a node knows, and what happens to each
// request. Like a real one it executes each identity once, fences a connection
// after a refusal, and lets one connection at a time carry a client id.
//
// Its connections are pipes, so that it runs in a synctest bubble too.
type fakeCluster struct {
	t     testing.TB
	nodes []*clusterNode
	wg    sync.WaitGroup

	mu       sync.Mutex
	whippet  bool
	tickets  bool
	script   func(*clusterRequest) verdict
	parts    []*clusterPart
	created  uint64 // of the topic; 0 = there is none
	former   uint64 // of the topic before it, which nodes that are behind still have
	leader   int
	commit   uint64
	sessions map[wire.U128]uint64 // client → its newest session
	session  uint64
	logins   map[string]int // by kind: "password", "ticket"
	count    map[wire.Code]int
	twice    []string // client ids that two connections carried at a time
	links    map[*clusterConn]struct{}
	readable bool
	mayPoll  bool
	conns    atomic.Int64 // ever made
	cutAt    int          // close the connection after so many bytes of the next send; -1 = off
	tcp      bool         // real connections instead of pipes
}

type clusterNode struct {
	s       *fakeCluster
	id      int
	name    string
	address string

	// Guarded by fakeCluster.mu.
	down    bool
	hung    chan struct{} // not nil: requests wait for it to close
	applied uint64        // what the node knows of the metadata; 0 = all
	says    map[uint32]int
	count   map[wire.Code]int
	refused int // sends and reads that it does not lead
	ends    map[*clusterConn]struct{}
}

type clusterPart struct {
	primary int // -1 = nobody
	log     []string
	seen    map[wire.U128]map[uint64]int // client → request → base offset
	offsets map[string]uint64
	// by is every identity under which a message arrived for execution.
	by map[string][]identityOf
}

type clusterRequest struct {
	wire.RequestHeader
	command wire.Code
	body    []byte
	node    int
	conn    *clusterConn
	n       int // counts requests of this command, from 0
	part    int // of a send
}

func newCluster(t testing.TB, nodes, partitions int) *fakeCluster {
	s := &fakeCluster{
		t: t, whippet: true, tickets: true, created: 5, commit: 10, readable: true, mayPoll: true,
		cutAt:    -1,
		sessions: map[wire.U128]uint64{}, logins: map[string]int{}, count: map[wire.Code]int{}, links: map[*clusterConn]struct{}{},
	}
	for i := range nodes {
		n := &clusterNode{s: s, id: i, name: fmt.Sprintf("n%d", i), says: map[uint32]int{}, count: map[wire.Code]int{}, ends: map[*clusterConn]struct{}{}}
		n.address = fmt.Sprintf("10.0.0.%d:%d", i+1, 1000)
		s.nodes = append(s.nodes, n)
	}
	for i := range partitions {
		s.parts = append(s.parts, newClusterPart(i%nodes))
	}
	return s
}

func newClusterPart(primary int) *clusterPart {
	return &clusterPart{primary: primary, seen: map[wire.U128]map[uint64]int{}, offsets: map[string]uint64{}, by: map[string][]identityOf{}}
}

// Dial implements Dialer.
func (s *fakeCluster) Dial(ctx context.Context, address string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.nodes {
		if n.address != address {
			continue
		}
		if n.down {
			return nil, errors.New("connection refused")
		}
		near, far := net.Pipe()
		if s.tcp {
			var err error
			if near, far, err = tcpPair(); err != nil {
				return nil, err
			}
		}
		c := &clusterConn{n: n, c: far, fenced: map[uint32]bool{}, queue: make(chan func() bool, 4096)}
		c.near = &nearEnd{Conn: near, c: c}
		n.ends[c] = struct{}{}
		s.links[c] = struct{}{}
		s.conns.Add(1)
		s.wg.Add(2)
		go func() {
			defer s.wg.Done()
			c.read()
		}()
		go func() {
			defer s.wg.Done()
			c.run()
			_ = c.c.Close()
			for range c.queue { // what the reader still has
			}
			s.mu.Lock()
			delete(n.ends, c)
			delete(s.links, c)
			s.mu.Unlock()
		}()
		if s.tcp {
			return near, nil // its type matters
		}
		return c.near, nil
	}
	return nil, fmt.Errorf("no such host: %s", address)
}

// tcpPair is a connection over loopback.
func tcpPair() (near, far net.Conn, err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = ln.Close() }()
	if near, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		return nil, nil, err
	}
	far, err = ln.Accept()
	return near, far, err
}

// nearEnd is the client's end of a connection.
type nearEnd struct {
	net.Conn
	c      *clusterConn
	closed atomic.Bool
}

// Close implements net.Conn.
func (e *nearEnd) Close() error {
	e.closed.Store(true)
	return e.Conn.Close()
}

type clusterConn struct {
	n        *clusterNode
	c        net.Conn
	near     *nearEnd
	queue    chan func() bool
	writeMu  sync.Mutex
	client   wire.U128
	session  uint64
	routing  bool
	declared bool
	attached *wire.Attachment
	fenced   map[uint32]bool
	mute     bool
}

// read takes frames off the wire as a kernel does, also while the node hangs.
func (c *clusterConn) read() {
	defer close(c.queue)
	br := bufio.NewReaderSize(c.c, 1<<16)
	for {
		var head [wire.HeaderSize]byte
		if _, err := io.ReadFull(br, head[:]); err != nil {
			return
		}
		if c.cut(br, head[:]) {
			_ = c.c.Close()
			return
		}
		size, err := wire.FrameSize(head[:])
		if err != nil {
			return
		}
		body := make([]byte, size-wire.HeaderSize)
		if _, err := io.ReadFull(br, body); err != nil {
			return
		}
		req := &clusterRequest{body: body, conn: c, node: c.n.id, part: -1}
		if err := req.Decode(head[:]); err != nil {
			c.n.s.t.Errorf("bad request header: %v", err)
			return
		}
		req.command, _ = req.Command()
		c.queue <- func() bool { return c.handle(req) }
	}
}

// cut reports whether the connection ends inside this frame: the send that the
// test wanted cut.
func (c *clusterConn) cut(br *bufio.Reader, head []byte) bool {
	var h wire.RequestHeader
	if h.DecodeLoose(head) != nil || h.Operation != wire.OpSendMessages {
		return false
	}
	c.n.s.mu.Lock()
	n := c.n.s.cutAt
	c.n.s.cutAt = -1
	c.n.s.mu.Unlock()
	if n < 0 || n >= int(h.Size) {
		return false
	}
	_, _ = io.CopyN(io.Discard, br, int64(max(n-len(head), 0)))
	return true
}

func (c *clusterConn) run() {
	for f := range c.queue {
		c.n.s.mu.Lock()
		hung := c.n.hung
		c.n.s.mu.Unlock()
		if hung != nil {
			<-hung
		}
		if !f() {
			return
		}
	}
}

func (c *clusterConn) handle(req *clusterRequest) bool {
	s := c.n.s
	s.mu.Lock()
	req.n = s.count[req.command]
	s.count[req.command]++
	c.n.count[req.command]++
	if req.Operation == wire.OpSendMessages {
		var m wire.SendMessages
		if m.Decode(req.body) == nil {
			req.part = int(m.Partitioning.ID)
		}
	}
	script := s.script
	s.mu.Unlock()
	var v verdict
	if script != nil {
		v = script(req)
	}
	h := req.Reply()
	if c.mute {
		return true
	}
	switch v.kind {
	case hangUp:
		return false
	case ignore:
		// As a node that stops right then: what follows on the connection is not
		// executed either.
		c.mute = true
		return true
	case refuse:
		c.fence(req)
		return c.send(wire.AppendStatus(nil, h, v.code))
	case refuseBody:
		return c.send(wire.AppendReply(nil, h, wire.AppendResultError(nil, v.code)))
	case evict:
		s.mu.Lock()
		c.session = 0
		s.mu.Unlock()
		return c.send(wire.AppendEviction(nil, wire.EvictionHeader{Client: req.Client, Reason: v.reason}))
	case after:
		<-v.wait
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
		var h wire.ReplyHeader
		if h.Decode(frame) != nil || h.Status != 0 {
			return c.send(frame) // it was not executed
		}
		c.fence(req)
		return c.send(wire.AppendStatus(nil, h, v.code))
	}
	return frame != nil && c.send(frame)
}

func (c *clusterConn) fence(req *clusterRequest) {
	if req.part < 0 {
		return
	}
	c.n.s.mu.Lock()
	defer c.n.s.mu.Unlock()
	if c.declared {
		c.fenced[uint32(req.part)] = true
	}
}

func (c *clusterConn) send(frame []byte) bool {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	_, err := c.c.Write(frame)
	return err == nil
}

// knows is the metadata position that the node has applied. s.mu is held.
func (n *clusterNode) knows() uint64 {
	if n.applied != 0 {
		return min(n.applied, n.s.commit)
	}
	return n.s.commit
}

// execute gives the reply frame.
func (c *clusterConn) execute(req *clusterRequest, h wire.ReplyHeader) []byte {
	s := c.n.s
	s.mu.Lock()
	defer s.mu.Unlock()
	h.Commit = c.n.knows()
	ok := func(p wire.Reply) []byte { return wire.AppendSuccess(nil, h, p) }
	fail := func(code wire.ErrorCode) []byte { return wire.AppendStatus(nil, h, code) }
	switch {
	case req.Operation == wire.OpRegister:
		return c.register(req, h)
	case req.command == wire.CodePing:
		return ok(nil)
	case c.session != 0 && s.sessions[c.client] != c.session:
		c.session = 0
		return wire.AppendEviction(nil, wire.EvictionHeader{Client: req.Client, Reason: wire.EvictSessionTooLow})
	case c.session == 0 && req.Operation.Replicated():
		return wire.AppendEviction(nil, wire.EvictionHeader{Client: req.Client, Reason: wire.EvictNoSession})
	case c.session == 0:
		return fail(wire.ErrUnauthenticated)
	case req.Operation == wire.OpLogout:
		delete(s.sessions, c.client)
		c.session = 0
		return ok(nil)
	case req.Operation == wire.OpSendMessages:
		return c.append(req, h)
	case req.Operation == wire.OpStoreConsumerOffset, req.Operation == wire.OpDeleteConsumerOffset:
		return c.offset(req, h)
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
		c.declared, c.routing = q.Flags&wire.WantFence != 0, q.Flags&wire.WantRoutingLink != 0
		r := &wire.CapabilitiesReply{Version: 1, MaxInFlight: 16, RememberedIDs: 64, MaxFrame: wire.DefaultMaxFrame, ClusterID: wire.U128{Lo: 7}, NodeName: c.n.name}
		r.Flags = wire.CanFence | wire.CanRouteBySendRight
		if s.tickets {
			r.Flags |= wire.CanTicket
		}
		return ok(r)
	case wire.CodeTicket:
		return ok(&wire.TicketReply{Token: "wt1.secret", Valid: 60_000_000})
	case wire.CodeGetClusterMetadata:
		return ok(s.roster())
	case wire.CodeGetTopic:
		switch {
		case s.created == 0:
			return ok(nil)
		case !s.readable:
			return fail(wire.ErrUnauthorized)
		}
		created := s.created
		if created > c.n.knows() && s.former != 0 {
			created = s.former
		}
		d := &wire.TopicDetails{Topic: wire.Topic{ID: 2, Name: "t", CreatedAt: created, Compression: wire.CompressionNone}}
		for i := range s.parts {
			d.Partitions = append(d.Partitions, wire.Partition{ID: uint32(i)})
		}
		return ok(d)
	case wire.CodeGetStream:
		return ok(&wire.StreamDetails{Stream: wire.Stream{ID: 1, Name: "s"}})
	case wire.CodeAttachConsumerSession:
		var q wire.AttachConsumerSession
		_ = q.Decode(req.body)
		switch {
		case c.n.knows() < q.Watermark:
			return fail(wire.ErrTransientNotAccepted)
		case s.sessions[q.ClientID] != q.Session:
			return fail(wire.ErrStaleClient)
		}
		a := q.Attachment
		c.attached = &a
		return ok(nil)
	case wire.CodeGetPollRouting:
		return c.routeReply(req, h)
	case wire.CodePollMessages, wire.CodePollMessagesOnPrimary:
		return c.pollReply(req, h)
	case wire.CodeGetConsumerOffset:
		var q wire.GetConsumerOffset
		_ = q.Decode(req.body)
		p := s.parts[q.Partition.ID]
		if o, found := p.offsets[q.Consumer.ID.String()]; found {
			return ok(&wire.OffsetReply{PartitionID: q.Partition.ID, CurrentOffset: uint64(len(p.log)) - 1, StoredOffset: o})
		}
		return ok(nil)
	}
	return fail(wire.ErrFeatureUnavailable)
}

func (s *fakeCluster) roster() *wire.Roster {
	r := &wire.Roster{Name: "fake"}
	for i, n := range s.nodes {
		w := n.wire()
		if i != s.leader {
			w.Role = wire.RoleFollower
		}
		r.Nodes = append(r.Nodes, w)
	}
	return r
}

func (n *clusterNode) wire() wire.Node {
	host, port, _ := net.SplitHostPort(n.address)
	var p uint16
	_, _ = fmt.Sscan(port, &p)
	return wire.Node{Name: n.name, IP: host, TCP: p}
}

func (c *clusterConn) register(req *clusterRequest, h wire.ReplyHeader) []byte {
	s := c.n.s
	kind := "password"
	var pat wire.LoginRegisterWithPat
	var pw wire.LoginRegister
	if pw.Decode(req.body) != nil || pw.Username != "iggy" {
		if pat.Decode(req.body) != nil || !strings.HasPrefix(pat.Token, "wt1.") {
			return wire.AppendEviction(nil, wire.EvictionHeader{Client: req.Client, Reason: wire.EvictInvalidCredentials})
		}
		kind = "ticket"
	} else if pw.Password != "iggy" {
		return wire.AppendEviction(nil, wire.EvictionHeader{Client: req.Client, Reason: wire.EvictInvalidCredentials})
	}
	for o := range s.links {
		if !s.tcp && o != c && o.client == req.Client && o.session != 0 && !o.near.closed.Load() && !c.near.closed.Load() {
			s.twice = append(s.twice, fmt.Sprintf("%s on %s and %s", req.Client.Hex(), o.n.name, c.n.name))
		}
	}
	s.logins[kind]++
	s.commit++
	s.session = s.commit
	c.client, c.session = req.Client, s.session
	c.declared, c.routing, c.attached = false, false, nil
	clear(c.fenced)
	s.sessions[req.Client] = s.session
	h.Commit = s.commit
	return wire.AppendSuccess(nil, h, &wire.LoginReply{UserID: 0, Session: s.session, ProtocolVersion: wire.CurrentVersion, ServerVersion: "fake"})
}

// append executes a send once per identity, on the primary.
func (c *clusterConn) append(req *clusterRequest, h wire.ReplyHeader) []byte {
	s := c.n.s
	var m wire.SendMessages
	if err := m.Decode(req.body); err != nil {
		s.t.Errorf("send does not decode: %v", err)
		return wire.AppendStatus(nil, h, wire.ErrInvalidCommand)
	}
	id := m.Partitioning.ID
	fail := func(code wire.ErrorCode) []byte {
		if c.declared {
			c.fenced[id] = true
		}
		return wire.AppendStatus(nil, h, code)
	}
	switch {
	case s.created == 0 || s.created > c.n.knows() || int(id) >= len(s.parts):
		return fail(wire.ErrResourceNotFound)
	case c.fenced[id]:
		return fail(wire.ErrTransientNotAccepted)
	case s.parts[id].primary != c.n.id:
		c.n.refused++
		return fail(wire.ErrTransientNotAccepted)
	}
	p := s.parts[id]
	row := p.seen[req.Client]
	if row == nil {
		row = map[uint64]int{}
		p.seen[req.Client] = row
	}
	base, again := row[req.Request]
	if !again {
		base = len(p.log)
		row[req.Request] = base
		for v := range m.Batch.Messages() {
			p.log = append(p.log, string(v.Payload))
		}
	}
	for v := range m.Batch.Messages() {
		p.by[string(v.Payload)] = append(p.by[string(v.Payload)], identityOf{req.Client, req.Request})
	}
	if !s.whippet && again {
		return wire.AppendReply(nil, h, nil)
	}
	return wire.AppendSuccess(nil, h, &wire.SendConfirmations{Confirmations: []wire.SendConfirmation{{StreamID: 1, TopicID: 2, PartitionID: id, BaseOffset: uint64(base)}}})
}

func (c *clusterConn) offset(req *clusterRequest, h wire.ReplyHeader) []byte {
	s := c.n.s
	var o wire.StoreConsumerOffset
	if req.Operation == wire.OpDeleteConsumerOffset {
		var d wire.DeleteConsumerOffset
		if d.Decode(req.body) != nil {
			return wire.AppendStatus(nil, h, wire.ErrInvalidCommand)
		}
		o = wire.StoreConsumerOffset{Consumer: d.Consumer, Partition: d.Partition}
	} else if o.Decode(req.body) != nil {
		return wire.AppendStatus(nil, h, wire.ErrInvalidCommand)
	}
	if code := c.parent(); code != 0 {
		return wire.AppendStatus(nil, h, code)
	}
	if s.created == 0 || int(o.Partition.ID) >= len(s.parts) {
		return wire.AppendStatus(nil, h, wire.ErrResourceNotFound)
	}
	p := s.parts[o.Partition.ID]
	if p.primary != c.n.id {
		c.n.refused++
		return wire.AppendStatus(nil, h, wire.ErrTransientNotAccepted)
	}
	if req.Operation == wire.OpDeleteConsumerOffset {
		delete(p.offsets, o.Consumer.ID.String())
	} else {
		p.offsets[o.Consumer.ID.String()] = o.Offset
	}
	return wire.AppendSuccess(nil, h, nil)
}

// parent checks the attachment of a connection that needs one. s.mu is held.
func (c *clusterConn) parent() wire.ErrorCode {
	switch {
	case c.attached == nil:
		return wire.ErrUnauthenticated
	case c.n.s.sessions[c.attached.ClientID] != c.attached.Session:
		return wire.ErrStaleClient
	}
	return 0
}

func (c *clusterConn) routeReply(req *clusterRequest, h wire.ReplyHeader) []byte {
	s := c.n.s
	fail := func(code wire.ErrorCode) []byte { return wire.AppendStatus(nil, h, code) }
	var q wire.GetPollRouting
	if q.Decode(req.body) != nil || !q.AutoCommit {
		return fail(wire.ErrInvalidCommand)
	}
	id := q.Partition.ID
	switch {
	case !s.mayPoll:
		return fail(wire.ErrUnauthorized)
	case s.created == 0 || s.created > c.n.knows():
		return fail(wire.ErrTopicIdNotFound)
	case int(id) >= len(s.parts):
		return fail(wire.ErrPartitionNotFound)
	}
	primary := s.parts[id].primary
	if lie, lies := c.n.says[id]; lies {
		primary = lie
	}
	if primary < 0 {
		return fail(wire.ErrTransientNotAccepted)
	}
	delete(c.fenced, id)
	return wire.AppendSuccess(nil, h, &wire.Route{Session: wire.Attachment{ClientID: c.client, Session: c.session}, Primary: s.nodes[primary].wire()})
}

func (c *clusterConn) pollReply(req *clusterRequest, h wire.ReplyHeader) []byte {
	s := c.n.s
	var q wire.PollMessages
	if q.Decode(req.body) != nil {
		return wire.AppendStatus(nil, h, wire.ErrInvalidCommand)
	}
	if req.command == wire.CodePollMessagesOnPrimary {
		if code := c.parent(); code != 0 {
			return wire.AppendStatus(nil, h, code)
		}
	}
	if int(q.Partition.ID) >= len(s.parts) {
		return wire.AppendStatus(nil, h, wire.ErrPartitionNotFound)
	}
	p := s.parts[q.Partition.ID]
	if p.primary != c.n.id && (q.AutoCommit || req.command == wire.CodePollMessagesOnPrimary) {
		c.n.refused++
		return wire.AppendStatus(nil, h, wire.ErrTransientNotAccepted)
	}
	from := uint64(0)
	switch q.Strategy.Kind {
	case wire.StrategyOffset:
		from = q.Strategy.Value
	case wire.StrategyNext:
		if o, found := p.offsets[q.Consumer.ID.String()]; found {
			from = o + 1
		}
	}
	r := &wire.PolledMessages{PartitionID: q.Partition.ID, CurrentOffset: uint64(max(0, len(p.log)-1))}
	for i := int(from); i < len(p.log) && r.Count < q.Count; i++ {
		var b wire.BatchBuilder
		_ = b.Add(&wire.Message{Payload: []byte(p.log[i]), OriginTimestamp: 1, ID: wire.U128{Lo: uint64(i)}})
		batch, _ := b.Finish()
		own := wire.Batch(slices.Clone(batch))
		own.Stamp(q.Partition.ID, uint64(i), 1)
		r.Records = append(r.Records, own...)
		r.Count++
	}
	if q.AutoCommit && r.Count > 0 {
		p.offsets[q.Consumer.ID.String()] = from + uint64(r.Count) - 1
	}
	return wire.AppendSuccess(nil, h, r)
}

func (c *clusterConn) change(req *clusterRequest, h wire.ReplyHeader) []byte {
	s := c.n.s
	if !s.whippet && c.n.id != s.leader {
		return wire.AppendReply(nil, h, wire.AppendResultError(nil, wire.ErrTransientNotAccepted))
	}
	s.commit++
	h.Commit = s.commit
	switch req.Operation {
	case wire.OpCreateStream:
		return wire.AppendSuccess(nil, h, &wire.StreamDetails{Stream: wire.Stream{ID: 9, Name: "other"}})
	case wire.OpDeleteTopic:
		s.dropTopic()
	case wire.OpCreateTopic:
		s.makeTopic(s.commit)
		return wire.AppendSuccess(nil, h, &wire.TopicDetails{Topic: wire.Topic{ID: 2, Name: "t", CreatedAt: s.created, Compression: wire.CompressionNone}})
	}
	return wire.AppendSuccess(nil, h, nil)
}

func (s *fakeCluster) dropTopic() { s.created = 0 }

// makeTopic makes the topic anew: other logs, the same numbers.
func (s *fakeCluster) makeTopic(at uint64) {
	s.former, s.created = s.created, at
	for i := range s.parts {
		s.parts[i] = newClusterPart(s.parts[i].primary)
	}
}

// set changes the cluster's state.
func (s *fakeCluster) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *fakeCluster) on(f func(*clusterRequest) verdict) { s.set(func() { s.script = f }) }

// move makes another node the primary of a partition.
func (s *fakeCluster) move(part, to int) { s.set(func() { s.parts[part].primary = to }) }

// kill ends a node: its connections break and new ones are refused.
func (s *fakeCluster) kill(node int) {
	s.mu.Lock()
	n := s.nodes[node]
	n.down = true
	var ends []*clusterConn
	for c := range n.ends {
		ends = append(ends, c)
		if s.sessions[c.client] == c.session {
			delete(s.sessions, c.client)
		}
	}
	s.mu.Unlock()
	for _, c := range ends {
		_ = c.c.Close()
	}
}

func (s *fakeCluster) restart(node int) { s.set(func() { s.nodes[node].down = false }) }

// cut breaks the connections of a node.
func (s *fakeCluster) cut(node int) {
	s.mu.Lock()
	var ends []*clusterConn
	for c := range s.nodes[node].ends {
		ends = append(ends, c)
	}
	s.mu.Unlock()
	for _, c := range ends {
		_ = c.c.Close()
	}
}

// hang stops a node without its connections breaking, as SIGSTOP does; the
// function lets it go on.
func (s *fakeCluster) hang(node int) (resume func()) {
	ch := make(chan struct{})
	s.set(func() { s.nodes[node].hung = ch })
	return sync.OnceFunc(func() {
		s.set(func() { s.nodes[node].hung = nil })
		close(ch)
	})
}

func (s *fakeCluster) counted(c wire.Code) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count[c]
}

func (s *fakeCluster) payloads(part int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.parts[part].log)
}

func (s *fakeCluster) refusals() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, node := range s.nodes {
		n += node.refused
	}
	return n
}

// connect makes a client whose session is with a node. It is closed with the test;
// in a bubble the caller closes it itself.
func (s *fakeCluster) connect(node int, opts ...Option) (*Client, *watcher) {
	s.t.Helper()
	w := newWatcher()
	o := Options{
		Addresses: []string{s.nodes[node].address}, Username: "iggy", Password: "iggy", Dialer: s, Hooks: []Hook{w},
	}
	for _, f := range opts {
		f(&o)
	}
	c, err := New(o)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := c.Connect(ctx); err != nil {
		s.t.Fatal(err)
	}
	return c, w
}

// close ends a client and checks what must hold whatever happened: no identity on
// two connections at a time, no move of the session because of a partition, and
// nobody left.
func (s *fakeCluster) close(c *Client, w *watcher) {
	s.t.Helper()
	if err := c.Close(); err != nil {
		s.t.Errorf("close: %v", err)
	}
	s.wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.twice) > 0 {
		s.t.Errorf("two connections carried one client id: %v", s.twice)
	}
	if n := w.moved("partition"); n != 0 {
		s.t.Errorf("the session moved %d times because of a partition", n)
	}
}

// watcher counts what the hooks tell.
type watcher struct {
	mu       sync.Mutex
	moves    map[string]int
	dials    map[string]int
	sends    map[string]int
	paths    map[string]int
	lookups  map[string]int
	attaches int
	refusals int
	ambig    int
}

func newWatcher() *watcher {
	return &watcher{moves: map[string]int{}, dials: map[string]int{}, sends: map[string]int{}, paths: map[string]int{}, lookups: map[string]int{}}
}

func (w *watcher) add(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *watcher) OnSessionMove(cause string) { w.add(func() { w.moves[cause]++ }) }
func (w *watcher) OnLinkDial(_, role string, _ time.Duration, err error) {
	w.add(func() {
		if err == nil {
			w.dials[role]++
		}
	})
}
func (w *watcher) OnSend(outcome, path string, _, _ int, _ time.Duration) {
	w.add(func() { w.sends[outcome]++; w.paths[path]++ })
}
func (w *watcher) OnRouteLookup(source, result string, _ time.Duration) {
	w.add(func() { w.lookups[source+" "+result]++ })
}
func (w *watcher) OnAttach(string, string, time.Duration) { w.add(func() { w.attaches++ }) }
func (w *watcher) OnRefusal(string, uint32)               { w.add(func() { w.refusals++ }) }
func (w *watcher) OnLaneAmbiguous(d int)                  { w.add(func() { w.ambig += d }) }

func (w *watcher) moved(cause string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.moves[cause]
}

func (w *watcher) dialled(role string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dials[role]
}

func (w *watcher) looked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, v := range w.lookups {
		n += v
	}
	return n
}
