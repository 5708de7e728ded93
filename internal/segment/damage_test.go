package segment

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/whippetmq/whippet/internal/vfs"
)

// damaged is a log of three segments, flushed, with its entries.
func damaged(t *testing.T) (*env, []Entry) {
	rng := rand.New(rand.NewPCG(8, 8))
	e := newEnv(t, Options{SegmentBytes: 3000})
	var all []Entry
	for len(e.l.Segments()) < 3 || e.l.Segments()[2].FileBytes < 2000 {
		c := Entry{Index: e.l.LastIndex() + 1, Term: 1, Data: AppendControl(nil, KindCommands, payload(rng, 50))}
		e.put(c)
		all = append(append(all, c), e.append(rng, 1, 1, 2, 300)...)
	}
	if err := e.l.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := e.l.Close(); err != nil {
		t.Fatal(err)
	}
	return e, all
}

// outcome opens a log with something wrong and checks the one rule that always
// holds: what it serves is what was written. It returns the last index, or the
// damage.
func outcome(t *testing.T, fs vfs.FS, o Options, verified uint64, all []Entry) (last uint64, damage *DamageError) {
	t.Helper()
	o.Handles, o.Cache = nil, nil
	l, _, err := Open(fs, testDir, o, verified)
	if errors.As(err, &damage) {
		return 0, damage
	}
	if err != nil {
		t.Fatal(err)
	}
	last = l.LastIndex()
	got, err := allEntries(l, 1)
	if err != nil && !errors.As(err, &damage) {
		t.Fatal(err)
	}
	if err := sameEntries(got, all[:len(got)]); err != nil {
		t.Fatal(err)
	}
	var want []message
	for _, e := range all[:last] {
		if IsData(e.Data) {
			want = append(want, messagesOf(e.Data)...)
		}
	}
	var buf ReadBuffer
	for next := uint64(0); next < l.NextOffset(); {
		buf.Release()
		if err := l.Read(&buf, next, 1000, 700, ^uint64(0)); err != nil {
			if !errors.As(err, &damage) {
				t.Fatal(err)
			}
			// Go on behind it.
			next++
			continue
		}
		got, err := parseRead(&buf)
		if err != nil {
			t.Fatalf("served from %d: %v", next, err)
		}
		if err := sameMessages(got, want[buf.First:buf.Last+1]); err != nil {
			t.Fatalf("served from %d: %v", next, err)
		}
		next = buf.Last + 1
	}
	buf.Release()
	return last, damage
}

// TestFlippedBits flips a bit in every byte of every file: what is wrong is
// never served; in the last record it is a torn end, elsewhere it is damage.
func TestFlippedBits(t *testing.T) {
	e, all := damaged(t)
	segs := e.l.Segments()
	lastSeg := segs[2]
	lastStart := lastSeg.FileBytes - recordLength(all[len(all)-1].Data)
	// Each byte meets two of the six combinations, each combination two bytes
	// out of six, so that every field meets all of them.
	step, combination := int64(every(29)), int64(0)
	for _, sameBoot := range []bool{true, false} {
		for _, verified := range []uint64{0, segs[1].LastIndex, lastSeg.LastIndex} {
			first := combination % 3
			combination++
			t.Run(fmt.Sprint("boot=", sameBoot, " verified=", verified), func(t *testing.T) {
				o := e.o
				o.SameBoot = sameBoot
				for si, s := range segs {
					for off := first * step; off < s.FileBytes; off += 3 * step {
						fs := e.fs.KillClone()
						if !fs.Corrupt(s.File, off, 1<<(off%8)) {
							t.Fatal("no such byte")
						}
						last, damage := outcome(t, fs, o, verified, all)
						at := fmt.Sprintf("%s byte %d: last %d, %v", s.File, off, last, damage)
						inLast := si == 2 && off >= lastStart
						switch {
						case inLast && verified == lastSeg.LastIndex:
							// A checkpoint vouches for it: found now or when
							// it is read, not cut.
							if damage == nil {
								t.Fatal(at)
							}
						case inLast:
							if last != lastSeg.LastIndex-1 || damage != nil {
								t.Fatal(at)
							}
						case sameBoot || s.LastIndex <= verified:
							if damage == nil {
								t.Fatal(at)
							}
						case damage == nil && last >= lastSeg.LastIndex:
							t.Fatal(at)
						}
						if damage != nil && damage.File == "" {
							t.Fatal(at)
						}
					}
				}
			})
		}
	}
}

// TestTornLastRecord cuts the file inside the last record, at every byte, and
// leaves zeros or garbage behind the cut.
func TestTornLastRecord(t *testing.T) {
	e, all := damaged(t)
	last := e.l.Segments()[2]
	start := last.FileBytes - recordLength(all[len(all)-2].Data) - recordLength(all[len(all)-1].Data)
	rng := rand.New(rand.NewPCG(1, 2))
	step := int64(every(9))
	for size := start; size <= last.FileBytes; size += step {
		for i, tail := range [][]byte{nil, make([]byte, 700), payload(rng, 700)} {
			fs := e.fs.KillClone()
			f, err := fs.OpenFile(last.File, os.O_RDWR)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Truncate(size); err != nil {
				t.Fatal(err)
			}
			if len(tail) > 0 {
				if _, err := f.WriteAt(tail, size); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
			want := last.LastIndex - 2
			end := start + recordLength(all[len(all)-2].Data)
			if size >= end || size >= end-6 && len(tail) > 0 && tail[0]|tail[1]|tail[2]|tail[3]|tail[4]|tail[5] == 0 {
				want++ // also when only its padding is cut, and zeros follow
			}
			if size == last.FileBytes {
				want++
			}
			o := e.o
			o.SameBoot = (size+int64(i))%2 == 0 // each kind of tail meets both, at neighbouring bytes
			copied := fs.KillClone()
			got, damage := outcome(t, copied, o, 0, all)
			if got != want || damage != nil {
				t.Fatalf("cut at %d with %d bytes behind: last %d, want %d, %v", size, len(tail), got, want, damage)
			}
			if got, _ = outcome(t, copied.CrashClone(1), o, 0, all); got != want {
				t.Fatalf("cut at %d: second open has last %d, want %d", size, got, want)
			}
			// What a checkpoint covers must not be cut.
			if want < last.LastIndex {
				if _, damage := outcome(t, fs.KillClone(), o, want+1, all); damage == nil {
					t.Fatalf("cut at %d below the checkpoint is no damage", size)
				}
			}
		}
	}
}

// TestTornSectors loses each sector of the unflushed end.
func TestTornSectors(t *testing.T) {
	e, all := damaged(t)
	last := e.l.Segments()[2]
	for at := int64(0); at < last.FileBytes; at += 512 {
		fs := e.fs.KillClone()
		f, err := fs.OpenFile(last.File, os.O_RDWR)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(make([]byte, min(512, last.FileBytes-at)), at); err != nil {
			t.Fatal(err)
		}
		got, damage := outcome(t, fs, e.o, last.FirstIndex-1, all)
		if damage != nil || got >= last.LastIndex {
			t.Errorf("sector at %d: last %d, %v", at, got, damage)
		}
	}
}

// TestBadIndex removes, cuts, garbles and swaps the index files.
func TestBadIndex(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	e := newEnv(t, Options{SegmentBytes: 400 << 10})
	var all []Entry
	for n := 0; n < 3 || e.l.active().end.pos < 300<<10; n = len(e.l.Segments()) {
		all = append(all, e.append(rng, 1, 4, 3, 10_000)...)
	}
	if err := e.l.Close(); err != nil {
		t.Fatal(err)
	}
	segs := e.l.Segments()
	if len(segs) < 3 {
		t.Fatalf("%d segments", len(segs))
	}
	index := func(i int) string { return strings.TrimSuffix(segs[i].File, ".log") + ".index" }
	content := func(fs vfs.FS, i int) []byte {
		b, err := vfs.ReadFile(fs, index(i), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	put := func(fs vfs.FS, name string, b []byte) {
		f, err := fs.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
	}
	nth := 0
	for i := range segs {
		good := content(e.fs, i)
		if len(good) < 3*indexEntrySize {
			t.Fatalf("index of segment %d has %d bytes", i, len(good))
		}
		cases := map[string]func(fs *vfs.Mem){
			"missing":  func(fs *vfs.Mem) { _ = fs.Remove(index(i)) },
			"empty":    func(fs *vfs.Mem) { put(fs, index(i), nil) },
			"garbage":  func(fs *vfs.Mem) { put(fs, index(i), payload(rng, len(good))) },
			"zeros":    func(fs *vfs.Mem) { put(fs, index(i), make([]byte, len(good))) },
			"of other": func(fs *vfs.Mem) { put(fs, index(i), content(fs, (i+1)%len(segs))) },
			"reversed": func(fs *vfs.Mem) {
				b := bytes.Clone(good)
				copy(b[32:64], good[64:96])
				copy(b[64:96], good[32:64])
				put(fs, index(i), b)
			},
			"trailing garbage": func(fs *vfs.Mem) { put(fs, index(i), append(bytes.Clone(good), payload(rng, 50)...)) },
			// Whole entries with right checksums that point to no record, as
			// they could be left from before a cut.
			"stale": func(fs *vfs.Mem) {
				b := bytes.Clone(good[:32])
				s := e.l.segs[i]
				for k := range uint32(5) {
					b = appendIndexEntry(b, s.key, indexEntry{offset: k + 2, index: k + 1, pos: 1000 + k*70_000, ts: 5}, 0, false)
				}
				put(fs, index(i), b)
			},
		}
		for _, n := range []int{1, 31, 33, len(good) / 2, len(good) - 33, len(good) - 1} {
			cases[fmt.Sprint("cut at ", n)] = func(fs *vfs.Mem) { put(fs, index(i), good[:n]) }
		}
		for name, change := range cases {
			for _, boot := range []bool{true, false} {
				for _, verified := range []uint64{0, uint64(len(all))} {
					if nth++; nth%every(2) != 0 {
						continue
					}
					fs := e.fs.KillClone()
					change(fs)
					o := e.o
					o.SameBoot = boot
					last, damage := outcome(t, fs, o, verified, all)
					if damage != nil || last != uint64(len(all)) {
						t.Errorf("segment %d, index %s, boot %v: last %d, %v", i, name, boot, last, damage)
					}
				}
			}
		}
	}
}

// TestLostFiles removes segment files.
func TestLostFiles(t *testing.T) {
	e, all := damaged(t)
	segs := e.l.Segments()
	last := segs[2].LastIndex
	for _, c := range []struct {
		name     string
		remove   []int
		verified uint64
		boot     bool
		last     uint64 // 0 = damage
	}{
		{"last, not covered", []int{2}, segs[0].LastIndex, true, segs[1].LastIndex},
		{"last, covered", []int{2}, segs[2].FirstIndex, true, 0},
		{"last two, covered", []int{1, 2}, segs[1].FirstIndex, false, 0},
		{"middle, same boot", []int{1}, 0, true, 0},
		{"middle, covered", []int{1}, last, false, 0},
		{"middle, flushed", []int{1}, 0, false, 0},
		{"first", []int{0}, 0, true, 0},
		{"first, other boot", []int{0}, 0, false, 0},
		{"first, as if trimmed", []int{0}, segs[0].LastIndex, true, last},
		{"all", []int{0, 1, 2}, 0, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := e.fs.KillClone()
			for _, i := range c.remove {
				if err := fs.Remove(segs[i].File); err != nil {
					t.Fatal(err)
				}
			}
			o := e.o
			o.SameBoot, o.Handles, o.Cache = c.boot, nil, nil
			before, _ := fs.List(testDir + "/0")
			l, _, err := Open(fs, testDir, o, c.verified)
			var damage *DamageError
			switch {
			case c.name == "all":
				if err != nil || l.LastIndex() != 0 {
					t.Errorf("empty directory: %v", err)
				}
			case c.last == 0:
				if !errors.As(err, &damage) {
					t.Fatalf("opened: %v", err)
				}
				if after, _ := fs.List(testDir + "/0"); len(after) != len(before) {
					t.Error("files were changed")
				}
			case err != nil:
				t.Fatal(err)
			case l.LastIndex() != c.last:
				t.Errorf("last index %d, want %d", l.LastIndex(), c.last)
			}
		})
	}
	if _, _, err := Open(vfs.NewMem(1), testDir, e.o, 5); err == nil {
		t.Error("nothing there, although a checkpoint covers entries")
	}
	_ = all
}

// TestForeignFiles opens directories with files that are not ours, of another
// group, or of a newer version: nothing may be deleted.
func TestForeignFiles(t *testing.T) {
	e, all := damaged(t)
	fs := e.fs.KillClone()
	for _, name := range []string{"/0/notes.txt", "/0/123.log", "/0/0000000000000000000x.log", "/state-x.ckpt", "/0/00000000000000000000-0.log"} {
		if _, err := fs.Create(testDir + name); err != nil {
			t.Fatal(err)
		}
	}
	if err := fs.MkdirAll(testDir + "/backup"); err != nil {
		t.Fatal(err)
	}
	if last, damage := outcome(t, fs, e.o, 0, all); damage != nil || last != uint64(len(all)) {
		t.Errorf("last %d, %v", last, damage)
	}
	o := e.o
	o.Group++
	if _, damage := outcome(t, e.fs.KillClone(), o, 0, all); damage == nil {
		t.Error("opened the log of another group")
	}
}

func TestDump(t *testing.T) {
	e, all := damaged(t)
	if err := WriteCheckpoint(e.fs, testDir, testGroup, 3, nil); err != nil {
		t.Fatal(err)
	}
	s := dumpText(t, e.fs, testDir)
	if strings.Contains(s, "DAMAGE") || strings.Count(s, "index=") != len(all) || strings.Count(s, "segment ") != 3 ||
		!strings.Contains(s, "checkpoint state-3.ckpt") || !strings.Contains(s, "client=00000000000022220000000000001111 request=1 user=9 flags=4") {
		t.Errorf("dump:\n%s", s)
	}
	for _, seg := range e.l.Segments() {
		for off := int64(0); off < seg.FileBytes; off += 13 * int64(every(1)) {
			fs := e.fs.KillClone()
			fs.Corrupt(seg.File, off, 0x10)
			s := dumpText(t, fs, testDir)
			if strings.Count(s, "DAMAGE") == 0 || off >= 64 && strings.Count(s, "index=") < len(all)-1 {
				t.Fatalf("%s byte %d:\n%s", seg.File, off, s)
			}
		}
	}
	if s := dumpText(t, vfs.NewMem(1), "nowhere"); s != "" {
		t.Errorf("dump of nothing: %q", s)
	}
	stop := errors.New("enough")
	items := 0
	if err := Dump(e.fs, testDir, func(DumpItem) error { items++; return stop }); !errors.Is(err, stop) || items != 1 {
		t.Errorf("%d items before the visitor's error, %v", items, err)
	}
}

// dumpText is a dump as lines of text.
func dumpText(t interface {
	Helper()
	Fatal(args ...any)
}, fs vfs.FS, dir string) string {
	t.Helper()
	var out strings.Builder
	if err := Dump(fs, dir, func(i DumpItem) error {
		_, err := fmt.Fprintln(&out, i)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// FuzzOpen opens arbitrary bytes as a segment and its index.
func FuzzOpen(f *testing.F) {
	e := &env{t: f, fs: vfs.NewMem(1), o: Options{Group: testGroup}}
	e.open(0)
	rng := rand.New(rand.NewPCG(1, 1))
	e.append(rng, 1, 3, 2, 100)
	_ = e.l.Close()
	log, _ := vfs.ReadFile(e.fs, testDir+"/0/00000000000000000000.log", 1<<20)
	index, _ := vfs.ReadFile(e.fs, testDir+"/0/00000000000000000000.index", 1<<20)
	f.Add(log, index, true)
	f.Add(log[:len(log)-5], []byte{}, false)
	f.Fuzz(func(t *testing.T, log, index []byte, boot bool) {
		fs := vfs.NewMem(1)
		if err := fs.MkdirAll(testDir + "/0"); err != nil {
			t.Fatal(err)
		}
		for name, b := range map[string][]byte{"log": log, "index": index} {
			file, err := fs.Create(testDir + "/0/00000000000000000000." + name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := file.WriteAt(b, 0); err != nil {
				t.Fatal(err)
			}
		}
		_ = dumpText(t, fs, testDir)
		l, _, err := Open(fs, testDir, Options{Group: testGroup, SameBoot: boot}, 0)
		if err != nil {
			return
		}
		if _, err := allEntries(l, 1<<20); err != nil {
			t.Log(err)
		}
		var buf ReadBuffer
		if err := l.Read(&buf, 0, 100, 1000, ^uint64(0)); err == nil {
			if _, err := parseRead(&buf); err != nil {
				t.Fatal(err)
			}
		}
		buf.Release()
	})
}
