package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// partition is the route of a partition, in the caller's spelling.
func (c *Client) partition(ctx context.Context, stream, topic wire.Identifier, partition uint32) *route {
	key := routeKey{stream: stream, topic: topic, partition: partition}
	if info, err := c.topics.get(ctx, stream, topic); err == nil {
		key.stream, key.topic, key.created = info.stream, info.topic, info.created
	}
	return c.router.routes.get(key, stream, topic)
}

// readMode is a read of a partition.
type readMode struct {
	code wire.Code
	body []byte
	pool *bufferPool
	// attached: it is done for the session, over a link that is attached to it.
	// detachedCode, when it is set, does the same without, while there is no session.
	attached     bool
	detachedCode wire.Code
	// once: it is not sent again once its bytes left.
	once bool
}

// readPrimary does a non-replicated request on the primary of a partition and goes
// after it when it moves. Unless it may be done once only it is repeated until it
// has an answer or the time is over.
func (c *Client) readPrimary(ctx context.Context, rt *route, m readMode) (readReply, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	deadline, _ := ctx.Deadline()
	w := want{since: time.Now(), deadline: deadline}
	a := attempts{}
	for {
		l, code, err := c.readLink(ctx, rt, w, &m)
		if err != nil {
			return readReply{}, readError(m.code, err, a.last)
		}
		actx, stop := context.WithTimeout(ctx, c.o.AttemptTimeout+time.Second)
		got, err := l.roundTrip(actx, call{op: wire.OpNonReplicated, code: code, meta: m.body, pool: m.pool, deadline: deadline})
		stop()
		if err != nil {
			if m.once && got.wrote == wroteAll {
				return readReply{}, fmt.Errorf("%v: %w: %w", m.code, ErrAutoCommitLost, err)
			}
			if ctx.Err() != nil {
				return readReply{}, readError(m.code, context.Cause(ctx), a.last)
			}
			a.last = err
			if l.usable() { // it says nothing: perhaps another node leads
				rt.update(func(k *routeCore, now time.Time) { k.refused(l.node, now) })
			}
			continue
		}
		payload, err := got.reply.Payload(got.body)
		if err == nil {
			if !rt.sure.Load() && code == wire.CodePollMessagesOnPrimary {
				rt.update(func(k *routeCore, now time.Time) { k.admitted(l.node, now) })
			}
			return readReply{payload: payload, buf: got.buf, position: got.reply.Commit}, nil
		}
		pause, err := c.readRefused(&a, rt, l, &m, err)
		if err != nil {
			return readReply{}, err
		}
		if err := sleep(ctx, pause); err != nil {
			return readReply{}, readError(m.code, err, a.last)
		}
	}
}

// attempts is what happened to a read so far.
type attempts struct {
	refusals  int
	renewed   int
	refreshed bool
	last      error
}

// readRefused decides what a refusal means: how long to wait before the next
// attempt, or the error.
func (c *Client) readRefused(a *attempts, rt *route, l *link, m *readMode, err error) (pause time.Duration, fatal error) {
	a.last = err
	var code wire.ErrorCode
	if !errors.As(err, &code) {
		return 0, fmt.Errorf("%v: reply: %w", m.code, err)
	}
	switch classify(code) {
	case reactRetry:
		c.h.onRefusal(l.address, uint32(code))
		rt.update(func(k *routeCore, now time.Time) { k.refused(l.node, now) })
		if a.refusals > 0 {
			pause = retryPause(a.refusals - 1)
		}
		a.refusals++
		return pause, nil
	case reactUnknown:
		if m.once {
			return 0, fmt.Errorf("%v: %w: %w", m.code, ErrAutoCommitLost, err)
		}
		return replayPause, nil
	case reactReconnect:
		if a.renewed++; a.renewed > 2 {
			return 0, fmt.Errorf("%v: %w", m.code, err)
		}
		l.node.slots[classRead].reattach(l)
		return 0, nil
	case reactRefresh:
		if a.refreshed {
			return 0, serverError(m.code, code)
		}
		// The node may lag behind what the session has seen.
		a.refreshed = true
		c.topics.invalidate(rt.stream, rt.topic)
		raise(&rt.need, c.session.watermark.Load())
		return 0, nil
	}
	return 0, serverError(m.code, code)
}

// readLink waits for the link to read a partition on, and gives the command to use
// on it.
func (c *Client) readLink(ctx context.Context, rt *route, w want, m *readMode) (*link, wire.Code, error) {
	for {
		if c.ctx.Err() != nil {
			return nil, 0, ErrClosed
		}
		n := rt.at.Load()
		down := n != nil && n.slots[classRead].down()
		var moved <-chan struct{}
		if n == nil || down {
			var err error
			if n, moved, err = rt.current(down, w); err != nil {
				return nil, 0, notFoundToo(err)
			}
		}
		var changed <-chan struct{}
		if n != nil {
			s := n.slots[classRead]
			l, ch, err := s.current(rt.need.Load())
			if l != nil {
				return l, m.code, nil
			}
			if l := s.peek(); l != nil && (!m.attached || m.detachedCode != 0 && c.router.coordinator() == nil) {
				if m.attached {
					return l, m.detachedCode, nil
				}
				return l, m.code, nil
			}
			if err != nil {
				return nil, 0, err
			}
			changed = ch
		}
		if moved == nil {
			rt.mu.Lock()
			moved = rt.changed
			again := rt.core.node != n
			rt.mu.Unlock()
			if again {
				continue
			}
		}
		select {
		case <-changed:
		case <-moved:
		case <-c.ctx.Done():
			return nil, 0, ErrClosed
		case <-ctx.Done():
			return nil, 0, context.Cause(ctx)
		}
	}
}
