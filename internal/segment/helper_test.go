package segment

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/zeebo/xxh3"
	"go.uber.org/goleak"

	"github.com/whippetmq/whippet/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testDir   = "node/p"
	testGroup = 7<<20 | 3
)

// makeBatch builds a stamped batch as a leader would, independently of the
// package's own code: the layout is that of the protocol text.
func makeBatch(base, ts uint64, payloads ...[]byte) []byte {
	b := make([]byte, 256)
	for i, p := range payloads {
		at := len(b)
		b = append(b, make([]byte, 48)...)
		le.PutUint64(b[at+8:], uint64(i)+1)
		le.PutUint32(b[at+24:], uint32(i))
		le.PutUint32(b[at+36:], uint32(len(p)))
		b = append(b, p...)
		le.PutUint64(b[at:], xxh3.Hash(b[at+8:]))
	}
	le.PutUint64(b[0:], 3)
	le.PutUint64(b[8:], base)
	le.PutUint64(b[16:], ts)
	le.PutUint64(b[24:], ts-1)
	le.PutUint64(b[32:], uint64(len(b)))
	le.PutUint32(b[48:], uint32(len(payloads)))
	le.PutUint64(b[40:], checksumOf(b))
	PutOrigin(b, Origin{ClientLo: 0x1111, ClientHi: 0x2222, Request: base + 1, User: 9, Flags: 4})
	return b
}

// checksumOf is the batch checksum, from the protocol text.
func checksumOf(b []byte) uint64 {
	in := append([]byte(nil), b[:40]...)
	in = append(in, b[48:52]...)
	for f := b[256:]; len(f) > 0; {
		n := 48 + int(le.Uint32(f[36:])) + int(le.Uint32(f[32:]))
		in = append(in, f[:8]...)
		f = f[n:]
	}
	return xxh3.Hash(in)
}

func payload(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// batchOf builds a batch of count messages of about size bytes each.
func batchOf(rng *rand.Rand, base, ts uint64, count, size int) []byte {
	ps := make([][]byte, count)
	for i := range ps {
		ps[i] = payload(rng, 1+rng.IntN(size))
	}
	return makeBatch(base, ts, ps...)
}

type env struct {
	t  testing.TB
	fs *vfs.Mem
	l  *Log
	o  Options
}

func newEnv(t testing.TB, o Options) *env {
	t.Helper()
	o.Group = testGroup
	e := &env{t: t, fs: vfs.NewMem(1), o: o}
	e.open(0)
	return e
}

func (e *env) open(verified uint64) Recovery {
	e.t.Helper()
	if e.o.Handles == nil {
		e.o.Handles = NewHandles(8, 1<<20)
	}
	l, rec, err := Open(e.fs, testDir, e.o, verified)
	if err != nil {
		e.t.Fatalf("open: %v", err)
	}
	e.l = l
	return rec
}

func (e *env) reopen(verified uint64) Recovery {
	e.t.Helper()
	if err := e.l.Close(); err != nil {
		e.t.Fatalf("close: %v", err)
	}
	return e.open(verified)
}

// put places and writes entries.
func (e *env) put(entries ...Entry) {
	e.t.Helper()
	putIn(e.t, e.l, entries...)
}

// putIn places and writes entries in a log without an env.
func putIn(t testing.TB, l *Log, entries ...Entry) {
	t.Helper()
	w, err := l.Place(entries)
	if err != nil {
		t.Fatalf("place: %v", err)
	}
	if err := w.Do(); err != nil {
		t.Fatalf("do: %v", err)
	}
	w.Release()
}

// append adds n batches of count messages at the end, in one write.
func (e *env) append(rng *rand.Rand, term uint64, n, count, size int) []Entry {
	e.t.Helper()
	es := nextBatches(e.l, rng, term, n, count, size)
	e.put(es...)
	return es
}

func nextBatches(l *Log, rng *rand.Rand, term uint64, n, count, size int) []Entry {
	var es []Entry
	index, offset, ts := l.LastIndex(), l.NextOffset(), l.LastTimestamp()
	for range n {
		index, ts = index+1, ts+10
		b := batchOf(rng, offset, ts, count, size)
		es = append(es, Entry{Index: index, Term: term, Data: b})
		offset += uint64(count)
	}
	return es
}

func sameEntries(got, want []Entry) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d entries, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i].Index != want[i].Index || got[i].Term != want[i].Term || !bytes.Equal(got[i].Data, want[i].Data) {
			return fmt.Errorf("entry %d (index %d, term %d, %d bytes) differs from index %d, term %d, %d bytes",
				i, got[i].Index, got[i].Term, len(got[i].Data), want[i].Index, want[i].Term, len(want[i].Data))
		}
	}
	return nil
}

// allEntries reads the log in small steps.
func allEntries(l *Log, maxBytes int) ([]Entry, error) {
	return entriesFrom(l, l.FirstIndex(), maxBytes)
}

func entriesFrom(l *Log, lo uint64, maxBytes int) ([]Entry, error) {
	var out []Entry
	for lo <= l.LastIndex() {
		es, err := l.Entries(lo, l.LastIndex()+1, maxBytes)
		if err != nil {
			return out, err
		}
		out = append(out, es...)
		lo += uint64(len(es))
	}
	return out, nil
}

// evictAll takes everything applied out of memory.
func (l *Log) evictAll() { l.evict(min(l.applied, l.written), 1<<60) }

// message is one message as a consumer sees it.
type message struct {
	offset, ts uint64
	frame      string
}

func messagesOf(batch []byte) []message {
	var out []message
	for f := batch[256:]; len(f) > 0; {
		n := 48 + int(le.Uint32(f[36:])) + int(le.Uint32(f[32:]))
		out = append(out, message{le.Uint64(batch[8:]) + uint64(le.Uint32(f[24:])), le.Uint64(batch[16:]), string(f[:n])})
		f = f[n:]
	}
	return out
}

// parseRead decodes a result as a client does, with all checks.
func parseRead(b *ReadBuffer) ([]message, error) {
	all := bytes.Join(b.Records(), nil)
	if len(all) != b.Bytes {
		return nil, fmt.Errorf("%d bytes, says %d", len(all), b.Bytes)
	}
	var out []message
	for len(all) > 0 {
		if len(all) < 256 {
			return nil, fmt.Errorf("%d bytes left", len(all))
		}
		n := le.Uint64(all[32:])
		if n < 256 || n > uint64(len(all)) {
			return nil, fmt.Errorf("batch length %d of %d", n, len(all))
		}
		rec := all[:n]
		for i, x := range rec[52:256] {
			if x != 0 {
				return nil, fmt.Errorf("reserved byte %d is %d", 52+i, x)
			}
		}
		if sum := checksumOf(rec); sum != le.Uint64(rec[40:]) {
			return nil, fmt.Errorf("batch checksum")
		}
		ms := messagesOf(rec)
		if len(ms) != int(le.Uint32(rec[48:])) {
			return nil, fmt.Errorf("%d messages, header says %d", len(ms), le.Uint32(rec[48:]))
		}
		for _, m := range ms {
			if xxh3.HashString(m.frame[8:]) != le.Uint64([]byte(m.frame)) {
				return nil, fmt.Errorf("message %d is damaged", m.offset)
			}
		}
		out = append(out, ms...)
		all = all[n:]
	}
	if len(out) != int(b.Count) {
		return nil, fmt.Errorf("%d messages, says %d", len(out), b.Count)
	}
	if len(out) > 0 && (out[0].offset != b.First || out[len(out)-1].offset != b.Last) {
		return nil, fmt.Errorf("offsets %d..%d, says %d..%d", out[0].offset, out[len(out)-1].offset, b.First, b.Last)
	}
	return out, nil
}

func sameMessages(got, want []message) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d messages, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("message %d: offset %d time %d, want offset %d time %d", i, got[i].offset, got[i].ts, want[i].offset, want[i].ts)
		}
	}
	return nil
}

// every is the step between the cases of a test that runs on one goroutine: all
// of them in a full run, every n-th with -short, and few under the race
// detector, which has nothing to find in them and makes each much slower.
func every(n int) int {
	switch {
	case raceEnabled:
		return 8 * n
	case testing.Short():
		return n
	}
	return 1
}
