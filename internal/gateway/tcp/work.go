package tcp

import (
	"net"
	"sync"
	"sync/atomic"
)

// work bounds the bytes of the requests of all connections that were handed over
// and are not answered: while a partition has no primary they stay. Only those
// who wait take the lock.
type work struct {
	limit   int64
	used    atomic.Int64
	waiting atomic.Int32
	mu      sync.Mutex
	freed   chan struct{} // closed, and another made, when there may be room
}

// take counts a request in, waiting for room. A small one of a connection that
// has nothing else in work never waits, so that heartbeats and reads go on.
func (w *work) take(size int, alone bool, gone <-chan struct{}) error {
	n := int64(size)
	if w.used.Add(n) <= w.limit || alone && size <= smallBody {
		return nil
	}
	w.give(size)
	w.waiting.Add(1)
	defer w.waiting.Add(-1)
	for {
		w.mu.Lock()
		freed := w.freed
		w.mu.Unlock()
		// One that is larger than the limit gets through by itself.
		if now := w.used.Add(n); now <= w.limit || now == n {
			return nil
		}
		w.used.Add(-n)
		select {
		case <-freed:
		case <-gone:
			return net.ErrClosed
		}
	}
}

// give counts a request out.
func (w *work) give(size int) {
	w.used.Add(-int64(size))
	if w.waiting.Load() > 0 {
		w.mu.Lock()
		close(w.freed)
		w.freed = make(chan struct{})
		w.mu.Unlock()
	}
}
