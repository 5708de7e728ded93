package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/whippetmq/whippet/test/cluster/harness"
	"github.com/whippetmq/whippet/wire"
)

// rebuilt waits until a node has, of every partition that was sent to, what was acknowledged.
func rebuilt(t *testing.T, c *harness.Cluster, checker *harness.Checker, stream, tp wire.Identifier) {
	t.Helper()
	settle(t, c, stream, tp, uint32(len(checker.Partitions())))
	checker.MustVerify(t, c, stream, tp)
}

// TestWipedPrimaryDoesNotLead: a primary dies and comes back with an empty disk. It leads nothing before it was filled
// again, and is filled.
func TestWipedPrimaryDoesNotLead(t *testing.T) {
	c := three(t)
	stream, tp := topic(t, c, 3)
	c.MustPlace(t, stream, tp, 0, 0, 0)
	must(t, c.TransferMetadata(patient(t), 0))
	checker := harness.NewChecker()
	cl, _ := c.Client(t, 1)
	load := harness.Load{Stream: stream, Topic: tp, Partitions: all(3), Size: 1000, Batch: 10}.Start(checker, cl)
	load.MustFlow(t, harness.Patience, 500)
	must(t, c.Node(0).Kill())
	must(t, c.Node(0).Wipe())
	must(t, c.Node(0).Start())
	load.MustFlow(t, harness.Patience, 500)
	must(t, c.Node(0).WaitReady(t.Context(), harness.Patience))
	load.MustFlow(t, harness.Patience, 200)
	load.MustStop(t)
	rebuilt(t, c, checker, stream, tp)
	// Filled, it is a node like any other.
	c.MustPlace(t, stream, tp, 0, 0, 0)
	must(t, c.Node(1).Kill())
	producer := checker.Producer()
	cl2, _ := c.Client(t, 2)
	sendOne(t, checker, producer, cl2, stream, tp, 0)
	checker.MustVerify(t, c, stream, tp)
}

// TestWipedNodeGivesNoQuorum: of three nodes one is wiped and one is down. The wiped one must not vote the log away that
// only the third still has, and that log is what all have in the end.
func TestWipedNodeGivesNoQuorum(t *testing.T) {
	t.Parallel() // it waits more than it works
	c := three(t)
	stream, tp := topic(t, c, 1)
	c.MustPlace(t, stream, tp, 0)
	checker := harness.NewChecker()
	cl, err := c.ConnectTo(patient(t), 0)
	must(t, err)
	load := harness.Load{Stream: stream, Topic: tp, Partitions: all(1), Batch: 10}.Start(checker, cl)
	load.MustFlow(t, harness.Patience, 300)
	// Node 2 misses the end: what follows is on nodes 0 and 1 only.
	must(t, c.Node(2).Kill())
	load.MustFlow(t, harness.Patience, 300)
	load.MustStop(t)
	must(t, cl.Close())
	must(t, c.Node(0).Kill())
	must(t, c.Node(1).Kill())
	must(t, c.Node(0).Wipe())
	// Node 0, empty, and node 2, behind: together a majority that knows nothing of the end of the log.
	must(t, c.Node(0).Start())
	must(t, c.Node(2).Start())
	elapse(t, 4*c.Options.ElectionTimeout())
	must(t, c.Node(1).Start())
	must(t, c.WaitReady(t.Context(), 2*harness.Patience))
	rebuilt(t, c, checker, stream, tp)
}

// TestOldCopyIsRebuilt: an old copy of a node's data directory is put back. That is found out, and the node is filled by
// a copy from its peers instead of taking part with what it forgot.
func TestOldCopyIsRebuilt(t *testing.T) {
	c := three(t)
	stream, tp := topic(t, c, 2)
	c.MustPlace(t, stream, tp, 2, 1)
	checker := harness.NewChecker()
	cl, _ := c.Client(t, 0)
	load := harness.Load{Stream: stream, Topic: tp, Partitions: all(2), Batch: 10}.Start(checker, cl)
	load.MustFlow(t, harness.Patience, 200)
	n := c.Node(2)
	must(t, n.Stop(bounded(t, time.Minute)))
	must(t, n.Backup("old"))
	must(t, n.Start())
	must(t, n.WaitReady(t.Context(), harness.Patience))
	settle(t, c, stream, tp, 2)
	c.MustPlace(t, stream, tp, 2, 1)
	load.MustFlow(t, harness.Patience, 500)
	must(t, n.Kill())
	must(t, n.Restore("old"))
	load.MustFlow(t, harness.Patience, 100)
	from := n.LogEnd()
	others := []int{c.Node(0).LogEnd(), c.Node(1).LogEnd(), from}
	must(t, n.Start())
	load.MustFlow(t, harness.Patience, 200)
	must(t, n.WaitReady(t.Context(), harness.Patience))
	load.MustStop(t)
	harness.Eventually(t, harness.Patience, "a word on the old copy in some log", func(ctx context.Context) error {
		for _, text := range []string{"old copy", "suspect"} {
			if inSomeLog(c, others, text)(ctx) == nil {
				return nil
			}
		}
		return harness.ErrNotYet
	})
	rebuilt(t, c, checker, stream, tp)
}

// TestCatchUp: a node that was away gets what it missed, also when the node that it copies from dies meanwhile.
func TestCatchUp(t *testing.T) {
	for _, k := range []struct {
		name       string
		wipe, kill bool
	}{
		{"a short absence", false, false},
		{"an empty disk", true, false},
		{"an empty disk, and the source dies", true, true},
	} {
		t.Run(k.name, func(t *testing.T) {
			if !k.wipe && !harness.Slow() {
				t.Skip("TestKillUnderLoad has short absences too")
			}
			c := three(t, peerProxies)
			stream, tp := topic(t, c, 2)
			c.MustPlace(t, stream, tp, 0, 0)
			checker := harness.NewChecker()
			cl, _ := c.Client(t, 1)
			big := harness.Load{Stream: stream, Topic: tp, Partitions: all(2), Batch: 20, Size: 50_000}
			load := big.Start(checker, cl)
			load.MustFlow(t, harness.Patience, 40)
			n := c.Node(2)
			must(t, n.Kill())
			load.MustFlow(t, 2*harness.Patience, harness.Scale[int64](100, 2000))
			load.MustStop(t)
			if k.wipe {
				must(t, n.Wipe())
			}
			if k.kill {
				// Slow enough to be hit in the middle.
				for _, p := range []*harness.Proxy{c.PeerProxy(0, 2), c.PeerProxy(2, 0)} {
					p.SetDelay(harness.ToServer, 20*time.Millisecond)
					p.SetDelay(harness.ToClient, 20*time.Millisecond)
				}
			}
			before := received(c)
			must(t, n.Start())
			if k.kill {
				harness.Eventually(t, harness.Patience, "a megabyte to be copied", func(context.Context) error {
					if got := received(c) - before; got < 1<<20 {
						return fmt.Errorf("%d bytes", got)
					}
					return nil
				})
				must(t, c.Node(0).Kill())
				elapse(t, 2*c.Options.ElectionTimeout())
				must(t, c.Node(0).Start())
			}
			must(t, c.WaitReady(t.Context(), 2*harness.Patience))
			rebuilt(t, c, checker, stream, tp)
		})
	}
}

// received is what node 2 got from node 0 so far, whoever dialled.
func received(c *harness.Cluster) int64 {
	return c.PeerProxy(0, 2).Counts().Bytes[harness.ToServer] + c.PeerProxy(2, 0).Counts().Bytes[harness.ToClient]
}

// TestDirectoryOfAnotherCluster: a node does not start on the data of another cluster, and says so.
func TestDirectoryOfAnotherCluster(t *testing.T) {
	t.Parallel() // it waits more than it works
	c := three(t)
	n := c.Node(2)
	must(t, n.Stop(bounded(t, time.Minute)))
	n.Set = map[string]string{"cluster.name": `"somebody-else"`}
	text, err := n.Refusal(t.Context(), harness.Patience)
	if err != nil || !strings.Contains(text, "cluster") {
		t.Errorf("%v: %s", err, text)
	}
	n.Set = nil
	must(t, n.Start())
	must(t, n.WaitReady(t.Context(), harness.Patience))
}

// TestAllNodesAreKilled: every node is killed at once under load, and all come back.
func TestAllNodesAreKilled(t *testing.T) {
	c := three(t)
	stream, tp := topic(t, c, 3)
	c.MustPlace(t, stream, tp, 0, 1, 2)
	checker := harness.NewChecker()
	cl, _ := c.Client(t, 0)
	load := harness.Load{Stream: stream, Topic: tp, Partitions: all(3)}.Start(checker, cl, cl, cl)
	for range harness.Scale(1, 10) {
		load.MustFlow(t, harness.Patience, 100)
		for _, n := range c.Nodes() {
			must(t, n.Kill())
		}
		for _, n := range c.Nodes() {
			must(t, n.Start())
		}
		must(t, c.WaitReady(t.Context(), 2*harness.Patience))
	}
	load.MustFlow(t, harness.Patience, 100)
	load.MustStop(t)
	rebuilt(t, c, checker, stream, tp)
}
