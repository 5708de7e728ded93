package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/whippetmq/whippet/internal/cli/units"
	"github.com/whippetmq/whippet/wire"
)

// Ratio measures server and floor in turns (A B A B ...) and compares medians, because the absolute speed of a machine
// drifts from minute to minute. Every single run gets a fresh process and an empty directory.
type Ratio struct {
	Executable string
	Dir        string        // parent of the directories, "" = the system's temporary one
	Rounds     int           // runs of each
	Length     time.Duration // of a timed run
	WarmUp     time.Duration
	InFlight   int
	Only       []string  // names of rows, empty = all
	Progress   io.Writer // nil = none
}

// RatioRow is one line of the result.
type RatioRow struct {
	Name string `json:"name"`
	What string `json:"what"`
	// Base and Server are the medians that are compared; Base is the floor, or what the row says.
	BaseName string    `json:"base_name"`
	Base     float64   `json:"base"`
	Server   float64   `json:"server"`
	Unit     string    `json:"unit"`
	Ratio    float64   `json:"ratio"`
	Target   string    `json:"target"`
	Met      *bool     `json:"met"` // nil = the row has no target
	BaseRuns []float64 `json:"base_runs"`
	Runs     []float64 `json:"server_runs"`
	// BaseCPU and ServerCPU are CPU seconds of the process per gigabyte of payload, medians.
	BaseCPU   float64 `json:"base_cpu_s_per_gb,omitempty"`
	ServerCPU float64 `json:"server_cpu_s_per_gb,omitempty"`
}

// ratioCase describes a row before it is measured.
type ratioCase struct {
	name, what string
	base       string // what the server is compared with
	basePlan   Plan
	plan       Plan
	value      func(*Result) float64
	unit       string
	// least or most is the target; 0 = none.
	least, most float64
	// single: the value itself is the figure; there is no base.
	single bool
	// baseIsServer: the base runs against the server too.
	baseIsServer bool
}

func bytesPerSecond(r *Result) float64 {
	if r.Produce != nil {
		return r.Produce.BytesPerSec
	}
	return r.Consume.BytesPerSec
}

// recordBytes is what the sent batches measure on the wire: frames with their headers, and one header per batch.
func recordBytes(r *Result) float64 {
	s := r.Produce
	return float64(s.Bytes) + float64(s.Messages)*wire.MessageHeaderSize + float64(s.Requests)*wire.BatchHeaderSize
}

func (c *Ratio) cases() []ratioCase {
	length, warm := Seconds(c.Length), Seconds(c.WarmUp)
	base := Plan{
		Kind: Produce, Stream: "bench", Topic: "t", Partitions: 1, Durability: "replicated", Producers: 12, InFlight: c.InFlight,
		API: APIProducer, Duration: length, WarmUp: warm, PollMessages: 1000, Consumers: 4,
	}
	with := func(change func(*Plan)) Plan {
		p := base
		change(&p)
		return p
	}
	small := with(func(p *Plan) { p.BatchMessages, p.MessageBytes = 100, 100 })
	large := with(func(p *Plan) { p.BatchMessages, p.MessageBytes = 1000, 1000 })
	poll := func(change func(*Plan)) Plan {
		return with(func(p *Plan) {
			p.Kind, p.Partitions, p.BatchMessages, p.MessageBytes, p.InFlight = Consume, 4, 1000, 1000, 1
			p.Fill = 1_000_000
			change(p)
		})
	}
	warmPoll := poll(func(*Plan) {})
	coldPoll := poll(func(p *Plan) { p.Cold, p.Messages, p.Duration, p.WarmUp = true, p.Fill, 0, 0 })
	single := with(func(p *Plan) { p.Producers, p.BatchMessages, p.MessageBytes, p.InFlight, p.API = 1, 1, 100, 1, APISend })
	persisted := func(n int) Plan {
		return with(func(p *Plan) {
			p.Durability, p.Producers, p.BatchMessages, p.MessageBytes, p.InFlight = "persisted", n, 100, 100, 1
		})
	}
	one := persisted(1)
	return []ratioCase{
		{name: "produce-10k", what: "produced bytes/s, 10 KB batches (100 × 100 B), 12 connections", plan: small, basePlan: small, value: bytesPerSecond, unit: "B/s", least: 0.75},
		{name: "produce-1m", what: "produced bytes/s, 1 MB batches (1000 × 1 KB), 12 connections", plan: large, basePlan: large, value: bytesPerSecond, unit: "B/s", least: 0.6},
		{name: "poll-warm", what: "polled bytes/s, warm, 4 consumers, 1 MB per poll", plan: warmPoll, basePlan: warmPoll, value: bytesPerSecond, unit: "B/s", least: 0.8},
		{name: "poll-cold", what: "polled bytes/s, cold file, 4 consumers, 1 MB per poll", plan: coldPoll, basePlan: coldPoll, value: bytesPerSecond, unit: "B/s", least: 0.7},
		{
			name: "written", what: "bytes written per payload-and-header byte, 10 KB batches, replicated", plan: small, single: true,
			value: func(r *Result) float64 {
				if r.Server == nil {
					return 0
				}
				return float64(r.Server.Written) / recordBytes(r)
			}, most: 1.05,
		},
		{
			name: "persisted", what: "persisted, 1 partition, 10 KB batches: 16 producers ÷ 1", base: "1 producer", baseIsServer: true,
			plan: persisted(16), basePlan: one, value: bytesPerSecond, unit: "B/s", least: 6,
		},
		{
			name: "single-send", what: "one message per send, 100 B, p50", plan: single, basePlan: single,
			value: func(r *Result) float64 { return r.Produce.Latency.P50 }, unit: "us",
		},
	}
}

// Names of the rows that can be measured.
func (c *Ratio) Names() []string {
	var out []string
	for _, k := range c.cases() {
		out = append(out, k.name)
	}
	return out
}

// Run measures the rows. A row that fails ends the run; the rows before it are returned.
func (c *Ratio) Run(ctx context.Context) ([]RatioRow, error) {
	for _, name := range c.Only {
		if !slices.Contains(c.Names(), name) {
			return nil, fmt.Errorf("there is no row %q: choose of %s", name, strings.Join(c.Names(), ", "))
		}
	}
	var rows []RatioRow
	for _, k := range c.cases() {
		if len(c.Only) > 0 && !slices.Contains(c.Only, k.name) {
			continue
		}
		row, err := c.row(ctx, k)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", k.name, err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (c *Ratio) row(ctx context.Context, k ratioCase) (RatioRow, error) {
	row := RatioRow{Name: k.name, What: k.what, BaseName: "floor", Unit: k.unit}
	if k.base != "" {
		row.BaseName = k.base
	}
	if k.single {
		row.BaseName = ""
	}
	var baseCPU, cpu []float64
	for i := range c.Rounds {
		if !k.single {
			v, perGB, err := c.once(ctx, k, k.basePlan, !k.baseIsServer)
			if err != nil {
				return row, fmt.Errorf("%s, round %d: %w", row.BaseName, i+1, err)
			}
			row.BaseRuns, baseCPU = append(row.BaseRuns, v), append(baseCPU, perGB)
			c.say("%-12s %-10s %s", k.name, row.BaseName, value(v, k.unit))
		}
		v, perGB, err := c.once(ctx, k, k.plan, false)
		if err != nil {
			return row, fmt.Errorf("server, round %d: %w", i+1, err)
		}
		row.Runs, cpu = append(row.Runs, v), append(cpu, perGB)
		c.say("%-12s %-10s %s", k.name, "server", value(v, k.unit))
	}
	row.Server, row.ServerCPU = median(row.Runs), median(cpu)
	row.Ratio = row.Server
	if !k.single {
		row.Base, row.BaseCPU = median(row.BaseRuns), median(baseCPU)
		if row.Base > 0 {
			row.Ratio = row.Server / row.Base
		}
	}
	switch {
	case k.least > 0:
		met := row.Ratio >= k.least
		row.Target, row.Met = fmt.Sprintf("≥ %g", k.least), &met
	case k.most > 0:
		met := row.Ratio <= k.most
		row.Target, row.Met = fmt.Sprintf("≤ %g", k.most), &met
	}
	return row, nil
}

// once does one run against a fresh process.
func (c *Ratio) once(ctx context.Context, k ratioCase, p Plan, useFloor bool) (v, cpuPerGB float64, err error) {
	own := &Own{Executable: c.Executable, Floor: useFloor, Parent: c.Dir}
	defer func() {
		if serr := own.Stop(); err == nil {
			err = serr
		}
	}()
	target, err := own.Start(ctx)
	if err != nil {
		return 0, 0, err
	}
	res, err := Run(ctx, p, target, nil)
	if err != nil {
		return 0, 0, err
	}
	if err := res.Err(); err != nil {
		return 0, 0, err
	}
	for _, s := range []*Side{res.Produce, res.Consume} {
		if s != nil && s.Bytes > 0 && res.Server != nil {
			cpuPerGB = res.Server.CPUSeconds / (float64(s.Bytes) / 1e9)
		}
	}
	if v = k.value(res); v == 0 {
		return 0, 0, errors.New("nothing was measured")
	}
	return v, cpuPerGB, nil
}

func (c *Ratio) say(format string, args ...any) {
	if c.Progress != nil {
		_, _ = fmt.Fprintf(c.Progress, format+"\n", args...)
	}
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Clone(v)
	slices.Sort(s)
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// value writes a figure with its unit.
func value(v float64, unit string) string {
	switch unit {
	case "B/s":
		return units.Size(uint64(v)) + "/s"
	case "us":
		return Micros(v)
	}
	return fmt.Sprintf("%.4f", v)
}

// Ratios lays rows out for people.
func Ratios(rows []RatioRow) Table {
	t := Table{Header: []string{"What", "Against", "Base", "Server", "Ratio", "Target", "", "CPU s/GB base", "server"}}
	for _, r := range rows {
		met, base := "", ""
		if r.Met != nil {
			met = map[bool]string{true: "met", false: "missed"}[*r.Met]
		}
		if r.BaseName != "" {
			base = value(r.Base, r.Unit)
		}
		cpu := func(v float64) string {
			if v == 0 {
				return ""
			}
			return fmt.Sprintf("%.2f", v)
		}
		t.Rows = append(t.Rows, []string{
			r.What, r.BaseName, base, value(r.Server, r.Unit), fmt.Sprintf("%.3f", r.Ratio), r.Target, met, cpu(r.BaseCPU), cpu(r.ServerCPU),
		})
	}
	return t
}
