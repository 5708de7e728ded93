package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/test/cluster/harness"
	"github.com/whippetmq/whippet/wire"
)

// TestKillUnderLoad is E.2/3: nodes are killed with writes in flight, one after another, and come back.
func TestKillUnderLoad(t *testing.T) {
	for _, durability := range harness.Scale([]string{"replicated"}, []string{"replicated", "persisted"}) {
		t.Run(durability, func(t *testing.T) {
			c := three(t)
			stream, tp := topic(t, c, 3, wire.Option{Key: wire.OptDurability, Value: wire.StringValue(durability)})
			c.MustPlace(t, stream, tp, 0, 1, 2)
			checker := harness.NewChecker()
			a, _ := c.Client(t, 0)
			b, _ := c.Client(t, 1)
			inLine := harness.Load{Stream: stream, Topic: tp, Partitions: all(3), Pinned: true}.Start(checker, a, a, a)
			pipelined := harness.Load{Stream: stream, Topic: tp, Partitions: all(3), Pipelined: true, Window: 64}.Start(checker, b)
			for round := range harness.Scale(3, 12) {
				inLine.MustFlow(t, harness.Patience, 60)
				pipelined.MustFlow(t, harness.Patience, 60)
				n := c.Node(round % 3)
				killed := checker.Now()
				must(t, n.Kill())
				inLine.MustFlow(t, harness.Patience, 60)
				pipelined.MustFlow(t, harness.Patience, 60)
				settle(t, c, stream, tp, 3)
				inLine.MustFlow(t, harness.Patience, 60)
				for _, p := range all(3) {
					bound := harness.Slack(c.Options.ElectionTimeout() + time.Second)
					if gap := checker.Gap(p, killed); gap > bound {
						t.Errorf("round %d: partition %d stood for %v after %s was killed, at most %v is due", round, p, gap, n.Name, bound)
					}
				}
				must(t, n.Start())
				must(t, n.WaitReady(t.Context(), harness.Patience))
				settle(t, c, stream, tp, 3)
				for i := range 3 { // back to one on each node, so that the next kill hits one
					must(t, c.Transfer(patient(t), harness.Partition{Stream: stream, Topic: tp, ID: uint32(i)}, i))
				}
			}
			inLine.MustStop(t)
			pipelined.MustStop(t)
			if s := checker.Summarise(nil); s.Unknown != 0 || s.Refused != 0 {
				t.Errorf("the clients did not bring every send to an end: %s\n%s", s, checker.Failures(10))
			}
			checker.MustVerify(t, c, stream, tp)
		})
	}
}

// TestCoordinatorIsKilled is E.2/15: the node of the client's session dies; it leads nothing. Sends go on, and the session
// is signed in once more.
func TestCoordinatorIsKilled(t *testing.T) {
	c := three(t)
	stream, tp := topic(t, c, 2)
	c.MustPlace(t, stream, tp, 0, 1)
	must(t, c.TransferMetadata(patient(t), 0))
	checker := harness.NewChecker()
	cl, w := c.Client(t, 2)
	load := harness.Load{Stream: stream, Topic: tp, Partitions: all(2), Pinned: true}.Start(checker, cl, cl)
	load.MustFlow(t, harness.Patience, 100)
	before := session(t, cl)
	from := checker.Now()
	must(t, c.Node(2).Kill())
	harness.Eventually(t, harness.Patience, "the session on another node", func(ctx context.Context) error {
		now, err := cl.Session(ctx)
		if err == nil && now.Address == before.Address {
			err = harness.ErrNotYet
		}
		return err
	})
	load.MustFlow(t, harness.Patience, 200)
	load.MustStop(t)
	s := checker.Summarise(func(r *harness.Record) bool { return r.End >= from })
	if s.Acknowledged != s.Sends || s.Max >= harness.Slack(250*time.Millisecond) {
		t.Errorf("sends noticed the coordinator's end: %s\n%s", s, checker.Failures(10))
	}
	if moves := w.Seen().Moves; moves["coordinator_lost"] != 1 || harness.Total(moves) != 1 {
		t.Errorf("session moves: %v, want one", moves)
	}
	checker.MustVerify(t, c, stream, tp)
}

// TestNoQuorum is E.2/13: two of three nodes stand still. Nothing is confirmed meanwhile, nothing is lost or doubled; a
// send that was never written ends with "not accepted", not with "unknown".
func TestNoQuorum(t *testing.T) {
	t.Parallel() // it waits more than it works
	c := three(t)
	stream, tp := topic(t, c, 1)
	c.MustPlace(t, stream, tp, 0)
	p := harness.Partition{Stream: stream, Topic: tp}
	checker := harness.NewChecker()
	cl, _ := c.Client(t, 0)
	load := harness.Load{Stream: stream, Topic: tp, Partitions: all(1)}.Start(checker, cl)
	load.MustFlow(t, harness.Patience, 50)
	must(t, c.Node(1).Pause())
	must(t, c.Node(2).Pause())
	harness.Eventually(t, harness.Patience, "the node that is left to give up its lead", func(ctx context.Context) error {
		_, err := c.Group(ctx, c.Node(0), p)
		if errors.Is(err, harness.ErrNoPrimary) {
			return nil
		}
		return errors.Join(harness.ErrNotYet, err)
	})
	acked := load.Acknowledged()
	producer := checker.Producer()
	for range 3 {
		s := checker.Begin(producer, 0, 1, 100)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		conf, err := cl.Send(ctx, stream, tp, wire.PartitionID(0), s.ClientMessages()...)
		cancel()
		r := s.Confirm(conf, err)
		if !errors.Is(err, client.ErrNotAdmitted) || r.Outcome != harness.Refused {
			t.Errorf("a send without a quorum ended %s: %v", r.Outcome, err)
		}
	}
	elapse(t, 2*time.Second) // the outage
	if now := load.Acknowledged(); now != acked {
		t.Errorf("%d messages were confirmed without a quorum", now-acked)
	}
	must(t, c.Node(1).Resume())
	must(t, c.Node(2).Resume())
	load.MustFlow(t, harness.Patience, 50)
	load.MustStop(t)
	checker.MustVerify(t, c, stream, tp)
}
