package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/whippetmq/whippet/test/cluster/harness"
	"github.com/whippetmq/whippet/wire"
)

// pipeline writes n sends to a partition on a session that cannot route, without waiting, then reads the answers.
func pipeline(t *testing.T, checker *harness.Checker, r *harness.Raw, producer uint32, stream, tp wire.Identifier, partition uint32, n int) {
	t.Helper()
	first := r.Next
	var list []*harness.Send
	for range n {
		s := checker.Begin(producer, partition, 1, 100)
		req, err := harness.SendRequest(stream, tp, partition, s.Messages...)
		must(t, err)
		must(t, r.Write(patient(t), r.Frame(req)))
		list = append(list, s)
	}
	for range n {
		a, err := r.Read(patient(t))
		must(t, err)
		s := list[a.Header.Request-first]
		payload, err := a.Payload()
		var c wire.SendConfirmations
		if err == nil {
			must(t, c.Decode(payload))
			s.End(harness.Acknowledged, true, c.Confirmations[0].BaseOffset, nil)
			continue
		}
		s.End(harness.OutcomeOf(err), false, 0, err)
	}
}

// TestForwardingKeepsOrder: sends of a session that cannot route, several at a time, to partitions led elsewhere, arrive in
// their order; a poll on that session sees them; offsets that it stores are there.
func TestForwardingKeepsOrder(t *testing.T) {
	c := three(t)
	stream, tp := topic(t, c, 3)
	c.MustPlace(t, stream, tp, 0, 1, 2)
	checker := harness.NewChecker()
	consumer := wire.SingleConsumer(wire.Name("forwarded"))
	for node := range c.Nodes() {
		r := login(t, c, node)
		producer := checker.Producer()
		for p := range uint32(3) {
			pipeline(t, checker, r, producer, stream, tp, p, 20)
			var reply wire.PolledMessages
			must(t, r.Call(patient(t), &wire.PollMessages{
				Consumer: consumer, Stream: stream, Topic: tp, Partition: wire.SomePartition(p), Strategy: wire.FromLast(), Count: 1,
			}, &reply))
			if want := uint64(20*(node+1) - 1); reply.CurrentOffset != want || reply.Count != 1 {
				t.Errorf("session on %s: a poll of partition %d behind the sends ends at %d, want %d", harness.NodeName(node), p, reply.CurrentOffset, want)
			}
			offset := uint64(10*node) + uint64(p)
			must(t, r.Call(patient(t), &wire.StoreConsumerOffset{
				Consumer: consumer, Stream: stream, Topic: tp, Partition: wire.SomePartition(p), Offset: offset, Ack: wire.AckQuorum,
			}, nil))
			for _, n := range c.Nodes() {
				if got, ok := storedOn(t, n, consumer, harness.Partition{Stream: stream, Topic: tp, ID: p}); !ok || got != offset {
					t.Errorf("partition %d on %s: offset %d (stored %v), want %d", p, n.Name, got, ok, offset)
				}
			}
		}
	}
	s := checker.Summarise(nil)
	if s.Acknowledged != s.Sends {
		t.Errorf("%s\n%s", s, checker.Failures(10))
	}
	checker.MustVerify(t, c, stream, tp)
}

// TestForwardingDuringAnElection: the primary dies while a session that cannot route, on another node, sends. The node
// holds what was not sent yet instead of refusing it.
func TestForwardingDuringAnElection(t *testing.T) {
	c := three(t)
	stream, tp := topic(t, c, 1)
	checker := harness.NewChecker()
	for range harness.Scale(1, 5) {
		c.MustPlace(t, stream, tp, 0)
		r := login(t, c, 1)
		producer := checker.Producer()
		pipeline(t, checker, r, producer, stream, tp, 0, 10)
		must(t, c.Node(0).Kill())
		from := checker.Now()
		pipeline(t, checker, r, producer, stream, tp, 0, 10)
		s := checker.Summarise(func(r *harness.Record) bool { return r.Start >= from })
		// The first ones may have left for the dead primary: their outcome is unknown, not refused.
		if s.Refused != 0 {
			t.Errorf("during an election: %s\n%s", s, checker.Failures(10))
		}
		if bound := harness.Slack(c.Options.ElectionTimeout() + 2*time.Second); s.Max > bound {
			t.Errorf("the slowest send took %v, at most %v is due", s.Max, bound)
		}
		must(t, c.Node(0).Start())
		must(t, c.Node(0).WaitReady(t.Context(), harness.Patience))
		settle(t, c, stream, tp, 1)
	}
	checker.MustVerify(t, c, stream, tp)
}

// TestForwardedReplay: a request that was forwarded and answered is sent again under its identity, on another node: the
// answer is the same, and there is one copy.
func TestForwardedReplay(t *testing.T) {
	c := three(t)
	stream, tp := topic(t, c, 1)
	c.MustPlace(t, stream, tp, 0)
	checker := harness.NewChecker()
	producer := checker.Producer()
	r := login(t, c, 1)
	s := checker.Begin(producer, 0, 1, 100)
	req, err := harness.SendRequest(stream, tp, 0, s.Messages...)
	must(t, err)
	frame := r.Frame(req)
	offsetOf := func(r *harness.Raw, frame []byte) uint64 {
		t.Helper()
		a, err := r.Exchange(patient(t), frame)
		must(t, err)
		payload, err := a.Payload()
		must(t, err)
		var c wire.SendConfirmations
		must(t, c.Decode(payload))
		if len(c.Confirmations) != 1 {
			t.Fatalf("%d confirmations", len(c.Confirmations))
		}
		return c.Confirmations[0].BaseOffset
	}
	first := offsetOf(r, frame)
	s.End(harness.Acknowledged, true, first, nil)
	pipeline(t, checker, r, producer, stream, tp, 0, 5)
	c.MustPlace(t, stream, tp, 2)

	// Another connection, another node, the same client id.
	again, err := harness.DialRaw(patient(t), c.Node(0).Direct())
	must(t, err)
	defer again.Close()
	again.Client = r.Client
	must(t, again.Login(patient(t), harness.Username, harness.Password))
	var h wire.RequestHeader
	must(t, h.DecodeLoose(frame))
	h.Session = again.Session
	if got := offsetOf(again, wire.AppendRequest(nil, h, frame[wire.HeaderSize:])); got != first {
		t.Errorf("the replay was answered with offset %d, the first time with %d", got, first)
	}
	// The older connection lost its session to the newer one, as soon as its node has heard of it.
	harness.Eventually(t, harness.Patience, "end of the older connection's session", func(ctx context.Context) error {
		a, err := r.Exchange(ctx, r.Frame(&wire.GetStreams{}))
		if err != nil || a.Eviction != 0 {
			return nil
		}
		if _, err := a.Payload(); !errors.Is(err, wire.ErrUnauthenticated) && !errors.Is(err, wire.ErrStaleClient) {
			return fmt.Errorf("it is still signed in: %v", err)
		}
		return nil
	})
	checker.MustVerify(t, c, stream, tp)
}

// TestRoutingLinkIsRefused: a connection that declared that it routes is refused by a node that is not the primary, at
// once, and its later sends to that partition too, until it asks for the route again: nothing overtakes.
func TestRoutingLinkIsRefused(t *testing.T) {
	c := three(t)
	stream, tp := topic(t, c, 2)
	c.MustPlace(t, stream, tp, 0, 1)
	p := harness.Partition{Stream: stream, Topic: tp}
	checker := harness.NewChecker()
	r := login(t, c, 1)
	var can wire.CapabilitiesReply
	must(t, r.Call(patient(t), &wire.Capabilities{Version: wire.ExtensionVersion, Flags: wire.WantRoutingLink | wire.WantFence}, &can))
	if can.Flags&wire.CanFence == 0 || can.NodeName != harness.NodeName(1) {
		t.Errorf("capabilities of a node of a cluster: %+v", can)
	}
	producer := checker.Producer()
	pipeline(t, checker, r, producer, stream, tp, 0, 10)
	if s := checker.Summarise(nil); s.Refused != 10 || s.Max > harness.Slack(250*time.Millisecond) {
		t.Errorf("sends on a routing link to a node that is not the primary: %s\n%s", s, checker.Failures(10))
	}
	// The other partition is not fenced.
	pipeline(t, checker, r, producer, stream, tp, 1, 5)
	c.MustPlace(t, stream, tp, 1)
	from := checker.Now()
	pipeline(t, checker, r, producer, stream, tp, 0, 5)
	if s := checker.Summarise(func(r *harness.Record) bool { return r.Start >= from }); s.Refused != 5 {
		t.Errorf("behind a fence: %s", s)
	}
	name, err := harness.Route(patient(t), r, p)
	must(t, err)
	if name != harness.NodeName(1) {
		t.Errorf("103 names %s", name)
	}
	from = checker.Now()
	pipeline(t, checker, r, producer, stream, tp, 0, 5)
	if s := checker.Summarise(func(r *harness.Record) bool { return r.Start >= from }); s.Acknowledged != 5 {
		t.Errorf("after the fence was lifted: %s\n%s", s, checker.Failures(5))
	}
	checker.MustVerify(t, c, stream, tp)
}
