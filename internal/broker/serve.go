package broker

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/internal/cluster"
	"github.com/whippetmq/whippet/internal/partition"
	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/wire"
)

// Bounds of what other nodes may have served at a time; more is not taken, which
// they know, and wait.
const (
	maxServed      = 1 << 14
	maxServedBytes = 256 << 20
)

// serving are the books of what is served for other nodes.
type serving struct{ requests, bytes atomic.Int64 }

// Serve implements cluster.Server.
func (b *Broker) Serve(_ uint64, r *cluster.Request, answer func(*cluster.Reply)) {
	size := int64(len(r.Body))
	requests, bytes := b.serving.requests.Add(1), b.serving.bytes.Add(size)
	answered := func(reply *cluster.Reply) {
		b.serving.requests.Add(-1)
		b.serving.bytes.Add(-size)
		answer(reply)
	}
	if requests > maxServed || requests > 1 && bytes > maxServedBytes {
		b.counters.NotTaken.Add(1)
		answered(nil)
		return
	}
	b.counters.Served.Add(1)
	// A goroutine each: it may wait, and checks checksums, and others must not wait for it.
	if !b.spawn(func() { b.serve(r, answered) }) {
		answered(nil)
	}
}

func (b *Broker) serve(r *cluster.Request, answer func(*cluster.Reply)) {
	ctx, cancel := context.WithTimeout(b.ctx, min(max(r.Wait, 0), commitWait))
	defer cancel()
	switch {
	case r.Operation == wire.OpSendMessages:
		b.serveSend(ctx, r, answer)
	case r.Operation == wire.OpStoreConsumerOffset, r.Operation == wire.OpDeleteConsumerOffset,
		r.Operation == wire.OpNonReplicated && r.Code == wire.CodePollMessages:
		b.serveClient(ctx, r, answer)
	case r.Operation == wire.OpNonReplicated && r.Code == cluster.CodeCommitted:
		answer(b.serveCommitted(ctx, r))
	case r.Operation == wire.OpNonReplicated && r.Code == cluster.CodeTransfer:
		answer(b.serveTransfer(ctx, r))
	case r.Operation == wire.OpNonReplicated && r.Code == cluster.CodeGroups:
		answer(&cluster.Reply{Payload: cluster.AppendReports(nil, b.reports(ctx))})
	case isCommand(r.Operation):
		b.serveCommand(ctx, r, answer)
	default:
		answer(&cluster.Reply{Status: wire.ErrInvalidCommand})
	}
}

// led finds the partition of a request, when this node leads it; else the reply
// that refuses the request.
func (b *Broker) led(ctx context.Context, r *cluster.Request) (*Partition, *cluster.Reply) {
	if b.position() < r.Position {
		wait, cancel := context.WithTimeout(ctx, readWait)
		err := b.cfg.MetadataGroup.WaitApplied(wait, r.Position)
		cancel()
		if err != nil {
			return nil, cluster.Refusal(cluster.Hint{})
		}
	}
	part := b.cfg.Partitions.find(r.Group)
	switch {
	case part == nil:
		return nil, &cluster.Reply{Status: wire.ErrResourceNotFound} // deleted meanwhile
	case !part.wait(ctx, partitionWait):
		return nil, cluster.Refusal(cluster.Hint{})
	}
	st := part.group.Status()
	if st.Leader == b.self() && !st.Ready {
		// It has just been elected.
		_ = part.group.WaitReady(ctx) // the state is looked at again
		st = part.group.Status()
	}
	if st.Leader != b.self() || !st.Ready {
		return nil, cluster.Refusal(cluster.Hint{Leader: st.Leader, Term: st.Term})
	}
	return part, nil
}

// refusal is the reply with a code of a partition: with the hint when it is 58.
func refusal(g *replica.Group, code wire.ErrorCode) *cluster.Reply {
	if code != wire.ErrTransientNotAccepted {
		return &cluster.Reply{Status: code}
	}
	st := g.Status()
	return cluster.Refusal(cluster.Hint{Leader: st.Leader, Term: st.Term})
}

// serveSend appends a batch that another node forwards. Its sender has one of a
// lane on its way at a time, so there is no order to keep here.
func (b *Broker) serveSend(ctx context.Context, r *cluster.Request, answer func(*cluster.Reply)) {
	part, refused := b.led(ctx, r)
	if refused != nil {
		answer(refused)
		return
	}
	var m wire.SendMessages
	if err := m.Decode(r.Body); err != nil {
		answer(&cluster.Reply{Status: wire.ErrInvalidCommand})
		return
	}
	s := &partition.Send{Client: r.Client, User: r.User, Request: r.Request, Batch: m.Batch}
	if err := s.Verify(); err != nil {
		answer(&cluster.Reply{Status: wire.StatusOf(err)})
		return
	}
	s.Done = func(s *partition.Send) {
		if code := partition.StatusOf(s.Err); code != 0 {
			answer(refusal(part.group, code))
			return
		}
		reply := &cluster.Reply{Op: s.Index, Commit: s.Index, Timestamp: s.Timestamp, View: uint32(s.Term)}
		if !s.NoPosition {
			reply.Payload = part.confirm(nil, s.BaseOffset)
		}
		answer(reply)
	}
	if err := b.submit(ctx, part.group, s); err != nil {
		answer(refusal(part.group, wire.StatusOf(err)))
	}
}

// serveClient serves an offset write or a poll of a client of another node, as
// if the client were connected here.
func (b *Broker) serveClient(ctx context.Context, r *cluster.Request, answer func(*cluster.Reply)) {
	part, refused := b.led(ctx, r)
	if refused != nil {
		answer(refused)
		return
	}
	c := &conn{b: b, ctx: ctx, sink: &hopSink{part: part, answer: answer}, hop: true, hopPart: part}
	bound := &binding{client: r.Client, session: r.Session, user: r.User}
	c.bound.Store(bound)
	h := &wire.RequestHeader{
		Size: uint32(wire.HeaderSize + len(r.Body)), Kind: wire.FrameRequest, Client: r.Client, Request: r.Request, Operation: r.Operation, Session: r.Session,
		Code: r.Code,
	}
	var reply *Reply
	if r.Operation == wire.OpNonReplicated {
		reply = c.poll(h, bound, r.Body, false)
	} else {
		reply = c.writeOffset(h, bound, r.Body)
	}
	if reply != nil {
		c.sink.Reply(reply)
	}
}

// hopSink takes the reply to a client of another node.
type hopSink struct {
	part   *Partition
	answer func(*cluster.Reply)
}

// Hold implements Sink.
func (s *hopSink) Hold(bool) {}

// Reply implements Sink.
func (s *hopSink) Reply(r *Reply) {
	segments := r.Segments(nil)
	var rh wire.ReplyHeader
	if err := rh.Decode(segments[0]); err != nil {
		r.Release()
		s.answer(&cluster.Reply{Status: wire.ErrTransientNotCommitted}) // not reachable: it was written here
		return
	}
	if rh.Status != 0 {
		r.Release()
		s.answer(refusal(s.part.group, rh.Status))
		return
	}
	reply := &cluster.Reply{Op: rh.Op, Commit: rh.Commit, Timestamp: rh.Timestamp, View: rh.View, Payload: make([]byte, 0, r.Size()-wire.HeaderSize)}
	reply.Payload = append(reply.Payload, segments[0][wire.HeaderSize:]...)
	for _, seg := range segments[1:] {
		reply.Payload = append(reply.Payload, seg...)
	}
	reply.Written = r.passOn()
	r.Release()
	s.answer(reply)
}

// Close implements Sink.
func (s *hopSink) Close() {}

// serveCommitted tells a follower what is committed here.
func (b *Broker) serveCommitted(ctx context.Context, r *cluster.Request) *cluster.Reply {
	part, refused := b.led(ctx, r)
	if refused != nil {
		return refused
	}
	if err := part.group.ReadBarrier(ctx); err != nil {
		return refusal(part.group, wire.ErrTransientNotAccepted)
	}
	return &cluster.Reply{Commit: part.group.Status().Commit}
}

// committed asks the primary of a partition that is elsewhere for its commit
// index and waits until it is applied here (decisions 8). False = there is no
// primary, or it did not answer: what is here has to do.
func (b *Broker) committed(ctx context.Context, part *Partition) bool {
	ctx, cancel := context.WithTimeout(ctx, followWait)
	defer cancel()
	if part.group.Status().Leader == 0 && part.group.WaitReady(ctx) != nil {
		return false // this node has just started, or there is no quorum
	}
	index, ok := part.fold.join(ctx, b, part)
	return ok && part.group.WaitApplied(ctx, index) == nil
}

// followWait bounds the wait of a read for the primary.
const followWait = time.Second
