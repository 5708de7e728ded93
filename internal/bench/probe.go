package bench

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/wire"
)

// probes send one small message after the other to each partition of a topic, and note when each was acknowledged.
type probes struct {
	every  time.Duration // between the starts of two sends to one partition; 0 = at once
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	sends    [][]probe // by place in the list of partitions
	failures int
	failure  error
}

// probe is one acknowledged send.
type probe struct{ begin, end time.Time }

func (p probe) took() time.Duration { return p.end.Sub(p.begin) }

// startProbes starts one sender per partition, spread over the clients.
func startProbes(ctx context.Context, clients []*client.Client, topic string, partitions []uint32, every time.Duration) *probes {
	ctx, cancel := context.WithCancel(ctx)
	p := &probes{every: every, cancel: cancel, sends: make([][]probe, len(partitions))}
	for i, partition := range partitions {
		c := clients[i%len(clients)]
		p.wg.Go(func() { p.probe(ctx, c, topic, partition, i) })
	}
	return p
}

// allPartitions lists the partitions of a topic.
func allPartitions(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i)
	}
	return ids
}

func (p *probes) probe(ctx context.Context, c *client.Client, topic string, partition uint32, place int) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	message := client.Message{Payload: []byte("probe")}
	for ctx.Err() == nil {
		begin := time.Now()
		_, err := c.Send(ctx, wire.Name(benchStream), wire.Name(topic), wire.PartitionID(partition), message)
		end := time.Now()
		if ctx.Err() != nil {
			return
		}
		p.note(place, probe{begin, end}, err)
		wait := p.every - end.Sub(begin)
		if wait <= 0 {
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

func (p *probes) note(place int, s probe, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.failures++
		p.failure = err
		return
	}
	p.sends[place] = append(p.sends[place], s)
}

// stop ends the senders and waits for them.
func (p *probes) stop() {
	p.cancel()
	p.wg.Wait()
}

// after tells whether each partition acknowledged something after t, and how long after t the slowest did so first.
func (p *probes) after(t time.Time) (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var worst time.Duration
	for _, sends := range p.sends {
		i := slices.IndexFunc(sends, func(s probe) bool { return s.end.After(t) })
		if i < 0 {
			return 0, false
		}
		worst = max(worst, sends[i].end.Sub(t))
	}
	return worst, true
}

// slowest is the longest send that was under way between two times; 0 = there was none.
func (p *probes) slowest(from, to time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var worst time.Duration
	for _, sends := range p.sends {
		for _, s := range sends {
			if s.end.After(from) && s.begin.Before(to) {
				worst = max(worst, s.took())
			}
		}
	}
	return worst
}

// lost is how many sends failed, and the last reason.
func (p *probes) lost() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failures, p.failure
}
