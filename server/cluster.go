package server

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/whippetmq/whippet/internal/cluster"
	"github.com/whippetmq/whippet/internal/config"
	"github.com/whippetmq/whippet/internal/metadata"
	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/internal/replica/transport"
	"github.com/whippetmq/whippet/wire"
)

const (
	// electionTicks is how many ticks of the groups' clock cluster.heartbeat_timeout is.
	electionTicks = 10
	// dutyPause is the pause between two attempts of a duty.
	dutyPause = 50 * time.Millisecond
	// leaveLimit bounds the handing over of primaries at a stop.
	leaveLimit = 5 * time.Second
)

// identify finds out which node of which cluster this is, and where it listens.
func (s *Server) identify() error {
	c := s.cfg
	name := standaloneCluster
	if c.Cluster.Enabled {
		name = c.Cluster.Name
		if err := s.trusted(); err != nil {
			return err
		}
		n, err := s.own()
		if err != nil {
			return err
		}
		s.self = cluster.NodeID(n.ReplicaID)
		// The roster's port counts; the host of the address stays the bind interface.
		host, _, err := net.SplitHostPort(c.TCP.Address)
		if err != nil {
			return fmt.Errorf("tcp.address: got %q: %w", c.TCP.Address, err)
		}
		c.TCP.Address = net.JoinHostPort(host, strconv.Itoa(int(n.Ports.TCP)))
	}
	// A cluster is known by its name (decisions 20).
	sum := xxh3.HashString128(name)
	s.id = wire.U128{Lo: sum.Lo, Hi: sum.Hi}
	return nil
}

// trusted refuses a cluster that strangers could join: nodes prove that they know
// the secret unless all of them are on this machine (decisions 20).
func (s *Server) trusted() error {
	c := s.cfg.Cluster
	if c.AuthEnabled {
		if len(c.Secret) < minSecret {
			return fmt.Errorf("cluster.auth.shared_secret: got %d bytes, it takes at least %d", len(c.Secret), minSecret)
		}
		return nil
	}
	for _, n := range c.Nodes {
		if !n.IP.IsLoopback() {
			return fmt.Errorf("cluster.auth.enabled: got false, which it takes only while every address of the roster is loopback; %s has %s", n.Name, n.IP)
		}
	}
	return nil
}

// minSecret is the least length of the secret between nodes, in bytes.
const minSecret = 32

// own is this node's entry of the roster.
func (s *Server) own() (config.Node, error) {
	for _, n := range s.cfg.Cluster.Nodes {
		if int(n.ReplicaID) == s.cfg.ReplicaID {
			return n, nil
		}
	}
	return config.Node{}, fmt.Errorf("--replica-id: got %d, but cluster.nodes has no such node", s.cfg.ReplicaID)
}

// voters are the members of the metadata group.
func (s *Server) voters() []uint64 {
	if s.link == nil {
		return []uint64{s.self}
	}
	ids := make([]uint64, 0, len(s.cfg.Cluster.Nodes))
	for _, n := range s.cfg.Cluster.Nodes {
		ids = append(ids, cluster.NodeID(n.ReplicaID))
	}
	return ids
}

func (s *Server) metadataConfig() metadata.Config {
	mc := metadata.Config{ClientsMax: int(s.cfg.Metadata.MaxClients), TokensMax: int(s.cfg.Tokens.MaxPerUser)}
	if s.link == nil {
		return mc
	}
	mc.Replica = uint8(s.cfg.ReplicaID)
	for _, n := range s.cfg.Cluster.Nodes {
		mc.Nodes = append(mc.Nodes, n.ReplicaID)
	}
	if s.cfg.Cluster.Placement == "leader" {
		mc.Placement = metadata.LeaderPlacement
	}
	return mc
}

// openLink makes the link to the other nodes and listens for them; it carries
// nothing before startLink.
func (s *Server) openLink(rc *replica.Config, o options) (net.Listener, error) {
	c := s.cfg
	n, err := s.own()
	if err != nil {
		return nil, err
	}
	ln := o.peers
	if ln == nil {
		// The roster's own address: what other nodes dial.
		if ln, err = net.Listen("tcp", netip.AddrPortFrom(n.IP, n.Ports.Replica).String()); err != nil {
			return nil, fmt.Errorf("cluster.nodes: ports.tcp_replica of %s: %w", n.Name, err)
		}
	}
	tc := transport.Config{
		Dial: o.dial, HandshakeTimeout: c.Bus.HandshakeGrace, SilentTimeout: c.Cluster.HeartbeatTimeout, RedialMax: min(c.Bus.Reconnect, time.Second),
	}
	if c.Cluster.AuthEnabled {
		tc.Secret, tc.PreviousSecret = []byte(c.Cluster.Secret), []byte(c.Cluster.PreviousSecret)
	}
	if tc.ServerTLS, tc.ClientTLS, err = peerTLS(c.Cluster.TLS); err != nil {
		_ = ln.Close()
		return nil, err
	}
	s.link = cluster.New(cluster.Config{
		Name: c.Cluster.Name, Nodes: c.Cluster.Nodes, Self: n.ReplicaID, Logger: s.log, MaxFrame: int(c.Bus.MaxMessage), Transport: tc,
	})
	rc.Transport = s.link
	rc.Tick = c.Cluster.HeartbeatTimeout / electionTicks
	rc.ElectionTicks = electionTicks
	s.warnOfAddresses(n)
	return ln, nil
}

// warnOfAddresses tells of a node that clients of other machines are sent to and cannot reach.
func (s *Server) warnOfAddresses(n config.Node) {
	host, _, err := net.SplitHostPort(s.cfg.TCP.Address)
	if err != nil {
		return
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsLoopback() && !n.IP.IsLoopback() {
		s.log.Warn("tcp.address is a loopback address, but the roster names another: clients of other machines cannot connect", "tcp.address", host, "ip", n.IP)
	}
}

// startLink lets the link work: the host is there, and so is who answers.
func (s *Server) startLink(peers net.Listener) error {
	var id [16]byte
	wire.PutU128(id[:], s.id)
	return s.link.Start(s.host, id, peers)
}

// clusterRoster is what a client is told of the nodes.
func (s *Server) clusterRoster(client netip.Addr) wire.Roster {
	return s.link.Roster(client, s.metadata.Status().Leader)
}

// duties are what a node of a cluster does in the background: the first leader
// of the metadata makes the root user, every node records its start, and the
// leader brings primaries back to where they belong.
type duties struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// end stops them and waits.
func (d *duties) end() {
	d.cancel()
	d.wg.Wait()
}

func (s *Server) startDuties(o options) {
	ctx, cancel := context.WithCancel(context.Background())
	s.duties = &duties{cancel: cancel}
	s.duties.wg.Go(func() { s.settleIn(ctx) })
	if !s.cfg.Cluster.Rebalance {
		return
	}
	bc := cluster.BalancerConfig{
		Self: s.self, Nodes: s.voters(), Host: s.host, Metadata: s.machine, Leads: func() bool { st := s.metadata.Status(); return st.Leader == s.self && st.Ready },
		Up: s.link.Alive, Transfer: s.broker.Transfer, Logger: s.log,
	}
	if o.balance != nil {
		o.balance(&bc)
	}
	s.duties.wg.Go(func() { cluster.NewBalancer(bc).Run(ctx) })
}

// settleIn makes the root user when this node leads the metadata and there is
// none, and records the start of this node.
func (s *Server) settleIn(ctx context.Context) {
	pause := time.NewTicker(dutyPause)
	defer pause.Stop()
	commit := func(ctx context.Context, op wire.Operation, body []byte) error {
		ctx, cancel := context.WithTimeout(ctx, readyLimit)
		defer cancel()
		res := s.broker.Commit(ctx, &metadata.Command{Operation: op, Body: body, Node: uint8(s.self - 1)})
		return res.Err
	}
	recorded := false
	said := ""
	for ctx.Err() == nil {
		made := s.machine.Catalog().Bootstrapped()
		var err error
		st := s.metadata.Status()
		switch {
		case !made && st.Leader == s.self && st.Ready:
			err = s.makeRoot(ctx, commit)
		case made && !recorded:
			err = commit(ctx, metadata.OpNodeStarted, s.startRecord())
			recorded = err == nil
		}
		if err != nil && ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			s.log.Warn("the start is not complete yet", "error", err)
		}
		if made && recorded {
			return
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
}

// leave gives everything that this node leads to others, while its clients are
// still served: what they send is forwarded from then on.
func (s *Server) leave(ctx context.Context) {
	if s.link == nil {
		return
	}
	s.duties.end()
	s.gateway.StopAccepting()
	ctx, cancel := context.WithTimeout(ctx, min(leaveLimit, until(ctx)/2))
	defer cancel()
	left, _ := s.host.HandOver(ctx) // who found no taker in time has to be missed
	s.log.Info("leadership handed over", append([]any{"not", left}, s.forwardCounters()...)...)
}

// forwardCounters are what the node did for others and for clients that cannot route, for the log.
func (s *Server) forwardCounters() []any {
	n := s.broker.Counters()
	return []any{
		"forwarded", n.Forwarded.Load(), "forward_refused", n.ForwardRefused.Load(), "forward_unknown", n.ForwardUnknown.Load(),
		"forward_failed", n.ForwardFailed.Load(), "came_back", n.CameBack.Load(), "hold_full", n.HoldFull.Load(),
		"served_for_others", n.Served.Load(), "not_taken", n.NotTaken.Load(),
	}
}
