package partition

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"github.com/whippetmq/whippet/internal/clock"
	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/wire"
)

// bench is a leading partition whose entries are applied where they were stamped, so that only the machine is measured.
type bench struct {
	p     *Replica
	index uint64
	rs    [1]replica.Request
}

func newBench(tb testing.TB) *bench {
	b := &bench{p: New(Config{Partition: 3, Clock: clock.NewManual(rigStart)})}
	if err := b.p.Restore(nil, nil, 0); err != nil {
		tb.Fatal(err)
	}
	b.p.Lead(1, true)
	return b
}

func (b *bench) send(tb testing.TB, s *Send) {
	data := b.p.Admit(s)
	if data == nil {
		tb.Fatal("not admitted: ", s.Err)
	}
	b.index++
	b.rs[0] = s
	if err := b.p.Apply(segment.Entry{Index: b.index, Term: 1, Data: data}, b.rs[:]); err != nil {
		tb.Fatal(err)
	}
}

func TestSendDoesNotAllocate(t *testing.T) {
	b := newBench(t)
	body := rawBatch(10, 0, []byte("payload"))
	done, copied := 0, 0
	s := &Send{Copied: func(*Send) { copied++ }, Done: func(*Send) { done++ }}
	request := uint64(0)
	one := func() {
		request++
		s.Reset()
		s.Client, s.User, s.Request, s.Batch = wire.U128{Lo: 1 + request%12}, 1, request, body
		if s.Verify() != nil {
			body.ClearReserved()
			if err := s.Verify(); err != nil {
				t.Fatal(err)
			}
		}
		b.send(t, s)
	}
	for range 64 * 12 {
		one()
	}
	if n := testing.AllocsPerRun(1000, one); n > 0 {
		t.Errorf("%v allocations per send", n)
	}
	if done != copied || done != int(request) {
		t.Errorf("%d requests, %d copied, %d done", request, copied, done)
	}
}

func TestOffsetWritesDoNotAllocate(t *testing.T) {
	b := newBench(t)
	b.send(t, &Send{Batch: rawBatch(100, 0, []byte("x"))})
	ws := make([]OffsetWrite, 16)
	done := 0
	for i := range ws {
		ws[i].Done = func(*OffsetWrite) { done++ }
	}
	round := uint64(0)
	turn := func() {
		round++
		for i := range ws {
			w := &ws[i]
			w.Reset()
			w.Op, w.Kind, w.Key, w.Offset = WriteOp(i%2)*RaiseOffset, wire.ConsumerSingle, uint32(i%8), round%100
			if i%4 == 0 {
				w.Client, w.Request = wire.U128{Lo: uint64(i + 1)}, round
			}
			b.p.Admit(w)
		}
		data, rs := b.p.Fold()
		b.index++
		if err := b.p.Apply(segment.Entry{Index: b.index, Term: 1, Data: data}, rs); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		turn()
	}
	if n := testing.AllocsPerRun(500, turn); n > 0 {
		t.Errorf("%v allocations per turn of %d writes", n, len(ws))
	}
	if done != int(round)*len(ws) {
		t.Errorf("%d of %d completed", done, int(round)*len(ws))
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestIdlePartitionsAreSmall(t *testing.T) {
	const n = 1000
	c := clock.NewManual(rigStart)
	ps := make([]*Replica, n)
	start := heap()
	for i := range ps {
		ps[i] = New(Config{Partition: uint32(i), Clock: c})
		if err := ps[i].Restore(nil, nil, 0); err != nil {
			t.Fatal(err)
		}
		ps[i].Lead(1, true)
	}
	never := (heap() - start) / n
	if never > 768 {
		t.Errorf("a partition that was never used takes %d bytes", never)
	}

	// A hundred clients each, some offsets, then silence.
	batches := make([]wire.Batch, 1)
	batches[0] = rawBatch(1, 0, []byte("x"))
	var index uint64
	for _, p := range ps {
		for id := uint64(1); id <= 100; id++ {
			s := &Send{Client: wire.U128{Lo: id}, Request: 1, Batch: batches[0]}
			index++
			if err := p.Apply(segment.Entry{Index: index, Data: p.Admit(s)}, []replica.Request{s}); err != nil {
				t.Fatal(err)
			}
		}
	}
	used := (heap() - start) / n
	c.Advance(minutes(11))
	for _, p := range ps {
		for _, data := range p.Tick(0) {
			index++
			if err := p.Apply(segment.Entry{Index: index, Data: data}, nil); err != nil {
				t.Fatal(err)
			}
		}
		p.Tick(0)
	}
	idle := (heap() - start) / n
	t.Logf("per partition: never used %d bytes, 100 clients of one send each %d, ten minutes later %d", never, used, idle)
	if used > 40<<10 || idle > 1024 {
		t.Errorf("with 100 clients %d bytes, after they are forgotten %d", used, idle)
	}
	runtime.KeepAlive(ps)
}

// BenchmarkAdmitApply is the whole of what a send costs the shard besides raft and the log. The checksums were collected
// by the connection's goroutine.
func BenchmarkAdmitApply(b *testing.B) {
	for _, c := range []struct{ messages, payload, clients int }{{1, 100, 1}, {100, 100, 1}, {100, 100, 12}, {100, 100, 5000}, {1000, 1000, 12}} {
		b.Run(fmt.Sprintf("%dx%dB/clients=%d", c.messages, c.payload, c.clients), func(b *testing.B) {
			r := newBench(b)
			body := rawBatch(c.messages, 0, make([]byte, c.payload))
			s := &Send{}
			sums := &Send{Batch: body}
			if err := sums.Verify(); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s.Reset()
				s.Client, s.Request, s.Batch = wire.U128{Lo: uint64(1 + i%c.clients)}, uint64(1+i), body
				s.sums, s.summed = sums.sums, true
				r.send(b, s)
			}
		})
	}
}

func BenchmarkFold(b *testing.B) {
	for _, n := range []int{1, 16, 1000} {
		b.Run(fmt.Sprintf("writes=%d", n), func(b *testing.B) {
			r := newBench(b)
			r.send(b, &Send{Batch: rawBatch(100, 0, []byte("x"))})
			ws := make([]OffsetWrite, n)
			b.ReportAllocs()
			for round := uint64(1); b.Loop(); round++ {
				for i := range ws {
					w := &ws[i]
					w.Reset()
					w.Kind, w.Key, w.Offset = wire.ConsumerSingle, uint32(i%100), round%100
					w.Client, w.Request = wire.U128{Lo: uint64(i + 1)}, round
					r.p.Admit(w)
				}
				data, rs := r.p.Fold()
				r.index++
				if err := r.p.Apply(segment.Entry{Index: r.index, Term: 1, Data: data}, rs); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/write")
		})
	}
}

func BenchmarkCheckpoint(b *testing.B) {
	r := newBench(b)
	body := rawBatch(1, 0, []byte("x"))
	for id := range uint64(DefaultClients * 8) {
		r.send(b, &Send{Client: wire.U128{Lo: id % DefaultClients}, Request: 1 + id, Batch: body})
	}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = r.p.Checkpoint(buf[:0])
	}
	b.ReportMetric(float64(len(buf)), "bytes")
	if binary.LittleEndian.Uint64(buf) != checkpointFormat {
		b.Fatal("no checkpoint")
	}
}
