package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// Defaults of [ConsumerConfig].
const (
	DefaultPollInterval = 100 * time.Millisecond
	// commitTimeout bounds the commit at the end of an iteration.
	commitTimeout = 5 * time.Second
)

// CommitPolicy says when a consumer stores the offsets of handled messages. A
// message is handled when the loop body asked for the next one; a message at
// which the loop was left is not, so it comes again.
type CommitPolicy struct {
	kind     commitKind
	n        int
	interval time.Duration
}

type commitKind uint8

const (
	commitNone commitKind = iota
	commitEvery
	commitInterval
	commitBatch
	commitOnPoll
)

// CommitNone leaves it to [Consumer.Commit]. It is the default.
func CommitNone() CommitPolicy { return CommitPolicy{} }

// CommitEach stores after every message.
func CommitEach() CommitPolicy { return CommitEvery(1) }

// CommitEvery stores after every n messages, and at the end.
func CommitEvery(n int) CommitPolicy { return CommitPolicy{kind: commitEvery, n: max(n, 1)} }

// CommitInterval stores when so much time has passed, and at the end.
func CommitInterval(d time.Duration) CommitPolicy {
	return CommitPolicy{kind: commitInterval, interval: d}
}

// CommitBatch stores after every poll's messages, and at the end.
func CommitBatch() CommitPolicy { return CommitPolicy{kind: commitBatch} }

// CommitOnPoll has the server store the offset with the poll, before the messages
// are handled (auto_commit): at most once. It switches prefetching off. A lost
// reply is ErrAutoCommitLost; the consumer then goes on behind the last message
// it received, so it skips nothing.
func CommitOnPoll() CommitPolicy { return CommitPolicy{kind: commitOnPoll} }

// ConsumerConfig configures a [Consumer]. The zero value of every field means its
// default.
type ConsumerConfig struct {
	// Name is who the offsets are stored for: a number or a name. Default: "0".
	Name string
	// Group, a number or a name, makes the consumer a member of that consumer
	// group: the server assigns the partitions. CreateGroup makes the group when it
	// is missing.
	Group       string
	CreateGroup bool
	// Partitions to read, of a consumer without a group. Default: all of the
	// topic, new ones included.
	Partitions []uint32
	// Start is where to start in a partition. Default: FromNext, behind the stored
	// offset. A group member always starts there, except when nothing is stored.
	Start wire.PollingStrategy
	// Commit says when offsets are stored.
	Commit CommitPolicy
	// PollInterval is the pause after an empty poll of a partition.
	PollInterval time.Duration
	// BatchMessages is how many messages a poll asks for.
	BatchMessages uint32
	// NoPrefetch: do not poll ahead while messages are being handled.
	NoPrefetch bool
	// Views: messages point into memory that is used again. A message is then
	// valid only until the loop body ends; keep one with [Received.Clone].
	Views bool
}

// Consumer reads a topic, alone or as a member of a consumer group. One iteration
// at a time; Commit may be called at any time.
type Consumer struct {
	c             *Client
	stream, topic wire.Identifier
	cfg           ConsumerConfig
	as            wire.Consumer
	err           error // of the configuration
	busy          atomic.Bool
	group         *membership

	mu        sync.Mutex
	positions map[uint32]*position
	info      *topicInfo // what positions were compared with last
}

// position is where the consumer is in one incarnation of a partition. Guarded by
// Consumer.mu.
type position struct {
	partition uint32
	born      incarnation // not known before the first poll
	next      uint64      // offset of the next message to hand out
	known     bool        // next is valid
	handled   uint64      // offset of the newest handled message
	dirty     bool        // handled is not stored yet
	live      bool        // still ours, of a group member, and of the topic that there is
}

// Consumer makes a consumer of a topic. Nothing is sent before
// [Consumer.Messages].
func (c *Client) Consumer(stream, topic wire.Identifier, cfg ConsumerConfig) *Consumer {
	orDuration(&cfg.PollInterval, DefaultPollInterval)
	if cfg.BatchMessages == 0 {
		cfg.BatchMessages = defaultPollCount
	}
	if cfg.Start.Kind == 0 {
		cfg.Start = wire.FromNext()
	}
	k := &Consumer{c: c, stream: stream, topic: topic, cfg: cfg, positions: make(map[uint32]*position)}
	name := cfg.Name
	if name == "" {
		name = "0"
	}
	if cfg.Group != "" {
		name = cfg.Group
	}
	id, err := wire.ParseIdentifier(name)
	if err != nil {
		k.err = fmt.Errorf("consumer name %q: %w", name, err)
		return k
	}
	k.as = wire.SingleConsumer(id)
	if cfg.Group != "" {
		k.as = wire.GroupConsumer(id)
		k.group = &membership{k: k, id: id}
	}
	return k
}

// Messages iterates over the messages as they come, waiting for more, until ctx
// ends, the client is closed or the loop is left. Messages of one partition come
// in order; partitions take turns, one poll each.
//
// An error is handed out without a message; the iteration goes on afterwards if
// the loop does, except after ErrClosed. The end of ctx is no error. A later
// iteration goes on where this one stopped: with the message at which the loop was
// left, by break, return or a panic, because that was not handled.
//
// A topic that is deleted and made anew, or a partition of it, is another one: the
// consumer starts over in it, behind what is stored there or else where
// ConsumerConfig.Start says, and what it handled of the old one and did not store
// is not stored any more. It notices by the metadata position in the reply to a
// poll: after every change of metadata, whoever made it, the topic is read once.
// Before an offset is stored the topic is read, too, unless that was done, or a
// poll made up for it, within the last PollInterval; at the end of an iteration
// always. A store that is under way while the topic is made anew gets into the new
// one, and so does one in a cluster whose session's node has yet to hear of it: the
// protocol has no store for one incarnation only.
func (k *Consumer) Messages(ctx context.Context) iter.Seq2[Received, error] {
	return func(yield func(Received, error) bool) {
		if k.err != nil {
			yield(Received{}, k.err)
			return
		}
		if !k.busy.CompareAndSwap(false, true) {
			yield(Received{}, fmt.Errorf("consumer: an iteration is running already: %w", wire.ErrInvalidCommand))
			return
		}
		defer k.busy.Store(false)
		fctx, stop := context.WithCancel(ctx)
		f := newFetcher(k)
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.run(fctx)
		}()
		it := &iteration{k: k, ctx: ctx, yield: yield, committed: time.Now()}
		defer func() { // also when the loop body panics
			stop()
			<-done
			f.discard()
			it.finish()
		}()
		it.run(f)
	}
}

// Commit stores the offset of a handled message: reading with FromNext goes on
// behind it.
//
// A message of a topic, or a partition, that was deleted since is ErrNotFound.
func (k *Consumer) Commit(ctx context.Context, m Received) error {
	if k.err != nil {
		return k.err
	}
	if m.born != (incarnation{}) {
		same, err := k.same(ctx, m.Partition, m.born, k.lately())
		if err != nil {
			return err
		}
		if !same {
			return fmt.Errorf("message %d of partition %d: %w: %w", m.Offset, m.Partition, ErrNotFound, errRecreated)
		}
	}
	err := k.c.StoreConsumerOffset(ctx, k.as, k.stream, k.topic, m.Partition, m.Offset)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.positions[m.Partition]; p != nil && !p.born.differs(m.born) {
		p.dirty = p.dirty && p.handled > m.Offset
		if p.known && p.next == m.Offset {
			p.next++ // handled, also when the loop is left at it
		}
	}
	return nil
}

// Seek sets where the next iteration starts in a partition.
func (k *Consumer) Seek(partition uint32, offset uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.position(partition)
	p.next, p.known, p.dirty = offset, true, false
}

// lately is how old what is known of the topic may be when an offset is stored.
func (k *Consumer) lately() time.Time { return time.Now().Add(-k.cfg.PollInterval) }

// same reports whether a partition was still the same incarnation at the given
// time or later. When it is not the consumer starts over.
func (k *Consumer) same(ctx context.Context, partition uint32, born incarnation, since time.Time) (bool, error) {
	info, err := k.c.topics.since(ctx, k.stream, k.topic, since)
	if err != nil {
		return false, fmt.Errorf("topic %v of stream %v: %w", k.topic, k.stream, err)
	}
	k.startOver(info)
	return !born.differs(info.incarnation(partition)), nil
}

// startOver leaves the positions of partitions that are not there any more, or
// were made anew: what is dirty in them belongs to the old ones.
func (k *Consumer) startOver(info *topicInfo) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.info == info {
		return
	}
	k.info = info
	for id, p := range k.positions {
		if p.born.differs(info.incarnation(id)) {
			k.leave(p)
		}
	}
}

// leave forgets a position; k.mu is held.
func (k *Consumer) leave(p *position) {
	if p.live = false; k.positions[p.partition] == p {
		delete(k.positions, p.partition)
	}
}

// Close leaves the consumer group, when there is one.
func (k *Consumer) Close(ctx context.Context) error {
	if k.group == nil {
		return nil
	}
	return k.group.leave(ctx)
}

// position finds or makes the position of a partition; k.mu is held.
func (k *Consumer) position(partition uint32) *position {
	p, ok := k.positions[partition]
	if !ok {
		p = &position{partition: partition, live: true}
		k.positions[partition] = p
	}
	return p
}

// over reports whether ctx has ended or is about to: a request that took its
// deadline from ctx can give up a moment before the timer of ctx fires.
func over(ctx context.Context) bool {
	if ctx.Err() != nil {
		return true
	}
	d, ok := ctx.Deadline()
	return ok && !time.Now().Before(d)
}

// iteration is the consuming side of Messages.
type iteration struct {
	k     *Consumer
	ctx   context.Context //nolint:containedctx // lives as long as the iteration
	yield func(Received, error) bool

	count     int       // handled since the last commit
	committed time.Time // of the last commit
}

// run hands out what the fetcher brings until one side stops.
func (it *iteration) run(f *fetcher) {
	var tick <-chan time.Time
	if it.k.cfg.Commit.kind == commitInterval {
		t := time.NewTicker(max(it.k.cfg.Commit.interval, time.Millisecond))
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case ch, ok := <-f.chunks:
			if !ok || !it.chunk(f, ch) {
				return
			}
		case <-tick:
			if !it.commit() {
				return
			}
		case <-it.ctx.Done():
			return
		}
	}
}

func (it *iteration) chunk(f *fetcher, ch chunk) bool {
	defer f.handled()
	k := it.k
	if ch.err != nil {
		return it.yield(Received{}, ch.err) && !errors.Is(ch.err, ErrClosed)
	}
	if ch.lost != nil {
		return it.commitLost(ch.lost)
	}
	if k.cfg.Views {
		defer ch.polled.Release()
	}
	k.mu.Lock()
	next, known := ch.pos.next, ch.pos.known
	k.mu.Unlock()
	for m := range ch.polled.Messages() {
		if known && m.Offset < next {
			continue
		}
		k.mu.Lock()
		live := ch.pos.live
		if !ch.pos.known {
			ch.pos.next, ch.pos.known = m.Offset, true
		}
		m.born = ch.pos.born
		k.mu.Unlock()
		if !live {
			return true // somebody else reads it now, or it is gone
		}
		// The position passes the message when it is handled: one at which the loop
		// is left, in whatever way, comes again.
		if over(it.ctx) || !it.yield(m, nil) {
			return false
		}
		if !it.done(ch.pos, m.Offset) {
			return false
		}
	}
	if k.cfg.Commit.kind == commitBatch {
		return it.commit()
	}
	return true
}

// done records that a message was handled and commits when the policy says so.
func (it *iteration) done(p *position, offset uint64) bool {
	policy := it.k.cfg.Commit
	it.k.mu.Lock()
	p.next = offset + 1
	it.k.mu.Unlock()
	if policy.kind == commitNone || policy.kind == commitOnPoll {
		return true
	}
	it.k.mu.Lock()
	p.handled, p.dirty = offset, true
	it.k.mu.Unlock()
	it.count++
	if policy.kind == commitEvery && it.count >= policy.n {
		return it.commit()
	}
	if policy.kind == commitInterval && it.count&63 == 0 && time.Since(it.committed) >= policy.interval {
		return it.commit()
	}
	return true
}

// commit stores what is handled and not stored; an error goes to the loop.
func (it *iteration) commit() bool {
	it.count, it.committed = 0, time.Now()
	err := it.k.store(it.ctx, it.k.dirty(), it.k.lately())
	if err == nil || over(it.ctx) {
		return true
	}
	return it.yield(Received{}, fmt.Errorf("commit: %w", err))
}

// commitLost stores the offsets of partitions that were taken away, which lets
// the handover go on. That somebody else owns one already is no error.
func (it *iteration) commitLost(lost []*position) bool {
	it.k.mu.Lock()
	lost = slices.DeleteFunc(lost, func(p *position) bool { return !p.dirty })
	it.k.mu.Unlock()
	_ = it.k.store(it.ctx, lost, it.k.lately())
	return true
}

// finish stores what is left at the end. What cannot be stored comes again.
func (it *iteration) finish() {
	dirty := it.k.dirty()
	if len(dirty) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(it.ctx), commitTimeout)
	defer cancel()
	_ = it.k.store(ctx, dirty, time.Now())
}

func (k *Consumer) dirty() []*position {
	k.mu.Lock()
	defer k.mu.Unlock()
	var list []*position
	for _, p := range k.positions {
		if p.dirty {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *position) int { return int(a.partition) - int(b.partition) })
	return list
}

// store writes the handled offsets of positions whose partition was still the same
// at the given time or later.
func (k *Consumer) store(ctx context.Context, list []*position, since time.Time) error {
	var errs []error
	for _, p := range list {
		k.mu.Lock()
		offset, born := p.handled, p.born
		k.mu.Unlock()
		same, err := k.same(ctx, p.partition, born, since)
		if err != nil {
			errs = append(errs, err)
			break // it is the same topic for all
		}
		if !same {
			continue
		}
		err = k.c.StoreConsumerOffset(ctx, k.as, k.stream, k.topic, p.partition, offset)
		switch {
		case err == nil, k.group != nil && errors.Is(err, wire.ErrConsumerGroupPartitionNotOwned):
			k.mu.Lock()
			if p.handled == offset {
				p.dirty = false
			}
			k.mu.Unlock()
		default:
			if errors.Is(err, wire.ErrInvalidOffset) || errors.Is(err, ErrNotFound) {
				k.c.topics.invalidate(k.stream, k.topic) // perhaps it is another one by now
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
