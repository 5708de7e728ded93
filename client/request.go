package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// sessionNeed says whether a request needs a signed-in session.
type sessionNeed bool

const (
	needSession sessionNeed = true
	anySession  sessionNeed = false
)

// read does a non-replicated request. It may be repeated without harm, so it is,
// on whatever link there is, until it has an answer or the time is over.
func (c *Client) read(ctx context.Context, req wire.Request, need sessionNeed) ([]byte, error) {
	got, err := c.readCall(ctx, call{op: wire.OpNonReplicated, code: req.Code(), meta: req.Append(nil)}, need, true)
	if err != nil {
		return nil, err
	}
	return got.payload, nil
}

// readReply is a whole successful reply.
type readReply struct {
	payload []byte
	buf     *buffer
	// position is the metadata position of the node that answered: what the reply
	// says is no newer. 0 = not told.
	position uint64
}

// readCall is read for an encoded request. With repeat unset it is not sent again
// once it may have been executed; the error is then ErrAutoCommitLost.
func (c *Client) readCall(ctx context.Context, req call, need sessionNeed, repeat bool) (readReply, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	req.deadline, _ = ctx.Deadline()
	refusals, renewed := 0, false
	var last error
	for {
		l, err := c.session.ready(ctx)
		if err != nil {
			return readReply{}, readError(req.code, err, last)
		}
		if need && l.session == 0 {
			return readReply{}, fmt.Errorf("%v: not signed in: %w", req.code, wire.ErrUnauthenticated)
		}
		got, err := l.roundTrip(ctx, req)
		if err != nil {
			if !repeat && got.wrote == wroteAll {
				return readReply{}, fmt.Errorf("%v: %w: %w", req.code, ErrAutoCommitLost, err)
			}
			if ctx.Err() != nil {
				return readReply{}, readError(req.code, context.Cause(ctx), last)
			}
			last = err
			<-l.done // the next link is published after this one has settled
			continue
		}
		payload, err := got.reply.Payload(got.body)
		if err == nil {
			return readReply{payload: payload, buf: got.buf, position: got.reply.Commit}, nil
		}
		last = err
		var code wire.ErrorCode
		if !errors.As(err, &code) {
			return readReply{}, fmt.Errorf("%v: reply: %w", req.code, err)
		}
		pause := time.Duration(0)
		switch classify(code) {
		case reactRetry:
			if refusals > 0 {
				pause = retryPause(refusals - 1)
			}
			refusals++
		case reactUnknown:
			if !repeat {
				return readReply{}, fmt.Errorf("%v: %w: %w", req.code, ErrAutoCommitLost, err)
			}
			pause = replayPause
		case reactReconnect:
			if renewed || l.session == 0 {
				return readReply{}, fmt.Errorf("%v: %w", req.code, err)
			}
			renewed = true
			c.session.renew(l, err)
			<-l.done
		default:
			return readReply{}, serverError(req.code, code)
		}
		if err := sleep(ctx, pause); err != nil {
			return readReply{}, readError(req.code, err, last)
		}
	}
}

// serverError wraps a code of the server; what is not there also matches
// ErrNotFound.
func serverError(what fmt.Stringer, code wire.ErrorCode) error {
	if isNotFound(code) {
		return fmt.Errorf("%v: %w: %w", what, ErrNotFound, code)
	}
	return fmt.Errorf("%v: %w", what, code)
}

func readError(code wire.Code, err, last error) error {
	return fmt.Errorf("%v: %w", code, joinCause(err, last))
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// waiter is the owner of a write that somebody waits for.
type waiter struct {
	done   chan struct{}
	result outcome // once done is closed
}

func (w *waiter) told(_ *write, o outcome) {
	w.result = o
	close(w.done)
}

func (w *waiter) released(*write) {}

// write does a replicated request through its lane. applied means that an earlier
// attempt was applied and that its reply is gone.
func (c *Client) write(ctx context.Context, key laneKey, req wire.Request) (payload []byte, applied bool, err error) {
	return c.writeAs(ctx, key, key.stream, key.topic, req)
}

// writeAs is write for a key that may spell the topic in another way than the
// request.
func (c *Client) writeAs(ctx context.Context, key laneKey, stream, topic wire.Identifier, req wire.Request) (payload []byte, applied bool, err error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	body := req.Append(nil)
	owner := &waiter{done: make(chan struct{})}
	w := &write{name: req.Code().String(), owner: owner}
	w.op, w.meta = wire.OperationFor(req.Code()), body
	if w.op.Stamped() {
		w.stamp = wire.BodyStamp(body)
	}
	if err := c.await(ctx, key, stream, topic, w, owner); err != nil {
		return nil, false, err
	}
	return owner.result.payload, owner.result.confirmation.Duplicate, nil
}

// await pushes a write and waits until owner, or who embeds it, has its outcome.
func (c *Client) await(ctx context.Context, key laneKey, stream, topic wire.Identifier, w *write, owner *waiter) error {
	ln, err := c.lane(key, stream, topic, false)
	if err != nil {
		return err
	}
	if l, _, _ := c.session.current(); l != nil && l.session == 0 {
		return fmt.Errorf("%s: not signed in: %w", w.name, wire.ErrUnauthenticated)
	}
	w.deadline, _ = ctx.Deadline()
	w.start = time.Now()
	if err := ln.push(w); err != nil {
		return err
	}
	select {
	case <-owner.done:
	case <-ctx.Done():
		err, told := ln.cancel(w, context.Cause(ctx))
		if !told {
			return err
		}
		<-owner.done // the outcome is on its way
	}
	return notFoundToo(owner.result.err)
}

// notFoundToo makes an error about something missing match ErrNotFound.
func notFoundToo(err error) error {
	if err != nil && isNotFound(err) && !errors.Is(err, ErrOutcomeUnknown) {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}
