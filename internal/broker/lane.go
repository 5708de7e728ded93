package broker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/internal/partition"
	"github.com/whippetmq/whippet/wire"
)

// lane keeps the sends of one connection to one partition in order: they are
// submitted in order, and answered in order whoever decided them (the state
// machine, the log, or a refusal before both).
//
// While the partition is being started, sends are parked: one goroutine waits
// for it and submits what has gathered. The mutex is held by the connection's
// goroutine, by that one and by the partition's, and never over anything that
// waits.
type lane struct {
	c    *conn
	part *Partition
	// fence is set when a send was answered with anything but success; what
	// declared the fence gets 58 from then on (routing G11). Also read at admission.
	fence atomic.Bool

	mu         sync.Mutex
	head, tail *sendOp // not yet answered, oldest first
	parked     bool
}

// sendOp is one send from its arrival to its answer.
type sendOp struct {
	partition.Send

	lane      *lane
	next      *sendOp
	rh        wire.ReplyHeader
	body      *Buffer
	cost      int
	code      wire.ErrorCode // of a refusal
	submitted bool
	done      bool
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

// sendCopied gives the body back: the log has its own copy.
func sendCopied(s *partition.Send) {
	op := s.Owner.(*sendOp)
	op.body.Release()
	op.body = nil
}

func sendDone(s *partition.Send) {
	op := s.Owner.(*sendOp)
	op.lane.settle(op, partition.StatusOf(s.Err))
}

// putSend gives a send back that was answered.
func (b *Broker) putSend(op *sendOp) {
	op.Reset()
	op.lane, op.next, op.body = nil, nil, nil
	op.code, op.submitted, op.done = 0, false, false
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
	return l.head == nil && !l.parked && !l.fence.Load()
}

// enter takes a send in. It runs on the connection's goroutine and may wait for
// room in the partition's queue.
func (l *lane) enter(op *sendOp) {
	op.lane = l
	l.mu.Lock()
	if l.tail == nil {
		l.head = op
	} else {
		l.tail.next = op
	}
	l.tail = op
	if l.parked {
		l.mu.Unlock()
		return
	}
	if op.code == 0 && !l.part.running() {
		l.parked = true
		l.mu.Unlock()
		l.c.b.wg.Add(1)
		go l.unpark()
		return
	}
	op.submitted = true
	l.mu.Unlock()
	l.submit(op)
}

// submit hands a send to the partition, or settles it. Afterwards the send may
// be answered and reused.
func (l *lane) submit(op *sendOp) {
	code := op.code
	if code == 0 && op.Fence != nil && l.fence.Load() {
		code = wire.ErrTransientNotAccepted
	}
	if code == 0 {
		err := l.c.b.submit(l.c.b.ctx, l.part.group, &op.Send)
		if err == nil {
			return
		}
		code = wire.StatusOf(err)
	}
	l.settle(op, code)
}

// unpark waits for the partition and submits what has gathered.
func (l *lane) unpark() {
	defer l.c.b.wg.Done()
	ctx, cancel := context.WithTimeout(l.c.ctx, partitionWait+time.Second)
	defer cancel()
	ok := l.part.wait(ctx, partitionWait)
	for {
		l.mu.Lock()
		op := l.head
		for op != nil && op.submitted {
			op = op.next
		}
		if op == nil {
			l.parked = false
			l.mu.Unlock()
			return
		}
		op.submitted = true
		l.mu.Unlock()
		if !ok && op.code == 0 {
			op.code = wire.ErrTransientNotAccepted
		}
		l.submit(op)
	}
}

// settle records the outcome of a send and answers those that are in turn. Its
// caller may be the partition's goroutine.
func (l *lane) settle(op *sendOp, code wire.ErrorCode) {
	if code != 0 {
		l.fence.Store(true)
	}
	l.mu.Lock()
	op.code, op.done = code, true
	for l.head != nil && l.head.done {
		first := l.head
		if l.head = first.next; l.head == nil {
			l.tail = nil
		}
		r := l.answer(first)
		l.c.b.putSend(first)
		l.c.sink.Reply(r)
	}
	l.mu.Unlock()
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
	if op.Index != 0 {
		rh.View, rh.Op, rh.Commit, rh.Timestamp = uint32(op.Term), op.Index, op.Index, op.Timestamp
	}
	if !op.NoPosition {
		r.frame = wire.AppendConfirmation(r.frame, wire.SendConfirmation{
			StreamID: l.part.Stream, TopicID: l.part.Topic, PartitionID: l.part.ID, BaseOffset: op.BaseOffset,
		})
	}
	return r.finish(rh)
}
