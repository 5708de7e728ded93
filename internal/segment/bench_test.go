package segment

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/whippetmq/whippet/internal/vfs"
)

// stampBatch moves a batch to another offset without building it anew.
func stampBatch(b []byte, base, ts uint64, scratch *[]byte) {
	le.PutUint64(b[offBaseOffset:], base)
	le.PutUint64(b[offBaseTimestamp:], ts)
	le.PutUint64(b[offChecksum:], batchChecksum(b, b[headerSize:], scratch))
}

func openOS(tb testing.TB, o Options) (*Log, string) {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "p")
	l, _, err := Open(vfs.OS(), dir, o, 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := l.Close(); err != nil {
			tb.Error(err)
		}
	})
	return l, dir
}

func batchBytes(size int) []byte {
	rng := rand.New(rand.NewPCG(1, 1))
	var ps [][]byte
	for n := headerSize; n < size; {
		p := min(1000, size-n)
		ps = append(ps, payload(rng, max(1, p-frameHeaderSize)))
		n += max(p, frameHeaderSize+1)
	}
	return makeBatch(0, 1, ps...)
}

// TestAllocations pins the allocations of the hot paths.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	l, _ := openOS(t, Options{Cache: NewCache(256 << 10)})
	data := batchBytes(10_000)
	count := uint64(MessageCount(data))
	var scratch []byte
	var entries [1]Entry
	var batches [64][]byte
	for i := range batches {
		batches[i] = append([]byte(nil), data...)
	}
	i := 0
	put := testing.AllocsPerRun(2000, func() {
		// More batches than the cache holds, so that none is used twice.
		b := batches[i%len(batches)]
		i++
		stampBatch(b, l.NextOffset(), uint64(i), &scratch)
		entries[0] = Entry{Index: l.LastIndex() + 1, Term: 1, Data: b}
		w, err := l.Place(entries[:])
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Do(); err != nil {
			t.Fatal(err)
		}
		l.Applied(w.Last())
		w.Release()
	})
	end := l.NextOffset()
	var buf ReadBuffer
	read := func(from uint64) float64 {
		return testing.AllocsPerRun(500, func() {
			if err := l.Read(&buf, from, 100, 1<<20, end); err != nil || buf.Count == 0 {
				t.Fatal(err)
			}
			buf.Release()
		})
	}
	warm, cold := read(end-5*count), read(count)
	if st := l.o.Cache.Stats(); st.Hits == 0 || st.Misses == 0 {
		t.Errorf("%+v", st)
	}
	t.Logf("allocations: place and do %.2f, read from memory %.2f, from the file %.2f", put, warm, cold)
	if put > 2 || warm > 2 || cold > 2 {
		t.Errorf("too many allocations: place and do %.2f, read from memory %.2f, from the file %.2f", put, warm, cold)
	}
}

// TestIdleMemory measures what a log costs that nobody writes to.
func TestIdleMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has its own memory")
	}
	fs := vfs.OS()
	dir := t.TempDir()
	h, c := NewHandles(16, 1<<20), NewCache(0)
	const n = 500
	open := func(write bool) float64 {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		logs := make([]*Log, n)
		for i := range logs {
			l, _, err := Open(fs, filepath.Join(dir, fmt.Sprint(i)), Options{Group: uint64(i), Handles: h, Cache: c, SameBoot: true}, 0)
			if err != nil {
				t.Fatal(err)
			}
			if write {
				w, err := l.Place([]Entry{{Index: 1, Term: 1, Data: nil}, {Index: 2, Term: 1, Data: makeBatch(0, 1, []byte("x"))}})
				if err != nil {
					t.Fatal(err)
				}
				if err := Flush([]*Write{w}, 1); err != nil {
					t.Fatal(err)
				}
				w.Release()
				l.Applied(2)
			}
			logs[i] = l
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		perLog := float64(after.HeapAlloc-before.HeapAlloc) / n
		if open := h.Open(); open > 17 {
			t.Errorf("%d files open", open)
		}
		for _, l := range logs {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		return perLog
	}
	fresh, written, reopened := open(false), open(true), open(false)
	t.Logf("heap per idle log: new %.0f, after a write %.0f, reopened %.0f bytes", fresh, written, reopened)
	if fresh > 4096 || written > 4096 || reopened > 4096 {
		t.Errorf("heap per idle log: new %.0f, after a write %.0f, reopened %.0f bytes", fresh, written, reopened)
	}
}

// TestWriteAmplification compares what reaches the files with the batches.
func TestWriteAmplification(t *testing.T) {
	var written int64
	m := vfs.NewMem(1)
	fs := vfs.NewFaulty(m, func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite {
			written += int64(op.Len)
		}
		return nil
	})
	l, _, err := Open(fs, testDir, Options{SegmentBytes: 4 << 20}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var scratch []byte
	var batches int64
	for i := range 2000 / every(1) {
		b := batchBytes(10_000)
		stampBatch(b, l.NextOffset(), uint64(i), &scratch)
		w, err := l.Place([]Entry{{Index: l.LastIndex() + 1, Term: 1, Data: b}})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Do(); err != nil {
			t.Fatal(err)
		}
		w.Release()
		batches += int64(len(b))
	}
	ratio := float64(written) / float64(batches)
	t.Logf("bytes written per byte of batch: %.4f", ratio)
	if ratio > 1.05 {
		t.Errorf("bytes written per byte of batch: %.4f", ratio)
	}
}

// BenchmarkAppend writes batches to the disk's file system, and the same bytes
// with plain writes, in turns, and reports the ratio.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			data := batchBytes(size)
			count := uint64(MessageCount(data))
			limit := int64(256 << 20)
			l, dir := openOS(b, Options{Cache: NewCache(0), SegmentBytes: limit})
			f, err := os.Create(filepath.Join(filepath.Dir(dir), "plain"))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close() //nolint:errcheck // benchmark
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			var ours, plain time.Duration
			entries := make([]Entry, 1)
			offset, off := uint64(0), int64(0)
			for n := 0; b.Loop(); n++ {
				le.PutUint64(data[offBaseOffset:], offset)
				offset += count
				entries[0] = Entry{Index: uint64(n) + 1, Term: 1, Data: data}
				start := time.Now()
				w, err := l.Place(entries)
				if err != nil {
					b.Fatal(err)
				}
				if err := w.Do(); err != nil {
					b.Fatal(err)
				}
				l.Applied(w.Last())
				w.Release()
				ours += time.Since(start)
				b.StopTimer()
				start = time.Now()
				if _, err := f.WriteAt(data, off); err != nil {
					b.Fatal(err)
				}
				plain += time.Since(start)
				if off += int64(len(data)); off > limit {
					// Keep the disk small.
					off = 0
					if err := f.Truncate(0); err != nil {
						b.Fatal(err)
					}
					l.Checkpointed(l.applied)
					l.Trim(offset)
					if r := l.Reap(); r != nil {
						if err := r.Do(); err != nil {
							b.Fatal(err)
						}
					}
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(ours)/float64(plain), "x-plain")
		})
	}
}

// BenchmarkRead reads 256 MiB in chunks from memory and from cached files, and
// the same file with plain reads.
func BenchmarkRead(b *testing.B) {
	const total = 256 << 20
	for _, cached := range []bool{true, false} {
		for _, chunk := range []int{10_000, 100_000, 1 << 20} {
			b.Run(fmt.Sprintf("memory=%v/chunk=%d", cached, chunk), func(b *testing.B) {
				cache := NewCache(0)
				if cached {
					cache = NewCache(2 * total)
				}
				l, _ := openOS(b, Options{Cache: cache})
				var scratch []byte
				for n := 0; n < total; n += 10_000 {
					data := batchBytes(10_000)
					stampBatch(data, l.NextOffset(), 1, &scratch)
					w, err := l.Place([]Entry{{Index: l.LastIndex() + 1, Term: 1, Data: data}})
					if err != nil {
						b.Fatal(err)
					}
					if err := w.Do(); err != nil {
						b.Fatal(err)
					}
					l.Applied(w.Last())
					w.Release()
				}
				end := l.NextOffset()
				f, err := os.Open(l.segs[0].path + logSuffix)
				if err != nil {
					b.Fatal(err)
				}
				defer f.Close() //nolint:errcheck // benchmark
				plainBuf := make([]byte, chunk)
				b.ReportAllocs()
				var buf ReadBuffer
				var ours, plain time.Duration
				var bytes int64
				next, off := uint64(0), int64(0)
				for b.Loop() {
					start := time.Now()
					if err := l.Read(&buf, next, 1<<30, chunk, end); err != nil || buf.Count == 0 {
						b.Fatal(err)
					}
					ours += time.Since(start)
					bytes += int64(buf.Bytes)
					if next = buf.Last + 1; next >= end {
						next = 0
					}
					got := buf.Bytes
					buf.Release()
					b.StopTimer()
					start = time.Now()
					if _, err := f.ReadAt(plainBuf[:min(got, chunk)], off); err != nil {
						b.Fatal(err)
					}
					plain += time.Since(start)
					if off += int64(got); off > total-2<<20 {
						off = 0
					}
					b.StartTimer()
				}
				b.SetBytes(bytes / int64(b.N))
				b.ReportMetric(float64(ours)/float64(plain), "x-pread")
			})
		}
	}
}

// BenchmarkOpen opens a log of 1 GiB in segments of 256 MiB with 10 KB batches,
// as after a kill and as after a power loss with the last checkpoint 64 MiB
// before the end.
func BenchmarkOpen(b *testing.B) {
	l, dir := openOS(b, Options{Cache: NewCache(0), SegmentBytes: 256 << 20})
	data := batchBytes(10_000)
	var scratch []byte
	var verified uint64
	const total = 1000 << 20
	for n := 0; n < total; n += len(data) {
		stampBatch(data, l.NextOffset(), 1, &scratch)
		w, err := l.Place([]Entry{{Index: l.LastIndex() + 1, Term: 1 + l.LastIndex()/50_000, Data: append([]byte(nil), data...)}})
		if err != nil {
			b.Fatal(err)
		}
		if err := w.Do(); err != nil {
			b.Fatal(err)
		}
		l.Applied(w.Last())
		if n < total-64<<20 {
			verified = w.Last()
		}
		w.Release()
	}
	last := l.LastIndex()
	for _, boot := range []bool{true, false} {
		b.Run(fmt.Sprint("sameboot=", boot), func(b *testing.B) {
			var walked int64
			for b.Loop() {
				l, rec, err := Open(vfs.OS(), dir, Options{SegmentBytes: 256 << 20, SameBoot: boot}, verified)
				if err != nil || rec.LastIndex != last {
					b.Fatal(rec, err)
				}
				walked = rec.Walked
				l.closed = true // without writing the index
			}
			b.ReportMetric(float64(walked)/(1<<20), "MiB-walked")
		})
	}
}
