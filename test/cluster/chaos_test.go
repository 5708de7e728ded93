package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/test/cluster/harness"
	"github.com/whippetmq/whippet/wire"
)

// TestChaos is E.2/22 without its latencies: one fault after another, chosen by a seed, under the load of clients that
// send in line and of clients that pipeline. At most one node is away at a time, so every send must end acknowledged.
// WHIPPET_SEED replays a run's choices; WHIPPET_CHAOS is how long it lasts.
func TestChaos(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("WHIPPET_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		must(t, err)
	}
	lasting := harness.Scale(8*time.Second, 5*time.Minute)
	if s := os.Getenv("WHIPPET_CHAOS"); s != "" {
		var err error
		lasting, err = time.ParseDuration(s)
		must(t, err)
	}
	t.Logf("WHIPPET_SEED=%d", seed)
	c := three(t, peerProxies)
	const partitions = 4
	stream, tp := topic(t, c, partitions)
	settle(t, c, stream, tp, partitions)
	checker := harness.NewChecker()
	var inLine, pipelined []*client.Client
	for node := range c.Nodes() {
		a, _ := c.Client(t, node)
		b, _ := c.Client(t, node)
		inLine, pipelined = append(inLine, a), append(pipelined, b)
	}
	first := harness.Load{Stream: stream, Topic: tp, Partitions: all(partitions), Batch: 3, Rate: 600}.Start(checker, inLine...)
	second := harness.Load{Stream: stream, Topic: tp, Partitions: all(partitions), Pipelined: true, Window: 64, Rate: 600}.Start(checker, pipelined...)

	n := &nemesis{c: c, rng: rand.New(rand.NewPCG(seed, 1)), stream: stream, topic: tp, partitions: partitions}
	for end := time.Now().Add(lasting); time.Now().Before(end) && !t.Failed(); {
		what, err := n.strike(bounded(t, time.Minute))
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		// Between two faults things must move.
		if err := first.WaitFor(t.Context(), 2*harness.Patience, 30); err != nil {
			t.Errorf("after %s: %v", what, err)
		}
		if err := second.WaitFor(t.Context(), 2*harness.Patience, 30); err != nil {
			t.Errorf("after %s: pipelined: %v", what, err)
		}
	}
	first.MustStop(t)
	second.MustStop(t)
	must(t, c.WaitReady(t.Context(), 2*harness.Patience))
	settle(t, c, stream, tp, partitions)
	if s := checker.Summarise(nil); s.Acknowledged != s.Sends {
		t.Errorf("not every send was acknowledged: %s\n%s", s, checker.Failures(20))
	}
	checker.MustVerify(t, c, stream, tp)
	t.Logf("faults: %v", n.done)
	if t.Failed() {
		t.Logf("replay with WHIPPET_SEED=%d; faults in order:\n%s", seed, n.history())
	}
}

// nemesis makes faults, one at a time, and takes each back before the next.
type nemesis struct {
	c             *harness.Cluster
	rng           *rand.Rand
	stream, topic wire.Identifier
	partitions    int
	done          map[string]int
	order         []string
}

func (n *nemesis) history() string {
	out := ""
	for i, s := range n.order {
		out += fmt.Sprintf("%d. %s\n", i+1, s)
	}
	return out
}

// strike makes one fault and takes it back.
func (n *nemesis) strike(ctx context.Context) (string, error) {
	node := n.c.Node(n.rng.IntN(len(n.c.Nodes())))
	other := (node.Index + 1 + n.rng.IntN(2)) % 3
	p := harness.Partition{Stream: n.stream, Topic: n.topic, ID: n.rng.Uint32N(uint32(n.partitions))}
	d := time.Duration(100+n.rng.IntN(2000)) * time.Millisecond
	faults := []struct {
		name string
		do   func() error
	}{
		{"transfer", func() error { n.attempt(n.c.TransferOnce(ctx, p, node.Index)); return nil }},
		{"metadata transfer", func() error {
			req := &wire.TransferLeader{Kind: wire.TransferMetadata, Target: node.Name}
			n.attempt(node.Call(ctx, req, &wire.TransferLeaderReply{}))
			return nil
		}},
		{"kill", func() error { return n.restart(ctx, node, node.Kill) }},
		{"orderly stop", func() error { return n.restart(ctx, node, func() error { return node.Stop(ctx) }) }},
		{"pause", func() error { return n.c.PauseFor(ctx, node.Index, d) }},
		{"client links cut", func() error { node.Proxy().CutAll(); return nil }},
		{"peer link cut", func() error { n.c.PeerProxy(node.Index, other).CutAll(); return nil }},
		{"peer link stalled", func() error {
			link := n.c.PeerProxy(node.Index, other)
			link.Stall()
			defer link.Resume()
			return sleep(ctx, d)
		}},
		{"node cut off from its peers", func() error {
			rejoin := cutOff(n.c, node.Index)
			defer rejoin()
			return sleep(ctx, d)
		}},
		{"client link slow", func() error {
			node.Proxy().SetDelay(harness.ToServer, 30*time.Millisecond)
			node.Proxy().SetDelay(harness.ToClient, 30*time.Millisecond)
			defer node.Proxy().SetDelay(harness.ToServer, 0)
			defer node.Proxy().SetDelay(harness.ToClient, 0)
			return sleep(ctx, d)
		}},
	}
	f := faults[n.rng.IntN(len(faults))]
	if n.done == nil {
		n.done = map[string]int{}
	}
	n.done[f.name]++
	what := fmt.Sprintf("%s (%s, %s, %v)", f.name, node.Name, p, d)
	n.order = append(n.order, what)
	return what, f.do()
}

// attempt notes the outcome of something that a server may refuse at the moment.
func (n *nemesis) attempt(err error) {
	if err != nil {
		n.order = append(n.order, "  refused: "+err.Error())
	}
}

func (n *nemesis) restart(ctx context.Context, node *harness.Node, end func() error) error {
	if err := end(); err != nil {
		return err
	}
	if err := node.Start(); err != nil {
		return err
	}
	return node.WaitReady(ctx, 2*harness.Patience)
}

// sleep is how long a fault lasts.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
