package cluster

import (
	"sync"
	"testing"
	"time"

	"github.com/whippetmq/whippet/test/cluster/harness"
	"github.com/whippetmq/whippet/wire"
)

// TestKillWithManyPartitions: a node that leads a third of many partitions is killed; each of them takes writes again
// within an election and a little, as few partitions do.
func TestKillWithManyPartitions(t *testing.T) {
	partitions := harness.Scale[uint32](120, 1000)
	c := three(t, func(o *harness.Options) { o.Spread = true })
	stream, tp := topic(t, c, partitions)
	cl, _ := c.Client(t, 1)
	harness.Warm(t, cl, stream, tp)
	checker := harness.NewChecker()
	// Every partition has taken a write, and its group has gone to rest since.
	producer := checker.Producer()
	send := func(limit time.Duration) []harness.Record {
		t.Helper()
		records := make([]harness.Record, partitions)
		var wg sync.WaitGroup
		for p := range partitions {
			s := checker.Begin(producer, p, 1, 100)
			wg.Go(func() {
				conf, err := cl.Send(bounded(t, limit), stream, tp, wire.PartitionID(p), s.ClientMessages()...)
				records[p] = s.Confirm(conf, err)
			})
		}
		wg.Wait()
		return records
	}
	send(time.Minute)
	elapse(t, 3*time.Second)
	killed := checker.Now()
	must(t, c.Node(0).Kill())
	var slowest time.Duration
	for p, r := range send(harness.Patience) {
		if r.Outcome != harness.Acknowledged {
			t.Errorf("partition %d: %s: %v", p, r.Outcome, r.Err)
		}
		slowest = max(slowest, r.End-killed)
	}
	t.Logf("%d partitions: all writable %v after the kill", partitions, slowest)
	// The benchmark measures against 1.5 s on a quiet machine. Here other tests run beside the nodes: what must never
	// happen is that a partition waits for more than one election.
	if bound := harness.Slack(3 * time.Second); slowest > bound {
		t.Errorf("the last of %d partitions was writable %v after the kill, at most %v is due", partitions, slowest, bound)
	}
	if !harness.Slow() {
		checker.MustVerify(t, c, stream, tp)
	}
}
