package bench

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Range and precision of the latency histograms: nanoseconds up to two minutes, three significant digits.
const (
	highestLatency = int64(2 * time.Minute)
	latencyDigits  = 3
)

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1000, highestLatency, latencyDigits)
}

// clock of one run: when counting began, 0 while warming up.
type gate struct{ from atomic.Int64 } // unix ns

func (g *gate) open(t time.Time) { g.from.Store(t.UnixNano()) }

// counts reports whether a request that was due at t belongs to the measured part.
func (g *gate) counts(t time.Time) bool {
	from := g.from.Load()
	return from != 0 && t.UnixNano() >= from
}

// recorder collects what one worker did. The worker and the sampler share it, hence the lock, which is otherwise
// free.
type recorder struct {
	gate *gate

	mu       sync.Mutex
	total    *hdrhistogram.Histogram
	interval *hdrhistogram.Histogram
	sum      Counts
	part     Counts // since the sampler looked last
	last     time.Time
}

// Counts of one worker or one run.
type Counts struct {
	Requests uint64 `json:"requests"`
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"` // payloads
	Failures uint64 `json:"failures"`
	Empty    uint64 `json:"empty_polls,omitempty"`
}

func (c *Counts) add(o Counts) {
	c.Requests += o.Requests
	c.Messages += o.Messages
	c.Bytes += o.Bytes
	c.Failures += o.Failures
	c.Empty += o.Empty
}

func newRecorder(g *gate) *recorder {
	return &recorder{gate: g, total: newHistogram(), interval: newHistogram()}
}

// done records a request that was due at t, ended now, and carried this much.
func (r *recorder) done(due, now time.Time, c Counts) bool {
	if !r.gate.counts(due) {
		return false
	}
	ns := min(max(int64(now.Sub(due)), 0), highestLatency)
	r.mu.Lock()
	// The value was clamped to the histogram's range, so recording cannot fail.
	_ = r.total.RecordValue(ns)
	_ = r.interval.RecordValue(ns)
	r.sum.add(c)
	r.part.add(c)
	if now.After(r.last) {
		r.last = now
	}
	r.mu.Unlock()
	return true
}

// latency records a latency by itself, such as that from a message's origin to its consumer.
func (r *recorder) latency(due time.Time, d time.Duration) {
	if !r.gate.counts(due) {
		return
	}
	ns := min(max(int64(d), 0), highestLatency)
	r.mu.Lock()
	_ = r.total.RecordValue(ns)
	_ = r.interval.RecordValue(ns)
	r.mu.Unlock()
}

// count adds to the counters without a latency.
func (r *recorder) count(due, now time.Time, c Counts) bool {
	if !r.gate.counts(due) {
		return false
	}
	r.mu.Lock()
	r.sum.add(c)
	r.part.add(c)
	if now.After(r.last) {
		r.last = now
	}
	r.mu.Unlock()
	return true
}

// take moves the current interval into h and returns its counts.
func (r *recorder) take(h *hdrhistogram.Histogram) Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	h.Merge(r.interval)
	r.interval.Reset()
	c := r.part
	r.part = Counts{}
	return c
}

// recorders are all of one side of a run.
type recorders []*recorder

func (rs recorders) merged() (h *hdrhistogram.Histogram, c Counts, last time.Time) {
	h = newHistogram()
	for _, r := range rs {
		r.mu.Lock()
		h.Merge(r.total)
		c.add(r.sum)
		if r.last.After(last) {
			last = r.last
		}
		r.mu.Unlock()
	}
	return h, c, last
}

func (rs recorders) take() (*hdrhistogram.Histogram, Counts) {
	h := newHistogram()
	var c Counts
	for _, r := range rs {
		c.add(r.take(h))
	}
	return h, c
}
