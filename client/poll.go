package client

import (
	"context"
	"fmt"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// poll does one poll. p's memory comes from the client's pool when views is set
// and is given back by p.Release. position is the metadata position that the
// messages are no newer than, 0 when it is not told.
func (c *Client) poll(ctx context.Context, r *PollRequest, views bool, p *Polled) (position uint64, err error) {
	start := time.Now()
	req := wire.PollMessages{
		Consumer: r.Consumer, Stream: r.Stream, Topic: r.Topic, Partition: wire.SomePartition(r.Partition),
		Strategy: r.Strategy, Count: r.Count, AutoCommit: r.AutoCommit,
	}
	if req.Consumer.Kind == 0 {
		req.Consumer = wire.SingleConsumer(wire.ID(0))
	}
	if req.Strategy.Kind == 0 {
		req.Strategy = wire.FromNext()
	}
	if req.Count == 0 {
		req.Count = defaultPollCount
	}
	got, err := c.pollReply(ctx, &req, views)
	if err == nil {
		p.buf = got.buf
		if err = p.Decode(got.payload); err != nil {
			p.Release()
			err = fmt.Errorf("poll: reply: %w: %w", wire.ErrInvalidFormat, err)
		}
	}
	c.h.onPoll(int(p.Count), len(p.Records), time.Since(start), err)
	return got.position, err
}

// pollReply polls: on the partition's primary for the session in a cluster, else
// over the session.
func (c *Client) pollReply(ctx context.Context, req *wire.PollMessages, views bool) (readReply, error) {
	q := call{op: wire.OpNonReplicated, code: wire.CodePollMessages, meta: req.Append(nil)}
	if views {
		q.pool = &c.buffers
	}
	if !c.router.on.Load() || c.router.noPrimaryPolls.Load() {
		return c.readCall(ctx, q, needSession, !req.AutoCommit)
	}
	m := readMode{code: wire.CodePollMessagesOnPrimary, body: q.meta, pool: q.pool, attached: true, once: req.AutoCommit}
	if !req.AutoCommit && req.Consumer.Kind == wire.ConsumerSingle {
		m.detachedCode = wire.CodePollMessages
	}
	got, err := c.readPrimary(ctx, c.partition(ctx, req.Stream, req.Topic, req.Partition.ID), m)
	if code := codeOf(err); code == wire.ErrFeatureUnavailable || code == wire.ErrInvalidCommand {
		// A server without the command, unless the session finds the request at fault too.
		got, err = c.readCall(ctx, q, needSession, !req.AutoCommit)
		if err == nil {
			c.router.noPrimaryPolls.Store(true)
		}
	}
	return got, err
}
