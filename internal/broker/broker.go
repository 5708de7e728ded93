package broker

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/internal/clock"
	"github.com/whippetmq/whippet/internal/credential"
	"github.com/whippetmq/whippet/internal/metadata"
	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/wire"
)

// Waits of requests.
const (
	// readWait bounds the wait of a read for the connection's metadata position (framing §6.1).
	readWait = 3 * time.Second
	// partitionWait bounds the wait for a partition that is being started.
	partitionWait = 3 * time.Second
	// pollWait is the same for a poll, which then is empty.
	pollWait = time.Second
	// queueWait is how long a full queue holds a connection back before 58 (decisions 16).
	queueWait = 5 * time.Second
	// commitWait bounds a sign-in or logout.
	commitWait = 5 * time.Second
	// loginWait bounds the password check of a sign-in.
	loginWait = 10 * time.Second
)

// Config of a Broker. Everything without a word on zero must be set.
type Config struct {
	Metadata      *metadata.Machine
	MetadataGroup *replica.Group
	Partitions    *Partitions
	Hasher        *credential.Hasher
	Clock         clock.Clock
	Logger        *slog.Logger // nil = nothing is logged

	Replica   uint8
	ClusterID wire.U128
	NodeName  string
	// Roster is what a client at an address is told of the nodes; the first one is this node on a node of its own.
	Roster func(client netip.Addr) wire.Roster
	// StartCounter of node.meta, for the status of the cluster.
	StartCounter uint64
	// Version of the server that clients are told, 1 to 255 bytes.
	Version string
	// DataDir is whose disk the statistics describe.
	DataDir string
	// MaxFrame is the frame limit, header included; 0 = 64 MiB.
	MaxFrame int
	// Peers are the other nodes; nil on a node of its own.
	Peers Peers
	// Forwarding has writes of clients that cannot route passed on to the node that leads (cluster.forwarding). Sign-in and logout always are.
	Forwarding bool
	// Hold is how long a request waits here for a node that leads; 0 = 5 s.
	Hold time.Duration
	// Heartbeat is the interval in which clients are expected to be heard of; 0 = nobody is evicted for silence.
	Heartbeat time.Duration
}

// Broker serves the requests of all connections of a node. Its methods may be
// called from any goroutine.
type Broker struct {
	cfg     Config
	started time.Time
	stats   statistics

	counters Counters
	held     held
	serving  serving
	pacer    pacer
	leaving  leaving
	polls    *pollRoom

	ctx    context.Context // ends with Close; parent of every wait
	cancel context.CancelFunc
	wg     sync.WaitGroup // lanes that wait, and the heartbeat watch

	sends, offsets sync.Pool // free lists

	nextID atomic.Uint32
	mu     sync.RWMutex
	conns  map[uint32]*conn
	closed bool // no goroutine is started any more
}

// New makes a broker and starts its watch over silent clients.
func New(cfg Config) *Broker {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Hold <= 0 {
		cfg.Hold = holdWait
	}
	if cfg.MaxFrame <= 0 {
		cfg.MaxFrame = wire.DefaultMaxFrame
	}
	b := &Broker{cfg: cfg, started: time.Now(), conns: map[uint32]*conn{}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.held.full = &b.counters.HoldFull
	b.pacer = pacer{lanes: map[*lane]struct{}{}, wake: make(chan struct{}, 1)}
	b.leaving = newLeaving()
	b.polls = newPollRoom()
	b.wg.Add(1)
	go b.pacer.run(b)
	if cfg.Heartbeat > 0 {
		b.wg.Add(1)
		go b.watch()
	}
	return b
}

// Close ends every wait and waits for the broker's goroutines. Gateways are closed before.
func (b *Broker) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.leaving.wait(leaveWait)
	b.cancel()
	b.wg.Wait()
}

// leaveWait is how long Close waits for the logouts of closed connections.
const leaveWait = time.Second

// spawn runs f on a goroutine that Close waits for; false = the broker closes.
func (b *Broker) spawn(f func()) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.closed {
		return false
	}
	b.wg.Add(1)
	go func() {
		defer b.wg.Done()
		f()
	}()
	return true
}

// Connect implements Handler.
func (b *Broker) Connect(p Peer, s Sink) Conn {
	c := &conn{b: b, peer: p, sink: s, id: b.nextID.Add(1)}
	c.ctx, c.cancel = context.WithCancel(b.ctx)
	c.seen.Store(int64(time.Since(b.started)))
	b.mu.Lock()
	b.conns[c.id] = c
	b.mu.Unlock()
	return c
}

func (b *Broker) disconnect(c *conn) {
	b.mu.Lock()
	delete(b.conns, c.id)
	b.mu.Unlock()
}

// connections lists the connections by id.
func (b *Broker) connections() []*conn {
	b.mu.RLock()
	list := make([]*conn, 0, len(b.conns))
	for _, c := range b.conns {
		list = append(list, c)
	}
	b.mu.RUnlock()
	slices.SortFunc(list, func(x, y *conn) int { return int(int64(x.id) - int64(y.id)) })
	return list
}

// ConnectionCount is the number of connections.
func (b *Broker) ConnectionCount() int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return len(b.conns)
}

// position is the metadata position that replies carry (framing §1.3).
func (b *Broker) position() uint64 { return b.cfg.Metadata.Applied() }

// submit hands a request to a group: at once when there is room, else within
// queueWait. The error is a status; the request was not taken then.
func (b *Broker) submit(ctx context.Context, g *replica.Group, r replica.Request) error {
	return b.submitted(ctx, g, r, g.TrySubmit(r))
}

// submitHere is submit on a connection's goroutine that holds no lock and has
// nothing else to do: the outcome may be there when it returns.
func (c *conn) submitHere(ctx context.Context, g *replica.Group, r replica.Request) error {
	c.sink.Hold(true)
	err := g.TrySubmitHere(r)
	if errors.Is(err, replica.ErrBusy) {
		c.sink.Hold(false)
	}
	return c.b.submitted(ctx, g, r, err)
}

// submitted goes on after a first attempt that did not wait.
func (b *Broker) submitted(ctx context.Context, g *replica.Group, r replica.Request, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, replica.ErrBusy) {
		ctx, cancel := context.WithTimeout(ctx, queueWait)
		defer cancel()
		err = g.Submit(ctx, r)
	}
	if code := statusOfSubmit(err); code != 0 {
		return code
	}
	return nil
}

// statusOfSubmit is the status of a request that was not taken.
func statusOfSubmit(err error) wire.ErrorCode {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, replica.ErrDiskFull):
		return wire.ErrCannotAppendMessage
	case errors.Is(err, replica.ErrTooLarge):
		return wire.ErrInvalidCommand
	}
	// Never taken, whatever the reason.
	return wire.ErrTransientNotAccepted
}

// watch evicts members of consumer groups that fell silent (framing §4.7): four
// looks per interval, so between 1.2 and 1.5 times the interval (observed 16).
func (b *Broker) watch() {
	defer b.wg.Done()
	t := time.NewTicker(max(time.Millisecond, b.cfg.Heartbeat/4))
	defer t.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-t.C:
		}
		cat := b.cfg.Metadata.Catalog()
		if cat.GroupCount() == 0 {
			continue
		}
		limit := int64(time.Since(b.started)) - int64(b.cfg.Heartbeat)*6/5
		for _, c := range b.connections() {
			if bound := c.bound.Load(); bound != nil && c.seen.Load() < limit && isMember(cat, bound.client) {
				c.evictSilent(bound)
			}
		}
	}
}

// isMember reports whether a client is a member of any group.
func isMember(cat *metadata.Catalog, client wire.U128) bool {
	for range memberships(cat, client) {
		return true
	}
	return false
}

// memberships walks the groups that a client is a member of.
func memberships(cat *metadata.Catalog, client wire.U128) func(func(wire.Membership) bool) {
	return func(yield func(wire.Membership) bool) {
		for s := range cat.Streams() {
			for t := range s.Topics() {
				for _, g := range t.Groups() {
					for _, m := range g.Members {
						if m != nil && m.Client == client && !yield(wire.Membership{StreamID: s.ID, TopicID: t.ID, GroupID: g.ID}) {
							return
						}
					}
				}
			}
		}
	}
}
