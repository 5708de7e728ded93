package partition

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/whippetmq/whippet/internal/clock"
	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/wire"
)

// rawBatch writes a batch as a producer does, from the layout in messages §1: count messages with the given payload.
func rawBatch(count int, mark uint64, payload []byte) wire.Batch {
	le := binary.LittleEndian
	b := make([]byte, 256, 256+count*(48+len(payload)))
	for i := range count {
		f := make([]byte, 48, 48+len(payload))
		le.PutUint64(f[8:], mark)
		le.PutUint64(f[16:], 1)
		le.PutUint32(f[24:], uint32(i))
		le.PutUint32(f[36:], uint32(len(payload)))
		f = append(f, payload...)
		le.PutUint64(f, xxh3.Hash(f[8:]))
		b = append(b, f...)
	}
	le.PutUint64(b[24:], mark) // origin timestamp
	le.PutUint64(b[32:], uint64(len(b)))
	le.PutUint32(b[48:], uint32(count))
	le.PutUint64(b[40:], batchSum(b))
	return b
}

// batchSum is the batch checksum of messages §1.3, written independently of the codec.
func batchSum(b []byte) uint64 {
	le := binary.LittleEndian
	in := append([]byte(nil), b[:40]...)
	in = append(in, b[48:52]...)
	for f := b[256:]; len(f) > 0; {
		in = append(in, f[:8]...)
		f = f[48+le.Uint32(f[32:])+le.Uint32(f[36:]):]
	}
	return xxh3.Hash(in)
}

func markOf(batch []byte) uint64 { return binary.LittleEndian.Uint64(batch[24:]) }

// rig is one leading partition whose host appends and applies at once.
type rig struct {
	t     testing.TB
	p     *Replica
	clock *clock.Manual
	index uint64
}

const rigStart = uint64(1_000_000_000)

func newRig(t testing.TB, cfg Config) *rig {
	t.Helper()
	m := clock.NewManual(rigStart)
	cfg.Clock = m
	if cfg.Partition == 0 {
		cfg.Stream, cfg.Topic, cfg.Partition = 1, 2, 3
	}
	r := &rig{t: t, p: New(cfg), clock: m}
	if err := r.p.Restore(nil, nil, 0); err != nil {
		t.Fatal(err)
	}
	r.p.Lead(1, true)
	return r
}

func (r *rig) apply(data []byte, rs ...replica.Request) {
	r.t.Helper()
	r.index++
	e := segment.Entry{Index: r.index, Term: 1, Data: append([]byte(nil), data...)}
	for _, q := range rs {
		q.Proposed()
	}
	if err := r.p.Apply(e, rs); err != nil {
		r.t.Fatal(err)
	}
}

// send runs one send to its end.
func (r *rig) send(id identity, request uint64, count int) *Send {
	r.t.Helper()
	s := &Send{Client: id.client, User: id.user, Request: request, Batch: rawBatch(count, 0, []byte("x"))}
	done := 0
	s.Done = func(*Send) { done++ }
	if data := r.p.Admit(s); data != nil {
		r.apply(data, s)
	}
	if done != 1 {
		r.t.Fatalf("send %d was completed %d times", request, done)
	}
	return s
}

// write runs one turn of offset writes to its end.
func (r *rig) write(ws ...*OffsetWrite) {
	r.t.Helper()
	done := 0
	for _, w := range ws {
		w.Done = func(*OffsetWrite) { done++ }
		if r.p.Admit(w) != nil {
			r.t.Fatal("an offset write returned an entry of its own")
		}
	}
	if data, rs := r.p.Fold(); data != nil {
		r.apply(data, rs...)
	}
	if done != len(ws) {
		r.t.Fatalf("%d of %d writes completed", done, len(ws))
	}
}

func (r *rig) tick() int {
	r.t.Helper()
	n := 0
	for _, data := range r.p.Tick(0) {
		r.apply(data)
		n++
	}
	return n
}

func minutes(n int) time.Duration { return time.Duration(n) * time.Minute }
