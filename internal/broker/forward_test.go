package broker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/whippetmq/whippet/internal/cluster"
	"github.com/whippetmq/whippet/internal/metadata"
	"github.com/whippetmq/whippet/internal/replica/transport"
	"github.com/whippetmq/whippet/wire"
)

// others are nodes 2 and 3 of a cluster, played by the test.
type others struct {
	mu    sync.Mutex
	down  map[uint64]bool
	calls chan *otherCall
}

type otherCall struct {
	to   uint64
	r    *cluster.Request
	body []byte // a copy: the original must stay as it is until done
	done func(*cluster.Reply, error)
}

func (*others) Self() uint64         { return 1 }
func (*others) Others() []uint64     { return []uint64{2, 3} }
func (*others) Alive(uint64) bool    { return true }
func (*others) Starts(uint64) uint64 { return 1 }
func (*others) Name(n uint64) string { return fmt.Sprint("n", n) }
func (*others) Find(string) uint64   { return 0 }

func (o *others) Up(node uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.down[node]
}

func (o *others) Call(to uint64, r *cluster.Request, done func(*cluster.Reply, error)) {
	o.calls <- &otherCall{to, r, slices.Clone(r.Body), done}
}

func (o *others) Ask(context.Context, uint64, *cluster.Request) (*cluster.Reply, error) {
	return nil, transport.ErrNotSent
}

// next is the next call of this node.
func (o *others) next(t *testing.T) *otherCall {
	t.Helper()
	select {
	case c := <-o.calls:
		return c
	case <-time.After(10 * time.Second):
		t.Fatal("no call")
		return nil
	}
}

func (o *others) none(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case c := <-o.calls:
		t.Fatalf("a call to node %d", c.to)
	case <-time.After(d):
	}
}

// confirm answers a call as a primary does.
func (c *otherCall) confirm(base uint64) {
	c.done(&cluster.Reply{Op: 5, Commit: 5, Payload: wire.AppendConfirmation(nil, wire.SendConfirmation{BaseOffset: base})}, nil)
}

// forwardRig is a node of three on which a partition has no leader that it knows
// of, until the test says who it is.
func forwardRig(t *testing.T, wait time.Duration) (*rig, *others, *peer) {
	o := &others{calls: make(chan *otherCall, 64), down: map[uint64]bool{}}
	r := newRigWith(t, metadata.Config{Nodes: []uint8{0, 1, 2}}, func(c *Config) { c.Peers, c.Forwarding, c.Hold = o, true, wait })
	p := r.connect()
	t.Cleanup(p.conn.Close)
	p.login()
	for _, req := range []wire.Request{&wire.CreateStream{Name: "s"}, &wire.CreateTopic{Stream: wire.ID(0), Name: "t", PartitionsCount: 1}} {
		if _, err := p.do(req); err != nil {
			t.Fatal(err)
		}
	}
	return r, o, p
}

// leads says that a node leads the partition, as a refusal's hint would.
func (p *peer) leads(node, term uint64) *lane {
	c := p.conn.(*conn)
	cat := c.b.cfg.Metadata.Catalog()
	_, top := cat.Topic(wire.ID(0), wire.ID(0))
	l := c.lane(c.b.cfg.Partitions.get(top, top.Partitions[0]))
	l.mu.Lock()
	l.hint, l.refused = cluster.Hint{Leader: node, Term: term}, 0
	l.mu.Unlock()
	return l
}

// post hands a send over without waiting for its answer.
func (p *peer) post(text string) {
	p.t.Helper()
	ms, err := wire.BuildBatch(nil, []wire.Message{{Payload: []byte(text)}})
	if err != nil {
		p.t.Fatal(err)
	}
	req := &wire.SendMessages{Stream: wire.ID(0), Topic: wire.ID(0), Partitioning: wire.PartitionID(0), Batch: ms}
	body := req.Append(nil)
	h := &wire.RequestHeader{Client: p.client, Session: p.session, Kind: wire.FrameRequest}
	h.SetCommand(req.Code(), body)
	p.request++
	h.Request = p.request
	h.Size = uint32(wire.HeaderSize + len(body))
	b := GetBuffer(len(body))
	copy(b.B, body)
	if r := p.conn.Handle(h, b); r != nil {
		p.replies <- r
	}
}

// answered is the request number and status of the next answer.
func (p *peer) answered() (uint64, wire.ErrorCode) {
	p.t.Helper()
	select {
	case r := <-p.replies:
		var rh wire.ReplyHeader
		if err := rh.Decode(r.Segments(nil)[0]); err != nil {
			p.t.Fatal(err)
		}
		r.Release()
		return rh.Request, rh.Status
	case <-time.After(10 * time.Second):
		p.t.Fatal("no answer")
		return 0, 0
	}
}

func (p *peer) wantAnswer(request uint64, code wire.ErrorCode) {
	p.t.Helper()
	if n, got := p.answered(); n != request || got != code {
		p.t.Fatalf("request %d: code %d, want request %d with %d", n, got, request, code)
	}
}

// How a call ends decides what the client is told.
func TestForwardOutcomes(t *testing.T) {
	ok := func(c *otherCall) { c.confirm(7) }
	status := func(code wire.ErrorCode) func(*otherCall) {
		return func(c *otherCall) { c.done(&cluster.Reply{Status: code}, nil) }
	}
	fails := func(err error) func(*otherCall) { return func(c *otherCall) { c.done(nil, err) } }
	refers := func(leader, term uint64) func(*otherCall) {
		return func(c *otherCall) { c.done(cluster.Refusal(cluster.Hint{Leader: leader, Term: term}), nil) }
	}
	r, o, p := forwardRig(t, 10*time.Second)
	for name, tt := range map[string]struct {
		script []func(*otherCall)
		to     []uint64
		code   wire.ErrorCode
	}{
		"done":                              {[]func(*otherCall){ok}, []uint64{2}, 0},
		"refused, then done":                {[]func(*otherCall){status(58), ok}, []uint64{2, 2}, 0},
		"refused, with a hint":              {[]func(*otherCall){refers(3, 4), ok}, []uint64{2, 3}, 0},
		"sent in a circle":                  {[]func(*otherCall){refers(3, 4), refers(2, 4), refers(3, 4), ok}, []uint64{2, 3, 2, 3}, 0},
		"a hint of older times":             {[]func(*otherCall){refers(3, 1), ok}, []uint64{2, 2}, 0},
		"not sent":                          {[]func(*otherCall){fails(transport.ErrNotSent), ok}, []uint64{2, 2}, 0},
		"not taken":                         {[]func(*otherCall){fails(transport.ErrNotTaken), ok}, []uint64{2, 2}, 0},
		"link lost":                         {[]func(*otherCall){fails(transport.ErrLinkLost)}, []uint64{2}, wire.ErrTransientNotCommitted},
		"not known there either":            {[]func(*otherCall){status(57)}, []uint64{2}, wire.ErrTransientNotCommitted},
		"deleted":                           {[]func(*otherCall){status(wire.ErrResourceNotFound)}, []uint64{2}, wire.ErrResourceNotFound},
		"disk full":                         {[]func(*otherCall){status(wire.ErrCannotAppendMessage)}, []uint64{2}, wire.ErrCannotAppendMessage},
		"refused, not sent, then link lost": {[]func(*otherCall){status(58), fails(transport.ErrNotSent), fails(transport.ErrLinkLost)}, []uint64{2, 2, 2}, 57},
	} {
		t.Run(name, func(t *testing.T) {
			p.leads(2, 3)
			p.post("x")
			var first []byte
			for i, step := range tt.script {
				c := o.next(t)
				if c.to != tt.to[i] || c.r.Client != p.client || c.r.Request != p.request || c.r.User != 0 || c.r.Wait <= 0 || c.r.Operation != wire.OpSendMessages {
					t.Fatalf("call %d: to %d, %+v", i, c.to, c.r)
				}
				if first == nil {
					first = c.body
				}
				if !slices.Equal(first, c.body) {
					t.Fatal("the body changed")
				}
				step(c)
			}
			p.wantAnswer(p.request, tt.code)
			o.none(t, 3*pace)
			if !r.b.Idle() {
				t.Error("it still counts as held")
			}
		})
	}
}

// One of a lane at a time goes to another node, and the answers come in order,
// refusals included.
func TestForwardKeepsOrder(t *testing.T) {
	_, o, p := forwardRig(t, 10*time.Second)
	p.leads(2, 3)
	first := p.request + 1
	for i := range 5 {
		p.post(fmt.Sprint(i))
	}
	for i := range uint64(5) {
		c := o.next(t)
		if c.r.Request != first+i {
			t.Fatalf("request %d, want %d", c.r.Request, first+i)
		}
		o.none(t, 2*pace)
		if i == 2 {
			c.done(nil, transport.ErrNotTaken)
			if c = o.next(t); c.r.Request != first+i {
				t.Fatalf("request %d overtook", c.r.Request)
			}
		}
		c.confirm(i)
		p.wantAnswer(first+i, 0)
	}
}

// A request that nobody takes is refused when its time is over: 58 when it never
// left, 57 when it is somewhere. A late reply harms nobody.
func TestForwardDeadline(t *testing.T) {
	t.Run("no primary", func(t *testing.T) {
		r, o, p := forwardRig(t, 50*time.Millisecond)
		p.post("x")
		p.wantAnswer(p.request, wire.ErrTransientNotAccepted)
		o.none(t, 0)
		if !r.b.Idle() {
			t.Error("held")
		}
	})
	t.Run("refused all the time", func(t *testing.T) {
		_, o, p := forwardRig(t, 100*time.Millisecond)
		p.leads(2, 3)
		p.post("x")
		for range 3 {
			o.next(t).done(&cluster.Reply{Status: wire.ErrTransientNotAccepted}, nil)
		}
		go func() {
			for c := range o.calls {
				c.done(nil, transport.ErrNotSent)
			}
		}()
		p.wantAnswer(p.request, wire.ErrTransientNotAccepted)
		r := p.r
		r.b.cancel() // no more calls
		r.b.wg.Wait()
		close(o.calls)
	})
	t.Run("no answer", func(t *testing.T) {
		r, o, p := forwardRig(t, 50*time.Millisecond)
		p.leads(2, 3)
		p.post("x")
		c := o.next(t)
		p.wantAnswer(p.request, wire.ErrTransientNotCommitted)
		if !slices.Equal(c.r.Body, c.body) {
			t.Error("the bytes were given away while the link may read them")
		}
		c.confirm(1) // too late
		p.post("y")
		o.next(t).confirm(2)
		p.wantAnswer(p.request, 0)
		if !r.b.Idle() {
			t.Error("held")
		}
	})
}

// A node that was closed answers what waits on it through the connection's end.
func TestForwardOfAClosedConnection(t *testing.T) {
	r, o, p := forwardRig(t, time.Minute)
	p.post("x")
	p.conn.(*conn).cancel()
	p.wantAnswer(p.request, wire.ErrTransientNotAccepted)
	o.none(t, 0)
	if !r.b.Idle() {
		t.Error("held")
	}
}

// Above the bounds of what is held a send is refused at once, not queued.
func TestHoldIsBounded(t *testing.T) {
	r, o, p := forwardRig(t, time.Minute)
	r.b.held.bytes.Store(heldBytes)
	p.leads(2, 3)
	p.post("x")
	p.wantAnswer(p.request, wire.ErrTransientNotAccepted)
	if r.b.Counters().HoldFull.Load() != 1 {
		t.Error("not counted")
	}
	r.b.held.bytes.Store(0)
	p.post("y")
	o.next(t).confirm(0)
	p.wantAnswer(p.request, 0)
}

// Requests of other nodes are bounded too, and not taken above that.
func TestServeIsBounded(t *testing.T) {
	r, _, _ := forwardRig(t, time.Second)
	r.b.serving.requests.Store(maxServed)
	taken := make(chan *cluster.Reply, 1)
	r.b.Serve(2, &cluster.Request{Operation: wire.OpSendMessages}, func(reply *cluster.Reply) { taken <- reply })
	if reply := <-taken; reply != nil {
		t.Fatalf("%+v", reply)
	}
	r.b.serving.requests.Store(0)
	for name, q := range map[string]*cluster.Request{
		"unknown operation": {Operation: 200}, "unknown code": {Operation: wire.OpNonReplicated, Code: 9199}, "command without a prefix": {Operation: wire.OpCreateStream, Body: []byte{1}},
		"transfer without a node": {Operation: wire.OpNonReplicated, Code: cluster.CodeTransfer},
	} {
		q.Wait = time.Second
		r.b.Serve(2, q, func(reply *cluster.Reply) { taken <- reply })
		if reply := <-taken; reply == nil || reply.Status != wire.ErrInvalidCommand {
			t.Errorf("%s: %+v", name, reply)
		}
	}
	r.b.Serve(2, &cluster.Request{Operation: wire.OpSendMessages, Group: 77, Wait: time.Second}, func(reply *cluster.Reply) { taken <- reply })
	if reply := <-taken; reply == nil || reply.Status != wire.ErrResourceNotFound {
		t.Errorf("a send to a partition that is gone: %+v", reply)
	}
	r.b.Serve(2, &cluster.Request{Operation: wire.OpSendMessages, Position: 1 << 40, Wait: 20 * time.Millisecond}, func(reply *cluster.Reply) { taken <- reply })
	if reply := <-taken; reply == nil || reply.Status != wire.ErrTransientNotAccepted {
		t.Errorf("a send that is ahead of the metadata here: %+v", reply)
	}
}
