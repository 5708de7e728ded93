package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"testing/cryptotest"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/whippetmq/whippet/internal/clock"
	"github.com/whippetmq/whippet/internal/vfs"
)

// stage is a number of manual hosts whose clocks, turns and links a test moves: nothing happens by itself.
type stage struct {
	t     *testing.T
	nodes []*actor
	pipes map[[2]uint64]*pipe
	ids   []GroupID
}

// actor is one of them.
type actor struct {
	stage  *stage
	id     uint64
	fs     *vfs.Mem
	h      *Host
	clock  *clock.Manual
	groups map[GroupID]*Group
	ms     map[GroupID]*listMachine
	paused bool
}

// pipe is one direction of a link.
type pipe struct {
	queue []func()
	cut   bool // what is sent is lost
	held  bool // what is sent waits
}

// actorWire is a node's transport.
type actorWire struct {
	s    *stage
	from uint64
}

func (w *actorWire) Send(to uint64, ms []Message) {
	for _, m := range ms {
		m := Message{m.Group, proto.Clone(m.Raft).(*raftpb.Message)}
		w.s.put(w.from, to, func(h *Host) { h.Step(w.from, []Message{m}) })
	}
}

func (w *actorWire) Control(to uint64, kind uint8, shard uint16, body []byte) bool {
	body = slices.Clone(body)
	return w.s.put(w.from, to, func(h *Host) { h.Control(w.from, kind, shard, body) })
}

func (w *actorWire) Received(uint64) uint64 { return 0 }

func (s *stage) put(from, to uint64, f func(h *Host)) bool {
	p := s.pipes[[2]uint64{from, to}]
	if p == nil || p.cut {
		return false
	}
	p.queue = append(p.queue, func() {
		if h := s.nodes[to-1].h; h != nil {
			f(h)
		}
	})
	return true
}

const stageTick = 100 * time.Millisecond

func newStage(t *testing.T, nodes int, ids ...GroupID) *stage {
	s := &stage{t: t, pipes: map[[2]uint64]*pipe{}, ids: ids}
	for id := uint64(1); id <= uint64(nodes); id++ {
		s.nodes = append(s.nodes, &actor{stage: s, id: id, fs: vfs.NewMem(id), clock: clock.NewManual(1)})
		for other := uint64(1); other <= uint64(nodes); other++ {
			s.pipes[[2]uint64{id, other}] = &pipe{}
		}
	}
	for _, n := range s.nodes {
		n.start()
	}
	return s
}

func (n *actor) start() {
	s := n.stage
	cfg := testConfig(n.fs)
	cfg.NodeID, cfg.Clock, cfg.Tick, cfg.Manual = n.id, n.clock, stageTick, true
	cfg.Transport = &actorWire{s, n.id}
	n.h = openHost(s.t, cfg)
	n.groups, n.ms = map[GroupID]*Group{}, map[GroupID]*listMachine{}
	for _, id := range s.ids {
		n.ms[id] = &listMachine{t: s.t}
		gc := groupConfig(id, n.ms[id])
		gc.Voters = nil
		for _, o := range s.nodes {
			gc.Voters = append(gc.Voters, o.id)
		}
		g, err := n.h.StartGroup(s.t.Context(), gc)
		if err != nil {
			s.t.Fatal(err)
		}
		n.groups[id] = g
	}
	for _, o := range s.nodes {
		if o == n || o.h == nil {
			continue
		}
		s.meet(n, o)
	}
}

// meet tells two nodes of each other, as new links do.
func (s *stage) meet(a, b *actor) {
	for _, x := range [][2]*actor{{a, b}, {b, a}} {
		from, to := x[0], x[1]
		id := from.h.Identity()
		to.h.Connected(Peer{Node: from.id, Directory: id.Directory, Starts: id.Starts, Shards: from.h.Shards()})
	}
}

// kill ends a node without a word, with what it wrote.
func (n *actor) kill() {
	left := n.fs.KillClone()
	for _, o := range n.stage.nodes {
		n.stage.pipes[[2]uint64{n.id, o.id}].queue = nil
		n.stage.pipes[[2]uint64{o.id, n.id}].queue = nil
	}
	h := n.h
	n.h = nil
	closeHost(n.stage.t, h)
	for _, o := range n.stage.nodes {
		n.stage.pipes[[2]uint64{n.id, o.id}].queue = nil
	}
	n.fs = left
}

// settle takes turns and delivers until nothing moves.
func (s *stage) settle() {
	for moved := true; moved; {
		moved = false
		for _, n := range s.nodes {
			if n.h != nil && !n.paused && n.h.Turn() {
				moved = true
			}
		}
		for from := uint64(1); from <= uint64(len(s.nodes)); from++ {
			for to := uint64(1); to <= uint64(len(s.nodes)); to++ {
				p := s.pipes[[2]uint64{from, to}]
				if p.held || len(p.queue) == 0 {
					continue
				}
				q := p.queue
				p.queue = nil
				for _, f := range q {
					f()
				}
				moved = moved || !s.nodes[to-1].paused
			}
		}
	}
}

// pass lets time pass for all nodes, in small steps.
func (s *stage) pass(d time.Duration) {
	for ; d > 0; d -= 10 * time.Millisecond {
		for _, n := range s.nodes {
			n.clock.Advance(10 * time.Millisecond)
		}
		s.settle()
	}
}

// until lets time pass until something is true, at most for a limit; it returns how long that took.
func (s *stage) until(what string, limit time.Duration, ok func() bool) time.Duration {
	s.t.Helper()
	for took := time.Duration(0); ; took += 10 * time.Millisecond {
		if ok() {
			return took
		}
		if took >= limit {
			s.t.Fatalf("no %s within %v", what, limit)
		}
		s.pass(10 * time.Millisecond)
	}
}

func (s *stage) leader(id GroupID, not ...*actor) *actor {
	s.t.Helper()
	var found *actor
	s.until("leader", 10*time.Second, func() bool {
		for _, n := range s.nodes {
			if n.h == nil || slices.Contains(not, n) {
				continue
			}
			if st := n.groups[id].Status(); st.Role == Leader && st.Ready {
				found = n
				return true
			}
		}
		return false
	})
	return found
}

func (s *stage) isolate(n *actor, cut bool) {
	for _, o := range s.nodes {
		if o != n {
			s.pipes[[2]uint64{n.id, o.id}].cut = cut
			s.pipes[[2]uint64{o.id, n.id}].cut = cut
		}
	}
}

func (s *stage) write(n *actor, id GroupID, v uint64) {
	s.t.Helper()
	c := submit(s.t, n.groups[id], v)
	s.settle()
	if err := c.wait(s.t); err != nil {
		s.t.Fatalf("write %d: %v", v, err)
	}
}

func (s *stage) asleep(id GroupID) bool {
	for _, n := range s.nodes {
		if n.h != nil && !n.groups[id].asleep {
			return false
		}
	}
	return true
}

// TestPausedLeaderServesNoStaleRead is trap 15: a leader whose process stood still for two election timeouts has no lease
// when it goes on, before it has taken a single turn; asleep or not.
func TestPausedLeaderServesNoStaleRead(t *testing.T) {
	for _, asleep := range []bool{false, true} {
		t.Run(fmt.Sprintf("asleep=%v", asleep), func(t *testing.T) {
			s := newStage(t, 3, 5)
			l := s.leader(5)
			s.write(l, 5, 1)
			if asleep {
				s.until("sleep", 10*time.Second, func() bool { return s.asleep(5) })
			}
			s.until("lease", time.Second, l.groups[5].leased)
			if err := l.groups[5].ReadBarrier(t.Context()); err != nil {
				t.Fatal(err)
			}
			l.paused = true
			s.pass(2 * 10 * stageTick)
			next := s.leader(5, l)
			s.write(next, 5, 2)
			if l.groups[5].leased() {
				t.Error("a paused leader has a lease while another one leads")
			}
			// It goes on: a read that asks now gets no answer from its old state.
			ctx, cancel := context.WithCancel(t.Context())
			answer := make(chan error, 1)
			go func() { answer <- l.groups[5].ReadBarrier(ctx) }()
			waitFor(t, "the question", func() bool { return l.groups[5].shard.inbox.len() > 0 })
			l.paused = false
			s.settle()
			s.pass(stageTick)
			cancel()
			if err := <-answer; err == nil {
				t.Error("the old leader gave a proof")
			}
			if st := l.groups[5].Status(); st.Role == Leader {
				t.Errorf("the old leader still leads: %+v", st)
			}
		})
	}
}

// TestLeaseCostsNothing: no allocation, no message.
func TestLeaseCostsNothing(t *testing.T) {
	s := newStage(t, 3, 5)
	l := s.leader(5)
	for _, asleep := range []bool{false, true} {
		if asleep {
			s.until("sleep", 10*time.Second, func() bool { return s.asleep(5) })
		}
		s.until("lease", time.Second, l.groups[5].leased)
		ctx := t.Context()
		if n := testing.AllocsPerRun(100, func() {
			if err := l.groups[5].ReadBarrier(ctx); err != nil {
				t.Fatal(err)
			}
		}); n > 0 && !raceEnabled {
			t.Errorf("asleep=%v: %v allocations", asleep, n)
		}
		if n := l.groups[5].shard.inbox.len(); n != 0 {
			t.Errorf("asleep=%v: %d items in the inbox", asleep, n)
		}
	}
}

// TestLeaseDuringTransfer: a transfer ends the lease before the other one can lead, and a failed one gives it back only
// after the other one has promised again.
func TestLeaseDuringTransfer(t *testing.T) {
	s := newStage(t, 3, 5)
	l := s.leader(5)
	s.until("lease", time.Second, l.groups[5].leased)
	to := s.nodes[l.id%3]
	out := s.pipes[[2]uint64{l.id, to.id}]
	out.held = true // the call to take over is on its way for long
	done := make(chan error, 1)
	l.groups[5].shard.inbox.post(item{g: l.groups[5], ctl: &transferControl{l.groups[5], to.id, done}})
	s.settle()
	if l.groups[5].leased() {
		t.Error("a lease during a transfer")
	}
	held := submit(t, l.groups[5], 7)
	s.pass(12 * stageTick) // raft gives it up
	if err := <-done; !errors.Is(err, ErrBusy) {
		t.Errorf("outcome of the transfer: %v", err)
	}
	if err := held.wait(t); err != nil {
		t.Errorf("the request that was held: %v", err)
	}
	if l.groups[5].leased() {
		t.Error("a lease while the other one may still be told to take over")
	}
	out.held = false
	s.settle()
	// Now it takes over.
	if st := to.groups[5].Status(); st.Role != Leader {
		t.Logf("the other one did not take over: %+v", st)
	}
	s.checkLeases(5)
	s.until("lease", 10*time.Second, func() bool { return s.leader(5).groups[5].leased() })
}

// checkLeases fails when a node has a lease while another one leads a newer term.
func (s *stage) checkLeases(id GroupID) {
	s.t.Helper()
	for _, n := range s.nodes {
		if n.h == nil || !n.groups[id].ready.Load() || !n.groups[id].leased() {
			continue
		}
		for _, o := range s.nodes {
			if o.h == nil || o == n {
				continue
			}
			if a, b := n.groups[id].Status(), o.groups[id].Status(); b.Role == Leader && b.Term > a.Term {
				s.t.Fatalf("node %d has a lease of term %d, node %d leads term %d", n.id, a.Term, o.id, b.Term)
			}
		}
	}
}

// TestLeasesAtRandom: whatever is paused, cut, held back, killed or transferred, with clocks that do not run equally fast,
// nobody has a lease while another one leads a newer term. Set WHIPPET_SEED to repeat a run.
func TestLeasesAtRandom(t *testing.T) {
	runs := 12
	if testing.Short() {
		runs = 3
	}
	seed := uint64(time.Now().UnixNano())
	if v, err := strconv.ParseUint(os.Getenv("WHIPPET_SEED"), 10, 64); err == nil {
		seed, runs = v, 1
	}
	for run := range uint64(runs) {
		t.Run(fmt.Sprint(seed+run), func(t *testing.T) {
			cryptotest.SetGlobalRandom(t, seed+run)
			leasesAtRandom(t, rand.New(rand.NewPCG(seed+run, 7)))
		})
	}
}

func leasesAtRandom(t *testing.T, rng *rand.Rand) {
	const id = 5
	s := newStage(t, 3, id)
	rates := [3]int{100, 95 + rng.IntN(11), 95 + rng.IntN(11)}
	leased, leaders, next := 0, map[uint64]bool{}, uint64(0)
	for range 3000 {
		switch n := s.nodes[rng.IntN(3)]; rng.IntN(60) {
		case 0:
			s.isolate(n, true)
		case 1, 2, 3:
			s.isolate(n, false)
		case 4:
			n.paused = true
		case 5, 6, 7:
			n.paused = false
		case 8:
			s.pipes[[2]uint64{n.id, 1 + rng.Uint64N(3)}].held = true
		case 9, 10, 11:
			for _, p := range s.pipes {
				p.held = false
			}
		case 12:
			if n.h != nil && rng.IntN(3) == 0 {
				n.kill()
				n.start()
				n.paused = false
			}
		case 13:
			if g := n.groups[id]; n.h != nil {
				g.shard.inbox.post(item{g: g, ctl: &transferControl{g, 1 + rng.Uint64N(3), make(chan error, 1)}})
			}
		case 14:
			if n.h != nil {
				next++
				c := newCommand(next)
				c.after = func(*command) {}
				_ = n.groups[id].TrySubmit(c)
			}
		}
		for i, n := range s.nodes {
			n.clock.Advance(10 * time.Millisecond * time.Duration(rates[i]) / 100)
		}
		s.settle()
		s.checkLeases(id)
		for _, n := range s.nodes {
			if n.h != nil && n.groups[id].ready.Load() {
				leaders[n.groups[id].Status().Term] = true
				if n.groups[id].leased() {
					leased++
				}
			}
		}
	}
	t.Logf("%d steps with a lease, %d leaderships", leased, len(leaders))
	// All well again: they agree.
	for _, n := range s.nodes {
		n.paused = false
		s.isolate(n, false)
	}
	for _, p := range s.pipes {
		p.held = false
	}
	l := s.leader(id)
	s.until("a lease", 10*time.Second, func() bool { return s.leader(id).groups[id].leased() })
	s.until("a write", 10*time.Second, func() bool {
		l = s.leader(id)
		c := submit(t, l.groups[id], 1<<40)
		s.pass(stageTick)
		return c.wait(t) == nil
	})
	s.until("sleep", 20*time.Second, func() bool { return s.asleep(id) })
	for _, n := range s.nodes {
		if !slices.Equal(n.ms[id].list(), l.ms[id].list()) {
			t.Errorf("node %d has %d values, node %d has %d", n.id, len(n.ms[id].list()), l.id, len(l.ms[id].list()))
		}
	}
}
