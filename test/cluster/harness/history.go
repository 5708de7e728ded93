package harness

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Summary is the history in figures.
type Summary struct {
	Sends, Messages                         int
	Acknowledged, Refused, Unknown, Pending int // sends
	P50, P99, P999, Max                     time.Duration
	Span                                    time.Duration // first start to last end
	LongestGap                              time.Duration // between two acknowledgements, whoever sent
	Throughput                              float64       // acknowledged messages per second of the span
}

// String is one line.
func (s Summary) String() string {
	return fmt.Sprintf("%d sends of %d messages in %v: %d acknowledged, %d refused, %d unknown, %d pending; p50 %v, p99 %v, p99.9 %v, slowest %v; longest gap %v; %.0f messages/s",
		s.Sends, s.Messages, s.Span.Round(time.Millisecond), s.Acknowledged, s.Refused, s.Unknown, s.Pending,
		round(s.P50), round(s.P99), round(s.P999), round(s.Max), round(s.LongestGap), s.Throughput)
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// Summarise puts the sends into figures that keep gives true for. nil keeps all.
func (c *Checker) Summarise(keep func(*Record) bool) Summary {
	records := c.Records()
	var s Summary
	var took, ends []time.Duration
	var first, last time.Duration
	messages := 0
	for i := range records {
		r := &records[i]
		if keep != nil && !keep(r) {
			continue
		}
		if s.Sends == 0 || r.Start < first {
			first = r.Start
		}
		last = max(last, r.End)
		s.Sends++
		s.Messages += r.Messages
		took = append(took, r.Took())
		switch r.Outcome {
		case Acknowledged:
			s.Acknowledged++
			messages += r.Messages
			ends = append(ends, r.End)
		case Refused:
			s.Refused++
		case Unknown:
			s.Unknown++
		case Pending:
		}
	}
	if keep == nil {
		c.mu.Lock()
		s.Pending = c.open
		c.mu.Unlock()
	}
	slices.Sort(took)
	slices.Sort(ends)
	s.P50, s.P99, s.P999, s.Max = Percentile(took, 0.5), Percentile(took, 0.99), Percentile(took, 0.999), Percentile(took, 1)
	s.Span = last - first
	if s.Span > 0 {
		s.Throughput = float64(messages) / s.Span.Seconds()
	}
	for i := 1; i < len(ends); i++ {
		s.LongestGap = max(s.LongestGap, ends[i]-ends[i-1])
	}
	return s
}

// Gap is the longest time without an acknowledgement in a partition that overlaps the time from a moment on, which
// includes the time from the last acknowledgement before that moment.
func (c *Checker) Gap(partition uint32, from time.Duration) time.Duration {
	var ends []time.Duration
	for _, r := range c.Records() {
		if r.Partition == partition && r.Outcome == Acknowledged {
			ends = append(ends, r.End)
		}
	}
	slices.Sort(ends)
	var gap time.Duration
	for i := 1; i < len(ends); i++ {
		if ends[i] >= from {
			gap = max(gap, ends[i]-max(ends[i-1], from))
		}
	}
	return gap
}

// Percentile of sorted values: the smallest that a share of p of them does not exceed; 0 when there are none.
func Percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	i := int(p*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// Failures describes the sends that were not acknowledged, at most n of them.
func (c *Checker) Failures(n int) string {
	var b strings.Builder
	for _, r := range c.Records() {
		if r.Outcome == Acknowledged {
			continue
		}
		if n--; n < 0 {
			b.WriteString("and more\n")
			break
		}
		fmt.Fprintf(&b, "%s (%d messages) %s after %v: %v\n", r.Key, r.Messages, r.Outcome, round(r.Took()), r.Err)
	}
	return b.String()
}
