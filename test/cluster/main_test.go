package cluster

import (
	"context"
	"testing"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/test/cluster/harness"
	"github.com/whippetmq/whippet/wire"
)

func TestMain(m *testing.M) { harness.Main(m) }

// three starts three nodes behind proxies. Primaries are placed by the test: nothing moves them by itself.
func three(t *testing.T, change ...func(*harness.Options)) *harness.Cluster {
	t.Helper()
	o := harness.Options{Nodes: 3, Proxies: true}
	for _, f := range change {
		f(&o)
	}
	return harness.New(t, o)
}

func noForwarding(o *harness.Options) { o.NoForwarding = true }
func peerProxies(o *harness.Options)  { o.PeerProxies = true }

// bounded is a context that ends with the test or after the limit.
func bounded(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// patient is bounded by the harness's usual patience.
func patient(t *testing.T) context.Context {
	t.Helper()
	return bounded(t, harness.Patience)
}

// topic makes a topic that every node knows.
func topic(t *testing.T, c *harness.Cluster, partitions uint32, options ...wire.Option) (stream, topic wire.Identifier) {
	t.Helper()
	if err := c.Topic(patient(t), "orders", "events", partitions, options...); err != nil {
		t.Fatal(err)
	}
	return wire.Name("orders"), wire.Name("events")
}

// all lists the partitions from 0.
func all(n uint32) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(i)
	}
	return out
}

// must ends the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// session is who and where a client's session is.
func session(t *testing.T, c *client.Client) client.SessionInfo {
	t.Helper()
	s, err := c.Session(patient(t))
	must(t, err)
	return s
}

// stays fails the test when a session is not what it was.
func stays(t *testing.T, c *client.Client, w *harness.Watch, before client.SessionInfo) {
	t.Helper()
	now := session(t, c)
	if now.Address != before.Address || now.ClientID != before.ClientID || now.Session != before.Session {
		t.Errorf("the session moved: from %+v to %+v", before, now)
	}
	if moves := w.Seen().Moves; harness.Total(moves) != 0 {
		t.Errorf("session moves: %v", moves)
	}
}

// sendOne sends one message of a checker's producer and ends the test when it is not acknowledged.
func sendOne(t *testing.T, ch *harness.Checker, producer uint32, cl *client.Client, stream, topic wire.Identifier, partition uint32) harness.Record {
	t.Helper()
	s := ch.Begin(producer, partition, 1, 100)
	conf, err := cl.Send(patient(t), stream, topic, wire.PartitionID(partition), s.ClientMessages()...)
	r := s.Confirm(conf, err)
	if err != nil {
		t.Fatalf("send to partition %d: %v", partition, err)
	}
	return r
}

// elapse lets time pass that a scenario is made of, such as the length of an outage. It is never a wait for something.
func elapse(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal("the test was ended")
	}
}

// settle waits until the nodes agree on the primaries of all partitions.
func settle(t *testing.T, c *harness.Cluster, stream, topic wire.Identifier, partitions uint32) []int {
	t.Helper()
	at := make([]int, partitions)
	for i := range at {
		g, err := c.Primary(patient(t), harness.Partition{Stream: stream, Topic: topic, ID: uint32(i)})
		must(t, err)
		at[i] = g.Primary
	}
	return at
}

// login is a raw session with a node, past its proxy.
func login(t *testing.T, c *harness.Cluster, node int) *harness.Raw {
	t.Helper()
	r, err := harness.LoginRaw(patient(t), c.Node(node).Direct())
	must(t, err)
	t.Cleanup(r.Close)
	return r
}
