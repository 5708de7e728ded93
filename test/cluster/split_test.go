package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/test/cluster/harness"
	"github.com/whippetmq/whippet/wire"
)

// hop is one send of the scenario: to which partition, where the session was before and after, and how long it took.
type hop struct {
	partition     uint32
	before, after string
	took          time.Duration
}

func (h hop) String() string {
	return fmt.Sprintf("(partition %d, session at %s, then at %s, %v)", h.partition, h.before, h.after, h.took.Round(time.Millisecond))
}

func hops(list []hop) string {
	var b strings.Builder
	for _, h := range list {
		b.WriteString(h.String() + "\n")
	}
	return b.String()
}

// contents fails the test unless a partition holds exactly these messages, on every node.
func contents(t *testing.T, c *harness.Cluster, s harness.Split, partition uint32, want []string) {
	t.Helper()
	for _, n := range c.Nodes() {
		log, err := harness.ReadLog(patient(t), n, s.Stream, s.Topic, partition, uint64(len(want)))
		must(t, err)
		var got []string
		for i, m := range log {
			if m.Offset != uint64(i) {
				t.Errorf("partition %d on %s: offset %d where %d is due", partition, n.Name, m.Offset, i)
			}
			got = append(got, string(m.Payload))
		}
		if !slices.Equal(got, want) {
			t.Errorf("partition %d on %s holds %q, want %q", partition, n.Name, got, want)
		}
	}
}

// TestSplitPrimaries is E.1: a producer alternates between partitions whose primaries are on different nodes, and its
// session stays where it is.
func TestSplitPrimaries(t *testing.T) {
	c := three(t)
	s := c.SplitPrimaries(t)
	idle := c.Counts().Open
	cl, w := c.Client(t, s.Y)
	before := session(t, cl)
	if before.Address != c.Node(s.Y).Addr() {
		t.Fatalf("the client settled on %s, want %s", before.Address, c.Node(s.Y).Addr())
	}
	sent := [2][]string{s.Sent, nil}
	send := func(partition uint32) hop {
		t.Helper()
		text := fmt.Sprintf("message %d to %d", len(sent[partition]), partition)
		h := hop{partition: partition, before: session(t, cl).Address}
		start := time.Now()
		_, err := cl.Send(patient(t), s.Stream, s.Topic, wire.PartitionID(partition), client.Message{Payload: []byte(text)})
		h.took = time.Since(start)
		h.after = session(t, cl).Address
		if err != nil {
			t.Fatalf("%s: %v", h, err)
		}
		sent[partition] = append(sent[partition], text)
		return h
	}
	send(0)
	send(1)
	warm, refused := c.Counts(), w.Seen().Refusals

	var list []hop
	for _, partition := range []uint32{0, 1, 0, 1} {
		list = append(list, send(partition))
	}
	var took []time.Duration
	for _, h := range list {
		took = append(took, h.took)
		if h.before != h.after || h.before != before.Address {
			t.Errorf("the session moved: %s", h)
		}
		if h.took >= time.Second {
			t.Errorf("a send took a second: %s", h)
		}
	}
	slices.Sort(took)
	if median := took[1]; median >= harness.Slack(50*time.Millisecond) {
		t.Errorf("the median send took %v", median)
	}
	stays(t, cl, w, before)
	d := c.Counts().Since(warm)
	if d.Refusals() != 0 || d.Registered() != 0 || d.Lookups() != 0 || d.Requests[wire.CodeAttachConsumerSession] != 0 {
		t.Errorf("after warm-up: %d refusals, %d registrations, %d lookups, %d attaches: want none", d.Refusals(), d.Registered(), d.Lookups(),
			d.Requests[wire.CodeAttachConsumerSession])
	}
	if now := w.Seen().Refusals; harness.Total(now) != harness.Total(refused) {
		t.Errorf("the client counted refusals after warm-up: %v, before %v", now, refused)
	}
	if open := c.Counts().Open - idle; open != 3 {
		t.Errorf("%d connections, want the coordinator's and one for each of two nodes", open)
	}
	contents(t, c, s, 0, sent[0])
	contents(t, c, s, 1, sent[1])
	t.Logf("with routing:\n%s", hops(list))
	if t.Failed() {
		t.Logf("sends:\n%s", hops(list))
	}
}

// TestSplitPrimariesControl is E.1's control: a client that cannot route, on servers that do not forward, bounces between
// the nodes, about 4 s for each send. If it does not, the scenario proves nothing.
func TestSplitPrimariesControl(t *testing.T) {
	t.Parallel() // it waits more than it works
	c := three(t, noForwarding)
	s := c.SplitPrimaries(t)
	list := alternate(t, c, s, 4)
	x, y := c.Node(s.X).Addr(), c.Node(s.Y).Addr()
	want := []hop{{0, y, x, 0}, {1, x, y, 0}, {0, y, x, 0}, {1, x, y, 0}}
	for i, h := range list {
		if h.before != want[i].before || h.after != want[i].after {
			t.Errorf("send %d: %s, want %s", i, h, want[i])
		}
		if h.took < 2*windowLength || h.took > 2*windowLength+harness.Slack(2*time.Second) {
			t.Errorf("send %d took %v, want about 4 s", i, h.took)
		}
	}
	if n := c.Counts().Refusals(); n < 4*40 {
		t.Errorf("%d refusals passed the proxies, want at least 160", n)
	}
	t.Logf("without routing and forwarding:\n%s", hops(list))
}

// TestSplitPrimariesForwarded is the same client on servers that forward: no send moves the session, each is quick.
func TestSplitPrimariesForwarded(t *testing.T) {
	c := three(t)
	s := c.SplitPrimaries(t)
	list := alternate(t, c, s, 8)
	for i, h := range list {
		if h.before != h.after {
			t.Errorf("send %d moved the session: %s", i, h)
		}
		if h.took >= harness.Slack(250*time.Millisecond) {
			t.Errorf("send %d took %v", i, h.took)
		}
	}
	if n := c.Counts().Refusals(); n != 0 {
		t.Errorf("%d refusals passed the proxies, want none", n)
	}
	t.Logf("forwarded:\n%s", hops(list))
}

// alternate sends with the model of the released client, connected to Y, to partitions 0 and 1 in turn.
func alternate(t *testing.T, c *harness.Cluster, s harness.Split, n int) []hop {
	t.Helper()
	r, err := connectReleased(patient(t), c.Node(s.Y).Addr())
	must(t, err)
	defer func() { r.close() }()
	sent := [2][]string{s.Sent, nil}
	var list []hop
	for i := range n {
		partition := uint32(i % 2)
		text := fmt.Sprintf("message %d to %d", len(sent[partition]), partition)
		h := hop{partition: partition, before: r.conn.Address}
		start := time.Now()
		_, err := r.send(t.Context(), s.Stream, s.Topic, partition, wire.Message{Payload: []byte(text)})
		h.took, h.after = time.Since(start), r.conn.Address
		list = append(list, h)
		if err != nil {
			t.Fatalf("%v\n%s", err, hops(list))
		}
		sent[partition] = append(sent[partition], text)
	}
	contents(t, c, s, 0, sent[0])
	contents(t, c, s, 1, sent[1])
	return list
}

// TestOrganicSplit splits the primaries as it happens in the field: a node stops for a little longer than an election, and
// comes back.
func TestOrganicSplit(t *testing.T) {
	c := three(t)
	const partitions = 6
	stream, tp := topic(t, c, partitions)
	checker := harness.NewChecker()
	at := c.OrganicSplit(t, stream, tp, partitions)
	t.Logf("primaries after the failover: %v", at)
	for node := range c.Nodes() {
		cl, w := c.Client(t, node)
		before := session(t, cl)
		producer := checker.Producer()
		for p := range uint32(partitions) {
			sendOne(t, checker, producer, cl, stream, tp, p)
		}
		warm := c.Counts()
		for i := range uint32(30) {
			if r := sendOne(t, checker, producer, cl, stream, tp, i%partitions); r.Took() >= time.Second {
				t.Errorf("a send to partition %d took %v", i%partitions, r.Took())
			}
		}
		stays(t, cl, w, before)
		if n := c.Counts().Since(warm).Refusals(); n != 0 {
			t.Errorf("client on %s: %d refusals after warm-up", harness.NodeName(node), n)
		}
	}
	checker.MustVerify(t, c, stream, tp)
}
