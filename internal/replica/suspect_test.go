package replica

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/internal/vfs"
)

// doubtCluster is a copyCluster whose nodes present themselves to each other as over a real link, and whose machines can
// lose power.
type doubtCluster struct {
	*cluster
	boots map[uint64]string
}

func newDoubtCluster(t testing.TB, nodes int, mode func(*GroupConfig)) *doubtCluster {
	d := &doubtCluster{boots: map[uint64]string{}}
	b := newBulkNet(t)
	b.n = newNetwork(t, nodes)
	d.cluster = &cluster{t: t, net: b.n}
	d.mode = func(gc *GroupConfig) {
		gc.ControlBytes = 16 << 10
		if mode != nil {
			mode(gc)
		}
	}
	d.tune = func(cfg *Config) {
		cfg.Bulk = &bulkOf{b, cfg.NodeID}
		cfg.CheckpointBytes = 64 << 10
		if raceEnabled {
			cfg.ElectionTicks = 40 // a pause of the machine is no election
		}
		cfg.BootID = "boot-1" + d.boots[cfg.NodeID]
	}
	for id := uint64(1); id <= uint64(nodes); id++ {
		m := &member{id: id, fs: vfs.NewMem(id)}
		d.nodes = append(d.nodes, m)
	}
	for _, m := range d.nodes {
		d.boot(m)
	}
	return d
}

// boot starts a node and links it with those that admit it, and that it admits.
func (d *doubtCluster) boot(n *member) {
	d.t.Helper()
	cfg := testConfig(n.fs)
	cfg.NodeID = n.id
	cfg.Transport = &wire{d.net, n.id}
	d.tune(&cfg)
	d.net.isolate(n.id, true)
	n.h = openHost(d.t, cfg)
	n.m = &listMachine{t: d.t}
	gc := groupConfig(5, n.m)
	gc.Voters = nil
	for _, m := range d.nodes {
		gc.Voters = append(gc.Voters, m.id)
	}
	d.mode(&gc)
	var err error
	if n.g, err = n.h.StartGroup(d.t.Context(), gc); err != nil {
		d.t.Fatalf("node %d: %v", n.id, err)
	}
	d.net.mu.Lock()
	d.net.hosts[n.id] = n.h
	d.net.mu.Unlock()
	for _, o := range d.nodes {
		d.net.mu.Lock()
		other := d.net.hosts[o.id]
		d.net.mu.Unlock()
		if o != n && other != nil {
			d.link(n.h, other)
		}
	}
}

// link is what the hello does.
func (d *doubtCluster) link(a, b *Host) {
	d.t.Helper()
	for range 3 {
		outdated := false
		for _, side := range [][2]*Host{{a, b}, {b, a}} {
			presented := side[0].Self()
			if err := side[1].AdmitPeer(presented); errors.Is(err, ErrOutdated) {
				outdated = true
				if err := side[0].Outdated(presented.Directory); err != nil {
					d.t.Fatal(err)
				}
			} else if err != nil {
				d.t.Fatal(err)
			}
		}
		if outdated {
			continue
		}
		d.net.mu.Lock()
		d.net.cut[[2]uint64{a.cfg.NodeID, b.cfg.NodeID}] = false
		d.net.cut[[2]uint64{b.cfg.NodeID, a.cfg.NodeID}] = false
		d.net.mu.Unlock()
		a.Connected(b.Self())
		b.Connected(a.Self())
		return
	}
	d.t.Fatal("nodes that never admit each other")
}

// powerOff stops a node as a machine that loses power does. seed chooses what is left; 0 = everything that was written.
func (d *doubtCluster) powerOff(n *member, seed uint64) {
	d.kill(n)
	if seed != 0 {
		n.fs = n.fs.CrashClone(seed)
	}
	d.boots[n.id] += "+"
}

func (d *doubtCluster) suspects() []uint64 {
	var out []uint64
	for _, n := range d.nodes {
		d.net.mu.Lock()
		up := d.net.hosts[n.id] != nil
		d.net.mu.Unlock()
		if up && n.g.Suspect() {
			out = append(out, n.id)
		}
	}
	return out
}

// waitCensus waits until a suspect has asked the others a few times.
func (d *doubtCluster) waitCensus(n *member, rounds uint64) {
	d.t.Helper()
	read := func() (contacts uint64) {
		got := make(chan uint64, 1)
		n.g.shard.inbox.post(item{g: n.g, ctl: controlFunc(func(*shard) { got <- n.g.contacts })})
		return <-got
	}
	start := read()
	waitFor(d.t, "censuses", func() bool { return read() >= start+rounds })
}

// TestPowerLossOfOne takes the power of each node in turn, with what was not flushed lost in many ways.
func TestPowerLossOfOne(t *testing.T) {
	for _, who := range []string{"follower", "leader"} {
		for seed := uint64(1); seed <= 4; seed++ {
			t.Run(fmt.Sprintf("%s %d", who, seed), func(t *testing.T) {
				d := newDoubtCluster(t, 3, nil)
				f := &filler{t: t, c: d.cluster}
				l := d.leader()
				f.send(50, 200)
				victim := l
				if who == "follower" {
					victim = d.others(l)[0]
				}
				d.powerOff(victim, seed)
				f.send(20, 100)
				d.boot(victim)
				if victim.h.Identity().Unclean != true {
					t.Error("the start does not count as unclean")
				}
				f.send(10, 100)
				d.waitEqual(upTo(f.next))
				waitFor(t, "the end of the suspicion", func() bool { return len(d.suspects()) == 0 && !victim.h.Suspect() })
				// It counts again: with it and one other there is a quorum.
				now := d.leader()
				gone := d.others(victim)[0]
				if gone == now {
					d.kill(gone)
				} else {
					d.kill(gone)
				}
				f.send(5, 10)
				d.boot(gone)
				d.waitEqual(upTo(f.next))
			})
		}
	}
}

// TestSuspectHasNoVote leaves a suspect alone with a voter that lacks what was committed: nobody is elected.
func TestSuspectHasNoVote(t *testing.T) {
	for _, tt := range []struct {
		name string
		lose func(d *doubtCluster, n *member)
	}{
		{"power", func(d *doubtCluster, n *member) { d.powerOff(n, 3) }},
		{"wiped", func(d *doubtCluster, n *member) { d.kill(n); n.fs = vfs.NewMem(99) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDoubtCluster(t, 3, nil)
			f := &filler{t: t, c: d.cluster}
			l := d.leader()
			f.send(20, 100)
			d.waitEqual(upTo(f.next))
			behind, victim := d.others(l)[0], d.others(l)[1]
			d.kill(behind)
			f.send(20, 100) // by the leader and the victim alone
			tt.lose(d, victim)
			d.kill(l)
			d.boot(behind)
			d.boot(victim)
			d.waitCensus(victim, 6)
			for _, n := range []*member{behind, victim} {
				if st := n.g.Status(); st.Role == Leader || st.Leader != 0 {
					t.Fatalf("node %d: %+v without a quorum of sound voters", n.id, st)
				}
			}
			if got := d.suspects(); !slices.Equal(got, []uint64{victim.id}) {
				t.Errorf("suspects %v", got)
			}
			d.boot(l)
			f.send(10, 10)
			d.waitEqual(upTo(f.next))
			waitFor(t, "the end of the suspicion", func() bool { return len(d.suspects()) == 0 })
		})
	}
}

// TestNoTransferToSuspect keeps a replica suspect that has everything else that a leader needs: leadership is not handed to it,
// requests do not wait for it, and it may have it as soon as it is sound.
func TestNoTransferToSuspect(t *testing.T) {
	d := newDoubtCluster(t, 3, nil)
	f := &filler{t: t, c: d.cluster}
	l := d.leader()
	f.send(20, 100)
	d.waitEqual(upTo(f.next))
	victim, sound := d.others(l)[0], d.others(l)[1]
	keep := func(drop func(from, to uint64, m *raftpb.Message) bool) {
		d.net.mu.Lock()
		defer d.net.mu.Unlock()
		d.net.drop = drop
	}
	keep(func(_, _ uint64, m *raftpb.Message) bool { s, ok := sideOf(m); return ok && s.kind == sideGoal })
	d.powerOff(victim, 0)
	d.boot(victim)
	f.send(5, 10)
	of := func(node uint64) Progress {
		ps, err := l.g.Progress(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return ps[slices.IndexFunc(ps, func(p Progress) bool { return p.Node == node })]
	}
	waitFor(t, "a suspect that has the whole log", func() bool {
		p := of(victim.id)
		return p.Suspect && p.State == "StateReplicate" && p.Match == l.g.Status().LastIndex
	})
	if of(sound.id).Suspect {
		t.Error("a sound replica is taken for suspect")
	}
	before := l.g.Status()
	done := make(chan error, 1)
	go func() { done <- l.g.TransferLeader(t.Context(), victim.id) }()
	f.send(20, 10) // is not held
	if err := <-done; !errors.Is(err, ErrBehind) {
		t.Errorf("transfer to a suspect: %v", err)
	}
	if st := l.g.Status(); st.Role != Leader || st.Term != before.Term {
		t.Errorf("%+v after a transfer that was refused, %+v before", st, before)
	}
	if to, err := l.g.heir(t.Context()); err != nil || to != sound.id {
		t.Errorf("heir %d, %v, want %d", to, err, sound.id)
	}
	keep(nil)
	waitFor(t, "the end of the suspicion", func() bool { return len(d.suspects()) == 0 })
	waitFor(t, "a transfer to a replica that is sound again", func() bool {
		err := l.g.TransferLeader(t.Context(), victim.id)
		if err != nil && !errors.Is(err, ErrBehind) {
			t.Fatal(err)
		}
		return err == nil
	})
	f.send(5, 10)
	d.waitEqual(upTo(f.next))
}

// TestPowerLossOfAll takes the power of all nodes at once. They elect only when all are back, and the longest log wins.
func TestPowerLossOfAll(t *testing.T) {
	for seed := uint64(0); seed <= 4; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			d := newDoubtCluster(t, 3, nil)
			f := &filler{t: t, c: d.cluster}
			l := d.leader()
			f.send(30, 200)
			d.waitEqual(upTo(f.next))
			behind := d.others(l)[0]
			d.kill(behind)
			d.boots[behind.id] += "+"
			f.send(30, 200)
			for _, n := range d.others(behind) {
				d.powerOff(n, seed)
			}
			longest := 0
			d.boot(behind)
			other := d.others(behind)
			d.boot(other[0])
			d.waitCensus(behind, 5)
			if st := behind.g.Status(); st.Leader != 0 {
				t.Fatalf("a leader without all voters: %+v", st)
			}
			if got := d.suspects(); len(got) != 2 {
				t.Errorf("suspects %v", got)
			}
			for _, n := range []*member{behind, other[0]} {
				longest = max(longest, int(n.g.Log().LastIndex()))
			}
			d.boot(other[1])
			longest = max(longest, int(other[1].g.Log().LastIndex()))
			now := d.leader()
			waitFor(t, "the end of the suspicion", func() bool { return len(d.suspects()) == 0 })
			have := now.m.list()
			if !slices.Equal(have, upTo(uint64(len(have)))) {
				t.Errorf("values %v", have)
			}
			if seed == 0 && len(have) != 60 {
				t.Errorf("%d values, although nothing was lost", len(have))
			}
			if len(have) < longest-4 { // terms' first entries
				t.Errorf("%d values, the longest log had index %d", len(have), longest)
			}
			f.next = uint64(len(have))
			f.send(5, 10)
			d.waitEqual(upTo(f.next))
		})
	}
}

// TestPowerLossPersisted loses nothing and suspects nobody.
func TestPowerLossPersisted(t *testing.T) {
	d := newDoubtCluster(t, 3, func(gc *GroupConfig) { gc.Persisted = true })
	f := &filler{t: t, c: d.cluster}
	d.leader()
	f.send(50, 200)
	d.waitEqual(upTo(f.next))
	for i, n := range d.nodes {
		d.powerOff(n, uint64(i)+1)
	}
	for _, n := range d.nodes[:2] {
		d.boot(n)
	}
	f.send(5, 10) // two of three are enough
	if got := d.suspects(); len(got) > 0 {
		t.Errorf("suspects %v", got)
	}
	d.boot(d.nodes[2])
	d.waitEqual(upTo(f.next))
}

// TestSuspicionSurvivesKill kills a suspect before it has matched: it still is one afterwards.
func TestSuspicionSurvivesKill(t *testing.T) {
	d := newDoubtCluster(t, 3, nil)
	f := &filler{t: t, c: d.cluster}
	l := d.leader()
	f.send(20, 100)
	d.waitEqual(upTo(f.next)) // one that has acknowledged nothing yet is not suspect
	victim := d.others(l)[0]
	d.powerOff(victim, 2)
	others := d.others(victim)
	for _, n := range others {
		d.kill(n)
	}
	d.boot(victim)
	d.waitCensus(victim, 2)
	d.kill(victim) // the kernel goes on: this start is a clean one
	d.boot(victim)
	if victim.h.Identity().Unclean || !victim.g.Suspect() || !victim.h.Suspect() {
		t.Errorf("unclean %v, suspect %v", victim.h.Identity().Unclean, victim.g.Suspect())
	}
	for _, n := range others {
		d.boot(n)
	}
	f.send(5, 10)
	d.waitEqual(upTo(f.next))
	waitFor(t, "the end of the suspicion", func() bool { return !victim.h.Suspect() })
}

// TestWipedNode empties the directory of a node: it is filled again, and votes afterwards.
func TestWipedNode(t *testing.T) {
	for _, trim := range []bool{false, true} {
		t.Run(fmt.Sprintf("trimmed %v", trim), func(t *testing.T) {
			d := newDoubtCluster(t, 3, withData(16<<10, 60))
			f := &filler{t: t, c: d.cluster}
			l := d.leader()
			n := 40
			if trim {
				n = 400
			}
			f.send(n, 500)
			d.waitEqual(upTo(f.next))
			victim := d.others(l)[1]
			directory := victim.h.Identity().Directory
			d.kill(victim)
			if trim {
				f.send(100, 500)
				f.trimmed(20)
			}
			victim.fs = vfs.NewMem(77)
			d.boot(victim)
			if id := victim.h.Self(); id.Directory == directory || !id.Suspect {
				t.Errorf("presents %+v", id)
			}
			f.send(5, 10)
			d.waitEqual(upTo(f.next))
			waitFor(t, "the end of the suspicion", func() bool { return !victim.g.Suspect() })
			d.kill(l)
			f.send(5, 10)
			d.boot(l)
			d.waitEqual(upTo(f.next))
			// The next start is that of a node like any other.
			d.kill(victim)
			d.boot(victim)
			f.send(5, 10)
			d.waitEqual(upTo(f.next))
			if victim.g.Suspect() {
				t.Error("suspect after a restart")
			}
		})
	}
}

// refusedMachine is a listMachine whose node is refused while it restores: the group is not in its shard yet.
type refusedMachine struct {
	*listMachine
	refused func()
}

func (m *refusedMachine) Restore(log *segment.Log, checkpoint []byte, index uint64) error {
	m.refused()
	return m.listMachine.Restore(log, checkpoint, index)
}

// TestRefusedWhileOpening refuses a wiped node at the worst moment: its group is read, but does not take part yet. It has
// to be suspect as any other.
func TestRefusedWhileOpening(t *testing.T) {
	for _, voters := range [][]uint64{{1, 2, 3}, {1}} {
		t.Run(fmt.Sprintf("%d voters", len(voters)), func(t *testing.T) {
			cfg := testConfig(vfs.NewMem(1))
			cfg.NodeID = 1
			h := openHost(t, cfg)
			gc := groupConfig(5, &refusedMachine{&listMachine{t: t}, func() {
				if err := h.Outdated(h.Self().Directory); err != nil {
					t.Error(err)
				}
			}})
			gc.Voters = voters
			g, err := h.StartGroup(t.Context(), gc)
			if err != nil {
				t.Fatal(err)
			}
			got := make(chan suspicion, 1)
			g.shard.inbox.post(item{g: g, ctl: controlFunc(func(*shard) { got <- g.suspicion })})
			want := tailLost | votesLost | logLost
			if len(voters) == 1 {
				want = 0 // nobody has more than it has
				waitFor(t, "the end of the suspicion", func() bool { return !g.Suspect() })
			}
			if s := <-got; s != want {
				t.Errorf("suspicion %d, want %d", s, want)
			}
		})
	}
}

// TestNewSuspicionWhileClearing brings up a new reason before and during the write of the end of an older one.
func TestNewSuspicionWhileClearing(t *testing.T) {
	all := tailLost | votesLost | logLost
	t.Run("before", func(t *testing.T) {
		cfg := testConfig(vfs.NewMem(1))
		if err := cfg.FS.MkdirAll(cfg.Dir); err != nil {
			t.Fatal(err)
		}
		s, err := openSuspects(&cfg, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		g := &Group{shard: &shard{inbox: newInbox(&cfg)}, cfg: GroupConfig{ID: 5}}
		s.add(5, tailLost)
		s.addAll(all)
		s.run([]suspectNote{{g, tailLost}})
		if got := s.of(5); got != all {
			t.Errorf("suspicion %d", got)
		}
		if again, err := openSuspects(&cfg, false, nil); err != nil || again.of(5) != all {
			t.Errorf("the file says %d, %v", again.of(5), err)
		}
	})
	t.Run("during a write that fails", func(t *testing.T) {
		var s *suspects
		broken := errors.New("broken disk")
		cfg := testConfig(vfs.NewFaulty(vfs.NewMem(1), func(op vfs.Op) error {
			if op.Kind == vfs.OpWrite && strings.Contains(op.Name, suspectsName) {
				s.add(5, votesLost)
				return broken
			}
			return nil
		}))
		err := cfg.FS.MkdirAll(cfg.Dir)
		if err != nil {
			t.Fatal(err)
		}
		if s, err = openSuspects(&cfg, false, nil); err != nil {
			t.Fatal(err)
		}
		g := &Group{shard: &shard{inbox: newInbox(&cfg)}, cfg: GroupConfig{ID: 5}}
		s.add(5, tailLost)
		s.add(6, tailLost) // else there is nothing to write
		s.run([]suspectNote{{g, tailLost}})
		if got := s.of(5); got != tailLost|votesLost {
			t.Errorf("suspicion %d", got)
		}
	})
}

// TestVotesLost loses the node's own files, but not those of the groups.
func TestVotesLost(t *testing.T) {
	d := newDoubtCluster(t, 3, nil)
	f := &filler{t: t, c: d.cluster}
	l := d.leader()
	f.send(20, 100)
	d.waitEqual(upTo(f.next))
	victim := d.others(l)[0]
	d.kill(victim)
	if err := victim.fs.RemoveAll("/data/node"); err != nil {
		t.Fatal(err)
	}
	d.boot(victim)
	waitFor(t, "the end of the suspicion", func() bool { return !victim.g.Suspect() })
	f.send(5, 10)
	d.waitEqual(upTo(f.next))
	d.kill(victim)
	d.boot(victim)
	if victim.g.Suspect() || victim.g.Err() != nil {
		t.Errorf("after a restart: suspect %v, %v", victim.g.Suspect(), victim.g.Err())
	}
	d.kill(l)
	f.send(5, 10)
	d.boot(l)
	d.waitEqual(upTo(f.next))
}

// TestOldCopy puts an old copy of a node's directory back.
func TestOldCopy(t *testing.T) {
	for _, who := range []string{"follower", "former leader"} {
		t.Run(who, func(t *testing.T) {
			d := newDoubtCluster(t, 3, withData(16<<10, 60))
			f := &filler{t: t, c: d.cluster}
			l := d.leader()
			f.send(30, 300)
			d.waitEqual(upTo(f.next))
			victim := l
			if who == "follower" {
				victim = d.others(l)[0]
			}
			d.kill(victim)
			old := victim.fs.KillClone()
			d.boot(victim)
			f.send(300, 500)
			d.waitEqual(upTo(f.next))
			d.kill(victim)
			d.boot(victim) // a start that the copy does not know of
			f.send(30, 100)
			d.waitEqual(upTo(f.next))
			d.kill(victim)
			victim.fs = old
			d.boot(victim)
			if !victim.g.Suspect() {
				t.Error("an old copy is not suspect")
			}
			f.send(5, 10)
			d.waitEqual(upTo(f.next))
			waitFor(t, "the end of the suspicion", func() bool { return !victim.g.Suspect() })
			d.kill(d.others(victim)[0])
			f.send(5, 10)
		})
	}
}

// TestTwoOfThreeWiped leaves one sound node: with all present, its log wins.
func TestTwoOfThreeWiped(t *testing.T) {
	d := newDoubtCluster(t, 3, nil)
	f := &filler{t: t, c: d.cluster}
	l := d.leader()
	f.send(30, 100)
	d.waitEqual(upTo(f.next))
	for _, n := range d.others(l) {
		d.kill(n)
		n.fs = vfs.NewMem(50 + n.id)
	}
	for _, n := range d.others(l) {
		d.boot(n)
	}
	waitFor(t, "the end of the suspicion", func() bool { return len(d.suspects()) == 0 })
	f.send(5, 10)
	d.waitEqual(upTo(f.next))
}

// TestDamagedReplica flips a byte in a replica's files: they are set aside, and the replica is filled again.
func TestDamagedReplica(t *testing.T) {
	for _, tt := range []struct {
		name string
		hurt func(t *testing.T, n *member)
	}{
		{"a segment is gone", func(t *testing.T, n *member) {
			if err := n.fs.Remove(n.g.Log().Segments()[1].File); err != nil {
				t.Fatal(err)
			}
		}},
		{"header of the first segment", func(t *testing.T, n *member) { hurtFile(t, n.fs, n.g.Log().Segments()[0].File, 20) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDoubtCluster(t, 3, withData(16<<10, 200))
			f := &filler{t: t, c: d.cluster}
			l := d.leader()
			f.send(200, 500)
			d.waitEqual(upTo(f.next))
			victim := d.others(l)[0]
			d.kill(victim)
			tt.hurt(t, victim)
			d.boot(victim)
			if _, err := victim.fs.Stat(filepath.Join(victim.g.cfg.Dir, damagedName)); err != nil {
				t.Fatalf("the damage was not noticed: %v", err)
			}
			f.send(5, 10)
			d.waitEqual(upTo(f.next))
			waitFor(t, "the end of the suspicion", func() bool { return !victim.g.Suspect() })
			d.kill(victim)
			d.boot(victim)
			d.waitEqual(upTo(f.next))
		})
	}
}

func hurtFile(t *testing.T, fs vfs.FS, name string, at int64) {
	t.Helper()
	f, err := fs.OpenFile(name, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // in memory
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

// TestDamageOfASoleVoter is not healed by anybody.
func TestDamageOfASoleVoter(t *testing.T) {
	fs := vfs.NewMem(1)
	h := openHost(t, testConfig(fs))
	m := &listMachine{t: t}
	gc := groupConfig(5, m)
	g := startGroup(t, h, gc)
	for v := range uint64(20) {
		if err := submit(t, g, v+1).wait(t); err != nil {
			t.Fatal(err)
		}
	}
	name := g.Log().Segments()[0].File
	closeHost(t, h)
	hurtFile(t, fs, name, 20)
	h = openHost(t, testConfig(fs))
	var fenced *FencedError
	if _, err := h.StartGroup(t.Context(), groupConfig(5, &listMachine{t: t})); !errors.As(err, &fenced) {
		t.Errorf("started on damage: %v", err)
	}
}

// TestForgetProgress checks that a leader's configuration is as before, and that nothing is committed by it.
func TestForgetProgress(t *testing.T) {
	for nodes := 2; nodes <= 5; nodes++ {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			c, _ := copyCluster(t, nodes, nil)
			f := &filler{t: t, c: c}
			l := c.leader()
			f.send(10, 10)
			c.waitEqual(upTo(f.next))
			c.net.mu.Lock()
			c.net.drop = func(_, _ uint64, m *raftpb.Message) bool { return m.GetType() == raftpb.MsgAppResp }
			c.net.mu.Unlock()
			x := submit(t, l.g, f.next+1) // cannot commit
			done := make(chan string, 1)
			l.g.shard.inbox.post(item{g: l.g, ctl: controlFunc(func(*shard) {
				g := l.g
				before, commit := g.rn.Status().Config.String(), g.rn.BasicStatus().HardState.GetCommit()
				for _, o := range c.others(l) {
					g.forgetProgress(o.id)
					if m := g.rn.Status().Progress[o.id].Match; m != 0 {
						done <- fmt.Sprintf("still knows of index %d", m)
						return
					}
				}
				after, commit2 := g.rn.Status().Config.String(), g.rn.BasicStatus().HardState.GetCommit()
				if before != after || commit != commit2 {
					done <- fmt.Sprintf("%s, commit %d became %s, commit %d", before, commit, after, commit2)
					return
				}
				done <- ""
			})})
			if bad := <-done; bad != "" {
				t.Error(bad)
			}
			c.net.mu.Lock()
			c.net.drop = nil
			c.net.mu.Unlock()
			f.next++
			if err := x.wait(t); err != nil {
				t.Error(err)
			}
			c.waitEqual(upTo(f.next))
		})
	}
}
