package segment

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/whippetmq/whippet/internal/vfs"
)

// lent is memory whose uses are counted, and that is spoilt when the last one ends.
type lent struct {
	b    []byte
	uses atomic.Int32
}

func (m *lent) Retain()   { m.uses.Add(1) }
func (m *lent) Size() int { return cap(m.b) }
func (m *lent) Release() {
	if m.uses.Add(-1) == 0 {
		for i := range m.b {
			m.b[i] = 0xDB
		}
	}
}

func lend(es []Entry) (ms []*lent) {
	for i := range es {
		m := &lent{b: es[i].Data}
		m.uses.Store(1)
		es[i].Mem = m
		ms = append(ms, m)
	}
	return ms
}

func wantUses(t *testing.T, what string, ms []*lent, want ...int32) {
	t.Helper()
	for i, m := range ms {
		if got := m.uses.Load(); got != want[min(i, len(want)-1)] {
			t.Errorf("%s: batch %d has %d uses, want %d", what, i, got, want[min(i, len(want)-1)])
		}
	}
}

// TestMemoryIsUsedAgain: the log ends its use of an entry's memory when the entry leaves the tail cache, a reader when its
// result is released, and memory that went out without an end is never used again.
func TestMemoryIsUsedAgain(t *testing.T) {
	e := newEnv(t, Options{})
	rng := rand.New(rand.NewPCG(3, 1))
	es := nextBatches(e.l, rng, 1, 4, 2, 3000)
	want := messagesOf(es[1].Data)
	ms := lend(es)
	w, err := e.l.Place(es)
	if err != nil {
		t.Fatal(err)
	}
	wantUses(t, "placed", ms, 1)
	if err := w.Do(); err != nil {
		t.Fatal(err)
	}
	w.Release()
	wantUses(t, "written", ms, 1)

	var r ReadBuffer
	if err := e.l.Read(&r, 2, 2, 1, e.l.NextOffset()); err != nil {
		t.Fatal(err)
	}
	wantUses(t, "read", ms, 1, 2, 1, 1)
	e.l.Applied(e.l.LastIndex())
	e.l.evict(es[1].Index, 1<<60)
	wantUses(t, "evicted while being read", ms, 0, 1, 1, 1)
	if got, err := parseRead(&r); err != nil || len(got) == 0 || sameMessages(got, want[:len(got)]) != nil {
		t.Errorf("the reader has %d messages, %v", len(got), err)
	}
	r.Release()
	r.Release()
	wantUses(t, "released", ms, 0, 0, 1, 1)

	got, err := e.l.Entries(es[2].Index, es[2].Index+1, 1)
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	e.l.evictAll()
	wantUses(t, "all evicted", ms, 0, 0, 1, 0)

	// What is cut may still be in a write.
	cut := nextBatches(e.l, rng, 1, 2, 2, 3000)
	cs := lend(cut)
	w, err = e.l.Place(cut)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.l.Undo(w); err != nil {
		t.Fatal(err)
	}
	w.Release()
	wantUses(t, "cut", cs, 1)
	e.reopen(0)
	checkReads(t, e.l, func() []Entry {
		all, err := allEntries(e.l, 1)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}(), rng)
}

// TestMemoryUnderReaders: readers of a log whose cache is too small for what they read never see memory that was spoilt.
func TestMemoryUnderReaders(t *testing.T) {
	l, _, err := Open(vfs.NewMem(1), testDir, Options{Group: testGroup, Cache: NewCache(30_000)}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var limit atomic.Uint64
	var done atomic.Bool
	var wg sync.WaitGroup
	for r := range uint64(3) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(r, 7))
			var buf ReadBuffer
			for !done.Load() {
				end := limit.Load()
				from := end - min(end, rng.Uint64N(20)+1)
				if err := l.Read(&buf, from, 10, 1+rng.IntN(20_000), end); err != nil {
					t.Error(err)
				}
				if _, err := parseRead(&buf); err != nil {
					t.Errorf("from %d: %v", from, err)
				}
				buf.Release()
			}
		})
	}
	rng := rand.New(rand.NewPCG(1, 7))
	for range 400 {
		es := nextBatches(l, rng, 1, 1, 2, 4000)
		lend(es)
		putIn(t, l, es...)
		l.Applied(l.LastIndex())
		limit.Store(l.NextOffset())
	}
	done.Store(true)
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
