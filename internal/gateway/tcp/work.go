package tcp

import (
	"net"
	"sync/atomic"

	"github.com/whippetmq/whippet/internal/broker"
)

// work bounds the bytes of the requests of all connections that were handed over
// and are not answered: while a partition has no primary they stay.
type work struct {
	limit   int64
	used    atomic.Int64
	waiters broker.Waiters
}

// take counts a request in, waiting for room. A small one of a connection that
// has nothing else in work never waits, so that heartbeats and reads go on.
func (w *work) take(size int, alone bool, gone <-chan struct{}) error {
	n := int64(size)
	if alone && size <= smallBody {
		w.used.Add(n)
		return nil
	}
	if !w.waiters.Wait(gone, func() bool { return w.fits(n) }) {
		return net.ErrClosed
	}
	return nil
}

// fits takes n bytes if there is room. One that is larger than the limit gets
// through by itself.
func (w *work) fits(n int64) bool {
	for {
		used := w.used.Load()
		if used != 0 && used+n > w.limit {
			return false
		}
		if w.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// give counts a request out.
func (w *work) give(size int) {
	w.used.Add(-int64(size))
	w.waiters.Wake()
}
