package broker

import (
	"testing"
	"time"

	"github.com/whippetmq/whippet/internal/cluster"
	"github.com/whippetmq/whippet/internal/metadata"
	"github.com/whippetmq/whippet/wire"
)

// topicOf makes a topic of one partition with n messages of 256 KiB.
func (p *peer) topicOf(n int) (stream, topic wire.Identifier) {
	p.t.Helper()
	stream, topic = wire.Name("s"), wire.Name("t")
	batch, err := wire.BuildBatch(nil, []wire.Message{{ID: wire.NewID(), Payload: make([]byte, 256<<10)}})
	reqs := []wire.Request{&wire.CreateStream{Name: "s"}, &wire.CreateTopic{Stream: stream, Name: "t", PartitionsCount: 1}}
	for range n {
		reqs = append(reqs, &wire.SendMessages{Stream: stream, Topic: topic, Partitioning: wire.PartitionID(0), Batch: batch})
	}
	for _, q := range reqs {
		if err == nil {
			_, err = p.do(q)
		}
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return stream, topic
}

// startPoll asks for everything and leaves the reply where a gateway would queue it.
func (p *peer) startPoll(stream, topic wire.Identifier) *Reply {
	q := wire.PollMessages{
		Consumer: wire.SingleConsumer(wire.ID(1)), Stream: stream, Topic: topic, Partition: wire.SomePartition(0), Strategy: wire.FromOffset(0), Count: 1<<32 - 1,
	}
	h := wire.RequestHeader{Client: p.client, Session: p.session, Kind: wire.FrameRequest}
	body := q.Append(nil)
	h.SetCommand(q.Code(), body)
	h.Size = uint32(wire.HeaderSize + len(body))
	b := GetBuffer(len(body))
	copy(b.B, body)
	return p.conn.Handle(&h, b)
}

// Replies that nobody reads hold less and less, and at the bound polls are refused; all of it comes back.
func TestUnwrittenPollRepliesAreBounded(t *testing.T) {
	r := newRigWith(t, metadata.Config{}, func(c *Config) { c.MaxFrame = 4 << 20 })
	first := r.connect()
	first.login()
	stream, topic := first.topicOf(32)
	room := r.b.polls
	room.plenty, room.most, room.patience = 8<<20, 12<<20, 20*time.Millisecond
	var held []*Reply
	for i := 0; ; i++ {
		p := r.connect()
		p.login()
		reply := p.startPoll(stream, topic)
		var rh wire.ReplyHeader
		if err := rh.Decode(reply.Segments(nil)[0]); err != nil {
			t.Fatal(err)
		}
		if rh.Status == wire.ErrTransientNotAccepted && i > 4 {
			reply.Release()
			break
		}
		switch size := reply.Size(); {
		case rh.Status != 0 || i > 20:
			t.Fatalf("poll %d: status %v, %d bytes held", i, rh.Status, room.used.Load())
		case i < 2 && size < 3<<20, i >= 2 && (size < 256<<10 || size > pollShort+wire.HeaderSize+wire.PollReplyPrefix):
			t.Fatalf("poll %d: %d bytes", i, size)
		}
		held = append(held, reply)
	}
	if used := room.used.Load(); used > 13<<20 {
		t.Fatalf("%d bytes held", used)
	}
	room.patience = 20 * time.Second
	done := make(chan *Reply)
	go func() { done <- first.startPoll(stream, topic) }() // waits for the others
	for _, reply := range held {
		reply.Release()
	}
	last := <-done
	if last.Size() < 256<<10 {
		t.Fatalf("a reply of %d bytes after the others were written", last.Size())
	}
	last.Release()
	if used := room.used.Load(); used != 0 {
		t.Fatalf("%d bytes are still held", used)
	}
}

// A connection's next poll waits while the client does not read.
func TestPollWaitsForItsOwnReplies(t *testing.T) {
	r := newRig(t)
	p := r.connect()
	p.login()
	stream, topic := p.topicOf(80)
	one := p.startPoll(stream, topic)
	if one.Size() < pollOwn {
		t.Fatalf("a reply of %d bytes", one.Size())
	}
	done := make(chan *Reply, 1)
	go func() { done <- p.startPoll(stream, topic) }()
	for r.b.polls.waiters.Waiting() == 0 {
		select {
		case <-done:
			t.Fatal("the second poll did not wait")
		case <-time.After(time.Millisecond):
		}
	}
	one.Release()
	two := <-done
	if two.Size() < pollOwn {
		t.Fatalf("a reply of %d bytes", two.Size())
	}
	two.Release()
}

// A node that forwards a poll says how much it has room for; what is on its way back holds room until it is written.
func TestForwardedPollKeepsToTheRoomOfItsNode(t *testing.T) {
	r := newRig(t)
	p := r.connect()
	p.login()
	stream, topic := p.topicOf(16)
	s, top := r.machine.Catalog().Topic(stream, topic)
	mp, ok := top.Partition(0)
	if s == nil || !ok {
		t.Fatal("no partition")
	}
	q := wire.PollMessages{
		Consumer: wire.SingleConsumer(wire.ID(1)), Stream: stream, Topic: topic, Partition: wire.SomePartition(0), Strategy: wire.FromOffset(0), Count: 100,
	}
	for body, limit := range map[string]int{
		string(q.Append(nil)):                               4 << 20,
		string(le.AppendUint32(q.Append(nil), 1<<20+8<<10)): 1 << 20,
		string(le.AppendUint32(q.Append(nil), 1<<32-1)):     4 << 20,
		string(append(q.Append(nil), "more that"...)):       4 << 20,
		string(append(q.Append(nil), make([]byte, 4)...)):   256 << 10, // one message
	} {
		answers := make(chan *cluster.Reply, 1)
		r.b.serveClient(t.Context(), &cluster.Request{
			Operation: wire.OpNonReplicated, Code: wire.CodePollMessages, Client: p.client, Session: p.session, User: 1, Group: mp.Group(), Body: []byte(body),
		}, func(reply *cluster.Reply) { answers <- reply })
		reply := <-answers
		if n := len(reply.Payload); reply.Status != 0 || n < limit*9/10 || n > limit+8<<10 {
			t.Fatalf("status %v, %d bytes, want about %d", reply.Status, n, limit)
		}
		if used := r.b.polls.used.Load(); used != int64(len(reply.Payload)-wire.PollReplyPrefix) {
			t.Fatalf("%d bytes are held while %d are not written", used, len(reply.Payload))
		}
		reply.Written()
	}
	if used := r.b.polls.used.Load(); used != 0 {
		t.Fatalf("%d bytes are still held", used)
	}
}
