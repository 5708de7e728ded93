package cluster

import (
	"context"
	"testing"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/test/cluster/harness"
)

// TestSpreadIsNoSlower is E.2/7, the floor that must always hold: twelve producers, six partitions, batches of a hundred;
// with the primaries spread over three nodes the same load gets through as with all on one, and no slower. The figures to
// aim for are those of `whippet bench split-primaries`.
func TestSpreadIsNoSlower(t *testing.T) {
	c := three(t)
	const producers, partitions, batch = 12, 6, 100
	offered := float64(harness.Scale(4500, 45_000)) // messages per second: what a busy test machine takes, and the case's own figure
	lasting := harness.Scale(3*time.Second, time.Minute)
	stream, tp := topic(t, c, partitions)
	var clients []*client.Client
	var watches []*harness.Watch
	var before []client.SessionInfo
	for i := range producers {
		cl, w := c.Client(t, i%3)
		clients, watches, before = append(clients, cl), append(watches, w), append(before, session(t, cl))
	}
	checker := harness.NewChecker()
	ids := make([]uint32, producers)
	for i := range ids {
		ids[i] = checker.Producer()
	}
	run := func(name string, parts []uint32, at ...int) harness.Summary {
		t.Helper()
		c.MustPlace(t, stream, tp, at...)
		for i, cl := range clients {
			harness.Warm(t, cl, stream, tp)
			for _, p := range parts { // what Warm holds for right may have moved
				sendOne(t, checker, ids[i], cl, stream, tp, p)
			}
		}
		load := harness.Load{Stream: stream, Topic: tp, Partitions: parts, Batch: batch, Size: 100, Rate: offered / batch}
		counted, from := c.Counts(), checker.Now()
		running := load.Start(checker, clients...)
		elapse(t, lasting)
		running.MustStop(t)
		s := checker.Summarise(func(r *harness.Record) bool { return r.Start >= from })
		d := c.Counts().Since(counted)
		t.Logf("%s: %s; %d lookups, %d refusals, %d registrations", name, s, d.Lookups(), d.Refusals(), d.Registered())
		if d.Lookups() > producers*partitions || d.Refusals() != 0 || d.Registered() != 0 {
			t.Errorf("%s: %d lookups, %d refusals, %d registrations after warm-up", name, d.Lookups(), d.Refusals(), d.Registered())
		}
		if s.Acknowledged != s.Sends {
			t.Errorf("%s: not every send was acknowledged:\n%s", name, checker.Failures(5))
		}
		return s
	}
	one := run("all on one node", all(partitions), 0, 0, 0, 0, 0, 0)
	spread := run("spread 2-2-2", all(partitions), 0, 0, 1, 1, 2, 2)
	single := run("one partition", all(1), 0)
	if spread.Throughput < 0.9*one.Throughput {
		t.Errorf("spread: %.0f messages/s, on one node %.0f", spread.Throughput, one.Throughput)
	}
	if spread.P99 > max(2*one.P99, harness.Slack(100*time.Millisecond)) {
		t.Errorf("spread: p99 %v, on one node %v", spread.P99, one.P99)
	}
	if harness.Slow() && spread.P99 > harness.Slack(100*time.Millisecond) {
		t.Errorf("spread: p99 %v", spread.P99)
	}
	if single.Throughput < 0.5*offered {
		t.Errorf("one partition takes %.0f of %.0f messages/s", single.Throughput, offered)
	}
	for i, cl := range clients {
		stays(t, cl, watches[i], before[i])
	}
	checker.MustVerify(t, c, stream, tp)
}

// TestInFlightOnOnePartition: eight requests in flight get at least twice as far as one, where the wire takes time.
func TestInFlightOnOnePartition(t *testing.T) {
	c := three(t)
	stream, tp := topic(t, c, 1)
	c.MustPlace(t, stream, tp, 0)
	for _, n := range c.Nodes() {
		n.Proxy().SetDelay(harness.ToServer, 5*time.Millisecond)
		n.Proxy().SetDelay(harness.ToClient, 5*time.Millisecond)
	}
	checker := harness.NewChecker()
	rate := func(inFlight int) float64 {
		t.Helper()
		cl, _ := c.Client(t, 1, client.With(func(o *client.Options) { o.InFlight = inFlight }))
		p := cl.Producer(stream, tp, client.ProducerConfig{Partitioner: client.FixedPartition(0), BatchMessages: 10, MaxInFlight: inFlight})
		id := checker.Producer()
		n := harness.Scale(1500, 10_000)
		start := time.Now()
		for range n {
			s := checker.Begin(id, 0, 1, 100)
			must(t, p.Enqueue(t.Context(), s.ClientMessages()[0], func(conf client.Confirmation, err error) { s.Confirm(conf, err) }))
		}
		must(t, p.Flush(bounded(t, time.Minute)))
		took := time.Since(start)
		ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
		defer cancel()
		must(t, p.Close(ctx))
		return float64(n) / took.Seconds()
	}
	one, eight := rate(1), rate(8)
	t.Logf("one in flight %.0f messages/s, eight %.0f", one, eight)
	if eight < 2*one {
		t.Errorf("eight in flight reach %.0f messages/s, one %.0f: less than twice", eight, one)
	}
	checker.MustVerify(t, c, stream, tp)
}
