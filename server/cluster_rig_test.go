package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/whippetmq/whippet/internal/cluster"
	"github.com/whippetmq/whippet/internal/config"
	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/wire"
)

// clusterOf makes a cluster of one node of a configuration.
func clusterOf(c *Config, ip string) {
	c.Cluster.Enabled, c.Cluster.Name, c.ReplicaID = true, "test", 0
	c.Cluster.Nodes = []config.Node{{Name: "n0", IP: netip.MustParseAddr(ip), Ports: config.Ports{TCP: 1, Replica: 2}}}
}

// hold is how long requests wait for a primary in tests: longer than an election.
const hold = 3 * time.Second

// nodes are the nodes of a cluster in this process. The links between them go
// through a switch that a test can cut.
type nodes struct {
	t      testing.TB
	roster []config.Node
	change func(*Config)
	opts   []Option
	s      []*Server // nil = not running
	dirs   []string
	net    *network

	mu     sync.Mutex
	ticket string // for cheap sign-ins, empty = none yet
}

// network cuts links between nodes.
type network struct {
	mu    sync.Mutex
	cut   map[[2]int]bool // dialler, dialled
	conns map[[2]int][]net.Conn
	ports map[string]int // peer address to node
}

// dial makes the dialler of a node.
func (n *network) dial(from int) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		n.mu.Lock()
		to := n.ports[address]
		cut := n.cut[[2]int{from, to}]
		n.mu.Unlock()
		if cut {
			return nil, fmt.Errorf("cut")
		}
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		n.mu.Lock()
		n.conns[[2]int{from, to}] = append(n.conns[[2]int{from, to}], c)
		n.mu.Unlock()
		return c, nil
	}
}

// set cuts or mends the links from one node to another, in one direction: what
// the one asks of the other, and its answers.
func (n *network) set(from, to int, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := [2]int{from, to}
	n.cut[k] = cut
	if cut {
		for _, c := range n.conns[k] {
			_ = c.Close()
		}
		n.conns[k] = nil
	}
}

// isolate cuts or mends all links of a node.
func (n *network) isolate(node, of int, cut bool) {
	for other := range of {
		if other != node {
			n.set(node, other, cut)
			n.set(other, node, cut)
		}
	}
}

// startNodes runs a cluster and waits until clients can sign in on every node.
func startNodes(t testing.TB, count int, change func(*Config), opts ...Option) *nodes {
	t.Helper()
	n := &nodes{t: t, change: change, opts: opts, s: make([]*Server, count),
		net: &network{cut: map[[2]int]bool{}, conns: map[[2]int][]net.Conn{}, ports: map[string]int{}}}
	listen := func() (net.Listener, uint16) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return ln, uint16(ln.Addr().(*net.TCPAddr).Port)
	}
	var clients, peers []net.Listener
	for i := range count {
		c, port := listen()
		p, peer := listen()
		clients, peers = append(clients, c), append(peers, p)
		n.roster = append(n.roster, config.Node{
			Name: fmt.Sprintf("n%d", i), IP: netip.MustParseAddr("127.0.0.1"), ReplicaID: uint8(i), Ports: config.Ports{TCP: port, Replica: peer},
		})
		n.dirs = append(n.dirs, t.TempDir())
		n.net.ports[p.Addr().String()] = i
	}
	t.Cleanup(n.stop)
	for i := range count {
		n.start(i, clients[i], peers[i])
	}
	for i := range count {
		n.login(i)
	}
	// Partitions of a node that nobody has heard of yet are led elsewhere at first.
	eventually(t, func() bool {
		for i, s := range n.s {
			for j := range n.s {
				if i != j && !s.host.Alive(uint64(j+1)) {
					return false
				}
			}
		}
		return true
	})
	return n
}

func (n *nodes) start(i int, clients, peers net.Listener) {
	n.t.Helper()
	cfg := DefaultConfig()
	cfg.Path = n.dirs[i]
	cfg.TCP.Address = "127.0.0.1:0"
	cfg.Root.Default = true
	cfg.Cluster.Enabled, cfg.Cluster.Name, cfg.Cluster.Nodes = true, "test", n.roster
	cfg.Cluster.Rebalance = false
	cfg.ReplicaID = i
	if n.change != nil {
		n.change(cfg)
	}
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(n.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})).With("on", i)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	opts := append([]Option{WithLogger(log), cheap, func(o *options) { o.clients, o.peers, o.dial, o.hold = clients, peers, n.net.dial(i), hold }}, n.opts...)
	s, err := Start(ctx, cfg, opts...)
	if err != nil {
		n.t.Fatal(err)
	}
	n.s[i] = s
}

// restart starts a node again that was stopped, on its ports.
func (n *nodes) restart(i int) {
	n.t.Helper()
	n.start(i, nil, nil)
}

func (n *nodes) stop() {
	var wg sync.WaitGroup
	for i := range n.s {
		if n.s[i] != nil {
			wg.Go(func() { n.halt(i) })
		}
	}
	wg.Wait()
}

// halt stops a node in an orderly way.
func (n *nodes) halt(i int) {
	if err := n.s[i].Close(context.Background()); err != nil {
		n.t.Errorf("close node %d: %v", i, err)
	}
	n.s[i] = nil
}

// crash ends a node that goes on, when it is started again, with what its files
// held while it ran.
func (n *nodes) crash(i int) {
	n.t.Helper()
	dir := n.t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(n.dirs[i])); err != nil {
		n.t.Fatal(err)
	}
	n.halt(i)
	n.dirs[i] = dir
}

// login signs in on a node, as soon as it lets anybody.
func (n *nodes) login(i int) *raw {
	n.t.Helper()
	r := dial(n.t, n.s[i])
	deadline := time.Now().Add(20 * time.Second)
	for {
		n.mu.Lock()
		token := n.ticket
		n.mu.Unlock()
		var body wire.Request = loginBody("iggy", "iggy")
		if token != "" {
			body = &wire.LoginRegisterWithPat{Version: loginBody("", "").Version, Token: token}
		}
		a := r.do(body)
		if a.eviction == wire.EvictInvalidToken {
			n.mu.Lock()
			n.ticket = "" // its time is over
			n.mu.Unlock()
			continue
		}
		if a.code() == wire.ErrTransientNotAccepted || a.code() == wire.ErrTransientNotCommitted {
			if time.Now().After(deadline) {
				n.t.Fatalf("no sign-in on node %d: %v", i, a.code())
			}
			continue
		}
		payload, err := a.payload()
		if err != nil {
			n.t.Fatalf("login on node %d: %v", i, err)
		}
		var lr wire.LoginReply
		if err := lr.Decode(payload); err != nil {
			n.t.Fatal(err)
		}
		r.session, r.request = lr.Session, 0
		if token == "" {
			var ticket wire.TicketReply
			r.must(&wire.Ticket{}, &ticket)
			n.mu.Lock()
			n.ticket = ticket.Token
			n.mu.Unlock()
		}
		return r
	}
}

// leader is the node that leads the metadata.
func (n *nodes) leader() int {
	n.t.Helper()
	at := -1
	eventually(n.t, func() bool {
		for i, s := range n.s {
			if s != nil {
				if st := s.metadata.Status(); st.Leader == s.self && st.Ready {
					at = i
					return true
				}
			}
		}
		return false
	})
	return at
}

// topicOn makes a topic on the connection's node and waits until every node
// knows the primaries of all its partitions.
func (n *nodes) topicOn(r *raw, partitions uint32, options ...wire.Option) (stream, topic wire.Identifier) {
	n.t.Helper()
	stream, topic = r.topic(partitions, options...)
	n.settled(stream, topic)
	return stream, topic
}

// settled waits until all running nodes agree on the primaries of a topic.
func (n *nodes) settled(stream, topic wire.Identifier) []int {
	n.t.Helper()
	var led []int
	eventually(n.t, func() bool {
		led = nil
		for _, s := range n.s {
			if s == nil {
				continue
			}
			_, t := s.machine.Catalog().Topic(stream, topic)
			if t == nil {
				return false
			}
			var here []int
			for _, p := range t.Partitions {
				g := s.host.Group(p.Group())
				if g == nil || g.Status().Leader == 0 {
					return false
				}
				at := int(g.Status().Leader) - 1
				if at >= len(n.s) || n.s[at] == nil || !n.s[at].host.Group(p.Group()).Status().Ready {
					return false
				}
				here = append(here, at)
			}
			if led != nil && !slices.Equal(led, here) {
				return false
			}
			led = here
		}
		return led != nil
	})
	return led
}

// group is a partition's group on a node.
func (n *nodes) group(node int, stream, topic wire.Identifier, partition uint32) *replica.Group {
	n.t.Helper()
	_, t := n.s[node].machine.Catalog().Topic(stream, topic)
	if t == nil {
		n.t.Fatalf("node %d does not know the topic", node)
	}
	return n.s[node].host.Group(t.Partitions[partition].Group())
}

// move puts the primary of a partition on a node.
func (n *nodes) move(stream, topic wire.Identifier, partition uint32, to int) {
	n.t.Helper()
	r := n.login(to)
	defer func() { _ = r.nc.Close() }()
	var rep wire.TransferLeaderReply
	r.must(&wire.TransferLeader{Kind: wire.TransferPartition, Stream: stream, Topic: topic, Partition: partition, Target: n.roster[to].Name}, &rep)
	if rep.Node != n.roster[to].Name {
		n.t.Fatalf("moved to %s", rep.Node)
	}
	eventually(n.t, func() bool { return n.settled(stream, topic)[partition] == to })
}

// withBalancer sets the balancer's times.
func withBalancer(f func(*cluster.BalancerConfig)) Option { return func(o *options) { o.balance = f } }
