package segment

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/whippetmq/whippet/internal/vfs"
)

// model is the log as a slice, with what may be found after a crash: any
// beginning of one of the versions that existed since the last flush, but no
// less than what is certain.
type model struct {
	entries  []Entry   // from index 1
	versions [][]Entry // that a crash may bring back
	written  uint64    // certain after a kill
	flushed  uint64    // certain after a crash
	killed   [][]Entry // versions that a kill may leave
}

func clip(es []Entry) []Entry { return es[:len(es):len(es)] }

func (m *model) place(es []Entry) {
	k := es[0].Index - 1
	m.written, m.flushed = min(m.written, k), min(m.flushed, k)
	m.entries = append(clip(m.entries[:k]), es...)
	m.versions = append(m.versions, m.entries)
	m.killed = append(m.killed, m.entries)
}

func (m *model) undo(last uint64) {
	m.entries = clip(m.entries[:last])
	m.versions = append(m.versions, m.entries)
	m.killed = append(m.killed, m.entries)
}

func (m *model) did(last uint64) {
	m.written = last
	m.killed = [][]Entry{m.entries}
}

func (m *model) synced() {
	m.flushed = m.written
	m.versions = [][]Entry{m.entries}
}

// matches tells whether a log is one that may be found.
func (m *model) matches(l *Log, crash bool) error {
	got, err := allEntries(l, 1<<20)
	if err != nil {
		return err
	}
	first, last := l.FirstIndex(), l.LastIndex()
	certain, versions := m.written, m.killed
	if crash {
		certain, versions = m.flushed, m.versions
	}
	if last < certain {
		return fmt.Errorf("log ends with %d, %d is certain", last, certain)
	}
	for _, v := range versions {
		if last <= uint64(len(v)) && first <= last+1 {
			if err = sameEntries(got, v[first-1:last]); err == nil {
				return nil
			}
		}
	}
	return fmt.Errorf("entries %d..%d are no version: %w", first, last, err)
}

// crashMachine drives a log and a model, and looks at crashed and killed copies
// of the file system at every operation that changes it.
type crashMachine struct {
	t        *rapid.T
	fs       *vfs.Mem
	l        *Log
	o        Options
	m        *model
	rng      *rand.Rand
	term     uint64
	seed     uint64
	pending  []*Write
	applied  uint64
	verified uint64
	probing  bool
	every    int
	ops      int
	fail     func(vfs.Op) error
}

func (c *crashMachine) hook(op vfs.Op) error {
	if !op.Kind.Changes() {
		return nil
	}
	if c.fail != nil {
		if err := c.fail(op); err != nil {
			return err
		}
	}
	c.ops++
	if c.ops%c.every == 0 {
		c.probe("before " + op.Kind.String() + " " + op.Name)
	}
	return nil
}

// probe opens what a crash and a kill would leave now.
func (c *crashMachine) probe(when string) {
	if c.probing {
		return
	}
	c.probing = true
	defer func() { c.probing = false }()
	c.seed++
	for _, crash := range []bool{true, false} {
		fs := c.fs.KillClone()
		if crash {
			fs = c.fs.CrashClone(c.seed)
		}
		o := c.o
		o.SameBoot = !crash
		o.Handles, o.Cache = nil, nil
		fatal := func(format string, args ...any) {
			c.t.Fatalf("%s, crash %v (seed %d): %s", when, crash, c.seed, fmt.Sprintf(format, args...))
		}
		l, rec, err := Open(fs, testDir, o, c.verified)
		if err != nil {
			var damage *DamageError
			if errors.As(err, &damage) && crash && c.m.flushed == 0 && c.verified == 0 {
				// The first file of a log that was never flushed is lost and a
				// later one is not: nobody can tell that from damage.
				continue
			}
			fatal("open: %v\n%s", err, dumpText(c.t, fs, testDir))
		}
		if err := c.m.matches(l, crash); err != nil {
			fatal("recovery %+v: %v", rec, err)
		}
		// The log must take new entries, flush them, and have them after the
		// next crash; and nothing that was cut may come back.
		es := nextBatches(l, c.rng, c.term+100, 2, 2, 300)
		w, err := l.Place(es)
		if err != nil {
			fatal("place: %v", err)
		}
		if err := Flush([]*Write{w}, 2); err != nil {
			fatal("flush: %v", err)
		}
		w.Release()
		l, rec, err = Open(fs.CrashClone(c.seed+1000), testDir, o, c.verified)
		if err != nil {
			fatal("open after append: %v", err)
		}
		got, err := entriesFrom(l, es[0].Index, 1<<20)
		if err == nil {
			err = sameEntries(got, es)
		}
		if err != nil || l.LastIndex() != es[1].Index || rec.Torn != "" {
			fatal("entries appended after it: %v (%+v)", err, rec)
		}
	}
}

func (c *crashMachine) doNext() {
	w := c.pending[0]
	if err := w.Do(); err != nil {
		c.t.Fatal(err)
	}
	c.pending = c.pending[1:]
	last := w.Last()
	if len(c.pending) == 0 {
		c.m.did(min(last, uint64(len(c.m.entries))))
	} else {
		low := last
		for _, p := range c.pending {
			low = min(low, p.First()-1)
		}
		c.m.written = low
	}
	w.Release()
}

func (c *crashMachine) flush() {
	for len(c.pending) > 0 {
		c.doNext()
	}
	if err := c.l.Sync(); err != nil {
		c.t.Fatal(err)
	}
	c.m.synced()
}

func (c *crashMachine) newEntries(t *rapid.T, at state) []Entry {
	var es []Entry
	for range rapid.IntRange(1, 4).Draw(t, "n") {
		e := Entry{Index: at.index + 1, Term: c.term}
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0:
		case 1, 2:
			e.Data = AppendControl(nil, KindCommands, payload(c.rng, c.rng.IntN(1500)))
		case 3:
			if c.rng.IntN(4) == 0 {
				at.gen++
				at.offset = 0
				e.Data = AppendControl(nil, KindPurge, le.AppendUint64(nil, at.gen))
				break
			}
			fallthrough
		default:
			n := 1 + c.rng.IntN(4)
			e.Data = batchOf(c.rng, at.offset, at.ts+1, n, 600)
			at.offset += uint64(n)
			at.ts++
		}
		at.index++
		es = append(es, e)
	}
	return es
}

func TestCrash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		c := &crashMachine{
			t: t, fs: vfs.NewMem(seed), m: &model{}, rng: rand.New(rand.NewPCG(seed, 1)), term: 1,
			every: rapid.IntRange(1, 3).Draw(t, "every"),
		}
		c.m.versions, c.m.killed = [][]Entry{nil}, [][]Entry{nil}
		c.o = Options{Group: testGroup, SegmentBytes: 4000, ControlBytes: 2000, Handles: NewHandles(3, 4096), Cache: NewCache(8000)}
		open := func() {
			l, _, err := Open(vfs.NewFaulty(c.fs, c.hook), testDir, c.o, c.verified)
			if err != nil {
				t.Fatal(err)
			}
			c.l = l
		}
		open()
		place := func(t *rapid.T, es []Entry) {
			// The model first: the files change from here on.
			before := *c.m
			c.m.place(es)
			w, err := c.l.Place(es)
			if err != nil {
				*c.m = before
				t.Fatal(err)
			}
			c.pending = append(c.pending, w)
			for i := range c.pending {
				c.m.written = min(c.m.written, c.pending[i].First()-1)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				st := c.l.active().end
				place(t, c.newEntries(t, st))
			},
			"conflict": func(t *rapid.T) {
				if c.l.LastIndex() <= c.applied {
					t.Skip()
				}
				k := rapid.Uint64Range(c.applied, c.l.LastIndex()-1).Draw(t, "k")
				if k+1 < c.l.FirstIndex() {
					t.Skip()
				}
				st, err := c.l.stateBehind(k)
				if err != nil {
					t.Fatal(err)
				}
				c.term++
				place(t, c.newEntries(t, st))
			},
			"do": func(t *rapid.T) {
				if len(c.pending) == 0 {
					t.Skip()
				}
				c.doNext()
			},
			"flush": func(*rapid.T) { c.flush() },
			"apply": func(t *rapid.T) {
				if len(c.pending) > 0 || c.m.written <= c.applied {
					t.Skip()
				}
				// Applied means committed: it must survive, so it is flushed.
				c.flush()
				c.applied = rapid.Uint64Range(c.applied, c.m.flushed).Draw(t, "applied")
				c.l.Applied(c.applied)
			},
			"checkpoint": func(t *rapid.T) {
				if c.applied == 0 {
					t.Skip()
				}
				c.verified = c.applied
				c.l.Checkpointed(c.applied)
			},
			"trim": func(t *rapid.T) {
				c.l.Trim(c.l.FirstOffset() + uint64(c.rng.IntN(30)))
				if r := c.l.Reap(); r != nil {
					// The removal flushes what is written.
					c.flush()
					if err := r.Do(); err != nil {
						t.Fatal(err)
					}
				}
			},
			"full": func(t *rapid.T) {
				if len(c.pending) == 0 {
					t.Skip()
				}
				// The disk is full in the middle of the next write.
				n := rapid.IntRange(0, 3).Draw(t, "at")
				part := rapid.IntRange(0, 3000).Draw(t, "part")
				c.fail = func(op vfs.Op) error {
					if op.Kind != vfs.OpWrite && op.Kind != vfs.OpCreate {
						return nil
					}
					if n--; n < 0 {
						return &vfs.PartialError{N: min(part, op.Len), Err: syscall.ENOSPC}
					}
					return nil
				}
				w := c.pending[0]
				err := w.Do()
				c.fail = nil
				if err == nil {
					// Only the index met the full disk.
					c.pending = append([]*Write{w}, c.pending[1:]...)
					c.pending = c.pending[1:]
					if len(c.pending) == 0 {
						c.m.did(w.Last())
					}
					return
				}
				if !errors.Is(err, ErrDiskFull) {
					t.Fatalf("error %v", err)
				}
				if rapid.Bool().Draw(t, "undo") {
					first := w.First()
					if err := c.l.Undo(w); err != nil {
						t.Fatal(err)
					}
					for _, p := range c.pending {
						first = min(first, p.First())
						if err := p.Do(); !errors.Is(err, ErrOrder) {
							t.Fatalf("undone write: %v", err)
						}
						p.Release()
					}
					c.pending = nil
					c.m.undo(first - 1)
				}
			},
			"reopen": func(t *rapid.T) {
				for len(c.pending) > 0 {
					c.doNext()
				}
				if err := c.l.Close(); err != nil {
					t.Fatal(err)
				}
				c.o.SameBoot = rapid.Bool().Draw(t, "boot")
				open()
				if !c.o.SameBoot {
					if err := c.l.Sync(); err != nil {
						t.Fatal(err)
					}
					c.m.synced()
				}
				c.l.Applied(c.applied)
			},
			"": func(t *rapid.T) {
				got, err := allEntries(c.l, 3000)
				if err != nil {
					t.Fatal(err)
				}
				first := c.l.FirstIndex()
				if err := sameEntries(got, c.m.entries[first-1:]); err != nil {
					t.Fatal(err)
				}
				var all []message
				gen := c.l.readGen
				for _, s := range c.l.segs {
					for _, e := range c.m.entries[s.start.index:s.end.index] {
						if IsData(e.Data) && s.start.gen == gen {
							all = append(all, messagesOf(e.Data)...)
						}
					}
				}
				if err := tryReads(c.l, all, c.rng); err != nil {
					t.Fatalf("%v\n%+v\n%s", err, c.l.Segments(), dumpText(t, c.fs, testDir))
				}
				for i := first; i <= c.l.LastIndex(); i++ {
					if got, err := c.l.Term(i); err != nil || got != c.m.entries[i-1].Term {
						t.Fatalf("term of %d: %d, %v", i, got, err)
					}
				}
			},
		})
		c.probe("at the end")
	})
}
