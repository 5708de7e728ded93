package tcp

import "sync"

// smallBody does not count: it is there with one or two reads, and a lock for
// each of them would be felt.
const smallBody = 64 << 10

// budget bounds the bytes of the bodies that all connections are reading. Those
// who wait get their part in the order in which they came, so a large body
// cannot be starved by small ones.
type budget struct {
	mu      sync.Mutex
	limit   int
	used    int
	waiters []*claim
}

type claim struct {
	n       int
	granted chan struct{}
}

// acquire takes n bytes, waiting for other bodies to be complete. Whoever holds
// a part is bound by the time limit of its body, so the wait ends. False means
// that gone was closed first.
func (b *budget) acquire(n int, gone <-chan struct{}) bool {
	if n <= smallBody {
		return true
	}
	b.mu.Lock()
	if len(b.waiters) == 0 && b.used+n <= b.limit {
		b.used += n
		b.mu.Unlock()
		return true
	}
	w := &claim{n: n, granted: make(chan struct{})}
	b.waiters = append(b.waiters, w)
	b.mu.Unlock()
	select {
	case <-w.granted:
		return true
	case <-gone:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, o := range b.waiters {
		if o == w {
			b.waiters = append(b.waiters[:i], b.waiters[i+1:]...)
			b.grant()
			return false
		}
	}
	// Granted at the same moment.
	b.used -= n
	b.grant()
	return false
}

// release gives n bytes back.
func (b *budget) release(n int) {
	if n <= smallBody {
		return
	}
	b.mu.Lock()
	b.used -= n
	b.grant()
	b.mu.Unlock()
}

// grant serves those who wait. The mutex is held.
func (b *budget) grant() {
	for len(b.waiters) > 0 && b.used+b.waiters[0].n <= b.limit {
		w := b.waiters[0]
		b.waiters[0] = nil
		b.waiters = b.waiters[1:]
		b.used += w.n
		close(w.granted)
	}
}
