package bench

import (
	"fmt"
	"strconv"
	"time"

	"github.com/whippetmq/whippet/internal/bench/report"
	"github.com/whippetmq/whippet/internal/cli/localnode"
	"github.com/whippetmq/whippet/internal/cli/units"
)

// Table lays the rows out for people.
func (r *SplitResult) Table() Table {
	t := Table{Header: []string{"Client", "Primaries", "Offered", "Msg/s", "p50", "p99", "p99.9", "Max", "Moves", "Refusals", "Lookups", "Failures"}}
	for i := range splitNodes {
		t.Header = append(t.Header, "CPU "+localnode.NodeName(i))
	}
	t.Header = append(t.Header, "client")
	count := func(n *uint64) string {
		if n == nil {
			return "-"
		}
		return strconv.FormatUint(*n, 10)
	}
	for _, row := range r.Rows {
		cells := []string{
			row.Client, row.Layout, offered(row.Offered), Rate(row.MessagesPerSec), Micros(row.P50), Micros(row.P99), Micros(row.P999), Micros(row.Max),
			strconv.FormatUint(row.SessionMoves, 10), count(row.Refusals), count(row.Lookups), strconv.FormatUint(row.Failures, 10),
		}
		for i := range splitNodes {
			cell := "-"
			if i < len(row.NodeCores) {
				cell = fmt.Sprintf("%.2f", row.NodeCores[i])
			}
			cells = append(cells, cell)
		}
		cores := "-"
		if row.ClientCores != nil {
			cores = fmt.Sprintf("%.2f", *row.ClientCores)
		}
		t.Rows = append(t.Rows, append(cells, cores))
	}
	return t
}

// Summary says in one line what was run.
func (r *SplitResult) Summary() string {
	p := r.Plan
	return fmt.Sprintf("three nodes, %d producers with %d in flight, messages of %s in batches of %d, %s, %d rounds of %s each",
		p.Producers, p.InFlight, units.Size(uint64(p.MessageBytes)), p.BatchMessages, p.Durability, r.Rounds, time.Duration(p.Duration))
}

// Page is the result as an HTML report; command is what repeats the run.
func (r *SplitResult) Page(command string) report.Page {
	rows, figures := r.Table(), Figures(r.Figures)
	page := report.Page{
		Title: "whippet bench split-primaries", Subtitle: r.Summary() + " · " + r.Started.Format(time.RFC3339),
		Tables: []report.Table{
			{Title: "Figures", Header: figures.Header, Rows: figures.Rows},
			{
				Title: "Where the primaries stand, and what it costs", Header: rows.Header, Rows: rows.Rows,
				Note: "Medians of the rounds, which took turns; moves, refusals, lookups and failures are sums, without the warm-up. At an offered rate a request's latency counts from the time it was due. CPU in cores.",
			},
		},
		Footer: command,
	}
	for _, n := range r.Notes {
		page.Footer += "\n" + n
	}
	for _, f := range r.Figures {
		if f.Met != nil && len(page.Figures) < 6 {
			page.Figures = append(page.Figures, report.Figure{Value: f.text(), Unit: f.Target, Label: f.What})
		}
	}
	for _, saturated := range []bool{false, true} {
		chart := report.Chart{Title: "Latency by percentile, at the offered rate", XName: "percentile", YName: "ms", Percentiles: true}
		if saturated {
			chart.Title = "Latency by percentile, at saturation"
		}
		for _, row := range r.Rows {
			if (row.Offered == 0) != saturated || len(row.curve) == 0 {
				continue
			}
			line := report.Line{Name: row.Layout}
			for _, p := range row.curve {
				line.Points = append(line.Points, report.XY{X: p.Percent, Y: p.Micros / 1000})
			}
			chart.Lines = append(chart.Lines, line)
		}
		if len(chart.Lines) > 0 {
			page.Charts = append(page.Charts, chart)
		}
	}
	return page
}
