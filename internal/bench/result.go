package bench

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is what one run measured; it is the document that --json prints.
type Result struct {
	Kind    string    `json:"kind"`
	Target  string    `json:"target"` // address of the server, or what was started
	Started time.Time `json:"started"`
	Plan    Plan      `json:"plan"`
	Produce *Side     `json:"produce,omitempty"`
	Consume *Side     `json:"consume,omitempty"`
	// EndToEnd is the time from a message's origin to its consumer, of mixed runs.
	EndToEnd *Latency `json:"end_to_end,omitempty"`
	// Server is what the server's process used during the measured part; nil when it is not on this machine.
	Server *Usage `json:"server,omitempty"`
	// Client is what this process used.
	Client *Usage `json:"client,omitempty"`
	// Nodes are the processes of a cluster.
	Nodes []NodeUsage `json:"nodes,omitempty"`
	// Routing is what the clients did during the measured part, WarmUpRouting before.
	Routing       Routing `json:"routing"`
	WarmUpRouting Routing `json:"warm_up_routing"`
	Series        []Point `json:"series"`

	failure error // of the first request that failed
}

// counts are those of both directions.
func (r *Result) counts() (c Counts) {
	for _, s := range []*Side{r.Produce, r.Consume} {
		if s != nil {
			c.add(s.Counts)
		}
	}
	return c
}

// Err says how many requests of the measured part failed, and wraps the first failure; nil = none did. A measurement
// that expects failures, such as that of a node's death, does not ask.
func (r *Result) Err() error {
	c := r.counts()
	if c.Failures == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d requests failed, the first: %w", c.Failures, c.Requests+c.Failures, r.failure)
}

// Side is one direction of a run.
type Side struct {
	Counts
	Seconds        float64 `json:"seconds"`
	MessagesPerSec float64 `json:"messages_per_second"`
	BytesPerSec    float64 `json:"bytes_per_second"` // payload
	RequestsPerSec float64 `json:"requests_per_second"`
	Latency        Latency `json:"latency"`
	// Behind is how many requests were due and not sent when an open-loop run ended.
	Behind uint64 `json:"behind,omitempty"`
}

// Latency of requests, in microseconds.
type Latency struct {
	Count uint64  `json:"count"`
	Min   float64 `json:"min_us"`
	Mean  float64 `json:"mean_us"`
	P50   float64 `json:"p50_us"`
	P90   float64 `json:"p90_us"`
	P95   float64 `json:"p95_us"`
	P99   float64 `json:"p99_us"`
	P999  float64 `json:"p99_9_us"`
	P9999 float64 `json:"p99_99_us"`
	Max   float64 `json:"max_us"`
	// Curve is the whole distribution: percentile and latency.
	Curve []Percentile `json:"curve,omitempty"`
}

// Percentile is one point of a latency curve.
type Percentile struct {
	Percent float64 `json:"percent"`
	Micros  float64 `json:"us"`
}

// Point is one interval of a run, at Seconds after the measured part began.
type Point struct {
	Seconds        float64 `json:"s"`
	ProduceMsgs    float64 `json:"produce_messages_per_second"`
	ProduceBytes   float64 `json:"produce_bytes_per_second"`
	ProduceP50     float64 `json:"produce_p50_us"`
	ProduceP99     float64 `json:"produce_p99_us"`
	ConsumeMsgs    float64 `json:"consume_messages_per_second"`
	ConsumeBytes   float64 `json:"consume_bytes_per_second"`
	ConsumeP50     float64 `json:"consume_p50_us"`
	ConsumeP99     float64 `json:"consume_p99_us"`
	ServerCPU      float64 `json:"server_cpu_cores"`
	ServerResident uint64  `json:"server_resident_bytes"`
}

// summarize turns a histogram of nanoseconds into microseconds.
func summarize(h *hdrhistogram.Histogram, curve bool) Latency {
	us := func(ns int64) float64 { return float64(ns) / 1e3 }
	l := Latency{
		Count: uint64(h.TotalCount()),
		Min:   us(h.Min()), Mean: h.Mean() / 1e3, Max: us(h.Max()),
		P50: us(h.ValueAtQuantile(50)), P90: us(h.ValueAtQuantile(90)), P95: us(h.ValueAtQuantile(95)),
		P99: us(h.ValueAtQuantile(99)), P999: us(h.ValueAtQuantile(99.9)), P9999: us(h.ValueAtQuantile(99.99)),
	}
	if l.Count == 0 {
		return Latency{}
	}
	if curve {
		for _, b := range h.CumulativeDistribution() {
			l.Curve = append(l.Curve, Percentile{Percent: b.Quantile, Micros: us(b.ValueAt)})
		}
	}
	return l
}

// side builds one direction from its recorders; from is when counting began.
func side(rs recorders, from time.Time) *Side {
	if len(rs) == 0 {
		return nil
	}
	h, c, last := rs.merged()
	s := &Side{Counts: c, Latency: summarize(h, true)}
	if s.Seconds = last.Sub(from).Seconds(); s.Seconds > 0 {
		s.MessagesPerSec = float64(c.Messages) / s.Seconds
		s.BytesPerSec = float64(c.Bytes) / s.Seconds
		s.RequestsPerSec = float64(c.Requests) / s.Seconds
	}
	return s
}
