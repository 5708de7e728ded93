package harness

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// pollCount is how many messages a poll of the harness asks for.
const pollCount = 5000

// ReadLog reads a partition from its first message to its last as one node has it, with polls that name no group and
// store no offset. It waits until the node has at least the offsets below atLeast.
func ReadLog(ctx context.Context, n *Node, stream, topic wire.Identifier, partition uint32, atLeast uint64) ([]Logged, error) {
	var log []Logged
	next, first := uint64(0), true
	err := Until(ctx, Patience, fmt.Sprintf("%s to have the offsets of partition %d below %d", n.Name, partition, atLeast), func(ctx context.Context) error {
		for {
			var reply wire.PolledMessages
			req := &wire.PollMessages{
				Consumer: wire.SingleConsumer(wire.ID(1)), Stream: stream, Topic: topic, Partition: wire.SomePartition(partition),
				Strategy: wire.FromOffset(next), Count: pollCount,
			}
			if err := n.Call(ctx, req, &reply); err != nil {
				return err
			}
			if reply.Count == 0 {
				if next < atLeast {
					return fmt.Errorf("it has them to %d, current offset %d", next, reply.CurrentOffset)
				}
				return nil
			}
			for m := range reply.Messages() {
				if first {
					next, first = m.Offset, false
				}
				log = append(log, Logged{Offset: m.Offset, ID: m.ID, Payload: m.Payload})
			}
			next = log[len(log)-1].Offset + 1
		}
	})
	return log, err
}

// Verify compares every partition that was sent to with the history, as each node that runs has it. The error joins what
// every node has wrong.
func (c *Checker) Verify(ctx context.Context, cluster *Cluster, stream, topic wire.Identifier) error {
	var errs []error
	for _, n := range cluster.Nodes() {
		if !n.Running() || n.Paused() {
			continue
		}
		for _, p := range c.Partitions() {
			log, err := ReadLog(ctx, n, stream, topic, p, c.acknowledged(p))
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if err := c.Check(p, log); err != nil {
				errs = append(errs, fmt.Errorf("partition %d on %s: %w", p, n.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// MustVerify is Verify for a test.
func (c *Checker) MustVerify(t testing.TB, cluster *Cluster, stream, topic wire.Identifier) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := c.Verify(ctx, cluster, stream, topic); err != nil {
		t.Errorf("what was acknowledged and what is in the logs differ:\n%v\nsends without acknowledgement:\n%s", err, c.Failures(20))
	}
	t.Logf("history: %s", c.Summarise(nil))
}
