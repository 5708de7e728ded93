// Package loglimit keeps what happens again and again from filling the log.
package loglimit

import (
	"sync"
	"time"
)

// Limit lets so many lines of one kind through in each period, and counts the
// others. Its methods are safe for concurrent use; a Limit must not be copied.
type Limit struct {
	lines  int
	period time.Duration

	mu    sync.Mutex
	since time.Time
	count int
}

// New returns a limit of a number of lines in each period.
func New(lines int, period time.Duration) *Limit { return &Limit{lines: lines, period: period} }

// Note counts a line. It reports whether to log it, and how many were not
// logged since the last one that was.
func (l *Limit) Note(now time.Time) (log bool, left int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.since) >= l.period {
		left = max(0, l.count-l.lines)
		l.since, l.count = now, 0
	}
	l.count++
	return l.count <= l.lines, left
}

// Log passes a line on to log, when it is one to be logged, with how many were
// left out before it.
func (l *Limit) Log(log func(msg string, args ...any), msg string, args ...any) {
	through, left := l.Note(time.Now())
	if !through {
		return
	}
	if left > 0 {
		args = append(args, "not_logged", left)
	}
	log(msg, args...)
}
