package cluster

import (
	"testing"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/test/cluster/harness"
)

// TestBounds is E.2/18: fewer data links than nodes, fewer routes than partitions. That makes a client slower and is never
// an error.
func TestBounds(t *testing.T) {
	c := three(t)
	const partitions = 32
	stream, tp := topic(t, c, partitions)
	for p := range partitions {
		must(t, c.Transfer(patient(t), harness.Partition{Stream: stream, Topic: tp, ID: uint32(p)}, p%3))
	}
	cl, w := c.Client(t, 0, client.With(func(o *client.Options) { o.MaxLinks, o.MaxRoutes = 2, 4 }))
	before := session(t, cl)
	checker := harness.NewChecker()
	load := harness.Load{Stream: stream, Topic: tp, Partitions: all(partitions)}.Start(checker, cl, cl, cl, cl)
	load.MustFlow(t, harness.Patience, harness.Scale[int64](300, 3000))
	load.MustStop(t)
	if s := checker.Summarise(nil); s.Acknowledged != s.Sends {
		t.Errorf("%s\n%s", s, checker.Failures(10))
	}
	stays(t, cl, w, before)
	checker.MustVerify(t, c, stream, tp)
}

// TestSmallSessionTable is the rest of E.2/18: the servers remember four sessions. Two clients have more than that, so
// their links are evicted and signed in again; no send fails.
func TestSmallSessionTable(t *testing.T) {
	c := three(t, func(o *harness.Options) { o.Set = map[string]string{"metadata.clients_table_max": "4"} })
	stream, tp := topic(t, c, 3)
	c.MustPlace(t, stream, tp, 0, 1, 2)
	checker := harness.NewChecker()
	a, _ := c.Client(t, 0)
	b, _ := c.Client(t, 1)
	load := harness.Load{Stream: stream, Topic: tp, Partitions: all(3)}.Start(checker, a, b)
	load.MustFlow(t, 2*harness.Patience, 60)
	load.MustStop(t)
	if s := checker.Summarise(nil); s.Acknowledged != s.Sends {
		t.Errorf("%s\n%s", s, checker.Failures(10))
	}
	checker.MustVerify(t, c, stream, tp)
}
