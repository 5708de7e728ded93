package replica

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/whippetmq/whippet/internal/vfs"
)

// TestSubmitHere: a request that finds its shard idle has its outcome when SubmitHere returns.
func TestSubmitHere(t *testing.T) {
	h := openHost(t, testConfig(vfs.NewMem(1)))
	m := &listMachine{t: t}
	g := startGroup(t, h, groupConfig(PartitionGroup(7, 3), m))
	here := 0
	const n = 100
	for i := range uint64(n) {
		c := newCommand(i + 1)
		if err := g.TrySubmitHere(c); err != nil {
			t.Fatal(err)
		}
		select {
		case <-c.done:
			here++
		default:
			// The loop had it, for a tick or because the group was not awake.
			if err := c.wait(t); err != nil {
				t.Fatal(err)
			}
		}
	}
	if here < n/2 {
		t.Errorf("%d of %d requests had their outcome at once", here, n)
	}
	if got := m.list(); !slices.Equal(got, upTo(n)) {
		t.Errorf("values %v", got)
	}
	if err := g.SubmitHere(t.Context(), &command{pad: 1 << 30}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
}

// TestSubmitHereSideBySide: whoever runs the shard, its work is done by one goroutine at a time (the race detector looks at
// the machine's fields), in order, and to the end.
func TestSubmitHereSideBySide(t *testing.T) {
	for _, persisted := range []bool{false, true} {
		h := openHost(t, testConfig(vfs.NewMem(1)))
		m := &listMachine{t: t}
		gc := groupConfig(PartitionGroup(7, 3), m)
		gc.Persisted = persisted
		g := startGroup(t, h, gc)
		const senders, each = 8, 200
		var wg sync.WaitGroup
		for s := range uint64(senders) {
			wg.Go(func() {
				var cs []*command
				for i := range uint64(each) {
					c := newCommand(s*each + i + 1)
					cs = append(cs, c)
					submit := g.SubmitHere
					if i%3 == 0 {
						submit = g.Submit
					}
					if err := submit(t.Context(), c); err != nil {
						t.Error(err)
						return
					}
				}
				for _, c := range cs {
					if err := c.wait(t); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		got := m.list()
		last := map[uint64]uint64{}
		for _, v := range got {
			s := (v - 1) / each
			if v <= last[s] {
				t.Fatalf("%d after %d", v, last[s])
			}
			last[s] = v
		}
		if len(got) != senders*each {
			t.Errorf("%d values of %d", len(got), senders*each)
		}
		closeHost(t, h)
	}
}
