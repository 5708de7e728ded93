package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// Defaults of [ProducerConfig].
const (
	DefaultBatchMessages    = 1000
	DefaultBatchBytes       = 1 << 20
	DefaultMaxBufferedBytes = 64 << 20
)

// UnknownPolicy says what happens to a partition after a write whose outcome
// stayed unknown until its deadline.
type UnknownPolicy uint8

const (
	// UnknownBlock stops the partition until [Producer.Resolve] or
	// [Producer.Abandon]: nothing is sent behind a write that may or may not be
	// there. What waits meanwhile fails at its own deadline with ErrBlocked. It is
	// the default, and what exact order and exactly-once need.
	UnknownBlock UnknownPolicy = iota
	// UnknownContinue goes on with the next write.
	UnknownContinue
)

// ProducerConfig configures a [Producer]. The zero value of every field means its
// default.
type ProducerConfig struct {
	// Linger is how long a batch waits for more messages. With 0 a batch leaves
	// at once while fewer than MaxInFlight are unanswered, and fills up meanwhile
	// when there are more, so batches grow with the load by themselves.
	Linger time.Duration
	// BatchMessages and BatchBytes close a batch, and so does the largest frame
	// that the server takes.
	BatchMessages int
	BatchBytes    int
	// MaxInFlight is how many batches per partition may be unanswered, at most
	// 16. Default: Options.InFlight. Servers without the fence get one.
	MaxInFlight int
	// MaxBufferedBytes bounds what the producer holds, sent and unsent. At the
	// bound Send and Enqueue wait, and nothing waits for Linger.
	MaxBufferedBytes int
	// Partitioner chooses partitions. Default: KeyPartitioner.
	Partitioner Partitioner
	// DeliveryTimeout bounds the time from closing a batch to its outcome.
	// Default: Options.RequestTimeout.
	DeliveryTimeout time.Duration
	// OnUnknown says what happens after a write of unknown outcome.
	OnUnknown UnknownPolicy
}

// Producer sends messages to a topic in batches. Messages of one partition are
// appended in the order of the calls. Its methods may be called concurrently.
type Producer struct {
	c             *Client
	stream, topic wire.Identifier
	cfg           ProducerConfig
	observer      batchObserver
	budget        budget
	batches       sync.Pool
	waiters       sync.Pool

	idHi uint64
	idLo atomic.Uint64

	lastSize, lastCount atomic.Int64 // of the newest batch

	info       atomic.Pointer[topicInfo]
	refreshing atomic.Bool
	// parts are the partitions by id; replaced under mu when it grows.
	parts  atomic.Pointer[[]*producerPartition]
	any    atomic.Pointer[producerPartition]
	closed atomic.Bool // set under mu

	mu      sync.Mutex
	started bool
	epoch   *epoch
	former  []*producerPartition // of topics that were deleted

	finished chan struct{} // wakes the callback goroutine
	doneMu   sync.Mutex
	done     []*batch
	settled  chan struct{} // ends the last epoch: closed, and nothing is without outcome or callback
	stopped  chan struct{} // the callback goroutine has ended
	ended    chan struct{} // Close has ended
}

// Producer makes a producer for a topic. Close it, or close the client.
func (c *Client) Producer(stream, topic wire.Identifier, cfg ProducerConfig) *Producer {
	orInt(&cfg.BatchMessages, DefaultBatchMessages)
	orInt(&cfg.BatchBytes, DefaultBatchBytes)
	orInt(&cfg.MaxInFlight, c.o.InFlight)
	cfg.MaxInFlight = min(cfg.MaxInFlight, maxInFlight)
	orInt(&cfg.MaxBufferedBytes, DefaultMaxBufferedBytes)
	orDuration(&cfg.DeliveryTimeout, c.o.RequestTimeout)
	if cfg.Partitioner == nil {
		cfg.Partitioner = KeyPartitioner()
	}
	p := &Producer{
		c: c, stream: stream, topic: topic, cfg: cfg, idHi: rand.Uint64() | 1,
		epoch: newEpoch(), finished: make(chan struct{}, 1),
		settled: make(chan struct{}), stopped: make(chan struct{}), ended: make(chan struct{}),
	}
	p.observer, _ = cfg.Partitioner.(batchObserver)
	p.budget.limit, p.budget.h = int64(cfg.MaxBufferedBytes), c.h
	p.parts.Store(new([]*producerPartition))
	c.mu.Lock()
	if c.closed {
		p.closed.Store(true)
		close(p.ended)
	} else {
		c.producers[p] = struct{}{}
	}
	c.mu.Unlock()
	return p
}

// Send sends one message and waits until it is acknowledged. When ctx ends first
// the message may still be sent: the error then matches ErrOutcomeUnknown.
func (p *Producer) Send(ctx context.Context, m Message) (Confirmation, error) {
	w, ok := p.waiters.Get().(*sendWaiter)
	if !ok {
		w = &sendWaiter{ch: make(chan struct{}, 1)}
	}
	if err := p.enqueue(ctx, &m, entry{waiter: w}); err != nil {
		p.waiters.Put(w)
		return Confirmation{}, err
	}
	select {
	case <-w.ch:
		conf, err := w.conf, w.err
		w.conf, w.err = Confirmation{}, nil
		p.waiters.Put(w)
		return conf, err
	case <-ctx.Done():
		return Confirmation{}, &OutcomeUnknownError{Operation: "SendMessages", Cause: context.Cause(ctx)}
	}
}

// Enqueue hands a message over and returns. It waits only while the producer is
// full or the topic must be read first, and takes nothing once ctx has ended. The message's memory may be reused at
// once. f, which may be nil, is called with the outcome from the producer's own
// goroutine, in order of acknowledgement, and holds up the callbacks behind it. It
// may call the producer, but Flush and Close, also that of the client, wait for
// the callback that calls them: they do not return before their context ends. When
// Enqueue returns an error f is not called.
func (p *Producer) Enqueue(ctx context.Context, m Message, f func(Confirmation, error)) error {
	return p.enqueue(ctx, &m, entry{callback: f})
}

// entry is who wants to know about a message.
type entry struct {
	callback func(Confirmation, error)
	waiter   *sendWaiter
}

type sendWaiter struct {
	ch   chan struct{}
	conf Confirmation
	err  error
}

// batch is a batch being filled, queued or in flight, and its frame.
type batch struct {
	write
	builder wire.BatchBuilder
	pp      *producerPartition
	epoch   *epoch
	entries []entry
	hooked  bool // some entry has a callback
	key     []byte
	bytes   int64
	prefix  []byte
	// refs counts who still needs the memory: the outcome (callbacks included) and
	// the link.
	refs   atomic.Int32
	result outcome
}

// producerPartition is the producer's side of a partition.
type producerPartition struct {
	p         *Producer
	id        uint32
	partition wire.Partitioning
	lane      *lane

	mu     sync.Mutex
	open   *batch
	due    bool // the open batch leaves as soon as there is room in flight
	queued []*batch
	timer  *time.Timer
}

func (p *Producer) enqueue(ctx context.Context, m *Message, e entry) error {
	if ctx.Err() != nil {
		return notAdmitted("SendMessages", context.Cause(ctx))
	}
	size := int64(messageSize(m))
	if limit := p.c.maxBatch() - wire.BatchHeaderSize; size > int64(limit) {
		return fmt.Errorf("message of %d bytes, at most %d: %w", size, limit, ErrMessageTooLarge)
	}
	wm := wire.Message{ID: m.ID, OriginTimestamp: m.OriginTimestamp, Payload: m.Payload, Headers: m.Headers, HeadersBytes: m.HeadersBytes}
	if err := wire.CheckMessage(&wm); err != nil {
		return fmt.Errorf("message: %w", err)
	}
	if wm.ID.IsZero() {
		wm.ID = wire.U128{Hi: p.idHi, Lo: p.idLo.Add(1)}
	}
	if wm.OriginTimestamp == 0 {
		wm.OriginTimestamp = nowMicros()
	}
	pp, err := p.route(ctx, m)
	if err != nil {
		return err
	}
	if err := p.budget.take(ctx, size, p.hurry); err != nil {
		return notAdmitted("SendMessages", err)
	}
	err = pp.add(&wm, m.Key, size, e)
	if err != nil {
		p.budget.give(size)
	}
	return err
}

func messageSize(m *Message) int {
	n := wire.MessageHeaderSize + len(m.Payload)
	if len(m.Headers) > 0 {
		return n + m.Headers.Size()
	}
	return n + len(m.HeadersBytes)
}

// sendPrefix is the most bytes of a send before its batch: a length, stream, topic
// and key of 255 bytes each with kind and length, and the rest for what is to come.
const sendPrefix = 1024

// maxBatch is the size of the largest batch that a request to the server has room
// for: the server whose link is or was the last.
func (c *Client) maxBatch() int {
	limit := wire.DefaultMaxFrame
	if l := c.session.now.Load(); l != nil && l.caps.maxFrame > 0 {
		limit = l.caps.maxFrame
	}
	return limit - wire.HeaderSize - sendPrefix
}

// route finds the partition of a message.
func (p *Producer) route(ctx context.Context, m *Message) (*producerPartition, error) {
	if p.closed.Load() {
		return nil, ErrClosed
	}
	info := p.info.Load()
	if !p.c.topics.current(info) {
		var err error
		if info, err = p.refresh(ctx); err != nil {
			return nil, err
		}
	}
	f, isFixed := p.cfg.Partitioner.(fixed)
	if info.partitions == 0 && !isFixed {
		if info.readable {
			return nil, fmt.Errorf("topic %v of stream %v: %w", p.topic, p.stream, wire.ErrNoPartitions)
		}
		return p.serverChosen(info)
	}
	var id uint32
	switch t := p.cfg.Partitioner.(type) { // calls that are not dynamic keep m off the heap
	case fixed:
		id = uint32(f)
	case *byKey:
		id = t.Partition(m, info.partitions)
	case *balanced:
		id = t.Partition(m, info.partitions)
	default:
		own := *m
		id = t.Partition(&own, info.partitions)
	}
	if info.readable && id >= info.partitions || id >= wire.MaxPartitionsPerTopic {
		return nil, fmt.Errorf("partition %d of topic %v: %w: %w", id, p.topic, ErrNotFound, wire.ErrPartitionNotFound)
	}
	if parts := *p.parts.Load(); id < uint32(len(parts)) && parts[id] != nil {
		return parts[id], nil
	}
	return p.partition(info, id)
}

// refresh reads the topic.
func (p *Producer) refresh(ctx context.Context) (*topicInfo, error) {
	ctx, cancel := p.c.bound(ctx)
	defer cancel()
	info, err := p.c.topics.get(ctx, p.stream, p.topic)
	switch {
	case errors.Is(err, ErrNotFound): // the server does not say which of the two is missing
		return nil, fmt.Errorf("the stream or the topic does not exist: %w", err)
	case err != nil:
		return nil, fmt.Errorf("topic %v of stream %v: %w", p.topic, p.stream, err)
	}
	if old := p.info.Swap(info); old != nil && old.created != info.created && old.created != 0 && info.created != 0 {
		p.startOver()
	}
	return info, nil
}

// startOver leaves the partitions of a topic that was made anew: what is in them
// belongs to the old one.
func (p *Producer) startOver() {
	p.mu.Lock()
	former := slices.Clone(p.former)
	p.mu.Unlock()
	// A partition's lock comes before the producer's.
	done := slices.DeleteFunc(former, func(pp *producerPartition) bool { return !pp.empty() })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.former = slices.DeleteFunc(p.former, func(pp *producerPartition) bool {
		if slices.Contains(done, pp) {
			pp.lane.unpin()
			return true
		}
		return false
	})
	for _, pp := range *p.parts.Load() {
		if pp != nil {
			p.former = append(p.former, pp)
		}
	}
	p.parts.Store(new([]*producerPartition))
}

// empty reports whether nothing is open or without outcome.
func (pp *producerPartition) empty() bool {
	pp.mu.Lock()
	defer pp.mu.Unlock()
	return pp.open == nil && len(pp.queued) == 0
}

// refreshOld reads the topic again in the background once a minute, so that
// partitions which others added are used (messages §4.2).
func (p *Producer) refreshOld() {
	info := p.info.Load()
	if info == nil || time.Since(info.at) < topicRefresh || !p.refreshing.CompareAndSwap(false, true) {
		return
	}
	if !p.c.run(func() {
		defer p.refreshing.Store(false)
		_, _ = p.refresh(p.c.ctx) // the next batch tries again
	}) {
		p.refreshing.Store(false)
	}
}

// partition makes the producer's side of a partition.
func (p *Producer) partition(info *topicInfo, id uint32) (*producerPartition, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	parts := *p.parts.Load()
	if id < uint32(len(parts)) && parts[id] != nil {
		return parts[id], nil
	}
	pp, err := p.newPartition(info, id, wire.PartitionID(id))
	if err != nil {
		return nil, err
	}
	grown := make([]*producerPartition, max(len(parts), int(id)+1, int(info.partitions)))
	copy(grown, parts)
	grown[id] = pp
	p.parts.Store(&grown)
	return pp, nil
}

// serverChosen is used when the user may not read the topic, so that the number
// of partitions is not known: the server chooses.
func (p *Producer) serverChosen(info *topicInfo) (*producerPartition, error) {
	if pp := p.any.Load(); pp != nil {
		return pp, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if pp := p.any.Load(); pp != nil {
		return pp, nil
	}
	pp, err := p.newPartition(info, 0, wire.Balanced())
	if err == nil {
		p.any.Store(pp)
	}
	return pp, err
}

func (p *Producer) newPartition(info *topicInfo, id uint32, to wire.Partitioning) (*producerPartition, error) {
	if p.closed.Load() {
		return nil, ErrClosed
	}
	ln, err := p.c.lane(info.sendKey(to), p.stream, p.topic, true)
	if err != nil {
		return nil, err
	}
	ln.widen(p.cfg.MaxInFlight)
	if !p.started {
		p.started = true
		go p.callbacks()
	}
	pp := &producerPartition{p: p, id: id, partition: to, lane: ln}
	pp.timer = time.AfterFunc(time.Hour, pp.lingered)
	pp.timer.Stop()
	return pp, nil
}

// add puts a message into the open batch.
func (pp *producerPartition) add(m *wire.Message, key []byte, size int64, e entry) error {
	p := pp.p
	pp.mu.Lock()
	defer pp.mu.Unlock()
	if p.closed.Load() {
		return ErrClosed
	}
	serverChosen := pp.partition.Kind != wire.PartitioningPartitionID
	limit := min(p.cfg.BatchBytes, p.c.maxBatch())
	if b := pp.open; b != nil {
		full := b.builder.Size()+int(size) > limit || b.builder.Len() >= p.cfg.BatchMessages
		if full || serverChosen && string(b.key) != string(key) {
			pp.push()
		}
	}
	for {
		b := pp.open
		if b == nil {
			b = pp.begin()
			if serverChosen {
				b.key = append(b.key[:0], key...)
			}
		}
		err := b.builder.Add(m)
		if errors.Is(err, wire.ErrInvalidMessageTimestampDelta) && b.builder.Len() > 0 {
			pp.push()
			continue
		}
		if err != nil {
			if b.builder.Len() == 0 {
				pp.drop(b)
			}
			return fmt.Errorf("message: %w", err)
		}
		b.entries = append(b.entries, e)
		b.hooked = b.hooked || e.callback != nil
		b.bytes += size
		if b.builder.Len() >= p.cfg.BatchMessages || b.builder.Size() >= limit {
			pp.push()
		} else if pp.due = pp.due || p.budget.contended(); pp.due {
			pp.pushIfRoom()
		}
		return nil
	}
}

// begin opens a batch; pp.mu is held.
func (pp *producerPartition) begin() *batch {
	p := pp.p
	b, ok := p.batches.Get().(*batch)
	if ok {
		b.builder.Reset()
	} else {
		// As large as the last batch was, so that it need not grow.
		b = &batch{entries: make([]entry, 0, p.lastCount.Load())}
		b.builder.ResetInto(make([]byte, 0, max(p.lastSize.Load(), 4<<10)))
	}
	b.pp = pp
	b.epoch = p.enter()
	p.refreshOld()
	pp.open = b
	pp.due = p.cfg.Linger <= 0
	if !pp.due {
		pp.timer.Reset(p.cfg.Linger)
	}
	return b
}

// drop closes an empty batch; pp.mu is held.
func (pp *producerPartition) drop(b *batch) {
	pp.open = nil
	pp.timer.Stop()
	b.epoch.leave()
	pp.p.recycle(b)
}

// hurry has the open batches leave without waiting for Linger, because somebody
// waits for the room that they take.
func (p *Producer) hurry() {
	for _, pp := range p.all() {
		pp.lingered()
	}
}

// lingered is called by the timer, and by hurry instead of it.
func (pp *producerPartition) lingered() {
	pp.mu.Lock()
	defer pp.mu.Unlock()
	if pp.open != nil {
		pp.due = true
		pp.pushIfRoom()
	}
}

func (pp *producerPartition) pushIfRoom() {
	if pp.open != nil && len(pp.queued) < pp.lane.room() {
		pp.push()
	}
}

// push closes the open batch and hands it to the lane; pp.mu is held.
func (pp *producerPartition) push() {
	p, b := pp.p, pp.open
	pp.open, pp.due = nil, false
	pp.timer.Stop()
	bulk, err := b.builder.Finish()
	if err != nil { // it has messages, so this cannot be
		b.result.err = err
		b.refs.Store(1)
		b.settle(p)
		return
	}
	p.lastSize.Store(int64(len(bulk)))
	p.lastCount.Store(int64(len(b.entries)))
	to := pp.partition
	if to.Kind != wire.PartitioningPartitionID && len(b.key) > 0 {
		to, _ = wire.MessagesKey(b.key)
	}
	req := wire.SendMessages{Stream: p.stream, Topic: p.topic, Partitioning: to, Batch: bulk}
	b.prefix = req.AppendPrefix(b.prefix[:0])
	b.op, b.meta, b.bulk, b.inline = wire.OpSendMessages, b.prefix, bulk, true
	b.name, b.owner, b.messages = "SendMessages", b, b.builder.Len()
	b.block = p.cfg.OnUnknown == UnknownBlock
	b.start = time.Now()
	b.deadline = b.start.Add(p.cfg.DeliveryTimeout)
	b.refs.Store(2)
	pp.queued = append(pp.queued, b)
	if err := pp.lane.push(&b.write); err != nil {
		b.result.err = err
		pp.dequeue(b)
		b.settle(p)
		b.unref(p)
	}
	if p.observer != nil && to.Kind == wire.PartitioningPartitionID {
		p.observer.batchClosed(pp.id)
	}
}

func (pp *producerPartition) dequeue(b *batch) {
	for i, q := range pp.queued {
		if q == b {
			pp.queued = append(pp.queued[:i], pp.queued[i+1:]...)
			return
		}
	}
}

// told is called by the lane with the outcome.
func (b *batch) told(w *write, o outcome) {
	pp := b.pp
	pp.p.c.reportSend(w, &o)
	if o.resolve != nil {
		o.resolve <- o.err // the callers have their outcome
		return
	}
	b.result = o
	pp.mu.Lock()
	pp.dequeue(b)
	if pp.due {
		pp.pushIfRoom()
	}
	pp.mu.Unlock()
	b.settle(pp.p)
}

// released is called by the lane when nobody reads the frame any more.
func (b *batch) released(*write) { b.unref(b.pp.p) }

// settle tells the waiters the result and has the callbacks called.
func (b *batch) settle(p *Producer) {
	p.budget.give(b.bytes)
	for i := range b.entries {
		if w := b.entries[i].waiter; w != nil {
			w.conf, w.err = b.confirmationAt(i), b.result.err
			b.entries[i].waiter = nil
			w.ch <- struct{}{}
		}
	}
	if !b.hooked {
		b.epoch.leave()
		b.unref(p)
		return
	}
	p.doneMu.Lock()
	p.done = append(p.done, b)
	p.doneMu.Unlock()
	select {
	case p.finished <- struct{}{}:
	default:
	}
}

func (b *batch) confirmationAt(i int) Confirmation {
	c := b.result.confirmation
	if c.Known {
		c.Offset += uint64(i)
	}
	return c
}

func (b *batch) unref(p *Producer) {
	if b.refs.Add(-1) == 0 {
		p.recycle(b)
	}
}

func (p *Producer) recycle(b *batch) {
	clear(b.entries)
	b.entries = b.entries[:0]
	b.write, b.result = write{}, outcome{}
	b.hooked, b.bytes, b.epoch, b.pp, b.key = false, 0, nil, nil, b.key[:0]
	p.batches.Put(b)
}

// callbacks is the goroutine that calls the callers' functions.
func (p *Producer) callbacks() {
	defer close(p.stopped)
	var list []*batch
	for {
		select {
		case <-p.finished:
		case <-p.settled:
			return
		}
		for {
			p.doneMu.Lock()
			list, p.done = p.done, list[:0]
			p.doneMu.Unlock()
			if len(list) == 0 {
				break
			}
			for _, b := range list {
				for i := range b.entries {
					if f := b.entries[i].callback; f != nil {
						f(b.confirmationAt(i), b.result.err)
					}
				}
				b.epoch.leave()
				b.unref(p)
			}
			clear(list)
		}
	}
}

// Flush sends what is buffered without waiting for Linger and waits until every
// message that was handed over before has its outcome and its callback returned.
// It does not tell whether they were acknowledged. In a callback it waits until ctx
// ends.
func (p *Producer) Flush(ctx context.Context) error {
	p.mu.Lock()
	old := p.epoch
	if old.done != p.settled { // else it is the last one
		p.epoch = old.turn(newEpoch())
	}
	p.mu.Unlock()
	old.close()
	p.pushOpen()
	return waitUntil(ctx, old.done)
}

// pushOpen closes every open batch. It waits for calls that are adding a message.
func (p *Producer) pushOpen() {
	for _, pp := range p.all() {
		pp.mu.Lock()
		if pp.open != nil {
			pp.push()
		}
		pp.mu.Unlock()
	}
}

// waitUntil waits until done closes, at most until ctx ends.
func waitUntil(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-done:
		return nil
	default:
		return context.Cause(ctx)
	}
}

func (p *Producer) all() []*producerPartition {
	list := make([]*producerPartition, 0, 8)
	for _, pp := range *p.parts.Load() {
		if pp != nil {
			list = append(list, pp)
		}
	}
	if pp := p.any.Load(); pp != nil {
		list = append(list, pp)
	}
	p.mu.Lock()
	list = append(list, p.former...)
	p.mu.Unlock()
	return list
}

// callbackGrace is how long Close waits, after its context has ended, for the
// callbacks of what it gave up.
const callbackGrace = time.Second

// Close sends what is buffered, waits for the outcomes and the callbacks and ends
// the producer. A message that is handed over meanwhile is sent as well, or refused
// with ErrClosed. When ctx ends first, what is left fails and the error says so;
// callbacks that have not returned a second later, as when one of them calls Close,
// are not waited for. A second Close waits for the first.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	again := p.closed.Swap(true)
	p.mu.Unlock()
	if again {
		return waitUntil(ctx, p.ended)
	}
	defer close(p.ended)
	// A call that found the producer open is still adding its message, under the lock
	// of its partition. Once each was held here no batch is begun any more.
	p.pushOpen()
	p.mu.Lock()
	old := p.epoch
	p.epoch = old.turn(&epoch{done: p.settled})
	p.epoch.close()
	p.mu.Unlock()
	old.close()
	err := waitUntil(ctx, p.settled)
	for _, pp := range p.all() {
		pp.giveUp(joinCause(ErrClosed, err))
		pp.lane.abandon(p)
		pp.lane.unpin()
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), callbackGrace)
	defer cancel()
	p.mu.Lock()
	started := p.started
	p.mu.Unlock()
	if waitUntil(grace, p.settled) == nil && started {
		<-p.stopped // no callback runs any more
	}
	p.c.mu.Lock()
	delete(p.c.producers, p)
	p.c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("producer closed before everything was sent: %w", err)
	}
	return nil
}

// giveUp ends what is still queued or in flight.
func (pp *producerPartition) giveUp(cause error) {
	var left []*batch
	pp.mu.Lock()
	pp.timer.Stop()
	// A batch in queued has not been told, so it is not being used again; told
	// takes it out under this lock. Cancelling tells nobody.
	for i := 0; i < len(pp.queued); i++ {
		b := pp.queued[i]
		e, told := pp.lane.cancel(&b.write, cause)
		if told {
			continue // its outcome is on its way
		}
		b.result.err = e
		left = append(left, b)
	}
	for _, b := range left {
		pp.dequeue(b)
	}
	pp.mu.Unlock()
	for _, b := range left {
		b.settle(pp.p)
	}
}

// Resolve tries again to find out about writes of unknown outcome that block
// their partitions, until ctx ends (or the delivery timeout). It returns nil when
// every one of them turned out to be applied, now or earlier.
func (p *Producer) Resolve(ctx context.Context) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(p.cfg.DeliveryTimeout)
	}
	var errs []error
	for _, pp := range p.all() {
		for _, ch := range pp.lane.resolve(deadline, p) {
			select {
			case err := <-ch:
				errs = append(errs, err)
			case <-ctx.Done():
				errs = append(errs, context.Cause(ctx))
			}
		}
	}
	return errors.Join(errs...)
}

// Abandon gives up writes of unknown outcome and lets their partitions go on.
func (p *Producer) Abandon() {
	for _, pp := range p.all() {
		pp.lane.abandon(p)
	}
}

// epoch counts the batches that were begun between two flushes. It ends when they
// have all left and the epoch before it has ended.
type epoch struct {
	n    atomic.Int64 // batches, plus one until closed, plus one until the former ended
	next *epoch       // set before it is closed
	done chan struct{}
	once sync.Once
}

// newEpoch makes one without a former.
func newEpoch() *epoch {
	e := &epoch{done: make(chan struct{})}
	e.n.Store(1)
	return e
}

// turn lets next follow e; the caller closes e. The producer's lock is held.
func (e *epoch) turn(next *epoch) *epoch {
	next.n.Store(2)
	e.next = next
	return next
}

func (p *Producer) enter() *epoch {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.epoch.n.Add(1)
	return p.epoch
}

// leave counts a batch out.
func (e *epoch) leave() {
	for e != nil && e.n.Add(-1) == 0 {
		close(e.done)
		e = e.next
	}
}

// close lets the epoch end when its last batch leaves.
func (e *epoch) close() { e.once.Do(e.leave) }
