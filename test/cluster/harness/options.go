package harness

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Options of a cluster. The zero value of every field is its default.
type Options struct {
	// Nodes is how many; 0 = 1. A single node runs without [cluster].
	Nodes int
	// Name of the cluster; default "harness". Nodes are called node-0, node-1, …
	Name string
	// Dir is where configurations, data and logs go; New takes a temporary directory of the test.
	Dir string

	// Data puts data directories of nodes elsewhere than under Dir.
	Data map[int]string

	// Proxies puts a proxy between clients and each node; the roster advertises the proxies.
	Proxies bool
	// PeerProxies puts a proxy into each direction between two nodes.
	PeerProxies bool

	// NoForwarding refuses sends of clients that cannot route.
	NoForwarding bool
	// Spread places new primaries evenly instead of on the metadata leader (`placement`), Rebalance brings them back to
	// even. Both are off by default: tests place primaries by hand.
	Spread, Rebalance bool
	// Heartbeat is the silence that starts an election; 0 = the server's default of 1 s.
	Heartbeat time.Duration
	// NoPeerSecret lets nodes link up without a shared secret.
	NoPeerSecret bool
	// Set has further keys of the configuration, as TOML: `"metadata.clients_table_max": "4"`.
	Set map[string]string
	// Env has further variables of the nodes' environment, "NAME=value".
	Env []string
	// ClockFile names a file with microseconds that every node adds to its wall clock, read again all the time. It takes
	// a binary of its own, built with the tag clocksteps.
	ClockFile string
	// Args are further arguments of `whippet server`.
	Args []string
}

func (o *Options) setDefaults() {
	if o.Nodes == 0 {
		o.Nodes = 1
	}
	if o.Name == "" {
		o.Name = "harness"
	}
}

// ElectionTimeout is the silence that starts an election.
func (o *Options) ElectionTimeout() time.Duration {
	if o.Heartbeat != 0 {
		return o.Heartbeat
	}
	return time.Second
}

// peerSecret of every cluster of the harness.
const peerSecret = "the harness shares this secret among its nodes"

// writeConfig writes the configuration of a node. All nodes have the same, unless proxies stand between them: then each
// finds its peers at addresses of its own.
func (c *Cluster) writeConfig(n *Node) (string, error) {
	o := &c.Options
	keys := map[string]string{
		"http.enabled": "false", "quic.enabled": "false", "websocket.enabled": "false",
		"logging.level": `"debug"`, "logging.file_enabled": "false", "logging.sysinfo_print_interval": `"0"`,
		"tcp.address": quote(n.direct),
	}
	file := "whippet.toml"
	switch {
	case o.Nodes == 1:
		if o.Proxies {
			keys["node.advertised_address"] = quote(advertisedHost(0))
		}
	default:
		keys["cluster.enabled"] = "true"
		keys["cluster.name"] = quote(o.Name)
		keys["cluster.forwarding"] = strconv.FormatBool(!o.NoForwarding)
		keys["cluster.placement"] = quote(map[bool]string{true: "spread", false: "leader"}[o.Spread])
		keys["cluster.rebalance"] = strconv.FormatBool(o.Rebalance)
		if o.Heartbeat != 0 {
			keys["cluster.heartbeat_timeout"] = quote(fmt.Sprintf("%d ms", o.Heartbeat.Milliseconds()))
		}
		if !o.NoPeerSecret {
			keys["cluster.auth.enabled"] = "true"
			keys["cluster.auth.shared_secret"] = quote(peerSecret)
		}
		keys["tcp.address"] = quote("127.0.0.1:1") // the port is the roster's
		roster := make([]string, o.Nodes)
		for i := range roster {
			roster[i] = c.rosterEntry(n, i)
		}
		keys["cluster.nodes"] = "[\n  " + strings.Join(roster, ",\n  ") + ",\n]"
	}
	if o.PeerProxies || n.Set != nil || n.EditRoster != nil {
		file = n.Name + ".toml"
	}
	maps.Copy(keys, o.Set)
	maps.Copy(keys, n.Set)
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		fmt.Fprintf(&b, "%s = %s\n", k, keys[k])
	}
	// Whole or not at all: another node may be reading the same file.
	path := filepath.Join(o.Dir, file)
	if err := os.WriteFile(path+".new", []byte(b.String()), 0o600); err != nil {
		return "", err
	}
	return path, os.Rename(path+".new", path)
}

// RosterEntry is what a configuration says of a node.
type RosterEntry struct {
	Name, IP, Advertised string
	ReplicaID            int
	TCP, Replica         int // ports
}

func (e *RosterEntry) toml() string {
	advertised := ""
	if e.Advertised != "" {
		advertised = fmt.Sprintf(`, advertised_address = "%s"`, e.Advertised)
	}
	return fmt.Sprintf(`{ name = "%s", ip = "%s", replica_id = %d, ports = { tcp = %d, tcp_replica = %d }%s }`,
		e.Name, e.IP, e.ReplicaID, e.TCP, e.Replica, advertised)
}

// RosterEntry is what the configuration of a cluster without proxies says of a node.
func (c *Cluster) RosterEntry(node int) RosterEntry {
	return RosterEntry{Name: NodeName(node), IP: "127.0.0.1", ReplicaID: node, TCP: c.ports.client(node), Replica: c.ports.peer(node)}
}

// rosterEntry is what a node's configuration says of a node.
func (c *Cluster) rosterEntry(of *Node, node int) string {
	e := c.RosterEntry(node)
	if c.Options.PeerProxies && of.Index != node {
		e.IP = peerHost(of.Index, node)
		e.Advertised = "127.0.0.1"
	}
	if c.Options.Proxies {
		e.Advertised = advertisedHost(node)
	}
	if of.EditRoster != nil {
		of.EditRoster(&e)
	}
	return e.toml()
}

// NodeName is the name of a node in the roster.
func NodeName(node int) string { return fmt.Sprintf("node-%d", node) }

// advertisedHost is where the proxy of a node listens, peerHost where the proxy listens that carries what one node says to
// another.
func advertisedHost(node int) string { return fmt.Sprintf("127.2.0.%d", node+1) }
func peerHost(from, to int) string   { return fmt.Sprintf("127.1.%d.%d", from+1, to+1) }

func quote(s string) string { return strconv.Quote(s) }

// clockVariable is what a binary with the tag clocksteps reads.
const clockVariable = "WHIPPET_TEST_CLOCK_FILE"

// build is the build tag that the options need.
func (o *Options) build() string {
	if o.ClockFile != "" {
		return "clocksteps"
	}
	return ""
}

// environment is what the nodes get beside the harness's own variables.
func (o *Options) environment() []string {
	if o.ClockFile == "" {
		return o.Env
	}
	return append(slices.Clip(o.Env), clockVariable+"="+o.ClockFile)
}
