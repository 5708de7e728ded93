package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/internal/replica"
)

// Answer ends a call.
type Answer struct {
	Bytes   []byte // must not change until Written
	Refused bool   // the call was not looked at; there are no bytes
	Written func() // called once when the bytes are written or given up; nil = nobody has to know
}

// Handler takes what peers send. Its methods are called on the goroutine that reads from that peer: in order for one peer,
// concurrently for different ones. They must not block for long, since everything behind waits.
type Handler interface {
	// Messages takes raft messages. The slice is only valid during the call, the messages belong to the receiver.
	Messages(from uint64, messages []replica.Message)
	// Control takes a control frame; body is only valid during the call.
	Control(from uint64, kind uint8, shard uint16, body []byte)
	// Call takes a request that a peer forwards. request belongs to the receiver. answer must be called once, from any
	// goroutine.
	Call(from uint64, request []byte, answer func(Answer))
	// Bulk serves a connection for copying; it returns when the connection is done with, which the transport then closes.
	Bulk(ctx context.Context, from uint64, conn net.Conn)
	// Connected says that a link from a peer came up, before its first frame and after the last one of its link before.
	Connected(peer Hello)
	// Lost says that messages to a node were or may have been lost.
	Lost(node uint64)
}

// Peer is another node of the cluster.
type Peer struct {
	NodeID  uint64
	Name    string
	Address string // host:port of its peer link
}

// Config is the configuration of a Transport. Fields without a word on zero must be set.
type Config struct {
	Hello Hello // who this node is; nonce and purpose are filled in
	// Current says it anew for each connection, since what a node says of its directory can change. nil = Hello.
	Current func() Hello
	// Admit decides whether a proven node is the one that is known under its id, before anything else of it is looked at. An
	// error refuses it; one that wraps replica.ErrOutdated tells it that its directory is not the newest that was seen of it.
	// nil = an older start of the same directory is refused.
	Admit func(peer Hello) error
	// Outdated is called when another node refused this one for its directory. nil = nothing is done.
	Outdated func(directory [16]byte) error
	// Alive reports whether a node is certain to run. A second process that presents itself under the same node id meanwhile
	// is refused. nil = nobody is.
	Alive   func(node uint64) bool
	Peers   []Peer
	Handler Handler
	Logger  *slog.Logger

	Secret         []byte // empty = peers are not authenticated
	PreviousSecret []byte // also accepted, while secrets are rotated
	// ServerTLS and ClientTLS encrypt the links. nil = plain TCP.
	ServerTLS, ClientTLS *tls.Config
	// Dial makes connections. nil = TCP without delay.
	Dial func(ctx context.Context, address string) (net.Conn, error)

	QueueBytes       int64         // what may wait for a peer; 0 = 64 MiB
	MaxFrame         int           // largest frame that is accepted; 0 = 256 MiB + 64 KiB
	HandshakeTimeout time.Duration // 0 = 10 s
	DialTimeout      time.Duration // 0 = 2 s
	// SilentTimeout is how long written bytes may stay unacknowledged before the link counts as dead. 0 = 1 s
	SilentTimeout time.Duration
	// RedialMin and RedialMax bound the pause between two dials of a peer. 0 = 50 ms and 1 s.
	RedialMin, RedialMax time.Duration
}

func (c *Config) setDefaults() {
	setDefault(&c.QueueBytes, 64<<20)
	setDefault(&c.MaxFrame, 256<<20+64<<10)
	setDefault(&c.HandshakeTimeout, 10*time.Second)
	setDefault(&c.DialTimeout, 2*time.Second)
	setDefault(&c.SilentTimeout, time.Second)
	setDefault(&c.RedialMin, 50*time.Millisecond)
	setDefault(&c.RedialMax, time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Dial == nil {
		c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Errors of calls.
var (
	// ErrNotSent says that a call never left this node.
	ErrNotSent = errors.New("transport: not sent")
	// ErrLinkLost says that the link broke after the call may have left: the other node may have acted on it.
	ErrLinkLost = errors.New("transport: the peer link was lost")
	// ErrNotTaken says that the other node did not look at the call.
	ErrNotTaken = errors.New("transport: not taken by the peer")
)

// Transport is this node's end of the links to all peers. It implements replica.Transport.
type Transport struct {
	cfg   Config
	hello Hello
	peers map[uint64]*peer

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	incoming map[net.Conn]struct{}
	known    map[uint64]Hello // newest hello of each node
	serving  map[uint64]*incoming
	received map[uint64]*atomic.Uint64 // by peer, never changed

	strangers strangers
	refusals  refusals
}

var (
	_ replica.Transport = (*Transport)(nil)
	_ replica.Controls  = (*Transport)(nil)
)

// New makes a transport that neither listens nor dials; Start does.
func New(cfg Config) (*Transport, error) {
	cfg.setDefaults()
	if cfg.Handler == nil || cfg.Hello.NodeID == 0 {
		return nil, errors.New("transport: the handler and this node's id must be set")
	}
	t := &Transport{
		cfg: cfg, hello: cfg.Hello, peers: map[uint64]*peer{}, incoming: map[net.Conn]struct{}{}, known: map[uint64]Hello{},
		serving: map[uint64]*incoming{}, received: map[uint64]*atomic.Uint64{},
	}
	t.hello.Version = Version
	for _, p := range cfg.Peers {
		if p.NodeID == 0 || p.NodeID == cfg.Hello.NodeID || t.peers[p.NodeID] != nil {
			return nil, fmt.Errorf("transport: node id %d of peer %q is zero, this node's own, or taken twice", p.NodeID, p.Name)
		}
		t.peers[p.NodeID] = newPeer(t, p)
		t.received[p.NodeID] = new(atomic.Uint64)
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t, nil
}

// Start accepts links on the listener, which it owns from now on, and dials every peer until Close.
func (t *Transport) Start(listener net.Listener) {
	t.wg.Go(func() { t.accept(listener) })
	for _, p := range t.peers {
		t.wg.Go(p.run)
	}
	t.wg.Go(func() {
		<-t.ctx.Done()
		_ = listener.Close() // nothing is lost by it
		t.mu.Lock()
		defer t.mu.Unlock()
		for conn := range t.incoming {
			_ = conn.Close()
		}
	})
}

// Close cuts all links and waits until nothing runs any more. Calls without an answer end with ErrLinkLost or ErrNotSent.
func (t *Transport) Close() {
	t.cancel()
	t.wg.Wait()
	for _, p := range t.peers {
		p.drop()
	}
}

// Send queues raft messages for a node (replica.Transport).
func (t *Transport) Send(to uint64, messages []replica.Message) {
	p := t.peers[to]
	if p == nil {
		return
	}
	if !p.send(messages) {
		t.cfg.Handler.Lost(to)
	}
}

// Control queues a control frame for a node; body is copied. It reports false when no link is up, in which case the frame
// is dropped: what control frames say is said again.
func (t *Transport) Control(to uint64, kind uint8, shard uint16, body []byte) bool {
	p := t.peers[to]
	return p != nil && p.control(kind, shard, body)
}

// Received grows while a large frame of a node arrives (replica.Controls): nothing behind it can be here yet, so the node's
// silence means nothing.
func (t *Transport) Received(node uint64) uint64 {
	if n := t.received[node]; n != nil {
		return n.Load()
	}
	return 0
}

// Call sends a request to a node. pieces must not change until done was called. done is called once, on another goroutine
// or before Call returns, and must not block; an error wraps ErrNotSent, ErrLinkLost or ErrNotTaken. Calls to one node
// arrive there in the order in which they were made.
func (t *Transport) Call(to uint64, pieces [][]byte, done func(reply []byte, err error)) {
	p := t.peers[to]
	if p == nil {
		done(nil, fmt.Errorf("%w: node %d is not a peer", ErrNotSent, to))
		return
	}
	p.call(pieces, done)
}

// DialBulk opens a connection for copying to a node.
func (t *Transport) DialBulk(ctx context.Context, to uint64) (net.Conn, error) {
	p := t.peers[to]
	if p == nil {
		return nil, fmt.Errorf("transport: node %d is not a peer", to)
	}
	conn, _, err := p.dial(ctx, Bulk)
	return conn, err
}

// Up reports whether a link to the node is up.
func (t *Transport) Up(node uint64) bool {
	p := t.peers[node]
	return p != nil && p.up()
}

// Known gives the newest hello of a node, as far as it ever connected.
func (t *Transport) Known(node uint64) (Hello, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, ok := t.known[node]
	return h, ok
}

// own is what this node says of itself now.
func (t *Transport) own() Hello {
	h := t.hello
	if t.cfg.Current != nil {
		now := t.cfg.Current()
		h.Directory, h.StartCount, h.Run, h.Suspect = now.Directory, now.StartCount, now.Run, now.Suspect
	}
	return h
}

// unique refuses a second process under the id of a node that is here and alive.
func (t *Transport) unique(peer *Hello) error {
	t.mu.Lock()
	link := t.serving[peer.NodeID]
	other := link != nil && link.run != peer.Run
	t.mu.Unlock()
	if other && t.cfg.Alive != nil && t.cfg.Alive(peer.NodeID) {
		return &RefusedError{Reason: ReasonIdentity, Text: fmt.Sprintf("a second process presents itself as node %d, which is connected and alive: give each node its own --replica-id", peer.NodeID)}
	}
	return nil
}

// admit has it decided whether a proven peer is the node that is known under its id.
func (t *Transport) admit(peer *Hello) error {
	if t.cfg.Admit == nil {
		return nil
	}
	switch err := t.cfg.Admit(*peer); {
	case errors.Is(err, replica.ErrOutdated):
		return &RefusedError{Reason: ReasonOutdated, Text: err.Error()}
	case err != nil:
		return &RefusedError{Reason: ReasonIdentity, Text: err.Error()}
	}
	return nil
}

// remember notes a peer that is admitted; an older start of its directory is refused here when nobody else decides.
func (t *Transport) remember(peer *Hello) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, seen := t.known[peer.NodeID]
	if t.cfg.Admit == nil && seen && before.Directory == peer.Directory && peer.StartCount < before.StartCount {
		return &RefusedError{Reason: ReasonIdentity, Text: fmt.Sprintf("node %d presents start %d of its directory after start %d was seen: an old copy or a second process",
			peer.NodeID, peer.StartCount, before.StartCount)}
	}
	t.known[peer.NodeID] = *peer
	return nil
}
