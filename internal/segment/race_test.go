package segment

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/whippetmq/whippet/internal/vfs"
)

// TestConcurrent lets readers, a writer goroutine, flushes and removals run
// beside the owner of several logs that share a small cache and few handles.
func TestConcurrent(t *testing.T) {
	fs := vfs.NewMem(1)
	h, c := NewHandles(3, 2000), NewCache(60_000)
	var logs []*Log
	for i := range 3 {
		l, _, err := Open(fs, fmt.Sprint("node/", i), Options{Group: uint64(i), Handles: h, Cache: c, SegmentBytes: 20_000}, 0)
		if err != nil {
			t.Fatal(err)
		}
		logs = append(logs, l)
	}
	var limits [3]atomic.Uint64 // committed offsets
	var done atomic.Bool
	var readers, writer sync.WaitGroup

	// The message at an offset holds it, so a reader knows what to expect.
	batch := func(base uint64, n int, rng *rand.Rand) []byte {
		var ps [][]byte
		for i := range n {
			ps = append(ps, append([]byte(fmt.Sprintf("%08d", base+uint64(i))), payload(rng, rng.IntN(500))...))
		}
		return makeBatch(base, base+1, ps...)
	}
	for r := range 4 {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(r), 5))
			var buf ReadBuffer
			for !done.Load() {
				i := rng.IntN(3)
				l, limit := logs[i], limits[i].Load()
				from := uint64(0)
				if limit > 0 {
					from = rng.Uint64N(limit)
				}
				if err := l.Read(&buf, from, uint32(1+rng.IntN(100)), 1+rng.IntN(40_000), limit); err != nil {
					t.Error(err)
					return
				}
				ms, err := parseRead(&buf)
				if err != nil {
					t.Error(err)
					return
				}
				for _, m := range ms {
					if m.offset >= limit || m.frame[48:56] != fmt.Sprintf("%08d", m.offset) {
						t.Errorf("offset %d (limit %d) has %q", m.offset, limit, m.frame[48:56])
						return
					}
				}
				buf.Release()
				if _, _, err := l.OffsetAtTime(from); err != nil {
					t.Error(err)
				}
				_ = l.Size() + int64(l.SegmentCount()) + int64(l.LastTimestamp())
			}
		})
	}
	jobs := make(chan []*Write, 4)
	results := make(chan []*Write, 100)
	writer.Go(func() {
		for ws := range jobs {
			if err := Flush(ws, 3); err != nil {
				t.Error(err)
			}
			results <- ws
		}
		close(results)
	})
	rng := rand.New(rand.NewPCG(9, 9))
	rounds := 400
	if testing.Short() {
		rounds = 100
	}
	handle := func(ws []*Write) {
		for _, w := range ws {
			i := int(w.l.o.Group)
			last := w.Last()
			w.Release()
			if last > logs[i].LastIndex() {
				continue
			}
			logs[i].Applied(last - 1)
			if p, err := logs[i].PositionAt(last - 1); err != nil {
				t.Error(err)
			} else {
				limits[i].Store(p.NextOffset)
			}
		}
	}
	var pinned func()
	for round := range rounds {
		var ws []*Write
		for i, l := range logs {
			if rng.IntN(3) == 0 {
				continue
			}
			index, term, offset := l.LastIndex()+1, uint64(round+1), l.NextOffset()
			if rng.IntN(4) == 0 && l.LastIndex() > l.committed {
				// Cut the last entry, which was not committed.
				p, err := l.PositionAt(l.LastIndex() - 1)
				if err != nil {
					t.Fatal(err)
				}
				index, offset = p.Index+1, p.NextOffset
			}
			var es []Entry
			for range 1 + rng.IntN(4) {
				n := 1 + rng.IntN(4)
				es = append(es, Entry{Index: index, Term: term, Data: batch(offset, n, rng)})
				index, offset = index+1, offset+uint64(n)
			}
			w, err := l.Place(es)
			if err != nil {
				t.Fatal(err)
			}
			ws = append(ws, w)
			if es, err := l.Entries(max(l.FirstIndex(), l.committed), l.LastIndex()+1, 5000); l.committed > 0 && (err != nil || len(es) == 0) {
				t.Fatalf("log %d: %v", i, err)
			}
		}
		if len(ws) > 0 {
			jobs <- ws
		}
		for wait := true; wait; {
			select {
			case ws := <-results:
				handle(ws)
			default:
				wait = len(jobs) == cap(jobs)
				if wait {
					handle(<-results)
				}
			}
		}
		l := logs[round%3]
		l.Checkpointed(l.applied)
		l.Trim(limits[round%3].Load() / 2)
		switch {
		case pinned == nil && round%20 == 0:
			pinned = l.Pin()
		case pinned != nil && round%20 == 10:
			pinned()
			pinned = nil
		}
		if r := l.Reap(); r != nil {
			if err := r.Do(); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(jobs)
	for ws := range results {
		handle(ws)
	}
	writer.Wait()
	done.Store(true)
	readers.Wait()
	st := c.Stats()
	if st.Hits == 0 || st.Misses == 0 {
		t.Errorf("one kind of read is missing: %+v", st)
	}
	for _, l := range logs {
		l.Applied(l.LastIndex())
	}
	if st := c.Stats(); st.Bytes > st.Limit {
		t.Errorf("cache above its limit: %+v", st)
	}
	for _, l := range logs {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if st := c.Stats(); st.Bytes != 0 {
		t.Errorf("closed logs hold %d bytes", st.Bytes)
	}
	if n := h.Open(); n != 0 {
		t.Errorf("closed logs hold %d files", n)
	}
}
