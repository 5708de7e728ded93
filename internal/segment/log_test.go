package segment

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/zeebo/xxh3"

	"github.com/whippetmq/whippet/internal/vfs"
)

// TestGoldenBatch checks the checksum code against the vector of the protocol
// text, which was made with the released crates.
func TestGoldenBatch(t *testing.T) {
	header, err := hex.DecodeString("0000000000000000" + "0000000000000000" + "0000000000000000" + "40420f0000000000" +
		"7701000000000000" + "19e3cad3ff4243cb" + "02000000")
	if err != nil {
		t.Fatal(err)
	}
	frames, err := hex.DecodeString("8e5ca59edbbdbfb9010000000000000000000000000000000000000000000000000000000500000000000000000000" +
		"0068656c6c6f" + "9d7bb8be8cb4ec9702000000000000000000000000000000010000000500" + "00000c0000000600000000000000" +
		"00000000" + "776f726c6421" + "02010000006b020100000076")
	if err != nil {
		t.Fatal(err)
	}
	b := append(append(header, make([]byte, 204)...), frames...)
	if len(b) != 375 {
		t.Fatalf("%d bytes", len(b))
	}
	var scratch []byte
	if got, want := batchChecksum(b, b[256:], &scratch), uint64(0xcb4342ffd3cae319); got != want {
		t.Fatalf("checksum %x, want %x", got, want)
	}
	le.PutUint64(b[0:], 3)
	le.PutUint64(b[8:], 100)
	le.PutUint64(b[16:], 2_000_000)
	want := uint64(0xa80a08ab46e22428)
	if got := batchChecksum(b, b[256:], &scratch); got != want {
		t.Fatalf("stamped checksum %x, want %x", got, want)
	}
	le.PutUint64(b[40:], want)
	if reason := verifyBody(b, &record{kind: KindData, count: 2}, &scratch); reason != "" {
		t.Fatal(reason)
	}
}

// TestFormat checks every byte of a small file against docs/storage-format.md.
func TestFormat(t *testing.T) {
	e := newEnv(t, Options{})
	batch := makeBatch(0, 1000, []byte("hello"), []byte("world!"))
	commands := AppendControl(nil, KindCommands, []byte("abc"))
	e.put(Entry{Index: 1, Term: 5, Data: nil}, Entry{Index: 2, Term: 5, Data: batch}, Entry{Index: 3, Term: 6, Data: commands})
	got, err := vfs.ReadFile(e.fs, testDir+"/0/00000000000000000000.log", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	u64 := func(b []byte, v ...uint64) []byte {
		for _, x := range v {
			b = le.AppendUint64(b, x)
		}
		return b
	}
	sum := func(before uint64, header []byte) uint64 { return xxh3.Hash(append(u64(nil, before), header...)) }

	file := u64([]byte("WPSEG\x00\x00\x01"), testGroup, 1, 0, 0, 0, 0)
	file = u64(file, xxh3.Hash(file))

	term := u64([]byte("\xffCTL\x01\x00\x01\x00"), 64, 5, 1, 0, xxh3.Hash(nil), 0)
	chain1 := sum(0, term)
	file = append(file, u64(term, chain1)...)

	h := bytes.Clone(batch[:256])
	copy(h[88:], u64(nil, 5, 2, chain1))
	chain2 := sum(chain1, h[:248])
	copy(h[248:], u64(nil, chain2))
	file = append(append(file, h...), batch[256:]...)

	control := u64([]byte("\xffCTL\x03\x00\x01\x00"), 72, 6, 3, chain2, xxh3.HashString("abc"), 3)
	file = append(u64(append(file, control...), sum(chain2, control)), "abc\x00\x00\x00\x00\x00"...)
	if d := cmp.Diff(file, got); d != "" {
		t.Error(d)
	}
	if got := le.Uint32(batch[52:]); got != 1|1<<16 {
		t.Errorf("stamp kind %x", got)
	}
	want := Origin{ClientLo: 0x1111, ClientHi: 0x2222, Request: 1, User: 9, Flags: 4}
	if o := GetOrigin(batch); o != want {
		t.Errorf("origin %+v, want %+v", o, want)
	}
	pos, err := e.l.PositionAt(2)
	if err != nil || pos != (Position{Index: 2, Term: 5, NextOffset: 2, Chain: chain2, Timestamp: 1000}) {
		t.Errorf("position %+v, %v", pos, err)
	}
}

func TestControlEntries(t *testing.T) {
	for _, kind := range []Kind{KindConfChange, KindCommands, KindTrim, KindPurge, KindForget, KindMetadata, 99} {
		data := AppendControl(nil, kind, []byte("body"))
		k, body, ok := ParseControl(data)
		if !ok || k != kind || string(body) != "body" || IsData(data) || KindOf(data) != kind {
			t.Errorf("%v: got %v %q %v", kind, k, body, ok)
		}
	}
	if k, _, ok := ParseControl(nil); !ok || k != KindTerm {
		t.Errorf("empty: %v %v", k, ok)
	}
	b := makeBatch(0, 1, []byte("x"))
	if _, _, ok := ParseControl(b); ok || !IsData(b) || KindOf(b) != KindData {
		t.Error("batch taken for control")
	}
	if IsData(b[:len(b)-1]) || IsData(b[:100]) {
		t.Error("cut batch taken for data")
	}
}

func TestAppendReopenRead(t *testing.T) {
	for _, size := range []int{10, 900, 3000, 200_000} {
		if raceEnabled && size > 3000 {
			continue // one goroutine, and much memory
		}
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, uint64(size)))
			e := newEnv(t, Options{SegmentBytes: int64(size) * 40})
			var want []Entry
			for i := range 40 {
				switch i % 5 {
				case 3:
					c := Entry{Index: e.l.LastIndex() + 1, Term: 2, Data: AppendControl(nil, KindCommands, payload(rng, rng.IntN(3000)))}
					e.put(c)
					want = append(want, c)
				case 4:
					c := Entry{Index: e.l.LastIndex() + 1, Term: 2, Data: nil}
					e.put(c)
					want = append(want, c)
				default:
					want = append(want, e.append(rng, 2, 1+rng.IntN(3), 1+rng.IntN(5), size)...)
				}
			}
			check := func(what string) {
				t.Helper()
				for _, n := range []int{1, 5000, 1 << 30} {
					got, err := allEntries(e.l, n)
					if err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					if err := sameEntries(got, want); err != nil {
						t.Fatalf("%s, %d bytes: %v", what, n, err)
					}
				}
				checkReads(t, e.l, want, rng)
			}
			check("memory")
			e.l.Applied(e.l.LastIndex())
			e.l.evict(e.l.LastIndex()/2, 1<<60)
			check("half in memory")
			e.l.evictAll()
			check("file")
			if e.l.SegmentCount() < 2 {
				t.Fatalf("%d segments", e.l.SegmentCount())
			}
			before := e.l.Segments()
			e.reopen(0)
			if d := cmp.Diff(before, e.l.Segments()); d != "" {
				t.Error(d)
			}
			check("reopened")
			e.append(rng, 3, 1, 1, 10)
			if st := e.l.o.Cache.Stats(); st.Misses == 0 || st.EntryMisses == 0 {
				t.Errorf("nothing was read from the file: %+v", st)
			}
		})
	}
}

// checkReads compares reads of all shapes with the entries.
func checkReads(t *testing.T, l *Log, entries []Entry, rng *rand.Rand) {
	t.Helper()
	var all []message
	for _, e := range entries {
		if IsData(e.Data) {
			all = append(all, messagesOf(e.Data)...)
		}
	}
	if err := tryReads(l, all, rng); err != nil {
		t.Fatal(err)
	}
}

func tryReads(l *Log, all []message, rng *rand.Rand) error {
	var buf ReadBuffer
	if len(all) == 0 {
		return nil
	}
	first := all[0].offset
	for range 60 {
		buf.Release()
		from := first + uint64(rng.IntN(len(all)+2))
		count := uint32(1 + rng.IntN(2*len(all)))
		limit := from + uint64(rng.IntN(len(all)+2))
		if rng.IntN(3) == 0 {
			limit = ^uint64(0)
		}
		maxBytes := 1 << 30
		if rng.IntN(2) == 0 {
			maxBytes = 1 + rng.IntN(20000)
		}
		if err := l.Read(&buf, from, count, maxBytes, limit); err != nil {
			return fmt.Errorf("read from %d: %w", from, err)
		}
		got, err := parseRead(&buf)
		if err != nil {
			return fmt.Errorf("read from %d, count %d, bytes %d, limit %d: %w", from, count, maxBytes, limit, err)
		}
		want := all[min(int(from-first), len(all)):]
		want = want[:min(len(want), int(count))]
		for len(want) > 0 && want[len(want)-1].offset >= limit {
			want = want[:len(want)-1]
		}
		if maxBytes < 1<<30 {
			if len(got) == 0 && len(want) > 0 {
				return fmt.Errorf("nothing read from %d", from)
			}
			if buf.Bytes > maxBytes && len(got) > 1 {
				return fmt.Errorf("%d bytes instead of %d", buf.Bytes, maxBytes)
			}
			want = want[:min(len(want), len(got))]
		}
		if err := sameMessages(got, want); err != nil {
			return fmt.Errorf("read from %d, count %d, bytes %d, limit %d: %w", from, count, maxBytes, limit, err)
		}
	}
	// From start to end in steps, as a consumer does.
	next, step := first, 500+rng.IntN(5000)
	for next < first+uint64(len(all)) {
		buf.Release()
		if err := l.Read(&buf, next, uint32(1+rng.IntN(20)), step, ^uint64(0)); err != nil {
			return err
		}
		got, err := parseRead(&buf)
		if err != nil {
			return err
		}
		if len(got) == 0 {
			return fmt.Errorf("nothing read from %d", next)
		}
		if err := sameMessages(got, all[next-first:][:len(got)]); err != nil {
			return err
		}
		next = buf.Last + 1
	}
	buf.Release()
	return nil
}

func TestNamesAndRolls(t *testing.T) {
	e := newEnv(t, Options{SegmentBytes: 2000, ControlBytes: 1000})
	rng := rand.New(rand.NewPCG(1, 1))
	control := func(n int) {
		e.put(Entry{Index: e.l.LastIndex() + 1, Term: 1, Data: AppendControl(nil, KindCommands, payload(rng, n))})
	}
	if n := e.l.SegmentCount(); n != 1 || e.l.Size() != 0 {
		t.Errorf("new log: %d segments, %d bytes", n, e.l.Size())
	}
	control(600)
	control(600) // 1,328 bytes of control: full
	control(1000)
	e.put(Entry{Index: 4, Term: 1, Data: makeBatch(0, 5, payload(rng, 3000))})
	e.put(Entry{Index: 5, Term: 1, Data: makeBatch(1, 6, payload(rng, 100))})
	var names []string
	for _, s := range e.l.Segments() {
		names = append(names, strings.TrimPrefix(s.File, testDir+"/"))
	}
	want := []string{
		"0/00000000000000000000.log", "0/00000000000000000000-3.log", "0/00000000000000000000-4.log", "0/00000000000000000001.log",
	}
	if d := cmp.Diff(want, names); d != "" {
		t.Error(d)
	}
	if got := e.l.SegmentCount(); got != 2 {
		t.Errorf("%d segments counted", got)
	}
	if got := e.l.LastSealed(); got != 4 {
		t.Errorf("last sealed %d", got)
	}
	segs := e.l.Segments()
	e.reopen(0)
	if d := cmp.Diff(segs, e.l.Segments()); d != "" {
		t.Error(d)
	}
}

// TestReplicasAreEqual writes the same entries in different portions, with
// restarts, and compares the files.
func TestReplicasAreEqual(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	a, b := newEnv(t, Options{SegmentBytes: 9000}), newEnv(t, Options{SegmentBytes: 9000})
	var all []Entry
	for range 60 {
		if rng.IntN(4) == 0 {
			c := Entry{Index: a.l.LastIndex() + 1, Term: 1, Data: AppendControl(nil, KindCommands, payload(rng, rng.IntN(2000)))}
			a.put(c)
			all = append(all, c)
		}
		all = append(all, a.append(rng, 1, 1, 3, 600)...)
	}
	for len(all) > 0 {
		n := min(len(all), 1+rng.IntN(9))
		b.put(all[:n]...)
		all = all[n:]
		if rng.IntN(3) == 0 {
			b.reopen(0)
		}
	}
	for _, s := range a.l.Segments() {
		x, err := vfs.ReadFile(a.fs, s.File, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		y, err := vfs.ReadFile(b.fs, s.File, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(x, y) {
			t.Errorf("%s differs", s.File)
		}
	}
}

func TestPlaceRefuses(t *testing.T) {
	e := newEnv(t, Options{})
	e.put(Entry{Index: 1, Term: 2, Data: nil}, Entry{Index: 2, Term: 2, Data: makeBatch(0, 1, []byte("a"))}, Entry{Index: 3, Term: 2, Data: nil})
	e.l.Committed(2)
	noStamp := makeBatch(1, 2, []byte("b"))
	clear(noStamp[52:])
	for _, c := range []struct {
		name string
		e    []Entry
		want error
	}{
		{"empty", nil, ErrInvalidEntry},
		{"gap", []Entry{{Index: 5, Term: 2, Data: nil}}, ErrInvalidEntry},
		{"committed", []Entry{{Index: 2, Term: 3, Data: nil}}, ErrCommitted},
		{"index zero", []Entry{{Index: 0, Term: 3, Data: nil}}, ErrInvalidEntry},
		{"term back", []Entry{{Index: 4, Term: 1, Data: nil}}, ErrInvalidEntry},
		{"not consecutive", []Entry{{Index: 4, Term: 2, Data: nil}, {Index: 6, Term: 2, Data: nil}}, ErrInvalidEntry},
		{"wrong offset", []Entry{{Index: 4, Term: 2, Data: makeBatch(2, 1, []byte("b"))}}, ErrInvalidEntry},
		{"wrong offset after cut", []Entry{{Index: 3, Term: 3, Data: makeBatch(0, 1, []byte("b"))}}, ErrInvalidEntry},
		{"no stamp", []Entry{{Index: 4, Term: 2, Data: noStamp}}, ErrInvalidEntry},
		{"garbage", []Entry{{Index: 4, Term: 2, Data: []byte("garbage")}}, ErrInvalidEntry},
		{"purge without body", []Entry{{Index: 4, Term: 2, Data: AppendControl(nil, KindPurge, nil)}}, ErrInvalidEntry},
		{"purge of old generation", []Entry{{Index: 4, Term: 2, Data: AppendControl(nil, KindPurge, make([]byte, 8))}}, ErrInvalidEntry},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := e.l.Place(c.e); !errors.Is(err, c.want) {
				t.Errorf("got %v", err)
			}
		})
	}
	e.put(Entry{Index: 4, Term: 2, Data: makeBatch(1, 2, []byte("b"))})
	if got, err := allEntries(e.l, 1); err != nil || len(got) != 4 {
		t.Errorf("%d entries, %v", len(got), err)
	}
}

func TestTerms(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	e := newEnv(t, Options{SegmentBytes: 400_000})
	var want []uint64
	term := uint64(1)
	for range 300 {
		if rng.IntN(20) == 0 {
			term += 1 + rng.Uint64N(3)
		}
		e.append(rng, term, 1, 1, 20_000)
		want = append(want, term)
	}
	check := func() {
		t.Helper()
		for i, w := range want {
			if got, err := e.l.Term(uint64(i + 1)); err != nil || got != w {
				t.Fatalf("term of %d is %d, %v; want %d", i+1, got, err, w)
			}
		}
		if got, err := e.l.Term(0); err != nil || got != 0 {
			t.Errorf("term before the first: %d, %v", got, err)
		}
		if _, err := e.l.Term(301); !errors.Is(err, ErrOutOfRange) {
			t.Error(err)
		}
	}
	check()
	for _, boot := range []bool{false, true} {
		e.o.SameBoot = boot
		e.reopen(250)
		check()
	}
	e.l.Applied(300)
	e.l.Checkpointed(300)
	e.l.Trim(150)
	if err := e.l.Reap().Do(); err != nil {
		t.Fatal(err)
	}
	first := e.l.FirstIndex()
	if first < 50 || first > 151 {
		t.Fatalf("first index %d", first)
	}
	if _, err := e.l.Term(first - 2); !errors.Is(err, ErrTrimmed) {
		t.Error(err)
	}
	for _, reopen := range []bool{false, true} {
		if reopen {
			e.reopen(300)
		}
		for i := first - 1; i <= 300; i++ {
			if got, err := e.l.Term(i); err != nil || got != want[i-1] {
				t.Fatalf("term of %d is %d, %v; want %d", i, got, err, want[i-1])
			}
		}
	}
}

func TestOffsetAtTime(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	e := newEnv(t, Options{SegmentBytes: 300_000})
	type at struct{ ts, offset uint64 }
	var all []at
	ts := uint64(1000)
	for range 200 {
		ts += rng.Uint64N(3) * 5
		b := batchOf(rng, e.l.NextOffset(), ts, 1+rng.IntN(3), 4000)
		all = append(all, at{ts, BaseOffset(b)})
		e.put(Entry{Index: e.l.LastIndex() + 1, Term: 1, Data: b})
		if rng.IntN(6) == 0 {
			e.put(Entry{Index: e.l.LastIndex() + 1, Term: 1, Data: AppendControl(nil, KindCommands, payload(rng, 500))})
		}
	}
	check := func() {
		t.Helper()
		for q := uint64(990); q < ts+10; q += 3 {
			want, ok := uint64(0), false
			for _, a := range all {
				if a.ts >= q {
					want, ok = a.offset, true
					break
				}
			}
			got, gotOK, err := e.l.OffsetAtTime(q)
			if err != nil || got != want || gotOK != ok {
				t.Fatalf("time %d: %d %v %v, want %d %v", q, got, gotOK, err, want, ok)
			}
		}
	}
	check()
	e.l.Applied(e.l.LastIndex())
	for i := uint64(1); i < e.l.LastIndex(); i += 29 {
		e.l.evict(i, 1<<60)
		check()
	}
	e.l.evictAll()
	check()
	e.reopen(0)
	check()
}

func TestPurge(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	e := newEnv(t, Options{SegmentBytes: 5000})
	old := e.append(rng, 1, 10, 3, 500)
	purge := Entry{Index: 11, Term: 1, Data: AppendControl(nil, KindPurge, le.AppendUint64(nil, 1))}
	e.put(purge)
	if got := e.l.NextOffset(); got != 0 {
		t.Errorf("next offset %d", got)
	}
	// Readers see the old generation until the purge is applied.
	e.l.Applied(10)
	checkReads(t, e.l, old, rng)
	fresh := []Entry{{Index: 12, Term: 1, Data: makeBatch(0, 5000, []byte("new"))}}
	e.put(fresh...)
	checkReads(t, e.l, old, rng)
	// A purge that was not committed is cut, and the old generation goes on.
	e.put(Entry{Index: 11, Term: 2, Data: makeBatch(30, 6000, []byte("other"))})
	if got := e.l.NextOffset(); got != 31 {
		t.Errorf("next offset after the cut %d", got)
	}
	if list, err := e.fs.List(testDir + "/1"); err != nil || len(list) != 0 {
		t.Errorf("left in the new generation: %v %v", list, err)
	}
	purge.Index, purge.Term = 12, 2
	e.put(purge)
	fresh[0].Index, fresh[0].Term = 13, 2
	e.put(fresh...)
	for range 2 {
		e.l.Applied(11)
		if got := e.l.Size(); got < 5000 {
			t.Errorf("size %d before the purge is applied", got)
		}
		e.l.Applied(12)
		if e.l.FirstOffset() != 0 || e.l.NextOffset() != 1 || e.l.SegmentCount() != 1 {
			t.Errorf("after the purge: %d..%d, %d segments", e.l.FirstOffset(), e.l.NextOffset(), e.l.SegmentCount())
		}
		checkReads(t, e.l, fresh, rng)
		if r := e.l.Reap(); r != nil {
			t.Error("reaped without a checkpoint")
		}
		got, err := allEntries(e.l, 1)
		if err != nil || len(got) != 13 {
			t.Fatalf("%d entries, %v", len(got), err)
		}
		e.reopen(0)
	}
	e.l.Applied(13)
	e.l.evictAll()
	e.l.Checkpointed(13)
	if err := e.l.Reap().Do(); err != nil {
		t.Fatal(err)
	}
	if list, _ := e.fs.List(testDir); len(list) != 1 || list[0].Name != "1" {
		t.Errorf("directories left: %v", list)
	}
	e.reopen(13)
	checkReads(t, e.l, fresh, rng)
	if e.l.FirstIndex() != 13 {
		t.Errorf("first index %d", e.l.FirstIndex())
	}
}

func TestTrimAndPin(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	e := newEnv(t, Options{SegmentBytes: 3000})
	all := e.append(rng, 1, 40, 2, 300)
	last := e.l.LastIndex()
	e.l.Applied(last)
	e.l.Trim(40)
	if e.l.Reap() != nil {
		t.Fatal("deleted without a checkpoint")
	}
	e.l.Checkpointed(last)
	unpin := e.l.Pin()
	if e.l.Reap() != nil {
		t.Fatal("deleted although pinned")
	}
	unpin()
	r := e.l.Reap()
	if r == nil {
		t.Fatal("nothing deleted")
	}
	// A reader that comes in between must not fail.
	checkReads(t, e.l, all[e.l.FirstIndex()-1:], rng)
	if err := r.Do(); err != nil {
		t.Fatal(err)
	}
	first := e.l.FirstOffset()
	if first == 0 || first > 40 {
		t.Errorf("first offset %d", first)
	}
	if _, err := e.l.Entries(1, 2, 1); !errors.Is(err, ErrTrimmed) {
		t.Error(err)
	}
	checkReads(t, e.l, all[e.l.FirstIndex()-1:], rng)
	var buf ReadBuffer
	if err := e.l.Read(&buf, 0, 1, 1<<20, 80); err != nil || buf.First != first {
		t.Errorf("read below the first offset: %d, %v", buf.First, err)
	}
	buf.Release()
	// Trim never takes the active segment.
	e.l.Trim(1 << 40)
	if r := e.l.Reap(); r != nil {
		if err := r.Do(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(e.l.Segments()); n != 1 {
		t.Errorf("%d segments left", n)
	}
	e.reopen(last)
	if got := e.l.LastIndex(); got != last {
		t.Errorf("last index %d", got)
	}
	if e.l.NextOffset() != 80 {
		t.Errorf("next offset %d", e.l.NextOffset())
	}
	e.append(rng, 1, 3, 2, 300)
}

func TestResetAndCreate(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	e := newEnv(t, Options{SegmentBytes: 3000})
	e.append(rng, 1, 10, 2, 300)
	p := Position{Index: 500, Term: 7, NextOffset: 900, Chain: 0xabc, Timestamp: 77777, Generation: 3}
	if err := e.l.Reset(p); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		if e.l.FirstIndex() != 501 || e.l.LastIndex() != 500 || e.l.NextOffset() != 900 || e.l.FirstOffset() != 900 {
			t.Errorf("reset to %d..%d, offset %d", e.l.FirstIndex(), e.l.LastIndex(), e.l.NextOffset())
		}
		if got, err := e.l.Term(500); err != nil || got != 7 {
			t.Errorf("term %d, %v", got, err)
		}
	}
	check()
	e.fs = e.fs.CrashClone(3)
	e.open(500)
	check()
	e.append(rng, 7, 10, 2, 300)
	e.reopen(505)
	if e.l.LastIndex() != 510 {
		t.Errorf("last index %d", e.l.LastIndex())
	}
	e.fs = vfs.NewMem(1)
	if err := Create(e.fs, testDir, e.o, p); err != nil {
		t.Fatal(err)
	}
	if err := Create(e.fs, testDir, e.o, p); err == nil {
		t.Error("created over an existing log")
	}
	e.fs = e.fs.CrashClone(9)
	e.open(500)
	check()
}

func TestCheckpoints(t *testing.T) {
	fs := vfs.NewMem(1)
	if _, _, err := LoadCheckpoint(fs, testDir, 5); !errors.Is(err, ErrNoCheckpoint) {
		t.Fatal(err)
	}
	for _, i := range []uint64{7, 80, 900} {
		if err := WriteCheckpoint(fs, testDir, 5, i, fmt.Append(nil, "body", i)); err != nil {
			t.Fatal(err)
		}
	}
	list, _ := fs.List(testDir)
	if len(list) != 2 {
		t.Errorf("files: %v", list)
	}
	load := func(fs vfs.FS, group, want uint64) {
		t.Helper()
		i, body, err := LoadCheckpoint(fs, testDir, group)
		if want == 0 {
			if !errors.Is(err, ErrNoCheckpoint) {
				t.Errorf("group %d: %v", group, err)
			}
			return
		}
		if err != nil || i != want || string(body) != fmt.Sprint("body", want) {
			t.Errorf("got %d %q %v, want %d", i, body, err, want)
		}
	}
	load(fs, 5, 900)
	load(fs, 6, 0)
	name := filepath.Join(testDir, CheckpointName(900))
	for off := range int64(64 + 7) {
		m := fs.KillClone()
		m.Corrupt(name, off, 1)
		load(m, 5, 80)
	}
	// A crash at any step leaves the old or the new one.
	for seed := range uint64(300) {
		m := fs.KillClone()
		n, at := 0, int(seed%12)
		var crashed *vfs.Mem
		faulty := vfs.NewFaulty(m, func(op vfs.Op) error {
			if op.Kind.Changes() {
				if n == at {
					crashed = m.CrashClone(seed)
				}
				n++
			}
			return nil
		})
		if err := WriteCheckpoint(faulty, testDir, 5, 1000, []byte("body1000")); err != nil {
			t.Fatal(err)
		}
		if crashed == nil {
			crashed = m.CrashClone(seed)
			load(crashed, 5, 1000)
			continue
		}
		if i, _, err := LoadCheckpoint(crashed, testDir, 5); err != nil || i != 900 && i != 1000 {
			t.Fatalf("after a crash at step %d: %d, %v", at, i, err)
		}
	}
}
