package replica_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whippetmq/whippet/internal/replica"
)

// TestTransferRefusesNobody is trap 13: while a group moves to and fro under load, a request that is refused finds the new
// leader in the status at once, is taken there, and none has an unknown outcome.
func TestTransferRefusesNobody(t *testing.T) {
	r := newRig(t, 3, nil)
	r.create(5, 1, nil)
	r.leader(5)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var acked, forwarded, again atomic.Int64
	for p := range uint64(4) {
		wg.Go(func() {
			at := r.nodes[0]
			for v := uint64(1); ; {
				select {
				case <-stop:
					return
				default:
				}
				c := replica.NewCommand(p<<32 | v)
				if err := at.group(5).Submit(context.Background(), c); err != nil {
					t.Error(err)
					return
				}
				err := c.Wait(t)
				if err == nil {
					acked.Add(1)
					v++
					continue
				}
				if !errors.Is(err, replica.ErrNotAdmitted) {
					t.Errorf("outcome %v", err)
					return
				}
				leader := at.group(5).Status().Leader
				if leader == 0 {
					again.Add(1)
					continue
				}
				forwarded.Add(1)
				at = r.nodes[leader-1]
			}
		})
	}
	var took []time.Duration
	for i := range 20 {
		l := r.leader(5)
		from := time.Now()
		if err := l.group(5).TransferLeader(t.Context(), r.others(l)[i%2].id); err != nil {
			t.Errorf("transfer %d: %v", i, err)
		}
		took = append(took, time.Since(from))
	}
	close(stop)
	wg.Wait()
	slices.Sort(took)
	t.Logf("%d acknowledged, %d forwarded, %d refused without a leader; transfers p50 %v, slowest %v",
		acked.Load(), forwarded.Load(), again.Load(), took[10], took[19])
	if again.Load() > 0 {
		t.Errorf("%d requests were refused before the new leader was known", again.Load())
	}
	values := r.leader(5).group(5).m.List()
	if int64(len(values)) != acked.Load() {
		t.Errorf("%d values, %d acknowledged", len(values), acked.Load())
	}
	last := map[uint64]uint64{}
	for _, v := range values {
		if v <= last[v>>32] {
			t.Fatalf("%d behind %d", v, last[v>>32])
		}
		last[v>>32] = v
	}
}

// TestOrderlyStop: a node that closes has handed its groups over, and the others did not have to notice a silence.
func TestOrderlyStop(t *testing.T) {
	r := newRig(t, 3, func(c *replica.Config) { c.Tick = 100 * time.Millisecond })
	const groups = 30
	for id := replica.GroupID(1); id <= groups; id++ {
		r.create(id, 1, nil)
	}
	for id := replica.GroupID(1); id <= groups; id++ {
		r.leader(id)
	}
	replica.WaitFor(t, "all to be alive", func() bool { return r.nodes[0].h.Alive(2) && r.nodes[0].h.Alive(3) })
	from := time.Now()
	left, err := r.nodes[0].h.HandOver(t.Context())
	if err != nil || left != 0 {
		t.Errorf("%d left: %v", left, err)
	}
	count := map[uint64]int{}
	for id := replica.GroupID(1); id <= groups; id++ {
		count[r.leader(id, r.nodes[1], r.nodes[2]).id]++
	}
	took := time.Since(from)
	t.Logf("%v: %v", took, count)
	if took > 800*time.Millisecond {
		t.Errorf("handing over %d groups took %v", groups, took)
	}
	if count[2] == 0 || count[3] == 0 {
		t.Errorf("all went to one node: %v", count)
	}
	if err := r.nodes[0].group(1).send(t, 9).Wait(t); !errors.Is(err, replica.ErrNotAdmitted) {
		t.Errorf("request to the node that leaves: %v", err)
	}
	r.nodes[0].stop()
	for id := replica.GroupID(1); id <= groups; id++ {
		if err := r.leader(id, r.nodes[1], r.nodes[2]).group(id).send(t, 1).Wait(t); err != nil {
			t.Error(err)
		}
	}
	r.nodes[0].start()
	for id := replica.GroupID(1); id <= groups; id++ {
		r.equal(id, replica.UpTo(1))
	}
}

// TestNobodyToWaitFor: a node that has given a group up waits for who is to lead it while there is somebody who could, and no
// longer. When all nodes stop at the same time the heir may have left before it led; the last one waited for 5 s then.
func TestNobodyToWaitFor(t *testing.T) {
	r := newRig(t, 3, func(c *replica.Config) { c.Tick = 100 * time.Millisecond })
	// Only the first node has the group: it never gets a leader.
	gc := replica.GroupConfig{ID: 5, Dir: r.nodes[0].dir + "/groups/5", Voters: []uint64{1, 2, 3}}
	r.nodes[0].known = append(r.nodes[0].known, gc)
	r.nodes[0].join(gc)
	g := r.nodes[0].group(5)
	replica.WaitFor(t, "all to be alive", func() bool { return r.nodes[0].h.Alive(2) && r.nodes[0].h.Alive(3) })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	short, stop := context.WithTimeout(ctx, 300*time.Millisecond)
	defer stop()
	if err := g.AwaitHeir(short); err != nil || short.Err() == nil {
		t.Errorf("with two others that may lead: %v", err)
	}
	leave := func(n *node) {
		if _, err := n.h.HandOver(ctx); err != nil {
			t.Error(err)
		}
	}
	leave(r.nodes[1])
	waits := make(chan error, 1)
	go func() { waits <- g.AwaitHeir(ctx) }()
	leave(r.nodes[2])
	if err := <-waits; !errors.Is(err, replica.ErrBehind) || ctx.Err() != nil {
		t.Errorf("with nobody left: %v", err)
	}
}

// TestAllStopAtOnce: who is last waits for nobody.
func TestAllStopAtOnce(t *testing.T) {
	r := newRig(t, 3, func(c *replica.Config) { c.Tick = 100 * time.Millisecond })
	for id := replica.GroupID(1); id <= 12; id++ {
		r.create(id, 1+uint64(id)%3, nil)
	}
	for id := replica.GroupID(1); id <= 12; id++ {
		r.leader(id)
	}
	from := time.Now()
	var wg sync.WaitGroup
	for _, n := range r.nodes {
		wg.Go(n.stop)
	}
	wg.Wait()
	if took := time.Since(from); took > 3*time.Second {
		t.Errorf("took %v", took)
	} else {
		t.Logf("took %v", took)
	}
}

// TestNoQuorumIsBounded is trap 5: a leader without a quorum takes only so much, refuses the rest, and keeps no memory.
func TestNoQuorumIsBounded(t *testing.T) {
	const limit = 1 << 20
	r := newRig(t, 3, func(c *replica.Config) {
		c.MaxGroupBytes, c.MaxUncommittedBytes, c.CacheBytes = limit, limit, 1<<20
		c.Tick, c.ElectionTicks = 50*time.Millisecond, 20
	})
	r.create(5, 1, nil)
	l := r.leader(5)
	g := l.group(5)
	if err := g.send(t, 1).Wait(t); err != nil {
		t.Fatal(err)
	}
	var m0, m1 runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m0)
	r.isolate(l, true)
	var taken []*replica.ListCommand
	busy := false
	for v := uint64(2); v < 1000; v++ {
		c := replica.NewCommand(v)
		c.Pad(16 << 10)
		if err := g.TrySubmit(c); errors.Is(err, replica.ErrBusy) {
			busy = true
			break
		} else if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, c)
	}
	if !busy || len(taken) > limit/(16<<10)+1 {
		t.Errorf("%d requests of 16 KiB taken, busy %v", len(taken), busy)
	}
	runtime.GC()
	runtime.ReadMemStats(&m1)
	if grown := int64(m1.HeapAlloc) - int64(m0.HeapAlloc); grown > 16*limit {
		t.Errorf("%d bytes more", grown)
	}
	for _, c := range taken {
		if err := c.Wait(t); !errors.Is(err, replica.ErrOutcomeUnknown) && !errors.Is(err, replica.ErrNotAdmitted) {
			t.Fatalf("outcome %v", err)
		}
	}
	// Whoever asks now is told at once.
	if err := g.send(t, 5000).Wait(t); !errors.Is(err, replica.ErrNotAdmitted) {
		t.Errorf("outcome %v", err)
	}
	r.isolate(l, false)
	l2 := r.leader(5)
	if err := l2.group(5).send(t, 6000).Wait(t); err != nil {
		t.Error(err)
	}
}

// TestSlowPeer: a replica whose link is slow delays nobody, and catches up.
func TestSlowPeer(t *testing.T) {
	r := newRig(t, 3, nil)
	r.create(5, 1, nil)
	l := r.leader(5)
	slow := r.others(l)[0]
	r.links[[2]uint64{l.id, slow.id}].slow(100 * time.Millisecond)
	from := time.Now()
	const n = 200
	for v := range uint64(n) {
		if err := l.group(5).send(t, v+1).Wait(t); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(from); took > n*100*time.Millisecond/2 {
		t.Errorf("%d requests took %v beside a replica that is 100 ms away", n, took)
	}
	r.links[[2]uint64{l.id, slow.id}].slow(0)
	r.equal(5, replica.UpTo(n))
	if now := r.leader(5); now != l {
		t.Errorf("node %d leads instead of node %d", now.id, l.id)
	}
}

// TestRestartWakesWhatSleeps: a node that comes back finds the groups that went on sleeping without it, and learns what
// is committed.
func TestRestartWakesWhatSleeps(t *testing.T) {
	r := newRig(t, 3, nil)
	r.create(5, 1, nil)
	l := r.leader(5)
	for v := range uint64(20) {
		if err := l.group(5).send(t, v+1).Wait(t); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range r.nodes {
		replica.WaitFor(t, "sleep", func() bool { return n.h.Awake() == 0 })
	}
	term := l.group(5).Status().Term
	back := r.others(l)[0]
	back.kill()
	back.start() // quicker than the others notice, or not
	r.equal(5, replica.UpTo(20))
	for _, n := range r.nodes {
		replica.WaitFor(t, "sleep again", func() bool { return n.h.Awake() == 0 })
	}
	if st := l.group(5).Status(); st.Term != term || st.Role != replica.Leader {
		t.Errorf("the leader changed: %+v", st)
	}
}

// TestLoopbackChaos cuts links, delays them, kills nodes and moves groups under load: what was acknowledged is there, once
// and in the order of each producer, on all replicas; a read under a lease sees it.
func TestLoopbackChaos(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	r := newRig(t, 3, func(c *replica.Config) { c.CheckpointBytes = 64 << 10 })
	ids := []replica.GroupID{5, 6, 7}
	for i, id := range ids {
		r.create(id, 1+uint64(i), func(gc *replica.GroupConfig) { gc.SegmentBytes, gc.Persisted = 64<<10, i == 2 })
	}
	var nodes sync.RWMutex // held for writing while nodes come and go
	type producer struct {
		id    replica.GroupID
		acked []uint64
	}
	producers := make([]producer, 6)
	var done, reads atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for p := range producers {
		producers[p].id = ids[p%len(ids)]
		wg.Go(func() {
			me := &producers[p]
			rng := rand.New(rand.NewPCG(seed, uint64(p)+10))
			for v := uint64(1); ; {
				select {
				case <-stop:
					return
				default:
				}
				nodes.RLock()
				var g *member
				for _, n := range r.nodes {
					if n.h != nil && n.group(me.id).Status().Role == replica.Leader {
						g = n.group(me.id)
					}
				}
				var c *replica.ListCommand
				if g != nil {
					c = replica.NewCommand(uint64(p)<<32 | v)
					c.Pad(rng.IntN(2000))
					if g.TrySubmit(c) != nil {
						c = nil
					}
				}
				nodes.RUnlock()
				if c == nil {
					runtime.Gosched()
					continue
				}
				err := c.Wait(t)
				if err == nil {
					me.acked = append(me.acked, c.Value())
					done.Add(1)
				}
				if err == nil || !errors.Is(err, replica.ErrNotAdmitted) {
					v++ // never the same value twice
				}
				if err == nil && g.Leased() {
					// Applied is what a read sees.
					if !slices.Contains(tail(g.m.List(), 4000), c.Value()) {
						t.Errorf("acknowledged %d is not seen where it was", c.Value())
					}
					reads.Add(1)
				}
			}
		})
	}
	rounds := 14
	if testing.Short() {
		rounds = 5
	}
	for range rounds {
		n := r.nodes[rng.IntN(3)]
		before := done.Load()
		switch rng.IntN(5) {
		case 0:
			nodes.Lock()
			n.kill()
			n.start()
			nodes.Unlock()
		case 1:
			r.isolate(n, true)
			for _, id := range ids {
				r.leader(id, r.others(n)...)
			}
			r.isolate(n, false)
		case 2: // one way only
			f := r.links[[2]uint64{n.id, r.others(n)[rng.IntN(2)].id}]
			f.set(true)
			replica.WaitFor(t, "progress beside a link that is cut one way", func() bool { return done.Load() > before+20 })
			f.set(false)
		case 3:
			f := r.links[[2]uint64{n.id, r.others(n)[rng.IntN(2)].id}]
			f.slow(20 * time.Millisecond)
			replica.WaitFor(t, "progress beside a slow link", func() bool { return done.Load() > before+20 })
			f.slow(0)
		case 4:
			for _, id := range ids {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				_ = r.leader(id).group(id).TransferLeader(ctx, n.id) // to whom it may concern
				cancel()
			}
		}
		replica.WaitFor(t, "progress", func() bool { return done.Load() > before+50 })
	}
	close(stop)
	wg.Wait()
	for _, id := range ids {
		replica.WaitFor(t, "the last request", func() bool { return r.leader(id).group(id).send(t, 1<<60).Wait(t) == nil })
		want := r.leader(id).group(id).m.List()
		replica.WaitFor(t, "equal values", func() bool {
			want = r.leader(id).group(id).m.List()
			for _, n := range r.nodes {
				if !slices.Equal(n.group(id).m.List(), want) {
					return false
				}
			}
			return true
		})
		at := map[uint64]int{}
		for i, v := range want {
			if first, twice := at[v]; twice && v != 1<<60 {
				t.Errorf("group %v: %d at %d and %d", id, v, first, i)
			}
			at[v] = i
		}
		for _, p := range producers {
			if p.id != id {
				continue
			}
			last := -1
			for _, v := range p.acked {
				i, there := at[v]
				if !there {
					t.Errorf("group %v: acknowledged %d is gone", id, v)
				} else if i <= last {
					t.Errorf("group %v: %d at %d, behind one of before at %d", id, v, i, last)
				}
				last = i
			}
		}
	}
	t.Logf("%d acknowledged, %d reads under a lease", done.Load(), reads.Load())
}

func tail[T any](s []T, n int) []T { return s[max(0, len(s)-n):] }
