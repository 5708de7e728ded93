package floor

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"testing"

	"go.uber.org/goleak"

	"github.com/whippetmq/whippet/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer is the other end of a connection, in frames.
type peer struct {
	t    *testing.T
	c    net.Conn
	next uint64
}

func start(t *testing.T) *peer {
	t.Helper()
	s, err := Start(t.Context(), "127.0.0.1:0", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &peer{t: t, c: c}
}

func (p *peer) frame(req wire.Request) []byte {
	p.next++
	h := wire.RequestHeader{Client: wire.U128{Lo: 7}}
	if op := wire.OperationFor(req.Code()); op != wire.OpRegister {
		h.Session, h.Request = 1, p.next
	}
	return wire.AppendCommand(nil, h, req)
}

func (p *peer) read() (wire.ReplyHeader, []byte) {
	p.t.Helper()
	head := make([]byte, wire.HeaderSize)
	if _, err := io.ReadFull(p.c, head); err != nil {
		p.t.Fatal(err)
	}
	var h wire.ReplyHeader
	if err := h.Decode(head); err != nil {
		p.t.Fatal(err)
	}
	body := make([]byte, h.Size-wire.HeaderSize)
	if _, err := io.ReadFull(p.c, body); err != nil {
		p.t.Fatal(err)
	}
	return h, body
}

func (p *peer) do(req wire.Request, into wire.Reply) error {
	p.t.Helper()
	if _, err := p.c.Write(p.frame(req)); err != nil {
		p.t.Fatal(err)
	}
	h, body := p.read()
	payload, err := h.Payload(body)
	if err != nil {
		return err
	}
	if into != nil {
		return into.Decode(payload)
	}
	return nil
}

func (p *peer) setUp() {
	p.t.Helper()
	var login wire.LoginReply
	if err := p.do(&wire.LoginRegister{
		Version:  wire.ClientVersion{Protocol: wire.CurrentVersion, SDKName: "t", SDKVersion: "1"},
		Username: "iggy", Password: "iggy",
	}, &login); err != nil || login.Session == 0 {
		p.t.Fatalf("login: %+v, %v", login, err)
	}
	if err := p.do(&wire.CreateStream{Name: "s"}, new(wire.StreamDetails)); err != nil {
		p.t.Fatal(err)
	}
	var t wire.TopicDetails
	if err := p.do(&wire.CreateTopic{Stream: wire.Name("s"), Name: "t", PartitionsCount: 2}, &t); err != nil || len(t.Partitions) != 2 {
		p.t.Fatalf("topic: %+v, %v", t, err)
	}
}

func send(t *testing.T, payload string, n int) *wire.SendMessages {
	t.Helper()
	var messages []wire.Message
	for i := range n {
		messages = append(messages, wire.Message{Payload: fmt.Appendf(nil, "%s-%d", payload, i)})
	}
	b, err := wire.BuildBatch(nil, messages)
	if err != nil {
		t.Fatal(err)
	}
	return &wire.SendMessages{Stream: wire.Name("s"), Topic: wire.Name("t"), Partitioning: wire.PartitionID(1), Batch: b}
}

func (p *peer) pollFrom(offset uint64, count uint32) (payloads []string, current uint64) {
	p.t.Helper()
	var got wire.PolledMessages
	if err := p.do(&wire.PollMessages{
		Consumer: wire.SingleConsumer(wire.ID(1)), Stream: wire.Name("s"), Topic: wire.Name("t"),
		Partition: wire.SomePartition(1), Strategy: wire.FromOffset(offset), Count: count,
	}, &got); err != nil {
		p.t.Fatal(err)
	}
	want := offset
	for m := range got.Messages() {
		if m.Offset != want {
			p.t.Errorf("offset %d, want %d", m.Offset, want)
		}
		want++
		payloads = append(payloads, string(m.Payload))
	}
	return payloads, got.CurrentOffset
}

func TestSendAndPoll(t *testing.T) {
	p := start(t)
	p.setUp()
	if got, _ := p.pollFrom(0, 10); len(got) != 0 {
		t.Errorf("an empty partition gave %v", got)
	}
	for i := range 3 {
		var c wire.SendConfirmations
		if err := p.do(send(t, fmt.Sprint(i), 4), &c); err != nil || c.Confirmations[0].BaseOffset != uint64(4*i) {
			t.Fatalf("send %d: %+v, %v", i, c, err)
		}
	}
	for _, c := range []struct {
		offset      uint64
		count       uint32
		first, last string
		n           int
	}{
		{0, 4, "0-0", "0-3", 4}, {0, 100, "0-0", "2-3", 12}, {4, 8, "1-0", "2-3", 8},
		{5, 2, "1-1", "1-2", 2}, {6, 4, "1-2", "2-1", 4}, {11, 1, "2-3", "2-3", 1}, {12, 5, "", "", 0}, {0, 5, "0-0", "1-0", 5},
	} {
		got, current := p.pollFrom(c.offset, c.count)
		if current != 11 || len(got) != c.n || c.n > 0 && (got[0] != c.first || got[len(got)-1] != c.last) {
			t.Errorf("%d messages from %d: %v (current %d)", c.count, c.offset, got, current)
		}
	}
}

// Frames that arrive in one piece, or in pieces, are all answered, in order.
func TestFramesInAnyPieces(t *testing.T) {
	p := start(t)
	p.setUp()
	var all []byte
	for i := range 20 {
		all = append(all, p.frame(send(t, string(bytes.Repeat([]byte{'x'}, 1+i*3000)), 2))...)
	}
	go func() {
		for rest := all; len(rest) > 0; {
			n := min(len(rest), 70_001)
			_, _ = p.c.Write(rest[:n]) // a failure shows as a missing reply
			rest = rest[n:]
		}
	}()
	for i := range 20 {
		h, body := p.read()
		var c wire.SendConfirmations
		payload, err := h.Payload(body)
		if err == nil {
			err = c.Decode(payload)
		}
		if err != nil || c.Confirmations[0].BaseOffset != uint64(2*i) {
			t.Fatalf("reply %d: %+v, %v", i, c, err)
		}
	}
}

func TestBadBatchIsRefused(t *testing.T) {
	p := start(t)
	p.setUp()
	s := send(t, "x", 3)
	s.Batch[len(s.Batch)-1] ^= 1
	if err := p.do(s, nil); err == nil {
		t.Error("a damaged batch was accepted")
	}
	s = send(t, "x", 3)
	s.Partitioning = wire.PartitionID(9)
	if err := p.do(s, nil); err == nil {
		t.Error("a partition that does not exist took a batch")
	}
}
