package wire

import (
	"bytes"
	"encoding/hex"
	"runtime"
	"testing"
)

// seeds gives the bytes of every vector of a file.
func seeds(t testing.TB, file string) [][]byte {
	t.Helper()
	var out [][]byte
	for _, v := range loadVectors(t, file) {
		b, err := hex.DecodeString(v.Hex)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

// stable checks decode -> encode -> decode -> encode.
func stable(t *testing.T, src []byte, fresh func() interface {
	Append([]byte) []byte
	Decode([]byte) error
}) {
	t.Helper()
	a := fresh()
	if a.Decode(src) != nil {
		return
	}
	first := a.Append(nil)
	b := fresh()
	if err := b.Decode(first); err != nil {
		t.Fatalf("what was decoded does not encode to something that decodes: %v\nfrom %x\nto   %x", err, src, first)
	}
	if second := b.Append(nil); !bytes.Equal(first, second) {
		t.Fatalf("not stable\n%x\n%x", first, second)
	}
}

func FuzzRequests(f *testing.F) {
	codes := Commands()
	for _, v := range loadVectors(f, "requests.json") {
		b, _ := hex.DecodeString(v.Hex)
		f.Add(uint8(v0_11.index(v.Code)), b)
	}
	for _, v := range loadVectors(f, "negative.json") {
		b, _ := hex.DecodeString(v.Hex)
		f.Add(uint8(max(0, v0_11.index(v.Code))), b)
	}
	f.Add(uint8(len(codes)-2), (&TransferLeader{TransferPartition, ID(1), Name("t"), 3, "node-2", true}).Append(nil))
	f.Fuzz(func(t *testing.T, i uint8, src []byte) {
		c := codes[int(i)%len(codes)]
		stable(t, src, func() interface {
			Append([]byte) []byte
			Decode([]byte) error
		} {
			return c.New()
		})
	})
}

func FuzzReplies(f *testing.F) {
	for i := range newReplies {
		for _, b := range seeds(f, "responses.json") {
			f.Add(uint8(i), b)
		}
	}
	f.Fuzz(func(t *testing.T, i uint8, src []byte) {
		stable(t, src, func() interface {
			Append([]byte) []byte
			Decode([]byte) error
		} {
			return newReplies[int(i)%len(newReplies)]()
		})
	})
}

func FuzzHeaders(f *testing.F) {
	for _, file := range []string{"frames.json", "negative.json"} {
		for _, b := range seeds(f, file) {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		_, _ = FrameSize(src)
		var buf [HeaderSize]byte
		var q, q2 RequestHeader
		if q.Decode(src) == nil {
			q.Put(buf[:])
			if q2.Decode(buf[:]) != nil || q != q2 {
				t.Fatalf("request header\n%+v\n%+v", q, q2)
			}
			q.Command()
		}
		var r, r2 ReplyHeader
		if r.Decode(src) == nil {
			r.Put(buf[:])
			if r2.Decode(buf[:]) != nil || r != r2 {
				t.Fatalf("reply header\n%+v\n%+v", r, r2)
			}
			_, _ = r.Payload(src[HeaderSize:])
		}
		var e, e2 EvictionHeader
		if e.Decode(src) == nil {
			e.Put(buf[:])
			if e2.Decode(buf[:]) != nil || e != e2 || e.Err(CurrentVersion) == nil {
				t.Fatalf("eviction\n%+v\n%+v", e, e2)
			}
		}
		_, _ = SplitResult(src)
	})
}

func FuzzBatch(f *testing.F) {
	for _, file := range []string{"negative.json", "responses.json"} {
		for _, b := range seeds(f, file) {
			f.Add(b, uint64(1), uint32(2))
			if len(b) > PollReplyPrefix {
				f.Add(b[PollReplyPrefix:], uint64(1), uint32(2))
			}
		}
	}
	f.Add([]byte(golden(f)), uint64(1), uint32(1))
	f.Fuzz(func(t *testing.T, src []byte, from uint64, count uint32) {
		b, rest, err := ParseBatch(src)
		if err != nil {
			return
		}
		if len(b)+len(rest) != len(src) {
			t.Fatal("bytes lost")
		}
		b = bytes.Clone(b)
		verr, ferr := b.Verify(), b.CheckFrames()
		if verr == nil && ferr != nil {
			t.Fatalf("verified, but %v", ferr)
		}
		n := 0
		for m := range b.Messages() {
			n++
			_, _ = m.Headers()
		}
		if ferr == nil && n != int(b.Count()) {
			t.Fatalf("%d messages of %d", n, b.Count())
		}
		if r, ok := b.Range(from, count, 0); ok {
			s, rest, err := ParseBatch(AppendSlice(nil, b, r))
			if err != nil || len(rest) != 0 || ferr == nil && s.CheckFrames() != nil {
				t.Fatalf("slice %+v: %v", r, err)
			}
		}
		b.Stamp(1, 2, 3)
		if verr == nil && b.Verify() != nil {
			t.Fatal("stamping broke the batch")
		}
	})
}

func FuzzHeaderList(f *testing.F) {
	f.Add(headersThree().Append(nil))
	f.Add(optionsTwo().Append(nil))
	f.Fuzz(func(t *testing.T, src []byte) {
		var h Headers
		err := h.Decode(src)
		if (CheckHeaders(src) == nil) != (err == nil) {
			t.Fatal("CheckHeaders and Decode differ")
		}
		n := 0
		for k, v := range AllHeaders(src) {
			n++
			_, _ = k.String(), v.String()
		}
		if n != len(h) {
			t.Fatalf("walked %d of %d", n, len(h))
		}
		if err == nil {
			if !bytes.Equal(h.Append(nil), src) {
				t.Fatal("encodes to other bytes")
			}
			_ = h.Validate()
			h.AppendSorted(nil)
		}
		var o Options
		if o.Decode(src) == nil {
			if _, err := ResolveTopicOptions(o, 3, DefaultTopicOptions()); err == nil {
				TopicOptionsOf(o, nil)
			}
		}
	})
}

func FuzzUnits(f *testing.F) {
	for _, s := range []string{"7 days", "1h 30m", "128 MiB", "1.5 KiB", "none", "17"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		_, _ = ParseExpiry(s)
		_, _ = ParseLimit(s)
		if i, err := ParseIdentifier(s); err == nil {
			var back Identifier
			if n, err := back.Decode(i.Append(nil)); err != nil || back != i || n == 0 {
				t.Fatal(i, back, err)
			}
		}
	})
}

// TestHostileCounts puts large numbers at every position of every vector: no
// decoder may allocate out of proportion to its input.
func TestHostileCounts(t *testing.T) {
	type decoder interface{ Decode([]byte) error }
	var before, after runtime.MemStats
	check := func(name string, b []byte, fresh func() decoder) {
		for at := range b {
			for _, n := range []uint32{1<<32 - 1, 1 << 30, 1 << 20, uint32(len(b))} {
				c := bytes.Clone(b)
				if at+4 > len(c) {
					continue
				}
				le.PutUint32(c[at:], n)
				d := fresh()
				runtime.ReadMemStats(&before)
				_ = d.Decode(c)
				runtime.ReadMemStats(&after)
				if grown := after.TotalAlloc - before.TotalAlloc; grown > uint64(64*len(c)+16<<10) {
					t.Errorf("%s: %d at %d of %d bytes allocates %d", name, n, at, len(c), grown)
				}
			}
		}
	}
	for _, v := range loadVectors(t, "requests.json") {
		if b := v.bytes(t); len(b) < 400 {
			check(v.Name, b, func() decoder { r, _ := NewRequest(v.Code); return r })
		}
	}
	replies := vectorReplies(t)
	for _, v := range loadVectors(t, "responses.json") {
		w := replies[v.Name]
		if _, none := w.(notFound); none || v.Len == 0 || v.Len > 400 {
			continue
		}
		check(v.Name, v.bytes(t), func() decoder { return freshReply(w) })
	}
	status := &ClusterStatusReply{
		Nodes:  []NodeState{{"node-1", RoleLeader, true, 5}},
		Groups: []GroupState{{1, 2, 3, 0, NoNode, 9, 100, []FollowerState{{1, 99}}}},
	}
	check("cluster status", status.Append(nil), func() decoder { return new(ClusterStatusReply) })
}
