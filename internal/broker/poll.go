package broker

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/whippetmq/whippet/internal/metadata"
	"github.com/whippetmq/whippet/internal/partition"
	"github.com/whippetmq/whippet/wire"
)

// fence is what a consumer group's assignment says of a member's access to a
// partition (messages §7.3).
type fence uint8

const (
	owned   fence = iota
	pending       // owned, and on its way to another member: may commit, may not poll
	refused       // not a member, or not the owner
)

// groupFence looks a member up.
func groupFence(g *metadata.Group, client wire.U128, partition uint32) fence {
	if g == nil {
		return refused
	}
	for _, m := range g.Members {
		if m == nil || m.Client != client || !slices.Contains(m.Partitions, partition) {
			continue
		}
		if slices.ContainsFunc(m.Revocations, func(r metadata.Revocation) bool { return r.Partition == partition }) {
			return pending
		}
		return owned
	}
	return refused
}

// target is a resolved consumer and partition.
type target struct {
	part  *Partition
	kind  wire.ConsumerKind
	key   uint32
	fence fence
}

// errors of resolve.
var (
	errNoStream    = wire.ErrStreamIdNotFound
	errNoTopic     = wire.ErrTopicIdNotFound
	errNoPartition = wire.ErrPartitionNotFound
)

// resolve finds the partition and the consumer of a poll or an offset command
// and checks the right: a missing stream or topic shows before it, a missing
// partition after it (observed 15). group is whose membership counts.
func (c *conn) resolve(user uint32, member wire.U128, rule metadata.Rule, cons wire.Consumer, stream, topic wire.Identifier, id uint32) (t target, err error) {
	cat := c.b.cfg.Metadata.Catalog()
	if c.hop {
		return c.resolveHop(cat, member, cons)
	}
	s, top := cat.Topic(stream, topic)
	switch {
	case s == nil:
		return t, errNoStream
	case top == nil:
		return t, errNoTopic
	case !cat.Allows(user, rule, top.Stream, top.ID),
		cons.Kind == wire.ConsumerGroup && rule == metadata.RulePollRouting && !cat.Allows(user, metadata.RulePoll, top.Stream, top.ID):
		return t, wire.ErrUnauthorized
	}
	mp, ok := top.Partition(id)
	if !ok {
		return t, errNoPartition
	}
	t.part = c.b.cfg.Partitions.get(top, mp)
	t.consumer(top, cons, member)
	return t, nil
}

// consumer fills in who reads.
func (t *target) consumer(top *metadata.Topic, cons wire.Consumer, member wire.U128) {
	t.kind = cons.Kind
	if cons.Kind == wire.ConsumerSingle {
		t.key, _ = cons.OffsetKey()
		return
	}
	g := top.Group(cons.ID)
	t.fence = groupFence(g, member, t.part.ID)
	if g != nil {
		t.key = g.ID
	}
}

// resolveHop is resolve for a request of another node, which has authorised it and named the partition.
func (c *conn) resolveHop(cat *metadata.Catalog, member wire.U128, cons wire.Consumer) (target, error) {
	t := target{part: c.hopPart}
	s := cat.StreamByID(t.part.Stream)
	if s == nil {
		return t, errNoStream
	}
	top := s.TopicByID(t.part.Topic)
	if top == nil {
		return t, errNoTopic
	}
	if mp, ok := top.Partition(t.part.ID); !ok || mp.Group() != t.part.Group {
		return t, errNoPartition
	}
	t.consumer(top, cons, member)
	return t, nil
}

// poll answers 100 and 104 (commands §3.9).
func (c *conn) poll(h *wire.RequestHeader, bound *binding, body []byte, onPrimary bool) *Reply {
	q := &c.pollBody
	if q.Decode(body) != nil {
		return c.deny(h, wire.ErrInvalidCommand)
	}
	member := bound.client
	if onPrimary {
		code := c.attachment(bound)
		if code != 0 {
			return c.deny(h, code)
		}
		member = c.attached.ClientID
	}
	if q.Consumer.Kind == wire.ConsumerGroup && !q.Partition.Given {
		return c.deny(h, wire.ErrInvalidIdentifier)
	}
	t, err := c.resolve(bound.user, member, metadata.RulePoll, q.Consumer, q.Stream, q.Topic, q.Partition.ID)
	if err != nil {
		return c.deny(h, wire.StatusOf(err))
	}
	if t.kind == wire.ConsumerGroup && t.fence != owned {
		return c.emptyPoll(h, wire.PollResync, 0)
	}
	if !t.part.wait(c.ctx, pollWait) {
		return c.unreadable(h, t.part, !onPrimary && !q.AutoCommit)
	}
	if (onPrimary || q.AutoCommit) && !c.leads(t.part) {
		if onPrimary || !c.holds() {
			return c.deny(h, wire.ErrTransientNotAccepted)
		}
		// What comes back takes memory here, too: the primary is told how much it may be.
		room := c.reserve(min(c.maxPoll(), pollOwn))
		if room == 0 {
			return c.deny(h, wire.ErrTransientNotAccepted)
		}
		r, here := c.forward(h, bound, t.part, le.AppendUint32(q.Append(nil), uint32(room)))
		if !here {
			c.charge(r, room)
			return r
		}
		c.b.polls.give(&c.polled, int64(room))
		if !c.leads(t.part) {
			return c.deny(h, wire.ErrTransientNotAccepted)
		}
	}
	if c.follows(t.part) && q.Strategy.Kind == wire.StrategyLast {
		c.b.committed(c.ctx, t.part)
	}
	limit := c.maxPoll()
	if c.hop {
		limit = min(limit, hopLimit(q, body))
	}
	room := c.reserve(limit)
	if room == 0 {
		return c.deny(h, wire.ErrTransientNotAccepted)
	}
	r := newReply()
	r.cost = int(h.Size)
	r.polled = true
	query := partition.PollQuery{
		Strategy: q.Strategy, Count: q.Count, MaxBytes: room, Kind: t.kind, Key: t.key,
	}
	err = t.part.machine.Poll(query, &r.poll)
	if err == nil && q.Count > r.poll.Count && c.follows(t.part) && atEnd(&r.poll) && c.b.committed(c.ctx, t.part) {
		// The end of the local log may not be the end (decisions 8).
		err = t.part.machine.Poll(query, &r.poll)
	}
	c.charge(r, room)
	if err != nil {
		r.Release()
		if errors.Is(err, partition.ErrClosed) {
			return c.emptyPoll(h, t.part.ID, 0)
		}
		c.b.cfg.Logger.Error("poll failed", "stream", t.part.Stream, "topic", t.part.Topic, "partition", t.part.ID, "error", err)
		return c.deny(h, wire.ErrCannotReadMessage)
	}
	r.frame = wire.AppendPollPrefix(r.frame, t.part.ID, r.poll.CurrentOffset, r.poll.Count)
	rh := c.header(h)
	r.finish(&rh)
	if q.AutoCommit && r.poll.Count > 0 {
		return c.autoCommit(h, bound, t, r, rh)
	}
	return r
}

// unreadable answers a poll of a partition that has no log to read. One that cannot answer yet has nothing to show
// (commands §3.9), if the poll may be empty; one that could not be started has, and must not look as if it had not.
func (c *conn) unreadable(h *wire.RequestHeader, part *Partition, empty bool) *Reply {
	switch {
	case part.failed() && !c.b.clustered():
		return c.deny(h, wire.ErrCannotReadMessage)
	case part.failed(), !empty:
		return c.deny(h, wire.ErrTransientNotAccepted) // another node may have it
	}
	return c.emptyPoll(h, part.ID, 0)
}

// maxPoll is the most that the records of one reply may take.
func (c *conn) maxPoll() int { return c.b.cfg.MaxFrame - wire.HeaderSize - wire.PollReplyPrefix }

// hopLimit is the u32 behind a forwarded poll: the room for records on the node
// that forwards it. Without one there is no limit.
func hopLimit(q *wire.PollMessages, body []byte) int {
	n := len(q.Append(nil))
	if len(body) != n+4 {
		return math.MaxInt32
	}
	return max(1, int(min(le.Uint32(body[n:]), math.MaxInt32)))
}

// leads reports whether this node leads a partition, with proof.
func (c *conn) leads(part *Partition) bool {
	if !c.b.clustered() {
		return part.group.ReadBarrier(c.ctx) == nil
	}
	if part.group.Status().Leader != c.b.self() {
		return false
	}
	ctx, cancel := context.WithTimeout(c.ctx, readWait)
	defer cancel()
	return part.group.ReadBarrier(ctx) == nil
}

// follows reports whether another node leads a partition, or nobody does.
func (c *conn) follows(part *Partition) bool {
	return c.b.clustered() && part.group.Status().Leader != c.b.self()
}

// atEnd reports whether a poll has come to the end of what is committed here.
func atEnd(r *partition.PollResult) bool { return r.Count == 0 || r.Last == r.CurrentOffset }

func (c *conn) emptyPoll(h *wire.RequestHeader, partition uint32, current uint64) *Reply {
	r := newReply()
	r.cost = int(h.Size)
	r.frame = wire.AppendPollPrefix(r.frame, partition, current, 0)
	rh := c.header(h)
	return r.finish(&rh)
}

// offsetOp is an offset write from its arrival to its answer: a command of its
// own, or the auto-commit of a poll whose reply is held.
type offsetOp struct {
	partition.OffsetWrite

	c    *conn
	held *Reply // of a poll
	rh   wire.ReplyHeader
	cost int
}

// newOffset takes an offset write from the free list.
func (b *Broker) newOffset() *offsetOp {
	if op, ok := b.offsets.Get().(*offsetOp); ok {
		return op
	}
	op := &offsetOp{}
	op.Owner, op.Done = op, offsetDone
	return op
}

func offsetDone(w *partition.OffsetWrite) { w.Owner.(*offsetOp).finish(partition.StatusOf(w.Err)) }

// finish answers. Its caller may be the partition's goroutine.
func (op *offsetOp) finish(code wire.ErrorCode) {
	c, r := op.c, op.held
	if r != nil && code != 0 {
		// Without the offset the messages are not handed out.
		r.Release()
		r = nil
	}
	if r == nil {
		r = newReply()
		r.cost = op.cost
		rh := &op.rh
		rh.Status = code
		if code == 0 {
			rh.Cluster, rh.Replica = c.b.cfg.ClusterID, c.b.cfg.Replica
			if op.Index != 0 {
				rh.View, rh.Op, rh.Commit = uint32(op.Term), op.Index, op.Index
			}
			r.frame = wire.AppendResultOK(r.frame)
		}
		r.finish(rh)
	}
	op.Reset()
	op.c, op.held = nil, nil
	c.b.offsets.Put(op)
	c.sink.Reply(r)
}

// autoCommit stores the offset of the last message of a poll, and holds the
// reply until it is committed (decisions 9). It never goes back (observed 3).
func (c *conn) autoCommit(h *wire.RequestHeader, bound *binding, t target, r *Reply, rh wire.ReplyHeader) *Reply {
	if stored, ok := t.part.machine.Offset(t.kind, t.key); ok && stored >= r.poll.Last {
		return r
	}
	op := c.b.newOffset()
	op.c, op.held, op.rh, op.cost = c, r, rh, int(h.Size)
	op.Client, op.User = bound.client, bound.user
	op.Op, op.Kind, op.Key, op.Offset = partition.RaiseOffset, t.kind, t.key, r.poll.Last
	if err := c.submitHere(c.ctx, t.part.group, &op.OffsetWrite); err != nil {
		op.finish(wire.StatusOf(err))
	}
	return nil
}

// writeOffset answers 121 and 122 (commands §3.12). Refusals are a status.
func (c *conn) writeOffset(h *wire.RequestHeader, bound *binding, body []byte) *Reply {
	var (
		tg     wire.GetConsumerOffset
		offset uint64
		what   = partition.StoreOffset
		err    error
	)
	if h.Operation == wire.OpStoreConsumerOffset {
		var m wire.StoreConsumerOffset
		err = m.Decode(body)
		tg, offset = m.Target(), m.Offset
	} else {
		var m wire.DeleteConsumerOffset
		err = m.Decode(body)
		tg, what = m.Target(), partition.DeleteOffset
	}
	switch {
	case err != nil:
		return c.deny(h, wire.ErrInvalidCommand)
	case !tg.Partition.Given:
		return c.deny(h, wire.ErrInvalidIdentifier)
	case !c.caughtUp(c.watermark.Load()):
		return c.deny(h, wire.ErrTransientNotAccepted)
	}
	member := bound.client
	if c.attached != nil {
		if code := c.attachment(bound); code != 0 {
			return c.deny(h, code)
		}
		member = c.attached.ClientID
	}
	t, err := c.resolve(bound.user, member, metadata.RulePoll, tg.Consumer, tg.Stream, tg.Topic, tg.Partition.ID)
	switch err {
	case nil:
	case errNoStream, errNoTopic, errNoPartition:
		return c.deny(h, wire.ErrResourceNotFound)
	default:
		return c.deny(h, wire.StatusOf(err))
	}
	if t.kind == wire.ConsumerGroup && t.fence == refused {
		return c.deny(h, wire.ErrConsumerGroupPartitionNotOwned)
	}
	if !t.part.wait(c.ctx, partitionWait) {
		return c.deny(h, wire.ErrTransientNotAccepted)
	}
	if c.holds() && c.follows(t.part) {
		if r, here := c.forward(h, bound, t.part, body); !here {
			return r
		}
	}
	op := c.b.newOffset()
	op.c, op.cost = c, int(h.Size)
	op.rh = c.header(h)
	op.Client, op.User, op.Request = bound.client, bound.user, h.Request
	op.Op, op.Kind, op.Key, op.Offset = what, t.kind, t.key, offset
	if err := c.submitHere(c.ctx, t.part.group, &op.OffsetWrite); err != nil {
		op.finish(wire.StatusOf(err))
	}
	return nil
}

// readOffset answers 120.
func (c *conn) readOffset(h *wire.RequestHeader, bound *binding, body []byte) *Reply {
	var m wire.GetConsumerOffset
	if m.Decode(body) != nil {
		return c.deny(h, wire.ErrInvalidCommand)
	}
	t, err := c.resolve(bound.user, bound.client, metadata.RulePoll, m.Consumer, m.Stream, m.Topic, m.Partition.ID)
	switch err {
	case nil:
	case errNoStream, errNoTopic:
		return c.answer(h, nil)
	default:
		return c.deny(h, wire.StatusOf(err))
	}
	if t.kind == wire.ConsumerGroup && c.group(&m) == nil {
		return c.answer(h, nil)
	}
	if !t.part.wait(c.ctx, partitionWait) {
		return c.deny(h, wire.ErrTransientNotAccepted)
	}
	if c.follows(t.part) {
		c.b.committed(c.ctx, t.part)
	}
	stored, ok := t.part.machine.Offset(t.kind, t.key)
	if !ok {
		return c.answer(h, nil)
	}
	return c.answer(h, &wire.OffsetReply{PartitionID: t.part.ID, CurrentOffset: t.part.machine.CurrentOffset(), StoredOffset: stored})
}

func (c *conn) group(m *wire.GetConsumerOffset) *metadata.Group {
	_, t := c.b.cfg.Metadata.Catalog().Topic(m.Stream, m.Topic)
	if t == nil {
		return nil
	}
	return t.Group(m.Consumer.ID)
}

// attach answers 14 (framing §6.4, step 3).
func (c *conn) attach(h *wire.RequestHeader, bound *binding, body []byte) *Reply {
	var m wire.AttachConsumerSession
	if m.Decode(body) != nil {
		return c.deny(h, wire.ErrInvalidCommand)
	}
	if !c.caughtUp(max(m.Watermark, m.Session)) {
		return c.deny(h, wire.ErrTransientNotAccepted)
	}
	a := m.Attachment
	if !c.alive(&a, bound.user) {
		return c.deny(h, wire.ErrStaleClient)
	}
	c.attached, c.link = &a, true
	return c.answer(h, nil)
}

// alive reports whether the session of an attachment exists and is the user's.
func (c *conn) alive(a *wire.Attachment, user uint32) bool {
	s, ok := c.b.cfg.Metadata.Session(a.ClientID)
	return ok && s.ID == a.Session && s.User == user
}

// attachment tells why the attached identity cannot be used, 0 when it can.
func (c *conn) attachment(bound *binding) wire.ErrorCode {
	switch {
	case c.attached == nil:
		return wire.ErrUnauthenticated
	case !c.alive(c.attached, bound.user):
		return wire.ErrStaleClient
	}
	return 0
}

// route answers 103 and 123: who the primary of the partition is.
func (c *conn) route(h *wire.RequestHeader, bound *binding, body []byte) *Reply {
	var (
		tg   wire.GetConsumerOffset
		rule = metadata.RulePoll
	)
	if h.Code == wire.CodeGetPollRouting {
		q := &c.pollBody
		if q.Decode(body) != nil || !q.AutoCommit {
			return c.deny(h, wire.ErrInvalidCommand)
		}
		tg = wire.GetConsumerOffset{Consumer: q.Consumer, Stream: q.Stream, Topic: q.Topic, Partition: q.Partition}
		rule = metadata.RulePollRouting
	} else if tg.Decode(body) != nil {
		return c.deny(h, wire.ErrInvalidCommand)
	}
	if tg.Consumer.Kind == wire.ConsumerGroup && !tg.Partition.Given && h.Code == wire.CodeGetPollRouting {
		return c.deny(h, wire.ErrInvalidIdentifier)
	}
	t, err := c.resolve(bound.user, bound.client, rule, tg.Consumer, tg.Stream, tg.Topic, tg.Partition.ID)
	if err != nil {
		return c.deny(h, wire.StatusOf(err))
	}
	if t.kind == wire.ConsumerGroup && (t.fence == refused || t.fence == pending && h.Code == wire.CodeGetPollRouting) {
		return c.deny(h, wire.ErrConsumerGroupPartitionNotOwned)
	}
	if !t.part.wait(c.ctx, partitionWait) {
		return c.deny(h, wire.ErrTransientNotAccepted)
	}
	node, ok := c.b.primary(c, t.part)
	if !ok {
		return c.deny(h, wire.ErrTransientNotAccepted)
	}
	if l := c.lanes[t.part.Group]; l != nil && h.Code == wire.CodeGetPollRouting {
		l.lift()
	}
	return c.answer(h, &wire.Route{
		Session: wire.Attachment{ClientID: bound.client, Session: bound.session, Watermark: max(c.watermark.Load(), c.b.position())},
		Primary: node,
	})
}

// primary names the node that leads a partition.
func (b *Broker) primary(c *conn, part *Partition) (wire.Node, bool) {
	leader := part.group.Status().Leader
	roster := b.cfg.Roster(c.peer.Address.Addr())
	if leader == 0 || leader > uint64(len(roster.Nodes)) {
		return wire.Node{}, false
	}
	return roster.Nodes[leader-1], true
}
