package server

import (
	"slices"
	"testing"
	"time"

	"github.com/whippetmq/whippet/wire"
)

func TestClusterRoster(t *testing.T) {
	t.Parallel()
	n := startNodes(t, 3, nil)
	lead := n.leader()
	for i := range n.s {
		r := n.login(i)
		eventually(t, func() bool {
			var roster wire.Roster
			r.must(&wire.GetClusterMetadata{}, &roster)
			if roster.Name != "test" || len(roster.Nodes) != 3 {
				t.Fatalf("%+v", roster)
			}
			for k, node := range roster.Nodes {
				if node.Name != n.roster[k].Name || node.TCP != n.roster[k].Ports.TCP || node.IP != "127.0.0.1" {
					t.Fatalf("%+v", node)
				}
				if (node.Role == wire.RoleLeader) != (k == lead) || node.Status != wire.StatusHealthy {
					return false
				}
			}
			return true
		})
	}
	// A node that is gone is told so.
	gone := (lead + 1) % 3
	n.halt(gone)
	r := n.login(lead)
	eventually(t, func() bool {
		var roster wire.Roster
		r.must(&wire.GetClusterMetadata{}, &roster)
		return roster.Nodes[gone].Status == wire.StatusUnreachable && roster.Nodes[lead].Role == wire.RoleLeader
	})
}

// Everything works on every node: sign-in, metadata, sends, polls, offsets.
func TestClusterEveryNodeServes(t *testing.T) {
	t.Parallel()
	n := startNodes(t, 3, nil)
	for i := range n.s {
		r := n.login(i)
		stream, topic := n.topicOn(r, 2)
		for p := range uint32(2) {
			for k, text := range []string{"a", "b", "c"} {
				if c := r.send(stream, topic, wire.PartitionID(p), text); c.BaseOffset != uint64(k) || c.PartitionID != p {
					t.Fatalf("node %d: %+v", i, c)
				}
			}
			// On the same session at once (decisions 8), and on every other node.
			if got, _ := r.poll(pollRequest(stream, topic, p, 0, 10)); !slices.Equal(got, []string{"a", "b", "c"}) {
				t.Fatalf("node %d, partition %d: %q", i, p, got)
			}
			last := pollRequest(stream, topic, p, 0, 1)
			last.Strategy = wire.PollingStrategy{Kind: wire.StrategyLast}
			if got, _ := r.poll(last); !slices.Equal(got, []string{"c"}) {
				t.Fatalf("node %d, partition %d: last %q", i, p, got)
			}
			for k := range n.s {
				q := n.login(k)
				if got, _ := q.poll(pollRequest(stream, topic, p, 0, 10)); !slices.Equal(got, []string{"a", "b", "c"}) {
					t.Fatalf("node %d, partition %d: %q on node %d", i, p, got, k)
				}
				_ = q.nc.Close()
			}
			cons := wire.SingleConsumer(wire.ID(7))
			r.must(&wire.StoreConsumerOffset{Consumer: cons, Stream: stream, Topic: topic, Partition: wire.SomePartition(p), Offset: 1}, nil)
			get := &wire.GetConsumerOffset{Consumer: cons, Stream: stream, Topic: topic, Partition: wire.SomePartition(p)}
			var o wire.OffsetReply
			if r.must(get, &o); o.StoredOffset != 1 || o.CurrentOffset != 2 {
				t.Fatalf("node %d: %+v", i, o)
			}
			next := pollRequest(stream, topic, p, 0, 10)
			next.Consumer, next.Strategy, next.AutoCommit = cons, wire.PollingStrategy{Kind: wire.StrategyNext}, true
			if got, _ := r.poll(next); !slices.Equal(got, []string{"c"}) {
				t.Fatalf("node %d: next %q", i, got)
			}
			if r.must(get, &o); o.StoredOffset != 2 {
				t.Fatalf("node %d: %+v", i, o)
			}
			r.must(&wire.DeleteConsumerOffset{Consumer: cons, Stream: stream, Topic: topic, Partition: wire.SomePartition(p)}, nil)
			r.want(&wire.DeleteConsumerOffset{Consumer: cons, Stream: stream, Topic: topic, Partition: wire.SomePartition(p)}, wire.ErrConsumerOffsetNotFound)
		}
		r.must(&wire.DeleteTopic{Stream: stream, Topic: topic}, nil)
		r.want(&wire.SendMessages{Stream: stream, Topic: topic, Partitioning: wire.PartitionID(0), Batch: batch(t, "x")}, wire.ErrResourceNotFound)
		r.must(&wire.LogoutUser{}, nil)
		r.want(&wire.GetStreams{}, wire.ErrUnauthenticated)
	}
}

// New partitions are spread; with placement "leader" they are where the metadata is.
func TestClusterPlacement(t *testing.T) {
	t.Parallel()
	t.Run("spread", func(t *testing.T) {
		t.Parallel()
		n := startNodes(t, 3, nil)
		r := n.login(1)
		before := time.Now()
		stream, topic := n.topicOn(r, 6)
		if took := time.Since(before); took > 3*time.Second {
			t.Errorf("a topic is there after %v", took)
		}
		count := [3]int{}
		for _, at := range n.settled(stream, topic) {
			count[at]++
		}
		if count != [3]int{2, 2, 2} {
			t.Fatal(count)
		}
	})
	t.Run("leader", func(t *testing.T) {
		t.Parallel()
		n := startNodes(t, 3, func(c *Config) { c.Cluster.Placement = "leader" })
		r := n.login(1)
		stream, topic := n.topicOn(r, 6)
		lead := n.leader()
		for p, at := range n.settled(stream, topic) {
			if at != lead {
				t.Errorf("partition %d on node %d, the leader is %d", p, at, lead)
			}
		}
	})
}

// A topic that is made while a node is away can be written to at once, also the
// partitions that are to be that node's.
func TestClusterTopicWithoutANode(t *testing.T) {
	t.Parallel()
	n := startNodes(t, 3, nil)
	gone := n.follower()
	n.halt(gone)
	r := n.login(n.leader())
	// Both others have to know: whoever takes the partition for somebody else's waits for an election.
	eventually(t, func() bool {
		for i, s := range n.s {
			if i != gone && s.link.Alive(uint64(gone+1)) {
				return false
			}
		}
		return true
	})
	stream, topic := r.topic(3)
	for p := range uint32(3) {
		began := time.Now()
		r.send(stream, topic, wire.PartitionID(p), "x")
		if took := time.Since(began); took > 700*time.Millisecond {
			t.Errorf("the first send to partition %d took %v", p, took)
		}
	}
	n.restart(gone)
	led := n.settled(stream, topic)
	if slices.Contains(led, gone) {
		t.Errorf("a node leads that was away: %v", led)
	}
}
