package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/wire"
)

// Target is the server that is measured.
type Target struct {
	Name    string         // for people: an address, "floor", "server"
	Options client.Options // how to connect
	PID     int            // of the server's process on this machine, 0 = elsewhere
	Data    string         // its data directory, "" = elsewhere
	// Nodes are the processes of a cluster on this machine; PID is 0 then.
	Nodes []Process
	// Restart restarts the process on the same data, for runs that must find nothing in its memory; nil = cannot.
	Restart func(context.Context) (Target, error)
}

// Run does one run. Progress lines go to progress (nil = none). When ctx ends the run stops early and what was measured
// is still returned. Requests that fail are no error of Run as long as something was measured: see Result.Err.
func Run(ctx context.Context, p Plan, t Target, progress io.Writer) (*Result, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	r := &runner{plan: p, target: t, progress: newProgress(progress, p)}
	admin, err := r.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer r.hangUp(admin)
	if err := r.prepare(ctx, admin); err != nil {
		return nil, err
	}
	res, err := r.measure(ctx)
	if err != nil {
		return nil, err
	}
	return res, nil
}

// runner is one run.
type runner struct {
	plan     Plan
	target   Target
	progress *progress

	stream, topic wire.Identifier
	ends          []uint64 // first offset behind what a consumer finds at the start, per partition

	gate      gate
	producers recorders
	consumers recorders
	endToEnd  recorders
	schedules []*Schedule
	routing   routingCounter

	sending   atomic.Int32 // producing workers that have not ended
	remaining atomic.Int64 // messages of a counted run that nobody has claimed
	deadline  time.Time    // of a timed run; zero otherwise

	failMu  sync.Mutex
	failure error // the first one
}

func (r *runner) dial(ctx context.Context) (*client.Client, error) {
	o := r.target.Options
	o.InFlight = max(o.InFlight, r.plan.InFlight)
	o.Hooks = append(slices.Clip(o.Hooks), &r.routing)
	c, err := client.New(o)
	if err != nil {
		return nil, err
	}
	if err := c.Connect(ctx); err != nil {
		_ = c.Close() // it never connected
		return nil, fmt.Errorf("connect to %s: %w", r.target.Name, err)
	}
	return c, nil
}

func (r *runner) hangUp(c *client.Client) {
	_ = c.Close() // everything that mattered has been answered
}

// prepare makes stream and topic, and fills the topic for a consume run.
func (r *runner) prepare(ctx context.Context, admin *client.Client) error {
	p := &r.plan
	r.stream, r.topic = wire.Name(p.Stream), wire.Name(p.Topic)
	if _, err := admin.Stream(ctx, r.stream); errors.Is(err, client.ErrNotFound) {
		if _, err := admin.CreateStream(ctx, p.Stream); err != nil {
			return fmt.Errorf("create stream %q: %w", p.Stream, err)
		}
	} else if err != nil {
		return fmt.Errorf("look up stream %q: %w", p.Stream, err)
	}
	topic, err := admin.Topic(ctx, r.stream, r.topic)
	if errors.Is(err, client.ErrNotFound) {
		cfg := client.TopicConfig{Name: p.Topic, Partitions: p.Partitions}
		if p.Durability != "" {
			cfg.Options = cfg.Options.Set(wire.OptDurability, wire.StringValue(p.Durability))
		}
		topic, err = admin.CreateTopic(ctx, r.stream, cfg)
	}
	if err != nil {
		return fmt.Errorf("create topic %q: %w", p.Topic, err)
	}
	if topic.PartitionsCount == 0 {
		return fmt.Errorf("topic %q has no partitions", p.Topic)
	}
	r.plan.Partitions = topic.PartitionsCount
	if p.Kind != Consume {
		return nil
	}
	if err := r.fill(ctx); err != nil || !p.Cold {
		return err
	}
	if r.target.Data == "" {
		return errors.New("the files of a server elsewhere cannot be dropped from its page cache: leave out --cold")
	}
	if r.target.Restart != nil {
		// A server also keeps recent batches in its own memory.
		t, err := r.target.Restart(ctx)
		if err != nil {
			return fmt.Errorf("restart the server for a cold read: %w", err)
		}
		r.target = t
	}
	return dropCaches(r.target.Data)
}

// fill puts the messages of a consume run into the topic, evenly, and remembers where each partition ends.
func (r *runner) fill(ctx context.Context) error {
	p := r.plan
	r.ends = make([]uint64, p.Partitions)
	if p.Fill > 0 {
		fill := p
		fill.Kind, fill.API, fill.Rate, fill.WarmUp = Produce, APIProducer, 0, 0
		fill.Messages, fill.Duration = p.Fill, 0
		fill.Producers, fill.InFlight = min(int(p.Partitions), 4), 4
		f := &runner{plan: fill, target: r.target, stream: r.stream, topic: r.topic, progress: r.progress.as("filling")}
		res, err := f.measure(ctx)
		if err != nil {
			return fmt.Errorf("fill the topic: %w", err)
		}
		if res.Produce.Messages < p.Fill {
			return fmt.Errorf("fill the topic: only %d of %d messages were taken: %w", res.Produce.Messages, p.Fill, cmp.Or(res.Err(), context.Cause(ctx)))
		}
	}
	return nil
}

// findEnds asks each partition for its last offset.
func (r *runner) findEnds(ctx context.Context, c *client.Client) error {
	r.ends = make([]uint64, r.plan.Partitions)
	for i := range r.ends {
		polled, err := c.Poll(ctx, client.PollRequest{Stream: r.stream, Topic: r.topic, Partition: uint32(i), Strategy: wire.FromFirst(), Count: 1})
		if err != nil {
			return fmt.Errorf("look into partition %d: %w", i, err)
		}
		if polled.Count > 0 {
			r.ends[i] = polled.CurrentOffset + 1
		}
		polled.Release()
	}
	return nil
}

// measure connects all workers, runs them, and puts the result together.
func (r *runner) measure(ctx context.Context) (*Result, error) {
	p := r.plan
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var clients []*client.Client
	defer func() {
		for _, c := range clients {
			r.hangUp(c)
		}
	}()
	connect := func(n int) ([]*client.Client, error) {
		var out []*client.Client
		for range n {
			c, err := r.dial(ctx)
			if err != nil {
				return nil, err
			}
			clients = append(clients, c)
			out = append(out, c)
		}
		return out, nil
	}
	var producing, consuming []*client.Client
	var err error
	if p.Kind != Consume {
		if producing, err = connect(p.Producers); err != nil {
			return nil, err
		}
		if err := r.warm(ctx, producing); err != nil {
			return nil, err
		}
	}
	if p.Kind != Produce {
		if consuming, err = connect(p.Consumers); err != nil {
			return nil, err
		}
		if err := r.findEnds(ctx, consuming[0]); err != nil {
			return nil, err
		}
	}

	r.remaining.Store(1<<63 - 1)
	if p.Messages > 0 {
		r.remaining.Store(int64(min(p.Messages, 1<<62)))
	}
	var wg sync.WaitGroup
	begin := time.Now()
	if p.Messages == 0 {
		r.deadline = begin.Add(time.Duration(p.WarmUp + p.Duration))
	}
	if p.WarmUp == 0 {
		r.gate.open(begin) // before the first request, so that none is missed
	}
	r.startProducers(ctx, &wg, producing, begin)
	r.startConsumers(ctx, &wg, consuming)

	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	return r.watch(begin, done)
}

// watch opens the gate after the warm-up, samples the series, and waits for the end.
func (r *runner) watch(begin time.Time, done <-chan struct{}) (*Result, error) {
	p := r.plan
	from := begin.Add(time.Duration(p.WarmUp))
	warm := time.NewTimer(time.Until(from))
	defer warm.Stop()
	if p.WarmUp > 0 {
		select {
		case <-warm.C:
			from = time.Now()
			r.gate.open(from)
		case <-done:
		}
	}
	serverBefore, serverErr := r.serverUsage()
	nodesBefore, warmed := usages(r.target.Nodes), r.routing.read()
	clientBefore, _ := ReadUsage(os.Getpid())
	res := &Result{Kind: p.Kind, Target: r.target.Name, Started: begin, Plan: p, Series: []Point{}}
	step := sampleStep(time.Duration(p.Duration))
	tick := time.NewTicker(step)
	defer tick.Stop()
	last, lastCPU := from, serverBefore.CPUSeconds
	for running := true; running; {
		select {
		case <-done:
			running = false
			if time.Since(last) < step/2 {
				continue // too short for a rate
			}
		case <-tick.C:
		}
		now := time.Now()
		point := r.sample(from, last, now)
		if serverErr == nil {
			if u, err := r.serverUsage(); err == nil {
				point.ServerCPU = (u.CPUSeconds - lastCPU) / now.Sub(last).Seconds()
				point.ServerResident = u.Resident
				lastCPU = u.CPUSeconds
			}
		}
		last = now
		res.Series = append(res.Series, point)
		r.progress.show(point)
	}
	r.progress.end()
	if len(r.target.Nodes) > 0 {
		res.Nodes = nodesSince(r.target.Nodes, nodesBefore, time.Since(from))
	}
	res.WarmUpRouting, res.Routing = warmed, r.routing.read().minus(warmed)
	return r.finish(res, from, serverBefore, serverErr, clientBefore)
}

func (r *runner) finish(res *Result, from time.Time, serverBefore Usage, serverErr error, clientBefore Usage) (*Result, error) {
	res.Produce = side(r.producers, from)
	res.Consume = side(r.consumers, from)
	if len(r.endToEnd) > 0 {
		h, _, _ := r.endToEnd.merged()
		l := summarize(h, true)
		res.EndToEnd = &l
	}
	now := time.Now()
	if r.plan.Rate > 0 && res.Produce != nil {
		end := now
		if !r.deadline.IsZero() && end.After(r.deadline) {
			end = r.deadline
		}
		for _, s := range r.schedules {
			res.Produce.Behind += s.Behind(end)
		}
	}
	if serverErr == nil {
		if u, err := r.serverUsage(); err == nil {
			u = u.since(serverBefore)
			res.Server = &u
		}
	}
	if u, err := ReadUsage(os.Getpid()); err == nil {
		u = u.since(clientBefore)
		res.Client = &u
	}
	res.failure = r.firstFailure()
	if res.counts().Messages == 0 {
		if res.failure != nil {
			return nil, res.failure
		}
		return nil, errors.New("nothing was measured: the run ended during its warm-up, or there were no messages")
	}
	return res, nil
}

func (r *runner) serverUsage() (Usage, error) {
	if r.target.PID == 0 {
		return Usage{}, errors.New("the server is not on this machine")
	}
	return ReadUsage(r.target.PID)
}

func (r *runner) sample(from, last, now time.Time) Point {
	seconds := now.Sub(last).Seconds()
	pt := Point{Seconds: now.Sub(from).Seconds()}
	us := func(ns int64) float64 { return float64(ns) / 1e3 }
	h, c := r.producers.take()
	pt.ProduceMsgs, pt.ProduceBytes = float64(c.Messages)/seconds, float64(c.Bytes)/seconds
	pt.ProduceP50, pt.ProduceP99 = us(h.ValueAtQuantile(50)), us(h.ValueAtQuantile(99))
	h, c = r.consumers.take()
	pt.ConsumeMsgs, pt.ConsumeBytes = float64(c.Messages)/seconds, float64(c.Bytes)/seconds
	pt.ConsumeP50, pt.ConsumeP99 = us(h.ValueAtQuantile(50)), us(h.ValueAtQuantile(99))
	return pt
}

// sampleStep gives about 120 points, between a tenth and one second apart.
func sampleStep(d time.Duration) time.Duration {
	if d <= 0 {
		return 500 * time.Millisecond
	}
	return min(max(d/120, 100*time.Millisecond), time.Second).Round(50 * time.Millisecond)
}

// over reports whether a request that is due at t no longer belongs to the run.
func (r *runner) over(ctx context.Context, t time.Time) bool {
	return ctx.Err() != nil || !r.deadline.IsZero() && !t.Before(r.deadline)
}

// claim takes up to n messages of a counted run.
func (r *runner) claim(n int) int {
	left := r.remaining.Add(-int64(n)) + int64(n)
	return int(min(max(left, 0), int64(n)))
}

// mostFailures is how many requests of a worker may fail in a row before it gives up.
const mostFailures = 100

// failed counts a request that was due at due and failed, and keeps the first failure. What fails because the run was
// told to stop is none.
func (r *runner) failed(ctx context.Context, rec *recorder, due time.Time, err error) {
	if ctx.Err() != nil {
		return
	}
	r.failMu.Lock()
	if r.failure == nil {
		r.failure = err
	}
	r.failMu.Unlock()
	rec.count(due, time.Now(), Counts{Failures: 1})
}

// givesUp reports whether a worker with so many failures in a row should end.
func givesUp(ctx context.Context, inARow int) bool { return ctx.Err() != nil || inARow >= mostFailures }

func (r *runner) firstFailure() error {
	r.failMu.Lock()
	defer r.failMu.Unlock()
	return r.failure
}
