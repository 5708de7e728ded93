package harness

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// Split is a topic of two partitions whose primaries are on different nodes: that of partition 0 on X, that of partition 1
// and the lead of the metadata on Y.
type Split struct {
	Stream, Topic wire.Identifier
	X, Y          int
	// Sent is what the fixture left in partition 0.
	Sent []string
}

// Partition of the split topic.
func (s Split) Partition(id uint32) Partition { return Partition{s.Stream, s.Topic, id} }

// SplitPrimaries builds the scenario of routing E.1. What fails here is the fixture, and says so. The cluster must place
// primaries on the metadata leader (Options.Spread off).
func (c *Cluster) SplitPrimaries(t testing.TB) Split {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, err := c.splitPrimaries(ctx)
	if err != nil {
		t.Fatalf("fixture: split primaries: %v", err)
	}
	return s
}

func (c *Cluster) splitPrimaries(ctx context.Context) (Split, error) {
	s := Split{Stream: wire.Name("split"), Topic: wire.Name("events")}
	var err error
	// 1. One partition, led by the metadata leader of its creation.
	if s.X, err = c.MetadataLeader(ctx); err != nil {
		return s, err
	}
	x, err := LoginRaw(ctx, c.nodes[s.X].direct)
	if err != nil {
		return s, err
	}
	defer x.Close()
	if err := x.Call(ctx, &wire.CreateStream{Name: "split"}, nil); err != nil {
		return s, err
	}
	durability := wire.Option{Key: wire.OptDurability, Value: wire.StringValue("persisted")}
	create := &wire.CreateTopic{Stream: s.Stream, Name: "events", PartitionsCount: 1, Options: wire.Options{durability}}
	if err := x.Call(ctx, create, nil); err != nil {
		return s, err
	}
	before, err := c.Primary(ctx, s.Partition(0))
	if err != nil {
		return s, err
	}
	if before.Primary != s.X {
		return s, fmt.Errorf("partition 0 is led by %s, the metadata leader of its creation is %s", NodeName(before.Primary), NodeName(s.X))
	}
	for _, text := range []string{"before the split 0", "before the split 1"} {
		req, err := SendRequest(s.Stream, s.Topic, 0, wire.Message{Payload: []byte(text)})
		if err != nil {
			return s, err
		}
		if err := x.Call(ctx, req, nil); err != nil {
			return s, err
		}
		s.Sent = append(s.Sent, text)
	}
	// 2. and 3. Only the metadata moves.
	// X follows Y in the roster: a released client that is refused by Y tries X next.
	s.Y = (s.X + len(c.nodes) - 1) % len(c.nodes)
	if err := c.TransferMetadata(ctx, s.Y); err != nil {
		return s, err
	}
	after, err := c.Primary(ctx, s.Partition(0))
	if err != nil {
		return s, err
	}
	if after.Primary != before.Primary || after.Term != before.Term {
		return s, fmt.Errorf("partition 0 was led by %s in term %d and is by %s in term %d: the transfer of the metadata moved it",
			NodeName(before.Primary), before.Term, NodeName(after.Primary), after.Term)
	}
	// 4. The new partition belongs to the new leader.
	if err := c.nodes[s.Y].Call(ctx, &wire.CreatePartitions{Stream: s.Stream, Topic: s.Topic, PartitionsCount: 1}, nil); err != nil {
		return s, err
	}
	if err := c.WaitTopic(ctx, s.Stream, s.Topic, 2); err != nil {
		return s, err
	}
	// 5. As clients see it.
	return s, c.checkSplit(ctx, s)
}

// checkSplit asks as a client does who leads the two partitions.
func (c *Cluster) checkSplit(ctx context.Context, s Split) error {
	y, err := LoginRaw(ctx, c.nodes[s.Y].direct)
	if err != nil {
		return err
	}
	defer y.Close()
	for partition, want := range []int{s.X, s.Y} {
		p := s.Partition(uint32(partition))
		err := Until(ctx, Patience, fmt.Sprintf("103 at %s to name %s for %s", NodeName(s.Y), NodeName(want), p), func(ctx context.Context) error {
			name, err := Route(ctx, y, p)
			if err != nil {
				return err
			}
			if name != NodeName(want) {
				return fmt.Errorf("it names %s", name)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// OrganicSplit makes a topic whose primaries all stand on one node and stops that node for longer than an election takes,
// so that they fail over, to whom chance decides; then it lets the node go on. It repeats that until the primaries stand on
// at least two nodes and gives them by partition. The cluster must not rebalance.
func (c *Cluster) OrganicSplit(t testing.TB, stream, topic wire.Identifier, partitions int) []int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	const rounds = 5
	for range rounds {
		first, err := c.Primary(ctx, Partition{stream, topic, 0})
		if err != nil {
			t.Fatalf("fixture: organic split: %v", err)
		}
		if err := c.PauseFor(ctx, first.Primary, c.Options.ElectionTimeout()*3/2); err != nil {
			t.Fatalf("fixture: organic split: %v", err)
		}
		at := make([]int, partitions)
		nodes := map[int]bool{}
		for i := range at {
			g, err := c.Primary(ctx, Partition{stream, topic, uint32(i)})
			if err != nil {
				t.Fatalf("fixture: organic split: %v", err)
			}
			at[i] = g.Primary
			nodes[g.Primary] = true
		}
		if len(nodes) > 1 {
			return at
		}
	}
	t.Fatalf("fixture: after %d failovers the primaries still stand on one node", rounds)
	return nil
}

// PauseFor stops a node's process for a time (SIGSTOP, SIGCONT).
func (c *Cluster) PauseFor(ctx context.Context, node int, d time.Duration) error {
	n := c.nodes[node]
	if err := n.Pause(); err != nil {
		return err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return n.Resume()
}
