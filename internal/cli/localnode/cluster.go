package localnode

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/wire"
)

// Files of a cluster, beside those of its nodes.
const (
	rosterFile = "cluster.toml" // the configuration that all nodes share
	secretFile = "peer.secret"  // by which the nodes know each other
)

// MaxNodes is how many nodes StartCluster starts at most.
const MaxNodes = 32

// Root user of nodes that are started here; they listen on loopback only.
const (
	Username = "iggy"
	Password = "iggy"
)

// ClusterConfig says which cluster to start.
//
// The ports follow from the base port P and the number of nodes N: node i serves TCP on P+i and the other nodes on
// P+N+i. P+2N+i, P+3N+i and P+4N+i are kept for HTTP, QUIC and WebSocket.
type ClusterConfig struct {
	Executable string // the whippet program
	Dir        string // where everything is kept; it is made
	Nodes      int    // 2 to MaxNodes
	BasePort   uint16 // 0 takes a block of ports that is free
	Settings   string // more lines for the configuration file, with dotted keys: `cluster.rebalance = false`
	// Flags are more arguments of a node; nil = none.
	Flags func(node int) []string
}

// Cluster is a started cluster. Its methods are for one goroutine at a time.
type Cluster struct {
	cfg   ClusterConfig
	nodes []*Node
	other bool
}

// Held is how many nodes a directory was used for: 0 = it is new, 1 = a node of its own, more = a cluster.
func Held(dir string) (int, error) {
	b, err := os.ReadFile(filepath.Join(dir, rosterFile))
	if err == nil {
		return strings.Count(string(b), "replica_id = "), nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("look into %s: %w", dir, err)
	}
	if _, err := os.Stat(filepath.Join(dir, NodeName(0))); err == nil {
		return 1, nil
	}
	return 0, nil
}

// NodeName is the name of node i, in the roster and in the directory.
func NodeName(i int) string { return fmt.Sprintf("node-%d", i) }

// StartCluster starts all nodes at the same time and returns when each of them signs clients in and knows the leader of
// the metadata. On an error nothing is left running. A directory that was used before starts with its data.
func StartCluster(ctx context.Context, cfg ClusterConfig) (_ *Cluster, err error) {
	if cfg.Nodes < 2 || cfg.Nodes > MaxNodes {
		return nil, fmt.Errorf("start a cluster: %d nodes: it takes 2 to %d", cfg.Nodes, MaxNodes)
	}
	if last := LastPort(cfg.BasePort, cfg.Nodes); last > 65535 {
		return nil, fmt.Errorf("start a cluster: the base port %d is too high: %d nodes need the ports up to %d", cfg.BasePort, cfg.Nodes, last)
	}
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
		return nil, fmt.Errorf("start a cluster: %w", err)
	}
	c := &Cluster{cfg: cfg}
	for i := range cfg.Nodes {
		n, err := newNode(Config{Executable: cfg.Executable, Dir: cfg.Dir, Name: NodeName(i)})
		if err != nil {
			return nil, err
		}
		n.replica = true
		if err := n.free(); err != nil {
			return nil, err
		}
		n.args = []string{
			"server", "--config", filepath.Join(n.dir, rosterFile), "--data", n.Data(), "--replica-id", fmt.Sprint(i),
			"--with-default-root-credentials", "--ready-file", n.path(".ready"),
		}
		if cfg.Flags != nil {
			n.args = append(n.args, cfg.Flags(i)...)
		}
		c.nodes = append(c.nodes, n)
	}
	base := int(cfg.BasePort)
	if base == 0 {
		guard, free, err := freeBlock(kinds * cfg.Nodes)
		if err != nil {
			return nil, err
		}
		defer func() { _ = guard.Close() }() // the nodes have the ports by then
		base = free
	} else if err := c.portsFree(ctx, base); err != nil {
		return nil, err
	}
	if err := c.configure(base); err != nil {
		return nil, err
	}
	if err := c.each(func(n *Node) error { return n.StartAgain(ctx) }); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	if err := c.Await(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// kinds of ports that a node has, or may get: TCP, other nodes, HTTP, QUIC, WebSocket.
const kinds = 5

// LastPort is the last of the ports that a number of nodes has, or may get, from a base port on. A node on its own has one.
func LastPort(base uint16, nodes int) int {
	if nodes == 1 {
		return int(base)
	}
	return int(base) + kinds*nodes - 1
}

// port of a node: kind 0 is TCP, kind 1 that of the other nodes.
func (c *Cluster) port(base, kind, node int) int { return base + kind*len(c.nodes) + node }

// configure writes the configuration that all nodes share.
func (c *Cluster) configure(base int) error {
	secret, err := c.secret()
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, `# Written at each start by the program that started these nodes. All of them share it; --replica-id says which one a
# process is.
cluster.enabled = true
cluster.name = "local"
cluster.auth.enabled = true
cluster.auth.shared_secret = %q
tcp.address = "127.0.0.1:0" # the port is that of cluster.nodes
`, secret)
	b.WriteString(c.cfg.Settings)
	b.WriteString("\ncluster.nodes = [\n")
	for i, n := range c.nodes {
		fmt.Fprintf(&b, "  { name = %q, ip = \"127.0.0.1\", replica_id = %d, ports = { tcp = %d, tcp_replica = %d } },\n",
			n.cfg.Name, i, c.port(base, 0, i), c.port(base, 1, i))
	}
	b.WriteString("]\n")
	if err := os.WriteFile(filepath.Join(c.cfg.Dir, rosterFile), []byte(b.String()), 0o600); err != nil {
		return fmt.Errorf("write the roster: %w", err)
	}
	return nil
}

// secret is read, or made at the first start.
func (c *Cluster) secret() (string, error) {
	path := filepath.Join(c.cfg.Dir, secretFile)
	b, err := os.ReadFile(path)
	switch {
	case err == nil && len(strings.TrimSpace(string(b))) >= 32:
		return strings.TrimSpace(string(b)), nil
	case err == nil:
		return "", fmt.Errorf("%s is shorter than 32 bytes: remove it, and a new one is made", path)
	case !errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("read the nodes' secret: %w", err)
	}
	raw := make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		return "", fmt.Errorf("make the nodes' secret: %w", err)
	}
	text := hex.EncodeToString(raw)
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("keep the nodes' secret: %w", err)
	}
	return text, nil
}

// portsFree checks, before anything is started, that nobody has the ports. What was killed a moment ago may have them for
// as long again.
func (c *Cluster) portsFree(ctx context.Context, base int) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(time.Second)
	for {
		taken := -1
		var who string
		for kind, use := range []string{"TCP", "the other nodes"} {
			for i, n := range c.nodes {
				if p := c.port(base, kind, i); taken < 0 && !portFree(p) {
					taken, who = p, fmt.Sprintf("%s for %s", n.cfg.Name, use)
				}
			}
		}
		if taken < 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("port %d (%s) is used by another process: choose another base port, %d ports from it must be free", taken, who, kinds*len(c.nodes))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func portFree(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	_ = l.Close() // it was only a look
	return true
}

// Free ports are looked for below the range from which the kernel takes ports for outgoing connections: a node that is
// down for a while must find its own again.
const freeFrom, freeTo = 10_000, 12_000

// freeBlock finds n free ports in a row. The guard keeps others that look for ports in this way off.
func freeBlock(n int) (guard net.Listener, base int, err error) {
	size := n + 1
	blocks := (freeTo - freeFrom) / size
	start := os.Getpid() * 7
	for i := range blocks {
		first := freeFrom + (start+i)%blocks*size
		guard, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first))
		if err != nil {
			continue
		}
		free := true
		for p := first + 1; p < first+size && free; p++ {
			free = portFree(p)
		}
		if free {
			return guard, first + 1, nil
		}
		_ = guard.Close() // it was only a look
	}
	return nil, 0, fmt.Errorf("no %d free ports in a row between %d and %d: choose a base port", n, freeFrom, freeTo)
}

// Nodes by replica id.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// Addresses of all nodes for clients.
func (c *Cluster) Addresses() []string {
	out := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		out[i] = n.Address()
	}
	return out
}

// Options of a client that knows all nodes.
func (c *Cluster) Options() client.Options {
	return client.Options{Addresses: c.Addresses(), Username: Username, Password: Password}
}

// each does something to all nodes at the same time.
func (c *Cluster) each(f func(*Node) error) error {
	errs := make([]error, len(c.nodes))
	var wg sync.WaitGroup
	for i, n := range c.nodes {
		wg.Go(func() { errs[i] = f(n) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Await returns when every node signs clients in and knows the leader of the metadata.
func (c *Cluster) Await(ctx context.Context) error {
	var other atomic.Bool
	err := c.each(func(n *Node) error {
		err := n.Await(ctx)
		if errors.Is(err, wire.ErrInvalidCredentials) {
			other.Store(true)
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s does not accept requests: %w\n%s", n.cfg.Name, err, n.tail())
		}
		return nil
	})
	c.other = other.Load()
	return err
}

// OtherPassword reports whether the data was made with another root password than this package gives.
func (c *Cluster) OtherPassword() bool { return c.other }

// awaitLimit bounds the wait for a node that accepts connections already.
const awaitLimit = 30 * time.Second

// Await returns when the node signs clients in and, in a cluster, names a leader. Data of an earlier start may have
// another root password than this package gives: a node that says so is ready too, and the error is
// wire.ErrInvalidCredentials.
func (n *Node) Await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, awaitLimit)
	defer cancel()
	conn, err := client.New(client.Options{Addresses: []string{n.addr}, Username: Username, Password: Password, NoRouting: true})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // only a look
	if err := conn.Connect(ctx); err != nil {
		return err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		roster, err := conn.ClusterMetadata(ctx)
		if err == nil && roster.Leader() != nil {
			return nil
		}
		var code wire.ErrorCode
		if err != nil && !errors.As(err, &code) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// Stop asks all nodes to end and waits for them, also for those that were restarted since.
func (c *Cluster) Stop() error { return c.each((*Node).Stop) }

// StartAgain starts all nodes, after Stop, with other settings.
func (c *Cluster) StartAgain(ctx context.Context, settings string) error {
	c.cfg.Settings = settings
	_, port, err := net.SplitHostPort(c.nodes[0].addr)
	if err != nil {
		return err
	}
	base, err := net.LookupPort("tcp", port)
	if err != nil {
		return err
	}
	if err := c.configure(base); err != nil {
		return err
	}
	if err := c.each(func(n *Node) error { return n.StartAgain(ctx) }); err != nil {
		return err
	}
	return c.Await(ctx)
}
