package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whippetmq/whippet/test/cluster/harness"
	"github.com/whippetmq/whippet/wire"
)

// place follows the session of the only client behind the proxies: the node of its newest sign-in.
type place struct {
	mu   sync.Mutex
	node string
}

func follow(t *testing.T, c *harness.Cluster) *place {
	t.Helper()
	p := &place{}
	for _, n := range c.Nodes() {
		rule := n.Proxy().Observe(func(f *harness.Frame) {
			if f.Dir == harness.ToServer && f.Code == wire.CodeLoginRegister {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.node = n.Name
			}
		})
		t.Cleanup(rule.Remove)
	}
	return p
}

func (p *place) now() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.node
}

// hop is one send: partition, place of the session before and after, time.
type hop struct {
	partition     uint32
	before, after string
	took          time.Duration
}

func (h hop) String() string {
	return fmt.Sprintf("partition %d, session at %s, then at %s, %.1f ms", h.partition, h.before, h.after, h.took.Seconds()*1e3)
}

// hops runs E.1 with a released client: a warm-up and four sends in turn to partitions 0 and 1, whose primaries are X and
// Y; the client starts at Y.
func hops(t *testing.T, c *harness.Cluster, s harness.Split, command []string) []hop {
	t.Helper()
	at := follow(t, c)
	client := startSender(t, command, c.Node(s.Y).Addr(), fmt.Sprintf("%s/%s", s.Stream, s.Topic))
	sent := [2][]string{s.Sent, nil}
	var list []hop
	for i := range uint32(6) {
		partition := i % 2
		text := fmt.Sprintf("message %d", i)
		h := hop{partition: partition, before: at.now()}
		a := client.send(t, partition, text)
		h.took, h.after = time.Duration(a.MS*float64(time.Millisecond)), at.now()
		if a.Error != "" {
			t.Fatalf("%s: %s", h, a.Error)
		}
		if a.Before != "" && (a.Before != a.After) != (h.before != h.after) {
			t.Errorf("%s: the client itself says from %s to %s", h, a.Before, a.After)
		}
		sent[partition] = append(sent[partition], text)
		list = append(list, h)
	}
	var b strings.Builder
	for i, h := range list {
		fmt.Fprintf(&b, "  %s%s\n", h, map[bool]string{true: " (warm-up)"}[i < 2])
	}
	t.Logf("primaries: partition 0 at %s, partition 1 and the metadata at %s\n%s", harness.NodeName(s.X), harness.NodeName(s.Y), b.String())
	for partition, want := range sent {
		for _, n := range c.Nodes() {
			log, err := harness.ReadLog(t.Context(), n, s.Stream, s.Topic, uint32(partition), uint64(len(want)))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range log {
				got = append(got, string(m.Payload))
			}
			if !slices.Equal(got, want) {
				t.Errorf("partition %d on %s holds %q, want %q", partition, n.Name, got, want)
			}
		}
	}
	return list[2:]
}

// TestForwardingOn: no send moves the session, and none takes 250 ms.
func TestForwardingOn(t *testing.T) {
	eachClient(t, func(t *testing.T, command []string) {
		c := harness.New(t, harness.Options{Nodes: 3, Proxies: true})
		s := c.SplitPrimaries(t)
		for _, h := range hops(t, c, s, command) {
			if h.before != h.after || h.took >= harness.Slack(250*time.Millisecond) {
				t.Errorf("%s", h)
			}
		}
		if n := c.Counts().Refusals(); n != 0 {
			t.Errorf("%d sends were refused", n)
		}
	})
}

// TestForwardingOff is the control: every send waits about 4 s and moves the session.
func TestForwardingOff(t *testing.T) {
	eachClient(t, func(t *testing.T, command []string) {
		c := harness.New(t, harness.Options{Nodes: 3, Proxies: true, NoForwarding: true})
		s := c.SplitPrimaries(t)
		for _, h := range hops(t, c, s, command) {
			if h.before == h.after || h.took < 3500*time.Millisecond || h.took > 8*time.Second {
				t.Errorf("no bounce: %s", h)
			}
		}
	})
}

// TestLoad is E.2/7 with released clients: twelve producers, six partitions, batches of a hundred; primaries on one node,
// then spread over three, with forwarding; then spread without it.
func TestLoad(t *testing.T) {
	const offered = 45_000
	lasting := harness.Scale(5*time.Second, time.Minute)
	eachClient(t, func(t *testing.T, command []string) {
		c := harness.New(t, harness.Options{Nodes: 3, Proxies: true})
		run := func(c *harness.Cluster, name string, at ...int) (result, harness.Counts) {
			t.Helper()
			if err := c.Topic(t.Context(), "load", "events", uint32(len(at))); err != nil {
				t.Fatal(err)
			}
			c.MustPlace(t, wire.Name("load"), wire.Name("events"), at...)
			leader, err := c.MetadataLeader(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			before := c.Counts()
			r := load(t, command, c.Node(leader).Addr(), "load/events", offered, lasting)
			d := c.Counts().Since(before)
			t.Logf("%s: %s; %d session moves, %d refusals", name, r, d.Registered()-12, d.Refusals())
			return r, d
		}
		one, _ := run(c, "forwarding on, all on one node", 0, 0, 0, 0, 0, 0)
		spread, d := run(c, "forwarding on, spread 2-2-2", 0, 0, 1, 1, 2, 2)
		if d.Registered() != 12 || d.Refusals() != 0 || spread.Failures != 0 {
			t.Errorf("spread, forwarding on: %d registrations of 12 producers, %d refusals, %d failures", d.Registered(), d.Refusals(), spread.Failures)
		}
		if spread.Max > float64(harness.Slack(250*time.Millisecond).Microseconds()) {
			t.Errorf("spread, forwarding on: the slowest send took %.1f ms", spread.Max/1e3)
		}
		if spread.Throughput < 0.8*one.Throughput {
			t.Errorf("spread, forwarding on: %.0f messages/s, on one node %.0f", spread.Throughput, one.Throughput)
		}
		off := harness.New(t, harness.Options{Nodes: 3, Proxies: true, NoForwarding: true})
		bounce, d := run(off, "forwarding off, spread 2-2-2", 0, 0, 1, 1, 2, 2)
		if d.Registered() <= 12 || bounce.Throughput > 0.8*one.Throughput {
			t.Errorf("the control does not bounce: %d registrations, %.0f messages/s", d.Registered(), bounce.Throughput)
		}
	})
}
