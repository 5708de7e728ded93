package replica

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/whippetmq/whippet/internal/clock"
	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/internal/vfs"
)

// batch is a data batch as a producer sends it, as a poolable request.
type batch struct {
	data []byte
	done chan *batch
	err  error
}

func newBatch(size, messages int, done chan *batch) *batch {
	b := &batch{data: make([]byte, size), done: done}
	binary.LittleEndian.PutUint64(b.data[32:], uint64(size))
	binary.LittleEndian.PutUint32(b.data[48:], uint32(messages))
	return b
}

func (b *batch) Size() int      { return len(b.data) }
func (b *batch) Proposed()      {}
func (b *batch) Fail(err error) { b.err = err; b.done <- b }

// numberMachine only numbers batches.
type numberMachine struct {
	next    uint64
	applied uint64
	log     *segment.Log
}

func (m *numberMachine) Restore(log *segment.Log, checkpoint []byte, _ uint64) error {
	m.log = log
	if len(checkpoint) == 8 {
		m.applied = binary.LittleEndian.Uint64(checkpoint)
	}
	return nil
}

func (m *numberMachine) Checkpoint(dst []byte) []byte {
	return binary.LittleEndian.AppendUint64(dst, m.applied)
}

func (m *numberMachine) Admit(r Request) []byte {
	b := r.(*batch)
	binary.LittleEndian.PutUint64(b.data[8:], m.next)
	segment.PutOrigin(b.data, segment.Origin{Request: 1})
	m.next += uint64(segment.MessageCount(b.data))
	return b.data
}

func (m *numberMachine) Fold() ([]byte, []Request) { return nil, nil }

func (m *numberMachine) Rejected(rs []Request) {
	for _, r := range rs {
		m.next -= uint64(segment.MessageCount(r.(*batch).data))
	}
}

func (m *numberMachine) Apply(e segment.Entry, rs []Request) error {
	if base := segment.BaseOffset(e.Data); base != m.applied {
		return fmt.Errorf("offset %d, want %d", base, m.applied)
	}
	m.applied += uint64(segment.MessageCount(e.Data))
	for _, r := range rs {
		b := r.(*batch)
		b.done <- b
	}
	return nil
}

func (m *numberMachine) Lead(_ uint64, leading bool) {
	if leading {
		m.next = m.log.NextOffset()
	}
}

func (m *numberMachine) Tick(uint64) [][]byte { return nil }

func diskConfig(tb testing.TB) Config {
	return Config{
		FS: vfs.OS(), Dir: filepath.Join(tb.TempDir(), "node"), NodeID: 1, Clock: clock.System(nil), BallastBytes: -1, ReserveBytes: -1,
	}
}

// BenchmarkSend is the path of a batch through a group of one voter: Submit, admission, raft, log, apply, outcome. The
// last column of each is the ratio to plain writes of the same bytes into one file by the same producers.
func BenchmarkSend(b *testing.B) {
	for _, size := range []int{10 << 10, 1 << 20} {
		for _, groups := range []int{1, 6, 64} {
			for _, mode := range []string{"replicated", "persisted"} {
				b.Run(fmt.Sprintf("size=%d/groups=%d/%s", size, groups, mode), func(b *testing.B) {
					benchSend(b, size, groups, 12, 8, mode == "persisted")
				})
			}
		}
	}
	b.Run("size=10240/groups=1/one producer, one in flight", func(b *testing.B) { benchSend(b, 10<<10, 1, 1, 1, false) })
}

func benchSend(b *testing.B, size, groups, producers, flying int, persisted bool) {
	cfg := diskConfig(b)
	h, err := Open(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer closeHost(b, h)
	gs := make([]*Group, groups)
	for i := range gs {
		gs[i], err = h.StartGroup(b.Context(), GroupConfig{
			ID: GroupID(i + 1), Dir: filepath.Join(cfg.Dir, fmt.Sprint("g", i)), Voters: []uint64{1}, Machine: &numberMachine{},
			Persisted: persisted, SegmentBytes: 256 << 20,
		})
		if err != nil {
			b.Fatal(err)
		}
		waitReady(b, gs[i])
	}
	ctx := context.Background()
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	start := time.Now()
	var wg sync.WaitGroup
	for p := range producers {
		n := b.N / producers
		if p < b.N%producers {
			n++
		}
		wg.Go(func() {
			done := make(chan *batch, flying)
			for range flying {
				done <- newBatch(size, 100, done)
			}
			for i := range n {
				x := <-done
				if x.err != nil {
					b.Error(x.err)
					return
				}
				if err := gs[(p+i)%groups].Submit(ctx, x); err != nil {
					b.Error(err)
					return
				}
			}
			for range flying {
				<-done
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	took := time.Since(start)
	b.ReportMetric(plainWrites(b, size, producers).Seconds()/took.Seconds(), "x-of-pwrite")
}

// plainWrites is how long the same producers need for the same bytes into one file, one system call each.
func plainWrites(b *testing.B, size, producers int) time.Duration {
	f, err := os.Create(filepath.Join(b.TempDir(), "plain"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // a measurement
	var mu sync.Mutex
	var pos int64
	start := time.Now()
	var wg sync.WaitGroup
	for p := range producers {
		n := b.N / producers
		if p < b.N%producers {
			n++
		}
		wg.Go(func() {
			data := make([]byte, size)
			for range n {
				mu.Lock()
				at := pos
				pos += int64(size)
				mu.Unlock()
				if _, err := f.WriteAt(data, at); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

// BenchmarkIdle reports what a thousand idle groups cost: heap for each, CPU of all.
func BenchmarkIdle(b *testing.B) {
	const groups = 1000
	cfg := diskConfig(b)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	h, err := Open(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer closeHost(b, h)
	start := time.Now()
	gs := make([]*Group, groups)
	for i := range gs {
		if gs[i], err = h.StartGroup(b.Context(), GroupConfig{
			ID: GroupID(i + 1), Dir: filepath.Join(cfg.Dir, fmt.Sprint("g", i)), Voters: []uint64{1}, Machine: &numberMachine{},
		}); err != nil {
			b.Fatal(err)
		}
	}
	for _, g := range gs {
		waitReady(b, g)
	}
	started := time.Since(start)
	time.Sleep(4 * time.Second) //nolint:forbidigo // a measurement: until the groups are idle
	runtime.GC()
	runtime.ReadMemStats(&after)
	cpu := cpuTime()
	wall := time.Now()
	time.Sleep(2 * time.Second) //nolint:forbidigo // a measurement
	used := float64(cpuTime()-cpu) / float64(time.Since(wall))
	for b.Loop() { //nolint:revive // nothing is repeated
	}
	b.ReportMetric(float64(started.Milliseconds()), "ms-to-start")
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/groups, "heap-B/group")
	b.ReportMetric(float64(runtime.NumGoroutine()), "goroutines")
	b.ReportMetric(100*used, "%-of-a-core")
}
