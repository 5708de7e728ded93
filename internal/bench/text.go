package bench

import (
	"fmt"
	"strconv"
	"time"

	"github.com/whippetmq/whippet/internal/bench/report"
	"github.com/whippetmq/whippet/internal/cli/units"
)

// Table is a result for people: header and rows.
type Table struct {
	Header []string
	Rows   [][]string
}

// Table lays the result out, one row per direction.
func (r *Result) Table() Table {
	t := Table{Header: []string{"", "Messages", "Msg/s", "Bytes/s", "Requests/s", "p50", "p90", "p99", "p99.9", "Max", "Failures"}}
	add := func(name string, s *Side) {
		if s == nil {
			return
		}
		l := s.Latency
		t.Rows = append(t.Rows, []string{
			name, strconv.FormatUint(s.Messages, 10), Rate(s.MessagesPerSec), units.Size(uint64(s.BytesPerSec)), Rate(s.RequestsPerSec),
			Micros(l.P50), Micros(l.P90), Micros(l.P99), Micros(l.P999), Micros(l.Max), strconv.FormatUint(s.Failures, 10),
		})
	}
	add("produce", r.Produce)
	add("consume", r.Consume)
	if l := r.EndToEnd; l != nil {
		t.Rows = append(t.Rows, []string{"end to end", "", "", "", "", Micros(l.P50), Micros(l.P90), Micros(l.P99), Micros(l.P999), Micros(l.Max), ""})
	}
	return t
}

// Notes are lines below the table: what the processes used, and what a reader should know.
func (r *Result) Notes() []string {
	var out []string
	if u := r.Server; u != nil {
		out = append(out, fmt.Sprintf("server: %.2f s of CPU, resident %s (peak %s), %s written to the device",
			u.CPUSeconds, units.Size(u.Resident), units.Size(u.PeakResident), units.Size(u.Written)))
	}
	if u := r.Client; u != nil {
		out = append(out, fmt.Sprintf("client: %.2f s of CPU, resident %s", u.CPUSeconds, units.Size(u.Resident)))
	}
	if p := r.Produce; p != nil && p.Behind > 0 {
		out = append(out, fmt.Sprintf("the offered rate was not reached: %d requests were due and not sent at the end", p.Behind))
	}
	return out
}

// Summary says in one line what was run.
func (p Plan) Summary() string {
	s := ""
	switch p.Kind {
	case Produce:
		s = fmt.Sprintf("%d producers", p.Producers)
	case Consume:
		s = fmt.Sprintf("%d consumers", p.Consumers)
	default:
		s = fmt.Sprintf("%d producers, %d consumers", p.Producers, p.Consumers)
	}
	s += fmt.Sprintf(", %d partitions, messages of %s", p.Partitions, units.Size(uint64(p.MessageBytes)))
	if p.Kind != Consume {
		s += fmt.Sprintf(" in batches of %d", p.BatchMessages)
	}
	if p.Kind != Produce {
		s += fmt.Sprintf(", %d per poll", p.PollMessages)
	}
	s += fmt.Sprintf(", %d in flight", p.InFlight)
	if p.Rate > 0 {
		s += fmt.Sprintf(", %s msg/s offered", Rate(p.Rate))
	} else {
		s += ", as fast as it goes"
	}
	return s + ", " + p.Durability
}

// Page is the result as an HTML report; command is what repeats the run.
func (r *Result) Page(command string) report.Page {
	t := r.Table()
	page := report.Page{
		Title:    "whippet bench " + r.Kind,
		Subtitle: fmt.Sprintf("%s · %s · %s", r.Plan.Summary(), r.Target, r.Started.Format(time.RFC3339)),
		Tables:   []report.Table{{Title: "Throughput and latency", Header: t.Header, Rows: t.Rows, Note: latencyNote(r.Plan)}},
		Footer:   command,
	}
	for _, n := range r.Notes() {
		page.Footer += "\n" + n
	}
	figures := func(name string, s *Side) {
		if s == nil {
			return
		}
		page.Figures = append(page.Figures,
			report.Figure{Value: Rate(s.MessagesPerSec), Unit: "msg/s", Label: name},
			report.Figure{Value: units.Size(uint64(s.BytesPerSec)), Unit: "/s", Label: name + ", payload"},
			report.Figure{Value: Micros(s.Latency.P50), Label: name + ", p50"},
			report.Figure{Value: Micros(s.Latency.P99), Label: name + ", p99"})
	}
	figures("produced", r.Produce)
	figures("consumed", r.Consume)
	page.Charts = r.charts()
	return page
}

func latencyNote(p Plan) string {
	if p.Rate > 0 {
		return "Open loop: the latency of a request counts from the time it was due, whatever delayed it."
	}
	return "Closed loop: each worker sends its next request when the last one was answered; latencies count from the send."
}

func (r *Result) charts() []report.Chart {
	series := func(name string, value func(Point) float64) report.Line {
		l := report.Line{Name: name}
		for _, p := range r.Series {
			l.Points = append(l.Points, report.XY{X: p.Seconds, Y: value(p)})
		}
		return l
	}
	throughput := report.Chart{Title: "Throughput", XName: "seconds", YName: "msg/s"}
	latency := report.Chart{Title: "Latency over time", XName: "seconds", YName: "ms"}
	curve := report.Chart{Title: "Latency by percentile", XName: "percentile", YName: "ms", Percentiles: true}
	addCurve := func(name string, l Latency) {
		line := report.Line{Name: name}
		for _, p := range l.Curve {
			line.Points = append(line.Points, report.XY{X: p.Percent, Y: p.Micros / 1000})
		}
		curve.Lines = append(curve.Lines, line)
	}
	if r.Produce != nil {
		throughput.Lines = append(throughput.Lines, series("produced", func(p Point) float64 { return p.ProduceMsgs }))
		latency.Lines = append(latency.Lines,
			series("send p50", func(p Point) float64 { return p.ProduceP50 / 1000 }),
			series("send p99", func(p Point) float64 { return p.ProduceP99 / 1000 }))
		addCurve("send", r.Produce.Latency)
	}
	if r.Consume != nil {
		throughput.Lines = append(throughput.Lines, series("consumed", func(p Point) float64 { return p.ConsumeMsgs }))
		latency.Lines = append(latency.Lines,
			series("poll p50", func(p Point) float64 { return p.ConsumeP50 / 1000 }),
			series("poll p99", func(p Point) float64 { return p.ConsumeP99 / 1000 }))
		addCurve("poll", r.Consume.Latency)
	}
	if r.EndToEnd != nil {
		addCurve("end to end", *r.EndToEnd)
	}
	charts := []report.Chart{throughput, latency, curve}
	if r.Server != nil {
		charts = append(charts, report.Chart{
			Title: "Server CPU", XName: "seconds", YName: "cores",
			Lines: []report.Line{series("server", func(p Point) float64 { return p.ServerCPU })},
		})
	}
	return charts
}
