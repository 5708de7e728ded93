package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Split measures what it costs a client that the primaries of a topic's partitions stand on several nodes. It starts its
// own cluster of three processes. Runs of all rows take turns, round by round, and medians are compared, because the speed
// of a machine drifts.
type Split struct {
	Executable    string
	Dir           string        // parent of the directory, "" = the system's temporary one
	Rounds        int           // runs of each row
	Length        time.Duration // of one run
	WarmUp        time.Duration // before each
	Rate          float64       // messages per second offered; each row is also measured as fast as it goes
	Producers     int           // each with a client of its own
	Batch         int           // messages per request
	MessageBytes  int
	InFlight      int      // unanswered requests per producer
	ForeignClient *Foreign // a released client; nil leaves its rows out
	Progress      io.Writer
}

// Layouts of primaries.
const (
	OneNode      = "6 partitions on one node"
	Spread       = "6 partitions, 2-2-2"
	OnePartition = "1 partition"
)

// splitNodes is the size of the cluster, splitPartitions that of the topics that are split.
const (
	splitNodes      = 3
	splitPartitions = 6
)

// Clients of the rows.
const (
	OurClient          = "whippet"
	ReleasedClient     = "released"
	ReleasedNotForward = "released, no forwarding"
)

// SplitRow is one line of the table: medians over the rounds; moves, refusals and lookups are sums.
type SplitRow struct {
	Client         string     `json:"client"`
	Layout         string     `json:"primaries"`
	Offered        float64    `json:"offered_messages_per_second"` // 0 = as fast as it goes
	MessagesPerSec float64    `json:"messages_per_second"`
	P50            float64    `json:"p50_us"`
	P99            float64    `json:"p99_us"`
	P999           float64    `json:"p99_9_us"`
	Max            float64    `json:"max_us"`
	SessionMoves   uint64     `json:"session_moves"`
	Refusals       *uint64    `json:"refusals"` // nil: the client does not tell
	Lookups        *uint64    `json:"lookups"`
	Failures       uint64     `json:"failures"`
	NodeCores      []float64  `json:"node_cpu_cores"`
	ClientCores    *float64   `json:"client_cpu_cores"`
	Runs           []SplitRun `json:"runs"`

	curve []Percentile // of the last run
}

// SplitRun is one run of a row.
type SplitRun struct {
	MessagesPerSec float64   `json:"messages_per_second"`
	P50            float64   `json:"p50_us"`
	P99            float64   `json:"p99_us"`
	P999           float64   `json:"p99_9_us"`
	Max            float64   `json:"max_us"`
	Failures       uint64    `json:"failures"`
	Routing        Routing   `json:"routing"`
	WarmUpRouting  Routing   `json:"warm_up_routing"`
	NodeCores      []float64 `json:"node_cpu_cores"`
	ClientCores    float64   `json:"client_cpu_cores"`

	curve []Percentile
}

// SplitResult is the whole comparison; it is the document of --json.
type SplitResult struct {
	Started time.Time  `json:"started"`
	Plan    Plan       `json:"plan"`
	Rounds  int        `json:"rounds"`
	Rows    []SplitRow `json:"rows"`
	Figures []Figure   `json:"figures"`
	Notes   []string   `json:"notes"`
}

func (s *Split) plan() Plan {
	return Plan{
		Kind: Produce, Stream: benchStream, Topic: "-", Partitions: splitPartitions, Durability: "replicated", Producers: s.Producers,
		BatchMessages: s.Batch, MessageBytes: s.MessageBytes, InFlight: s.InFlight, Rate: s.Rate, API: APIProducer,
		Duration: Seconds(s.Length), WarmUp: Seconds(s.WarmUp),
	}
}

// Check reports the first thing that is wrong with what is to be measured.
func (s *Split) Check() error {
	p := s.plan()
	switch {
	case s.Rounds < 1:
		return errors.New("rounds must be 1 or more")
	case s.Rate <= 0:
		return errors.New("the rate must be above zero: every row is measured as fast as it goes anyway")
	}
	return p.Check()
}

// splitCase is a row before it is measured.
type splitCase struct {
	client, layout string
	rate           float64
}

// cases in the order in which a round measures them; the released client without forwarding needs other nodes.
func (s *Split) cases(forwarding bool) []splitCase {
	var out []splitCase
	for _, rate := range []float64{s.Rate, 0} {
		if forwarding {
			for _, layout := range []string{OneNode, Spread, OnePartition} {
				out = append(out, splitCase{OurClient, layout, rate})
			}
		}
		if s.ForeignClient == nil {
			continue
		}
		name := ReleasedClient
		if !forwarding {
			name = ReleasedNotForward
		}
		for _, layout := range []string{OneNode, Spread} {
			out = append(out, splitCase{name, layout, rate})
		}
	}
	return out
}

// Run measures all rows. What was measured until an error is returned with it.
func (s *Split) Run(ctx context.Context) (res *SplitResult, err error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	res = &SplitResult{Started: time.Now(), Plan: s.plan(), Rounds: s.Rounds, Notes: []string{}, Figures: []Figure{}}
	f, err := startFixture(ctx, s.Executable, s.Dir, splitNodes, stillPrimaries)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	runs := map[splitCase][]SplitRun{}
	defer func() { s.conclude(res, runs) }()
	for i := range s.Rounds {
		if err := s.round(ctx, f, i, s.cases(true), runs); err != nil {
			return res, err
		}
	}
	if s.ForeignClient == nil {
		res.Notes = append(res.Notes, "the rows of a released client are left out: give its load generator with --client")
		return res, nil
	}
	if err := f.configure(ctx, stillPrimaries+"cluster.forwarding = false\n"); err != nil {
		return res, fmt.Errorf("start the nodes without forwarding: %w", err)
	}
	for i := range s.Rounds {
		if err := s.round(ctx, f, i, s.cases(false), runs); err != nil {
			return res, err
		}
	}
	return res, nil
}

func (s *Split) round(ctx context.Context, f *fixture, i int, cases []splitCase, runs map[splitCase][]SplitRun) error {
	for _, c := range cases {
		run, err := s.once(ctx, f, c)
		if err != nil {
			return fmt.Errorf("%s, %s, round %d: %w", c.client, c.layout, i+1, err)
		}
		runs[c] = append(runs[c], run)
		if s.Progress != nil {
			_, _ = fmt.Fprintf(s.Progress, "round %d  %-24s %-26s %-12s %8s msg/s  p50 %s  p99 %s\n",
				i+1, c.client, c.layout, offered(c.rate), Rate(run.MessagesPerSec), Micros(run.P50), Micros(run.P99))
		}
	}
	return nil
}

func offered(rate float64) string {
	if rate == 0 {
		return "saturation"
	}
	return Rate(rate) + " msg/s"
}

// nodesFor says where the primaries of a layout stand. The one node is the leader of the metadata: there a released client
// has its session.
func nodesFor(layout string, leader int) []int {
	switch layout {
	case OnePartition:
		return []int{leader}
	case OneNode:
		out := make([]int, splitPartitions)
		for i := range out {
			out[i] = leader
		}
		return out
	}
	out := make([]int, splitPartitions)
	for i := range out {
		out[i] = i % splitNodes
	}
	return out
}

// once does one run, in a topic of its own.
func (s *Split) once(ctx context.Context, f *fixture, c splitCase) (run SplitRun, err error) {
	leader, err := f.leader(ctx)
	if err != nil {
		return run, err
	}
	nodes := nodesFor(c.layout, leader)
	p := s.plan()
	p.Rate, p.Partitions = c.rate, uint32(len(nodes))
	if p.Topic, err = f.newTopic(ctx, p.Durability, nodes); err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, f.dropTopic(ctx, p.Topic)) }()
	if c.client == OurClient {
		return s.own(ctx, f, p)
	}
	return s.foreign(ctx, f, p, f.address(leader))
}

func (s *Split) own(ctx context.Context, f *fixture, p Plan) (SplitRun, error) {
	res, err := Run(ctx, p, f.target(), nil)
	if err != nil {
		return SplitRun{}, err
	}
	l := res.Produce.Latency
	run := SplitRun{
		MessagesPerSec: res.Produce.MessagesPerSec, P50: l.P50, P99: l.P99, P999: l.P999, Max: l.Max, Failures: res.Produce.Failures,
		Routing: res.Routing, WarmUpRouting: res.WarmUpRouting, curve: l.Curve,
	}
	for _, n := range res.Nodes {
		run.NodeCores = append(run.NodeCores, n.Cores)
	}
	if res.Client != nil && res.Produce.Seconds > 0 {
		run.ClientCores = res.Client.CPUSeconds / res.Produce.Seconds
	}
	return run, nil
}

func (s *Split) foreign(ctx context.Context, f *fixture, p Plan, address string) (SplitRun, error) {
	nodes := f.target().Nodes
	before, began := usages(nodes), time.Now()
	r, err := s.ForeignClient.Run(ctx, p, address)
	if err != nil {
		return SplitRun{}, err
	}
	run := SplitRun{P50: r.P50, P99: r.P99, P999: r.P999, Max: r.Max, Failures: r.Failures, Routing: Routing{SessionMoves: r.SessionMoves}}
	if r.Seconds > 0 {
		run.MessagesPerSec = float64(r.Messages) / r.Seconds
	}
	for _, n := range nodesSince(nodes, before, time.Since(began)) {
		run.NodeCores = append(run.NodeCores, n.Cores)
	}
	return run, nil
}

// conclude makes rows and figures of what was measured.
func (s *Split) conclude(res *SplitResult, runs map[splitCase][]SplitRun) {
	for _, forwarding := range []bool{true, false} {
		for _, c := range s.cases(forwarding) {
			if len(runs[c]) > 0 {
				res.Rows = append(res.Rows, splitRow(c, runs[c]))
			}
		}
	}
	res.Figures = splitFigures(res.Rows)
}

func splitRow(c splitCase, runs []SplitRun) SplitRow {
	row := SplitRow{Client: c.client, Layout: c.layout, Offered: c.rate, Runs: runs, curve: runs[len(runs)-1].curve}
	mid := func(f func(SplitRun) float64) float64 {
		var v []float64
		for _, r := range runs {
			v = append(v, f(r))
		}
		return median(v)
	}
	row.MessagesPerSec = mid(func(r SplitRun) float64 { return r.MessagesPerSec })
	row.P50, row.P99 = mid(func(r SplitRun) float64 { return r.P50 }), mid(func(r SplitRun) float64 { return r.P99 })
	row.P999, row.Max = mid(func(r SplitRun) float64 { return r.P999 }), mid(func(r SplitRun) float64 { return r.Max })
	var sum Routing
	for _, r := range runs {
		sum.add(r.Routing)
		row.Failures += r.Failures
	}
	row.SessionMoves = sum.SessionMoves
	for i := range runs[0].NodeCores {
		row.NodeCores = append(row.NodeCores, mid(func(r SplitRun) float64 { return r.NodeCores[i] }))
	}
	if c.client == OurClient {
		cores := mid(func(r SplitRun) float64 { return r.ClientCores })
		row.Refusals, row.Lookups, row.ClientCores = &sum.Refusals, &sum.Lookups, &cores
	}
	return row
}

// splitFigures compares rows. A comparison whose rows are missing is left out.
func splitFigures(rows []SplitRow) []Figure {
	find := func(client, layout string, saturated bool) *SplitRow {
		for i := range rows {
			if r := &rows[i]; r.Client == client && r.Layout == layout && (r.Offered == 0) == saturated {
				return r
			}
		}
		return nil
	}
	var out []Figure
	ratio := func(what, client string, saturated bool, value func(*SplitRow) float64, least, most float64) {
		one, spread := find(client, OneNode, saturated), find(client, Spread, saturated)
		if one == nil || spread == nil || value(one) <= 0 {
			return
		}
		out = append(out, newFigure(what, value(spread)/value(one), "", least, most))
	}
	throughput := func(r *SplitRow) float64 { return r.MessagesPerSec }
	p99 := func(r *SplitRow) float64 { return r.P99 }
	ratio("throughput, spread ÷ one node, offered", OurClient, false, throughput, 1, 0)
	ratio("throughput, spread ÷ one node, saturation", OurClient, true, throughput, 0.95, 0)
	ratio("p99, spread ÷ one node, offered", OurClient, false, p99, 0, 1.5)
	var moves, refusals, lookups float64
	ours := false
	for _, r := range rows {
		if r.Client == OurClient {
			ours = true
			moves, refusals, lookups = moves+float64(r.SessionMoves), refusals+float64(*r.Refusals), lookups+float64(*r.Lookups)
		}
	}
	if ours {
		out = append(out, atMost("session moves", moves, "", 0), atMost("refusals after the warm-up", refusals, "", 0),
			newFigure("lookups after the warm-up", lookups, "", 0, 0))
	}
	for _, c := range []struct {
		client string
		least  float64
	}{{ReleasedClient, 0.8}, {ReleasedNotForward, 0}} {
		ratio(c.client+": throughput, spread ÷ one node, offered", c.client, false, throughput, c.least, 0)
		ratio(c.client+": throughput, spread ÷ one node, saturation", c.client, true, throughput, 0, 0)
		ratio(c.client+": p99, spread ÷ one node, offered", c.client, false, p99, 0, 0)
		if r := find(c.client, Spread, false); r != nil && c.client == ReleasedClient {
			out = append(out, atMost(c.client+": session moves", float64(r.SessionMoves), "", 0))
		}
	}
	return out
}
