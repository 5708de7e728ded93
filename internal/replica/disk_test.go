package replica

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/whippetmq/whippet/internal/clock"
	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/internal/vfs"
)

func TestVotesLog(t *testing.T) {
	fs := vfs.NewMem(1)
	if err := errors.Join(fs.MkdirAll("/n"), fs.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	l, err := openVotes(fs, "/n")
	if err != nil {
		t.Fatal(err)
	}
	var ends []int64 // size after each batch
	var tables []map[GroupID]vote
	snapshot := func() {
		m := map[GroupID]vote{}
		for k, v := range l.table {
			m[k] = v
		}
		ends, tables = append(ends, l.size), append(tables, m)
	}
	snapshot()
	for i := range uint64(20) {
		if err := l.save([]voteChange{{GroupID(i % 7), vote{i + 1, i % 3}}, {GroupID(100 + i), vote{1, 1}}}); err != nil {
			t.Fatal(err)
		}
		snapshot()
	}
	l.forget(3)
	if err := l.save([]voteChange{{GroupID(9), vote{1, 1}}}); err != nil {
		t.Fatal(err)
	}
	snapshot()
	if _, there := tables[len(tables)-1][3]; there {
		t.Error("a forgotten group is in the table")
	}
	content, err := vfs.ReadFile(fs, "/n/votes.log", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	// Cut at every length: what is whole counts.
	for n := range len(content) + 1 {
		table := map[GroupID]vote{}
		good, _, reason := readVotes(content[:n], table)
		if reason != "" {
			t.Fatalf("cut at %d: %s", n, reason)
		}
		at := 0
		for at+1 < len(ends) && ends[at+1] <= int64(n) {
			at++
		}
		if int64(n) < ends[0] {
			if good != 0 {
				t.Fatalf("cut at %d: %d are good", n, good)
			}
			continue
		}
		if int64(good) != ends[at] || fmt.Sprint(table) != fmt.Sprint(tables[at]) {
			t.Fatalf("cut at %d: %d good, want %d", n, good, ends[at])
		}
	}
	// Any bit of the last batch may be wrong, of an earlier one not.
	for n := range content {
		b := slices.Clone(content)
		b[n] ^= 0x10
		good, _, reason := readVotes(b, map[GroupID]vote{})
		if last := int64(n) >= ends[len(ends)-2]; last != (reason == "") || int64(good) > int64(n) {
			t.Fatalf("damage at %d: good %d, reason %q", n, good, reason)
		}
	}
	// A torn end is cut off when the log is opened, and the next batch is found again.
	if err := l.file.Truncate(l.size - 5); err != nil {
		t.Fatal(err)
	}
	l2, err := openVotes(fs, "/n")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(l2.table), fmt.Sprint(tables[len(tables)-2]); got != want {
		t.Errorf("after a torn end: %s, want %s", got, want)
	}
	if err := l2.save([]voteChange{{GroupID(77), vote{5, 6}}}); err != nil {
		t.Fatal(err)
	}
	l3, err := openVotes(fs.CrashClone(9), "/n")
	if err != nil {
		t.Fatal(err)
	}
	if l3.get(77) != (vote{5, 6}) {
		t.Error("a flushed vote is gone after a crash")
	}
}

func TestVotesLogCompaction(t *testing.T) {
	fs := vfs.NewMem(1)
	if err := errors.Join(fs.MkdirAll("/n"), fs.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	l, err := openVotes(fs, "/n")
	if err != nil {
		t.Fatal(err)
	}
	batch := make([]voteChange, 1000)
	for round := range uint64(200) {
		for i := range batch {
			batch[i] = voteChange{GroupID(i), vote{round + 1, round % 3}}
		}
		if err := l.save(batch); err != nil {
			t.Fatal(err)
		}
		if l.size > votesCompactAt+64<<10 {
			t.Fatalf("round %d: the log has %d bytes", round, l.size)
		}
		if round%50 == 49 {
			again, err := openVotes(fs.CrashClone(round), "/n")
			if err != nil {
				t.Fatal(err)
			}
			for i := range batch {
				if again.get(GroupID(i)) != batch[i].vote {
					t.Fatalf("round %d: vote of group %d is %+v", round, i, again.get(GroupID(i)))
				}
			}
		}
	}
}

func TestNodeMeta(t *testing.T) {
	fs := vfs.NewMem(1)
	cfg := testConfig(fs)
	h := openHost(t, cfg)
	first := h.Identity()
	if first.Starts != 1 || first.Unclean || first.Directory == [16]byte{} {
		t.Errorf("identity of a new directory %+v", first)
	}
	var locked *vfs.LockedError
	if _, err := Open(t.Context(), cfg); !errors.Is(err, ErrLocked) || !errors.As(err, &locked) {
		t.Errorf("second process: %v", err)
	}
	killed, crashed := fs.KillClone(), fs.CrashClone(3)
	closeHost(t, h)
	for _, tt := range []struct {
		name    string
		fs      *vfs.Mem
		boot    string
		unclean bool
	}{
		{"orderly stop", fs.KillClone(), testBoot, false},
		{"orderly stop, other boot", fs.KillClone(), "boot-2", false},
		{"killed process", killed, testBoot, false},
		{"power loss", crashed, "boot-2", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := testConfig(tt.fs)
			c.BootID = tt.boot
			h := openHost(t, c)
			if got := h.Identity(); got.Directory != first.Directory || got.Starts != 2 || got.Unclean != tt.unclean {
				t.Errorf("identity %+v", got)
			}
		})
	}
	t.Run("wrong cluster", func(t *testing.T) {
		c := testConfig(fs.KillClone())
		c.ClusterID[3] = 9
		var id *IdentityError
		if _, err := Open(t.Context(), c); !errors.As(err, &id) || id.What != "cluster" {
			t.Errorf("open: %v", err)
		}
	})
	t.Run("wrong node", func(t *testing.T) {
		c := testConfig(fs.KillClone())
		c.NodeID = 2
		var id *IdentityError
		if _, err := Open(t.Context(), c); !errors.As(err, &id) || id.What != "node" || !strings.Contains(err.Error(), "2") {
			t.Errorf("open: %v", err)
		}
	})
	for _, tt := range []struct {
		name string
		harm func(t *testing.T, fs *vfs.Mem)
	}{
		{"damaged identity", func(_ *testing.T, fs *vfs.Mem) { fs.Corrupt("/data/node/node.meta", 20, 1) }},
		{"identity gone", func(t *testing.T, fs *vfs.Mem) {
			if err := fs.Remove("/data/node/node.meta"); err != nil {
				t.Fatal(err)
			}
		}},
		{"damaged votes", func(t *testing.T, fs *vfs.Mem) {
			h := openHost(t, testConfig(fs))
			startGroup(t, h, groupConfig(4, &listMachine{t: t}))
			startGroup(t, h, groupConfig(5, &listMachine{t: t}))
			closeHost(t, h)
			fs.Corrupt("/data/node/votes.log", 40, 1)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clone := fs.KillClone()
			tt.harm(t, clone)
			var corrupt *CorruptError
			if _, err := Open(t.Context(), testConfig(clone)); !errors.As(err, &corrupt) {
				t.Errorf("open: %v", err)
			}
		})
	}
}

// inLog tells the files of groups' logs from the node's own.
func inLog(op vfs.Op) bool { return strings.HasPrefix(op.Name, "/data/groups/") }

func TestFlushErrorFencesOnlyItsGroup(t *testing.T) { // engine §10, trap 21
	mem := vfs.NewMem(1)
	var broken atomic.Bool
	fs := vfs.NewFaulty(mem, func(op vfs.Op) error {
		if broken.Load() && op.Kind == vfs.OpSync && strings.HasPrefix(op.Name, "/data/groups/5/") {
			return &os.PathError{Op: "sync", Path: op.Name, Err: syscall.EIO}
		}
		return nil
	})
	cfg := testConfig(fs)
	cfg.Shards = 1
	h := openHost(t, cfg)
	gc, gc2 := groupConfig(5, &listMachine{t: t}), groupConfig(6, &listMachine{t: t})
	gc.Persisted, gc2.Persisted = true, true
	g, other := startGroup(t, h, gc), startGroup(t, h, gc2)
	if err := submit(t, g, 1).wait(t); err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	c := submit(t, g, 2)
	if err := c.wait(t); !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("outcome after a failed flush: %v", err)
	}
	broken.Store(false)
	var fenced *FencedError
	waitFor(t, "the fence", func() bool { return g.Err() != nil })
	if err := g.Submit(t.Context(), newCommand(3)); !errors.As(err, &fenced) || !errors.Is(err, segment.ErrSyncFailed) {
		t.Errorf("submit: %v", err)
	}
	if err := g.ReadBarrier(t.Context()); !errors.As(err, &fenced) {
		t.Errorf("read barrier: %v", err)
	}
	if err := submit(t, other, 1).wait(t); err != nil {
		t.Errorf("the neighbour: %v", err)
	}
	closeHost(t, h)
	// What was acknowledged is there after a restart.
	h = openHost(t, testConfig(mem.CrashClone(5)))
	m := &listMachine{t: t}
	gc.Machine = m
	startGroup(t, h, gc)
	if got := m.list(); len(got) < 1 || got[0] != 1 {
		t.Errorf("values %v", got)
	}
}

func TestWriteErrorFences(t *testing.T) {
	var broken atomic.Bool
	fs := vfs.NewFaulty(vfs.NewMem(1), func(op vfs.Op) error {
		if broken.Load() && op.Kind == vfs.OpWrite && inLog(op) {
			return &os.PathError{Op: "write", Path: op.Name, Err: syscall.EIO}
		}
		return nil
	})
	h := openHost(t, testConfig(fs))
	g := startGroup(t, h, groupConfig(5, &listMachine{t: t}))
	broken.Store(true)
	if err := submit(t, g, 2).wait(t); !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("outcome after a failed write: %v", err)
	}
	if err := g.Submit(t.Context(), newCommand(3)); err == nil {
		t.Error("a request was taken after a failed write")
	}
	closeHost(t, h)
}

func TestVoteErrorFences(t *testing.T) {
	var broken atomic.Bool
	fs := vfs.NewFaulty(vfs.NewMem(1), func(op vfs.Op) error {
		if broken.Load() && op.Kind == vfs.OpSync && strings.Contains(op.Name, votesName) {
			return &os.PathError{Op: "sync", Path: op.Name, Err: syscall.EIO}
		}
		return nil
	})
	h := openHost(t, testConfig(fs))
	before := startGroup(t, h, groupConfig(4, &listMachine{t: t}))
	broken.Store(true)
	g, err := h.StartGroup(t.Context(), groupConfig(5, &listMachine{t: t}))
	if err != nil {
		t.Fatal(err)
	}
	var fenced *FencedError
	if err := g.WaitReady(t.Context()); !errors.As(err, &fenced) {
		t.Errorf("a group whose vote cannot be stored: %v", err)
	}
	if err := submit(t, before, 1).wait(t); err != nil {
		t.Errorf("a group that leads already: %v", err)
	}
}

// countedLines is a log whose lines are counted.
type countedLines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (c *countedLines) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.b.Write(p)
}

func (c *countedLines) with(text string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Count(c.b.Bytes(), []byte(text))
}

// TestFullDisk fills the disk in different ways (engine §10, trap 22).
func TestFullDisk(t *testing.T) {
	for _, persisted := range []bool{false, true} {
		t.Run(fmt.Sprintf("writes fail, persisted=%v", persisted), func(t *testing.T) {
			mem := vfs.NewMem(1)
			var full atomic.Bool
			var failed atomic.Int64
			fs := vfs.NewFaulty(mem, func(op vfs.Op) error {
				if full.Load() && op.Kind == vfs.OpWrite {
					failed.Add(1)
					return &os.PathError{Op: "write", Path: op.Name, Err: syscall.ENOSPC}
				}
				return nil
			})
			cfg := testConfig(fs)
			var lines countedLines
			cfg.Logger = slog.New(slog.NewTextHandler(&lines, nil))
			h := openHost(t, cfg)
			m := &listMachine{t: t}
			gc := groupConfig(5, m)
			gc.Persisted = persisted
			g := startGroup(t, h, gc)
			if err := submit(t, g, 1).wait(t); err != nil {
				t.Fatal(err)
			}
			full.Store(true)
			// The free space says nothing yet: these reach raft, and wait.
			stuck := []*command{submit(t, g, 2), submit(t, g, 3)}
			waitFor(t, "the full disk", func() bool { return g.Status().DiskFull })
			for range 5 {
				if err := submit(t, g, 99).wait(t); !errors.Is(err, ErrDiskFull) {
					t.Fatalf("request to a full disk: %v", err)
				}
			}
			if st := g.Status(); st.Role != Leader || st.Applied == st.LastIndex {
				t.Errorf("status %+v", st)
			}
			tries := failed.Load()
			waitFor(t, "more tries", func() bool { return failed.Load() > tries+5 })
			if n := lines.with("waits for room"); n != 1 {
				t.Errorf("%d lines in the log about one write that waits", n)
			}
			full.Store(false)
			acked := []uint64{1}
			for _, c := range stuck {
				switch err := c.wait(t); {
				case err == nil:
					acked = append(acked, c.value)
				case !errors.Is(err, ErrDiskFull):
					t.Errorf("stuck %d: %v", c.value, err)
				}
			}
			if len(acked) < 2 {
				t.Error("no request got stuck: the test tests nothing")
			}
			waitFor(t, "room", func() bool { return submit(t, g, 4).wait(t) == nil })
			want := append(acked, 4)
			if got := m.list(); !slices.Equal(got, want) {
				t.Errorf("values %v, want %v", got, want)
			}
			h2 := openHost(t, testConfig(mem.KillClone()))
			m2 := &listMachine{t: t}
			gc.Machine = m2
			startGroup(t, h2, gc)
			if got := m2.list(); !slices.Equal(got, want) {
				t.Errorf("after a restart %v, want %v", got, want)
			}
		})
	}
	t.Run("refused before the log", func(t *testing.T) {
		mem := vfs.NewMem(1)
		mem.SetCapacity(1 << 20)
		cfg := testConfig(mem)
		cfg.ReserveBytes = 256 << 10
		h := openHost(t, cfg)
		g := startGroup(t, h, groupConfig(5, &listMachine{t: t}))
		acked := uint64(0)
		for v := uint64(1); ; v++ {
			c := newCommand(v)
			c.pad = 10_000
			if err := g.Submit(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if err := c.wait(t); err != nil {
				if !errors.Is(err, ErrDiskFull) {
					t.Fatalf("%d: %v", v, err)
				}
				break
			}
			acked = v
		}
		if st := g.Status(); st.DiskFull || st.LastIndex != st.Applied {
			t.Errorf("a write had to wait: %+v", st)
		}
		if free, _, _ := mem.Free("/"); free < 200<<10 || acked < 40 {
			t.Errorf("refused with %d bytes free after %d requests", free, acked)
		}
		mem.SetCapacity(2 << 20)
		waitFor(t, "room", func() bool { return submit(t, g, 1000).wait(t) == nil })
	})
	t.Run("close while full", func(t *testing.T) {
		var full atomic.Bool
		mem := vfs.NewMem(1)
		fs := vfs.NewFaulty(mem, func(op vfs.Op) error {
			if full.Load() && op.Kind == vfs.OpWrite {
				return &os.PathError{Op: "write", Path: op.Name, Err: syscall.ENOSPC}
			}
			return nil
		})
		h := openHost(t, testConfig(fs))
		g := startGroup(t, h, groupConfig(5, &listMachine{t: t}))
		full.Store(true)
		c := submit(t, g, 2)
		waitFor(t, "the full disk", func() bool { return g.Status().DiskFull })
		closeHost(t, h)
		if err := c.wait(t); !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("outcome of a write that was given up: %v", err)
		}
		h2 := openHost(t, testConfig(mem.KillClone()))
		m := &listMachine{t: t}
		startGroup(t, h2, groupConfig(5, m))
		if got := m.list(); len(got) != 0 {
			t.Errorf("values %v", got)
		}
	})
	t.Run("start while full", func(t *testing.T) {
		var full atomic.Bool
		fs := vfs.NewFaulty(vfs.NewMem(1), func(op vfs.Op) error {
			if full.Load() && op.Kind == vfs.OpWrite {
				return &os.PathError{Op: "write", Path: op.Name, Err: syscall.ENOSPC}
			}
			return nil
		})
		h := openHost(t, testConfig(fs))
		full.Store(true)
		g, err := h.StartGroup(t.Context(), groupConfig(5, &listMachine{t: t}))
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the full disk", func() bool { return g.Status().DiskFull })
		full.Store(false)
		waitReady(t, g)
	})
}

// ballastFS is a disk that has no room for logs while full is set, which the removal of the ballast ends. seen gets what is
// done to the ballast.
func ballastFS(under vfs.FS, free *atomic.Int64, full *atomic.Bool, seen func(vfs.Op)) *freeFS {
	return &freeFS{free: free, FS: vfs.NewFaulty(under, func(op vfs.Op) error {
		switch {
		case strings.HasSuffix(op.Name, ballastName):
			if op.Kind == vfs.OpRemove {
				full.Store(false)
			}
			seen(op)
		case op.Kind == vfs.OpWrite && inLog(op) && full.Load():
			return &os.PathError{Op: "write", Path: op.Name, Err: syscall.ENOSPC}
		}
		return nil
	})}
}

func TestBallast(t *testing.T) {
	mem := vfs.NewMem(1)
	mem.SetCapacity(100 << 20)
	free := atomic.Int64{}
	free.Store(50 << 20)
	var removed, placed atomic.Int32
	var full atomic.Bool
	fs := ballastFS(mem, &free, &full, func(op vfs.Op) {
		switch op.Kind {
		case vfs.OpRemove:
			removed.Add(1)
		case vfs.OpPreallocate:
			placed.Add(1)
		}
	})
	cfg := testConfig(fs)
	cfg.BallastBytes, cfg.ReserveBytes = 8<<20, 1<<20
	h := openHost(t, cfg)
	if placed.Load() != 1 {
		t.Fatalf("the ballast was placed %d times at the start", placed.Load())
	}
	g := startGroup(t, h, groupConfig(5, &listMachine{t: t}))
	free.Store(4 << 20)
	full.Store(true)
	if err := submit(t, g, 1).wait(t); err != nil {
		t.Fatalf("the write that the ballast makes room for: %v", err)
	}
	if removed.Load() != 1 {
		t.Fatalf("the ballast was removed %d times", removed.Load())
	}
	if err := submit(t, g, 2).wait(t); !errors.Is(err, ErrDiskFull) {
		t.Errorf("a request while the ballast is gone: %v", err)
	}
	free.Store(40 << 20)
	waitFor(t, "the ballast", func() bool { return placed.Load() == 2 })
	waitFor(t, "room", func() bool { return submit(t, g, 3).wait(t) == nil })
}

// TestVital: below the reserve only what is vital is admitted, with the ballast's room if need be, and without the ballast
// as long as half of the reserve is left.
func TestVital(t *testing.T) {
	free, full := atomic.Int64{}, atomic.Bool{}
	free.Store(50 << 20)
	fs := ballastFS(vfs.NewMem(1), &free, &full, func(vfs.Op) {})
	cfg := testConfig(fs)
	cfg.BallastBytes, cfg.ReserveBytes = 8<<20, 1<<20
	h := openHost(t, cfg)
	g := startGroup(t, h, groupConfig(5, &listMachine{t: t}))
	value := uint64(0)
	vital := func() error {
		value++
		c := newCommand(value)
		c.vital = true
		if err := g.Submit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		return c.wait(t)
	}
	ordinary := func() error { value++; return submit(t, g, value).wait(t) }

	free.Store(0)
	waitFor(t, "a refusal", func() bool { return errors.Is(ordinary(), ErrDiskFull) })
	if err := vital(); err != nil {
		t.Errorf("a vital request with no room but the ballast's: %v", err)
	}
	full.Store(true)
	if err := vital(); err != nil {
		t.Errorf("a vital request whose write finds no room: %v", err)
	}
	if _, err := fs.Stat(filepath.Join(cfg.Dir, ballastName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the ballast after a write found no room: %v", err)
	}
	free.Store(600 << 10)
	if err := vital(); err != nil {
		t.Errorf("a vital request while more than half of the reserve is left: %v", err)
	}
	if err := ordinary(); !errors.Is(err, ErrDiskFull) {
		t.Errorf("an ordinary request below the reserve: %v", err)
	}
	free.Store(400 << 10)
	if err := vital(); !errors.Is(err, ErrDiskFull) {
		t.Errorf("a vital request while less than half of the reserve is left: %v", err)
	}
	free.Store(40 << 20)
	waitFor(t, "room", func() bool { return ordinary() == nil })
	if err := vital(); err != nil {
		t.Errorf("a vital request with room: %v", err)
	}
}

// TestAdmitsWhatFits: what one turn brings is admitted only as far as there is room for it, however little is free.
func TestAdmitsWhatFits(t *testing.T) {
	free := atomic.Int64{}
	free.Store(50 << 20)
	cfg := testConfig(&freeFS{FS: vfs.NewMem(1), free: &free})
	cfg.BallastBytes, cfg.ReserveBytes, cfg.Logger = -1, 1<<20, slog.New(slog.DiscardHandler)
	s := openSpace(&cfg)
	for _, tt := range []struct {
		free, n int64
		want    bool
	}{
		{50 << 20, 1 << 20, true}, {50 << 20, 40 << 20, true}, {50 << 20, 49<<20 + 1, false},
		{3 << 20, 2 << 20, true}, {3 << 20, 2<<20 + 1, false}, {1<<20 + 1, 1, true}, {1 << 20, 1, false}, {0, 1, false},
	} {
		free.Store(tt.free)
		s.look()
		if got := s.admit(tt.n); got != tt.want {
			t.Errorf("%d bytes with %d free: %v", tt.n, tt.free, got)
		}
	}
	free.Store(11 << 20)
	s.look()
	admitted := 0
	for range 100 {
		if s.admit(1 << 20) {
			admitted++
			free.Add(-1 << 20)
		}
	}
	if admitted != 10 {
		t.Errorf("%d MiB admitted where 10 are free above the reserve", admitted)
	}
}

// TestBallastOutlivesRestarts: a disk that stays full takes nothing of the ballast, however often the node starts, but for
// the little that a start itself needs when nothing at all is free; with room it is whole again.
func TestBallastOutlivesRestarts(t *testing.T) {
	mem := vfs.NewMem(1)
	mem.SetCapacity(80 << 20)
	cfg := testConfig(mem)
	cfg.BallastBytes, cfg.ReserveBytes = 0, 0
	open := func() *Host {
		t.Helper()
		h, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	size := func() int64 { return ballastSize(&cfg) }
	other, err := mem.Create("other") // somebody else's file on the disk
	if err != nil {
		t.Fatal(err)
	}
	leave := func(bytes int64) {
		t.Helper()
		at, err := other.Size()
		if err == nil {
			err = other.Truncate(at + 80<<20 - mem.Used() - bytes)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	h := open()
	if got := size(); got != 10<<20 {
		t.Fatalf("%d bytes of ballast on a disk of 80 MiB", got)
	}
	for _, tt := range []struct {
		name       string
		free       int64
		min        int64
		full       bool
		afterwards int
	}{{"below the reserve", 1 << 20, 10 << 20, true, 5}, {"nothing free", 0, 5 << 20, true, 5}, {"room", 60 << 20, 10 << 20, false, 1}} {
		for range tt.afterwards {
			if err := h.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			leave(tt.free)
			h = open()
			if got := size(); got < tt.min {
				t.Fatalf("%s: %d bytes of ballast are left", tt.name, got)
			}
			if got := h.space.full.Load(); got != tt.full {
				t.Fatalf("%s: full %v", tt.name, got)
			}
		}
	}
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestVitalsMeetTheBallast: the write that takes the ballast's room does not get those behind it refused.
func TestVitalsMeetTheBallast(t *testing.T) {
	for _, persisted := range []bool{false, true} {
		t.Run(fmt.Sprintf("persisted=%v", persisted), func(t *testing.T) {
			free, full := atomic.Int64{}, atomic.Bool{}
			free.Store(50 << 20)
			fs := ballastFS(vfs.NewMem(1), &free, &full, func(op vfs.Op) {
				if op.Kind == vfs.OpRemove {
					free.Store(8 << 20)
				}
			})
			cfg := testConfig(fs)
			cfg.BallastBytes, cfg.ReserveBytes = 8<<20, 1<<20
			h := openHost(t, cfg)
			gc := groupConfig(5, &listMachine{t: t})
			gc.Persisted = persisted
			g := startGroup(t, h, gc)
			free.Store(0)
			full.Store(true)
			var all []*command
			for v := range uint64(2000) {
				c := newCommand(v + 1)
				c.vital = true
				if err := g.Submit(t.Context(), c); err != nil {
					t.Fatal(err)
				}
				all = append(all, c)
			}
			for _, c := range all {
				if err := c.wait(t); err != nil {
					t.Fatalf("request %d: %v", c.value, err)
				}
			}
			if full.Load() {
				t.Error("the ballast was not needed: the test tests nothing")
			}
		})
	}
}

// TestVitalAmongOthers: requests of one turn are told apart, and keep their order.
func TestVitalAmongOthers(t *testing.T) {
	free := atomic.Int64{}
	free.Store(50 << 20)
	cfg := testConfig(&freeFS{FS: vfs.NewMem(1), free: &free})
	cfg.BallastBytes, cfg.ReserveBytes = 8<<20, 1<<20
	h := openHost(t, cfg)
	m := &listMachine{t: t}
	g := startGroup(t, h, groupConfig(5, m))
	free.Store(0)
	waitFor(t, "a refusal", func() bool { return errors.Is(submit(t, g, 1000).wait(t), ErrDiskFull) })
	var all []*command
	for v := range uint64(300) {
		c := newCommand(v + 1)
		c.vital = v%3 == 1
		if err := g.Submit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	next := uint64(0)
	for _, c := range all {
		err := c.wait(t)
		switch {
		case !c.vital && !errors.Is(err, ErrDiskFull), c.vital && err != nil:
			t.Fatalf("request %d, vital %v: %v", c.value, c.vital, err)
		case c.vital && c.index < next:
			t.Fatalf("request %d has position %d, behind those of later ones", c.value, c.index)
		case c.vital:
			next = c.index + 1
		}
	}
}

// freeFS is a file system whose free space is set by hand.
type freeFS struct {
	vfs.FS
	free *atomic.Int64
}

func (f *freeFS) Free(string) (free, total uint64, err error) {
	return uint64(f.free.Load()), 1 << 40, nil
}

// TestCrashes kills the process or the machine at a random operation, again and again, and compares what comes back with
// a model: what was acknowledged is there, in order, and nothing that was never sent is.
func TestCrashes(t *testing.T) {
	for _, tt := range []struct {
		name      string
		persisted bool
		power     bool
	}{
		{"persisted groups, power loss", true, true},
		{"persisted groups, killed", true, false},
		{"replicated groups, killed", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 0))
			mem := vfs.NewMem(seed)
			const groups = 3
			acked := make([]map[uint64]bool, groups)
			sent := make([]uint64, groups)
			for i := range acked {
				acked[i] = map[uint64]bool{}
			}
			rounds := 25
			if testing.Short() {
				rounds = 8
			}
			for round := range rounds {
				left := atomic.Int64{}
				left.Store(1 << 40)
				var clone *vfs.Mem
				var mu sync.Mutex
				dead := atomic.Bool{}
				died := make(chan struct{})
				current := mem
				fs := vfs.NewFaulty(current, func(op vfs.Op) error {
					if op.Kind.Changes() && left.Add(-1) == 0 {
						dead.Store(true)
						mu.Lock()
						if tt.power {
							clone = current.CrashClone(rng.Uint64())
						} else {
							clone = current.KillClone()
						}
						mu.Unlock()
						close(died)
					}
					if dead.Load() {
						return &os.PathError{Op: "any", Path: op.Name, Err: syscall.EIO}
					}
					return nil
				})
				cfg := testConfig(fs)
				if tt.power {
					cfg.BootID = fmt.Sprint("boot-", round)
				}
				cfg.CheckpointBytes = 4 << 10
				h, err := Open(t.Context(), cfg)
				if err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				gs := make([]*Group, groups)
				for i := range gs {
					m := &listMachine{t: t}
					gc := groupConfig(GroupID(10+i), m)
					gc.Persisted = tt.persisted
					gc.SegmentBytes = 8 << 10
					gs[i] = startGroup(t, h, gc)
					got := m.list()
					have := map[uint64]bool{}
					for j, v := range got {
						if v == 0 || v > sent[i] {
							t.Fatalf("round %d, group %d: value %d was never sent", round, i, v)
						}
						if j > 0 && got[j-1] >= v {
							t.Fatalf("round %d, group %d: %d behind %d", round, i, v, got[j-1])
						}
						have[v] = true
					}
					for v := range acked[i] {
						if !have[v] {
							t.Fatalf("round %d, group %d: acknowledged %d is gone (%d values)", round, i, v, len(got))
						}
					}
				}
				left.Store(1 + rng.Int64N(150))
				var wg sync.WaitGroup
				for i, g := range gs {
					wg.Go(func() {
						flying := make(chan struct{}, 20)
						for {
							select {
							case <-died:
								return
							case flying <- struct{}{}:
							}
							mu.Lock()
							sent[i]++
							c := newCommand(sent[i])
							mu.Unlock()
							c.pad = int(c.value % 300)
							c.after = func(c *command) {
								<-flying
								mu.Lock()
								defer mu.Unlock()
								// What finishes beside the death may be in the clone or not.
								if c.err == nil && !dead.Load() {
									acked[i][c.value] = true
								}
							}
							if err := g.Submit(t.Context(), c); err != nil {
								return
							}
						}
					})
				}
				<-died
				wg.Wait()
				closeHost(t, h)
				mu.Lock()
				mem = clone
				mu.Unlock()
			}
		})
	}
}

// TestStartNeedsNoTick starts a group while the clock stands still: a sole voter waits for nobody.
func TestStartNeedsNoTick(t *testing.T) {
	cfg := testConfig(vfs.NewMem(1))
	cfg.Clock = clock.NewManual(1)
	h := openHost(t, cfg)
	g := startGroup(t, h, groupConfig(5, &listMachine{t: t}))
	if err := submit(t, g, 1).wait(t); err != nil {
		t.Fatal(err)
	}
}

// TestReplaceFileFails lets each step of a replacement fail: the error comes back, and neither the file nor its leftovers
// change.
func TestReplaceFileFails(t *testing.T) {
	broken := errors.New("broken disk")
	for _, kind := range []vfs.OpKind{vfs.OpCreate, vfs.OpWrite, vfs.OpSync, vfs.OpRename, vfs.OpSyncDir} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			mem, fail := vfs.NewMem(1), false
			if err := mem.MkdirAll("/data"); err != nil {
				t.Fatal(err)
			}
			fs := vfs.NewFaulty(mem, func(op vfs.Op) error {
				if fail && op.Kind == kind {
					return broken
				}
				return nil
			})
			f, _, err := replaceFile(fs, "/data", "/data/a", []byte("old"))
			if err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
			fail = true
			if f, _, err := replaceFile(fs, "/data", "/data/a", []byte("new")); !errors.Is(err, broken) || f != nil {
				t.Fatalf("%v, %v", f, err)
			}
			want := "old"
			if kind == vfs.OpSyncDir {
				want = "new" // renamed, but perhaps not for good
			}
			if b, err := vfs.ReadFile(mem, "/data/a", 100); err != nil || string(b) != want {
				t.Errorf("the file holds %q, %v", b, err)
			}
			if _, err := mem.Stat("/data/a.tmp"); !vfs.IsNotExist(err) {
				t.Errorf("a leftover: %v", err)
			}
		})
	}
}
