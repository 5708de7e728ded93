package bench

import (
	"context"
	"sync/atomic"
	"time"
)

// Schedule says when the requests of one producer are due: number k at start + phase + k × interval. Several workers
// claim numbers from one schedule.
type Schedule struct {
	start    time.Time
	interval time.Duration
	next     atomic.Uint64
}

// NewSchedule makes the schedule of producer i of n, whose requests of batch messages each add up to rate messages per
// second over all producers. Producers are spread evenly over one interval, so that they do not fire together.
func NewSchedule(start time.Time, rate float64, batch, i, n int) *Schedule {
	interval := time.Duration(float64(batch) * float64(n) / rate * float64(time.Second))
	return &Schedule{start: start.Add(interval * time.Duration(i) / time.Duration(n)), interval: interval}
}

// Claim takes the next request and returns when it is due.
func (s *Schedule) Claim() time.Time {
	k := s.next.Add(1) - 1
	return s.start.Add(time.Duration(k) * s.interval)
}

// Behind is how many requests are due by now and not claimed.
func (s *Schedule) Behind(now time.Time) uint64 {
	if s.interval <= 0 || now.Before(s.start) {
		return 0
	}
	due := uint64(now.Sub(s.start)/s.interval) + 1
	if claimed := s.next.Load(); due > claimed {
		return due - claimed
	}
	return 0
}

// coarse is how long before the due time a worker stops using the runtime's timers, which may fire a millisecond
// late on an idle process, and sleeps in the kernel instead.
const coarse = 2 * time.Millisecond

// waitUntil sleeps until t; it returns false when the context ended first.
func waitUntil(ctx context.Context, timer *time.Timer, t time.Time) bool {
	if d := time.Until(t) - coarse; d > 0 {
		timer.Reset(d)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
	}
	for d := time.Until(t); d > 0; d = time.Until(t) {
		preciseSleep(d)
	}
	return ctx.Err() == nil
}
