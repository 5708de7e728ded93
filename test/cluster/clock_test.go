package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/whippetmq/whippet/test/cluster/harness"
	"github.com/whippetmq/whippet/wire"
)

// TestClockSteps: the wall clock of nodes steps by an hour, forwards and backwards, under load. Nothing is reordered,
// expires or stands still, and timestamps do not go back.
func TestClockSteps(t *testing.T) {
	file := filepath.Join(t.TempDir(), "clock")
	set := func(d time.Duration) {
		t.Helper()
		must(t, os.WriteFile(file, fmt.Append(nil, d.Microseconds()), 0o600))
	}
	set(0)
	c := three(t, func(o *harness.Options) { o.ClockFile = file })
	expiry := wire.Option{Key: wire.OptMessageExpiry, Value: wire.Uint64Value(uint64((30 * time.Minute).Microseconds()))}
	stream, tp := topic(t, c, 3, expiry)
	c.MustPlace(t, stream, tp, 0, 1, 2)
	checker := harness.NewChecker()
	cl, w := c.Client(t, 0)
	before := session(t, cl)
	load := harness.Load{Stream: stream, Topic: tp, Partitions: all(3)}.Start(checker, cl)
	load.MustFlow(t, harness.Patience, 100)
	for _, step := range []time.Duration{time.Hour, 0, -time.Hour, 0} {
		from, at := c.Node(0).LogEnd(), checker.Now()
		set(step)
		if step == 0 {
			elapse(t, 500*time.Millisecond) // back where node time is, which is not reported
		} else if _, err := c.Node(0).WaitLog(t.Context(), 5*time.Second, from, "the wall clock was stepped"); err != nil {
			t.Error(err)
		}
		load.MustFlow(t, harness.Patience, 200)
		s := checker.Summarise(func(r *harness.Record) bool { return r.Start >= at })
		if s.Acknowledged != s.Sends || s.Max > harness.Slack(time.Second) {
			t.Errorf("after the step to %v: %s\n%s", step, s, checker.Failures(5))
		}
	}
	load.MustStop(t)
	stays(t, cl, w, before)
	checker.MustVerify(t, c, stream, tp)
	for p := range uint32(3) {
		ascending(t, c, stream, tp, p)
	}
}

// ascending fails the test when timestamps of a partition go back.
func ascending(t *testing.T, c *harness.Cluster, stream, tp wire.Identifier, partition uint32) {
	t.Helper()
	var last uint64
	for next := uint64(0); ; {
		var reply wire.PolledMessages
		must(t, c.Node(0).Call(patient(t), &wire.PollMessages{
			Consumer: wire.SingleConsumer(wire.ID(1)), Stream: stream, Topic: tp, Partition: wire.SomePartition(partition),
			Strategy: wire.FromOffset(next), Count: 1000,
		}, &reply))
		if reply.Count == 0 {
			return
		}
		for m := range reply.Messages() {
			if m.Timestamp < last {
				t.Errorf("partition %d: timestamp %d of offset %d is older than the one before, %d", partition, m.Timestamp, m.Offset, last)
			}
			last, next = m.Timestamp, m.Offset+1
		}
	}
}
