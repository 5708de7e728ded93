package broker

import (
	"context"
	"errors"
	"time"

	"github.com/whippetmq/whippet/internal/cluster"
	"github.com/whippetmq/whippet/internal/replica/transport"
	"github.com/whippetmq/whippet/wire"
)

// isNotSent reports whether a call's error means that the other node never
// looked at the request.
func isNotSent(err error) bool {
	return errors.Is(err, transport.ErrNotSent) || errors.Is(err, transport.ErrNotTaken)
}

// count notes how a forwarded request ended.
func (b *Broker) count(code wire.ErrorCode) {
	switch code {
	case 0:
		b.counters.Forwarded.Add(1)
	case wire.ErrTransientNotAccepted:
		b.counters.ForwardRefused.Add(1)
	case wire.ErrTransientNotCommitted:
		b.counters.ForwardUnknown.Add(1)
	default:
		b.counters.ForwardFailed.Add(1)
	}
}

// forward sends a send to the node that leads. The mutex is held, and not while
// the call is made.
func (l *lane) forward(op *sendOp, node uint64) {
	b := l.c.b
	if op.used {
		// A stamp of this node's admission is not part of what the client sent.
		op.batch.ClearReserved()
	}
	c := &call{lane: l, op: op, body: op.body, node: node, term: l.part.group.Status().Term, at: b.since()}
	l.call = c
	l.watch()
	r := &cluster.Request{
		Wait: op.until - c.at, Operation: wire.OpSendMessages, Client: op.Client, User: op.User, Session: op.rh.Op, Request: op.Request,
		Position: l.part.created, Stream: l.part.Stream, Topic: l.part.Topic, Partition: l.part.ID, Group: l.part.Group, Body: c.body.Bytes(),
	}
	l.mu.Unlock()
	b.cfg.Peers.Call(node, r, c.done)
	l.mu.Lock()
}

// detach leaves a call to itself: its send is answered without it. The mutex is held.
func (l *lane) detach(c *call) {
	l.call = nil
	c.op.body = nil // the call gives it back
	c.op = nil
}

// done takes the outcome of a call. It runs on the goroutine that reads from the
// other node, or on the one that made the call.
func (c *call) done(reply *cluster.Reply, err error) {
	l := c.lane
	code := callCode(reply, err)
	l.c.b.count(code)
	l.mu.Lock()
	op := c.op
	if op == nil {
		l.mu.Unlock()
		c.body.Release()
		return
	}
	l.call = nil
	l.mu.Unlock()
	if code == wire.ErrTransientNotAccepted {
		var hint cluster.Hint
		if err == nil {
			hint = reply.Hint()
		}
		l.comeBack(op, hint, c.node)
		return
	}
	if code == 0 {
		op.far = reply
	}
	l.settle(op, code)
}

// toPrimary takes a request to the partition's primary elsewhere and waits for
// the answer, at most until deadline; while there is no primary it waits for
// one. ready reports that this node is the primary: the request is to be served
// here, and was admitted nowhere.
func (b *Broker) toPrimary(ctx context.Context, part *Partition, r *cluster.Request) (reply *cluster.Reply, code wire.ErrorCode, here bool) {
	if !b.held.take(len(r.Body)) {
		return nil, wire.ErrTransientNotAccepted, false
	}
	defer b.held.give(len(r.Body))
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Hold)
	defer cancel()
	var w way
	for {
		st := part.group.Status()
		node := w.next(st.Leader, st.Term)
		switch {
		case node == b.self() && st.Ready:
			return nil, 0, true
		case node != 0 && node != b.self() && b.cfg.Peers.Up(node):
			reply, err := b.ask(ctx, node, r, func() bool {
				st := part.group.Status()
				return st.Term > w.term && st.Leader != 0 && st.Leader != node
			})
			code := callCode(reply, err)
			b.count(code)
			if code != wire.ErrTransientNotAccepted {
				return reply, code, false
			}
			if err == nil && w.learn(reply.Hint(), node) {
				continue
			}
		}
		if !w.pause(ctx) {
			return nil, wire.ErrTransientNotAccepted, false
		}
	}
}

// way remembers what refusals said of who leads.
type way struct {
	hint cluster.Hint
	term uint64 // known when the last node was chosen
}

// next is the node to ask: the one that this node takes for the leader, or a
// newer one of which a refusal told.
func (w *way) next(leader, term uint64) uint64 {
	w.term = max(term, w.hint.Term)
	if w.hint.Leader != 0 && (w.hint.Term > term || w.hint.Term == term && leader == 0) {
		return w.hint.Leader
	}
	return leader
}

// learn takes the hint of the node that refused; true = it names another node,
// which may be asked at once.
func (w *way) learn(h cluster.Hint, by uint64) bool {
	if h.Leader == 0 || h.Leader == by || h.Term < w.hint.Term || h == w.hint {
		return false
	}
	w.hint = h
	return true
}

// pause waits a moment; false = the time is over.
func (w *way) pause(ctx context.Context) bool {
	t := time.NewTimer(pace)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// ask calls a node and waits. When the reply does not come although moved says
// that another node leads meanwhile, the outcome is unknown.
func (b *Broker) ask(ctx context.Context, node uint64, r *cluster.Request, moved func() bool) (*cluster.Reply, error) {
	if deadline, ok := ctx.Deadline(); ok {
		r.Wait = time.Until(deadline)
	}
	ended := make(chan struct{})
	var (
		reply *cluster.Reply
		err   error
	)
	b.cfg.Peers.Call(node, r, func(got *cluster.Reply, failed error) {
		reply, err = got, failed
		close(ended)
	})
	look := time.NewTicker(callGrace)
	defer look.Stop()
	over := ctx.Done()
	began := time.Now()
	for {
		select {
		case <-ended:
			return reply, err
		case <-over:
			// The other node has the same deadline; its answer may be on the way.
			over = nil
		case <-look.C:
			if over == nil || time.Since(began) > movedGrace && moved() {
				select {
				case <-ended:
					return reply, err
				default:
					return nil, transport.ErrLinkLost
				}
			}
		}
	}
}

// forward has a request served by the partition's primary: nil and true when
// that is this node after all. Its caller is the connection's goroutine, which
// waits.
func (c *conn) forward(h *wire.RequestHeader, bound *binding, part *Partition, body []byte) (*Reply, bool) {
	b := c.b
	// The bytes may be read by the link after the answer was given up.
	kept := append([]byte(nil), body...)
	reply, code, here := b.toPrimary(c.ctx, part, &cluster.Request{
		Operation: h.Operation, Code: h.Code, Client: bound.client, User: bound.user, Session: bound.session, Request: h.Request,
		Position: max(part.created, b.cfg.Metadata.Catalog().Index()), Stream: part.Stream, Topic: part.Topic, Partition: part.ID,
		Group: part.Group, Body: kept,
	})
	switch {
	case here:
		return nil, true
	case code != 0:
		return c.deny(h, code), false
	}
	r := newReply()
	r.cost = int(h.Size)
	r.tail = reply.Payload
	rh := c.header(h)
	if h.Operation != wire.OpNonReplicated {
		rh.Cluster = b.cfg.ClusterID
		rh.View, rh.Op, rh.Commit, rh.Timestamp = reply.View, reply.Op, reply.Commit, reply.Timestamp
	}
	return r.finish(&rh), false
}
