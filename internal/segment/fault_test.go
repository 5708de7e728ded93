package segment

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"github.com/whippetmq/whippet/internal/vfs"
)

// faultEnv is a log on a file system whose operations a test can fail.
type faultEnv struct {
	*env
	fail func(vfs.Op) error
}

func newFaultEnv(t *testing.T, o Options) *faultEnv {
	e := newEnv(t, o)
	f := &faultEnv{env: e}
	if err := e.l.Close(); err != nil {
		t.Fatal(err)
	}
	f.openFaulty(t)
	return f
}

func (f *faultEnv) openFaulty(t *testing.T) {
	fs := vfs.NewFaulty(f.fs, func(op vfs.Op) error {
		if f.fail != nil {
			return f.fail(op)
		}
		return nil
	})
	f.o.Handles = NewHandles(8, 1<<20)
	l, _, err := Open(fs, testDir, f.o, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.l = l
}

// mustHold checks that the log has exactly these entries: in memory, in its files, and after a restart.
func (f *faultEnv) mustHold(t *testing.T, want []Entry, rng *rand.Rand) {
	t.Helper()
	check := func() {
		t.Helper()
		got, err := allEntries(f.l, 1<<20)
		if err == nil {
			err = sameEntries(got, want)
		}
		if err != nil {
			t.Fatal(err)
		}
		checkReads(t, f.l, want, rng)
	}
	check()
	f.l.Applied(f.l.LastIndex())
	f.l.evictAll()
	check()
	if err := f.l.Close(); err != nil {
		t.Fatal(err)
	}
	f.openFaulty(t)
	check()
}

// TestFailNthWrite fails the n-th operation that changes something, with a full
// disk and with an I/O error, whole and in part, and then either repeats or
// undoes the write. Afterwards the log has exactly what was accepted, in memory
// and after a restart.
func TestFailNthWrite(t *testing.T) {
	for _, errno := range []error{syscall.ENOSPC, syscall.EIO} {
		for _, undo := range []bool{false, true} {
			for n := range 14 {
				for i, part := range []int{0, 1, 100, 3000} {
					if (n+i)%every(1) != 0 {
						continue
					}
					t.Run(fmt.Sprint(errno, "/undo=", undo, "/", n, "/", part), func(t *testing.T) {
						rng := rand.New(rand.NewPCG(uint64(n), 1))
						f := newFaultEnv(t, Options{SegmentBytes: 3000})
						all := f.append(rng, 1, 3, 2, 300)
						left := n
						f.fail = func(op vfs.Op) error {
							if op.Kind == vfs.OpSync || op.Kind == vfs.OpSyncDir || !op.Kind.Changes() {
								return nil
							}
							if left--; left < 0 {
								return &vfs.PartialError{N: min(part, op.Len), Err: errno}
							}
							return nil
						}
						// The second write cuts into the first.
						first := nextBatches(f.l, rng, 1, 6, 2, 300)
						w1, err := f.l.Place(first)
						if err != nil {
							t.Fatal(err)
						}
						second := make([]Entry, 0, 8)
						offset := BaseOffset(first[4].Data)
						for i := range uint64(8) {
							second = append(second, Entry{Index: first[4].Index + i, Term: 2, Data: batchOf(rng, offset, 100+i, 2, 300)})
							offset += 2
						}
						w2, err := f.l.Place(second)
						if err != nil {
							t.Fatal(err)
						}
						err1, err2 := w1.Do(), w2.Do()
						failed := err1 != nil || err2 != nil
						for _, err := range []error{err1, err2} {
							if err != nil && (!errors.Is(err, errno) || errors.Is(err, ErrDiskFull) != (errno == syscall.ENOSPC)) {
								t.Fatalf("error %v", err)
							}
						}
						if err1 != nil && err2 == nil {
							t.Fatal("the second write was done without the first")
						}
						if failed {
							// Again, still failing: nothing gets worse.
							if err1 != nil && w1.Do() == nil {
								t.Fatal("done on a full disk")
							}
							_ = w2.Do()
						}
						// The disk is fine again.
						f.fail = nil
						want := append(append(append([]Entry{}, all...), first[:4]...), second...)
						if failed && undo {
							w, last := w2, first[3].Index
							if err1 != nil {
								w, last = w1, all[2].Index
							}
							if err := f.l.Undo(w); err != nil {
								t.Fatal(err)
							}
							if got := f.l.LastIndex(); got != last {
								t.Fatalf("last index %d after undo, want %d", got, last)
							}
							if err := w2.Do(); !errors.Is(err, ErrOrder) {
								t.Fatalf("undone write: %v", err)
							}
							if err1 != nil {
								f.put(first[:4]...)
							}
							f.put(second...)
						} else if failed {
							if err1 != nil {
								if err := w1.Do(); err != nil {
									t.Fatal(err)
								}
							}
							if err := w2.Do(); err != nil {
								t.Fatal(err)
							}
						}
						w1.Release()
						w2.Release()
						want = append(want, f.append(rng, 3, 2, 2, 300)...)
						f.o.SameBoot = n%2 == 0
						f.mustHold(t, want, rng)
					})
				}
			}
		}
	}
}

// TestFullDisk fills a small disk and frees space again.
func TestFullDisk(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	e := newEnv(t, Options{SegmentBytes: 10_000})
	e.fs.SetCapacity(50_000)
	var all []Entry
	for {
		es := nextBatches(e.l, rng, 1, 1, 3, 500)
		w, err := e.l.Place(es)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Do(); err != nil {
			if !errors.Is(err, ErrDiskFull) {
				t.Fatal(err)
			}
			used := e.fs.Used()
			if err := e.l.Undo(w); err != nil {
				t.Fatal(err)
			}
			w.Release()
			if e.fs.Used() > used {
				t.Error("undo takes space")
			}
			break
		}
		w.Release()
		all = append(all, es...)
	}
	if len(all) < 10 {
		t.Fatalf("only %d batches fit", len(all))
	}
	checkReads(t, e.l, all, rng)
	e.l.Applied(e.l.LastIndex())
	e.l.Checkpointed(e.l.LastIndex())
	e.l.Trim(e.l.FirstOffset() + 60)
	if err := e.l.Reap().Do(); err != nil {
		t.Fatal(err)
	}
	all = append(all, e.append(rng, 1, 2, 3, 500)...)
	checkReads(t, e.l, all[e.l.FirstIndex()-1:], rng)
}

// TestFailedFlush: after a failed flush nothing more is accepted.
func TestFailedFlush(t *testing.T) {
	for _, kind := range []vfs.OpKind{vfs.OpSync, vfs.OpSyncDir} {
		t.Run(kind.String(), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 1))
			f := newFaultEnv(t, Options{})
			es := nextBatches(f.l, rng, 1, 1, 1, 10)
			w, err := f.l.Place(es)
			if err != nil {
				t.Fatal(err)
			}
			f.fail = func(op vfs.Op) error {
				if op.Kind == kind {
					return syscall.EIO
				}
				return nil
			}
			if err := w.Do(); err != nil {
				t.Fatal(err)
			}
			if err := w.Sync(); !errors.Is(err, ErrSyncFailed) || !errors.Is(err, syscall.EIO) {
				t.Fatalf("sync: %v", err)
			}
			f.fail = nil
			if err := f.l.Sync(); !errors.Is(err, ErrSyncFailed) {
				t.Errorf("sync again: %v", err)
			}
			if _, err := f.l.Place([]Entry{{Index: 2, Term: 1, Data: nil}}); !errors.Is(err, ErrSyncFailed) {
				t.Errorf("place: %v", err)
			}
			if err := f.l.Read(&ReadBuffer{}, 0, 1, 1, 1); !errors.Is(err, ErrSyncFailed) {
				t.Errorf("read: %v", err)
			}
			if err := f.l.Err(); !errors.Is(err, ErrSyncFailed) {
				t.Errorf("err: %v", err)
			}
			if err := f.l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestFlushRound flushes many writes of many logs together: each file once,
// and the failure of one log stays its own.
func TestFlushRound(t *testing.T) {
	m := vfs.NewMem(1)
	syncs := map[string]int{}
	var bad string
	mu := make(chan struct{}, 1)
	fs := vfs.NewFaulty(m, func(op vfs.Op) error {
		if op.Kind == vfs.OpSync {
			mu <- struct{}{}
			syncs[op.Name]++
			<-mu
			if op.Name == bad {
				return syscall.EIO
			}
		}
		return nil
	})
	h, c := NewHandles(20, 1<<20), NewCache(1<<20)
	var logs []*Log
	for i := range 20 {
		l, _, err := Open(fs, fmt.Sprint("node/", i), Options{Group: uint64(i), Handles: h, Cache: c}, 0)
		if err != nil {
			t.Fatal(err)
		}
		logs = append(logs, l)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var ws []*Write
	for range 3 {
		for _, l := range logs {
			w, err := l.Place(nextBatches(l, rng, 1, 2, 2, 100))
			if err != nil {
				t.Fatal(err)
			}
			ws = append(ws, w)
		}
	}
	bad = logs[7].segs[0].path + ".log"
	if err := Flush(ws, 16); !errors.Is(err, ErrSyncFailed) {
		t.Fatalf("flush: %v", err)
	}
	for i, w := range ws {
		if (w.Err() != nil) != (i%20 == 7) {
			t.Errorf("write %d of log %d: %v", i/20, i%20, w.Err())
		}
	}
	for name, n := range syncs {
		if n != 1 {
			t.Errorf("%s flushed %d times", name, n)
		}
	}
	if len(syncs) != 20 {
		t.Errorf("%d files flushed", len(syncs))
	}
	// Flushed files need not stay open.
	if h.pinned != 0 {
		t.Errorf("%d files are kept open", h.pinned)
	}
	after := m.CrashClone(1)
	for i := range logs {
		l, _, err := Open(after, fmt.Sprint("node/", i), Options{Group: uint64(i)}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if i != 7 && l.LastIndex() != 6 {
			t.Errorf("log %d ends with %d", i, l.LastIndex())
		}
	}
}

// TestReadError: an I/O error is reported, and is not damage.
func TestReadError(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	f := newFaultEnv(t, Options{})
	f.append(rng, 1, 3, 2, 300)
	f.l.Applied(3)
	f.l.evictAll()
	f.fail = func(op vfs.Op) error {
		if op.Kind == vfs.OpRead {
			return syscall.EIO
		}
		return nil
	}
	var buf ReadBuffer
	var damage *DamageError
	if err := f.l.Read(&buf, 0, 1, 1, 10); !errors.Is(err, syscall.EIO) || errors.As(err, &damage) {
		t.Errorf("read: %v", err)
	}
	buf.Release()
	if _, err := f.l.Entries(1, 2, 1); !errors.Is(err, syscall.EIO) || errors.As(err, &damage) {
		t.Errorf("entries: %v", err)
	}
	f.fail = nil
	if err := f.l.Read(&buf, 0, 1, 1, 10); err != nil || buf.Count != 1 {
		t.Errorf("read: %v", err)
	}
	buf.Release()
}

// TestFlushTogether: writes of one round that follow each other in a file are done with one call. When it fails at any
// point, what is done and what is not is known of each, and what is not can be done again.
func TestFlushTogether(t *testing.T) {
	for n := range 40 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(n), 1))
			f := newFaultEnv(t, Options{SegmentBytes: 5000})
			all := f.append(rng, 1, 2, 2, 300)
			var ws []*Write
			place := func(es ...Entry) {
				t.Helper()
				w, err := f.l.Place(es)
				if err != nil {
					t.Fatal(err)
				}
				ws = append(ws, w)
			}
			for range 12 { // the files are full now and then
				es := nextBatches(f.l, rng, 1, 1, 2, 300)
				place(es...)
				all = append(all, es...)
			}
			// One cuts into those before it, more follow.
			keep := len(all) - 3
			offset := BaseOffset(all[keep].Data)
			all = append(all[:keep], Entry{Index: all[keep].Index, Term: 2, Data: batchOf(rng, offset, 500, 2, 300)})
			place(all[keep])
			for range 5 {
				es := nextBatches(f.l, rng, 2, 1, 2, 300)
				place(es...)
				all = append(all, es...)
			}
			left, calls := n, 0
			f.fail = func(op vfs.Op) error {
				if op.Kind == vfs.OpSync || op.Kind == vfs.OpSyncDir || !op.Kind.Changes() {
					return nil
				}
				if op.Kind == vfs.OpWrite && strings.HasSuffix(op.Name, logSuffix) {
					calls++
				}
				if left--; left < 0 {
					return &vfs.PartialError{N: min(100*n, op.Len), Err: syscall.ENOSPC}
				}
				return nil
			}
			err := Flush(ws, 1)
			f.fail = nil
			var again []*Write
			for i, w := range ws {
				switch {
				case w.Err() == nil && len(again) > 0:
					t.Fatalf("write %d was done, one before it was not", i)
				case w.Err() == nil:
				case len(again) == 0 && !errors.Is(w.Err(), ErrDiskFull):
					t.Fatalf("write %d: %v", i, w.Err())
				default:
					again = append(again, w)
				}
			}
			switch {
			case (err != nil) != (len(again) > 0):
				t.Fatalf("the round: %v, %d writes not done", err, len(again))
			case err == nil && calls > len(ws)/2:
				t.Errorf("%d calls for %d writes", calls, len(ws))
			}
			if len(again) > 0 {
				if err := Flush(again, 1); err != nil {
					t.Fatal(err)
				}
			}
			f.mustHold(t, all, rng)
		})
	}
}
