package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// ClusterFigures measures what a cluster of three processes on this machine does under load, when primaries move, when a
// node dies, and with many partitions. Each row starts its own processes on empty directories.
type ClusterFigures struct {
	Executable string
	Dir        string        // parent of the directories, "" = the system's temporary one
	Rounds     int           // runs of each comparison, in turns; medians count
	Length     time.Duration // of a timed run
	WarmUp     time.Duration
	Rate       float64 // messages per second offered while primaries move or a node dies
	InFlight   int     // unanswered requests per producer of the throughput rows
	Only       []string
	Progress   io.Writer // nil = none
}

// clusterCase is a row, or a few, that are measured together.
type clusterCase struct {
	name, what string
	run        func(*ClusterFigures, context.Context) ([]Figure, error)
}

func clusterCases() []clusterCase {
	return []clusterCase{
		{"transfer", "primaries moved under load", (*ClusterFigures).transfer},
		{"kill", "a node killed under load", (*ClusterFigures).kill},
		{"kill-1000", "a node killed, 1,000 partitions", (*ClusterFigures).killMany},
		{"dead-node", "one of three nodes dead", (*ClusterFigures).deadNode},
		{"in-flight", "several requests in flight", (*ClusterFigures).inFlight},
		{"cpu", "CPU against the floor", (*ClusterFigures).cpu},
		{"partitions", "many partitions", (*ClusterFigures).partitions},
		{"persisted", "persisted against replicated", (*ClusterFigures).persisted},
		{"idle", "idle partitions", (*ClusterFigures).idle},
	}
}

// Names of the rows that can be measured.
func (c *ClusterFigures) Names() []string {
	var out []string
	for _, k := range clusterCases() {
		out = append(out, k.name)
	}
	return out
}

// Check reports the first thing that is wrong with what is to be measured.
func (c *ClusterFigures) Check() error {
	for _, name := range c.Only {
		if !slices.Contains(c.Names(), name) {
			return fmt.Errorf("there is no row %q: choose of %s", name, strings.Join(c.Names(), ", "))
		}
	}
	switch {
	case c.Rounds < 1:
		return errors.New("rounds must be 1 or more")
	case c.Length <= 0:
		return errors.New("give a duration")
	case c.InFlight < 1 || c.InFlight > 16:
		return errors.New("1 to 16 requests in flight per producer")
	case c.Rate <= 0:
		return errors.New("the rate must be above zero")
	}
	return nil
}

// Run measures the rows. A row that fails ends the run; those before it are returned.
func (c *ClusterFigures) Run(ctx context.Context) ([]Figure, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	var out []Figure
	for _, k := range clusterCases() {
		if len(c.Only) > 0 && !slices.Contains(c.Only, k.name) {
			continue
		}
		c.say("%s: %s", k.name, k.what)
		fs, err := k.run(c, ctx)
		out = append(out, fs...)
		if err != nil {
			return out, fmt.Errorf("%s: %w", k.name, err)
		}
	}
	return out, nil
}

func (c *ClusterFigures) say(format string, args ...any) {
	if c.Progress != nil {
		_, _ = fmt.Fprintf(c.Progress, format+"\n", args...)
	}
}

// plan is a producing run with batches of 10 KB.
func (c *ClusterFigures) plan(change func(*Plan)) Plan {
	p := Plan{
		Kind: Produce, Stream: benchStream, Partitions: splitPartitions, Durability: "replicated", Producers: 12, BatchMessages: 100,
		MessageBytes: 100, InFlight: c.InFlight, API: APIProducer, Duration: Seconds(c.Length), WarmUp: Seconds(c.WarmUp),
	}
	if change != nil {
		change(&p)
	}
	return p
}

// with starts a cluster, does something with it, and ends it.
func (c *ClusterFigures) with(ctx context.Context, settings string, f func(*fixture) error) (err error) {
	x, err := startFixture(ctx, c.Executable, c.Dir, splitNodes, settings)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.close()) }()
	return f(x)
}

// once does one run in a new topic, whose primaries stand evenly.
func (c *ClusterFigures) once(ctx context.Context, x *fixture, p Plan) (res *Result, err error) {
	if p.Topic, err = x.evenTopic(ctx, p.Durability, int(p.Partitions)); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, x.dropTopic(ctx, p.Topic)) }()
	res, err = Run(ctx, p, x.target(), nil)
	if err == nil {
		err = res.Err()
	}
	return res, err
}

// compare measures plans in turns, round by round, and gives the median of a value for each.
func (c *ClusterFigures) compare(ctx context.Context, x *fixture, value func(*Result) float64, plans ...Plan) ([]float64, error) {
	runs := make([][]float64, len(plans))
	for i := range c.Rounds {
		for j, p := range plans {
			res, err := c.once(ctx, x, p)
			if err != nil {
				return nil, fmt.Errorf("round %d: %w", i+1, err)
			}
			runs[j] = append(runs[j], value(res))
			c.say("  round %d: %s: %.4g", i+1, p.Summary(), value(res))
		}
	}
	out := make([]float64, len(plans))
	for i := range runs {
		if out[i] = median(runs[i]); out[i] <= 0 {
			return nil, errors.New("nothing was measured")
		}
	}
	return out, nil
}

func messageRate(r *Result) float64 { return r.Produce.MessagesPerSec }

// inFlight: what a lone producer gains from having several requests in flight.
func (c *ClusterFigures) inFlight(ctx context.Context) (out []Figure, err error) {
	plan := func(n int) Plan {
		return c.plan(func(p *Plan) { p.Producers, p.Partitions, p.InFlight = 1, 1, n })
	}
	err = c.with(ctx, stillPrimaries, func(x *fixture) error {
		v, err := c.compare(ctx, x, messageRate, plan(1), plan(8))
		if err == nil {
			out = append(out, newFigure("one producer, one partition: 8 in flight ÷ 1 in flight", v[1]/v[0], "", 2, 0))
		}
		return err
	})
	return out, err
}

// partitions: throughput with many partitions against that with one.
func (c *ClusterFigures) partitions(ctx context.Context) (out []Figure, err error) {
	plan := func(n uint32) Plan { return c.plan(func(p *Plan) { p.Partitions = n }) }
	err = c.with(ctx, stillPrimaries, func(x *fixture) error {
		v, err := c.compare(ctx, x, messageRate, plan(1), plan(64), plan(1000))
		if err == nil {
			out = append(out, newFigure("throughput, 64 partitions ÷ 1", v[1]/v[0], "", 0.4, 0),
				newFigure("throughput, 1,000 partitions ÷ 1", v[2]/v[0], "", 0.12, 0))
		}
		return err
	})
	return out, err
}

// persisted: throughput of flushed writes, and what reaches the device.
func (c *ClusterFigures) persisted(ctx context.Context) (out []Figure, err error) {
	plan := func(durability string) Plan { return c.plan(func(p *Plan) { p.Durability = durability }) }
	device := map[string][]float64{}
	err = c.with(ctx, stillPrimaries, func(x *fixture) error {
		v, err := c.compare(ctx, x, func(r *Result) float64 {
			var written float64
			for _, n := range r.Nodes {
				written += float64(n.Written)
			}
			device[r.Plan.Durability] = append(device[r.Plan.Durability], written/splitNodes/recordBytes(r))
			return messageRate(r)
		}, plan("replicated"), plan("persisted"))
		if err != nil {
			return err
		}
		out = append(out, newFigure("throughput, persisted ÷ replicated, 6 partitions", v[1]/v[0], "", 0.25, 0),
			newFigure("device bytes per payload-and-header byte and replica, replicated", median(device["replicated"]), "", 0, 1.05),
			newFigure("device bytes per payload-and-header byte and replica, persisted", median(device["persisted"]), "", 0, 2.1))
		return nil
	})
	return out, err
}

// cpu: what all processes together use per gigabyte, against the floor.
func (c *ClusterFigures) cpu(ctx context.Context) (out []Figure, err error) {
	plan := func(n uint32) Plan { return c.plan(func(p *Plan) { p.Partitions = n }) }
	perGB := func(r *Result) float64 {
		sum := 0.0
		for _, n := range r.Nodes {
			sum += n.CPUSeconds
		}
		for _, u := range []*Usage{r.Server, r.Client} {
			if u != nil {
				sum += u.CPUSeconds
			}
		}
		return sum / (float64(r.Produce.Bytes) / 1e9)
	}
	var floors []float64
	err = c.with(ctx, stillPrimaries, func(x *fixture) error {
		v, err := c.compare(ctx, x, perGB, plan(1), plan(6))
		if err != nil {
			return err
		}
		for range c.Rounds {
			f, err := c.floor(ctx, plan(1), perGB)
			if err != nil {
				return fmt.Errorf("the floor: %w", err)
			}
			floors = append(floors, f)
		}
		base := median(floors)
		c.say("  CPU s/GB: 1 partition %.2f, 6 partitions %.2f, floor %.2f", v[0], v[1], base)
		out = append(out, newFigure("CPU per GB of three nodes and the client ÷ floor, 1 partition", v[0]/base, "", 0, 3),
			newFigure("CPU per GB of three nodes and the client ÷ floor, 6 partitions", v[1]/base, "", 0, 3))
		return nil
	})
	return out, err
}

// floor does one run against the floor.
func (c *ClusterFigures) floor(ctx context.Context, p Plan, value func(*Result) float64) (v float64, err error) {
	own := &Own{Executable: c.Executable, Floor: true, Parent: c.Dir}
	defer func() { err = errors.Join(err, own.Stop()) }()
	t, err := own.Start(ctx)
	if err != nil {
		return 0, err
	}
	p.Topic = "floor"
	res, err := Run(ctx, p, t, nil)
	if err != nil {
		return 0, err
	}
	return value(res), res.Err()
}

// idle: what partitions cost that nobody uses.
func (c *ClusterFigures) idle(ctx context.Context) (out []Figure, err error) {
	const many = 1000
	err = c.with(ctx, stillPrimaries, func(x *fixture) error {
		settle, watched := min(settleTime, 6*c.Length), max(3*c.Length, 5*time.Second)
		if err := pause(ctx, settle); err != nil { // until what a start needs has been given back
			return err
		}
		resident := func(us []Usage) (sum float64) {
			for _, u := range us {
				sum += float64(u.Resident)
			}
			return sum
		}
		before := resident(usages(x.target().Nodes))
		if _, err := x.evenTopic(ctx, "replicated", many); err != nil {
			return err
		}
		_ = x.admin.Close() // its pings are not the partitions' doing
		if err := pause(ctx, settle); err != nil {
			return err
		}
		start := time.Now()
		from := usages(x.target().Nodes)
		if err := pause(ctx, watched); err != nil {
			return err
		}
		cores := 0.0
		for _, n := range nodesSince(x.target().Nodes, from, time.Since(start)) {
			cores += n.Cores
		}
		memory := max(resident(usages(x.target().Nodes))-before, 0) / many / splitNodes
		out = append(out, newFigure("1,000 idle partitions: CPU of all three nodes", 100*cores, "% of a core", 0, 1),
			newFigure("1,000 idle partitions: memory of a replica", memory/1000, "KB", 0, 20))
		return nil
	})
	return out, err
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
