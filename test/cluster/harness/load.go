package harness

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/wire"
)

// Load is what producers do.
type Load struct {
	Stream, Topic wire.Identifier
	// Partitions to send to. Every producer takes them in turn, producer i starting with the i-th; with Pinned it stays
	// with that one.
	Partitions []uint32
	Pinned     bool
	// Batch is how many messages one send has, Size how many bytes a message; 0 = 1 and 100.
	Batch, Size int
	// Rate is the sends per second of all producers together; 0 = each sends again as soon as it has its answer.
	Rate float64
	// Pipelined sends through client.Producer, which keeps several requests in flight, instead of client.Send. Batches are
	// then the client's own and Batch only the number of messages that are enqueued together.
	Pipelined bool
	// Window bounds the messages of a pipelined producer without outcome; 0 = 1,000.
	Window int
	// Timeout of one send; 0 = the client's own.
	Timeout time.Duration
	// OnEnd, when it is set, sees every send that ended. It is called from the producers' goroutines.
	OnEnd func(Record)
}

// errorPause is the pause of a producer after a send that failed, so that a cluster that refuses is not flooded.
const errorPause = 20 * time.Millisecond

// RunningLoad is a load under way.
type RunningLoad struct {
	checker *Checker
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	acked   atomic.Int64
	errs    chan error
}

// Start runs one producer per client until Stop. The clients stay open.
func (l Load) Start(checker *Checker, clients ...*client.Client) *RunningLoad {
	if l.Batch == 0 {
		l.Batch = 1
	}
	if l.Size == 0 {
		l.Size = 100
	}
	if l.Window == 0 {
		l.Window = 1000
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &RunningLoad{checker: checker, cancel: cancel, errs: make(chan error, len(clients))}
	for i, c := range clients {
		p := producer{Load: l, run: r, client: c, index: i, of: len(clients), id: checker.Producer()}
		r.wg.Go(func() {
			if l.Pipelined {
				r.errs <- p.pipelined(ctx)
				return
			}
			p.inLine(ctx)
			r.errs <- nil
		})
	}
	return r
}

// Acknowledged is the number of messages that were acknowledged so far.
func (r *RunningLoad) Acknowledged() int64 { return r.acked.Load() }

// WaitFor waits until so many more messages are acknowledged than now.
func (r *RunningLoad) WaitFor(ctx context.Context, limit time.Duration, more int64) error {
	want := r.Acknowledged() + more
	return Until(ctx, limit, fmt.Sprintf("%d more acknowledged messages", more), func(context.Context) error {
		if got := r.Acknowledged(); got < want {
			return fmt.Errorf("%d are missing", want-got)
		}
		return nil
	})
}

// MustFlow is WaitFor for a test.
func (r *RunningLoad) MustFlow(t testing.TB, limit time.Duration, more int64) {
	t.Helper()
	if err := r.WaitFor(t.Context(), limit, more); err != nil {
		t.Fatalf("%v\n%s", err, r.checker.Failures(20))
	}
}

// Stop ends the load and waits for the outcomes of what is under way.
func (r *RunningLoad) Stop() error {
	r.cancel()
	r.wg.Wait()
	close(r.errs)
	for err := range r.errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// MustStop is Stop for a test.
func (r *RunningLoad) MustStop(t testing.TB) {
	t.Helper()
	if err := r.Stop(); err != nil {
		t.Errorf("stop the load: %v", err)
	}
}

// producer is one of the load's.
type producer struct {
	Load
	run    *RunningLoad
	client *client.Client
	index  int
	of     int
	id     uint32
	sends  int
}

// next is the partition of the next send.
func (p *producer) next() uint32 {
	i := p.index
	if !p.Pinned {
		i += p.sends
	}
	p.sends++
	return p.Partitions[i%len(p.Partitions)]
}

// pace gives a channel that ticks at the producer's share of the rate, or nil.
func (p *producer) pace() (<-chan time.Time, func()) {
	if p.Rate == 0 {
		return nil, func() {}
	}
	t := time.NewTicker(time.Duration(float64(p.of) / p.Rate * float64(time.Second)))
	return t.C, t.Stop
}

// inLine sends and waits for the answer.
func (p *producer) inLine(ctx context.Context) {
	ticks, stop := p.pace()
	defer stop()
	for ctx.Err() == nil {
		if ticks != nil {
			select {
			case <-ticks:
			case <-ctx.Done():
				return
			}
		}
		partition := p.next()
		s := p.run.checker.Begin(p.id, partition, p.Batch, p.Size)
		// Not the load's context: the outcome of what is under way is waited for.
		sctx, cancel := context.Background(), context.CancelFunc(func() {})
		if p.Timeout != 0 {
			sctx, cancel = context.WithTimeout(sctx, p.Timeout)
		}
		conf, err := p.client.Send(sctx, p.Stream, p.Topic, wire.PartitionID(partition), s.ClientMessages()...)
		cancel()
		if p.ended(s.Confirm(conf, err)) != Acknowledged {
			pause(ctx, errorPause)
		}
	}
}

func (p *producer) ended(r Record) Outcome {
	if r.Outcome == Acknowledged {
		p.run.acked.Add(int64(r.Messages))
	}
	if p.OnEnd != nil {
		p.OnEnd(r)
	}
	return r.Outcome
}

// pipelined sends through one client.Producer per partition.
func (p *producer) pipelined(ctx context.Context) error {
	producers := map[uint32]*client.Producer{}
	for _, partition := range p.Partitions {
		producers[partition] = p.client.Producer(p.Stream, p.Topic, client.ProducerConfig{
			Partitioner: client.FixedPartition(partition), DeliveryTimeout: p.Timeout,
		})
	}
	ticks, stop := p.pace()
	defer stop()
	window := make(chan struct{}, p.Window)
	for ctx.Err() == nil {
		if ticks != nil {
			select {
			case <-ticks:
			case <-ctx.Done():
			}
		}
		if err := p.enqueue(ctx, producers, window); err != nil {
			return err
		}
	}
	cctx, cancel := context.WithTimeout(context.Background(), client.DefaultRequestTimeout+5*time.Second)
	defer cancel()
	for partition, producer := range producers {
		if err := producer.Close(cctx); err != nil {
			return fmt.Errorf("close the producer of partition %d: %w", partition, err)
		}
	}
	return nil
}

// enqueue hands a batch over, one message at a time.
func (p *producer) enqueue(ctx context.Context, producers map[uint32]*client.Producer, window chan struct{}) error {
	partition := p.next()
	for range p.Batch {
		select {
		case window <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		s := p.run.checker.Begin(p.id, partition, 1, p.Size)
		err := producers[partition].Enqueue(context.Background(), s.ClientMessages()[0], func(conf client.Confirmation, err error) {
			p.ended(s.Confirm(conf, err))
			<-window
		})
		if err != nil {
			s.End(Refused, false, 0, err)
			<-window
			return fmt.Errorf("enqueue for partition %d: %w", partition, err)
		}
	}
	return nil
}

// pause of a producer, ended by ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
