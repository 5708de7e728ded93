package bench

import (
	"context"
	"testing"
	"time"
)

func TestScheduleSpreadsProducers(t *testing.T) {
	start := time.Unix(100, 0)
	// 1000 messages a second in batches of 10 over 2 producers: each sends every 20 ms, 10 ms apart.
	a, b := NewSchedule(start, 1000, 10, 0, 2), NewSchedule(start, 1000, 10, 1, 2)
	for k := range 3 {
		if got, want := a.Claim(), start.Add(time.Duration(k)*20*time.Millisecond); !got.Equal(want) {
			t.Errorf("request %d of the first producer at %v, want %v", k, got, want)
		}
		if got, want := b.Claim(), start.Add(10*time.Millisecond+time.Duration(k)*20*time.Millisecond); !got.Equal(want) {
			t.Errorf("request %d of the second producer at %v, want %v", k, got, want)
		}
	}
	if n := a.Behind(start.Add(100 * time.Millisecond)); n != 3 {
		t.Errorf("behind by %d after 100 ms and 3 claims, want 3", n)
	}
	if n := a.Behind(start); n != 0 {
		t.Errorf("behind by %d at the start", n)
	}
}

func TestWaitUntil(t *testing.T) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	due := time.Now().Add(5 * time.Millisecond)
	if !waitUntil(context.Background(), timer, due) || time.Now().Before(due) {
		t.Error("woke before the time")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if waitUntil(ctx, timer, time.Now().Add(time.Hour)) {
		t.Error("waited although the context had ended")
	}
	if !waitUntil(context.Background(), timer, time.Now().Add(-time.Second)) {
		t.Error("a time in the past counts as reached")
	}
}

// A server that stalls once is charged for every request that came due during the stall.
func TestLatencyCountsFromTheDueTime(t *testing.T) {
	var g gate
	start := time.Unix(100, 0)
	g.open(start)
	r := newRecorder(&g)
	s := NewSchedule(start, 1000, 1, 0, 1)
	const stall = 500 * time.Millisecond
	now := start
	for range 1000 {
		due := s.Claim()
		if now.Before(due) {
			now = due
		}
		if due.Equal(start.Add(100 * time.Millisecond)) {
			now = now.Add(stall)
		}
		now = now.Add(100 * time.Microsecond)
		r.done(due, now, Counts{Requests: 1, Messages: 1})
	}
	l := summarize(r.total, true)
	if l.P50 > 200_000 || l.P99 < 400_000 || l.Max < 500_000 {
		t.Errorf("p50 %v, p99 %v, max %v us: the stall was not charged", l.P50, l.P99, l.Max)
	}
	if len(l.Curve) == 0 {
		t.Error("no curve")
	}
}

func TestWarmUpIsNotCounted(t *testing.T) {
	var g gate
	r := newRecorder(&g)
	t0 := time.Unix(100, 0)
	r.done(t0, t0.Add(time.Second), Counts{Requests: 1})
	g.open(t0.Add(time.Second))
	r.done(t0, t0.Add(2*time.Second), Counts{Requests: 1}) // due before the gate opened
	r.done(t0.Add(time.Second), t0.Add(1100*time.Millisecond), Counts{Requests: 1, Messages: 10, Bytes: 100})
	s := side(recorders{r}, t0.Add(time.Second))
	if s.Requests != 1 || s.Messages != 10 || s.Latency.Count != 1 || s.Seconds != 0.1 || s.MessagesPerSec != 100 {
		t.Errorf("side = %+v", s)
	}
	h, c := recorders{r}.take()
	if c.Requests != 1 || h.TotalCount() != 1 {
		t.Errorf("interval: %+v, %d", c, h.TotalCount())
	}
	if h, c := (recorders{r}).take(); c.Requests != 0 || h.TotalCount() != 0 {
		t.Error("an interval is taken twice")
	}
}
