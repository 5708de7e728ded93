package partition

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/wire"
)

func TestStatusOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want wire.ErrorCode
	}{
		{nil, 0},
		{wire.ErrInvalidOffset, 4100},
		{fmt.Errorf("context: %w", wire.ErrConsumerOffsetNotFound), 3021},
		{replica.ErrNotAdmitted, 58},
		{fmt.Errorf("submit: %w", replica.ErrNotLeader), 58},
		{replica.ErrOutcomeUnknown, 57},
		{replica.ErrDiskFull, 4010},
		{errors.New("anything else"), 57},
	} {
		if got := StatusOf(c.err); got != c.want {
			t.Errorf("%v: status %d, want %d", c.err, got, c.want)
		}
	}
}

func TestSendIsStampedInPlace(t *testing.T) {
	t.Run("checksums collected by Verify", func(t *testing.T) { testStamp(t, true) })
	t.Run("verified elsewhere", func(t *testing.T) { testStamp(t, false) })
}

func testStamp(t *testing.T, verify bool) {
	r := newRig(t, Config{})
	r.send(client(9), 1, 5)
	body := rawBatch(2, 77, []byte("hello"))
	frames := bytes.Clone(body[256:])
	s := &Send{Client: wire.U128{Lo: 0x1122, Hi: 0x3344}, User: 42, Request: 99, Batch: body}
	if verify {
		if err := s.Verify(); err != nil {
			t.Fatal(err)
		}
	}
	var calls []string
	s.Copied = func(*Send) { calls = append(calls, "copied") }
	s.Done = func(*Send) { calls = append(calls, "done") }
	data := r.p.Admit(s)
	if len(data) != len(body) || &data[0] != &body[0] {
		t.Fatal("the batch was copied")
	}
	le := binary.LittleEndian
	want := map[string][2]uint64{
		"partition":        {le.Uint64(data), 3},
		"base offset":      {le.Uint64(data[8:]), 5},
		"base timestamp":   {le.Uint64(data[16:]), rigStart},
		"origin timestamp": {le.Uint64(data[24:]), 77},
		"batch length":     {le.Uint64(data[32:]), uint64(len(body))},
		"batch checksum":   {le.Uint64(data[40:]), batchSum(data)},
		"message count":    {uint64(le.Uint32(data[48:])), 2},
		"stamp kind":       {uint64(le.Uint32(data[52:])), 1 | 1<<16},
		"client low":       {le.Uint64(data[56:]), 0x1122},
		"client high":      {le.Uint64(data[64:]), 0x3344},
		"request":          {le.Uint64(data[72:]), 99},
		"user":             {uint64(le.Uint32(data[80:])), 42},
		"flags":            {uint64(le.Uint32(data[84:])), 0},
	}
	for name, v := range want {
		if v[0] != v[1] {
			t.Errorf("%s is %d, want %d", name, v[0], v[1])
		}
	}
	if !bytes.Equal(data[88:256], make([]byte, 168)) {
		t.Error("the rest of the reserved area is not zero")
	}
	if !bytes.Equal(data[256:], frames) {
		t.Error("the frames changed")
	}
	r.apply(data, s)
	if s.Err != nil || s.BaseOffset != 5 || s.Timestamp != rigStart || s.Index != 2 || s.Term != 1 || s.Duplicate {
		t.Errorf("result %+v", s)
	}
	if s.Size() != len(body) {
		t.Errorf("size %d after Proposed, want %d", s.Size(), len(body))
	}
	if fmt.Sprint(calls) != "[copied done]" || s.Batch != nil {
		t.Errorf("calls %v, batch kept: %v", calls, s.Batch != nil)
	}
}

// The golden vector of messages §1.4: partition 3, base offset 100, base timestamp 2 000 000.
func TestStampGoldenVector(t *testing.T) {
	r := newRig(t, Config{})
	r.clock.Jump(-time.Duration(rigStart-2_000_000) * time.Microsecond)
	r.send(client(1), 0, 100)
	b := unhex(t, "0000000000000000 0000000000000000 0000000000000000 40420f0000000000 7701000000000000 19e3cad3ff4243cb 02000000")
	b = append(b, make([]byte, 204)...)
	b = append(b, unhex(t, "8e5ca59edbbdbfb9 01000000000000000000000000000000 00000000 00000000 00000000 05000000 0000000000000000 68656c6c6f"+
		"9d7bb8be8cb4ec97 02000000000000000000000000000000 01000000 05000000 0c000000 06000000 0000000000000000 776f726c6421"+
		"02 01000000 6b 02 01000000 76")...)
	s := &Send{Client: wire.U128{Lo: 1}, Request: 1, Batch: b}
	if err := s.Verify(); err != nil {
		t.Fatal(err)
	}
	data := r.p.Admit(s)
	if got := binary.LittleEndian.Uint64(data[40:]); got != 0xa80a08ab46e22428 || s.BaseOffset != 100 || s.Timestamp != 2_000_000 {
		t.Errorf("checksum %#x at %d, time %d", got, s.BaseOffset, s.Timestamp)
	}
}

func TestVerifyRefuses(t *testing.T) {
	b := rawBatch(2, 77, []byte("hello"))
	b[len(b)-1] ^= 1
	s := &Send{Batch: b}
	if err := s.Verify(); !errors.Is(err, wire.ErrInvalidMessageChecksum) || s.summed {
		t.Errorf("error %v", err)
	}
}

func TestSendRefused(t *testing.T) {
	one := func() *Send { return &Send{Client: wire.U128{Lo: 1}, Request: 1, Batch: rawBatch(1, 0, []byte("x"))} }
	run := func(p *Replica, s *Send) *Send {
		done := 0
		s.Done = func(*Send) { done++ }
		if data := p.Admit(s); data != nil {
			t.Fatal("admitted")
		}
		if done != 1 {
			t.Fatalf("completed %d times", done)
		}
		return s
	}
	t.Run("not leading", func(t *testing.T) {
		r := newRig(t, Config{})
		r.p.Lead(1, false)
		if s := run(r.p, one()); StatusOf(s.Err) != 58 {
			t.Error(s.Err)
		}
	})
	t.Run("fence", func(t *testing.T) {
		r := newRig(t, Config{})
		var fence atomic.Bool
		s := one()
		s.Fence = &fence
		if data := r.p.Admit(s); data == nil {
			t.Error("a lowered fence refuses")
		}
		fence.Store(true)
		second := one()
		second.Request, second.Fence = 2, &fence
		if run(r.p, second); StatusOf(second.Err) != 58 {
			t.Error(second.Err)
		}
	})
	t.Run("no messages", func(t *testing.T) {
		s := one()
		binary.LittleEndian.PutUint32(s.Batch[48:], 0)
		if run(newRig(t, Config{}).p, s); StatusOf(s.Err) != 3 {
			t.Error(s.Err)
		}
	})
	t.Run("no batch", func(t *testing.T) {
		if s := run(newRig(t, Config{}).p, &Send{Request: 1}); StatusOf(s.Err) != 3 {
			t.Error(s.Err)
		}
	})
	t.Run("in flight", func(t *testing.T) {
		r := newRig(t, Config{})
		first := one()
		data := r.p.Admit(first)
		if s := run(r.p, one()); StatusOf(s.Err) != 57 {
			t.Error(s.Err)
		}
		r.apply(data, first)
		if s := run(r.p, one()); s.Err != nil || !s.Duplicate || s.BaseOffset != 0 || s.NoPosition {
			t.Errorf("%+v", s)
		}
	})
	t.Run("too old", func(t *testing.T) {
		r := newRig(t, Config{})
		for id := uint64(1); id <= 65; id++ {
			r.send(client(1), id, 1)
		}
		s := one()
		s.User = 7
		if run(r.p, s); StatusOf(s.Err) != 57 {
			t.Error(s.Err)
		}
	})
	t.Run("table full", func(t *testing.T) {
		r := newRig(t, Config{Clients: 2})
		r.send(client(1), 1, 1)
		r.send(client(2), 1, 1)
		if s := r.send(client(3), 1, 1); StatusOf(s.Err) != 58 {
			t.Error(s.Err)
		}
		if s := r.send(client(2), 2, 1); s.Err != nil {
			t.Error(s.Err)
		}
		if s := r.send(client(3), 0, 1); s.Err != nil {
			t.Errorf("a send without identity needs no row: %v", s.Err)
		}
	})
}

func TestSendsWithoutIdentityAreNeverDuplicates(t *testing.T) {
	r := newRig(t, Config{})
	for i := range uint64(3) {
		if s := r.send(client(1), 0, 2); s.Err != nil || s.BaseOffset != 2*i || s.Duplicate {
			t.Fatalf("%+v", s)
		}
	}
	if r.p.dedup.rows != nil {
		t.Error("they made rows")
	}
}

func TestRejectedIsUndone(t *testing.T) {
	r := newRig(t, Config{})
	r.send(client(1), 1, 3)
	before := r.p.Checkpoint(nil)
	var rs []replica.Request
	for i := range uint64(4) {
		s := &Send{Client: wire.U128{Lo: 1}, User: 7, Request: 10 + i, Batch: rawBatch(2, 0, []byte("x"))}
		if r.p.Admit(s) == nil {
			t.Fatal("not admitted")
		}
		rs = append(rs, s)
	}
	w := &OffsetWrite{Client: wire.U128{Lo: 2}, User: 7, Request: 1, Kind: wire.ConsumerSingle, Key: 1, Offset: 2}
	if r.p.Admit(w) != nil || r.p.writing != 1 {
		t.Fatal("the write was not kept")
	}
	_, folded := r.p.Fold()
	rs = append(rs, folded...)
	slices.Reverse(rs) // newest first
	r.p.Rejected(rs)
	for _, q := range rs {
		q.Fail(replica.ErrNotAdmitted)
	}
	if r.p.admitNext != 3 || r.p.writing != 0 || r.p.dedup.flying != 0 || len(r.p.dedup.rows) != 1 {
		t.Errorf("next %d, writing %d, flying %d, rows %d", r.p.admitNext, r.p.writing, r.p.dedup.flying, len(r.p.dedup.rows))
	}
	if !bytes.Equal(before, r.p.Checkpoint(nil)) {
		t.Error("the applied state changed")
	}
	if s := r.send(client(1), 10, 1); s.Err != nil || s.BaseOffset != 3 {
		t.Errorf("%+v", s)
	}
}

// Only the younger part of a turn may be refused.
func TestRejectedSuffix(t *testing.T) {
	r := newRig(t, Config{})
	var sends []*Send
	var datas [][]byte
	for i := range uint64(3) {
		s := &Send{Client: wire.U128{Lo: 1}, User: 7, Request: 1 + i, Batch: rawBatch(2, 0, []byte("x"))}
		datas = append(datas, r.p.Admit(s))
		sends = append(sends, s)
	}
	r.p.Rejected([]replica.Request{sends[2], sends[1]})
	r.apply(datas[0], sends[0])
	if s := r.send(client(1), 2, 1); s.Err != nil || s.BaseOffset != 2 {
		t.Errorf("%+v", s)
	}
}

// What was in flight may be lost or committed later; both must work with the admission of the next primary.
func TestLeadershipLossClearsAdmission(t *testing.T) {
	for _, committed := range []bool{false, true} {
		t.Run(fmt.Sprintf("committed=%v", committed), func(t *testing.T) {
			r := newRig(t, Config{})
			r.send(client(2), 1, 1)
			s := &Send{Client: wire.U128{Lo: 1}, User: 7, Request: 1, Batch: rawBatch(2, 0, []byte("x"))}
			data := bytes.Clone(r.p.Admit(s))
			r.p.Lead(1, false)
			if len(r.p.dedup.rows) != 1 || r.p.dedup.flying != 0 {
				t.Errorf("rows %d, in flight %d", len(r.p.dedup.rows), r.p.dedup.flying)
			}
			next := uint64(1)
			if committed {
				r.apply(data)
				next = 3
			}
			r.p.Lead(2, true)
			again := r.send(client(1), 1, 2)
			if again.Err != nil || again.Duplicate != committed || again.BaseOffset != 1 {
				t.Errorf("%+v", again)
			}
			if other := r.send(client(3), 1, 1); other.BaseOffset != max(next, 3) {
				t.Errorf("%+v", other)
			}
		})
	}
}

func TestTimestampsNeverDecrease(t *testing.T) {
	r := newRig(t, Config{})
	a := r.send(client(1), 1, 1)
	r.clock.Jump(-minutes(5))
	b := r.send(client(1), 2, 1)
	if b.Timestamp != a.Timestamp {
		t.Errorf("timestamps %d, %d", a.Timestamp, b.Timestamp)
	}
	// Another primary with a slow clock starts from the log's newest time.
	p := New(Config{Clock: r.clock})
	if err := p.Restore(nil, r.p.Checkpoint(nil), r.index); err != nil {
		t.Fatal(err)
	}
	p.Lead(2, true)
	s := &Send{Request: 3, Batch: rawBatch(1, 0, []byte("x"))}
	if p.Admit(s) == nil || s.Timestamp != a.Timestamp {
		t.Errorf("timestamp %d after %d", s.Timestamp, a.Timestamp)
	}
}

func TestApplyChecksInvariants(t *testing.T) {
	entry := func(data []byte) segment.Entry { return segment.Entry{Index: 9, Term: 4, Data: data} }
	stamped := func(base uint64, count int) []byte {
		b := rawBatch(count, 0, []byte("x"))
		binary.LittleEndian.PutUint64(b[8:], base)
		return b
	}
	empty := stamped(1, 1)
	binary.LittleEndian.PutUint32(empty[48:], 0)
	for name, data := range map[string][]byte{
		"hole":            stamped(2, 1),
		"repeated offset": stamped(0, 1),
		"no messages":     empty,
		"not a record":    []byte("hello"),
		"unknown kind":    segment.AppendControl(nil, 99, nil),
		"bad commands":    segment.AppendControl(nil, segment.KindCommands, []byte{1}),
		"bad trim":        segment.AppendControl(nil, segment.KindTrim, nil),
		"bad purge":       segment.AppendControl(nil, segment.KindPurge, nil),
		"old purge":       segment.AppendControl(nil, segment.KindPurge, appendPurge(nil, 0)),
		"bad forget":      segment.AppendControl(nil, segment.KindForget, []byte{1}),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{})
			r.send(client(1), 1, 1)
			before := r.p.Checkpoint(nil)
			err := r.p.Apply(entry(data), nil)
			var broken *InvariantError
			if !errors.As(err, &broken) || broken.Index != 9 || broken.Term != 4 || broken.Partition != 3 {
				t.Fatalf("error %v", err)
			}
			if !bytes.Equal(before, r.p.Checkpoint(nil)) {
				t.Error("the state changed")
			}
			if err := r.p.Apply(entry(stamped(1, 1)), nil); !errors.As(err, &broken) {
				t.Errorf("it goes on after a broken invariant: %v", err)
			}
			if s := r.send(client(1), 2, 1); StatusOf(s.Err) != 58 {
				t.Errorf("it admits after a broken invariant: %v", s.Err)
			}
		})
	}
	t.Run("the host's own records", func(t *testing.T) {
		r := newRig(t, Config{})
		for _, data := range [][]byte{nil, segment.AppendControl(nil, segment.KindTerm, nil), segment.AppendControl(nil, segment.KindConfChange, []byte{1})} {
			if err := r.p.Apply(entry(data), nil); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestForgetIsProposedAndApplied(t *testing.T) {
	r := newRig(t, Config{})
	for n := uint64(1); n <= 3; n++ {
		r.send(client(n), 1, 1)
	}
	r.clock.Advance(minutes(9))
	r.send(client(2), 2, 1)
	if r.tick() != 0 {
		t.Error("forgot before ten minutes")
	}
	r.clock.Advance(minutes(1))
	if r.tick() != 1 || r.p.dedup.kept != 1 || r.p.dedup.rows[client(2)] == nil {
		t.Errorf("rows left: %d", r.p.dedup.kept)
	}
	if s := r.send(client(2), 1, 1); !s.Duplicate {
		t.Errorf("%+v", s)
	}
	r.clock.Advance(minutes(8))
	if r.tick() != 0 {
		t.Error("forgot early")
	}
	r.clock.Advance(minutes(1))
	if r.tick() != 1 || r.p.dedup.kept != 0 || len(r.p.dedup.rows) != 0 {
		t.Errorf("rows left: %d", r.p.dedup.kept)
	}
	if r.tick() != 0 {
		t.Error("an empty table proposes something")
	}
}

func TestForgetIsNotProposedAgainAtEveryTick(t *testing.T) {
	r := newRig(t, Config{})
	r.send(client(1), 1, 1)
	r.clock.Advance(minutes(10))
	n := 0
	for range 600 { // a minute without a commit
		n += len(r.p.Tick(0))
		r.clock.Advance(minutes(1) / 600)
	}
	if n != 1 {
		t.Errorf("%d records in a minute", n)
	}
}

func TestFullTableMakesRoomFromOldRows(t *testing.T) {
	r := newRig(t, Config{Clients: 8})
	for n := uint64(1); n <= 8; n++ {
		r.send(client(n), 1, 1)
	}
	r.clock.Advance(minutes(11))
	for n := uint64(11); n <= 18; n++ {
		if s := r.send(client(n), 1, 1); s.Err != nil {
			t.Fatalf("client %d: %v", n, s.Err)
		}
	}
	if s := r.send(client(19), 1, 1); StatusOf(s.Err) != 58 {
		t.Errorf("above the bound: %v", s.Err)
	}
	if r.tick() != 1 || r.p.dedup.kept != 8 {
		t.Errorf("rows left: %d", r.p.dedup.kept)
	}
	if s := r.send(client(11), 1, 1); !s.Duplicate {
		t.Errorf("%+v", s)
	}
}

func TestCuts(t *testing.T) {
	r := newRig(t, Config{})
	cut := func(kind CutKind, value uint64) *Cut {
		done := 0
		c := &Cut{Kind: kind, Value: value, Done: func(*Cut) { done++ }}
		if data := r.p.Admit(c); data != nil {
			r.apply(data, c)
		}
		if done != 1 {
			t.Fatalf("completed %d times", done)
		}
		return c
	}
	r.send(client(1), 1, 10)
	if c := cut(TrimBelow, 11); StatusOf(c.Err) != 4100 {
		t.Errorf("trim above the end: %v", c.Err)
	}
	if c := cut(TrimBelow, 4); c.Err != nil || r.p.Stats().FirstOffset != 4 || r.p.Stats().Messages != 6 {
		t.Errorf("%v %+v", c.Err, r.p.Stats())
	}
	if c := cut(TrimBelow, 3); c.Err != nil || r.p.Stats().FirstOffset != 4 {
		t.Errorf("a trim went back: %v %+v", c.Err, r.p.Stats())
	}
	r.write(&OffsetWrite{Kind: wire.ConsumerSingle, Key: 1, Offset: 9})
	if c := cut(PurgeAll, 3); c.Err != nil || r.p.Stats() != (Stats{Segments: 1, Generation: 3}) {
		t.Errorf("%v %+v", c.Err, r.p.Stats())
	}
	if _, ok := r.p.Offset(wire.ConsumerSingle, 1); ok {
		t.Error("an offset outlived a purge")
	}
	if s := r.send(client(1), 1, 10); !s.Duplicate {
		t.Errorf("a replay from before the purge: %+v", s)
	}
	if s := r.send(client(1), 2, 1); s.Err != nil || s.BaseOffset != 0 {
		t.Errorf("first send after the purge: %+v", s)
	}
	if c := cut(PurgeAll, 3); c.Err != nil || r.p.CurrentOffset() != 0 || r.p.Stats().Messages != 1 {
		t.Errorf("a purge ran twice: %v %+v", c.Err, r.p.Stats())
	}
}

func TestPurgeRejected(t *testing.T) {
	r := newRig(t, Config{})
	r.send(client(1), 1, 10)
	c := &Cut{Kind: PurgeAll, Value: 1}
	s := &Send{Batch: rawBatch(2, 0, []byte("x"))}
	if r.p.Admit(c) == nil || r.p.Admit(s) == nil || s.BaseOffset != 0 {
		t.Fatal("not admitted")
	}
	r.p.Rejected([]replica.Request{s, c})
	if s := r.send(client(1), 2, 1); s.Err != nil || s.BaseOffset != 10 {
		t.Errorf("%+v", s)
	}
}
