package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/wire"
)

// startConsumers starts the workers that poll. Partitions are dealt out in turn; with more consumers than partitions
// several read the same one.
func (r *runner) startConsumers(ctx context.Context, wg *sync.WaitGroup, clients []*client.Client) {
	// All recorders exist before the first worker runs: workers look at each other's.
	var workers []func()
	for i, c := range clients {
		var mine []uint32
		for p := uint32(i) % r.plan.Partitions; p < r.plan.Partitions; p += uint32(len(clients)) {
			mine = append(mine, p)
		}
		if r.plan.Kind == Mixed {
			rec, e2e := newRecorder(&r.gate), newRecorder(&r.gate)
			r.consumers = append(r.consumers, rec)
			r.endToEnd = append(r.endToEnd, e2e)
			workers = append(workers, func() { r.tailer(ctx, c, i, mine, rec, e2e) })
			continue
		}
		cursor := &cursor{partitions: mine, ends: r.ends, chunk: uint64(r.plan.PollMessages), loop: r.plan.Messages == 0}
		for range r.plan.InFlight {
			rec := newRecorder(&r.gate)
			r.consumers = append(r.consumers, rec)
			workers = append(workers, func() { r.reader(ctx, c, i, cursor, rec) })
		}
	}
	for _, w := range workers {
		wg.Go(w)
	}
}

// cursor hands out chunks of the partitions of one consumer, in turn and in order.
type cursor struct {
	mu         sync.Mutex
	partitions []uint32
	ends       []uint64 // by partition
	chunk      uint64
	loop       bool // start over at the end

	at   int
	next []uint64 // by position in partitions
}

// take gives the next chunk; ok is false at the end.
func (c *cursor) take() (partition uint32, from, to uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = make([]uint64, len(c.partitions))
	}
	for range len(c.partitions) {
		i := c.at
		c.at = (c.at + 1) % len(c.partitions)
		end := c.ends[c.partitions[i]]
		if end == 0 {
			continue
		}
		if c.next[i] >= end {
			if !c.loop {
				continue
			}
			c.next[i] = 0
		}
		from = c.next[i]
		to = min(from+c.chunk, end)
		c.next[i] = to
		return c.partitions[i], from, to, true
	}
	return 0, 0, 0, false
}

func consumerName(i int) wire.Consumer { return wire.SingleConsumer(wire.ID(uint32(i + 1))) }

// reader polls chunk after chunk of messages that are there already.
func (r *runner) reader(ctx context.Context, c *client.Client, index int, cur *cursor, rec *recorder) {
	inARow := 0
	for {
		partition, from, to, ok := cur.take()
		if !ok {
			return
		}
		for from < to {
			due := time.Now()
			if r.over(ctx, due) {
				return
			}
			n := r.claim(int(to - from))
			if n == 0 {
				return
			}
			polled, err := c.Poll(ctx, client.PollRequest{
				Stream: r.stream, Topic: r.topic, Partition: partition, Consumer: consumerName(index),
				Strategy: wire.FromOffset(from), Count: uint32(n),
			})
			if err != nil {
				r.failed(ctx, rec, due, fmt.Errorf("poll: %w", err))
				if inARow++; givesUp(ctx, inARow) {
					return
				}
				continue
			}
			got := Counts{Requests: 1}
			for m := range polled.PolledMessages.Messages() {
				got.Messages++
				got.Bytes += uint64(len(m.Payload))
				from = m.Offset + 1
			}
			polled.Release()
			if got.Messages == 0 {
				rec.count(due, time.Now(), Counts{Empty: 1})
				r.failed(ctx, rec, due, fmt.Errorf("poll: partition %d gave nothing from offset %d on, but has messages up to %d", partition, from, to-1))
				if inARow++; givesUp(ctx, inARow) {
					return
				}
				continue
			}
			inARow = 0
			rec.done(due, time.Now(), got)
		}
	}
}

// pauseWhenEmpty is how long a tailer waits after it has found nothing new in any of its partitions.
const pauseWhenEmpty = time.Millisecond

// tailer reads what producers send at the same time, and how long each batch took to get here.
func (r *runner) tailer(ctx context.Context, c *client.Client, index int, partitions []uint32, rec, e2e *recorder) {
	next := make([]uint64, len(partitions))
	for i, p := range partitions {
		next[i] = r.ends[p]
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	// Messages that were sent shortly before the end are still fetched, for at most this long.
	const grace = time.Second
	inARow := 0
	for {
		// Looked up before the polls: what finds nothing after the last answer to a send has found everything.
		sending := r.sending.Load() > 0
		found := false
		for i, p := range partitions {
			due := time.Now()
			if r.over(ctx, due.Add(-grace)) {
				return
			}
			polled, err := c.Poll(ctx, client.PollRequest{
				Stream: r.stream, Topic: r.topic, Partition: p, Consumer: consumerName(index),
				Strategy: wire.FromOffset(next[i]), Count: r.plan.PollMessages,
			})
			if err != nil {
				r.failed(ctx, rec, due, fmt.Errorf("poll: %w", err))
				if inARow++; givesUp(ctx, inARow) {
					return
				}
				continue
			}
			inARow = 0
			now := time.Now()
			got := Counts{}
			origin := uint64(0)
			for m := range polled.PolledMessages.Messages() {
				got.Messages++
				got.Bytes += uint64(len(m.Payload))
				next[i] = m.Offset + 1
				if m.OriginTimestamp != origin { // once per batch
					origin = m.OriginTimestamp
					e2e.latency(time.UnixMicro(int64(origin)), now.Sub(time.UnixMicro(int64(origin))))
				}
			}
			polled.Release()
			if got.Messages == 0 {
				rec.count(due, now, Counts{Empty: 1})
				continue
			}
			found = true
			got.Requests = 1
			rec.done(due, now, got)
		}
		if found {
			continue
		}
		if ctx.Err() != nil || !sending {
			return // all that was sent has been read
		}
		waitUntil(ctx, timer, time.Now().Add(pauseWhenEmpty))
	}
}
