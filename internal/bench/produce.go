package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/wire"
)

// startProducers starts the workers that send: per connection, as many as may have a request in flight, or one that
// feeds a batching producer.
func (r *runner) startProducers(ctx context.Context, wg *sync.WaitGroup, clients []*client.Client, begin time.Time) {
	start := func(worker func()) {
		r.sending.Add(1)
		wg.Go(func() {
			defer r.sending.Add(-1)
			worker()
		})
	}
	for i, c := range clients {
		var schedule *Schedule
		if r.plan.Rate > 0 {
			schedule = NewSchedule(begin, r.plan.Rate, r.plan.BatchMessages, i, len(clients))
			r.schedules = append(r.schedules, schedule)
		}
		if r.plan.API == APIProducer {
			rec := newRecorder(&r.gate)
			r.producers = append(r.producers, rec)
			start(func() { r.batchingProducer(ctx, c, i, schedule, rec) })
			continue
		}
		turn := &partitionTurn{next: uint32(i), count: r.plan.Partitions}
		for range r.plan.InFlight {
			rec := newRecorder(&r.gate)
			r.producers = append(r.producers, rec)
			start(func() { r.sender(ctx, c, i, turn, schedule, rec) })
		}
	}
}

// partitionTurn hands out partitions in turn; producers start at different ones.
type partitionTurn struct {
	mu    sync.Mutex
	next  uint32
	count uint32
}

func (t *partitionTurn) take() uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.next % t.count
	t.next = p + 1
	return p
}

func payload(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + rand.IntN(26)) //nolint:gosec // filler
	}
	return b
}

// sender sends one request after the other.
func (r *runner) sender(ctx context.Context, c *client.Client, producer int, turn *partitionTurn, schedule *Schedule, rec *recorder) {
	p := r.plan
	messages := make([]client.Message, p.BatchMessages)
	body := payload(p.MessageBytes)
	for i := range messages {
		messages[i].Payload = body
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	id := wire.U128{Hi: uint64(producer+1)<<32 | uint64(rand.Uint32())} //nolint:gosec // only distinct
	inARow := 0
	for {
		due := time.Now()
		if schedule != nil {
			due = schedule.Claim()
			if r.over(ctx, due) || !waitUntil(ctx, timer, due) {
				return
			}
		} else if r.over(ctx, due) {
			return
		}
		n := r.claim(p.BatchMessages)
		if n == 0 {
			return
		}
		origin := uint64(due.UnixMicro())
		for i := range messages[:n] {
			id.Lo++
			messages[i].ID, messages[i].OriginTimestamp = id, origin
		}
		_, err := c.Send(ctx, r.stream, r.topic, wire.PartitionID(turn.take()), messages[:n]...)
		if err != nil {
			r.failed(ctx, rec, due, fmt.Errorf("send: %w", err))
			if inARow++; givesUp(ctx, inARow) {
				return
			}
			continue
		}
		inARow = 0
		rec.done(due, time.Now(), Counts{Requests: 1, Messages: uint64(n), Bytes: uint64(n * p.MessageBytes)})
	}
}

// batchTurn is a partitioner that changes the partition with every batch, as the worker says.
type batchTurn struct{ partition uint32 }

// Partition gives the partition of the batch that is being filled; only the worker's own goroutine calls it.
func (b *batchTurn) Partition(*client.Message, uint32) uint32 { return b.partition }

// batchingProducer fills batches through the client's producer. The last message of a batch tells when all of it was
// acknowledged.
func (r *runner) batchingProducer(ctx context.Context, c *client.Client, index int, schedule *Schedule, rec *recorder) {
	p := r.plan
	turn := &partitionTurn{next: uint32(index), count: p.Partitions}
	to := &batchTurn{}
	cfg := client.ProducerConfig{
		BatchMessages: p.BatchMessages, BatchBytes: p.BatchMessages*(p.MessageBytes+wire.MessageHeaderSize) + wire.BatchHeaderSize,
		MaxInFlight: p.InFlight, Partitioner: to, OnUnknown: client.UnknownContinue,
		MaxBufferedBytes: (p.InFlight + 2) * (p.BatchMessages*(p.MessageBytes+2*wire.MessageHeaderSize) + 1024),
	}
	if p.BatchMessages > 1 {
		cfg.Linger = time.Second // a batch leaves when it is full
	}
	producer := c.Producer(r.stream, r.topic, cfg)
	slots := make(chan struct{}, p.InFlight)
	body := payload(p.MessageBytes)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var inARow atomic.Int32 // failures, as the callbacks saw them
	defer func() {
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = producer.Close(closeCtx) // the callbacks tell what was not acknowledged
	}()
	id := wire.U128{Hi: uint64(index+1)<<32 | uint64(rand.Uint32())} //nolint:gosec // only distinct
	for {
		var due time.Time
		if schedule != nil {
			due = schedule.Claim()
			if r.over(ctx, due) || !waitUntil(ctx, timer, due) {
				return
			}
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		if schedule == nil {
			if due = time.Now(); r.over(ctx, due) {
				return
			}
		}
		n := r.claim(p.BatchMessages)
		if n == 0 {
			return
		}
		to.partition = turn.take()
		m := client.Message{Payload: body, OriginTimestamp: uint64(due.UnixMicro())}
		for i := range n {
			id.Lo++
			m.ID = id
			var f func(client.Confirmation, error)
			if i == n-1 {
				f = func(_ client.Confirmation, err error) {
					if err != nil {
						r.failed(ctx, rec, due, fmt.Errorf("send: %w", err))
						inARow.Add(1)
					} else {
						inARow.Store(0)
						rec.done(due, time.Now(), Counts{Requests: 1, Messages: uint64(n), Bytes: uint64(n * p.MessageBytes)})
					}
					<-slots
				}
			}
			if err := producer.Enqueue(ctx, m, f); err != nil {
				r.failed(ctx, rec, due, fmt.Errorf("send: %w", err))
				return
			}
		}
		if n < p.BatchMessages {
			flushCtx, cancel := context.WithTimeout(ctx, 30*time.Second)
			_ = producer.Flush(flushCtx) // the last, partial batch
			cancel()
		}
		if givesUp(ctx, int(inARow.Load())) {
			return
		}
	}
}
