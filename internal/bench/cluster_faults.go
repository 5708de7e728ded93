package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/wire"
)

// Pace of moves and of probes, and how long a cluster may take to be writable again before a run is given up.
const (
	moveEvery     = 150 * time.Millisecond
	moveTail      = 20 * time.Millisecond // sends that begin so soon after a move still belong to it
	probeEvery    = 10 * time.Millisecond
	probeManyTime = 200 * time.Millisecond // a probe of a partition without a primary waits, so the pace costs no precision
	faultLimit    = 60 * time.Second
)

// evenTopic makes a topic and waits until each partition's primary is the node that it was given at creation.
func (f *fixture) evenTopic(ctx context.Context, durability string, partitions int) (string, error) {
	f.topics++
	name := fmt.Sprintf("t%d", f.topics)
	cfg := client.TopicConfig{Name: name, Partitions: uint32(partitions)}
	cfg.Options = cfg.Options.Set(wire.OptDurability, wire.StringValue(durability))
	if _, err := f.admin.CreateTopic(ctx, wire.Name(benchStream), cfg); err != nil {
		return "", fmt.Errorf("make a topic: %w", err)
	}
	return name, f.awaitPrimaries(ctx, name, partitions, -1)
}

// awaitPrimaries waits until every partition has a primary, on another node than without.
func (f *fixture) awaitPrimaries(ctx context.Context, topic string, partitions, without int) error {
	ctx, cancel := context.WithTimeout(ctx, faultLimit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		at, err := f.primaries(ctx, topic, partitions)
		if err == nil && !slices.ContainsFunc(at, func(n int) bool { return n < 0 || n == without }) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the primaries of %s: %w", topic, errors.Join(context.Cause(ctx), err))
		}
	}
}

// awaitFollowers waits until every follower of a topic's partitions has what is committed.
func (f *fixture) awaitFollowers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, faultLimit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		status, err := f.admin.ClusterStatus(ctx, true)
		if err == nil && caughtUp(status) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the followers: %w", errors.Join(context.Cause(ctx), err))
		}
	}
}

func caughtUp(s *wire.ClusterStatusReply) bool {
	for _, n := range s.Nodes {
		if !n.Reachable {
			return false
		}
	}
	for _, g := range s.Groups {
		if g.Primary == wire.NoNode || len(g.Followers) < len(s.Nodes)-1 {
			return false
		}
		for _, fo := range g.Followers {
			if fo.Match < g.Commit {
				return false
			}
		}
	}
	return true
}

// clients connects n clients that have looked for the primaries of a topic.
func (f *fixture) clients(ctx context.Context, n int, topic string) (out []*client.Client, closeAll func(), err error) {
	closeAll = func() {
		for _, c := range out {
			_ = c.Close() // what mattered was answered
		}
	}
	for range n {
		c, err := client.New(f.cluster.Options())
		if err != nil {
			return nil, closeAll, err
		}
		out = append(out, c)
		if err := c.Connect(ctx); err != nil {
			return nil, closeAll, err
		}
		if err := c.Warm(ctx, wire.Name(benchStream), wire.Name(topic)); err != nil {
			return nil, closeAll, err
		}
	}
	return out, closeAll, nil
}

// underLoad runs a load on a topic, and something else at the same time, which begins when the load is warm and must end
// before the load does.
func (c *ClusterFigures) underLoad(ctx context.Context, x *fixture, p Plan, f func(context.Context) error) (*Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type end struct {
		res *Result
		err error
	}
	ends := make(chan end, 1)
	go func() {
		res, err := Run(ctx, p, x.target(), nil)
		ends <- end{res, err}
	}()
	err := pause(ctx, time.Duration(p.WarmUp)+100*time.Millisecond)
	if err == nil {
		err = f(ctx)
	}
	if err != nil {
		cancel()
	}
	e := <-ends
	return e.res, errors.Join(err, e.err)
}

// moveUnderProbe moves a primary while one sender after the other waits for its message to that partition, and tells how long
// the slowest of them waited.
func (f *fixture) moveUnderProbe(ctx context.Context, c *client.Client, topic string, partition uint32, to int) (stall time.Duration, failed int, err error) {
	watch := startProbes(ctx, []*client.Client{c}, topic, []uint32{partition}, 0)
	defer watch.stop()
	if err := awaitProbes(ctx, watch, time.Now()); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	err = f.move(ctx, topic, partition, to)
	ended := time.Now().Add(moveTail)
	if err == nil {
		err = pause(ctx, moveTail)
	}
	watch.stop()
	failed, failure := watch.lost()
	return watch.slowest(began, ended), failed, errors.Join(err, failure)
}

// transfer: primaries go from node to node while producers send at a rate and probes send to each partition.
func (c *ClusterFigures) transfer(ctx context.Context) (out []Figure, err error) {
	err = c.with(ctx, stillPrimaries, func(x *fixture) error {
		p := c.plan(func(p *Plan) { p.Rate = c.Rate })
		if p.Topic, err = x.evenTopic(ctx, p.Durability, splitPartitions); err != nil {
			return err
		}
		probers, hangUp, err := x.clients(ctx, splitPartitions, p.Topic)
		defer hangUp()
		if err != nil {
			return err
		}
		var stalls []float64
		failures := 0
		res, err := c.underLoad(ctx, x, p, func(ctx context.Context) error {
			at, err := x.primaries(ctx, p.Topic, splitPartitions)
			if err != nil {
				return err
			}
			tick := time.NewTicker(moveEvery)
			defer tick.Stop()
			for end := time.Now().Add(c.Length - 2*moveEvery); time.Now().Before(end); {
				i := len(stalls) % splitPartitions
				to := (at[i] + 1) % splitNodes
				stall, failed, err := x.moveUnderProbe(ctx, probers[i], p.Topic, uint32(i), to)
				if failures += failed; err != nil {
					return fmt.Errorf("move partition %d: %w", i, err)
				}
				at[i] = to
				stalls = append(stalls, float64(stall)/float64(time.Millisecond))
				select {
				case <-tick.C:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if len(stalls) == 0 {
			return fmt.Errorf("no primary was moved in %v: it takes a longer duration", c.Length) // nothing is no good figure
		}
		c.say("  %d moves under %s msg/s: longest probe of a move, median %.2f ms, worst %.2f ms", len(stalls), Rate(res.Produce.MessagesPerSec), median(stalls), slices.Max(append(stalls, 0)))
		out = append(out, newFigure("primary moved under load: until writable, p50", median(stalls), "ms", 0, 2),
			newFigure("primary moved under load: slowest send", res.Produce.Latency.Max/1000, "ms", 0, 250),
			atMost("primary moved under load: sends that failed", float64(res.Produce.Failures)+float64(failures), "", 0),
			atMost("primary moved under load: session moves", float64(res.Routing.SessionMoves), "", 0))
		return nil
	})
	return out, err
}

// kill: a node dies under load.
func (c *ClusterFigures) kill(ctx context.Context) ([]Figure, error) {
	return c.killUnderLoad(ctx, splitPartitions, probeEvery, "kill -9 under load, 6 partitions")
}

// killMany: likewise, and many partitions have to find another primary.
func (c *ClusterFigures) killMany(ctx context.Context) ([]Figure, error) {
	return c.killUnderLoad(ctx, 1000, probeManyTime, "kill -9 under load, 1,000 partitions")
}

func (c *ClusterFigures) killUnderLoad(ctx context.Context, partitions int, every time.Duration, what string) (out []Figure, err error) {
	var gaps []float64
	failed := 0.0
	err = c.with(ctx, stillPrimaries, func(x *fixture) error {
		for round := range c.Rounds {
			gap, failures, err := c.killOnce(ctx, x, partitions, every, round%splitNodes)
			if err != nil {
				return fmt.Errorf("round %d: %w", round+1, err)
			}
			gaps = append(gaps, gap.Seconds())
			failed += failures
			c.say("  round %d: node-%d killed, every partition writable after %v, %v failed", round+1, round%splitNodes, gap.Round(time.Millisecond), failures)
		}
		out = append(out, newFigure(what+": every partition writable again, worst", slices.Max(gaps), "s", 0, 1.5),
			atMost(what+": sends that failed", failed, "", 0))
		return nil
	})
	return out, err
}

func (c *ClusterFigures) killOnce(ctx context.Context, x *fixture, partitions int, every time.Duration, victim int) (gap time.Duration, failures float64, err error) {
	p := c.plan(func(p *Plan) {
		p.Rate, p.Partitions = c.Rate, uint32(partitions)
		p.Duration = Seconds(max(c.Length, 5*time.Second)) // longer than the gap
	})
	if p.Topic, err = x.evenTopic(ctx, p.Durability, partitions); err != nil {
		return 0, 0, err
	}
	probers, hangUp, err := x.clients(ctx, 6, p.Topic)
	defer hangUp()
	if err != nil {
		return 0, 0, err
	}
	watch := startProbes(ctx, probers, p.Topic, allPartitions(partitions), every)
	defer watch.stop()
	res, err := c.underLoad(ctx, x, p, func(ctx context.Context) error {
		if err := awaitProbes(ctx, watch, time.Now()); err != nil {
			return err
		}
		x.cluster.Nodes()[victim].Kill()
		killed := time.Now()
		if err := awaitProbes(ctx, watch, killed); err != nil {
			return err
		}
		gap, _ = watch.after(killed)
		return nil
	})
	watch.stop()
	if err != nil {
		return 0, 0, err
	}
	lost, failure := watch.lost()
	if failure != nil {
		c.say("  a probe failed: %v", failure)
	}
	failures = float64(res.Produce.Failures) + float64(lost)
	if err := x.cluster.Nodes()[victim].StartAgain(ctx); err != nil {
		return 0, 0, err
	}
	if err := x.awaitFollowers(ctx); err != nil {
		return 0, 0, err
	}
	return gap, failures, x.dropTopic(ctx, p.Topic)
}

// awaitProbes waits until each partition acknowledged something after t.
func awaitProbes(ctx context.Context, w *probes, t time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, faultLimit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, ok := w.after(t); ok {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			_, failure := w.lost()
			return fmt.Errorf("some partition took nothing: %w", errors.Join(context.Cause(ctx), failure))
		}
	}
}

// deadNode: what is left when one of three nodes is dead, whichever it is.
func (c *ClusterFigures) deadNode(ctx context.Context) (out []Figure, err error) {
	single := c.plan(func(p *Plan) { p.Producers, p.BatchMessages, p.InFlight, p.API = 1, 1, 1, APISend })
	batches := c.plan(nil)
	both := func(x *fixture, topic string) (p50, rate float64, err error) {
		for _, p := range []Plan{single, batches} {
			p.Topic = topic
			res, err := Run(ctx, p, x.target(), nil)
			if err != nil {
				return 0, 0, err
			}
			if p.BatchMessages == 1 {
				p50 = res.Produce.Latency.P50
			} else {
				rate = res.Produce.MessagesPerSec
			}
		}
		return p50, rate, nil
	}
	var slower, less []float64
	err = c.with(ctx, stillPrimaries, func(x *fixture) error {
		for victim := range splitNodes {
			var p50s, rates [2][]float64
			for range c.Rounds {
				topic, err := x.evenTopic(ctx, "replicated", splitPartitions)
				if err != nil {
					return err
				}
				for dead := range 2 {
					if dead == 1 {
						x.cluster.Nodes()[victim].Kill()
						if err := x.awaitPrimaries(ctx, topic, splitPartitions, victim); err != nil {
							return err
						}
					}
					p50, rate, err := both(x, topic)
					if err != nil {
						return err
					}
					p50s[dead], rates[dead] = append(p50s[dead], p50), append(rates[dead], rate)
				}
				if err := x.cluster.Nodes()[victim].StartAgain(ctx); err != nil {
					return err
				}
				if err := x.awaitFollowers(ctx); err != nil {
					return err
				}
				if err := x.dropTopic(ctx, topic); err != nil {
					return err
				}
			}
			slower = append(slower, median(p50s[1])/median(p50s[0]))
			less = append(less, median(rates[1])/median(rates[0]))
			c.say("  node-%d dead ÷ all alive: single-send p50 %.2f (%s ÷ %s), throughput %.2f", victim,
				slower[victim], Micros(median(p50s[1])), Micros(median(p50s[0])), less[victim])
		}
		out = append(out, newFigure("one node dead ÷ all alive, worst node: single-send p50", slices.Max(slower), "", 0, 1.2),
			newFigure("one node dead ÷ all alive, worst node: throughput", slices.Min(less), "", 0.95, 0))
		return nil
	})
	return out, err
}
