package replica

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/whippetmq/whippet/internal/vfs"
)

// TestDoubtChaos lets one node after the other die in every way there is, under load: killed, without power, emptied,
// replaced by an old copy, cut off. One at a time may have lost something, so nothing that was acknowledged is lost.
func TestDoubtChaos(t *testing.T) {
	t.Run("kept", func(t *testing.T) { doubtChaos(t, 1<<40) })
	t.Run("trimmed", func(t *testing.T) { doubtChaos(t, 60) })
}

func doubtChaos(t *testing.T, keep uint64) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	d := newDoubtCluster(t, 3, withData(8<<10, keep))
	old := map[uint64]*vfs.Mem{}
	var mu sync.RWMutex // held for writing while nodes come and go
	stop := make(chan struct{})
	acked := map[uint64]bool{}
	sent := uint64(0)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			mu.RLock()
			for _, n := range d.nodes {
				if !n.g.Status().Ready {
					continue
				}
				sent++
				x := newCommand(sent)
				x.pad = int(sent % 700)
				if n.g.Submit(context.Background(), x) != nil {
					continue
				}
				mu.RUnlock()
				err := x.wait(t)
				mu.RLock()
				if err == nil {
					acked[x.value] = true
				}
			}
			mu.RUnlock()
		}
	})
	rounds := 14
	if testing.Short() {
		rounds = 5
	}
	did := map[string]int{}
	for range rounds {
		n := d.nodes[rng.IntN(3)]
		what := []string{"kill", "power", "wipe", "old copy", "isolate"}[rng.IntN(5)]
		if what == "old copy" && old[n.id] == nil {
			what = "power"
		}
		did[what]++
		if what == "isolate" {
			d.net.isolate(n.id, true)
			d.leader(d.others(n)...)
			d.net.isolate(n.id, false)
		} else {
			mu.Lock()
			d.powerOff(n, 0)
			before := n.fs.KillClone()
			switch what {
			case "power":
				n.fs = n.fs.CrashClone(rng.Uint64())
			case "wipe":
				n.fs = vfs.NewMem(rng.Uint64())
			case "old copy":
				n.fs = old[n.id]
			}
			old[n.id] = before
			mu.Unlock()
			d.leader(d.others(n)...)
			mu.Lock()
			d.boot(n)
			mu.Unlock()
		}
		waitFor(t, "all to be sound", func() bool { return len(d.suspects()) == 0 })
		d.leader()
	}
	close(stop)
	wg.Wait()
	t.Log(did)
	waitFor(t, "the last request", func() bool { return submit(t, d.leader().g, 1<<40).wait(t) == nil })
	var want []uint64
	waitFor(t, "equal values", func() bool {
		want = d.leader().m.list()
		for _, n := range d.nodes {
			if !slices.Equal(n.m.list(), want) {
				return false
			}
		}
		return true
	})
	have := map[uint64]bool{}
	for _, v := range want {
		if have[v] {
			t.Errorf("%d twice", v)
		}
		have[v] = true
	}
	for v := range acked {
		if !have[v] {
			t.Errorf("acknowledged %d is gone", v)
		}
	}
	for _, n := range d.nodes[1:] {
		sameFiles(t, d.nodes[0], n)
	}
	t.Logf("%d sent, %d acknowledged, %d there", sent, len(acked), len(want))
}
