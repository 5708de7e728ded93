package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/whippetmq/whippet/internal/cluster"
	"github.com/whippetmq/whippet/internal/metadata"
	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/wire"
)

var le = binary.LittleEndian

// isCommand reports whether an operation belongs to the metadata group.
func isCommand(op wire.Operation) bool {
	switch op {
	case wire.OpRegister, wire.OpLogout, metadata.OpBootstrap, metadata.OpNodeStarted, metadata.OpSetPreferred:
		return true
	}
	return op.Metadata() || op == wire.OpDeleteSegments
}

// Commit has a command committed by the metadata group, wherever its leader is,
// and waits for the outcome; while there is no leader it waits for one. When ctx
// ends first the result is 58 if the command was never taken, else 57. Done of
// the command is not used; its body must not change until Commit has returned
// and, when the result is 57, not after either.
func (b *Broker) Commit(ctx context.Context, cmd *metadata.Command) metadata.Result {
	var w way
	for {
		st := b.cfg.MetadataGroup.Status()
		node := w.next(st.Leader, st.Term)
		var res metadata.Result
		switch {
		case node == b.self() || !b.clustered():
			res = b.commitHere(ctx, cmd)
			if !errors.Is(res.Err, replica.ErrNotAdmitted) || !b.clustered() {
				return res
			}
		case node != 0 && b.cfg.Peers.Up(node):
			reply, err := b.ask(ctx, node, commandRequest(cmd), func() bool {
				st := b.cfg.MetadataGroup.Status()
				return st.Term > w.term && st.Leader != 0 && st.Leader != node
			})
			switch code := callCode(reply, err); code {
			case 0:
				if res, err = decodeResult(reply); err != nil {
					return metadata.Result{Err: wire.ErrTransientNotCommitted, ReplyOperation: cmd.Operation}
				}
				return res
			case wire.ErrTransientNotAccepted:
				if err == nil && w.learn(reply.Hint(), node) {
					continue
				}
			default:
				return metadata.Result{Err: code, ReplyOperation: cmd.Operation}
			}
		}
		if !w.pause(ctx) {
			return metadata.Result{Err: replica.ErrNotAdmitted, ReplyOperation: cmd.Operation}
		}
	}
}

// commitHere commits on this node.
func (b *Broker) commitHere(ctx context.Context, cmd *metadata.Command) metadata.Result {
	done := make(chan metadata.Result, 1)
	own := &metadata.Command{
		Client: cmd.Client, Session: cmd.Session, Request: cmd.Request, Stamp: cmd.Stamp, User: cmd.User, Node: cmd.Node, Operation: cmd.Operation,
		Body: cmd.Body, Secret: cmd.Secret, Now: b.cfg.Clock.Now(), Done: func(res metadata.Result) { done <- res },
	}
	if err := b.submit(ctx, b.cfg.MetadataGroup, own); err != nil {
		if errors.Is(err, wire.ErrTransientNotAccepted) {
			err = replica.ErrNotAdmitted
		}
		return metadata.Result{Err: err, ReplyOperation: cmd.Operation}
	}
	select {
	case res := <-done:
		return res
	case <-ctx.Done():
		return metadata.Result{Err: wire.ErrTransientNotCommitted, ReplyOperation: cmd.Operation}
	}
}

// What a command carries to the metadata leader in front of its body: stamp 16,
// node u8, flags u8 (1 = verified), revision u64, hash length u32 and hash.
const commandPrefix = 30

func commandRequest(cmd *metadata.Command) *cluster.Request {
	body := make([]byte, 0, commandPrefix+len(cmd.Secret.Hash)+len(cmd.Body))
	body = wire.AppendU128(body, cmd.Stamp)
	flags := byte(0)
	if cmd.Secret.Verified {
		flags = 1
	}
	body = append(body, cmd.Node, flags)
	body = le.AppendUint64(body, cmd.Secret.Revision)
	body = le.AppendUint32(body, uint32(len(cmd.Secret.Hash)))
	body = append(append(body, cmd.Secret.Hash...), cmd.Body...)
	return &cluster.Request{
		Operation: cmd.Operation, Client: cmd.Client, User: cmd.User, Session: cmd.Session, Request: cmd.Request, Group: replica.MetadataGroup, Body: body,
	}
}

func commandOf(r *cluster.Request) (*metadata.Command, bool) {
	b := r.Body
	if len(b) < commandPrefix || uint64(le.Uint32(b[26:])) > uint64(len(b)-commandPrefix) {
		return nil, false
	}
	n := le.Uint32(b[26:])
	return &metadata.Command{
		Client: r.Client, Session: r.Session, Request: r.Request, User: r.User, Operation: r.Operation,
		Stamp: wire.GetU128(b), Node: b[16],
		Secret: metadata.Secret{Verified: b[17]&1 != 0, Revision: le.Uint64(b[18:]), Hash: string(b[commandPrefix : commandPrefix+n])},
		Body:   b[commandPrefix+n:],
	}, true
}

// serveCommand commits a command of another node.
func (b *Broker) serveCommand(ctx context.Context, r *cluster.Request, answer func(*cluster.Reply)) {
	g := b.cfg.MetadataGroup
	st := g.Status()
	if st.Leader == b.self() && !st.Ready {
		_ = g.WaitReady(ctx) // the state is looked at again
		st = g.Status()
	}
	if st.Leader != b.self() || !st.Ready {
		answer(cluster.Refusal(cluster.Hint{Leader: st.Leader, Term: st.Term}))
		return
	}
	cmd, ok := commandOf(r)
	if !ok {
		answer(&cluster.Reply{Status: wire.ErrInvalidCommand})
		return
	}
	cmd.Now = b.cfg.Clock.Now()
	cmd.Done = func(res metadata.Result) {
		if errors.Is(res.Err, replica.ErrNotAdmitted) {
			answer(refusal(g, wire.ErrTransientNotAccepted))
			return
		}
		answer(encodeResult(&res, g.Status().Term))
	}
	if err := b.submit(ctx, g, cmd); err != nil {
		answer(refusal(g, wire.StatusOf(err)))
	}
}

// How a result failed.
const (
	resultOK       = 0
	resultRejected = 1 // code of the result section
	resultStatus   = 2 // code of the status field
	resultEvicted  = 3 // reason of an eviction
)

// resultHeader is kind u8, reply operation u8, code u32, session u64, user u32.
const resultHeader = 18

func encodeResult(res *metadata.Result, term uint64) *cluster.Reply {
	kind, code := byte(resultOK), uint32(res.Code())
	var (
		status *metadata.StatusError
		ev     *metadata.EvictionError
	)
	switch {
	case errors.As(res.Err, &ev):
		kind, code = resultEvicted, uint32(ev.Reason)
	case errors.As(res.Err, &status):
		kind = resultStatus
	case res.Err != nil:
		kind = resultRejected
	}
	b := append(make([]byte, 0, resultHeader+len(res.Payload)), kind, byte(res.ReplyOperation))
	b = le.AppendUint32(b, code)
	b = le.AppendUint64(b, res.Session)
	b = le.AppendUint32(b, res.User)
	return &cluster.Reply{Op: res.Index, Commit: res.Index, Timestamp: res.Timestamp, View: uint32(term), Payload: append(b, res.Payload...)}
}

func decodeResult(r *cluster.Reply) (metadata.Result, error) {
	b := r.Payload
	if len(b) < resultHeader {
		return metadata.Result{}, fmt.Errorf("result of %d bytes", len(b))
	}
	code := le.Uint32(b[2:])
	res := metadata.Result{
		Index: r.Op, Timestamp: r.Timestamp, ReplyOperation: wire.Operation(b[1]), Session: le.Uint64(b[6:]), User: le.Uint32(b[14:]), Payload: b[resultHeader:],
	}
	switch b[0] {
	case resultOK:
	case resultRejected:
		res.Err = wire.ErrorCode(code)
	case resultStatus:
		res.Err = &metadata.StatusError{Code: wire.ErrorCode(code)}
	case resultEvicted:
		res.Err = &metadata.EvictionError{Reason: wire.EvictionReason(code)}
	default:
		return res, fmt.Errorf("result of kind %d", b[0])
	}
	return res, nil
}

// commit commits a session operation of the connection: 58 when it was not
// taken, 57 when it took too long.
func (c *conn) commit(cmd *metadata.Command) (metadata.Result, error) {
	cmd.Node = c.b.cfg.Replica
	ctx, cancel := context.WithTimeout(c.ctx, commitWait)
	defer cancel()
	res := c.b.Commit(ctx, cmd)
	switch {
	case errors.Is(res.Err, replica.ErrNotAdmitted):
		return res, wire.ErrTransientNotAccepted
	case errors.Is(res.Err, replica.ErrOutcomeUnknown):
		return res, wire.ErrTransientNotCommitted
	}
	return res, nil
}

// logoutLater ends a session whose connection is gone. When it cannot be
// committed now, the session stays until it is the oldest of a full table.
func (b *Broker) logoutLater(bound *binding) {
	cmd := &metadata.Command{
		Client: bound.client, Session: bound.session, Request: metadata.LogoutAtDisconnect, User: bound.user,
		Node: b.cfg.Replica, Operation: wire.OpLogout, Now: b.cfg.Clock.Now(),
	}
	failed := func(err error) {
		b.cfg.Logger.Debug("session of a closed connection not logged out", "client", bound.client.Hex(), "error", err)
	}
	if st := b.cfg.MetadataGroup.Status(); !b.clustered() || st.Leader == b.self() && st.Ready {
		cmd.Done = func(res metadata.Result) {
			if res.Err != nil {
				failed(res.Err)
			}
		}
		if err := b.submit(b.ctx, b.cfg.MetadataGroup, cmd); err != nil {
			failed(err)
		}
		return
	}
	if !b.leaving.enter() {
		return
	}
	if !b.spawn(func() {
		defer b.leaving.leave()
		ctx, cancel := context.WithTimeout(b.ctx, commitWait)
		defer cancel()
		if res := b.Commit(ctx, cmd); res.Err != nil {
			failed(res.Err)
		}
	}) {
		b.leaving.leave()
	}
}

// leaving counts the logouts on their way to the metadata leader, so that a node
// that stops waits for them a little.
type leaving struct {
	slots chan struct{}
}

func newLeaving() leaving { return leaving{slots: make(chan struct{}, maxLeaving)} }

// maxLeaving bounds them; sessions that find no room stay in the table.
const maxLeaving = 1024

func (l *leaving) enter() bool {
	select {
	case l.slots <- struct{}{}:
		return true
	default:
		return false
	}
}

func (l *leaving) leave() { <-l.slots }

// wait waits until all have ended, at most for the given time.
func (l *leaving) wait(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for range cap(l.slots) {
		select {
		case l.slots <- struct{}{}:
		case <-timer.C:
			return
		}
	}
}
