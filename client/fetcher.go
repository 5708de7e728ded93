package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// chunk is what one poll brought, or an error, or partitions that were taken
// away.
type chunk struct {
	pos    *position
	polled *Polled
	err    error
	lost   []*position
}

// fetcher polls for an iteration, one poll ahead: while the loop handles one
// chunk, the next poll is under way or waits to be taken. It owns the cursors of
// what was fetched; Consumer.positions says what was handed out.
type fetcher struct {
	k      *Consumer
	chunks chan chunk
	ack    chan struct{} // without prefetch: the chunk was handled

	cursors map[uint32]*cursor
	turn    int
}

// cursor is where the next poll of a partition starts.
type cursor struct {
	pos    *position
	next   uint64
	known  bool
	anew   bool // whatever is stored does not count
	beyond bool // the partition ends before next, and the topic was read anew for it
	due    time.Time
}

func newFetcher(k *Consumer) *fetcher {
	f := &fetcher{k: k, chunks: make(chan chunk), cursors: make(map[uint32]*cursor)}
	if k.cfg.NoPrefetch || k.cfg.Commit.kind == commitOnPoll {
		f.ack = make(chan struct{}, 1)
	}
	return f
}

// handled is called by the iteration after every chunk.
func (f *fetcher) handled() {
	if f.ack != nil {
		f.ack <- struct{}{}
	}
}

// discard releases a chunk that nobody took.
func (f *fetcher) discard() {
	for ch := range f.chunks {
		if ch.polled != nil {
			ch.polled.Release()
		}
	}
}

func (f *fetcher) run(ctx context.Context) {
	defer close(f.chunks)
	for ctx.Err() == nil {
		info, list, lost, err := f.assigned(ctx)
		if len(lost) > 0 && !f.give(ctx, chunk{lost: lost}) {
			return
		}
		if err != nil {
			if !f.fail(ctx, err) {
				return
			}
			continue
		}
		c, wait := f.next(info, list, time.Now())
		if c == nil {
			if sleep(ctx, wait) != nil {
				return
			}
			continue
		}
		if !f.poll(ctx, c) {
			return
		}
	}
}

// give hands a chunk to the iteration and, without prefetch, waits until it was
// handled.
func (f *fetcher) give(ctx context.Context, ch chunk) bool {
	select {
	case f.chunks <- ch:
	case <-ctx.Done():
		if ch.polled != nil {
			ch.polled.Release()
		}
		return false
	}
	if f.ack == nil {
		return true
	}
	select {
	case <-f.ack:
		return true
	case <-ctx.Done():
		return false
	}
}

// fail hands out an error and pauses, so that a lasting error does not spin.
func (f *fetcher) fail(ctx context.Context, err error) bool {
	if over(ctx) {
		return false
	}
	if !f.give(ctx, chunk{err: err}) || errors.Is(err, ErrClosed) {
		return false
	}
	return sleep(ctx, f.k.cfg.PollInterval) == nil
}

// assigned gives the topic and the partitions to poll.
func (f *fetcher) assigned(ctx context.Context) (info *topicInfo, list []uint32, lost []*position, err error) {
	k := f.k
	info, err = k.c.topics.get(ctx, k.stream, k.topic)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("topic %v of stream %v: %w", k.topic, k.stream, err)
	}
	k.startOver(info)
	if k.group != nil {
		list, changed, err := k.group.assignment(ctx)
		if changed {
			lost = f.reassign(list)
		}
		return info, list, lost, err
	}
	if k.cfg.Partitions != nil {
		return info, k.cfg.Partitions, nil, nil
	}
	if !info.readable {
		return nil, nil, nil, fmt.Errorf("topic %v of stream %v: number of partitions: %w", k.topic, k.stream, wire.ErrUnauthorized)
	}
	list = make([]uint32, info.partitions)
	for i := range list {
		list[i] = uint32(i)
	}
	return info, list, nil, nil
}

// reassign forgets partitions that a group member no longer owns; one that comes
// back starts at the stored offset.
func (f *fetcher) reassign(list []uint32) (lost []*position) {
	owned := make(map[uint32]bool, len(list))
	for _, id := range list {
		owned[id] = true
	}
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	for id, p := range f.k.positions {
		if !owned[id] {
			lost = append(lost, p)
			f.k.leave(p)
		}
	}
	return lost
}

// next gives the partition whose turn it is, or how long to wait for one.
func (f *fetcher) next(info *topicInfo, list []uint32, now time.Time) (*cursor, time.Duration) {
	wait := f.k.cfg.PollInterval
	for i := range list {
		at := (f.turn + i) % len(list)
		c := f.cursor(info, list[at])
		if d := c.due.Sub(now); d > 0 {
			wait = min(wait, d)
			continue
		}
		f.turn = at + 1
		return c, 0
	}
	return nil, wait
}

// cursor finds or makes the cursor of a partition. One that belongs to a position
// that is no longer live is replaced.
func (f *fetcher) cursor(info *topicInfo, id uint32) *cursor {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	c, ok := f.cursors[id]
	if !ok || !c.pos.live {
		p := f.k.position(id)
		c = &cursor{pos: p, next: p.next, known: p.known}
		f.cursors[id] = c
	}
	if !c.known {
		// It starts at what is stored, which belongs to the incarnation too.
		c.pos.adopt(info)
	}
	return c
}

// adopt sets which incarnation of the partition a position belongs to, unless that
// is set; Consumer.mu is held.
func (p *position) adopt(info *topicInfo) {
	if born := info.incarnation(p.partition); p.born == (incarnation{}) && born != noPartition {
		p.born = born
	}
}

// still reports whether the partition that was polled is the one of the cursor,
// now that the topic was looked at.
func (f *fetcher) still(c *cursor, info *topicInfo) bool {
	f.k.startOver(info)
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	c.pos.adopt(info)
	if c.pos.born.differs(info.incarnation(c.pos.partition)) { // it was made while info was another
		f.k.leave(c.pos)
	}
	return c.pos.live
}

// strategy says where to poll. It asks for the stored offset itself, so that
// every poll but a first one by time or from the end names its offset, and
// neither a commit nor a reconnection in between moves it.
func (f *fetcher) strategy(ctx context.Context, c *cursor) (wire.PollingStrategy, error) {
	start := f.k.cfg.Start
	if f.k.group != nil && start.Kind != wire.StrategyNext && !c.known {
		stored, err := f.stored(ctx, c)
		if err != nil || stored {
			return wire.FromOffset(c.next), err
		}
	}
	switch {
	case c.known:
	case start.Kind == wire.StrategyOffset:
		c.next, c.known = start.Value, true
	case start.Kind == wire.StrategyFirst:
		c.next, c.known = 0, true
	case start.Kind == wire.StrategyNext:
		if _, err := f.stored(ctx, c); err != nil {
			return start, err
		}
		c.known = true
	default:
		return start, nil
	}
	return wire.FromOffset(c.next), nil
}

func (f *fetcher) stored(ctx context.Context, c *cursor) (bool, error) {
	if c.anew {
		return false, nil
	}
	r, err := f.k.c.ConsumerOffset(ctx, f.k.as, f.k.stream, f.k.topic, c.pos.partition)
	if errors.Is(err, ErrNotFound) && !errors.Is(err, wire.ErrPartitionNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	c.next, c.known = r.StoredOffset+1, true
	return true, nil
}

// poll does one poll; false ends the fetcher.
func (f *fetcher) poll(ctx context.Context, c *cursor) bool {
	k := f.k
	strategy, err := f.strategy(ctx, c)
	if err != nil {
		return f.fail(ctx, err)
	}
	req := PollRequest{
		Stream: k.stream, Topic: k.topic, Partition: c.pos.partition, Consumer: k.as, Strategy: strategy,
		Count: k.cfg.BatchMessages, AutoCommit: k.cfg.Commit.kind == commitOnPoll,
	}
	p := new(Polled)
	asked := time.Now()
	position, err := k.c.poll(ctx, &req, k.cfg.Views, p)
	if k.group != nil && (err == nil && p.PartitionID == wire.PollResync || errors.Is(err, wire.ErrConsumerGroupPartitionNotOwned)) {
		p.Release()
		c.due = time.Now().Add(k.group.fenced(k.cfg.PollInterval))
		return true
	}
	if err != nil {
		c.due = time.Now().Add(k.cfg.PollInterval)
		if over(ctx) {
			return false
		}
		if errors.Is(err, ErrNotFound) {
			k.c.topics.invalidate(k.stream, k.topic)
		}
		return f.fail(ctx, fmt.Errorf("partition %d: %w", c.pos.partition, err))
	}
	if ends := c.known && c.next > p.CurrentOffset+1; ends != c.beyond {
		if c.beyond = ends; ends { // of a server that tells no position it may be all there is to see
			k.c.topics.invalidate(k.stream, k.topic)
		}
	}
	info, err := k.c.topics.at(ctx, k.stream, k.topic, position, asked)
	if err != nil {
		p.Release()
		c.due = time.Now().Add(k.cfg.PollInterval)
		return f.fail(ctx, fmt.Errorf("topic %v of stream %v: %w", k.topic, k.stream, err))
	}
	if !f.still(c, info) {
		if req.AutoCommit && p.Count > 0 {
			// The poll stored a position of the old partition in the new one.
			f.cursor(info, c.pos.partition).anew = true
		}
		p.Release()
		return true
	}
	if p.Count == 0 {
		p.Release()
		if strategy.Kind == wire.StrategyLast {
			c.next, c.known = 0, true // it was empty: whatever comes is new
		}
		c.due = time.Now().Add(k.cfg.PollInterval)
		return true
	}
	for b := range p.Batches() {
		c.next, c.known = max(c.next, b.LastOffset()+1), true
	}
	return f.give(ctx, chunk{pos: c.pos, polled: p})
}
