package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// topicRefresh is how old the knowledge of a topic may get (messages §4.2).
const topicRefresh = 60 * time.Second

// maxTopics bounds the cache of topics.
const maxTopics = 16384

type topicKey struct{ stream, topic wire.Identifier }

// incarnation tells a partition from earlier ones with the same ids. All zero when
// it is not known.
type incarnation struct {
	topic, partition uint64 // when they were created, in microseconds
}

// differs reports whether two are known and not the same.
func (i incarnation) differs(o incarnation) bool {
	return i != o && i != incarnation{} && o != incarnation{}
}

// noPartition is the incarnation of a partition that does not exist.
var noPartition = incarnation{topic: math.MaxUint64}

// topicInfo is what the client knows of a topic. It is immutable but for stale and
// asOf.
type topicInfo struct {
	// The numeric ids, or the spelling where they could not be read.
	stream, topic wire.Identifier
	// partitions is 0 when the user may not read the topic: the server then
	// chooses the partition.
	partitions uint32
	readable   bool   // partitions is known
	version    uint64 // metadata position it was read at
	created    uint64 // microseconds; 0 = not known
	// born is when each of the partitions was created; nil when created is not known.
	born []uint64
	// position is the metadata position that it is known to hold at, because it was
	// read after a reply that told the position; 0 = none.
	position uint64
	at       time.Time
	stale    atomic.Bool
	// asOf is the last moment at which it is known to have been true, in
	// nanoseconds since 1970.
	asOf atomic.Int64
}

// incarnation of one of its partitions.
func (i *topicInfo) incarnation(partition uint32) incarnation {
	switch {
	case i.created == 0:
		return incarnation{}
	case int64(partition) >= int64(len(i.born)):
		return noPartition
	}
	return incarnation{topic: i.created, partition: i.born[partition]}
}

// topicCache maps the caller's spelling of a topic to what is known of it. It is
// read anew after every change of metadata that this client sees, when a target
// was not found, and once a minute.
type topicCache struct {
	c  *Client
	mu sync.Mutex
	m  map[topicKey]*topicEntry
}

type topicEntry struct {
	info atomic.Pointer[topicInfo]
	sem  chan struct{} // held by whoever reads the topic
	next atomic.Uint32 // the round robin of balanced sends, one step a request
	busy atomic.Bool   // it is being read anew in the background
}

func (t *topicCache) entry(key topicKey) *topicEntry {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.m[key]
	if !ok {
		if t.m == nil {
			t.m = make(map[topicKey]*topicEntry)
		}
		for k := range t.m {
			if len(t.m) < maxTopics {
				break
			}
			delete(t.m, k)
		}
		e = &topicEntry{sem: make(chan struct{}, 1)}
		t.m[key] = e
	}
	return e
}

// current reports whether info needs no reading before it is used.
func (t *topicCache) current(info *topicInfo) bool {
	return info != nil && !info.stale.Load() && info.version >= t.c.session.watermark.Load()
}

// get gives what is known, reading it when needed. ErrNotFound when the topic
// does not exist.
func (t *topicCache) get(ctx context.Context, stream, topic wire.Identifier) (*topicInfo, error) {
	e := t.entry(topicKey{stream, topic})
	if info := e.info.Load(); t.current(info) {
		if time.Since(info.at) >= topicRefresh {
			t.renew(e, stream, topic)
		}
		return info, nil
	}
	old := e.info.Load()
	info, err := t.reread(ctx, e, stream, topic, 0, t.current)
	if err != nil && old != nil && !errors.Is(err, ErrNotFound) && ctx.Err() == nil {
		return old, nil // better than nothing; the next use tries again
	}
	return info, err
}

// at gives what a topic is at a metadata position that was told by the reply to a
// request sent at the time asked. It is read when the position is another than
// that of what is known: once after every change of metadata, whoever made it.
func (t *topicCache) at(ctx context.Context, stream, topic wire.Identifier, position uint64, asked time.Time) (*topicInfo, error) {
	if position == 0 {
		return t.get(ctx, stream, topic)
	}
	e := t.entry(topicKey{stream, topic})
	good := func(info *topicInfo) bool {
		// What the user may not look at is not compared.
		return t.current(info) && (info.position == position || info.created == 0)
	}
	if info := e.info.Load(); good(info) {
		info.asOf.Store(max(info.asOf.Load(), asked.UnixNano()))
		return info, nil
	}
	return t.reread(ctx, e, stream, topic, position, good)
}

// since gives what a topic was at the given time or later.
func (t *topicCache) since(ctx context.Context, stream, topic wire.Identifier, when time.Time) (*topicInfo, error) {
	e := t.entry(topicKey{stream, topic})
	good := func(info *topicInfo) bool {
		return t.current(info) && (info.asOf.Load() >= when.UnixNano() || info.created == 0)
	}
	if info := e.info.Load(); good(info) {
		return info, nil
	}
	return t.reread(ctx, e, stream, topic, 0, good)
}

// reread reads a topic from a node that has come to the metadata position, unless
// somebody else just did and the outcome is good.
func (t *topicCache) reread(ctx context.Context, e *topicEntry, stream, topic wire.Identifier, position uint64, good func(*topicInfo) bool) (*topicInfo, error) {
	select {
	case e.sem <- struct{}{}:
		defer func() { <-e.sem }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if info := e.info.Load(); good(info) {
		return info, nil
	}
	info, err := t.readAt(ctx, stream, topic, position)
	if err != nil {
		return nil, err
	}
	e.info.Store(info)
	return info, nil
}

// renew reads a topic anew without anybody waiting for it: nobody who sends has to
// wait because the session is busy, or being made anew.
func (t *topicCache) renew(e *topicEntry, stream, topic wire.Identifier) {
	if !e.busy.CompareAndSwap(false, true) {
		return
	}
	if !t.c.run(func() {
		defer e.busy.Store(false)
		if info, err := t.read(t.c.ctx, stream, topic); err == nil {
			e.info.Store(info)
		} else if errors.Is(err, ErrNotFound) {
			t.invalidate(stream, topic)
		}
	}) {
		e.busy.Store(false)
	}
}

// same reports whether a lane's topic is still the one that the lane was made for.
func (t *topicCache) same(ctx context.Context, stream, topic wire.Identifier, key *laneKey) (bool, error) {
	details, err := t.c.Topic(ctx, stream, topic)
	switch {
	case errors.Is(err, wire.ErrUnauthorized):
		return true, nil
	case errors.Is(err, ErrNotFound):
		t.invalidate(stream, topic)
		return false, nil
	case err != nil:
		return false, err
	case details.CreatedAt != key.created:
		t.invalidate(stream, topic)
		return false, nil
	}
	return true, nil
}

func (t *topicCache) read(ctx context.Context, stream, topic wire.Identifier) (*topicInfo, error) {
	return t.readAt(ctx, stream, topic, 0)
}

// readAt reads a topic; the session's node, which may be behind the one that told
// the position, must have come there.
func (t *topicCache) readAt(ctx context.Context, stream, topic wire.Identifier, position uint64) (*topicInfo, error) {
	ctx, cancel := t.c.bound(ctx)
	defer cancel()
	info := &topicInfo{stream: stream, topic: topic, version: t.c.session.watermark.Load(), position: position, at: time.Now()}
	info.asOf.Store(info.at.UnixNano())
	req := &wire.GetTopic{Stream: stream, Topic: topic}
	got, err := t.c.readCall(ctx, call{op: wire.OpNonReplicated, code: req.Code(), meta: req.Append(nil)}, needSession, true)
	for err == nil && got.position < position {
		if err := sleep(ctx, replayPause); err != nil {
			return nil, readError(req.Code(), err, errBehind)
		}
		got, err = t.c.readCall(ctx, call{op: wire.OpNonReplicated, code: req.Code(), meta: req.Append(nil)}, needSession, true)
	}
	details := new(wire.TopicDetails)
	if err == nil {
		details, err = found(req, got.payload, details)
	}
	switch {
	case errors.Is(err, wire.ErrUnauthorized):
		return info, t.probe(ctx, info) // may send only
	case err != nil:
		return nil, err
	}
	info.topic, info.partitions, info.readable, info.created = wire.ID(details.ID), details.PartitionsCount, true, details.CreatedAt
	if info.created != 0 {
		info.born = make([]uint64, len(details.Partitions))
		for i := range details.Partitions {
			info.born[i] = details.Partitions[i].CreatedAt
		}
	}
	if stream.IsName() {
		s, err := t.c.Stream(ctx, stream)
		switch {
		case err == nil:
			info.stream = wire.ID(s.ID)
		case errors.Is(err, wire.ErrUnauthorized):
		default:
			return nil, err
		}
	}
	return info, nil
}

// probe counts the partitions of a topic that the user may send to but not read:
// our server answers 103 to the right to send (routing D.3). Elsewhere the count
// stays unknown and the server chooses the partition.
func (t *topicCache) probe(ctx context.Context, info *topicInfo) error {
	l, err := t.c.session.ready(ctx)
	if err != nil || !l.caps.sendRouting {
		return err
	}
	exists := func(id uint32) (bool, error) {
		_, err := t.c.read(ctx, routingQuery(info.stream, info.topic, id), needSession)
		if errors.Is(err, wire.ErrPartitionNotFound) {
			return false, nil
		}
		return err == nil, err
	}
	// Partitions 0 to low-1 exist, high does not.
	low, high := uint32(0), uint32(1)
	for {
		ok, err := exists(high - 1)
		if errors.Is(err, wire.ErrUnauthorized) {
			return nil
		}
		if err != nil {
			return err
		}
		if !ok {
			high--
			break
		}
		low = high
		if high >= wire.MaxPartitionsPerTopic {
			break
		}
		high *= 2
	}
	for low < high {
		mid := low + (high-low)/2
		ok, err := exists(mid)
		if err != nil {
			return err
		}
		if ok {
			low = mid + 1
		} else {
			high = mid
		}
	}
	info.partitions, info.readable = low, true
	return nil
}

// routingQuery asks for the primary of a partition and changes nothing (routing
// D.3, source 2).
func routingQuery(stream, topic wire.Identifier, partition uint32) *wire.GetPollRouting {
	return &wire.GetPollRouting{PollMessages: wire.PollMessages{
		Consumer: wire.SingleConsumer(wire.ID(1)), Stream: stream, Topic: topic,
		Partition: wire.SomePartition(partition), Strategy: wire.FromNext(), Count: 1, AutoCommit: true,
	}}
}

// cursor is the round robin of balanced sends: one per topic spelling, advanced
// by each request, starting at partition 0 (messages §4.2).
func (t *topicCache) cursor(stream, topic wire.Identifier) func() uint32 {
	e := t.entry(topicKey{stream, topic})
	return func() uint32 { return e.next.Add(1) - 1 }
}

// invalidate makes the next use read the topic anew.
func (t *topicCache) invalidate(stream, topic wire.Identifier) {
	t.mu.Lock()
	e := t.m[topicKey{stream, topic}]
	t.mu.Unlock()
	if e != nil {
		if info := e.info.Load(); info != nil {
			info.stale.Store(true)
		}
	}
}

// sendKey names the lane of sends to a partition.
func (i *topicInfo) sendKey(p wire.Partitioning) laneKey {
	k := laneKey{kind: laneSend, stream: i.stream, topic: i.topic, created: i.created}
	if p.Kind == wire.PartitioningPartitionID {
		k.partition = p.ID
	} else {
		k.anyPartition = true
	}
	return k
}

func checkDialAddress(address string) error {
	if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
		return fmt.Errorf("address %q: %w", address, wire.ErrInvalidServerAddress)
	}
	return nil
}
