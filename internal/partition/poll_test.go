package partition

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/whippetmq/whippet/internal/clock"
	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/internal/vfs"
	"github.com/whippetmq/whippet/wire"
)

// shelf is a partition on a real log in a file system in memory, driven as the host drives it.
type shelf struct {
	t     testing.TB
	fs    *vfs.Mem
	log   *segment.Log
	p     *Replica
	clock *clock.Manual
	index uint64
	opts  segment.Options
}

func newShelf(t testing.TB, segmentBytes int64) *shelf {
	t.Helper()
	return newShelfWith(t, segment.Options{SegmentBytes: segmentBytes})
}

func newShelfWith(t testing.TB, o segment.Options) *shelf {
	t.Helper()
	o.Group, o.SameBoot = 7, true
	s := &shelf{t: t, fs: vfs.NewMem(1), clock: clock.NewManual(rigStart), opts: o}
	s.open(nil, 0)
	s.place(nil, nil) // the leader's first entry
	s.p.Lead(1, true)
	return s
}

// open recovers the log and the partition, as StartGroup does, and replays what a checkpoint does not hold.
func (s *shelf) open(checkpoint []byte, index uint64) {
	s.t.Helper()
	log, _, err := segment.Open(s.fs, "part", s.opts, index)
	if err != nil {
		s.t.Fatal(err)
	}
	s.log = log
	s.p = New(Config{Stream: 1, Topic: 2, Partition: 3, Clock: s.clock})
	if err := s.p.Restore(log, checkpoint, index); err != nil {
		s.t.Fatal(err)
	}
	s.index = log.LastIndex()
	for i := index + 1; i <= s.index; i++ {
		es, err := log.Entries(i, i+1, math.MaxInt)
		if err != nil {
			s.t.Fatal(err)
		}
		s.applyEntry(es[0], nil)
	}
}

func (s *shelf) place(data []byte, r replica.Request) segment.Entry {
	s.t.Helper()
	s.index++
	e := segment.Entry{Index: s.index, Term: 1, Data: slices.Clone(data)}
	w, err := s.log.Place([]segment.Entry{e})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := w.Do(); err != nil {
		s.t.Fatal(err)
	}
	w.Release()
	if r != nil {
		r.Proposed()
	}
	return e
}

func (s *shelf) applyEntry(e segment.Entry, r replica.Request) {
	s.t.Helper()
	s.log.Committed(e.Index)
	if len(e.Data) > 0 {
		var rs []replica.Request
		if r != nil {
			rs = []replica.Request{r}
		}
		if err := s.p.Apply(e, rs); err != nil {
			s.t.Fatal(err)
		}
	}
	s.log.Applied(e.Index)
}

func (s *shelf) run(r replica.Request) {
	s.t.Helper()
	if data := s.p.Admit(r); data != nil {
		s.applyEntry(s.place(data, r), r)
	} else if data, rs := s.p.Fold(); data != nil {
		s.applyEntry(s.place(data, nil), rs[0])
	}
}

// send appends a batch whose payloads tell their offset.
func (s *shelf) send(count, payload int) *Send {
	s.t.Helper()
	r := &Send{Batch: offsetBatch(s.p.admitNext, count, payload)}
	s.run(r)
	if r.Err != nil {
		s.t.Fatal(r.Err)
	}
	return r
}

func offsetBatch(base uint64, count, payload int) wire.Batch {
	b := wire.BatchBuilder{}
	b.Reset()
	for i := range count {
		m := wire.Message{ID: wire.U128{Lo: base + uint64(i) + 1}, Payload: make([]byte, payload), OriginTimestamp: 1}
		copy(m.Payload, fmt.Sprint(base+uint64(i)))
		if err := b.Add(&m); err != nil {
			panic(err)
		}
	}
	batch, err := b.Finish()
	if err != nil {
		panic(err)
	}
	return batch
}

// offsets decodes a result as a released client does and returns the offsets of its messages.
func (r *PollResult) offsets(t testing.TB) []uint64 {
	t.Helper()
	var m wire.PolledMessages
	body := wire.AppendPollPrefix(nil, 3, r.CurrentOffset, r.Count)
	n := 0
	for _, b := range r.Records() {
		body = append(body, b...)
		n += len(b)
	}
	if n != r.Bytes {
		t.Errorf("%d bytes announced, %d served", r.Bytes, n)
	}
	if err := m.Decode(body); err != nil {
		t.Fatal(err)
	}
	var got []uint64
	for v := range m.Messages() {
		if v.ID.Lo != v.Offset+1 {
			t.Errorf("offset %d carries the message of %d", v.Offset, v.ID.Lo-1)
		}
		got = append(got, v.Offset)
	}
	if len(got) != int(r.Count) || len(got) > 0 && (got[0] != r.First || got[len(got)-1] != r.Last) {
		t.Errorf("count %d, first %d, last %d; served %v", r.Count, r.First, r.Last, got)
	}
	return got
}

func seq(from, count uint64) []uint64 {
	var s []uint64
	for i := range count {
		s = append(s, from+i)
	}
	return s
}

// fivefold holds offsets 0..49 in batches of ten, a second apart, over several segments.
func fivefold(t testing.TB) *shelf {
	s := newShelf(t, 2000)
	for range 5 {
		s.send(10, 50)
		s.clock.Advance(time.Second)
	}
	if n := s.log.SegmentCount(); n < 3 {
		t.Fatalf("%d segments, the test wants several", n)
	}
	return s
}

func TestPoll(t *testing.T) {
	const second = 1_000_000
	offset := wire.FromOffset
	at := func(seconds, us int) wire.PollingStrategy {
		return wire.FromTimestamp(uint64(int(rigStart) + seconds*second + us))
	}
	for _, c := range []struct {
		name     string
		strategy wire.PollingStrategy
		count    uint32
		from, n  uint64
	}{
		{"first batch", offset(0), 10, 0, 10},
		{"inside a batch", offset(3), 4, 3, 4},
		{"over two batches", offset(5), 10, 5, 10},
		{"over all", offset(0), 1000, 0, 50},
		{"count 2^32-1", offset(7), math.MaxUint32, 7, 43},
		{"the last one", offset(49), 10, 49, 1},
		{"at the end", offset(50), 10, 0, 0},
		{"beyond the end", offset(math.MaxUint64), 10, 0, 0},
		{"count 0", offset(0), 0, 0, 0},
		{"one message", offset(20), 1, 20, 1},
		{"time 0", wire.FromTimestamp(0), 3, 0, 3},
		{"time of the first batch", at(0, 0), 3, 0, 3},
		{"just behind the first batch", at(0, 1), 3, 10, 3},
		{"just before the third batch", at(2, -1), 3, 20, 3},
		{"time of the third batch", at(2, 0), 15, 20, 15},
		{"time of the last batch", at(4, 0), 100, 40, 10},
		{"behind the last batch", at(4, 1), 3, 0, 0},
		{"end of time", wire.FromTimestamp(math.MaxUint64), 3, 0, 0},
		{"first", wire.FromFirst(), 12, 0, 12},
		{"last one", wire.FromLast(), 1, 49, 1},
		{"last few", wire.FromLast(), 13, 37, 13},
		{"last, all", wire.FromLast(), 50, 0, 50},
		{"last, more than there are", wire.FromLast(), 51, 0, 50},
		{"last, count 0", wire.FromLast(), 0, 0, 0},
		{"next, nothing stored", wire.FromNext(), 4, 0, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := fivefold(t)
			var r PollResult
			if err := s.p.Poll(PollQuery{Strategy: c.strategy, Count: c.count, Kind: wire.ConsumerSingle, Key: 1}, &r); err != nil {
				t.Fatal(err)
			}
			if got := r.offsets(t); !slices.Equal(got, seq(c.from, c.n)) || r.CurrentOffset != 49 {
				t.Errorf("offsets %v, current %d", got, r.CurrentOffset)
			}
			r.Release()
			if r.Count != 0 || r.Records() != nil {
				t.Error("a released result is not empty")
			}
		})
	}
}

func TestPollNext(t *testing.T) {
	s := fivefold(t)
	var r PollResult
	next := func(kind wire.ConsumerKind, key uint32) []uint64 {
		t.Helper()
		if err := s.p.Poll(PollQuery{Strategy: wire.FromNext(), Count: 3, Kind: kind, Key: key}, &r); err != nil {
			t.Fatal(err)
		}
		return r.offsets(t)
	}
	s.run(store(1, 7))
	for range 2 { // it does not move by itself
		if got := next(wire.ConsumerSingle, 1); !slices.Equal(got, seq(8, 3)) {
			t.Errorf("offsets %v", got)
		}
	}
	if got := next(wire.ConsumerGroup, 1); !slices.Equal(got, seq(0, 3)) {
		t.Errorf("another kind: %v", got)
	}
	s.run(raise(1, r.Last)) // 2: below the stored offset
	if got := next(wire.ConsumerSingle, 1); !slices.Equal(got, seq(8, 3)) {
		t.Errorf("offsets %v", got)
	}
	s.run(raise(1, r.Last))
	if got := next(wire.ConsumerSingle, 1); !slices.Equal(got, seq(11, 3)) {
		t.Errorf("offsets %v", got)
	}
	s.run(store(1, 49))
	if got := next(wire.ConsumerSingle, 1); len(got) != 0 || r.CurrentOffset != 49 {
		t.Errorf("behind the last message: %v", got)
	}
}

func TestPollEmptyPartition(t *testing.T) {
	s := newShelf(t, 2000)
	var r PollResult
	for kind := wire.StrategyOffset; kind <= wire.StrategyNext; kind++ {
		if err := s.p.Poll(PollQuery{Strategy: wire.PollingStrategy{Kind: kind}, Count: 10}, &r); err != nil || r.Count != 0 || r.CurrentOffset != 0 {
			t.Errorf("strategy %d: %+v %v", kind, r, err)
		}
	}
	if st := s.p.Stats(); st != (Stats{Segments: 1}) {
		t.Errorf("%+v", st)
	}
}

func TestPollErrors(t *testing.T) {
	s := newShelf(t, 2000)
	var r PollResult
	for _, kind := range []wire.StrategyKind{0, 6} {
		if err := s.p.Poll(PollQuery{Strategy: wire.PollingStrategy{Kind: kind}, Count: 1}, &r); !errors.Is(err, ErrStrategy) {
			t.Errorf("strategy %d: %v", kind, err)
		}
	}
	if err := New(Config{}).Poll(PollQuery{Strategy: wire.FromFirst(), Count: 1}, &r); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestPollServesCommittedOnly(t *testing.T) {
	s := newShelf(t, 1<<20)
	s.send(10, 50)
	w := &Send{Batch: offsetBatch(10, 5, 50)}
	e := s.place(s.p.Admit(w), w)
	var r PollResult
	for _, st := range []wire.PollingStrategy{wire.FromFirst(), wire.FromTimestamp(0), wire.FromOffset(0), wire.FromLast()} {
		if err := s.p.Poll(PollQuery{Strategy: st, Count: 100}, &r); err != nil {
			t.Fatal(err)
		}
		if got := r.offsets(t); !slices.Equal(got, seq(0, 10)) || r.CurrentOffset != 9 {
			t.Errorf("strategy %d: %v, current %d", st.Kind, got, r.CurrentOffset)
		}
	}
	if err := s.p.Poll(PollQuery{Strategy: wire.FromOffset(10), Count: 100}, &r); err != nil || r.Count != 0 {
		t.Errorf("%d uncommitted messages, %v", r.Count, err)
	}
	s.applyEntry(e, w)
	if err := s.p.Poll(PollQuery{Strategy: wire.FromOffset(8), Count: 100}, &r); err != nil || !slices.Equal(r.offsets(t), seq(8, 7)) {
		t.Errorf("%v", err)
	}
}

func TestPollBytes(t *testing.T) {
	s := newShelf(t, 1<<20)
	for range 4 {
		s.send(10, 1000)
	}
	var r PollResult
	for _, c := range []struct {
		max     int
		atLeast uint32
		atMost  int
	}{{1, 1, 256 + 48 + 1000}, {5000, 3, 5000}, {30000, 10, 30000}, {0, 40, MaxPollBytes}} {
		if err := s.p.Poll(PollQuery{Strategy: wire.FromOffset(2), Count: 100, MaxBytes: c.max}, &r); err != nil {
			t.Fatal(err)
		}
		r.offsets(t)
		if r.Count < min(c.atLeast, 38) || r.Bytes > c.atMost {
			t.Errorf("limit %d: %d messages in %d bytes", c.max, r.Count, r.Bytes)
		}
	}
}

func TestPollBehindTrim(t *testing.T) {
	s := fivefold(t)
	boundary := s.log.Segments()[1].BaseOffset
	c := &Cut{Kind: TrimBelow, Value: boundary}
	s.run(c)
	if c.Err != nil {
		t.Fatal(c.Err)
	}
	var r PollResult
	for _, q := range []PollQuery{
		{Strategy: wire.FromOffset(0), Count: 5},
		{Strategy: wire.FromFirst(), Count: 5},
		{Strategy: wire.FromTimestamp(0), Count: 5},
		{Strategy: wire.FromNext(), Count: 5, Kind: wire.ConsumerSingle, Key: 1},
	} {
		if err := s.p.Poll(q, &r); err != nil {
			t.Fatal(err)
		}
		if got := r.offsets(t); !slices.Equal(got, seq(boundary, 5)) {
			t.Errorf("strategy %d: %v, oldest is %d", q.Strategy.Kind, got, boundary)
		}
	}
	if err := s.p.Poll(PollQuery{Strategy: wire.FromLast(), Count: 1000}, &r); err != nil || !slices.Equal(r.offsets(t), seq(boundary, 50-boundary)) {
		t.Errorf("last: %v", err)
	}
	if st := s.p.Stats(); st.Messages != 50-boundary || st.FirstOffset != boundary || st.NextOffset != 50 {
		t.Errorf("%+v", st)
	}
}

func TestPollBehindPurge(t *testing.T) {
	s := fivefold(t)
	s.run(&Cut{Kind: PurgeAll, Value: 1})
	var r PollResult
	if err := s.p.Poll(PollQuery{Strategy: wire.FromFirst(), Count: 5}, &r); err != nil || r.Count != 0 || r.CurrentOffset != 0 {
		t.Errorf("%+v %v", r, err)
	}
	s.send(3, 50)
	if err := s.p.Poll(PollQuery{Strategy: wire.FromFirst(), Count: 5}, &r); err != nil || !slices.Equal(r.offsets(t), seq(0, 3)) {
		t.Errorf("%v", err)
	}
	if st := s.p.Stats(); st.Messages != 3 || st.Segments != 1 || st.Generation != 1 || st.Bytes == 0 {
		t.Errorf("%+v", st)
	}
}

func TestStats(t *testing.T) {
	s := newShelf(t, 1<<20)
	n := 0
	for range 3 {
		b := offsetBatch(s.p.admitNext, 4, 100)
		n += len(b)
		s.run(&Send{Batch: b})
	}
	want := Stats{Messages: 12, Bytes: uint64(n), Segments: 1, NextOffset: 12, CurrentOffset: 11}
	if got := s.p.Stats(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A killed node has its log, and a checkpoint of some age: state and log must agree again, and numbering goes on.
func TestRestartOnALog(t *testing.T) {
	for _, after := range []int{0, 1, 3, 6} {
		t.Run(fmt.Sprintf("checkpoint after %d steps", after), func(t *testing.T) {
			s := newShelf(t, 2000)
			var checkpoint []byte
			var at uint64
			for i := range 6 {
				if i == after && i > 0 {
					checkpoint, at = s.p.Checkpoint(nil), s.index
				}
				r := &Send{Client: wire.U128{Lo: uint64(i % 2)}, Request: uint64(i + 1), Batch: offsetBatch(s.p.admitNext, 7, 60)}
				s.run(r)
				s.run(by(store(uint32(i), uint64(i)), 9, uint64(100+i)))
			}
			if after == 6 {
				checkpoint, at = s.p.Checkpoint(nil), s.index
			}
			before := s.p.Checkpoint(nil)
			if at > 0 {
				if err := s.log.Sync(); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.log.Close(); err != nil {
				t.Fatal(err)
			}
			s.fs = s.fs.KillClone()
			s.open(checkpoint, at)
			if !slices.Equal(before, s.p.Checkpoint(nil)) {
				t.Fatal("the state is another one")
			}
			s.place(nil, nil)
			s.p.Lead(2, true)
			again := &Send{Client: wire.U128{Lo: 1}, Request: 6, Batch: offsetBatch(42, 7, 60)}
			s.run(again)
			if !again.Duplicate || again.BaseOffset != 35 {
				t.Errorf("%+v", again)
			}
			if next := s.send(1, 60); next.BaseOffset != 42 {
				t.Errorf("next base offset %d", next.BaseOffset)
			}
			var r PollResult
			if err := s.p.Poll(PollQuery{Strategy: wire.FromFirst(), Count: 1000}, &r); err != nil || !slices.Equal(r.offsets(t), seq(0, 43)) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A log that does not end where the state ends must not be numbered on.
func TestLeadChecksTheLog(t *testing.T) {
	s := fivefold(t)
	p := New(Config{Partition: 3, Clock: s.clock})
	if err := p.Restore(s.log, nil, 0); err != nil {
		t.Fatal(err)
	}
	p.Lead(2, true) // nothing applied
	r := &Send{Batch: offsetBatch(0, 1, 10)}
	if p.Admit(r) != nil || StatusOf(r.Err) != 58 {
		t.Errorf("admitted: %v", r.Err)
	}
	var broken *InvariantError
	if err := p.Apply(segment.Entry{Index: 2, Data: offsetBatch(0, 1, 10)}, nil); !errors.As(err, &broken) {
		t.Error(err)
	}
}

// Polls run while the shard appends, stores offsets and purges; every result must be dense and committed.
func TestPollWhileAppending(t *testing.T) {
	s := newShelf(t, 4000)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Go(func() {
			var r PollResult
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				low := s.p.CurrentOffset()
				generation := s.p.Stats().Generation
				q := PollQuery{Strategy: wire.FromOffset(uint64(i % 40)), Count: uint32(1 + i%30), Kind: wire.ConsumerSingle, Key: uint32(g)}
				if g == 1 {
					q.Strategy = wire.FromLast()
				}
				if g == 2 {
					q.Strategy = wire.FromNext()
				}
				if err := s.p.Poll(q, &r); err != nil {
					t.Error(err)
					return
				}
				got := r.offsets(t)
				for j, o := range got {
					if o != got[0]+uint64(j) || o > r.CurrentOffset {
						t.Errorf("offsets %v, current %d", got, r.CurrentOffset)
						return
					}
				}
				if r.CurrentOffset < low && s.p.Stats().Generation == generation {
					t.Errorf("current offset went from %d to %d", low, r.CurrentOffset)
					return
				}
			}
		})
	}
	for i := range 300 {
		s.send(1+i%5, 40)
		s.run(store(2, s.p.CurrentOffset()))
		if i%100 == 99 {
			s.run(&Cut{Kind: PurgeAll, Value: uint64(i)})
		}
	}
	close(stop)
	wg.Wait()
}

func TestPollAllocations(t *testing.T) {
	for _, c := range []struct {
		name string
		o    segment.Options
		most float64 // the log's own share of a read from a file is up to three
	}{
		{"from memory", segment.Options{}, 0},
		{"from a file", segment.Options{Cache: segment.NewCache(1)}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newShelfWith(t, c.o)
			for range 20 {
				s.send(10, 100)
			}
			s.run(store(1, 55))
			var r PollResult
			for _, st := range []wire.PollingStrategy{wire.FromOffset(33), wire.FromFirst(), wire.FromLast(), wire.FromNext()} {
				poll := func() {
					if err := s.p.Poll(PollQuery{Strategy: st, Count: 50, Kind: wire.ConsumerSingle, Key: 1}, &r); err != nil || r.Count != 50 {
						t.Fatal(r.Count, err)
					}
				}
				poll()
				r.offsets(t)
				if n := testing.AllocsPerRun(200, poll); n > c.most {
					t.Errorf("strategy %d: %v allocations", st.Kind, n)
				}
			}
		})
	}
}
