package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/test/cluster/harness"
	"github.com/whippetmq/whippet/wire"
)

// TestCancellation is E.2/21: callers give up at random points, of sends and of polls. The links stay framed, and nobody
// gets an answer that is not his.
func TestCancellation(t *testing.T) {
	c := three(t)
	stream, tp := topic(t, c, 3)
	c.MustPlace(t, stream, tp, 0, 1, 2)
	cl, w := c.Client(t, 0)
	before := session(t, cl)
	checker := harness.NewChecker()
	// What the polls read: 100 messages that say where they are.
	for p := range uint32(3) {
		s := checker.Begin(checker.Producer(), p, 100, 60)
		conf, err := cl.Send(patient(t), stream, tp, wire.PartitionID(p), s.ClientMessages()...)
		s.Confirm(conf, err)
		must(t, err)
	}
	warm := c.Counts()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 6 {
		producer := checker.Producer()
		rng := rand.New(rand.NewPCG(7, uint64(i)))
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				p := rng.Uint32N(3)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(8000))*time.Microsecond)
				if i < 4 {
					s := checker.Begin(producer, p, 1, 100)
					conf, err := cl.Send(ctx, stream, tp, wire.PartitionID(p), s.ClientMessages()...)
					s.Confirm(conf, err)
				} else if err := pollOne(ctx, cl, stream, tp, p, uint64(rng.IntN(100))); err != nil {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	elapse(t, harness.Scale(3*time.Second, 20*time.Second))
	close(stop)
	wg.Wait()
	producer := checker.Producer()
	for i := range uint32(30) {
		if r := sendOne(t, checker, producer, cl, stream, tp, i%3); r.Took() > harness.Slack(time.Second) {
			t.Errorf("a send after all the cancellations took %v", r.Took())
		}
	}
	s := checker.Summarise(nil)
	if s.Acknowledged < 100 || s.Refused+s.Unknown < 20 {
		t.Errorf("the mix of outcomes proves little: %s", s)
	}
	stays(t, cl, w, before)
	if d := c.Counts().Since(warm); d.Registered() > 3 { // at most the read links of three nodes
		t.Errorf("cancellations cost %d registrations: links were lost; the client says: %+v", d.Registered(), w.Seen())
	}
	checker.MustVerify(t, c, stream, tp)
}

// pollOne reads one message and says when it is not the one that was asked for. Giving up is no fault.
func pollOne(ctx context.Context, cl *client.Client, stream, tp wire.Identifier, partition uint32, offset uint64) error {
	polled, err := cl.Poll(ctx, client.PollRequest{
		Stream: stream, Topic: tp, Partition: partition, Consumer: wire.SingleConsumer(wire.ID(9)), Strategy: wire.FromOffset(offset), Count: 1,
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("poll of partition %d at %d: %w", partition, offset, err)
	}
	defer polled.Release()
	n := 0
	for m := range polled.Messages() {
		n++
		if m.Offset != offset || m.Partition != partition {
			return fmt.Errorf("asked for offset %d of partition %d, got %d of %d", offset, partition, m.Offset, m.Partition)
		}
	}
	if n != 1 {
		return fmt.Errorf("asked for offset %d of partition %d, got %d messages", offset, partition, n)
	}
	return nil
}
