package cluster

import (
	"testing"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/test/cluster/harness"
	"github.com/whippetmq/whippet/wire"
)

// TestAllPlacements is E.2/1: three partitions, every assignment of primaries to three nodes, a client on each node. The
// short version takes the assignments in which a partition moves against each other one.
func TestAllPlacements(t *testing.T) {
	c := three(t)
	stream, tp := topic(t, c, 3)
	checker := harness.NewChecker()
	type user struct {
		client   *client.Client
		watch    *harness.Watch
		before   client.SessionInfo
		producer uint32
	}
	var users []user
	for node := range c.Nodes() {
		cl, w := c.Client(t, node)
		users = append(users, user{cl, w, session(t, cl), checker.Producer()})
	}
	var placements [][]int
	for i := range 27 {
		placements = append(placements, []int{i / 9, i / 3 % 3, i % 3})
	}
	if !harness.Slow() {
		placements = [][]int{{0, 0, 0}, {0, 1, 2}, {2, 0, 1}, {1, 1, 0}, {2, 2, 2}}
	}
	for _, at := range placements {
		c.MustPlace(t, stream, tp, at...)
		from := checker.Now()
		for i, u := range users {
			refused := harness.Total(u.watch.Seen().Refusals)
			for j := range uint32(30) {
				sendOne(t, checker, u.producer, u.client, stream, tp, j%3)
			}
			if n := harness.Total(u.watch.Seen().Refusals) - refused; n > 3 {
				t.Errorf("primaries at %v, client on %s: %d refusals, at most one per partition is due", at, harness.NodeName(i), n)
			}
		}
		s := checker.Summarise(func(r *harness.Record) bool { return r.Start >= from })
		if s.P99 >= harness.Slack(100*time.Millisecond) {
			t.Errorf("primaries at %v: p99 %v", at, s.P99)
		}
	}
	for _, u := range users {
		stays(t, u.client, u.watch, u.before)
	}
	checker.MustVerify(t, c, stream, tp)
}

// TestSpreadPlacement: primaries of a new topic stand evenly on the nodes.
func TestSpreadPlacement(t *testing.T) {
	c := three(t, func(o *harness.Options) { o.Spread = true })
	stream, tp := topic(t, c, 6)
	per := map[int]int{}
	for _, node := range settle(t, c, stream, tp, 6) {
		per[node]++
	}
	if per[0] != 2 || per[1] != 2 || per[2] != 2 {
		t.Errorf("primaries per node: %v, want two on each", per)
	}
}

// TestRebalance: after a node was away, its primaries come back to it by themselves, and no send is refused or lost by
// that. The server waits a minute before it moves anything, hence only in the long version.
func TestRebalance(t *testing.T) {
	if !harness.Slow() {
		t.Skip("takes minutes by the server's own delays: WHIPPET_SLOW=1 runs it")
	}
	c := three(t, func(o *harness.Options) { o.Spread, o.Rebalance = true, true })
	stream, tp := topic(t, c, 6)
	before := settle(t, c, stream, tp, 6)
	checker := harness.NewChecker()
	cl, w := c.Client(t, 0)
	load := harness.Load{Stream: stream, Topic: tp, Partitions: all(6)}.Start(checker, cl)
	load.MustFlow(t, harness.Patience, 100)
	must(t, c.Node(1).Kill())
	load.MustFlow(t, harness.Patience, 100)
	must(t, c.Node(1).Start())
	must(t, c.Node(1).WaitReady(t.Context(), harness.Patience))
	from := checker.Now()
	harness.Eventually(t, 4*time.Minute, "the primaries to come back to where they were", backTo(c, stream, tp, before))
	load.MustFlow(t, harness.Patience, 100)
	load.MustStop(t)
	s := checker.Summarise(func(r *harness.Record) bool { return r.Start >= from })
	if s.Refused+s.Unknown > 0 || s.Max > harness.Slack(time.Second) {
		t.Errorf("while primaries moved back: %s", s)
	}
	if n := w.Seen().Moves["partition"]; n != 0 {
		t.Errorf("%d moves of the session", n)
	}
	checker.MustVerify(t, c, stream, tp)
}

// TestKeptPreference: moving a primary and keeping it there changes where it is preferred to be.
func TestKeptPreference(t *testing.T) {
	c := three(t)
	stream, tp := topic(t, c, 1)
	p := harness.Partition{Stream: stream, Topic: tp}
	g, err := c.Primary(patient(t), p)
	must(t, err)
	to := (g.Primary + 1) % 3
	req := &wire.TransferLeader{Kind: wire.TransferPartition, Stream: stream, Topic: tp, Target: harness.NodeName(to), Keep: true}
	var reply wire.TransferLeaderReply
	must(t, c.Node(0).Call(patient(t), req, &reply))
	if reply.Node != harness.NodeName(to) || reply.Term <= g.Term {
		t.Errorf("answered %+v, the term before was %d", reply, g.Term)
	}
	harness.Eventually(t, harness.Patience, "the preference to be known", prefers(c, p, to))
}
