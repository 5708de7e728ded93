package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/whippetmq/whippet/internal/vfs"
)

func TestSingleVoter(t *testing.T) {
	for _, tt := range []struct {
		name string
		mode func(*GroupConfig)
	}{
		{"replicated", func(*GroupConfig) {}},
		{"persisted", func(c *GroupConfig) { c.Persisted = true }},
		{"control persisted", func(c *GroupConfig) { c.PersistControl = true }},
		{"metadata", func(c *GroupConfig) { c.ID = MetadataGroup }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fs := vfs.NewMem(1)
			const n = 200
			for run := range uint64(3) {
				h := openHost(t, testConfig(fs))
				m := &listMachine{t: t}
				gc := groupConfig(PartitionGroup(7, 3), m)
				tt.mode(&gc)
				g := startGroup(t, h, gc)
				if got := m.list(); !slices.Equal(got, upTo(run*n)) {
					t.Fatalf("run %d starts with %d values: %v", run, len(got), got)
				}
				if run > 0 && m.base != run*n {
					t.Errorf("run %d: %d values from the checkpoint of the orderly stop, want %d", run, m.base, run*n)
				}
				var cs []*command
				for i := range uint64(n) {
					cs = append(cs, submit(t, g, run*n+i+1))
				}
				for i, c := range cs {
					if err := c.wait(t); err != nil {
						t.Fatalf("value %d: %v", c.value, err)
					}
					if c.index != run*n+uint64(i) {
						t.Fatalf("value %d at %d", c.value, c.index)
					}
				}
				// The last outcome is told while the entry is applied, so the counter follows a moment later.
				if err := g.WaitApplied(t.Context(), g.Status().LastIndex); err != nil {
					t.Fatal(err)
				}
				st := g.Status()
				if st.Role != Leader || !st.Ready || st.Leader != 1 || st.Applied != st.Commit || st.Applied != st.LastIndex || st.Term != run+1 {
					t.Errorf("status %+v", st)
				}
				if err := g.ReadBarrier(t.Context()); err != nil {
					t.Errorf("read barrier: %v", err)
				}
				if err := g.WaitApplied(t.Context(), st.Applied); err != nil {
					t.Errorf("wait applied: %v", err)
				}
				closeHost(t, h)
				if m.leads {
					t.Error("the machine was not told that it leads no more")
				}
				if err := g.Submit(t.Context(), newCommand(1)); !errors.Is(err, ErrStopped) {
					t.Errorf("submit after close: %v", err)
				}
				if err := g.ReadBarrier(t.Context()); err == nil {
					t.Error("read barrier after close")
				}
			}
		})
	}
}

func TestProposalOrder(t *testing.T) {
	h := openHost(t, testConfig(vfs.NewMem(1)))
	m := &listMachine{t: t}
	g := startGroup(t, h, groupConfig(5, m))
	const producers, each = 8, 300
	var wg sync.WaitGroup
	for p := range uint64(producers) {
		wg.Go(func() {
			for i := range uint64(each) {
				c := newCommand(p<<32 | i)
				c.after = func(*command) {}
				if err := g.Submit(t.Context(), c); err != nil {
					t.Errorf("submit: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if err := submit(t, g, 1<<60).wait(t); err != nil {
		t.Fatal(err)
	}
	next := make([]uint64, producers)
	for _, v := range m.list() {
		if v == 1<<60 {
			continue
		}
		p, i := v>>32, v&(1<<32-1)
		if next[p] != i {
			t.Fatalf("producer %d: %d came when %d was due", p, i, next[p])
		}
		next[p]++
	}
	for p, n := range next {
		if n != each {
			t.Errorf("producer %d: %d of %d", p, n, each)
		}
	}
}

func TestFoldAndAnswers(t *testing.T) {
	h := openHost(t, testConfig(vfs.NewMem(1)))
	m := &listMachine{t: t}
	g := startGroup(t, h, groupConfig(5, m))
	var cs []*command
	for i := range uint64(300) {
		c := newCommand(i + 1)
		c.fold = i%3 == 1
		c.answer = i%3 == 2
		cs = append(cs, c)
		if err := g.Submit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range cs {
		if err := c.wait(t); err != nil {
			t.Errorf("%d: %v", c.value, err)
		}
		if want := 1; c.answer && c.proposed != 0 || !c.answer && c.proposed != want {
			t.Errorf("%d: proposed %d times", c.value, c.proposed)
		}
	}
	if got := len(m.list()); got != 200 {
		t.Errorf("%d values, want 200", got)
	}
	// Nothing may be left in the books.
	if err := submit(t, g, 1000).wait(t); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the inbox's books", func() bool {
		b := g.shard.inbox
		if b.enter() { // a turn, which settles
			b.signal()
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.bytes == 0 && b.requests == 0 && g.pending == 0
	})
}

// waitFor polls for a condition that has no event of its own.
func waitFor(t testing.TB, what string, done func() bool) {
	t.Helper()
	timeout := time.NewTimer(20 * time.Second)
	defer timeout.Stop()
	every := time.NewTicker(time.Millisecond)
	defer every.Stop()
	for !done() {
		select {
		case <-every.C:
		case <-timeout.C:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestInboxBounds(t *testing.T) {
	fs := vfs.NewMem(1)
	block := make(chan struct{})
	blocked := make(chan struct{})
	var once sync.Once
	cfg := testConfig(fs)
	cfg.MaxGroupBytes = 1000
	h := openHost(t, cfg)
	m := &listMachine{t: t}
	m.applied = func(v uint64) {
		if v == 1 {
			once.Do(func() { close(blocked) })
			<-block
		}
	}
	g := startGroup(t, h, groupConfig(5, m))
	other := startGroup(t, h, groupConfig(6, &listMachine{t: t}))
	first := submit(t, g, 1)
	<-blocked
	var cs []*command
	for v := uint64(2); ; v++ {
		c := newCommand(v)
		if err := g.TrySubmit(c); err != nil {
			if !errors.Is(err, ErrBusy) {
				t.Fatalf("try submit: %v", err)
			}
			break
		}
		cs = append(cs, c)
	}
	if len(cs) != 14 { // 1000 bytes of 64 each, the first one still counts
		t.Errorf("%d requests of 64 bytes fit into 1000", len(cs))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := g.Submit(ctx, newCommand(99)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("submit to a full group: %v", err)
	}
	if err := other.TrySubmit(newCommand(1)); err != nil {
		t.Errorf("a full group refuses its neighbour: %v", err)
	}
	if err := g.TrySubmit(&command{pad: 1 << 30}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	waited := make(chan error, 1)
	late := newCommand(100)
	go func() { waited <- g.Submit(context.Background(), late) }()
	close(block)
	if err := <-waited; err != nil {
		t.Errorf("submit after room was made: %v", err)
	}
	for _, c := range append(cs, first, late) {
		if err := c.wait(t); err != nil {
			t.Errorf("%d: %v", c.value, err)
		}
	}
	// A request larger than the bound is let in alone.
	big := newCommand(101)
	big.pad = 5000
	if err := g.Submit(t.Context(), big); err != nil {
		t.Fatal(err)
	}
	if err := big.wait(t); err != nil {
		t.Error(err)
	}
}

func TestCloseWithRequestsInFlight(t *testing.T) {
	for _, persisted := range []bool{false, true} {
		t.Run(fmt.Sprintf("persisted=%v", persisted), func(t *testing.T) {
			fs := vfs.NewMem(1)
			h := openHost(t, testConfig(fs))
			m := &listMachine{t: t}
			gc := groupConfig(5, m)
			gc.Persisted = persisted
			g := startGroup(t, h, gc)
			var mu sync.Mutex
			acked := map[uint64]bool{}
			outcomes := map[uint64]int{}
			submitted := 0
			var wg sync.WaitGroup
			started := make(chan struct{}, 4)
			for p := range uint64(4) {
				wg.Go(func() {
					for i := uint64(0); ; i++ {
						c := newCommand(p<<32 | i)
						c.after = func(c *command) {
							mu.Lock()
							defer mu.Unlock()
							outcomes[c.value]++
							if c.err == nil {
								acked[c.value] = true
							} else if !errors.Is(c.err, ErrNotAdmitted) && !errors.Is(c.err, ErrOutcomeUnknown) {
								t.Errorf("outcome %v", c.err)
							}
						}
						if err := g.Submit(context.Background(), c); err != nil {
							if !errors.Is(err, ErrStopped) {
								t.Errorf("submit: %v", err)
							}
							return
						}
						mu.Lock()
						submitted++
						mu.Unlock()
						if i == 100 {
							started <- struct{}{}
						}
					}
				})
			}
			for range 4 {
				<-started
			}
			closeHost(t, h)
			wg.Wait()
			mu.Lock()
			defer mu.Unlock()
			if len(outcomes) != submitted {
				t.Errorf("%d submitted, %d have an outcome", submitted, len(outcomes))
			}
			for v, n := range outcomes {
				if n != 1 {
					t.Errorf("%d outcomes of %x", n, v)
				}
			}
			h2 := openHost(t, testConfig(fs))
			m2 := &listMachine{t: t}
			gc.Machine = m2
			startGroup(t, h2, gc)
			have := map[uint64]bool{}
			for _, v := range m2.list() {
				have[v] = true
			}
			for v := range acked {
				if !have[v] {
					t.Errorf("acknowledged %x is gone", v)
				}
			}
		})
	}
}

func TestStopGroup(t *testing.T) {
	fs := vfs.NewMem(1)
	h := openHost(t, testConfig(fs))
	start := func() (*Group, *listMachine) {
		m := &listMachine{t: t}
		return startGroup(t, h, groupConfig(5, m)), m
	}
	g, _ := start()
	if _, err := h.StartGroup(t.Context(), groupConfig(5, &listMachine{t: t})); !errors.Is(err, ErrGroupExists) {
		t.Errorf("second start: %v", err)
	}
	for i := range uint64(10) {
		if err := submit(t, g, i+1).wait(t); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.StopGroup(t.Context(), 5, false); err != nil {
		t.Fatalf("stop: %v", err)
	}
	if err := h.StopGroup(t.Context(), 5, false); !errors.Is(err, ErrUnknownGroup) {
		t.Errorf("second stop: %v", err)
	}
	if err := g.Submit(t.Context(), newCommand(1)); !errors.Is(err, ErrStopped) {
		t.Errorf("submit to a stopped group: %v", err)
	}
	if st := g.Status(); st.Role != Stopped || st.Ready {
		t.Errorf("status %+v", st)
	}
	if err := g.WaitApplied(t.Context(), 1<<40); !errors.Is(err, ErrStopped) {
		t.Errorf("wait on a stopped group: %v", err)
	}
	_, m := start()
	if got := m.list(); !slices.Equal(got, upTo(10)) {
		t.Errorf("values after a restart of the group: %v", got)
	}
	if err := h.StopGroup(t.Context(), 5, true); err != nil {
		t.Fatalf("delete: %v", err)
	}
	if _, err := fs.Stat("/data/groups/5"); !vfs.IsNotExist(err) {
		t.Errorf("files of a deleted group: %v", err)
	}
	g, m = start()
	if got := m.list(); len(got) != 0 {
		t.Errorf("values of a deleted group: %v", got)
	}
	if st := g.Status(); st.Term != 1 {
		t.Errorf("a new group starts at term %d", st.Term)
	}
}

func TestMachineErrorFencesOnlyItsGroup(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  func(*listMachine)
	}{
		{"error", func(m *listMachine) { m.failAt = 13 }},
		{"panic", func(m *listMachine) { m.panicAt = 13 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fs := vfs.NewMem(1)
			cfg := testConfig(fs)
			cfg.Shards = 1
			h := openHost(t, cfg)
			m := &listMachine{t: t}
			tt.set(m)
			g := startGroup(t, h, groupConfig(5, m))
			good := startGroup(t, h, groupConfig(6, &listMachine{t: t}))
			if err := submit(t, g, 12).wait(t); err != nil {
				t.Fatal(err)
			}
			bad := newCommand(13)
			if err := g.Submit(t.Context(), bad); err != nil {
				t.Fatal(err)
			}
			if tt.name == "error" {
				if err := bad.wait(t); !errors.Is(err, ErrOutcomeUnknown) {
					t.Errorf("outcome of the entry that cannot be applied: %v", err)
				}
			}
			waitFor(t, "the fence", func() bool { return g.Status().Role == Fenced })
			var fenced *FencedError
			if err := g.Submit(t.Context(), newCommand(14)); !errors.As(err, &fenced) || fenced.Group != 5 {
				t.Errorf("submit to a fenced group: %v", err)
			}
			if err := submit(t, good, 1).wait(t); err != nil {
				t.Errorf("the neighbour: %v", err)
			}
			closeHost(t, h)
		})
	}
}

func TestMachineTick(t *testing.T) {
	h := openHost(t, testConfig(vfs.NewMem(1)))
	m := &listMachine{t: t}
	left := uint64(3)
	m.tickData = func() [][]byte {
		if left == 0 {
			return nil
		}
		left--
		return [][]byte{m.encode(0, 100+left), m.encode(0, 200+left)}
	}
	startGroup(t, h, groupConfig(5, m))
	waitFor(t, "entries of the tick", func() bool { return len(m.list()) == 6 })
	if got, want := m.list(), []uint64{102, 202, 101, 201, 100, 200}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
