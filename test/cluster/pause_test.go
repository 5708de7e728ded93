package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/whippetmq/whippet/test/cluster/harness"
	"github.com/whippetmq/whippet/wire"
)

// TestNeighboursOfAPausedPrimary is E.2/14: the primary of partition 0 stands still. Partitions on the other nodes, used by
// the same client, do not notice, and the session lives.
func TestNeighboursOfAPausedPrimary(t *testing.T) {
	c := three(t)
	stream, tp := topic(t, c, 3)
	c.MustPlace(t, stream, tp, 0, 1, 2)
	must(t, c.TransferMetadata(patient(t), 1))
	cl, w := c.Client(t, 1)
	before := session(t, cl)
	checker := harness.NewChecker()
	load := harness.Load{Stream: stream, Topic: tp, Partitions: all(3), Pinned: true, Rate: 150}.Start(checker, cl, cl, cl)
	load.MustFlow(t, harness.Patience, 200)
	others := func(from, to time.Duration) harness.Summary {
		return checker.Summarise(func(r *harness.Record) bool { return r.Partition != 0 && r.Start >= from && r.Start < to })
	}
	from := checker.Now()
	elapse(t, 2*time.Second) // the comparison
	paused := checker.Now()
	calm := others(from, paused)
	must(t, c.PauseFor(t.Context(), 0, harness.Scale(3*time.Second, 10*time.Second)))
	resumed := checker.Now()
	storm := others(paused, resumed)
	load.MustFlow(t, harness.Patience, 50)
	load.MustStop(t)
	t.Logf("neighbours before: %s", calm)
	t.Logf("neighbours meanwhile: %s", storm)
	if storm.P99 > calm.P99*11/10+harness.Slack(25*time.Millisecond) {
		t.Errorf("p99 of the neighbours rose from %v to %v", calm.P99, storm.P99)
	}
	if storm.Acknowledged != storm.Sends {
		t.Errorf("neighbours: %s", storm)
	}
	stays(t, cl, w, before)
	checker.MustVerify(t, c, stream, tp)
}

// TestPausedPrimaryStepsDown: a primary stands still for longer than an election, with requests in its sockets. When it
// goes on it has acknowledged nothing that the new primary does not have, and serves nothing that is out of date.
func TestPausedPrimaryStepsDown(t *testing.T) {
	c := three(t)
	stream, tp := topic(t, c, 1)
	p := harness.Partition{Stream: stream, Topic: tp}
	checker := harness.NewChecker()
	other, _ := c.Client(t, 2)
	for range harness.Scale(2, 10) {
		c.MustPlace(t, stream, tp, 0)
		old := login(t, c, 0)
		reader := attached(t, c, 0)
		must(t, c.Node(0).Pause())
		// Into the sockets of a process that does not look.
		pending := writeSends(t, checker, old, stream, tp, 5)
		harness.Eventually(t, harness.Patience, "another primary", ledBy(c, c.Node(1), p, 1, 2))
		// A send that is confirmed while the old primary sleeps: it must not serve a log without it.
		r := sendOne(t, checker, checker.Producer(), other, stream, tp, 0)
		if r.Outcome != harness.Acknowledged {
			t.Fatalf("the new primary does not take sends: %v", r.Err)
		}
		log, err := harness.ReadLog(patient(t), c.Node(1), stream, tp, 0, 0)
		must(t, err)
		must(t, c.Node(0).Resume())
		must(t, current(patient(t), reader, p, uint64(len(log))))
		readSends(t, old, pending)
	}
	settle(t, c, stream, tp, 1)
	checker.MustVerify(t, c, stream, tp)
}

// attached is a raw connection to a node that may poll on the primary (104).
func attached(t *testing.T, c *harness.Cluster, node int) *harness.Raw {
	t.Helper()
	r := login(t, c, node)
	must(t, r.Call(patient(t), &wire.AttachConsumerSession{Attachment: wire.Attachment{ClientID: r.Client, Session: r.Session}}, nil))
	return r
}

// current polls on a connection's node as on the primary. The node may refuse; when it answers, the partition must end at
// or behind an offset that was confirmed before.
func current(ctx context.Context, r *harness.Raw, p harness.Partition, confirmed uint64) error {
	poll := &wire.PollMessagesOnPrimary{PollMessages: wire.PollMessages{
		Consumer: wire.SingleConsumer(wire.ID(1)), Stream: p.Stream, Topic: p.Topic, Partition: wire.SomePartition(p.ID),
		Strategy: wire.FromLast(), Count: 1,
	}}
	for range 20 {
		var reply wire.PolledMessages
		err := r.Call(ctx, poll, &reply)
		var code wire.ErrorCode
		switch {
		case errors.As(err, &code): // refused: that is right
		case err != nil:
			return fmt.Errorf("poll on the old primary: %w", err)
		case reply.CurrentOffset+1 < confirmed:
			return fmt.Errorf("a poll on the old primary ends at offset %d although %d messages are confirmed: a stale answer", reply.CurrentOffset, confirmed)
		}
	}
	return nil
}

// writeSends writes sends to partition 0 without reading answers.
func writeSends(t *testing.T, checker *harness.Checker, r *harness.Raw, stream, tp wire.Identifier, n int) []*harness.Send {
	t.Helper()
	producer := checker.Producer()
	var list []*harness.Send
	for range n {
		s := checker.Begin(producer, 0, 1, 100)
		req, err := harness.SendRequest(stream, tp, 0, s.Messages...)
		must(t, err)
		must(t, r.Write(patient(t), r.Frame(req)))
		list = append(list, s)
	}
	return list
}

// readSends reads the answers to sends, in any order, and books them. A connection that ends leaves the rest unknown.
func readSends(t *testing.T, r *harness.Raw, list []*harness.Send) {
	t.Helper()
	first := r.Next - uint64(len(list))
	booked := make([]bool, len(list))
	for range list {
		a, err := r.Read(bounded(t, 8*time.Second))
		if err != nil {
			break
		}
		i := a.Header.Request - first
		if i >= uint64(len(list)) {
			t.Fatalf("an answer to request %d", a.Header.Request)
		}
		payload, err := a.Payload()
		booked[i] = true
		var c wire.SendConfirmations
		if err == nil && c.Decode(payload) == nil && len(c.Confirmations) == 1 {
			list[i].End(harness.Acknowledged, true, c.Confirmations[0].BaseOffset, nil)
			continue
		}
		list[i].End(harness.OutcomeOf(err), false, 0, err)
	}
	for i, s := range list {
		if !booked[i] {
			s.End(harness.Unknown, false, 0, errors.New("no answer"))
		}
	}
}

// cutOff separates a node from its peers, in both directions; rejoin ends it.
func cutOff(c *harness.Cluster, node int) (rejoin func()) {
	var cut []*harness.Proxy
	for other := range c.Nodes() {
		if other != node {
			cut = append(cut, c.PeerProxy(node, other), c.PeerProxy(other, node))
		}
	}
	for _, p := range cut {
		p.Stall() // packets vanish: nobody is told
	}
	return func() {
		for _, p := range cut {
			p.CutAll() // what was under way is too old
			p.Heal()
		}
	}
}

// TestMinorityIsCutOff: the primary and the metadata leader lose their peers but not their clients. They acknowledge
// nothing and serve nothing that is out of date; the majority goes on; after the cut is healed all agree.
func TestMinorityIsCutOff(t *testing.T) {
	c := three(t, peerProxies)
	stream, tp := topic(t, c, 1)
	c.MustPlace(t, stream, tp, 0)
	must(t, c.TransferMetadata(patient(t), 0))
	p := harness.Partition{Stream: stream, Topic: tp}
	checker := harness.NewChecker()
	majority, _ := c.Client(t, 1)
	for range harness.Scale(1, 5) {
		c.MustPlace(t, stream, tp, 0)
		writer, reader := login(t, c, 0), attached(t, c, 0)
		rejoin := cutOff(c, 0)
		pending := writeSends(t, checker, writer, stream, tp, 5)

		// While the majority elects, the old primary is asked all the time: as soon as something is confirmed elsewhere, it
		// must not show a log without it.
		var mu sync.Mutex
		confirmed := uint64(0)
		done := make(chan struct{})
		var wg sync.WaitGroup
		ctx := bounded(t, time.Minute)
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				mu.Lock()
				floor := confirmed
				mu.Unlock()
				if err := current(ctx, reader, p, floor); err != nil {
					t.Error(err)
					return
				}
			}
		})
		harness.Eventually(t, harness.Patience, "the majority to have a primary", ledBy(c, c.Node(1), p, 1, 2))
		producer := checker.Producer()
		for range 20 {
			s := checker.Begin(producer, 0, 1, 100)
			conf, err := majority.Send(patient(t), stream, tp, wire.PartitionID(0), s.ClientMessages()...)
			s.Confirm(conf, err)
			if err != nil {
				t.Errorf("a send to the majority: %v", err)
			}
			mu.Lock()
			confirmed = max(confirmed, conf.Offset+1)
			mu.Unlock()
		}
		close(done)
		wg.Wait()
		readSends(t, writer, pending)
		// The metadata of the majority moves on too; the minority must not take part.
		must(t, c.Node(1).Call(patient(t), &wire.CreateStream{Name: "by-the-majority"}, nil))
		must(t, c.Node(1).Call(patient(t), &wire.DeleteStream{Stream: wire.Name("by-the-majority")}, nil))
		refusedByMinority(t, c)
		rejoin()
		settle(t, c, stream, tp, 1)
	}
	checker.MustVerify(t, c, stream, tp)
}

// refusedByMinority asks the cut-off node for a write of the metadata: it must not succeed.
func refusedByMinority(t *testing.T, c *harness.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	if err := c.Node(0).Call(ctx, &wire.CreateStream{Name: "by-the-minority"}, nil); err == nil {
		t.Error("a node without a quorum made a stream")
	}
}

// TestFlapping: the links between nodes break again and again under load.
func TestFlapping(t *testing.T) {
	c := three(t, peerProxies)
	stream, tp := topic(t, c, 3)
	c.MustPlace(t, stream, tp, 0, 1, 2)
	checker := harness.NewChecker()
	a, _ := c.Client(t, 0)
	b, _ := c.Client(t, 1)
	inLine := harness.Load{Stream: stream, Topic: tp, Partitions: all(3), Pinned: true}.Start(checker, a, a, a)
	pipelined := harness.Load{Stream: stream, Topic: tp, Partitions: all(3), Pipelined: true, Window: 64}.Start(checker, b)
	for i := range harness.Scale(12, 100) {
		inLine.MustFlow(t, harness.Patience, 20)
		pipelined.MustFlow(t, harness.Patience, 20)
		c.PeerProxy(i%3, (i+1+i/3%2)%3).CutAll()
	}
	inLine.MustFlow(t, harness.Patience, 20)
	inLine.MustStop(t)
	pipelined.MustStop(t)
	if s := checker.Summarise(nil); s.Acknowledged != s.Sends {
		t.Errorf("%s\n%s", s, checker.Failures(10))
	}
	checker.MustVerify(t, c, stream, tp)
}
