package broker

import (
	"sync"
	"sync/atomic"
)

// Waiters are those who wait for room in books that are kept without a lock.
// Only they, and whoever wakes them, take one. The zero value is ready.
type Waiters struct {
	waiting atomic.Int32
	mu      sync.Mutex
	woken   chan struct{} // closed when there may be room; nil = nobody waits for it
}

// Waiting is how many wait.
func (w *Waiters) Waiting() int { return int(w.waiting.Load()) }

// Wake has those who wait look again. Call it after the change.
func (w *Waiters) Wake() {
	if w.waiting.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.woken != nil {
		close(w.woken)
		w.woken = nil
	}
}

// Wait returns true when ok does, which is asked at once and after each Wake,
// and false when gone is closed first.
func (w *Waiters) Wait(gone <-chan struct{}, ok func() bool) bool {
	if ok() {
		return true
	}
	w.waiting.Add(1)
	defer w.waiting.Add(-1)
	for {
		w.mu.Lock()
		if w.woken == nil {
			w.woken = make(chan struct{})
		}
		woken := w.woken
		w.mu.Unlock()
		// Asked after the channel was taken: a change between the two closes it.
		if ok() {
			return true
		}
		select {
		case <-woken:
		case <-gone:
			return false
		}
	}
}
