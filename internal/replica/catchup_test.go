package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/internal/vfs"
)

// bulkNet carries connections for copying in memory.
type bulkNet struct {
	n    *network
	mu   sync.Mutex
	wg   sync.WaitGroup
	wrap func(from, to uint64, conn net.Conn) net.Conn // the asking side; nil = as it is
	from map[uint64]int                                // connections by source
}

type bulkOf struct {
	b    *bulkNet
	from uint64
}

func newBulkNet(t testing.TB) *bulkNet {
	b := &bulkNet{from: map[uint64]int{}}
	t.Cleanup(b.wg.Wait)
	return b
}

func (o *bulkOf) DialBulk(ctx context.Context, to uint64) (net.Conn, error) {
	b := o.b
	b.n.mu.Lock()
	h, cut := b.n.hosts[to], b.n.cut[[2]uint64{o.from, to}]
	b.n.mu.Unlock()
	if h == nil || cut {
		return nil, fmt.Errorf("node %d is not there", to)
	}
	here, there := net.Pipe()
	b.wg.Go(func() {
		defer there.Close() //nolint:errcheck // a pipe
		h.ServeBulk(context.Background(), o.from, there)
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.from[to]++
	if b.wrap != nil {
		return b.wrap(o.from, to, here), nil
	}
	return here, nil
}

// fewBytes is a connection that passes on some bytes and then calls cut once and breaks, or changes a byte.
type fewBytes struct {
	net.Conn
	left *atomic.Int64
	then func([]byte) error
}

func (c *fewBytes) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.left.Add(int64(-n)) <= 0 && n > 0 {
		if cerr := c.then(p[:n]); cerr != nil {
			_ = c.Conn.Close()
			return 0, cerr
		}
	}
	return n, err
}

// copyCluster is a cluster whose logs are short, so that who was away needs a copy.
func copyCluster(t testing.TB, nodes int, mode func(*GroupConfig)) (*cluster, *bulkNet) {
	return tunedCopyCluster(t, nodes, mode, nil)
}

func tunedCopyCluster(t testing.TB, nodes int, mode func(*GroupConfig), tune func(*Config)) (*cluster, *bulkNet) {
	b := newBulkNet(t)
	n := newNetwork(t, nodes)
	b.n = n
	c := &cluster{t: t, net: n}
	c.mode = func(gc *GroupConfig) {
		gc.ControlBytes = 16 << 10
		if mode != nil {
			mode(gc)
		}
	}
	c.tune = func(cfg *Config) {
		cfg.Bulk = &bulkOf{b, cfg.NodeID}
		cfg.CheckpointBytes = 64 << 10
		if raceEnabled {
			cfg.ElectionTicks = 40 // a pause of the machine is no election
		}
		if tune != nil {
			tune(cfg)
		}
	}
	for id := uint64(1); id <= uint64(nodes); id++ {
		m := &member{id: id, fs: vfs.NewMem(id)}
		c.nodes = append(c.nodes, m)
		c.start(m)
	}
	return c, b
}

// introduce tells all hosts that links to and from a node came up.
func (c *cluster) introduce(node uint64) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	for id, h := range c.net.hosts {
		if id != node {
			h.Connected(c.net.hosts[node].Self())
			c.net.hosts[node].Connected(h.Self())
		}
	}
}

// filler sends values in order and remembers how many.
type filler struct {
	t    testing.TB
	c    *cluster
	next uint64
}

func (f *filler) send(n, pad int) {
	f.t.Helper()
	var cs []*command
	for range n {
		f.next++
		x := newCommand(f.next)
		x.pad = pad
		cs = append(cs, x)
		if err := f.c.leader(f.live()...).g.Submit(f.t.Context(), x); err != nil {
			f.t.Fatal(err)
		}
	}
	for _, x := range cs {
		if err := x.wait(f.t); err != nil {
			f.t.Fatalf("%d: %v", x.value, err)
		}
	}
}

// live are the members that run.
func (f *filler) live() []*member {
	f.c.net.mu.Lock()
	defer f.c.net.mu.Unlock()
	var ms []*member
	for _, m := range f.c.nodes {
		if f.c.net.hosts[m.id] != nil {
			ms = append(ms, m)
		}
	}
	return ms
}

// trimmed waits until the leader has deleted the log behind index.
func (f *filler) trimmed(index uint64) *member {
	f.t.Helper()
	l := f.c.leader(f.live()...)
	waitFor(f.t, "the log to be trimmed", func() bool { return l.g.Log().FirstIndex() > index+1 })
	return l
}

// sameFiles compares the segments that two replicas both have, byte for byte.
func sameFiles(t testing.TB, a, b *member) {
	t.Helper()
	files := func(m *member) map[string][]byte {
		out := map[string][]byte{}
		for _, s := range m.g.Log().Segments() {
			if !s.Sealed {
				continue
			}
			content, err := vfs.ReadFile(m.fs, s.File, 1<<30)
			if err != nil {
				t.Errorf("node %d: %v", m.id, err)
			}
			out[fmt.Sprintf("%d/%s", s.FirstIndex, filepath.Base(s.File))] = content
		}
		return out
	}
	fa, fb := files(a), files(b)
	both := 0
	for name, content := range fa {
		if other, there := fb[name]; there {
			both++
			if !bytes.Equal(content, other) {
				t.Errorf("segment %s differs between nodes %d and %d", name, a.id, b.id)
			}
		}
	}
	t.Logf("%d and %d sealed segments, %d of them the same", len(fa), len(fb), both)
}

// leftovers lists what should not be in a group's directory.
func leftovers(t testing.TB, m *member) []string {
	t.Helper()
	names, err := m.fs.List(m.g.cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, n := range names {
		if strings.HasPrefix(n.Name, incomingPrefix) || n.Name == installName || n.Name == installedName {
			out = append(out, n.Name)
		}
	}
	return out
}

func TestCatchUpByCopying(t *testing.T) {
	for _, tt := range []struct {
		name string
		mode func(*GroupConfig)
	}{
		{"replicated", withData(16<<10, 100)},
		{"persisted", func(gc *GroupConfig) { gc.Persisted = true; withData(16<<10, 100)(gc) }},
		{"control records only", nil},
		{"metadata", func(gc *GroupConfig) { gc.ID = MetadataGroup; gc.Persisted = true }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, b := copyCluster(t, 3, tt.mode)
			f := &filler{t: t, c: c}
			l := c.leader()
			f.send(20, 100)
			down := c.others(l)[0]
			c.kill(down)
			behind := down.g.log.LastIndex()
			f.send(400, 500)
			f.trimmed(behind)
			c.start(down)
			f.send(10, 100)
			c.waitEqual(upTo(f.next))
			b.mu.Lock()
			if b.from[l.id] == 0 {
				t.Error("nothing was copied: the test tests nothing")
			}
			b.mu.Unlock()
			sameFiles(t, l, down)
			waitFor(t, "no leftovers", func() bool { return len(leftovers(t, down)) == 0 })
			waitFor(t, "the end of the offer", func() bool { return c.net.hosts[l.id].transfers.checkpointCount() == 0 })
			// It has a vote that counts, and what it copied survives a restart.
			c.kill(down)
			c.start(down)
			c.kill(l)
			f.send(10, 100)
			c.start(l)
			c.waitEqual(upTo(f.next))
		})
	}
}

func (t *transfers) checkpointCount() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.offers)
}

// TestCopyBreaks cuts the connections for copying after ever so many bytes: the copy goes on where it was.
func TestCopyBreaks(t *testing.T) {
	c, b := copyCluster(t, 3, withData(256<<10, 300))
	f := &filler{t: t, c: c}
	l := c.leader()
	down := c.others(l)[0]
	f.send(10, 10)
	c.kill(down)
	behind := down.g.log.LastIndex()
	for range 20 {
		f.send(30, 6000)
	}
	f.trimmed(behind)
	var breaks, read atomic.Int64
	b.mu.Lock()
	b.wrap = func(_, _ uint64, conn net.Conn) net.Conn {
		left := &atomic.Int64{}
		left.Store(150_000)
		return &fewBytes{countedConn{conn, &read}, left, func([]byte) error {
			breaks.Add(1)
			return errors.New("cut by the test")
		}}
	}
	b.mu.Unlock()
	c.start(down)
	c.waitEqual(upTo(f.next))
	t.Logf("%d breaks, %d bytes read", breaks.Load(), read.Load())
	if breaks.Load() < 2 {
		t.Error("the copy was not broken: the test tests nothing")
	}
}

type countedConn struct {
	net.Conn
	n *atomic.Int64
}

func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// TestCopyCorrupt changes bytes on the way: they are noticed, and copied again.
func TestCopyCorrupt(t *testing.T) {
	for _, tt := range []struct {
		name  string
		after int64
	}{{"early", 30}, {"in the checkpoint", 200}, {"in a segment", 20_000}, {"later", 60_000}} {
		t.Run(tt.name, func(t *testing.T) {
			c, b := copyCluster(t, 3, withData(16<<10, 100))
			f := &filler{t: t, c: c}
			l := c.leader()
			down := c.others(l)[0]
			c.kill(down)
			for range 10 {
				f.send(30, 1000) // so that there are checkpoints on the way
			}
			f.trimmed(2)
			var left atomic.Int64
			left.Store(tt.after)
			var changed atomic.Bool
			b.mu.Lock()
			b.wrap = func(_, _ uint64, conn net.Conn) net.Conn {
				return &fewBytes{conn, &left, func(p []byte) error {
					if changed.CompareAndSwap(false, true) {
						p[len(p)/2] ^= 0x40
					}
					return nil
				}}
			}
			b.mu.Unlock()
			c.start(down)
			c.waitEqual(upTo(f.next))
			if !changed.Load() {
				t.Error("nothing was changed: the test tests nothing")
			}
			sameFiles(t, l, down)
		})
	}
}

// TestCopySourceDies kills the leader in the middle of a copy. Another node leads then and serves the rest.
func TestCopySourceDies(t *testing.T) {
	c, b := copyCluster(t, 3, withData(256<<10, 300))
	f := &filler{t: t, c: c}
	l := c.leader()
	down := c.others(l)[0]
	f.send(10, 10)
	c.kill(down)
	behind := down.g.log.LastIndex()
	for range 20 {
		f.send(25, 6000)
	}
	f.trimmed(behind)
	other := c.others(l)[slices.IndexFunc(c.others(l), func(m *member) bool { return m != down })]
	waitFor(t, "the other to trim", func() bool { return other.g.Log().FirstIndex() > behind+1 })
	dead := make(chan struct{})
	var left atomic.Int64
	left.Store(500_000)
	var once sync.Once
	b.mu.Lock()
	b.wrap = func(_, to uint64, conn net.Conn) net.Conn {
		if to != l.id {
			return conn
		}
		return &fewBytes{conn, &left, func([]byte) error {
			once.Do(func() { close(dead) })
			return errors.New("the source died")
		}}
	}
	b.mu.Unlock()
	c.start(down)
	select {
	case <-dead:
	case <-time.After(20 * time.Second):
		t.Fatal("no copy from the leader")
	}
	c.kill(l)
	f.send(10, 10)
	waitFor(t, "the values", func() bool { return slices.Equal(down.m.list(), upTo(f.next)) })
	b.mu.Lock()
	if b.from[other.id] == 0 {
		t.Error("nothing was copied from the other node")
	}
	b.mu.Unlock()
	c.start(l)
	c.waitEqual(upTo(f.next))
}

// TestCopyDeadline lets the offer end again and again before the copy is complete.
func TestCopyDeadline(t *testing.T) {
	c, b := tunedCopyCluster(t, 3, withData(64<<10, 300), func(cfg *Config) { cfg.TransferDeadline = 60 * time.Millisecond })
	f := &filler{t: t, c: c}
	l := c.leader()
	down := c.others(l)[0]
	c.kill(down)
	for range 20 {
		f.send(25, 4000)
	}
	f.trimmed(2)
	var chunks atomic.Int64
	b.mu.Lock()
	b.wrap = func(_, _ uint64, conn net.Conn) net.Conn { return slowConn{conn, &chunks} }
	b.mu.Unlock()
	c.start(down)
	for range 20 {
		f.send(10, 4000) // the log goes on and is trimmed
	}
	c.waitEqual(upTo(f.next))
	if chunks.Load() == 0 {
		t.Error("nothing was copied: the test tests nothing")
	}
}

// slowConn waits a little for each read, as a long line would.
type slowConn struct {
	net.Conn
	n *atomic.Int64
}

func (c slowConn) Read(p []byte) (int, error) {
	c.n.Add(1)
	time.Sleep(5 * time.Millisecond) // the fault itself
	return c.Conn.Read(p)
}

// TestCopyFullDisk has no room on the copying node at first.
func TestCopyFullDisk(t *testing.T) {
	c, b := tunedCopyCluster(t, 3, withData(64<<10, 100), func(cfg *Config) { cfg.ReserveBytes = 64 << 10 })
	f := &filler{t: t, c: c}
	l := c.leader()
	down := c.others(l)[0]
	c.kill(down)
	for range 20 {
		f.send(10, 6000)
	}
	f.trimmed(2)
	down.fs.SetCapacity(down.fs.Used() + 300<<10)
	c.start(down)
	asked := func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.from[l.id] > 0
	}
	waitFor(t, "a copy to be tried", asked)
	down.fs.SetCapacity(down.fs.Used() + 32<<10) // below the reserve
	waitFor(t, "a full disk", func() bool { return down.h.space.full.Load() })
	down.fs.SetCapacity(0)
	c.waitEqual(upTo(f.next))
}

// TestTwoCopiesAtOnce fills two followers together.
func TestTwoCopiesAtOnce(t *testing.T) {
	c, _ := copyCluster(t, 5, withData(16<<10, 100))
	f := &filler{t: t, c: c}
	l := c.leader()
	f.send(10, 10)
	down := c.others(l)[:2]
	for _, d := range down {
		c.kill(d)
	}
	f.send(400, 500)
	f.trimmed(12)
	for _, d := range down {
		c.start(d)
	}
	f.send(20, 10)
	c.waitEqual(upTo(f.next))
}

// TestCopyWhileSending fills a follower under load, with the log trimmed all the time.
func TestCopyWhileSending(t *testing.T) {
	c, _ := copyCluster(t, 3, withData(16<<10, 100))
	f := &filler{t: t, c: c}
	l := c.leader()
	down := c.others(l)[0]
	c.kill(down)
	f.send(200, 1000)
	f.trimmed(2)
	c.start(down)
	for range 10 {
		f.send(100, 500)
	}
	c.waitEqual(upTo(f.next))
	f.trimmed(500)
}

// TestCopyReusesSegments damages one byte of a replica's log: what is whole of it is not copied again.
func TestCopyReusesSegments(t *testing.T) {
	c, b := copyCluster(t, 3, withData(16<<10, 1000))
	f := &filler{t: t, c: c}
	l := c.leader()
	down := c.others(l)[0]
	f.send(10, 10)
	f.send(300, 1000)
	c.waitEqual(upTo(f.next))
	segs := l.g.Log().Segments()
	if len(segs) < 8 {
		t.Fatalf("only %d segments", len(segs))
	}
	// The manifest is made by hand, and the copy run by hand.
	index := l.g.Status().Applied
	var read atomic.Int64
	b.mu.Lock()
	b.wrap = func(_, _ uint64, conn net.Conn) net.Conn { return countedConn{conn, &read} }
	b.mu.Unlock()
	pieces := make(chan []segment.Piece, 1)
	l.g.shard.inbox.post(item{g: l.g, ctl: controlFunc(func(*shard) {
		ps, err := l.g.log.Pieces(index)
		if err != nil {
			t.Errorf("pieces: %v", err)
		}
		pieces <- ps
	})})
	ps := <-pieces
	whole := int64(0)
	for _, p := range ps {
		whole += p.Length
	}
	job := &copyJob{g: down.g, man: &manifest{group: 5, index: index, pieces: ps}, verified: map[string]uint64{}, distrust: map[uint64]bool{}, conns: map[uint64]net.Conn{}}
	if err := job.prepare(down.fs, job.dir()); err != nil {
		t.Fatal(err)
	}
	// One sealed segment of the replica is damaged.
	hurt := ps[3].Name()
	file, err := down.fs.OpenFile(filepath.Join(down.g.cfg.Dir, hurt), 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt([]byte{0xde}, ps[3].Length/2); err != nil {
		t.Fatal(err)
	}
	_ = file.Close()
	for i := range ps {
		reused, err := job.reuse(t.Context(), &ps[i])
		if err != nil {
			t.Fatal(err)
		}
		if want := i != 3 && i != len(ps)-1; reused != want && i != len(ps)-1 {
			t.Errorf("segment %d of %d: reused %v", i, len(ps), reused)
		}
		if !reused {
			if err := job.retry(t.Context(), []uint64{l.id}, func(ctx context.Context, from uint64) error { return job.fetchPiece(ctx, from, &ps[i]) }); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, conn := range job.conns {
		_ = conn.Close()
	}
	t.Logf("%d bytes read of %d", read.Load(), whole)
	if read.Load() > whole/2 {
		t.Error("most was copied")
	}
}

type controlFunc func(s *shard)

func (f controlFunc) run(s *shard) { f(s) }

// TestCopyKilledAtEveryStep kills the copying node at every operation on its files, as a killed process and as a lost
// power, and lets it start again.
func TestCopyKilledAtEveryStep(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	c, b := tunedCopyCluster(t, 3, func(gc *GroupConfig) { gc.Persisted = true; withData(16<<10, 30)(gc) }, nil)
	f := &filler{t: t, c: c}
	l := c.leader()
	down := c.others(l)[0]
	f.send(10, 10)
	c.waitEqual(upTo(f.next))
	c.kill(down)
	f.send(150, 1000)
	f.trimmed(12)
	before := down.fs.KillClone()
	_ = b
	seen := map[string]bool{}
	for step := 0; step < 400; step++ {
		// The node runs on a file system that is frozen at one step of what happens in the group's directory.
		fs := before.KillClone()
		stop := newStepFS(fs, down.g.cfg.Dir, step)
		t1 := time.Now()
		ran := c.runUntil(down, stop)
		if d := time.Since(t1); d > time.Second {
			t.Logf("step %d %s run: %v", step, stop.what, d)
		}
		if !ran {
			t.Logf("%d steps", step)
			break
		}
		seen[stop.what] = true
		for _, crash := range []struct {
			name string
			fs   *vfs.Mem
		}{{"killed", stop.frozen}, {"powered off", stop.frozen.CrashClone(uint64(step))}} {
			down.fs = crash.fs
			t0 := time.Now()
			c.start(down)
			c.introduce(down.id)
			ok := false
			func() {
				defer func() {
					if !ok {
						t.Logf("step %d (%s), %s", step, stop.what, crash.name)
					}
				}()
				waitFor(t, "the values", func() bool {
					if err := down.g.Err(); err != nil {
						t.Fatalf("step %d (%s), %s: %v", step, stop.what, crash.name, err)
					}
					return slices.Equal(down.m.list(), upTo(f.next))
				})
				if left := leftovers(t, down); len(left) > 0 {
					waitFor(t, "no leftovers", func() bool { return len(leftovers(t, down)) == 0 })
				}
				ok = true
			}()
			if d := time.Since(t0); d > time.Second {
				t.Logf("step %d %s %s: %v", step, stop.what, crash.name, d)
			}
			c.kill(down)
		}
	}
	for _, want := range []string{"rename incoming", "rename install", "remove", "create"} {
		if !slices.ContainsFunc(sortedKeys(seen), func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("no step was a %q: %v", want, sortedKeys(seen))
		}
	}
}

func sortedKeys(m map[string]bool) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// stepFS freezes a copy of the file system before the n-th change of copying in a directory.
type stepFS struct {
	*vfs.Mem
	dir string

	mu     sync.Mutex
	left   int
	what   string
	frozen *vfs.Mem
	hit    chan struct{}
}

func newStepFS(fs *vfs.Mem, dir string, n int) *stepFS {
	return &stepFS{Mem: fs, dir: dir, left: n, hit: make(chan struct{})}
}

func (s *stepFS) step(what string, names ...string) {
	for _, n := range names {
		if !strings.HasPrefix(n, s.dir) {
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left--; s.left == -1 {
		s.what, s.frozen = what, s.Mem.KillClone()
		close(s.hit)
	}
}

func (s *stepFS) Rename(from, to string) error {
	s.step("rename "+strings.TrimPrefix(strings.TrimPrefix(from, s.dir), "/"), from)
	return s.Mem.Rename(from, to)
}

func (s *stepFS) Remove(name string) error { s.step("remove", name); return s.Mem.Remove(name) }

func (s *stepFS) RemoveAll(name string) error {
	s.step("remove all", name)
	return s.Mem.RemoveAll(name)
}

func (s *stepFS) Create(name string) (vfs.File, error) {
	s.step("create", name)
	return s.Mem.Create(name)
}

func (s *stepFS) SyncDir(name string) error { s.step("sync dir", name); return s.Mem.SyncDir(name) }

func (s *stepFS) OpenFile(name string, flag int) (vfs.File, error) {
	f, err := s.Mem.OpenFile(name, flag)
	if err != nil {
		return nil, err
	}
	return &stepFile{f, s, name}, nil
}

type stepFile struct {
	vfs.File
	s    *stepFS
	name string
}

func (f *stepFile) WriteAt(p []byte, at int64) (int, error) {
	f.s.step("write", f.name)
	return f.File.WriteAt(p, at)
}

func (f *stepFile) Truncate(n int64) error { f.s.step("truncate", f.name); return f.File.Truncate(n) }

func (f *stepFile) Sync() error { f.s.step("sync", f.name); return f.File.Sync() }

// runUntil starts a member on the stepping file system and stops it at the step; false when it was filled before.
func (c *cluster) runUntil(n *member, fs *stepFS) bool {
	c.t.Helper()
	cfg := testConfig(fs)
	cfg.NodeID = n.id
	cfg.Transport = &wire{c.net, n.id}
	c.tune(&cfg)
	h := openHost(c.t, cfg)
	m := &listMachine{t: c.t}
	gc := groupConfig(5, m)
	gc.Voters = []uint64{1, 2, 3}
	c.mode(&gc)
	g, err := h.StartGroup(c.t.Context(), gc)
	if err != nil {
		c.t.Fatal(err)
	}
	c.net.mu.Lock()
	c.net.hosts[n.id] = h
	c.net.mu.Unlock()
	c.net.isolate(n.id, false)
	c.introduce(n.id)
	want := c.leader(c.others(n)...).m.list()
	hit := false
	waitFor(c.t, "the step or the end", func() bool {
		select {
		case <-fs.hit:
			hit = true
			return true
		default:
			return slices.Equal(m.list(), want)
		}
	})
	_ = g
	c.net.isolate(n.id, true)
	c.net.mu.Lock()
	delete(c.net.hosts, n.id)
	c.net.mu.Unlock()
	closeHost(c.t, h)
	return hit
}

var _ io.ReaderAt = memory(nil)
