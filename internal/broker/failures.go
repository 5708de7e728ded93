package broker

import (
	"sync"
	"time"
)

// Failures of one kind that are logged within a period; the others are counted.
const (
	failureLines  = 10
	failurePeriod = time.Minute
)

// failures keep what fails for thousands of partitions alike, and again with
// each attempt, from filling the log.
type failures struct {
	mu    sync.Mutex
	since time.Time
	count int
}

// note counts a failure. It reports whether to log it, and how many were not
// logged since the last one that was.
func (f *failures) note(now time.Time) (log bool, left int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.since) >= failurePeriod {
		left = max(0, f.count-failureLines)
		f.since, f.count = now, 0
	}
	f.count++
	return f.count <= failureLines, left
}
