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
	builder wire.BatchBuilder
	done    chan struct{}
	c       *Client
}

func (s *sendCall) told(w *write) {
	s.c.reportSend(w)
	close(s.done)
}

func (s *sendCall) released(*write) {}

func (c *Client) send(ctx context.Context, stream, topic wire.Identifier, p wire.Partitioning, msgs []Message) (Confirmation, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	if len(msgs) == 0 {
		return Confirmation{}, fmt.Errorf("send: %w", wire.ErrInvalidMessagesCount)
	}
	if p.Kind == wire.PartitioningMessagesKey && (len(p.Key) == 0 || len(p.Key) > 255) {
		return Confirmation{}, fmt.Errorf("send: messages key must have 1-255 bytes: %w", wire.ErrInvalidCommand)
	}
	s := &sendCall{c: c, done: make(chan struct{})}
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
	if limit := c.maxBatch(); int64(len(bulk)) > limit {
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
	if err := c.await(ctx, info.sendKey(p), stream, topic, &s.write, s.done); err != nil {
		return Confirmation{}, err
	}
	return s.confirmation, nil
}

// reportSend feeds the send hook.
func (c *Client) reportSend(w *write) {
	if len(c.h.send) == 0 {
		return
	}
	outcome := "ok"
	switch {
	case w.err == nil && w.confirmation.Duplicate:
		outcome = "duplicate"
	case w.err == nil:
	case errors.Is(w.err, ErrOutcomeUnknown):
		outcome = "unknown"
	case errors.Is(w.err, ErrNotAdmitted):
		outcome = "not_admitted"
	default:
		outcome = "error"
	}
	c.h.onSend(outcome, w.path(), w.messages, len(w.bulk), time.Since(w.start))
}
