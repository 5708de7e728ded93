package broker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/internal/cluster"
	"github.com/whippetmq/whippet/wire"
)

// Peers are the other nodes of the cluster; cluster.Link implements it.
type Peers interface {
	// Self is this node's id.
	Self() uint64
	// Others are the ids of the other nodes.
	Others() []uint64
	// Up reports whether a link to a node is up.
	Up(node uint64) bool
	// Alive reports whether a node has answered within the last election timeout.
	Alive(node uint64) bool
	// Starts is the start counter that a node said last, 0 = none.
	Starts(node uint64) uint64
	// Name of a node; empty when there is none.
	Name(node uint64) string
	// Find is the id of the node of a name, 0 = there is none.
	Find(name string) uint64
	// Call asks a node; done is called once and must not block.
	Call(to uint64, r *cluster.Request, done func(*cluster.Reply, error))
	// Ask is Call that waits.
	Ask(ctx context.Context, to uint64, r *cluster.Request) (*cluster.Reply, error)
}

const (
	// holdWait is how long a request waits for a primary, by default (routing.md D.13).
	holdWait = 5 * time.Second
	// callGrace is what a call to another node gets beyond the time that the other node has for it.
	callGrace = 200 * time.Millisecond
	// movedGrace is how old a call must be before a change of primaries counts against it: a node that hands over answers
	// what it held meanwhile.
	movedGrace = time.Second
	// pace is how often requests that wait for a primary look for one.
	pace = 10 * time.Millisecond
	// heldBytes and heldRequests bound what waits for a primary or is on its way to one, on the whole node.
	heldBytes    = 256 << 20
	heldRequests = 1 << 16
	// aloneID is the id of a node on its own.
	aloneID = 1
)

// Counters count what a node does for others and for clients that cannot route,
// since its start.
type Counters struct {
	// Forwarded by how it ended: done, refused (not admitted there), failed (another status), unknown.
	Forwarded, ForwardRefused, ForwardFailed, ForwardUnknown atomic.Uint64
	// Served requests of other nodes, and those that were not taken for want of room.
	Served, NotTaken atomic.Uint64
	// CameBack counts sends that were not admitted where they were and went on from here.
	CameBack atomic.Uint64
	// HoldFull counts sends refused because too much waited already.
	HoldFull atomic.Uint64
}

// Counters of this node.
func (b *Broker) Counters() *Counters { return &b.counters }

// Idle reports whether nothing waits for a primary or is on its way to one.
func (b *Broker) Idle() bool { return b.held.requests.Load() == 0 && b.held.bytes.Load() == 0 }

// clustered reports whether there are other nodes.
func (b *Broker) clustered() bool { return b.cfg.Peers != nil }

func (b *Broker) self() uint64 {
	if b.cfg.Peers == nil {
		return aloneID
	}
	return b.cfg.Peers.Self()
}

// since is the time since the broker's start.
func (b *Broker) since() time.Duration { return time.Since(b.started) }

// holds reports whether the connection's writes go to other nodes: it cannot
// route them itself (routing.md D.13).
func (c *conn) holds() bool { return c.b.clustered() && c.b.cfg.Forwarding && !c.link && !c.hop }

// held are the books of what waits for a primary or is on its way to one.
type held struct {
	bytes, requests atomic.Int64
	full            *atomic.Uint64
}

// take enters a request; false = there is no room.
func (h *held) take(bytes int) bool {
	requests, all := h.requests.Add(1), h.bytes.Add(int64(bytes))
	if requests <= heldRequests && all <= heldBytes {
		return true
	}
	h.give(bytes)
	h.full.Add(1)
	return false
}

func (h *held) give(bytes int) {
	h.requests.Add(-1)
	h.bytes.Add(-int64(bytes))
}

// pacer looks after lanes in which something waits: one goroutine for all of
// them, asleep while there are none.
type pacer struct {
	mu    sync.Mutex
	lanes map[*lane]struct{}
	wake  chan struct{} // capacity 1
}

// add is called with the lane's mutex held.
func (p *pacer) add(l *lane) {
	p.mu.Lock()
	p.lanes[l] = struct{}{}
	first := len(p.lanes) == 1
	p.mu.Unlock()
	if first {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

// run is the goroutine.
func (p *pacer) run(b *Broker) {
	defer b.wg.Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-p.wake:
		case <-timer.C:
		}
		p.mu.Lock()
		lanes := p.lanes
		p.lanes = make(map[*lane]struct{}, len(lanes))
		p.mu.Unlock()
		again := false
		now := b.since()
		for l := range lanes {
			if l.tick(now) {
				p.mu.Lock()
				p.lanes[l] = struct{}{}
				p.mu.Unlock()
				again = true
			}
		}
		if again {
			timer.Reset(pace)
		}
	}
}

// callCode turns the outcome of a call into the code that a client gets: 0 and
// the reply, or the reply's refusal; not sent and not taken are 58, a lost link 57.
func callCode(reply *cluster.Reply, err error) wire.ErrorCode {
	switch {
	case err == nil:
		return reply.Status
	case isNotSent(err):
		return wire.ErrTransientNotAccepted
	}
	return wire.ErrTransientNotCommitted
}
