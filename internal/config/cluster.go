package config

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// tables are the arrays of tables and their fields; a field with a dot behind
// the name of an inner array of tables is one of its elements' fields.
var tables = map[string][]string{
	"cluster.nodes": {
		"name", "ip", "replica_id", "ports.tcp", "ports.quic", "ports.http", "ports.websocket", "ports.tcp_replica",
		"advertised_address", "advertised_addresses.client_cidr", "advertised_addresses.address",
	},
	"http.jwt.trusted_issuers": {"issuer", "jwks_url", "audience", "user_id"},
}

// nestedField splits a field of an inner array of tables.
func nestedField(f string) (sub, inner string, ok bool) {
	sub, inner, ok = strings.Cut(f, ".")
	return sub, inner, ok && sub == "advertised_addresses"
}

// element is one table of an array under conversion.
type element struct {
	l    *loader
	path string
	m    map[string]any
}

func (l *loader) elements(path string) []element {
	list, _ := l.k.Get(path).([]any)
	out := make([]element, 0, len(list))
	for i, e := range list {
		m, _ := e.(map[string]any)
		out = append(out, element{l, path + "." + strconv.Itoa(i), m})
	}
	return out
}

func (e element) get(field string) any {
	var v any = e.m
	for p := range strings.SplitSeq(field, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

// bad reports a field, once: what follows from a value that cannot be used is no news.
func (e element) bad(field, takes string) {
	if e.refused(field) {
		return
	}
	given := "nothing"
	if v := e.get(field); v != nil {
		given = show(v)
	}
	key := e.path + "." + field
	e.l.problem(&Problem{Key: key, Given: given, Takes: "takes " + takes, Where: e.l.where(key)})
}

func (e element) refused(field string) bool {
	return slices.ContainsFunc(e.l.problems, func(p *Problem) bool { return p.Key == e.path+"."+field })
}

func (e element) text(field string) string {
	v := e.get(field)
	if v == nil {
		return ""
	}
	s, err := toString(v)
	if err != nil {
		e.bad(field, "a text")
	}
	return s
}

func (e element) number(field string, lo, hi int64, must bool) int64 {
	v := e.get(field)
	if v == nil && !must {
		return 0
	}
	n, err := toInt(v)
	if err != nil || n < lo || n > hi {
		e.bad(field, fmt.Sprintf("a whole number from %d to %d", lo, hi))
		return 0
	}
	return n
}

func (l *loader) nodes() []Node {
	var out []Node
	for _, e := range l.elements("cluster.nodes") {
		n := Node{
			Name:      e.text("name"),
			ReplicaID: uint8(e.number("replica_id", 0, 254, true)),
			Ports: Ports{
				TCP:       uint16(e.number("ports.tcp", 1, 65535, true)),
				Replica:   uint16(e.number("ports.tcp_replica", 1, 65535, true)),
				QUIC:      uint16(e.number("ports.quic", 1, 65535, false)),
				HTTP:      uint16(e.number("ports.http", 1, 65535, false)),
				WebSocket: uint16(e.number("ports.websocket", 1, 65535, false)),
			},
			Advertised: e.text("advertised_address"),
		}
		ip, err := netip.ParseAddr(e.text("ip"))
		if err != nil || ip.IsUnspecified() {
			e.bad("ip", "a literal IP address of this node")
		}
		n.IP = ip
		if strings.TrimSpace(n.Name) == "" {
			e.bad("name", "a name that no other node has")
		}
		if n.Advertised != "" && !advertisable(n.Advertised) {
			e.bad("advertised_address", "an IP address or a DNS name without a port, not 0.0.0.0 or ::")
		}
		inner, _ := e.get("advertised_addresses").([]any)
		if len(inner) > 16 {
			e.bad("advertised_addresses", "at most 16 entries")
		}
		for j, x := range inner {
			m, _ := x.(map[string]any)
			ie := element{l, e.path + ".advertised_addresses." + strconv.Itoa(j), m}
			p, err := netip.ParsePrefix(ie.text("client_cidr"))
			if err != nil {
				ie.bad("client_cidr", "a network such as 10.0.0.0/8")
			}
			a := Advertised{Network: p.Masked(), Address: ie.text("address")}
			if !advertisable(a.Address) {
				ie.bad("address", "an IP address or a DNS name without a port, not 0.0.0.0 or ::")
			}
			for _, o := range n.PerNetwork {
				if o.Network == a.Network && err == nil {
					ie.bad("client_cidr", "a network that is not named twice")
				}
			}
			n.PerNetwork = append(n.PerNetwork, a)
		}
		out = append(out, n)
	}
	return out
}

func (l *loader) issuers() []TrustedIssuer {
	var out []TrustedIssuer
	for _, e := range l.elements("http.jwt.trusted_issuers") {
		t := TrustedIssuer{Issuer: e.text("issuer"), JWKSURL: e.text("jwks_url"), Audience: e.text("audience"), UserID: uint32(e.number("user_id", 1, 1<<32-1, true))}
		if t.Issuer == "" {
			e.bad("issuer", "the issuer's URL")
		}
		if t.JWKSURL == "" {
			e.bad("jwks_url", "the URL of the issuer's keys")
		}
		out = append(out, t)
	}
	return out
}

// checkCluster holds the rules over the whole roster.
func (c *Config) checkCluster(l *loader) {
	bad := func(key, given, takes string, from ...string) {
		l.relation(&Problem{Key: key, Given: given, Takes: takes, from: from})
	}
	nodes := c.Cluster.Nodes
	if len(nodes) > 255 {
		bad("cluster.nodes", strconv.Itoa(len(nodes))+" nodes", "takes at most 255")
		return
	}
	type endpoint struct {
		host string
		port uint16
	}
	names, ids, used := map[string]int{}, map[uint8]int{}, map[endpoint]string{}
	for i, n := range nodes {
		at := "cluster.nodes." + strconv.Itoa(i)
		if j, twice := names[n.Name]; twice {
			bad(at+".name", strconv.Quote(n.Name), fmt.Sprintf("is the name of cluster.nodes.%d already", j))
		}
		if j, twice := ids[n.ReplicaID]; twice {
			bad(at+".replica_id", strconv.Itoa(int(n.ReplicaID)), fmt.Sprintf("is the id of cluster.nodes.%d already", j), fmt.Sprintf("cluster.nodes.%d.replica_id", j))
		}
		if int(n.ReplicaID) >= len(nodes) {
			bad(at+".replica_id", strconv.Itoa(int(n.ReplicaID)), fmt.Sprintf("takes a number below the %d nodes of the roster", len(nodes)))
		}
		names[n.Name], ids[n.ReplicaID] = i, i
		ports := []struct {
			field   string
			port    uint16
			enabled bool
		}{
			{"tcp", n.Ports.TCP, true}, {"tcp_replica", n.Ports.Replica, true}, {"http", n.Ports.HTTP, c.HTTP.Enabled},
			{"websocket", n.Ports.WebSocket, c.WebSocket.Enabled},
		}
		for _, p := range ports {
			if p.port == 0 {
				continue
			}
			ep := endpoint{n.IP.String(), p.port}
			if o, twice := used[ep]; twice {
				bad(at+".ports."+p.field, strconv.Itoa(int(p.port)), "collides with "+o, at+".ip")
			}
			used[ep] = at + ".ports." + p.field
		}
	}
	if !c.Cluster.Enabled {
		if c.ReplicaID >= 0 {
			l.rep.note(slog.LevelWarn, "--replica-id has no effect: this node runs alone, since cluster.enabled is false")
		}
		return
	}
	if len(nodes) == 0 {
		bad("cluster.nodes", "nothing", "takes one table per node when cluster.enabled is true")
	}
	if c.ReplicaID < 0 {
		bad("--replica-id", "nothing", "must name this node's entry of cluster.nodes when cluster.enabled is true")
	} else if _, ok := ids[uint8(c.ReplicaID)]; !ok && len(nodes) > 0 {
		bad("--replica-id", strconv.Itoa(c.ReplicaID), "is not in cluster.nodes", "cluster.nodes")
	}
	if c.Cluster.Secret != "" && c.Cluster.Secret == c.Cluster.PreviousSecret {
		bad("cluster.auth.previous_shared_secret", mask, "takes another value than cluster.auth.shared_secret")
	}
	if c.Cluster.AuthEnabled && c.Cluster.Secret == "" {
		bad("cluster.auth.shared_secret", "nothing", "takes at least 32 bytes when cluster.auth.enabled is true")
	}
	if c.Cluster.TLS.Enabled && !c.Cluster.AuthEnabled {
		bad("cluster.tls.enabled", "true", "needs cluster.auth.enabled = true", "cluster.auth.enabled")
	}
	if !c.Cluster.AuthEnabled {
		for i, n := range nodes {
			if n.IP.IsValid() && !n.IP.IsLoopback() {
				bad("cluster.auth.enabled", "false", fmt.Sprintf("may be off only while every address of the roster is loopback; cluster.nodes.%d has %s", i, n.IP), fmt.Sprintf("cluster.nodes.%d.ip", i))
				break
			}
		}
	}
	if c.Groups.SessionTimeout <= c.Cluster.HeartbeatTimeout {
		l.limit("cluster.heartbeat_timeout", "less than", "consumer_group.session_timeout", "more than")
	}
}
