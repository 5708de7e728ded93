package wire

import (
	"fmt"
	"testing"
)

func sizedBatch(t testing.TB, count, size int) Batch {
	t.Helper()
	var w BatchBuilder
	payload := make([]byte, size)
	for i := range count {
		payload[0] = byte(i)
		if err := w.Add(&Message{ID: U128{Lo: uint64(i) + 1}, OriginTimestamp: uint64(i), Payload: payload}); err != nil {
			t.Fatal(err)
		}
	}
	b, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestNoAllocations pins the paths of sends and polls.
func TestNoAllocations(t *testing.T) {
	b := sizedBatch(t, 100, 100)
	send := (&SendMessages{Name("stream"), Name("topic"), PartitionID(1), b}).Append(nil)
	key, _ := MessagesKey([]byte("key"))
	keyed := (&SendMessages{ID(1), Name("topic"), key, b}).Append(nil)
	poll := (&PollMessages{GroupConsumer(Name("group")), Name("s"), Name("t"), SomePartition(1), FromNext(), 10, true}).Append(nil)
	polled := (&PolledMessages{1, 99, 200, append(append([]byte{}, b...), b...)}).Append(nil)
	confirmation := AppendConfirmation(nil, SendConfirmation{1, 2, 3, 4})
	frame := AppendRequest(nil, RequestHeader{Client: U128{Lo: 1}, Request: 1, Session: 1, Operation: OpSendMessages}, send)
	message := Message{ID: U128{Lo: 1}, OriginTimestamp: 5, Payload: make([]byte, 100), Headers: headersThree()}
	message.Headers.Sort()

	var (
		h      RequestHeader
		rh     ReplyHeader
		s      SendMessages
		p      PollMessages
		ps     PolledMessages
		sc     SendConfirmations
		sums   FrameSums
		w      BatchBuilder
		dst    = make([]byte, 0, 1<<20)
		stored = append(Batch{}, b...)
		sink   int
	)
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		f    func()
	}{
		{"request header", func() { must(h.Decode(frame)); h.Put(dst[:HeaderSize]) }},
		{"reply header", func() { rh = h.Reply(); rh.Put(dst[:HeaderSize]); must(rh.Decode(dst[:HeaderSize])) }},
		{"send decode", func() { must(s.Decode(send)) }},
		{"send decode with key", func() { must(s.Decode(keyed)) }},
		{"send encode", func() { dst = s.Append(dst[:0]) }},
		{"send frame", func() { dst = AppendCommand(dst[:0], h, &s) }},
		{"send reply", func() { dst = AppendSuccess(dst[:0], rh, &sc) }},
		{"refusal", func() { dst = AppendStatus(dst[:0], rh, ErrTransientNotAccepted) }},
		{"whole request", func() { dst = AppendRequest(dst[:0], h, send) }},
		{"whole reply", func() { dst = AppendReply(dst[:0], rh, confirmation) }},
		{"poll decode", func() { must(p.Decode(poll)) }},
		{"poll encode", func() { dst = p.Append(dst[:0]) }},
		{"polled decode", func() { must(ps.Decode(polled)) }},
		{"polled messages", func() {
			for m := range ps.Messages() {
				sink += len(m.Payload)
			}
		}},
		{"polled batches", func() {
			for b := range ps.Batches() {
				for m := range b.Messages() {
					sink += len(m.Payload)
				}
			}
		}},
		{"confirmation", func() { must(sc.Decode(confirmation)); dst = sc.Append(dst[:0]) }},
		{"parse", func() { b, _, err := ParseBatch(b); must(err); must(b.CheckFrames()) }},
		{"verify", func() { must(b.Verify()) }},
		{"stamp", func() { stored.Stamp(1, 2, 3) }},
		{"verify into and stamp from", func() { must(b.VerifyInto(&sums)); stored.StampFrom(&sums, 1, 2, 3) }},
		{"slice", func() {
			r, _ := b.Range(10, 20, 0)
			dst = AppendSlice(dst[:0], b, r)
		}},
		{"build", func() {
			w.Reset()
			for range 10 {
				must(w.Add(&message))
			}
			_, err := w.Finish()
			must(err)
		}},
		{"header walk", func() {
			for k, v := range AllHeaders(message.HeadersBytes) {
				sink += len(k.Data) + len(v.Data)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if raceEnabled {
				t.Skip("the race detector empties pools at random")
			}
			if n := testing.AllocsPerRun(200, c.f); n != 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
	_ = sink
}

func benchSizes(b *testing.B, f func(b *testing.B, batch Batch)) {
	for _, c := range []struct{ count, size int }{{100, 100}, {1000, 1000}} {
		b.Run(fmt.Sprintf("%dx%dB", c.count, c.size), func(b *testing.B) {
			batch := sizedBatch(b, c.count, c.size)
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			f(b, batch)
		})
	}
}

func BenchmarkVerify(b *testing.B) {
	benchSizes(b, func(b *testing.B, batch Batch) {
		for b.Loop() {
			if batch.Verify() != nil {
				b.Fatal("damaged")
			}
		}
	})
}

func BenchmarkStamp(b *testing.B) {
	benchSizes(b, func(b *testing.B, batch Batch) {
		for b.Loop() {
			batch.Stamp(1, 2, 3)
		}
	})
}

func BenchmarkVerifyAndStamp(b *testing.B) {
	benchSizes(b, func(b *testing.B, batch Batch) {
		var sums FrameSums
		for b.Loop() {
			if batch.VerifyInto(&sums) != nil {
				b.Fatal("damaged")
			}
			batch.StampFrom(&sums, 1, 2, 3)
		}
	})
}

func BenchmarkBuild(b *testing.B) {
	benchSizes(b, func(b *testing.B, batch Batch) {
		var messages []Message
		for m := range batch.Messages() {
			messages = append(messages, Message{ID: m.ID, OriginTimestamp: m.OriginTimestamp, Payload: m.Payload})
		}
		var w BatchBuilder
		for b.Loop() {
			w.Reset()
			for i := range messages {
				if w.Add(&messages[i]) != nil {
					b.Fatal("refused")
				}
			}
			if _, err := w.Finish(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkSendDecode(b *testing.B) {
	body := (&SendMessages{Name("stream"), Name("topic"), PartitionID(1), sizedBatch(b, 100, 100)}).Append(nil)
	b.ReportAllocs()
	var s SendMessages
	for b.Loop() {
		if s.Decode(body) != nil {
			b.Fatal("refused")
		}
	}
}

func BenchmarkPolledMessages(b *testing.B) {
	benchSizes(b, func(b *testing.B, batch Batch) {
		body := (&PolledMessages{1, 2, batch.Count(), batch}).Append(nil)
		var p PolledMessages
		n := 0
		for b.Loop() {
			if p.Decode(body) != nil {
				b.Fatal("refused")
			}
			for m := range p.Messages() {
				n += len(m.Payload)
			}
		}
	})
}
