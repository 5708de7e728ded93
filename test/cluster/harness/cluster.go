package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// readyLimit bounds the start of a cluster.
const readyLimit = 60 * time.Second

// Cluster is a running cluster, or a single node.
type Cluster struct {
	Options Options

	nodes   []*Node
	ports   *ports
	proxies []*Proxy   // by node; nil without Options.Proxies
	peers   [][]*Proxy // [from][to]; nil without Options.PeerProxies
	wg      sync.WaitGroup
}

// Start makes a cluster in o.Dir and waits until every node answers. Close ends it. A directory of an earlier cluster of the
// same options starts with its data.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	c, err := Prepare(o)
	if err != nil {
		return nil, err
	}
	for _, n := range c.nodes {
		if err := n.Start(); err != nil {
			return nil, errors.Join(err, c.Close(ctx))
		}
	}
	if err := c.WaitReady(ctx, readyLimit); err != nil {
		return nil, errors.Join(err, errors.New(c.Report()), c.Close(ctx))
	}
	return c, nil
}

// Prepare makes everything of a cluster but the processes.
func Prepare(o Options) (*Cluster, error) {
	o.setDefaults()
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	o.Dir = dir
	if _, err := Binary(o.build()); err != nil {
		return nil, err
	}
	p, err := reservePorts()
	if err != nil {
		return nil, err
	}
	c := &Cluster{Options: o, ports: p}
	for i := range o.Nodes {
		n := &Node{
			Index: i, Name: NodeName(i), cluster: c, Dir: filepath.Join(o.Dir, NodeName(i)),
			direct: fmt.Sprintf("127.0.0.1:%d", p.client(i)), log: filepath.Join(o.Dir, NodeName(i)+".log"),
		}
		if dir, ok := o.Data[i]; ok {
			n.Dir = dir
		}
		c.nodes = append(c.nodes, n)
		if err := os.MkdirAll(n.Dir, 0o700); err != nil {
			return nil, errors.Join(err, c.Close(context.Background()))
		}
	}
	if err := c.startProxies(); err != nil {
		return nil, errors.Join(err, c.Close(context.Background()))
	}
	return c, nil
}

func (c *Cluster) startProxies() error {
	if c.Options.Proxies {
		for i, n := range c.nodes {
			p, err := NewProxy("clients->"+n.Name, fmt.Sprintf("%s:%d", advertisedHost(i), c.ports.client(i)), n.direct, ClientProtocol)
			if err != nil {
				return err
			}
			c.proxies = append(c.proxies, p)
		}
	}
	if !c.Options.PeerProxies {
		return nil
	}
	for from := range c.nodes {
		row := make([]*Proxy, len(c.nodes))
		c.peers = append(c.peers, row)
		for to := range c.nodes {
			if from == to {
				continue
			}
			port := c.ports.peer(to)
			p, err := NewProxy(NodeName(from)+"->"+NodeName(to), fmt.Sprintf("%s:%d", peerHost(from, to), port), fmt.Sprintf("127.0.0.1:%d", port), PeerProtocol)
			if err != nil {
				return err
			}
			row[to] = p
		}
	}
	return nil
}

// Nodes of the cluster, by replica id.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// Node by replica id.
func (c *Cluster) Node(i int) *Node { return c.nodes[i] }

// PeerProxy carries what one node says to another, and the answers to it. nil without Options.PeerProxies.
func (c *Cluster) PeerProxy(from, to int) *Proxy {
	if c.peers == nil {
		return nil
	}
	return c.peers[from][to]
}

// PeerAddr is where a node listens for its peers.
func (c *Cluster) PeerAddr(node int) string { return fmt.Sprintf("127.0.0.1:%d", c.ports.peer(node)) }

// Index is the replica id of the node with a name, -1 when there is none.
func (c *Cluster) Index(name string) int {
	for _, n := range c.nodes {
		if n.Name == name {
			return n.Index
		}
	}
	return -1
}

// Addrs are the addresses for clients, of all nodes.
func (c *Cluster) Addrs() []string {
	var out []string
	for _, n := range c.nodes {
		out = append(out, n.Addr())
	}
	return out
}

// Counts is what passed all proxies in front of nodes so far.
func (c *Cluster) Counts() Counts {
	total := newCounts()
	for _, p := range c.proxies {
		total = total.Plus(p.Counts())
	}
	return total
}

// WaitReady waits until every node that runs signs in a client.
func (c *Cluster) WaitReady(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, n := range c.nodes {
		if n.Running() {
			if err := n.WaitReady(ctx, limit); err != nil {
				return err
			}
		}
	}
	return nil
}

// WaitReady waits until the node signs in a client.
func (n *Node) WaitReady(ctx context.Context, limit time.Duration) error {
	return Until(ctx, limit, "a sign-in to "+n.Name, func(ctx context.Context) error {
		n.mu.Lock()
		died, runs := n.died, n.process != nil
		n.mu.Unlock()
		if !runs {
			return fmt.Errorf("it does not run (%w)", orEnded(died))
		}
		attempt, cancel := context.WithTimeout(ctx, Patience)
		defer cancel()
		r, err := LoginRaw(attempt, n.direct)
		if err != nil {
			return err
		}
		r.Close()
		return nil
	})
}

// Close ends all nodes, then the proxies, and tells what was wrong with any of them. A single node is stopped in an orderly
// way; nodes of a cluster are killed, since each would first look for somebody to hand its primaries to, see StopAll.
func (c *Cluster) Close(ctx context.Context) error {
	errs := make([]error, 2*len(c.nodes))
	for i, n := range c.nodes {
		if len(c.nodes) > 1 {
			errs[i] = n.Kill()
			continue
		}
		errs[i] = n.Stop(ctx)
	}
	c.wg.Wait()
	for i, n := range c.nodes {
		n.adminMu.Lock()
		n.dropAdmin()
		n.adminMu.Unlock()
		errs[len(c.nodes)+i] = n.fault()
	}
	for _, p := range c.proxies {
		p.Close()
	}
	for _, row := range c.peers {
		for _, p := range row {
			if p != nil {
				p.Close()
			}
		}
	}
	c.ports.close()
	return errors.Join(errs...)
}

// StopAll stops all nodes in an orderly way at once, and keeps everything else.
func (c *Cluster) StopAll(ctx context.Context) error {
	errs := make([]error, len(c.nodes))
	var wg sync.WaitGroup
	for i, n := range c.nodes {
		wg.Go(func() { errs[i] = n.Stop(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// reportLines is how much of each log a failure shows.
const reportLines = 60

// Report is what a failure shows: the end of every node's log, and the newest frames of every proxy in front of a node.
func (c *Cluster) Report() string {
	var b strings.Builder
	for _, n := range c.nodes {
		fmt.Fprintf(&b, "--- log of %s (running %v), its end:\n%s\n", n.Name, n.Running(), n.tail(reportLines))
	}
	for _, p := range c.proxies {
		fmt.Fprintf(&b, "--- newest frames of proxy %s:\n%s", p.Name, p.Recent())
	}
	return b.String()
}

// New starts a cluster for a test and closes it at its end. When the test failed the logs are shown. Short runs skip the test.
func New(t testing.TB, o Options) *Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("tests on real processes are not in the short run")
	}
	if o.Nodes > 1 {
		RequireCluster(t)
	}
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	ctx, cancel := context.WithTimeout(t.Context(), readyLimit)
	defer cancel()
	c, err := Start(ctx, o)
	if err != nil {
		t.Fatalf("start the cluster: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*stopLimit)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("close the cluster: %v", err)
		}
		if t.Failed() {
			t.Log(c.Report())
		}
	})
	return c
}

// Topic makes a stream and a topic, and waits until every node that runs knows them.
func (c *Cluster) Topic(ctx context.Context, stream, topic string, partitions uint32, options ...wire.Option) error {
	err := Until(ctx, Patience, "creation of "+stream, func(ctx context.Context) error {
		err := c.any().Call(ctx, &wire.CreateStream{Name: stream}, nil)
		if errors.Is(err, wire.ErrStreamNameAlreadyExists) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	err = Until(ctx, Patience, "creation of "+stream+"/"+topic, func(ctx context.Context) error {
		err := c.any().Call(ctx, &wire.CreateTopic{Stream: wire.Name(stream), Name: topic, PartitionsCount: partitions, Options: options}, nil)
		if errors.Is(err, wire.ErrTopicNameAlreadyExists) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	return c.WaitTopic(ctx, wire.Name(stream), wire.Name(topic), partitions)
}

// WaitTopic waits until every node that runs knows a topic with so many partitions.
func (c *Cluster) WaitTopic(ctx context.Context, stream, topic wire.Identifier, partitions uint32) error {
	for _, n := range c.nodes {
		if !n.Running() || n.Paused() {
			continue
		}
		err := Until(ctx, Patience, fmt.Sprintf("%s to know %s/%s with %d partitions", n.Name, stream, topic, partitions), func(ctx context.Context) error {
			var d wire.TopicDetails
			if err := n.Call(ctx, &wire.GetTopic{Stream: stream, Topic: topic}, &d); err != nil {
				return err
			}
			if d.PartitionsCount != partitions {
				return fmt.Errorf("it knows %d", d.PartitionsCount)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// any is a node that runs, the first one.
func (c *Cluster) any() *Node {
	for _, n := range c.nodes {
		if n.Running() && !n.Paused() {
			return n
		}
	}
	return c.nodes[0]
}
