package broker

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/internal/cluster"
	"github.com/whippetmq/whippet/internal/partition"
	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/wire"
)

// lane keeps the sends of one connection to one partition in order: they are
// admitted in order, and answered in order whoever decided them (the state
// machine, the log, another node, or a refusal before all of them).
//
// On a node of its own every send goes to the partition at once. In a cluster
// the primary may be elsewhere, or nowhere for a while:
//
//   - a send of a connection that cannot route goes to the primary's node and
//     waits here while there is none, or while this node has lost the part of
//     it, for Config.Hold at most;
//   - a send of a routing link is refused then, so that its client re-routes.
//
// One send of a lane is on its way to another node at a time, any number in the
// partition's queue here. What comes back unadmitted raises gate, so that what
// follows it in the queue comes back too; when all have, they go on from the
// oldest. So nothing overtakes, whatever moves meanwhile.
//
// The mutex is held by the connection's goroutine, the partition's, the one that
// reads replies of a node, and the pacer's, and never over anything that waits.
type lane struct {
	c    *conn
	part *Partition
	// fence is set when a send was answered with anything but success; what
	// declared the fence gets 58 from then on (routing G11).
	fence atomic.Bool
	// gate is asked at admission. It is up while fence is, for who declared that,
	// and while sends are coming back.
	gate atomic.Bool

	mu         sync.Mutex
	head, tail *sendOp // not yet answered, oldest first
	first      *sendOp // the oldest that is to be sent on its way
	away       int     // on their way
	back       bool    // some are coming back
	pumping    bool    // somebody sends what waits
	watched    bool    // the pacer looks after the lane
	call       *call   // what is on its way to another node
	hint       cluster.Hint
	refused    uint64 // the node that refused last; asked again by the pacer only
}

// Where a send is.
type place uint8

const (
	waiting place = iota
	onItsWay
	answered
)

// sendOp is one send from its arrival to its answer.
type sendOp struct {
	partition.Send

	lane   *lane
	next   *sendOp
	rh     wire.ReplyHeader
	body   *Buffer
	batch  wire.Batch // in body
	cost   int
	code   wire.ErrorCode // of a refusal
	place  place
	fenced bool           // its connection declared the fence
	holds  bool           // it waits for a primary, and goes to other nodes
	used   bool           // it was admitted once: the batch is stamped
	held   bool           // it counts in the broker's books
	until  time.Duration  // since the broker's start: when it has waited enough
	far    *cluster.Reply // of another node, when it answered with success
}

// call is a send on its way to another node. The bytes belong to it until the
// call has ended, also when the client was answered before.
type call struct {
	lane *lane
	op   *sendOp // nil = answered already; guarded by lane.mu
	body *Buffer
	node uint64
	term uint64 // in which node led
	at   time.Duration
}

// newSend takes a send from the free list.
func (b *Broker) newSend() *sendOp {
	if op, ok := b.sends.Get().(*sendOp); ok {
		return op
	}
	op := &sendOp{}
	op.Owner, op.Copied, op.Done = op, sendCopied, sendDone
	return op
}

// sendCopied gives the body back: the log has its own copy, or nobody will need it.
func sendCopied(s *partition.Send) {
	op := s.Owner.(*sendOp)
	if op.comesBack() {
		return
	}
	if !op.Given { // else it is the log's
		op.body.Release()
	}
	op.body = nil
}

func sendDone(s *partition.Send) {
	op := s.Owner.(*sendOp)
	if op.comesBack() {
		op.lane.comeBack(op, cluster.Hint{}, op.lane.c.b.self())
		return
	}
	op.lane.settle(op, partition.StatusOf(s.Err))
}

// comesBack reports whether a send was not admitted here and is to be tried again.
func (op *sendOp) comesBack() bool {
	return op.holds && op.Err != nil && errors.Is(op.Err, replica.ErrNotAdmitted)
}

// putSend gives a send back that was answered.
func (b *Broker) putSend(op *sendOp) {
	op.Reset()
	op.lane, op.next, op.body, op.batch, op.far = nil, nil, nil, nil, nil
	op.code, op.place = 0, waiting
	op.fenced, op.holds, op.used, op.held, op.until = false, false, false, false, 0
	b.sends.Put(op)
}

// lane of a connection to a partition.
func (c *conn) lane(part *Partition) *lane {
	if l := c.lanes[part.Group]; l != nil && l.part == part {
		return l
	}
	if c.lanes == nil {
		c.lanes = map[replicaGroupID]*lane{}
	}
	if len(c.lanes) >= maxLanes {
		for id, l := range c.lanes {
			if l.idle() {
				delete(c.lanes, id)
			}
		}
	}
	l := &lane{c: c, part: part}
	if old := c.lanes[part.Group]; old != nil {
		// The partition was started anew: what the fence says still holds.
		l.fence.Store(old.fence.Load())
		l.gate.Store(old.fence.Load())
	}
	c.lanes[part.Group] = l
	return l
}

// maxLanes is where lanes without work begin to be forgotten.
const maxLanes = 256

// idle reports whether nothing would be lost with the lane.
func (l *lane) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head == nil && !l.fence.Load()
}

// lift ends the fence: the client has asked for the route again.
func (l *lane) lift() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fence.Store(false)
	l.gate.Store(l.back)
}

// enter takes a send in. It runs on the connection's goroutine and may wait for
// room in the partition's queue.
func (l *lane) enter(op *sendOp) {
	op.lane, op.batch = l, op.Batch
	if op.fenced || op.holds {
		op.Fence = &l.gate
	}
	l.mu.Lock()
	if l.tail == nil {
		l.head = op
	} else {
		l.tail.next = op
	}
	l.tail = op
	if l.first == nil && !l.pumping && (!l.c.b.clustered() || op.code != 0) && (op.code != 0 || l.part.running()) {
		// Nothing is before it, and nobody but this goroutine submits.
		op.place = onItsWay
		l.away++
		l.mu.Unlock()
		if code := l.submit(op, true); code != 0 {
			l.settle(op, code)
		}
		return
	}
	if l.first == nil {
		l.first = op
	}
	op.until = l.c.b.since() + partitionWait
	if op.holds {
		op.until = l.c.b.since() + l.c.b.cfg.Hold
	}
	l.mu.Unlock()
	l.pump(true)
}

// submit hands a send to the partition. A code means that it was not taken.
// Without one the send may be answered and reused when submit returns.
func (l *lane) submit(op *sendOp, wait bool) wire.ErrorCode {
	switch {
	case op.code != 0:
		return op.code
	case op.fenced && l.fence.Load():
		return wire.ErrTransientNotAccepted
	case wait:
		if err := l.c.submitHere(l.c.b.ctx, l.part.group, &op.Send); err != nil {
			return wire.StatusOf(err)
		}
		return 0
	}
	return statusOfSubmit(l.part.group.TrySubmit(&op.Send))
}

// pump sends what waits on its way, in order, as far as it can. One goroutine
// does it at a time; others leave it to that one, which looks again under the
// mutex before it ends.
func (l *lane) pump(wait bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pumping {
		return
	}
	l.pumping = true
	defer func() { l.pumping = false }()
	for op := l.first; op != nil; op = l.first {
		if op.code == 0 && op.fenced && l.fence.Load() {
			op.code = wire.ErrTransientNotAccepted
		}
		switch {
		case l.back && l.away > 0:
			return // until all have come back
		case l.back:
			l.back = false
			l.gate.Store(l.fence.Load() && op.fenced)
		case l.call != nil:
			return // one at a time
		}
		node := l.target(op)
		switch {
		case node == 0 && op.code == 0:
			l.watch()
			return
		case node == l.c.b.self() || op.code != 0:
			l.take(op)
			if op.used {
				op.renew(l)
			}
			op.used = true
			l.mu.Unlock()
			code := l.submit(op, wait)
			l.mu.Lock()
			switch {
			case code == 0:
			case code == wire.ErrTransientNotAccepted && op.holds && op.code == 0:
				// No room, or the group stops.
				l.untake(op)
				l.watch()
				return
			default:
				l.settleLocked(op, code)
			}
		case l.away > 0:
			return // what is in the queue here has to be decided first
		case !l.hold(op):
			l.take(op)
			l.settleLocked(op, wire.ErrTransientNotAccepted)
		default:
			l.take(op)
			l.forward(op, node)
		}
	}
}

// take sends the first of those that wait on its way.
func (l *lane) take(op *sendOp) {
	op.place = onItsWay
	l.away++
	l.first = op.next
	for l.first != nil && l.first.place != waiting {
		l.first = l.first.next
	}
}

// untake puts one back that was not sent after all.
func (l *lane) untake(op *sendOp) {
	op.place = waiting
	l.away--
	l.findFirst()
}

func (l *lane) findFirst() {
	l.first = l.head
	for l.first != nil && l.first.place != waiting {
		l.first = l.first.next
	}
}

// renew makes a send ready to be submitted again.
func (op *sendOp) renew(l *lane) {
	client, user, request := op.Client, op.User, op.Request
	op.Reset()
	op.Client, op.User, op.Request, op.Batch, op.Memory = client, user, request, op.batch, op.body
	op.Fence = &l.gate
}

// target says which node a send goes to now; 0 = it waits.
func (l *lane) target(op *sendOp) uint64 {
	if !l.part.running() {
		return 0
	}
	b := l.c.b
	if !op.holds {
		return b.self()
	}
	st := l.part.group.Status()
	leader := st.Leader
	if l.hint.Leader != 0 && (l.hint.Term > st.Term || l.hint.Term == st.Term && leader == 0) {
		leader = l.hint.Leader
	}
	switch {
	case leader == b.self() && st.Role != replica.Leader, leader == l.refused: // a leader that may not admit yet holds it
		return 0
	case leader != 0 && leader != b.self() && !b.cfg.Peers.Up(leader):
		return 0
	}
	return leader
}

// watch has the pacer look at the lane soon and until nothing is left to do.
func (l *lane) watch() {
	if !l.watched {
		l.watched = true
		l.c.b.pacer.add(l)
	}
}

// hold counts a send in the broker's books; false = there is no room.
func (l *lane) hold(op *sendOp) bool {
	if !op.held {
		op.held = l.c.b.held.take(op.cost)
	}
	return op.held
}

// comeBack takes a send that was not admitted where it was; by is the node that
// said so.
func (l *lane) comeBack(op *sendOp, hint cluster.Hint, by uint64) {
	l.c.b.counters.CameBack.Add(1)
	l.mu.Lock()
	l.away--
	op.place = waiting
	l.back = true
	l.gate.Store(true)
	l.refused = by
	if hint.Leader != 0 && hint.Leader != by && hint.Term >= l.hint.Term {
		l.hint = hint
		l.refused = 0
	}
	l.findFirst()
	l.watch()
	switch now := l.c.b.since(); {
	case now >= op.until && op.until != 0:
		l.away++
		l.settleLocked(op, wire.ErrTransientNotAccepted)
	case !l.hold(op):
		l.away++
		l.settleLocked(op, wire.ErrTransientNotAccepted)
	}
	l.mu.Unlock()
	l.pump(false)
}

// settle records the outcome of a send that was on its way, answers those that
// are in turn and sends on what waited for it. Its caller may be the partition's
// goroutine.
func (l *lane) settle(op *sendOp, code wire.ErrorCode) {
	l.mu.Lock()
	l.settleLocked(op, code)
	more := l.first != nil
	l.mu.Unlock()
	if more {
		l.pump(false)
	}
}

func (l *lane) settleLocked(op *sendOp, code wire.ErrorCode) {
	if code != 0 {
		l.raise(op)
	}
	l.away--
	op.code, op.place = code, answered
	if l.first == op {
		l.findFirst()
	}
	l.flush()
}

// raise puts the fence up behind a send that failed.
func (l *lane) raise(op *sendOp) {
	l.fence.Store(true)
	if op.fenced {
		l.gate.Store(true)
	}
}

// flush answers those that are in turn.
func (l *lane) flush() {
	for l.head != nil && l.head.place == answered {
		first := l.head
		if l.head = first.next; l.head == nil {
			l.tail = nil
		}
		if first.held {
			l.c.b.held.give(first.cost)
		}
		r := l.answer(first)
		l.c.b.putSend(first)
		l.c.sink.Reply(r)
	}
}

// tick looks after what waits and what is on its way elsewhere; called by the
// pacer. False = there is nothing to look after any more.
func (l *lane) tick(now time.Duration) bool {
	l.mu.Lock()
	gone := l.c.ctx.Err() != nil
	for op := l.head; op != nil; op = op.next {
		if op.place != waiting || !gone && now < op.until {
			continue
		}
		if op.code == 0 {
			op.code = wire.ErrTransientNotAccepted
		}
		op.place = answered
		l.raise(op)
	}
	if c := l.call; c != nil && l.overdue(c, now) {
		// What became of it is not known, and its client may find out sooner.
		op := c.op
		l.detach(c)
		l.settleLocked(op, wire.ErrTransientNotCommitted)
	}
	l.findFirst()
	l.flush()
	l.refused = 0
	l.watched = l.first != nil || l.call != nil
	watched := l.watched
	l.mu.Unlock()
	l.pump(false)
	return watched
}

// overdue reports whether a call is not worth waiting for: the other node would
// have answered, or does not lead any more and has had time to say so.
func (l *lane) overdue(c *call, now time.Duration) bool {
	if now >= c.op.until+callGrace {
		return true
	}
	if now < c.at+movedGrace {
		return false
	}
	st := l.part.group.Status()
	return st.Term > c.term && st.Leader != 0 && st.Leader != c.node
}

// answer builds the reply to a send.
func (l *lane) answer(op *sendOp) *Reply {
	op.body.Release() // still there when it never reached the log
	op.body = nil
	r := newReply()
	r.cost = op.cost
	rh := &op.rh
	rh.Commit = l.c.b.position()
	if op.code != 0 {
		rh.Status = op.code
		return r.finish(rh)
	}
	rh.Cluster, rh.Replica = l.c.b.cfg.ClusterID, l.c.b.cfg.Replica
	if far := op.far; far != nil {
		if far.Op != 0 {
			rh.View, rh.Op, rh.Commit, rh.Timestamp = far.View, far.Op, far.Commit, far.Timestamp
		}
		r.frame = append(r.frame, far.Payload...)
		return r.finish(rh)
	}
	if op.Index != 0 {
		rh.View, rh.Op, rh.Commit, rh.Timestamp = uint32(op.Term), op.Index, op.Index, op.Timestamp
	}
	if !op.NoPosition {
		r.frame = l.part.confirm(r.frame, op.BaseOffset)
	}
	return r.finish(rh)
}

// confirm appends the confirmation of a send.
func (part *Partition) confirm(dst []byte, base uint64) []byte {
	return wire.AppendConfirmation(dst, wire.SendConfirmation{
		StreamID: part.Stream, TopicID: part.Topic, PartitionID: part.ID, BaseOffset: base,
	})
}
