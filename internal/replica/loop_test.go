package replica

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whippetmq/whippet/internal/clock"
	"github.com/whippetmq/whippet/internal/vfs"
)

// manualHost is a host without goroutines, whose clock moves by hand.
func manualHost(t *testing.T, fs vfs.FS) (*Host, *clock.Manual) {
	t.Helper()
	cfg := testConfig(fs)
	cfg.Manual = true
	c := clock.NewManual(1)
	cfg.Clock = c
	cfg.Tick = 100 * time.Millisecond
	return openHost(t, cfg), c
}

func turns(h *Host) {
	for h.Turn() { //nolint:revive // until nothing is left to do
	}
}

func TestManualTurns(t *testing.T) {
	fs := vfs.NewMem(1)
	before := runtime.NumGoroutine()
	h, c := manualHost(t, fs)
	m := &listMachine{t: t}
	gc := groupConfig(5, m)
	gc.Persisted = true
	g, err := h.StartGroup(t.Context(), gc)
	if err != nil {
		t.Fatal(err)
	}
	if g.Status().Ready {
		t.Error("ready before its first turn")
	}
	turns(h)
	if st := g.Status(); !st.Ready {
		t.Fatalf("status after the turns: %+v", st)
	}
	var cs []*command
	for v := range uint64(10) {
		cs = append(cs, submit(t, g, v+1))
	}
	turns(h)
	for _, x := range cs {
		if err := x.wait(t); err != nil {
			t.Errorf("%d: %v", x.value, err)
		}
	}
	// Ten requests of one turn are one proposal, one write and one flush.
	if got := g.Status().LastIndex; got != 11 {
		t.Errorf("last index %d", got)
	}
	c.Advance(time.Second)
	turns(h)
	if m.ticks == 0 {
		t.Error("the machine of an active group was not ticked")
	}
	if got := runtime.NumGoroutine(); got > before {
		t.Errorf("%d goroutines in a manual host, %d before", got, before)
	}
	if err := h.StopGroup(t.Context(), 5, false); err != nil {
		t.Error(err)
	}
	closeHost(t, h)
	h2, _ := manualHost(t, fs)
	m2 := &listMachine{t: t}
	gc.Machine = m2
	if _, err := h2.StartGroup(t.Context(), gc); err != nil {
		t.Fatal(err)
	}
	turns(h2)
	if !slices.Equal(m2.values, upTo(10)) {
		t.Errorf("values after a restart %v", m2.values)
	}
}

// TestVotesOfOneTurnAreOneFlush starts many groups at once.
func TestVotesOfOneTurnAreOneFlush(t *testing.T) {
	var flushes atomic.Int64
	h, _ := manualHost(t, vfs.NewFaulty(vfs.NewMem(1), func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && strings.Contains(op.Name, votesName) {
			flushes.Add(1)
		}
		return nil
	}))
	flushes.Store(0)
	var gs []*Group
	for i := range 500 {
		g, err := h.StartGroup(t.Context(), groupConfig(GroupID(i+1), &listMachine{t: t}))
		if err != nil {
			t.Fatal(err)
		}
		gs = append(gs, g)
	}
	turns(h)
	for _, g := range gs {
		if !g.Status().Ready {
			t.Fatalf("group %v is not ready", g.ID())
		}
	}
	if n := flushes.Load(); n > 2 {
		t.Errorf("%d flushes of the votes of 500 groups", n)
	}
}

// TestIdleGroupsAreLeftAlone: what is idle costs no tick of raft, no write, and a tick of the Machine only now and then.
func TestIdleGroupsAreLeftAlone(t *testing.T) {
	var writes atomic.Int64
	h, c := manualHost(t, vfs.NewFaulty(vfs.NewMem(1), func(op vfs.Op) error {
		if op.Kind.Changes() {
			writes.Add(1)
		}
		return nil
	}))
	const groups = 300
	var ms []*listMachine
	for i := range groups {
		m := &listMachine{t: t}
		ms = append(ms, m)
		if _, err := h.StartGroup(t.Context(), groupConfig(GroupID(i+1), m)); err != nil {
			t.Fatal(err)
		}
	}
	turns(h)
	for range 30 {
		c.Advance(100 * time.Millisecond)
		turns(h)
	}
	for _, s := range h.shards {
		if len(s.ticking) != 0 || len(s.active) != 0 {
			t.Errorf("shard %d: %d groups need raft's clock, %d are active", s.number, len(s.ticking), len(s.active))
		}
	}
	writes.Store(0)
	for _, m := range ms {
		m.ticks = 0
	}
	for range 100 { // ten seconds
		c.Advance(100 * time.Millisecond)
		turns(h)
	}
	for i, m := range ms {
		if m.ticks < 1 || m.ticks > 3 {
			t.Errorf("machine %d was ticked %d times in ten seconds", i, m.ticks)
		}
	}
	if n := writes.Load(); n != 0 {
		t.Errorf("%d changes on the disk while idle", n)
	}
}

// TestTicksAreNotMadeUpFor is trap 16: a shard that was stuck does not run its ticks in a burst.
func TestTicksAreNotMadeUpFor(t *testing.T) {
	h, c := manualHost(t, vfs.NewMem(1))
	gc := groupConfig(5, &listMachine{t: t})
	gc.Voters = []uint64{1, 2, 3}
	g, err := h.StartGroup(t.Context(), gc)
	if err != nil {
		t.Fatal(err)
	}
	turns(h)
	for range 3 {
		c.Advance(5 * time.Second) // five election timeouts
		turns(h)
		if st := g.Status(); st.Role != Follower {
			t.Fatalf("a late shard campaigns: %+v", st)
		}
	}
	for range 60 {
		c.Advance(100 * time.Millisecond)
		turns(h)
	}
	if st := g.Status(); st.Role != Candidate {
		t.Errorf("after the election timeout: %+v", st)
	}
}

func TestConfigIsChecked(t *testing.T) {
	if maxInflightBytes < maxSizePerMsg { // trap 6
		t.Error("raft refuses an inflight limit below the message limit")
	}
	good := testConfig(vfs.NewMem(1))
	for name, harm := range map[string]func(*Config){
		"no file system": func(c *Config) { c.FS = nil },
		"no directory":   func(c *Config) { c.Dir = "" },
		"no node":        func(c *Config) { c.NodeID = 0 },
		"no clock":       func(c *Config) { c.Clock = nil },
		"shards":         func(c *Config) { c.Shards = -1 },
		"election":       func(c *Config) { c.ElectionTicks = 1 },
	} {
		c := good
		harm(&c)
		if _, err := Open(t.Context(), c); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
	h := openHost(t, good)
	for name, harm := range map[string]func(*GroupConfig){
		"no directory": func(c *GroupConfig) { c.Dir = "" },
		"no machine":   func(c *GroupConfig) { c.Machine = nil },
		"no voters":    func(c *GroupConfig) { c.Voters = nil },
		"voter 0":      func(c *GroupConfig) { c.Voters = []uint64{0} },
	} {
		c := groupConfig(5, &listMachine{t: t})
		harm(&c)
		if _, err := h.StartGroup(t.Context(), c); err == nil {
			t.Errorf("group with %s: started", name)
		}
	}
}

func TestSecondProcessIsRefusedOnDisk(t *testing.T) {
	cfg := diskConfig(t)
	h := openHost(t, cfg)
	if _, err := Open(t.Context(), cfg); !errors.Is(err, ErrLocked) {
		t.Errorf("second open: %v", err)
	}
	closeHost(t, h)
	openHost(t, cfg)
}

// TestAllocations pins what a batch costs on the path through a group of one voter: the copy of its bytes.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	cfg := diskConfig(t)
	h := openHost(t, cfg)
	g, err := h.StartGroup(t.Context(), GroupConfig{ID: 1, Dir: cfg.Dir + "/g", Voters: []uint64{1}, Machine: &numberMachine{}})
	if err != nil {
		t.Fatal(err)
	}
	waitReady(t, g)
	for _, tt := range []struct {
		flying int
		limit  float64
	}{
		{1, 3},
		{64, 1.5},
	} {
		t.Run(fmt.Sprintf("%d in flight", tt.flying), func(t *testing.T) {
			// With the shard held, all of them go into one turn.
			done := make(chan *batch, tt.flying)
			var bs []*batch
			for range tt.flying {
				bs = append(bs, newBatch(1024, 1, done))
			}
			allocs := testing.AllocsPerRun(200, func() {
				hold := &holdControl{entered: make(chan struct{}), leave: make(chan struct{})}
				g.shard.inbox.post(item{ctl: hold})
				<-hold.entered
				for _, b := range bs {
					if err := g.TrySubmit(b); err != nil {
						t.Fatal(err)
					}
				}
				close(hold.leave)
				for range bs {
					if b := <-done; b.err != nil {
						t.Fatal(b.err)
					}
				}
			})
			per := (allocs - 3) / float64(tt.flying) // three are the test's own
			t.Logf("%.1f allocations a batch", per)
			if per > tt.limit {
				t.Errorf("%.1f allocations a batch, the limit is %.1f", per, tt.limit)
			}
		})
	}
}

// holdControl keeps a shard busy.
type holdControl struct{ entered, leave chan struct{} }

func (c *holdControl) run(*shard) {
	close(c.entered)
	<-c.leave
}

func TestManyGroups(t *testing.T) {
	fs := vfs.NewMem(1)
	groups := 500
	if testing.Short() {
		groups = 50
	}
	for run := range uint64(2) {
		h := openHost(t, testConfig(fs))
		var wg sync.WaitGroup
		for i := range groups {
			m := &listMachine{t: t}
			g, err := h.StartGroup(t.Context(), groupConfig(PartitionGroup(uint64(i+1), 0), m))
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				waitReady(t, g)
				if got := m.list(); !slices.Equal(got, upTo(run*3)) {
					t.Errorf("run %d, group %v: %v", run, g.ID(), got)
				}
				for v := range uint64(3) {
					if err := submit(t, g, run*3+v+1).wait(t); err != nil {
						t.Errorf("group %v: %v", g.ID(), err)
					}
				}
			})
		}
		wg.Wait()
		closeHost(t, h)
	}
}
