package broker

import (
	"bytes"
	"context"
	"errors"

	"github.com/whippetmq/whippet/internal/metadata"
	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/wire"
)

// change proposes a metadata operation. The answer comes when it is committed.
// Rights are checked where it is applied: a denial is committed (security.md §4).
//
// In a cluster an operation goes to the metadata leader and waits while there is
// none, so that a session need not sit on the leader's node; without forwarding
// it is refused (58) as a released server does, and the client goes to the leader.
func (c *conn) change(h *wire.RequestHeader, bound *binding, body *Buffer) *Reply {
	if err := metadata.Validate(h.Operation, body.Bytes()); err != nil {
		body.Release()
		return c.refuse(h, err)
	}
	rh := h.Reply()
	cost := int(h.Size)
	cmd := &metadata.Command{
		Client: bound.client, Session: bound.session, Request: h.Request, Stamp: h.RequestChecksum, User: bound.user,
		Node: c.b.cfg.Replica, Operation: h.Operation, Body: body.Bytes(), Now: c.b.cfg.Clock.Now(),
		Released: body.Release,
	}
	answer := func(res metadata.Result) { c.sink.Reply(c.changed(&rh, cost, bound, &res)) }
	cmd.Done = answer
	if c.b.clustered() {
		// The bytes are needed until the outcome is known, wherever that is decided.
		cmd.Body = bytes.Clone(body.Bytes())
		cmd.Released = nil
		body.Release()
		body = nil
		if c.b.cfg.Forwarding {
			cmd.Done = func(res metadata.Result) {
				if !errors.Is(res.Err, replica.ErrNotAdmitted) || !c.b.commitLater(cmd, answer) {
					answer(res)
				}
			}
			if c.b.cfg.MetadataGroup.Status().Leader != c.b.self() && c.b.commitLater(cmd, answer) {
				return nil
			}
		}
	}
	if err := c.b.submit(c.ctx, c.b.cfg.MetadataGroup, cmd); err != nil {
		body.Release()
		code := wire.StatusOf(err)
		if code == wire.ErrCannotAppendMessage {
			code = wire.ErrCannotWriteToFile
		}
		if !h.Operation.Framed() {
			return c.deny(h, code)
		}
		return c.rejectFramed(h, code)
	}
	return nil
}

// commitLater commits a command wherever the leader is, on a goroutine of its
// own; false = the broker closes.
func (b *Broker) commitLater(cmd *metadata.Command, done func(metadata.Result)) bool {
	return b.spawn(func() {
		ctx, cancel := context.WithTimeout(b.ctx, commitWait)
		defer cancel()
		done(b.Commit(ctx, cmd))
	})
}

// changed builds the answer to a metadata operation. It runs on the group's goroutine or on one of the broker's.
func (c *conn) changed(rh *wire.ReplyHeader, cost int, bound *binding, res *metadata.Result) *Reply {
	if reason := evicted(res.Err); reason != 0 {
		r := eviction(bound.client, reason)
		r.cost = cost
		return r
	}
	r := newReply()
	r.cost = cost
	rh.Op, rh.Commit = bound.session, c.b.position()
	if res.Index != 0 {
		st := c.b.cfg.MetadataGroup.Status()
		rh.Cluster, rh.View, rh.Replica = c.b.cfg.ClusterID, uint32(st.Term), c.b.cfg.Replica
		rh.Op, rh.Commit, rh.Timestamp = res.Index, res.Index, res.Timestamp
	}
	if res.ReplyOperation != 0 {
		rh.Operation = res.ReplyOperation
	}
	c.raise(rh.Commit)
	code := res.Code()
	var status *metadata.StatusError
	switch {
	case code == 0:
		if rh.Operation.Framed() {
			r.frame = wire.AppendResultOK(r.frame)
		}
		r.frame = append(r.frame, res.Payload...)
	case errors.As(res.Err, &status) || !rh.Operation.Framed():
		rh.Status = code
	default:
		r.frame = wire.AppendResultError(r.frame, code)
	}
	return r.finish(rh)
}
