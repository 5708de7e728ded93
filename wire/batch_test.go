package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.NewReplacer(" ", "", "|", "", "\n", "", "\t", "").Replace(s))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// golden is the batch of messages §1.4.
func golden(t testing.TB) Batch {
	t.Helper()
	b := unhex(t, `0000000000000000 0000000000000000 0000000000000000 40420f0000000000 7701000000000000 19e3cad3ff4243cb 02000000`)
	b = append(b, make([]byte, 204)...)
	b = append(b, unhex(t, `8e5ca59edbbdbfb9 01000000000000000000000000000000 00000000 00000000 00000000 05000000 0000000000000000 68656c6c6f
		9d7bb8be8cb4ec97 02000000000000000000000000000000 01000000 05000000 0c000000 06000000 0000000000000000 776f726c6421
		02 01000000 6b 02 01000000 76`)...)
	return b
}

func goldenMessages() []Message {
	return []Message{
		{ID: U128{Lo: 1}, OriginTimestamp: 1_000_000, Payload: []byte("hello")},
		{ID: U128{Lo: 2}, OriginTimestamp: 1_000_005, Payload: []byte("world!"), Headers: Headers{Header("k", StringValue("v"))}},
	}
}

func TestGoldenBatch(t *testing.T) {
	want := golden(t)
	got, err := BuildBatch(nil, goldenMessages())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("built\n%x\nwant\n%x", got, []byte(want))
	}
	if err := want.Verify(); err != nil {
		t.Fatal(err)
	}
	s := SendMessages{ID(7), Name("orders"), PartitionID(3), want}
	prefix := unhex(t, `18000000 0104 07000000 | 0206 6f7264657273 | 0204 03000000 | 02000000`)
	if body := s.Append(nil); !bytes.Equal(body, append(prefix, want...)) {
		t.Errorf("send body\n%x", body)
	}
	frames := bytes.Clone(want.Frames())
	want.Stamp(3, 100, 2_000_000)
	if want.Checksum() != 0xa80a08ab46e22428 {
		t.Errorf("stamped checksum %#x", want.Checksum())
	}
	if want.PartitionID() != 3 || want.BaseOffset() != 100 || want.BaseTimestamp() != 2_000_000 ||
		want.OriginTimestamp() != 1_000_000 || want.Count() != 2 || want.Length() != 375 ||
		want.FirstOffset() != 100 || want.LastOffset() != 101 {
		t.Error("stamped fields")
	}
	if !bytes.Equal(frames, want.Frames()) {
		t.Error("stamping changed a frame")
	}
	if err := want.Verify(); err != nil {
		t.Error(err)
	}
	var sums FrameSums
	again := golden(t)
	if err := again.VerifyInto(&sums); err != nil {
		t.Fatal(err)
	}
	again.StampFrom(&sums, 3, 100, 2_000_000)
	if !bytes.Equal(again, want) {
		t.Error("StampFrom differs from Stamp")
	}
}

func TestVerifyFindsEveryChangedByte(t *testing.T) {
	b := golden(t)
	for i := range b {
		b[i] ^= 0x40
		_, _, perr := ParseBatch(b)
		err := b.Verify()
		reserved := i >= BatchReservedOffset && i < BatchHeaderSize
		switch {
		case reserved && !errors.Is(perr, ErrValidation):
			t.Errorf("reserved byte %d: %v", i, perr)
		case !reserved && err == nil:
			t.Errorf("byte %d: change not found", i)
		}
		b[i] ^= 0x40
	}
}

func TestVerifyOrderOfErrors(t *testing.T) {
	b := golden(t)
	b[BatchHeaderSize] ^= 1 // a stored frame checksum: batch and message are wrong
	if err := b.Verify(); !errors.Is(err, ErrInvalidBatchChecksum) {
		t.Errorf("stored checksum: %v", err)
	}
	b = golden(t)
	b[len(b)-1] ^= 1 // only the message is wrong
	if err := b.Verify(); !errors.Is(err, ErrInvalidMessageChecksum) || StatusOf(err) != 4027 {
		t.Errorf("payload: %v", err)
	}
	if err := b.VerifyMessages(); !errors.Is(err, ErrInvalidMessageChecksum) {
		t.Errorf("payload: %v", err)
	}
	b = golden(t)
	le.PutUint32(b[BatchHeaderSize+53+offMsgDelta:], 7)
	if err := b.Verify(); !errors.Is(err, ErrValidation) || StatusOf(err) != ErrInvalidCommand {
		t.Errorf("deltas: %v", err)
	}
}

func TestStampFromForeignSums(t *testing.T) {
	var sums FrameSums
	one, _ := BuildBatch(nil, goldenMessages()[:1])
	if err := Batch(one).VerifyInto(&sums); err != nil {
		t.Fatal(err)
	}
	b := golden(t)
	b.StampFrom(&sums, 3, 100, 2_000_000)
	if b.Checksum() != 0xa80a08ab46e22428 {
		t.Error("sums of another batch gave a wrong checksum")
	}
}

func TestStoredBatchStamp(t *testing.T) {
	b := golden(t)
	copy(b.Reserved(), "stamp of the log")
	if _, _, err := ParseBatch(b); !errors.Is(err, ErrValidation) {
		t.Errorf("reserved bytes on the wire: %v", err)
	}
	s, rest, err := ParseStoredBatch(append(bytes.Clone(b), 1, 2))
	if err != nil || len(rest) != 2 {
		t.Fatal(err, rest)
	}
	if err := s.Verify(); err != nil {
		t.Error(err)
	}
	s.ClearReserved()
	if !bytes.Equal(s, golden(t)) {
		t.Error("cleared batch differs")
	}
}

func TestBuilderLimits(t *testing.T) {
	big := make([]byte, MaxPayloadSize+1)
	value := RawValue(make([]byte, 255))
	var headers Headers
	for headers.Size()+265+5 < MaxHeadersSize {
		headers = append(headers, KeyValue{Uint32Value(uint32(len(headers))), value})
	}
	full := append(Headers{}, headers...)
	room := MaxHeadersSize - full.Size() - 9 - 5
	for room > 255 {
		full = append(full, KeyValue{Uint32Value(uint32(len(full))), RawValue(make([]byte, 100))})
		room = MaxHeadersSize - full.Size() - 9 - 5
	}
	full = append(full, KeyValue{Uint32Value(uint32(len(full))), RawValue(make([]byte, room))})
	if full.Size() != MaxHeadersSize {
		t.Fatal(full.Size())
	}
	over := append(Headers{}, full...)
	last := &over[len(over)-1]
	last.Key = RawValue(append([]byte{}, last.Key.Data[0], last.Key.Data[1], last.Key.Data[2], last.Key.Data[3], 9))
	for _, c := range []struct {
		name string
		m    Message
		want error
	}{
		{"empty payload", Message{}, ErrInvalidMessagePayloadLength},
		{"one byte", Message{Payload: big[:1]}, nil},
		{"payload too big", Message{Payload: big}, ErrTooBigMessagePayload},
		{"largest headers", Message{Payload: big[:1], Headers: full}, nil},
		{"headers too big", Message{Payload: big[:1], Headers: over}, ErrTooBigUserHeaders},
		{"encoded headers too big", Message{Payload: big[:1], HeadersBytes: make([]byte, MaxHeadersSize+1)}, ErrTooBigUserHeaders},
		{"encoded headers damaged", Message{Payload: big[:1], HeadersBytes: []byte{1, 2}}, ErrUnexpectedEOF},
		{"empty key", Message{Payload: big[:1], Headers: Headers{Header("", BoolValue(true))}}, ErrInvalidHeaderKey},
		{"long key", Message{Payload: big[:1], Headers: Headers{Header(strings.Repeat("k", 256), BoolValue(true))}}, ErrInvalidHeaderKey},
		{"empty value", Message{Payload: big[:1], Headers: Headers{Header("k", RawValue(nil))}}, ErrInvalidHeaderValue},
		{"size of value", Message{Payload: big[:1], Headers: Headers{Header("k", Value{KindUint32, big[:3]})}}, ErrInvalidHeaderValue},
		{"timestamp too far", Message{Payload: big[:1], OriginTimestamp: 1 << 32}, ErrInvalidMessageTimestampDelta},
		{"timestamp just near enough", Message{Payload: big[:1], OriginTimestamp: 1<<32 - 1}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var w BatchBuilder
			if err := w.Add(&Message{ID: U128{Lo: 9}, Payload: []byte("x")}); err != nil {
				t.Fatal(err)
			}
			err := w.Add(&c.m)
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Fatalf("error %v, want %v", err, c.want)
			}
			b, ferr := w.Finish()
			if ferr != nil || b.Verify() != nil {
				t.Fatal(ferr, b.Verify())
			}
			if want := 2; err != nil && b.Count() != 1 || err == nil && int(b.Count()) != want {
				t.Errorf("%d messages", b.Count())
			}
		})
	}
	var w BatchBuilder
	if _, err := w.Finish(); !errors.Is(err, ErrInvalidMessagesCount) {
		t.Errorf("empty batch: %v", err)
	}
}

func TestBuilderRebasesTimestamps(t *testing.T) {
	var w BatchBuilder
	for _, ts := range []uint64{500, 300, 900, 100, 100} {
		if err := w.Add(&Message{OriginTimestamp: ts, Payload: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Add(&Message{OriginTimestamp: 901 + math.MaxUint32, Payload: []byte("x")}); !errors.Is(err, ErrInvalidMessageTimestampDelta) {
		t.Fatal(err)
	}
	b, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Verify(); err != nil {
		t.Fatal(err)
	}
	var got []uint64
	for m := range b.Messages() {
		got = append(got, m.OriginTimestamp)
		if m.ID.IsZero() {
			t.Error("id 0")
		}
	}
	if b.OriginTimestamp() != 100 || len(got) != 5 || got[0] != 500 || got[3] != 100 {
		t.Errorf("origin %d, messages %v", b.OriginTimestamp(), got)
	}
}

// TestBuilderInFrame builds a whole send frame in one buffer.
func TestBuilderInFrame(t *testing.T) {
	s := SendMessages{Stream: ID(7), Topic: Name("orders"), Partitioning: PartitionID(3)}
	var w BatchBuilder
	frame, start := BeginFrame(nil)
	body := len(frame)
	frame = s.AppendPrefix(frame) // room; rewritten below with the count
	w.ResetInto(frame)
	for _, m := range goldenMessages() {
		if err := w.Add(&m); err != nil {
			t.Fatal(err)
		}
	}
	b, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	s.Batch = b
	frame = w.Buffer()
	s.AppendPrefix(frame[body:body])
	h := RequestHeader{Client: vectorClient, Request: 3, Session: 42}
	FinishRequest(frame, start, h, CodeSendMessages)
	if want := AppendCommand(nil, h, &s); !bytes.Equal(frame, want) {
		t.Errorf("frame\n%x\nwant\n%x", frame, want)
	}
}

func randomBatch(r *rand.Rand, n int) Batch {
	var w BatchBuilder
	for range n {
		p := make([]byte, 1+r.IntN(300))
		for i := range p {
			p[i] = byte(r.Uint32())
		}
		if err := w.Add(&Message{OriginTimestamp: 1000 + uint64(r.IntN(1000)), Payload: p}); err != nil {
			panic(err)
		}
	}
	b, err := w.Finish()
	if err != nil {
		panic(err)
	}
	return b
}

func TestSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "messages")
		base := rapid.Uint64Range(0, 1000).Draw(t, "base")
		from := rapid.Uint64Range(0, 1100).Draw(t, "from")
		count := rapid.Uint32Range(0, 50).Draw(t, "count")
		maxBytes := rapid.SampledFrom([]int{0, 1, 500, 5000}).Draw(t, "bytes")
		b := randomBatch(rand.New(rand.NewPCG(1, rapid.Uint64().Draw(t, "seed"))), n)
		b.Stamp(5, base, 77)
		copy(b.Reserved(), "log stamp")
		var want []MessageView
		size := 0
		for m := range b.Messages() {
			frame := MessageHeaderSize + len(m.Payload) + len(m.HeadersBytes)
			if m.Offset < from {
				continue
			}
			if len(want) == int(count) || len(want) > 0 && maxBytes > 0 && size+frame > maxBytes {
				break
			}
			size += frame
			want = append(want, m)
		}
		r, ok := b.Range(from, count, maxBytes)
		if ok != (len(want) > 0) || int(r.Count) != len(want) {
			t.Fatalf("range %+v %v, want %d messages", r, ok, len(want))
		}
		if !ok {
			if Slice(b, from, count) != nil {
				t.Fatal("slice of nothing")
			}
			return
		}
		before := bytes.Clone(b)
		appended := AppendSlice([]byte("front"), b, r)
		if !bytes.Equal(before, b) {
			t.Fatal("AppendSlice changed the batch")
		}
		s, rest, err := ParseBatch(appended[5:])
		if err != nil || len(rest) != 0 || len(s) != r.Size() {
			t.Fatal(err, len(rest))
		}
		if err := s.Verify(); err != nil {
			t.Fatal(err)
		}
		if s.BaseOffset() != base || s.FirstOffset() != want[0].Offset || s.LastOffset() != want[len(want)-1].Offset {
			t.Fatal("offsets of the slice")
		}
		i := 0
		for m := range s.Messages() {
			w := want[i]
			if m.Offset != w.Offset || m.Timestamp != 77 || m.OriginTimestamp != w.OriginTimestamp || m.ID != w.ID ||
				m.Checksum != w.Checksum || !bytes.Equal(m.Payload, w.Payload) {
				t.Fatalf("message %d differs", i)
			}
			i++
		}
		if in := SliceRange(b, r); !bytes.Equal(in, s) {
			t.Fatal("in place differs from appended")
		}
	})
}

func TestBatchTooShort(t *testing.T) {
	for n := range BatchHeaderSize {
		b := Batch(make([]byte, n))
		if b.Count() != 0 || b.BaseOffset() != 0 || b.Verify() == nil || b.CheckFrames() == nil || b.VerifyMessages() == nil {
			t.Fatalf("%d bytes pass as a batch", n)
		}
		if _, ok := b.Range(0, 1, 0); ok {
			t.Fatal("range in a short batch")
		}
		for range b.Messages() {
			t.Fatal("message in a short batch")
		}
	}
}

func TestSendMessagesDecodeRefuses(t *testing.T) {
	good := (&SendMessages{ID(7), Name("orders"), PartitionID(3), golden(t)}).Append(nil)
	at := 28 // of the batch
	for _, c := range []struct {
		name   string
		change func(b []byte) []byte
		kind   error
	}{
		{"trailing byte", func(b []byte) []byte { return append(b, 0) }, ErrValidation},
		{"truncated", func(b []byte) []byte { return b[:len(b)-1] }, ErrUnexpectedEOF},
		{"other count", func(b []byte) []byte { b[24]++; return b }, ErrValidation},
		{"no messages", func(b []byte) []byte { b[24] = 0; b[at+offBatchCount] = 0; return b }, ErrValidation},
		{"metadata too long", func(b []byte) []byte { b[0]++; return b }, ErrValidation},
		{"metadata too short", func(b []byte) []byte { b[0]--; return b }, ErrUnexpectedEOF},
		{"metadata beyond the end", func(b []byte) []byte { b[3] = 0x7f; return b }, ErrUnexpectedEOF},
		{"reserved byte", func(b []byte) []byte { b[at+100] = 1; return b }, ErrValidation},
		{"first delta", func(b []byte) []byte { b[at+BatchHeaderSize+offMsgDelta] = 1; return b }, ErrValidation},
		{"stream kind", func(b []byte) []byte { b[4] = 3; return b }, ErrUnknownDiscriminant},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s SendMessages
			err := s.Decode(c.change(bytes.Clone(good)))
			if !errors.Is(err, c.kind) || StatusOf(err) != ErrInvalidCommand {
				t.Errorf("%v, want %v", err, c.kind)
			}
		})
	}
}
