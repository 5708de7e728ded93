package replica_test

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/internal/vfs"
)

// benchRig is three nodes on the real disk, with the timing of production.
func benchRig(b testing.TB) *rig {
	r := makeRig(b, 3, func(c *replica.Config) {
		c.Tick, c.ElectionTicks = 100*time.Millisecond, 10
		c.Logger = quiet()
		c.CacheBytes = 256 << 20 // its batches have no checksums, so none may be read back
	})
	for _, n := range r.nodes {
		n.fs, n.dir = vfs.OS(), b.TempDir()
		n.start()
	}
	return r
}

// numbered starts groups that number batches, led by the given node (0 = all in turn).
func (r *rig) numbered(groups int, leader uint64, persisted bool) [][]*replica.Group {
	all := make([][]*replica.Group, groups)
	for i := range all {
		id := replica.GroupID(i + 1)
		preferred := leader
		if preferred == 0 {
			preferred = 1 + uint64(i)%3
		}
		for _, n := range r.nodes {
			g, err := n.h.StartGroup(r.t.Context(), replica.GroupConfig{
				ID: id, Dir: filepath.Join(n.dir, "groups", fmt.Sprint(i)), Voters: []uint64{1, 2, 3}, Preferred: n.id == preferred,
				Persisted: persisted, SegmentBytes: 256 << 20, Machine: &replica.NumberMachine{},
			})
			if err != nil {
				r.t.Fatal(err)
			}
			all[i] = append(all[i], g)
		}
	}
	for _, gs := range all {
		leads(r.t, gs)
	}
	return all
}

// leads waits for the replica that leads.
func leads(t testing.TB, gs []*replica.Group) *replica.Group {
	t.Helper()
	var found *replica.Group
	replica.WaitFor(t, "a leader", func() bool {
		for _, g := range gs {
			if st := g.Status(); st.Role == replica.Leader && st.Ready {
				found = g
				return true
			}
		}
		return false
	})
	return found
}

// BenchmarkCluster is the path of a batch through three nodes in one process: allocations are of all three, per batch and
// replica; CPU is of all three and the producers, per GB of payload.
func BenchmarkCluster(b *testing.B) {
	for _, tt := range []struct {
		size, groups, producers, flying int
		persisted                       bool
	}{
		{10 << 10, 1, 1, 1, false}, {10 << 10, 1, 1, 8, false}, {10 << 10, 1, 12, 8, false}, {10 << 10, 6, 12, 8, false},
		{10 << 10, 64, 12, 8, false}, {1 << 20, 1, 12, 2, false}, {1 << 20, 6, 12, 2, false}, {10 << 10, 6, 12, 8, true},
	} {
		b.Run(fmt.Sprintf("size=%d/groups=%d/producers=%dx%d/persisted=%v", tt.size, tt.groups, tt.producers, tt.flying, tt.persisted), func(b *testing.B) {
			r := benchRig(b)
			all := r.numbered(tt.groups, 0, tt.persisted)
			leaders := make([]*replica.Group, len(all))
			for i, gs := range all {
				leaders[i] = leads(b, gs)
			}
			latency := make([][]time.Duration, tt.producers)
			b.SetBytes(int64(tt.size))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			cpu := replica.CPUTime()
			b.ResetTimer()
			var wg sync.WaitGroup
			for p := range tt.producers {
				n := b.N / tt.producers
				if p < b.N%tt.producers {
					n++
				}
				wg.Go(func() {
					done := make(chan *replica.TestBatch, tt.flying)
					since := map[*replica.TestBatch]time.Time{}
					for range tt.flying {
						done <- replica.NewBatch(tt.size, 100, done)
					}
					take := func() *replica.TestBatch {
						x := <-done
						if x.Err() != nil {
							b.Error(x.Err())
						}
						if at, ok := since[x]; ok {
							latency[p] = append(latency[p], time.Since(at))
						}
						return x
					}
					for i := range n {
						x := take()
						since[x] = time.Now()
						if err := leaders[(p+i)%len(leaders)].Submit(context.Background(), x); err != nil {
							b.Error(err)
							return
						}
					}
					for range tt.flying {
						take()
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			used := replica.CPUTime() - cpu
			runtime.ReadMemStats(&after)
			ls := slices.Concat(latency...)
			slices.Sort(ls)
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(b.N)/3, "allocs/batch/replica")
			b.ReportMetric(used.Seconds()/(float64(b.N)*float64(tt.size)/1e9), "cpu-s/GB")
			b.ReportMetric(float64(ls[len(ls)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(ls[len(ls)*99/100].Microseconds()), "p99-µs")
		})
	}
}

// BenchmarkThousand is what a thousand groups on three nodes cost and how fast they move: idle, transferred, and after the
// death of a node.
func BenchmarkThousand(b *testing.B) {
	say, report := metrics(b)
	const groups = 1000
	var m0, m1 runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m0)
	r := benchRig(b)
	from := time.Now()
	all := r.numbered(groups, 1, false)
	say(float64(time.Since(from).Milliseconds()), "ms-start")
	for _, n := range r.nodes {
		replica.WaitFor(b, "all to sleep", func() bool { return n.h.Awake() == 0 })
	}
	runtime.GC()
	runtime.ReadMemStats(&m1)
	say(float64(m1.HeapInuse-m0.HeapInuse)/groups/3, "heap-B/replica")
	say(float64(runtime.NumGoroutine()), "goroutines")
	cpu, wall := replica.CPUTime(), time.Now()
	time.Sleep(3 * time.Second) //nolint:forbidigo // a measurement
	say(100*float64(replica.CPUTime()-cpu)/float64(time.Since(wall)), "%-core-idle")

	// Every group to another node, one after the other: from the call to the first request that is served there.
	var took []time.Duration
	for i := range 100 {
		took = append(took, move(b, all[i], 2))
	}
	slices.Sort(took)
	say(float64(took[50].Microseconds()), "µs-transfer-p50")
	say(float64(took[98].Microseconds()), "µs-transfer-p99")
	from = time.Now()
	if left, err := r.nodes[0].h.HandOver(b.Context()); err != nil {
		b.Errorf("%d left: %v", left, err)
	}
	for _, gs := range all {
		leads(b, gs[1:])
	}
	say(float64(time.Since(from).Milliseconds()), "ms-hand-over")
	report()
}

// move transfers a group and sends to it.
func move(t testing.TB, gs []*replica.Group, to uint64) time.Duration {
	done := make(chan *replica.TestBatch, 1)
	from := time.Now()
	if err := leads(t, gs).TransferLeader(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	if err := gs[to-1].Submit(t.Context(), replica.NewBatch(1024, 1, done)); err != nil {
		t.Fatal(err)
	}
	if x := <-done; x.Err() != nil {
		t.Fatal(x.Err())
	}
	return time.Since(from)
}

// BenchmarkDeath kills a node that leads a thousand idle groups.
func BenchmarkDeath(b *testing.B) {
	say, report := metrics(b)
	const groups = 1000
	r := benchRig(b)
	all := r.numbered(groups, 1, false)
	for _, n := range r.nodes {
		replica.WaitFor(b, "all to sleep", func() bool { return n.h.Awake() == 0 })
	}
	r.nodes[0].relay.t.Load().Close()
	from := time.Now()
	cpu := replica.CPUTime()
	count := map[int]int{}
	var last time.Duration
	done := make(chan *replica.TestBatch, groups)
	for _, gs := range all {
		g := leads(b, gs[1:])
		count[slices.Index(gs, g)+1]++
		if err := g.Submit(b.Context(), replica.NewBatch(1024, 1, done)); err != nil {
			b.Fatal(err)
		}
	}
	for range all {
		if x := <-done; x.Err() != nil {
			b.Error(x.Err())
		}
	}
	last = time.Since(from)
	say(float64((replica.CPUTime() - cpu).Milliseconds()), "cpu-ms")
	say(float64(last.Milliseconds()), "ms-all-writable")
	say(float64(max(count[2], count[3]))/groups, "largest-share")
	report()
}

// metrics of a benchmark that runs once.
func metrics(b *testing.B) (say func(float64, string), report func()) {
	values := map[string]float64{}
	return func(v float64, unit string) { values[unit] = v }, func() {
		for b.Loop() { //nolint:revive // nothing is repeated
		}
		for unit, v := range values {
			b.ReportMetric(v, unit)
		}
	}
}
