package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/internal/config"
	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/internal/replica/transport"
	"github.com/whippetmq/whippet/wire"
)

// Server answers what other nodes ask. Serve is called on the goroutine that
// reads from that node and must not block. The request and its body belong to
// the callee; answer is called once, from any goroutine; nil = the request was
// not looked at.
type Server interface {
	Serve(from uint64, r *Request, answer func(*Reply))
}

// Config of a Link. Everything without a word on zero must be set.
type Config struct {
	Name   string // of the cluster
	Nodes  []config.Node
	Self   uint8 // replica id
	Logger *slog.Logger

	// MaxFrame is the largest frame that clients may send: a frame of the peer
	// link is larger by what a node adds.
	MaxFrame int
	// Transport has what concerns secrets, TLS and timeouts; the rest is filled in.
	Transport transport.Config
}

// Link connects this node with the others. It exists before the host of the
// replicas, which needs it to send, and works from Start on. Its methods may be
// called from any goroutine.
type Link struct {
	cfg   Config
	nodes []config.Node // by replica id
	self  uint64

	host   atomic.Pointer[replica.Host]
	t      atomic.Pointer[transport.Transport]
	server atomic.Pointer[Server]
}

var (
	_ replica.Transport = (*Link)(nil)
	_ replica.Controls  = (*Link)(nil)
	_ replica.Bulk      = (*Link)(nil)
	_ transport.Handler = (*handler)(nil)
)

// NodeID is the id of a node in groups and on links: its replica id + 1.
func NodeID(replicaID uint8) uint64 { return uint64(replicaID) + 1 }

// New makes a link that neither listens nor dials yet.
func New(cfg Config) *Link {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Link{cfg: cfg, nodes: slices.Clone(cfg.Nodes), self: NodeID(cfg.Self)}
	slices.SortFunc(l.nodes, func(a, b config.Node) int { return int(a.ReplicaID) - int(b.ReplicaID) })
	return l
}

// frameExtra is what a frame of the peer link may have beside a client's frame.
const frameExtra = 64 << 10

// Start accepts the other nodes on a listener, which it takes over, and dials
// them. What this node says of itself and whom it takes for whom, the host
// decides (decisions 2).
func (l *Link) Start(host *replica.Host, id [16]byte, listener net.Listener) error {
	c := l.cfg.Transport
	c.Logger, c.Handler = l.cfg.Logger, &handler{l}
	c.Hello = transport.Hello{NodeID: l.self, ClusterID: id, Shards: uint16(host.Shards())}
	c.Current = func() transport.Hello {
		own := host.Self()
		return transport.Hello{Directory: own.Directory, StartCount: own.Starts, Run: own.Run, Suspect: own.Suspect}
	}
	c.Admit = func(h transport.Hello) error { return host.AdmitPeer(peerOf(&h)) }
	c.Outdated, c.Alive = host.Outdated, host.Alive
	c.MaxFrame = max(c.MaxFrame, l.cfg.MaxFrame+frameExtra)
	for _, n := range l.nodes {
		if NodeID(n.ReplicaID) != l.self {
			c.Peers = append(c.Peers, transport.Peer{
				NodeID: NodeID(n.ReplicaID), Name: n.Name, Address: netip.AddrPortFrom(n.IP, n.Ports.Replica).String(),
			})
		}
	}
	t, err := transport.New(c)
	if err != nil {
		return fmt.Errorf("peer link: %w", err)
	}
	l.host.Store(host)
	l.t.Store(t)
	t.Start(listener)
	return nil
}

// Serve has requests of other nodes answered; until then they are not taken.
func (l *Link) Serve(s Server) { l.server.Store(&s) }

// Close cuts all links and waits for their goroutines.
func (l *Link) Close() {
	if t := l.t.Load(); t != nil {
		t.Close()
	}
}

// Send implements replica.Transport.
func (l *Link) Send(to uint64, messages []replica.Message) {
	if t := l.t.Load(); t != nil {
		t.Send(to, messages)
	}
}

// Control implements replica.Controls.
func (l *Link) Control(to uint64, kind uint8, shard uint16, body []byte) bool {
	t := l.t.Load()
	return t != nil && t.Control(to, kind, shard, body)
}

// Received implements replica.Controls.
func (l *Link) Received(node uint64) uint64 {
	if t := l.t.Load(); t != nil {
		return t.Received(node)
	}
	return 0
}

// DialBulk implements replica.Bulk.
func (l *Link) DialBulk(ctx context.Context, to uint64) (net.Conn, error) {
	t := l.t.Load()
	if t == nil {
		return nil, transport.ErrNotSent
	}
	return t.DialBulk(ctx, to)
}

// Self is the id of this node.
func (l *Link) Self() uint64 { return l.self }

// Others are the ids of the other nodes, ascending.
func (l *Link) Others() []uint64 {
	ids := make([]uint64, 0, len(l.nodes))
	for _, n := range l.nodes {
		if id := NodeID(n.ReplicaID); id != l.self {
			ids = append(ids, id)
		}
	}
	return ids
}

// Up reports whether a link to a node is up; it always is to this one.
func (l *Link) Up(node uint64) bool {
	if node == l.self {
		return true
	}
	t := l.t.Load()
	return t != nil && t.Up(node)
}

// Alive reports whether a node has answered within the last election timeout; this one always has.
func (l *Link) Alive(node uint64) bool {
	if node == l.self {
		return true
	}
	h := l.host.Load()
	return h != nil && h.Alive(node)
}

// Starts is the start counter of a node as it said last; 0 = it never did.
func (l *Link) Starts(node uint64) uint64 {
	if t := l.t.Load(); t != nil {
		if h, ok := t.Known(node); ok {
			return h.StartCount
		}
	}
	return 0
}

// Call asks a node. done is called once, on another goroutine or before Call
// returns, and must not block; the request's body must not change before. Calls
// to one node arrive in the order in which they are made.
func (l *Link) Call(to uint64, r *Request, done func(*Reply, error)) {
	t := l.t.Load()
	if t == nil {
		done(nil, transport.ErrNotSent)
		return
	}
	t.Call(to, [][]byte{r.header(), r.Body}, func(b []byte, err error) {
		if err != nil {
			done(nil, err)
			return
		}
		var reply Reply
		if err := reply.decode(b); err != nil {
			// It was looked at, and what came of it cannot be read.
			done(nil, fmt.Errorf("%w: %w", transport.ErrLinkLost, err))
			return
		}
		done(&reply, nil)
	})
}

// Ask is Call that waits, at most as long as ctx allows; then the outcome is
// unknown (transport.ErrLinkLost). The body must not change even after Ask
// returned with that error.
func (l *Link) Ask(ctx context.Context, to uint64, r *Request) (*Reply, error) {
	if deadline, ok := ctx.Deadline(); ok {
		r.Wait = time.Until(deadline)
	}
	type outcome struct {
		reply *Reply
		err   error
	}
	ended := make(chan outcome, 1)
	l.Call(to, r, func(reply *Reply, err error) { ended <- outcome{reply, err} })
	select {
	case o := <-ended:
		return o.reply, o.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: no reply of node %d: %w", transport.ErrLinkLost, to, ctx.Err())
	}
}

// handler is what the transport talks to.
type handler struct{ *Link }

// Messages implements transport.Handler.
func (h *handler) Messages(from uint64, messages []replica.Message) {
	h.host.Load().Step(from, messages)
}

// Control implements transport.Handler.
func (h *handler) Control(from uint64, kind uint8, shard uint16, body []byte) {
	h.host.Load().Control(from, kind, shard, body)
}

// Call implements transport.Handler.
func (h *handler) Call(from uint64, b []byte, answer func(transport.Answer)) {
	server := h.server.Load()
	r := &Request{}
	if server == nil {
		answer(transport.Answer{Refused: true})
		return
	}
	if err := r.decode(b); err != nil {
		h.cfg.Logger.Warn("request of a node refused", "node", from, "error", err)
		answer(transport.Answer{Refused: true})
		return
	}
	(*server).Serve(from, r, func(reply *Reply) {
		if reply == nil {
			answer(transport.Answer{Refused: true})
			return
		}
		answer(transport.Answer{Bytes: reply.append(make([]byte, 0, replyHeader+len(reply.Payload))), Written: reply.Written})
	})
}

// Bulk implements transport.Handler.
func (h *handler) Bulk(ctx context.Context, from uint64, conn net.Conn) {
	h.host.Load().ServeBulk(ctx, from, conn)
}

// Connected implements transport.Handler.
func (h *handler) Connected(peer transport.Hello) {
	h.cfg.Logger.Info("peer link: accepted", "node", h.Name(peer.NodeID), "start", peer.StartCount)
	h.host.Load().Connected(peerOf(&peer))
}

func peerOf(h *transport.Hello) replica.Peer {
	return replica.Peer{Node: h.NodeID, Directory: h.Directory, Starts: h.StartCount, Run: h.Run, Suspect: h.Suspect, Shards: int(h.Shards)}
}

// Lost implements transport.Handler.
func (h *handler) Lost(node uint64) { h.host.Load().Lost(node) }

// Name of a node; empty when there is no such node.
func (l *Link) Name(node uint64) string {
	if node == 0 || node > uint64(len(l.nodes)) {
		return ""
	}
	return l.nodes[node-1].Name
}

// Find is the id of a node by its name, 0 = there is none.
func (l *Link) Find(name string) uint64 {
	for _, n := range l.nodes {
		if n.Name == name {
			return NodeID(n.ReplicaID)
		}
	}
	return 0
}

// Roster is what a client at an address is told of the nodes, in the order of
// their replica ids. leader is the node that leads the metadata, 0 = none is
// known. A node that cannot be reached from here is told so, except the leader:
// released clients look for a leader that is healthy (decisions 23).
func (l *Link) Roster(client netip.Addr, leader uint64) wire.Roster {
	r := wire.Roster{Name: l.cfg.Name, Nodes: make([]wire.Node, 0, len(l.nodes))}
	for _, n := range l.nodes {
		w := wire.Node{Name: n.Name, IP: n.HostFor(client), TCP: n.Ports.TCP, Role: wire.RoleFollower, Status: wire.StatusHealthy}
		switch id := NodeID(n.ReplicaID); {
		case id == leader:
			w.Role = wire.RoleLeader
		case !l.Alive(id):
			w.Status = wire.StatusUnreachable
		}
		r.Nodes = append(r.Nodes, w)
	}
	return r
}
