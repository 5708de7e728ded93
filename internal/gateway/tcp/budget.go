package tcp

import "sync"

// smallBody does not count: it is there with one or two reads, and a lock for
// each of them would be felt.
const smallBody = 64 << 10

// budget bounds the memory of the bodies that all connections are reading. What
// counts is the memory that a body has, not the size that its header announces:
// else a few headers with nothing behind them would keep everybody out.
//
// Bodies take more as they arrive, so that all of them could wait for each
// other. Therefore one at a time may go over the limit until it is complete.
type budget struct {
	mu      sync.Mutex
	limit   int
	used    int
	over    *share // who may go over the limit; nil = nobody
	waiters []*claim
}

// share is what one body has of a budget.
type share struct{ n int }

type claim struct {
	s       *share
	n       int
	granted chan struct{}
}

// begin gives the first memory of a body, at most want bytes: all of it while
// half of the budget is free, and else what does not count.
func (b *budget) begin(s *share, want int) int {
	if want <= smallBody {
		return want
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiters) > 0 || b.used+want > b.limit/2 {
		return smallBody
	}
	b.take(s, want)
	return want
}

// grow makes a share at least n bytes, waiting for other bodies to be complete, in
// the order of those who came. Whoever may go over the limit is bound by the time
// limit of its body, so the wait ends. False means that gone was closed first.
func (b *budget) grow(s *share, n int, gone <-chan struct{}) bool {
	n -= s.n
	b.mu.Lock()
	if b.over == s || len(b.waiters) == 0 && b.admits(s, n) {
		b.take(s, n)
		b.mu.Unlock()
		return true
	}
	w := &claim{s: s, n: n, granted: make(chan struct{})}
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
			break
		}
	}
	return false // also when it was granted at the same moment: release gives it back
}

// admits reports whether n more bytes fit, or this share may go over the limit
// from now on. The mutex is held.
func (b *budget) admits(s *share, n int) bool {
	if b.used+n <= b.limit {
		return true
	}
	if b.over == nil {
		b.over = s
	}
	return b.over == s
}

// take gives a share n bytes more. The mutex is held.
func (b *budget) take(s *share, n int) {
	s.n += n
	b.used += n
}

// release gives all of a share back.
func (b *budget) release(s *share) {
	if s.n == 0 {
		return
	}
	b.mu.Lock()
	b.used -= s.n
	s.n = 0
	if b.over == s {
		b.over = nil
	}
	b.grant()
	b.mu.Unlock()
}

// grant serves those who wait. The mutex is held.
func (b *budget) grant() {
	for len(b.waiters) > 0 && b.admits(b.waiters[0].s, b.waiters[0].n) {
		w := b.waiters[0]
		b.waiters[0] = nil
		b.waiters = b.waiters[1:]
		b.take(w.s, w.n)
		close(w.granted)
	}
}
