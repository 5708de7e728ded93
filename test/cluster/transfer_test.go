package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/whippetmq/whippet/test/cluster/harness"
)

// TestTransferUnderLoad is E.2/2: the primary moves again and again while two clients send.
func TestTransferUnderLoad(t *testing.T) {
	c := three(t)
	stream, tp := topic(t, c, 1)
	p := harness.Partition{Stream: stream, Topic: tp}
	settle(t, c, stream, tp, 1)
	checker := harness.NewChecker()
	a, wa := c.Client(t, 0)
	b, wb := c.Client(t, 1)
	beforeA, beforeB := session(t, a), session(t, b)
	inLine := harness.Load{Stream: stream, Topic: tp, Partitions: all(1)}.Start(checker, a)
	pipelined := harness.Load{Stream: stream, Topic: tp, Partitions: all(1), Pipelined: true, Window: 64}.Start(checker, b)
	inLine.MustFlow(t, harness.Patience, 20)

	var moved []time.Duration
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	end := time.Now().Add(harness.Scale(4*time.Second, 10*time.Second))
	for to := 0; time.Now().Before(end); to = (to + 1) % 3 {
		<-tick.C
		start := time.Now()
		if err := c.TransferOnce(patient(t), p, to); err != nil {
			t.Logf("transfer to %s: %v", harness.NodeName(to), err) // a node that is behind is not moved to
			continue
		}
		moved = append(moved, time.Since(start))
	}
	inLine.MustFlow(t, harness.Patience, int64(max(0, 1000-int(inLine.Acknowledged()))))
	inLine.MustStop(t)
	pipelined.MustStop(t)

	s := checker.Summarise(nil)
	if s.Acknowledged != s.Sends {
		t.Errorf("not every send was acknowledged: %s\n%s", s, checker.Failures(10))
	}
	if s.Max >= harness.Slack(time.Second) {
		t.Errorf("the slowest send took %v", s.Max)
	}
	if len(moved) < 5 {
		t.Errorf("%d transfers took place: the test moved nothing", len(moved))
	}
	slices.Sort(moved)
	t.Logf("%d transfers, p50 %v, slowest %v", len(moved), harness.Percentile(moved, 0.5), harness.Percentile(moved, 1))
	stays(t, a, wa, beforeA)
	stays(t, b, wb, beforeB)
	checker.MustVerify(t, c, stream, tp)
}

// TestMetadataTransferUnderLoad: the lead of the metadata moves; sends do not notice.
func TestMetadataTransferUnderLoad(t *testing.T) {
	c := three(t)
	stream, tp := topic(t, c, 3)
	c.MustPlace(t, stream, tp, 0, 1, 2)
	checker := harness.NewChecker()
	cl, w := c.Client(t, 0)
	before := session(t, cl)
	load := harness.Load{Stream: stream, Topic: tp, Partitions: all(3)}.Start(checker, cl)
	for i := range 4 {
		load.MustFlow(t, harness.Patience, 50)
		must(t, c.TransferMetadata(patient(t), i%3))
	}
	load.MustFlow(t, harness.Patience, 50)
	load.MustStop(t)
	s := checker.Summarise(nil)
	if s.Acknowledged != s.Sends || s.Max >= harness.Slack(time.Second) {
		t.Errorf("%s\n%s", s, checker.Failures(10))
	}
	stays(t, cl, w, before)
	checker.MustVerify(t, c, stream, tp)
}

// TestOrderlyStop: a node that is stopped with SIGTERM hands its primaries over first, so that no send waits out an
// election.
func TestOrderlyStop(t *testing.T) {
	c := three(t)
	stream, tp := topic(t, c, 3)
	c.MustPlace(t, stream, tp, 0, 1, 2)
	checker := harness.NewChecker()
	cl, _ := c.Client(t, 2)
	load := harness.Load{Stream: stream, Topic: tp, Partitions: all(3), Pinned: true}.Start(checker, cl, cl, cl)
	for _, n := range c.Nodes()[:2] { // the client's session is on the third
		load.MustFlow(t, harness.Patience, 100)
		from := checker.Now()
		must(t, n.Stop(bounded(t, time.Minute)))
		load.MustFlow(t, harness.Patience, 100)
		s := checker.Summarise(func(r *harness.Record) bool { return r.End >= from })
		if s.Acknowledged != s.Sends || s.Max >= harness.Slack(500*time.Millisecond) {
			t.Errorf("while %s stopped: %s\n%s", n.Name, s, checker.Failures(10))
		}
		must(t, n.Start())
		must(t, n.WaitReady(t.Context(), harness.Patience))
	}
	load.MustStop(t)
	checker.MustVerify(t, c, stream, tp)
}

// TestWholeClusterStops: all nodes are stopped at once. Each exits with 0 in time, and all come back with everything.
func TestWholeClusterStops(t *testing.T) {
	c := three(t)
	stream, tp := topic(t, c, 3)
	c.MustPlace(t, stream, tp, 0, 1, 2)
	checker := harness.NewChecker()
	cl, _ := c.Client(t, 0)
	load := harness.Load{Stream: stream, Topic: tp, Partitions: all(3)}.Start(checker, cl)
	load.MustFlow(t, harness.Patience, 100)
	must(t, c.StopAll(bounded(t, time.Minute)))
	for _, n := range c.Nodes() {
		must(t, n.Start())
	}
	must(t, c.WaitReady(t.Context(), harness.Patience))
	load.MustFlow(t, harness.Patience, 100)
	load.MustStop(t)
	checker.MustVerify(t, c, stream, tp)
}
