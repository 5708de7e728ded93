package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// budget bounds bytes. Taking is one atomic addition while there is room; at the
// bound callers wait in order of arrival.
type budget struct {
	limit int64
	used  atomic.Int64
	h     *hooks

	waiting atomic.Int32
	mu      sync.Mutex
	queue   []*budgetWait
}

type budgetWait struct {
	n  int64
	ch chan struct{}
}

// take reserves n bytes, waiting while the bound is reached. A single request
// larger than the bound is let in when nothing else is held. full is called before
// it waits, when contended tells so already.
func (b *budget) take(ctx context.Context, n int64, full func()) error {
	if b.waiting.Load() == 0 && b.try(n) {
		return nil
	}
	b.mu.Lock()
	if len(b.queue) == 0 && b.try(n) {
		b.mu.Unlock()
		return nil
	}
	w := &budgetWait{n: n, ch: make(chan struct{})}
	b.queue = append(b.queue, w)
	b.waiting.Add(1)
	b.grant() // what was released between try and here wakes nobody else
	b.mu.Unlock()

	full()
	start := time.Now()
	defer func() { b.h.onBackpressure("producer", time.Since(start)) }()
	select {
	case <-w.ch:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, q := range b.queue {
		if q == w {
			b.queue = append(b.queue[:i:i], b.queue[i+1:]...)
			b.waiting.Add(-1)
			b.grant()
			return context.Cause(ctx)
		}
	}
	return nil // granted meanwhile
}

// contended reports whether somebody waits.
func (b *budget) contended() bool { return b.waiting.Load() > 0 }

func (b *budget) try(n int64) bool {
	for {
		u := b.used.Load()
		if u > 0 && u+n > b.limit {
			return false
		}
		if b.used.CompareAndSwap(u, u+n) {
			return true
		}
	}
}

// give returns n bytes.
func (b *budget) give(n int64) {
	b.used.Add(-n)
	if b.waiting.Load() == 0 {
		return
	}
	b.mu.Lock()
	b.grant()
	b.mu.Unlock()
}

// grant lets waiters in as far as there is room; b.mu is held.
func (b *budget) grant() {
	for len(b.queue) > 0 && b.try(b.queue[0].n) {
		close(b.queue[0].ch)
		b.queue = b.queue[1:]
		b.waiting.Add(-1)
	}
}
