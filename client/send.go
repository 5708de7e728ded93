package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// sendCall owns the memory of a Send.
type sendCall struct {
	write
	waiter
	builder wire.BatchBuilder
	c       *Client
}

func (s *sendCall) told(w *write, o outcome) {
	s.c.reportSend(w, &o)
	s.waiter.told(w, o)
}

func (c *Client) send(ctx context.Context, stream, topic wire.Identifier, p wire.Partitioning, msgs []Message) (Confirmation, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	if len(msgs) == 0 {
		return Confirmation{}, fmt.Errorf("send: %w", wire.ErrInvalidMessagesCount)
	}
	if p.Kind == wire.PartitioningMessagesKey && (len(p.Key) == 0 || len(p.Key) > 255) {
		return Confirmation{}, fmt.Errorf("send: messages key must have 1-255 bytes: %w", wire.ErrInvalidCommand)
	}
	s := &sendCall{c: c, waiter: waiter{done: make(chan struct{})}}
	now := nowMicros()
	for i := range msgs {
		m := &msgs[i]
		wm := wire.Message{ID: m.ID, OriginTimestamp: m.OriginTimestamp, Payload: m.Payload, Headers: m.Headers, HeadersBytes: m.HeadersBytes}
		if wm.OriginTimestamp == 0 {
			wm.OriginTimestamp = now
		}
		if err := s.builder.Add(&wm); err != nil {
			return Confirmation{}, fmt.Errorf("send: message %d: %w", i, err)
		}
	}
	bulk, err := s.builder.Finish()
	if err != nil {
		return Confirmation{}, fmt.Errorf("send: %w", err)
	}
	if limit := c.maxBatch(); len(bulk) > limit {
		return Confirmation{}, fmt.Errorf("send: batch of %d bytes, at most %d: %w", len(bulk), limit, ErrMessageTooLarge)
	}
	info, err := c.topics.get(ctx, stream, topic)
	if err != nil {
		return Confirmation{}, fmt.Errorf("send: topic %v of stream %v: %w", topic, stream, err)
	}
	if id, ok := p.Resolve(info.partitions, c.topics.cursor(stream, topic)); ok {
		p = wire.PartitionID(id)
	} else if info.readable {
		return Confirmation{}, fmt.Errorf("send: topic %v of stream %v: %w", topic, stream, wire.ErrNoPartitions)
	}
	req := wire.SendMessages{Stream: stream, Topic: topic, Partitioning: p, Batch: bulk}
	s.name, s.owner, s.messages = "SendMessages", s, len(msgs)
	s.op, s.inline, s.meta, s.bulk = wire.OpSendMessages, true, req.AppendPrefix(nil), bulk
	if err := c.await(ctx, info.sendKey(p), stream, topic, &s.write, &s.waiter); err != nil {
		return Confirmation{}, err
	}
	return s.result.confirmation, nil
}

// reportSend feeds the send hook.
func (c *Client) reportSend(w *write, o *outcome) {
	if len(c.h.send) == 0 {
		return
	}
	kind := "ok"
	switch {
	case o.err == nil && o.confirmation.Duplicate:
		kind = "duplicate"
	case o.err == nil:
	case errors.Is(o.err, ErrOutcomeUnknown):
		kind = "unknown"
	case errors.Is(o.err, ErrNotAdmitted):
		kind = "not_admitted"
	default:
		kind = "error"
	}
	c.h.onSend(kind, o.path, w.messages, len(w.bulk), time.Since(w.start))
}
