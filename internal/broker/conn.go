package broker

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/internal/metadata"
	"github.com/whippetmq/whippet/wire"
)

// binding is what a sign-in binds a connection to. It never changes.
type binding struct {
	client  wire.U128
	session uint64
	user    uint32
}

// conn is one connection. The fields without a word belong to the goroutine that
// calls Handle.
type conn struct {
	b      *Broker
	id     uint32
	peer   Peer
	sink   Sink
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc

	bound     atomic.Pointer[binding] // nil = not signed in; cleared by the watch, too
	watermark atomic.Uint64           // highest metadata position that was reported here
	seen      atomic.Int64            // ns since the broker's start of the last request
	polled    atomic.Int64            // bytes of poll replies that are not written yet

	epoch    uint64 // session epoch at which the binding was last found to stand
	attached *wire.Attachment
	link     bool // a routing link (extensions.md)
	hop      bool // stands for a client of another node, whose request is for hopPart
	hopPart  *Partition
	fenced   bool // declared the fence
	lanes    map[replicaGroupID]*lane

	// Room to decode into without allocating.
	sendBody wire.SendMessages
	pollBody wire.PollMessages
}

// Bound implements Conn.
func (c *conn) Bound() bool { return c.bound.Load() != nil }

// Handle implements Conn.
func (c *conn) Handle(h *wire.RequestHeader, body *Buffer) *Reply {
	c.seen.Store(int64(time.Since(c.b.started)))
	if h.Operation.Internal() {
		body.Release()
		return c.evict(h, wire.EvictInvalidRequestOperation)
	}
	if err := h.VerifyBody(body.Bytes()); err != nil {
		body.Release()
		return c.deny(h, wire.ErrInvalidFormat)
	}
	bound := c.bound.Load()
	if bound == nil {
		return c.unbound(h, body)
	}
	switch h.Operation {
	case wire.OpRegister:
		defer body.Release()
		if c.stands(bound) != 0 && c.unbind(bound) {
			bound = nil
		}
		return c.login(h, bound, body.Bytes())
	case wire.OpNonReplicated:
		if h.Code == wire.CodePing {
			body.Release()
			return c.answer(h, nil)
		}
	}
	if reason := c.stands(bound); reason != 0 {
		body.Release()
		c.unbind(bound)
		return c.evict(h, reason)
	}
	switch h.Operation {
	case wire.OpNonReplicated:
		return c.read(h, bound, body)
	case wire.OpSendMessages:
		return c.send(h, bound, body)
	case wire.OpStoreConsumerOffset, wire.OpDeleteConsumerOffset:
		defer body.Release()
		return c.writeOffset(h, bound, body.Bytes())
	case wire.OpLogout:
		body.Release()
		return c.logout(h, bound)
	}
	return c.change(h, bound, body)
}

// unbound answers requests before sign-in (framing §4.4).
func (c *conn) unbound(h *wire.RequestHeader, body *Buffer) *Reply {
	defer body.Release()
	if h.Operation == wire.OpRegister {
		return c.login(h, nil, body.Bytes())
	}
	return c.refuseUnbound(h)
}

func (c *conn) refuseUnbound(h *wire.RequestHeader) *Reply {
	switch h.Operation {
	case wire.OpLogout:
		return c.answer(h, nil)
	case wire.OpNonReplicated:
		switch h.Code {
		case wire.CodePing:
			return c.answer(h, nil)
		case wire.CodeLoginUser, wire.CodeLoginWithPersonalAccessToken:
			return c.evict(h, wire.EvictMalformedLogin)
		}
		return c.deny(h, wire.ErrUnauthenticated)
	}
	return c.evict(h, wire.EvictNoSession)
}

// Refuse implements Conn.
func (c *conn) Refuse(h *wire.RequestHeader) *Reply {
	c.seen.Store(int64(time.Since(c.b.started)))
	switch {
	case h.Operation.Internal():
		return c.evict(h, wire.EvictInvalidRequestOperation)
	case h.Operation == wire.OpRegister:
		return c.evict(h, wire.EvictMalformedLogin)
	case c.bound.Load() != nil: // signed in meanwhile cannot be: one goroutine
		return c.deny(h, wire.ErrInvalidCommand)
	}
	return c.refuseUnbound(h)
}

// stands tells why the session of a connection is over, 0 when it is not: it
// left the table, or the client id was registered again elsewhere (routing G8).
func (c *conn) stands(bound *binding) wire.EvictionReason {
	epoch := c.b.cfg.Metadata.SessionEpoch()
	if epoch == c.epoch || c.b.position() < bound.session {
		return 0 // nothing has ended, or this node does not know of the session yet
	}
	s, ok := c.b.cfg.Metadata.Session(bound.client)
	switch {
	case !ok:
		return wire.EvictNoSession
	case s.ID > bound.session:
		return wire.EvictSessionTooLow
	}
	c.epoch = epoch
	return 0
}

// bind ties the connection to a session.
func (c *conn) bind(n *binding) {
	c.attached = nil
	c.link, c.fenced = false, false
	c.lanes = nil
	c.epoch = 0
	c.bound.Store(n)
}

// unbind ends the binding, once.
func (c *conn) unbind(bound *binding) bool {
	c.attached = nil
	return c.bound.CompareAndSwap(bound, nil)
}

// Close implements Conn.
func (c *conn) Close() {
	c.cancel()
	c.b.disconnect(c)
	if bound := c.bound.Swap(nil); bound != nil {
		c.b.logoutLater(bound)
	}
}

// evictSilent ends the session of a silent member; called by the watch.
func (c *conn) evictSilent(bound *binding) {
	if !c.bound.CompareAndSwap(bound, nil) {
		return
	}
	c.b.logoutLater(bound)
	r := eviction(bound.client, wire.EvictStaleClient)
	r.cost = unasked
	c.sink.Reply(r)
}

// header starts the header of an answer to a read or of a refusal (framing §1.3).
func (c *conn) header(h *wire.RequestHeader) wire.ReplyHeader {
	rh := h.Reply()
	if bound := c.bound.Load(); bound != nil {
		rh.Op = bound.session
		rh.Commit = c.b.position()
		c.raise(rh.Commit)
	}
	return rh
}

// raise remembers a metadata position that the client is told.
func (c *conn) raise(position uint64) {
	for {
		w := c.watermark.Load()
		if position <= w || c.watermark.CompareAndSwap(w, position) {
			return
		}
	}
}

// deny answers with a status.
func (c *conn) deny(h *wire.RequestHeader, code wire.ErrorCode) *Reply {
	r := newReply()
	r.cost = int(h.Size)
	rh := c.header(h)
	rh.Status = code
	return r.finish(&rh)
}

// refuse answers with the status of an error.
func (c *conn) refuse(h *wire.RequestHeader, err error) *Reply {
	var ev *metadata.EvictionError
	if errors.As(err, &ev) {
		return c.evict(h, ev.Reason)
	}
	return c.deny(h, wire.StatusOf(err))
}

// evict answers with an eviction.
func (c *conn) evict(h *wire.RequestHeader, reason wire.EvictionReason) *Reply {
	client := h.Client
	if client.IsZero() {
		client = wire.U128{Lo: uint64(c.id)}
	}
	r := eviction(client, reason)
	r.cost = int(h.Size)
	return r
}

// answer replies with a payload; nil is an empty one.
func (c *conn) answer(h *wire.RequestHeader, payload wire.Reply) *Reply {
	r := newReply()
	r.cost = int(h.Size)
	if payload != nil {
		r.frame = payload.Append(r.frame)
	}
	rh := c.header(h)
	return r.finish(&rh)
}

// rejectFramed answers a framed operation with a result section.
func (c *conn) rejectFramed(h *wire.RequestHeader, code wire.ErrorCode) *Reply {
	r := newReply()
	r.cost = int(h.Size)
	r.frame = wire.AppendResultError(r.frame, code)
	rh := c.header(h)
	return r.finish(&rh)
}

// caughtUp waits until this node has applied what the connection was told (framing §6.1).
func (c *conn) caughtUp(position uint64) bool {
	if c.b.position() >= position {
		return true
	}
	ctx, cancel := context.WithTimeout(c.ctx, readWait)
	defer cancel()
	return c.b.cfg.MetadataGroup.WaitApplied(ctx, position) == nil
}
