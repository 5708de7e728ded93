package config

import (
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// Bound are the addresses that the listeners really have; empty = not listening.
type Bound struct{ TCP, HTTP, QUIC, WebSocket string }

// Render is the effective configuration as TOML with the bound addresses and
// without secrets: the text of current_config.toml.
func (c *Config) Render(b Bound) ([]byte, error) {
	eff := *c
	for _, a := range []struct {
		bound string
		to    *string
	}{{b.TCP, &eff.TCP.Address}, {b.HTTP, &eff.HTTP.Address}, {b.QUIC, &eff.QUIC.Address}, {b.WebSocket, &eff.WebSocket.Address}} {
		if a.bound != "" {
			*a.to = a.bound
		}
	}
	root := map[string]any{}
	for _, k := range table() {
		if !k.secret {
			put(root, k.path, k.get(&eff))
		}
	}
	var nodes []map[string]any
	for _, n := range eff.Cluster.Nodes {
		ports := map[string]any{"tcp": n.Ports.TCP, "tcp_replica": n.Ports.Replica}
		for name, p := range map[string]uint16{"quic": n.Ports.QUIC, "http": n.Ports.HTTP, "websocket": n.Ports.WebSocket} {
			if p != 0 {
				ports[name] = p
			}
		}
		m := map[string]any{"name": n.Name, "ip": n.IP.String(), "replica_id": n.ReplicaID, "ports": ports}
		if n.Advertised != "" {
			m["advertised_address"] = n.Advertised
		}
		var per []map[string]any
		for _, a := range n.PerNetwork {
			per = append(per, map[string]any{"client_cidr": a.Network.String(), "address": a.Address})
		}
		if per != nil {
			m["advertised_addresses"] = per
		}
		nodes = append(nodes, m)
	}
	if nodes != nil {
		put(root, "cluster.nodes", nodes)
	}
	var issuers []map[string]any
	for _, t := range eff.HTTP.JWT.TrustedIssuers {
		issuers = append(issuers, map[string]any{"issuer": t.Issuer, "jwks_url": t.JWKSURL, "audience": t.Audience, "user_id": t.UserID})
	}
	if issuers != nil {
		put(root, "http.jwt.trusted_issuers", issuers)
	}
	text, err := toml.Marshal(root)
	if err != nil {
		return nil, fmt.Errorf("render configuration: %w", err)
	}
	return text, nil
}

// Show lists every key with its value, masked when secret, and its origin, one a line.
func (c *Config) Show() string {
	var b strings.Builder
	for _, k := range table() {
		v := k.get(c)
		if k.secret && v != "" {
			v = mask
		}
		o := c.Origin(k.path)
		fmt.Fprintf(&b, "%s = %v  # %s", k.path, v, o.Source)
		if o.Where != "" {
			b.WriteString(" " + o.Where)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
