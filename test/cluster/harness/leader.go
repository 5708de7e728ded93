package harness

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/whippetmq/whippet/wire"
)

// Partition names a partition of a topic by the names that the harness made.
type Partition struct {
	Stream, Topic wire.Identifier
	ID            uint32
}

// String is stream/topic/partition.
func (p Partition) String() string { return fmt.Sprintf("%s/%s/%d", p.Stream, p.Topic, p.ID) }

// Status asks a node for the state of nodes and groups.
func (n *Node) Status(ctx context.Context) (*wire.ClusterStatusReply, error) {
	var reply wire.ClusterStatusReply
	err := n.Call(ctx, &wire.ClusterStatus{Flags: wire.ClusterStatusGroups}, &reply)
	return &reply, err
}

// Roster asks a node for the nodes, as clients see them.
func (n *Node) Roster(ctx context.Context) (*wire.Roster, error) {
	var reply wire.Roster
	err := n.Call(ctx, &wire.GetClusterMetadata{}, &reply)
	return &reply, err
}

// ErrNoPrimary says that a group has no primary at the moment, as the asked node sees it.
var ErrNoPrimary = errors.New("no primary")

// Group is where a partition's primary is.
type Group struct {
	Primary   int // replica id
	Preferred int // likewise, -1 = none
	Term      uint64
	Commit    uint64
	Lag       map[int]uint64 // of the followers, by replica id
}

// Group asks a node about a partition.
func (c *Cluster) Group(ctx context.Context, via *Node, p Partition) (Group, error) {
	var d wire.TopicDetails
	if err := via.Call(ctx, &wire.GetTopic{Stream: p.Stream, Topic: p.Topic}, &d); err != nil {
		return Group{}, err
	}
	var s wire.StreamDetails
	if err := via.Call(ctx, &wire.GetStream{Stream: p.Stream}, &s); err != nil {
		return Group{}, err
	}
	status, err := via.Status(ctx)
	if err != nil {
		return Group{}, err
	}
	node := func(i uint32) int {
		if int64(i) >= int64(len(status.Nodes)) {
			return -1
		}
		return c.Index(status.Nodes[i].Name)
	}
	for i := range status.Groups {
		g := &status.Groups[i]
		if g.StreamID != s.ID || g.TopicID != d.ID || g.PartitionID != p.ID {
			continue
		}
		out := Group{Primary: node(g.Primary), Preferred: node(g.Preferred), Term: g.Term, Commit: g.Commit, Lag: map[int]uint64{}}
		for _, f := range g.Followers {
			out.Lag[node(f.Node)] = g.Commit - min(g.Commit, f.Match)
		}
		if out.Primary < 0 {
			return out, ErrNoPrimary
		}
		return out, nil
	}
	return Group{}, fmt.Errorf("%s does not report %s", via.Name, p)
}

// Primary waits until the nodes that run agree on a partition's primary, and gives it.
func (c *Cluster) Primary(ctx context.Context, p Partition) (Group, error) {
	var g Group
	err := Until(ctx, Patience, "a primary of "+p.String()+" that all nodes agree on", func(ctx context.Context) error {
		first := true
		for _, n := range c.nodes {
			if !n.Running() || n.Paused() {
				continue
			}
			got, err := c.Group(ctx, n, p)
			if err != nil {
				return err
			}
			if !first && (got.Primary != g.Primary || got.Term != g.Term) {
				return fmt.Errorf("%s names %s in term %d, another node %s in term %d", n.Name, NodeName(got.Primary), got.Term, NodeName(g.Primary), g.Term)
			}
			if !c.nodes[got.Primary].Running() {
				return fmt.Errorf("%s names %s, which does not run", n.Name, NodeName(got.Primary))
			}
			g, first = got, false
		}
		if first {
			return errors.New("no node runs")
		}
		return nil
	})
	return g, err
}

// MetadataLeader waits until the nodes that run agree on the leader of the metadata, and gives it.
func (c *Cluster) MetadataLeader(ctx context.Context) (int, error) {
	leader := -1
	err := Until(ctx, Patience, "a metadata leader that all nodes agree on", func(ctx context.Context) error {
		leader = -1
		for _, n := range c.nodes {
			if !n.Running() || n.Paused() {
				continue
			}
			r, err := n.Roster(ctx)
			if err != nil {
				return err
			}
			l := r.Leader()
			if l == nil {
				return fmt.Errorf("%s marks no leader", n.Name)
			}
			i := c.Index(l.Name)
			if i < 0 || !c.nodes[i].Running() {
				return fmt.Errorf("%s marks %q, which does not run", n.Name, l.Name)
			}
			if leader >= 0 && i != leader {
				return fmt.Errorf("%s marks %s, another node %s", n.Name, l.Name, NodeName(leader))
			}
			leader = i
		}
		if leader < 0 {
			return errors.New("no node runs")
		}
		return nil
	})
	return leader, err
}

// Transfer moves a partition's primary to a node and waits until all nodes that run agree on it. It repeats what the
// server refuses for the moment.
func (c *Cluster) Transfer(ctx context.Context, p Partition, to int) error {
	return Until(ctx, Patience, fmt.Sprintf("transfer of %s to %s", p, NodeName(to)), func(ctx context.Context) error {
		g, err := c.Primary(ctx, p)
		if err != nil {
			return err
		}
		if g.Primary == to {
			return nil
		}
		if err := c.TransferOnce(ctx, p, to); err != nil {
			return err
		}
		return fmt.Errorf("it was at %s when asked last", NodeName(g.Primary))
	})
}

// TransferOnce asks for the move once.
func (c *Cluster) TransferOnce(ctx context.Context, p Partition, to int) error {
	req := &wire.TransferLeader{Kind: wire.TransferPartition, Stream: p.Stream, Topic: p.Topic, Partition: p.ID, Target: NodeName(to)}
	return c.any().Call(ctx, req, &wire.TransferLeaderReply{})
}

// TransferMetadata moves the lead of the metadata to a node, and nothing else.
func (c *Cluster) TransferMetadata(ctx context.Context, to int) error {
	return Until(ctx, Patience, "transfer of the metadata to "+NodeName(to), func(ctx context.Context) error {
		leader, err := c.MetadataLeader(ctx)
		if err != nil {
			return err
		}
		if leader == to {
			return nil
		}
		req := &wire.TransferLeader{Kind: wire.TransferMetadata, Target: NodeName(to)}
		if err := c.any().Call(ctx, req, &wire.TransferLeaderReply{}); err != nil {
			return err
		}
		return fmt.Errorf("it was at %s when asked last", NodeName(leader))
	})
}

// Place moves the primaries of a topic's partitions to nodes: partition i to nodes[i].
func (c *Cluster) Place(ctx context.Context, stream, topic wire.Identifier, nodes ...int) error {
	for i, to := range nodes {
		if err := c.Transfer(ctx, Partition{stream, topic, uint32(i)}, to); err != nil {
			return err
		}
	}
	return nil
}

// MustPlace is Place for a test.
func (c *Cluster) MustPlace(t testing.TB, stream, topic wire.Identifier, nodes ...int) {
	t.Helper()
	if err := c.Place(t.Context(), stream, topic, nodes...); err != nil {
		t.Fatal(err)
	}
}

// Route asks a connection for the primary of a partition, as a routing client does (103, a single consumer).
func Route(ctx context.Context, r *Raw, p Partition) (string, error) {
	var route wire.Route
	err := r.Call(ctx, &wire.GetPollRouting{PollMessages: wire.PollMessages{
		Consumer: wire.SingleConsumer(wire.ID(1)), Stream: p.Stream, Topic: p.Topic, Partition: wire.SomePartition(p.ID),
		Strategy: wire.FromNext(), Count: 1, AutoCommit: true,
	}}, &route)
	return route.Primary.Name, err
}
