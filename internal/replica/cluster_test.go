package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/whippetmq/whippet/internal/vfs"
)

// network joins the hosts of a test in memory. Every host has one queue, worked off by one goroutine, so that messages
// between two nodes keep their order.
type network struct {
	mu    sync.Mutex
	hosts map[uint64]*Host
	cut   map[[2]uint64]bool
	drop  func(from, to uint64, m *raftpb.Message) bool
	wg    sync.WaitGroup
	queue map[uint64]chan delivery
	stop  chan struct{}
}

type delivery struct {
	from, to uint64
	messages []Message
}

func newNetwork(t testing.TB, nodes int) *network {
	n := &network{hosts: map[uint64]*Host{}, cut: map[[2]uint64]bool{}, queue: map[uint64]chan delivery{}, stop: make(chan struct{})}
	for id := uint64(1); id <= uint64(nodes); id++ {
		q := make(chan delivery, 1024)
		n.queue[id] = q
		n.wg.Go(func() {
			for {
				select {
				case d := <-q:
					n.mu.Lock()
					h := n.hosts[d.to]
					n.mu.Unlock()
					if h != nil {
						h.Step(d.from, d.messages)
					}
				case <-n.stop:
					return
				}
			}
		})
	}
	t.Cleanup(func() {
		close(n.stop)
		n.wg.Wait()
	})
	return n
}

// wire is the transport of one node.
type wire struct {
	n    *network
	from uint64
}

func (w *wire) Send(to uint64, messages []Message) {
	w.n.mu.Lock()
	cut, drop, q := w.n.cut[[2]uint64{w.from, to}], w.n.drop, w.n.queue[to]
	w.n.mu.Unlock()
	if cut || q == nil {
		return
	}
	d := delivery{from: w.from, to: to}
	for _, m := range messages {
		if drop != nil && drop(w.from, to, m.Raft) {
			continue
		}
		d.messages = append(d.messages, Message{m.Group, proto.Clone(m.Raft).(*raftpb.Message)})
	}
	select {
	case q <- d:
	default: // a full link drops
	}
}

func (n *network) isolate(node uint64, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for other := range n.queue {
		n.cut[[2]uint64{node, other}] = cut
		n.cut[[2]uint64{other, node}] = cut
	}
}

// cluster is three hosts with one group.
type cluster struct {
	t     testing.TB
	net   *network
	nodes []*member
	mode  func(*GroupConfig)
	tune  func(*Config)
}

type member struct {
	id uint64
	fs *vfs.Mem
	h  *Host
	g  *Group
	m  *listMachine
}

func newCluster(t testing.TB, nodes int, mode func(*GroupConfig)) *cluster {
	return newTunedCluster(t, nodes, mode, nil)
}

func newTunedCluster(t testing.TB, nodes int, mode func(*GroupConfig), tune func(*Config)) *cluster {
	c := &cluster{t: t, net: newNetwork(t, nodes), mode: mode, tune: tune}
	for id := uint64(1); id <= uint64(nodes); id++ {
		n := &member{id: id, fs: vfs.NewMem(id)}
		c.nodes = append(c.nodes, n)
		c.start(n)
	}
	return c
}

func (c *cluster) start(n *member) {
	c.t.Helper()
	cfg := testConfig(n.fs)
	cfg.NodeID = n.id
	cfg.Transport = &wire{c.net, n.id}
	if c.tune != nil {
		c.tune(&cfg)
	}
	n.h = openHost(c.t, cfg)
	n.m = &listMachine{t: c.t}
	gc := groupConfig(5, n.m)
	gc.Voters = nil
	for id := range c.net.queue {
		gc.Voters = append(gc.Voters, id)
	}
	slices.Sort(gc.Voters)
	if c.mode != nil {
		c.mode(&gc)
	}
	var err error
	if n.g, err = n.h.StartGroup(c.t.Context(), gc); err != nil {
		c.t.Fatalf("node %d: %v", n.id, err)
	}
	c.net.mu.Lock()
	c.net.hosts[n.id] = n.h
	c.net.mu.Unlock()
	c.net.isolate(n.id, false)
}

// kill stops a node as a killed process would: what it wrote stays.
func (c *cluster) kill(n *member) { c.down(n, (*vfs.Mem).KillClone) }

// down stops a node and leaves it with what the clone has of its disk.
func (c *cluster) down(n *member, clone func(*vfs.Mem) *vfs.Mem) {
	// What it writes after the clone it must not tell anybody.
	c.net.isolate(n.id, true)
	c.net.mu.Lock()
	delete(c.net.hosts, n.id)
	c.net.mu.Unlock()
	left := clone(n.fs)
	closeHost(c.t, n.h)
	n.fs = left
}

// leader waits for one that is ready, among the given nodes.
func (c *cluster) leader(among ...*member) *member {
	c.t.Helper()
	if among == nil {
		among = c.nodes
	}
	var found *member
	waitFor(c.t, "a leader", func() bool {
		for _, n := range among {
			if st := n.g.Status(); st.Ready && st.Role == Leader {
				found = n
				return true
			}
		}
		return false
	})
	return found
}

func (c *cluster) others(n *member) []*member {
	return slices.DeleteFunc(slices.Clone(c.nodes), func(o *member) bool { return o == n })
}

func (c *cluster) waitEqual(want []uint64) {
	c.t.Helper()
	for _, n := range c.nodes {
		var got []uint64
		defer func() {
			if c.t.Failed() {
				c.t.Logf("node %d: %+v %v %v", n.id, n.g.Status(), n.g.Err(), got)
			}
		}()
		waitFor(c.t, fmt.Sprintf("the values on node %d", n.id), func() bool {
			got = n.m.list()
			return slices.Equal(got, want)
		})
	}
}

func TestReplication(t *testing.T) {
	for _, tt := range []struct {
		name string
		mode func(*GroupConfig)
	}{
		{"replicated", nil},
		{"persisted", func(c *GroupConfig) { c.Persisted = true }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, 3, tt.mode)
			l := c.leader()
			var cs []*command
			for v := range uint64(300) {
				cs = append(cs, submit(t, l.g, v+1))
			}
			for _, x := range cs {
				if err := x.wait(t); err != nil {
					t.Fatalf("%d: %v", x.value, err)
				}
			}
			c.waitEqual(upTo(300))
			if err := l.g.ReadBarrier(t.Context()); err != nil {
				t.Errorf("read barrier on the leader: %v", err)
			}
			for _, n := range c.others(l) {
				if err := n.g.ReadBarrier(t.Context()); !errors.Is(err, ErrNotLeader) {
					t.Errorf("read barrier on a follower: %v", err)
				}
				if err := submit(t, n.g, 1).wait(t); !errors.Is(err, ErrNotAdmitted) {
					t.Errorf("request to a follower: %v", err)
				}
				if st := n.g.Status(); st.Leader != l.id || st.Role != Follower {
					t.Errorf("status of a follower %+v", st)
				}
			}
			ps, err := l.g.Progress(t.Context())
			if err != nil || len(ps) != 3 {
				t.Fatalf("progress %v: %v", ps, err)
			}
			for i, p := range ps {
				if p.Node != uint64(i+1) || p.Match != l.g.Status().LastIndex || !p.Active {
					t.Errorf("progress %+v", p)
				}
			}
			if n := l.g.shard.cache.Stats().EntryMisses; n != 0 { // engine §10, trap 9
				t.Errorf("%d reads of the log in a steady run", n)
			}
		})
	}
}

// TestLeaderIsolatedWithRequestsInFlight is trap 2 of engine §10: what entered the log of a leader that lost its quorum has
// an unknown outcome, what came later was not admitted, and what another leader put at the same index completes nobody.
func TestLeaderIsolatedWithRequestsInFlight(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	if err := submit(t, l.g, 1).wait(t); err != nil {
		t.Fatal(err)
	}
	c.net.isolate(l.id, true)
	var cs []*command
	for v := range uint64(32) {
		cs = append(cs, submit(t, l.g, 100+v))
	}
	for _, x := range cs {
		if err := x.wait(t); !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("request in flight at the isolated leader: %v", err)
		}
	}
	if err := submit(t, l.g, 200).wait(t); !errors.Is(err, ErrNotAdmitted) {
		t.Errorf("request after the loss: %v", err)
	}
	if err := l.g.ReadBarrier(t.Context()); !errors.Is(err, ErrNotLeader) {
		t.Errorf("read barrier after the loss: %v", err)
	}
	l2 := c.leader(c.others(l)...)
	want := []uint64{1}
	for v := range uint64(40) {
		if err := submit(t, l2.g, 300+v).wait(t); err != nil {
			t.Fatalf("%d: %v", 300+v, err)
		}
		want = append(want, 300+v)
	}
	// The old leader's tail is cut and replaced.
	c.net.isolate(l.id, false)
	c.waitEqual(want)
	if l.m.leads {
		t.Error("the machine of the old leader was not told")
	}
}

func TestReadBarrierWithoutQuorum(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	c.net.isolate(l.id, true)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := l.g.ReadBarrier(ctx); err == nil {
		t.Error("an isolated leader gave a proof")
	}
}

func TestFollowerCatchesUpAfterKill(t *testing.T) {
	c := newCluster(t, 3, func(gc *GroupConfig) { gc.SegmentBytes = 16 << 10 })
	l := c.leader()
	next := uint64(0)
	send := func(g *Group, n int) {
		t.Helper()
		var cs []*command
		for range n {
			next++
			x := newCommand(next)
			x.pad = 500
			if err := g.Submit(t.Context(), x); err != nil {
				t.Fatal(err)
			}
			cs = append(cs, x)
		}
		for _, x := range cs {
			if err := x.wait(t); err != nil {
				t.Fatalf("%d: %v", x.value, err)
			}
		}
	}
	send(l.g, 50)
	down := c.others(l)[0]
	c.kill(down)
	send(l.g, 500)
	c.start(down)
	send(l.g, 10)
	c.waitEqual(upTo(next))
	// The leader dies: one of the others takes over with everything.
	c.kill(l)
	l2 := c.leader(c.others(l)...)
	send(l2.g, 20)
	c.start(l)
	c.waitEqual(upTo(next))
}

func TestTransferLeader(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	for v := range uint64(20) {
		if err := submit(t, l.g, v+1).wait(t); err != nil {
			t.Fatal(err)
		}
	}
	to := c.others(l)[1]
	if err := c.others(l)[0].g.TransferLeader(t.Context(), to.id); !errors.Is(err, ErrNotLeader) {
		t.Errorf("transfer by a follower: %v", err)
	}
	if err := l.g.TransferLeader(t.Context(), 99); err == nil {
		t.Error("transfer to a stranger")
	}
	if err := l.g.TransferLeader(t.Context(), l.id); err != nil {
		t.Errorf("transfer to itself: %v", err)
	}
	if err := l.g.TransferLeader(t.Context(), to.id); err != nil {
		t.Fatalf("transfer: %v", err)
	}
	waitReady(t, to.g)
	if err := submit(t, to.g, 21).wait(t); err != nil {
		t.Errorf("request to the new leader: %v", err)
	}
	c.waitEqual(upTo(21))
}

// TestTransferUnderLoad is trap 13: requests that arrive during a transfer are held, and none gets lost or doubled.
func TestTransferUnderLoad(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.leader()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var acked, refused, unknown atomic.Int64
	wg.Go(func() {
		for v := uint64(1); ; {
			select {
			case <-stop:
				return
			default:
			}
			l := c.leader()
			x := newCommand(v)
			if err := l.g.Submit(context.Background(), x); err != nil {
				t.Errorf("submit: %v", err)
				return
			}
			switch err := x.wait(t); {
			case err == nil:
				acked.Add(1)
			case errors.Is(err, ErrNotAdmitted):
				refused.Add(1) // sent again
				continue
			default:
				unknown.Add(1)
			}
			v++
		}
	})
	for range 10 {
		l := c.leader()
		to := c.others(l)[rand.IntN(2)]
		if err := l.g.TransferLeader(t.Context(), to.id); err != nil && !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrBehind) && !errors.Is(err, ErrBusy) {
			t.Errorf("transfer: %v", err)
		}
	}
	close(stop)
	wg.Wait()
	t.Logf("%d acknowledged, %d refused, %d unknown", acked.Load(), refused.Load(), unknown.Load())
	values := c.leader().m.list()
	for i := 1; i < len(values); i++ {
		if values[i] <= values[i-1] {
			t.Fatalf("%d behind %d", values[i], values[i-1])
		}
	}
	if int64(len(values)) < acked.Load() || int64(len(values)) > acked.Load()+unknown.Load() {
		t.Errorf("%d values, %d acknowledged, %d unknown", len(values), acked.Load(), unknown.Load())
	}
}

// TestProposalRejectedByRaft is trap 1: what raft refuses is undone and answered with ErrNotAdmitted.
func TestProposalRejectedByRaft(t *testing.T) {
	c := newTunedCluster(t, 3, nil, func(cfg *Config) { cfg.MaxUncommittedBytes = 64 << 10 })
	l := c.leader()
	if err := submit(t, l.g, 1).wait(t); err != nil {
		t.Fatal(err)
	}
	// Nothing commits any more, and the uncommitted tail grows to raft's limit.
	c.net.mu.Lock()
	c.net.drop = func(_, _ uint64, m *raftpb.Message) bool {
		return m.GetType() == raftpb.MsgAppResp
	}
	c.net.mu.Unlock()
	var waiting []*command
	refused := 0
	for v := uint64(2); v < 40; v++ {
		x := newCommand(v)
		x.pad = 8 << 10
		if err := l.g.Submit(t.Context(), x); err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, x)
		// One proposal each: raft takes one of any size when nothing is uncommitted.
		waitFor(t, "its proposal", func() bool {
			if len(x.done) > 0 {
				return true
			}
			return l.g.Status().LastIndex > v
		})
		if len(x.done) > 0 {
			if err := x.wait(t); !errors.Is(err, ErrNotAdmitted) || x.proposed != 0 {
				t.Fatalf("refused with %v, proposed %d times", err, x.proposed)
			}
			refused++
			waiting = waiting[:len(waiting)-1]
		}
	}
	if refused == 0 || len(waiting) == 0 || l.g.Status().Role != Leader {
		t.Errorf("%d refused, %d waiting, %v", refused, len(waiting), l.g.Status().Role)
	}
	c.net.mu.Lock()
	c.net.drop = nil
	c.net.mu.Unlock()
	for _, x := range waiting {
		if err := x.wait(t); err != nil {
			t.Errorf("%d: %v", x.value, err)
		}
	}
	if err := submit(t, l.g, 1000).wait(t); err != nil {
		t.Errorf("after the tail was committed: %v", err)
	}
}

// TestClusterChaos stops and isolates nodes under load; what was acknowledged stays, in order, on all. With persisted
// groups the nodes lose power: what was not flushed may be gone (trap 10).
func TestClusterChaos(t *testing.T) {
	t.Run("replicated, killed", func(t *testing.T) {
		chaos(t, false, func(m *vfs.Mem, _ uint64) *vfs.Mem { return m.KillClone() })
	})
	t.Run("persisted, power loss", func(t *testing.T) {
		chaos(t, true, (*vfs.Mem).CrashClone)
	})
}

func chaos(t *testing.T, persisted bool, clone func(*vfs.Mem, uint64) *vfs.Mem) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	boots := atomic.Uint64{}
	c := newTunedCluster(t, 3, func(gc *GroupConfig) { gc.SegmentBytes, gc.Persisted = 8<<10, persisted }, func(cfg *Config) {
		cfg.CheckpointBytes = 32 << 10
		if persisted {
			cfg.BootID = fmt.Sprint("boot-", boots.Add(1))
		}
	})
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
			for _, n := range c.nodes {
				if !n.g.Status().Ready {
					continue
				}
				sent++
				x := newCommand(sent)
				x.pad = int(sent % 400)
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
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	for range rounds {
		n := c.nodes[rng.IntN(3)]
		if rng.IntN(2) == 0 {
			mu.Lock()
			c.down(n, func(m *vfs.Mem) *vfs.Mem { return clone(m, rng.Uint64()) })
			c.start(n)
			mu.Unlock()
		} else {
			c.net.isolate(n.id, true)
			c.leader(c.others(n)...)
			c.net.isolate(n.id, false)
		}
		c.leader()
	}
	close(stop)
	wg.Wait()
	waitFor(t, "the last request", func() bool { return submit(t, c.leader().g, 1<<40).wait(t) == nil })
	var want []uint64
	waitFor(t, "equal values", func() bool {
		want = c.leader().m.list()
		for _, n := range c.nodes {
			if !slices.Equal(n.m.list(), want) {
				return false
			}
		}
		return true
	})
	have := map[uint64]bool{}
	for _, v := range want {
		have[v] = true
	}
	for v := range acked {
		if !have[v] {
			t.Errorf("acknowledged %d is gone", v)
		}
	}
	t.Logf("%d sent, %d acknowledged, %d there", sent, len(acked), len(want))
}

// TestGrowFromOneVoter takes a group from one voter to three and back, under load.
func TestGrowFromOneVoter(t *testing.T) {
	c := newCluster(t, 3, func(gc *GroupConfig) { gc.Voters = []uint64{1} })
	l := c.leader()
	if l.id != 1 {
		t.Fatalf("node %d leads", l.id)
	}
	next := uint64(0)
	send := func(g *Group) {
		t.Helper()
		for range 20 {
			next++
			for {
				err := submit(t, g, next).wait(t)
				if err == nil {
					break
				}
				if !errors.Is(err, ErrNotAdmitted) {
					t.Fatalf("%d: %v", next, err)
				}
				waitReady(t, g)
			}
		}
	}
	send(l.g)
	for _, change := range []Change{{AddLearner, 2}, {AddVoter, 2}, {AddVoter, 3}} {
		if err := l.g.Change(t.Context(), change); err != nil {
			t.Fatalf("%+v: %v", change, err)
		}
		send(l.g)
	}
	c.waitEqual(upTo(next))
	if err := c.nodes[1].g.Change(t.Context(), Change{Remove, 1}); !errors.Is(err, ErrNotLeader) {
		t.Errorf("change on a follower: %v", err)
	}
	if err := l.g.TransferLeader(t.Context(), 3); err != nil {
		t.Fatalf("transfer: %v", err)
	}
	l = c.leader()
	send(l.g)
	c.waitEqual(upTo(next))
	// A restart finds the configuration.
	c.kill(c.nodes[1])
	c.start(c.nodes[1])
	c.waitEqual(upTo(next))
	for _, n := range []uint64{1, 2} {
		if err := l.g.Change(t.Context(), Change{Remove, n}); err != nil {
			t.Fatalf("remove %d: %v", n, err)
		}
	}
	send(l.g)
	if st := l.g.Status(); st.Leader != 3 || !st.Ready {
		t.Errorf("status of the last voter %+v", st)
	}
	if got := l.m.list(); !slices.Equal(got, upTo(next)) {
		t.Errorf("values %v", got)
	}
	if err := l.g.ReadBarrier(t.Context()); err != nil {
		t.Errorf("read barrier of the last voter: %v", err)
	}
}

// TestPreferredLeadsNewGroupSoon starts a new group on the preferred node first: its first requests for votes are lost.
func TestPreferredLeadsNewGroupSoon(t *testing.T) {
	c := newTunedCluster(t, 3, func(gc *GroupConfig) { gc.Preferred = false }, func(cfg *Config) { cfg.Tick = 100 * time.Millisecond })
	start := func(n *member) *Group {
		t.Helper()
		gc := groupConfig(77, &listMachine{t: t})
		gc.Voters, gc.Preferred = []uint64{1, 2, 3}, n.id == 2
		g, err := n.h.StartGroup(t.Context(), gc)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	g := start(c.nodes[1])
	waitFor(t, "the first try", func() bool { return g.Status().Role == Candidate })
	from := time.Now()
	for _, n := range c.others(c.nodes[1]) {
		start(n)
	}
	waitReady(t, g)
	// An election timeout is at least a second here.
	if took := time.Since(from); took > 800*time.Millisecond || g.Status().Role != Leader {
		t.Errorf("%v after %v", g.Status().Role, took)
	}
}
