package client

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// Bounds and times of the router (routing D.3, D.4).
const (
	maxLookups    = 16
	lookupTimeout = 2 * time.Second
	// suspectAfter is how long a write may be unanswered before its route is looked
	// up: longer than a healthy commit, shorter than an election.
	suspectAfter = time.Second
)

// routeKey names a partition. Streams and topics are numeric where they are known,
// and created tells a topic from an earlier one with the same numbers.
type routeKey struct {
	stream, topic wire.Identifier
	created       uint64
	partition     uint32
}

// routeTable holds the routes, the newest use first. One that is pushed out serves
// those who hold it until they rest, so that everybody gets somewhere however small
// the table is.
type routeTable struct {
	r  *router
	mu sync.Mutex
	m  map[routeKey]*route
	ll list.List
}

// get finds or makes a route. stream and topic are the spelling to ask with.
func (t *routeTable) get(key routeKey, stream, topic wire.Identifier) *route {
	t.mu.Lock()
	defer t.mu.Unlock()
	if rt := t.m[key]; rt != nil {
		t.ll.MoveToFront(rt.elem)
		return rt
	}
	rt := &route{r: t.r, key: key, stream: stream, topic: topic, changed: make(chan struct{})}
	// The topic may have been made a moment ago, by this client: a node must have
	// applied that before it is sent to.
	rt.need.Store(t.r.c.session.watermark.Load())
	rt.elem = t.ll.PushFront(rt)
	t.m[key] = rt
	for t.ll.Len() > t.r.c.o.MaxRoutes {
		old := t.ll.Remove(t.ll.Back()).(*route)
		delete(t.m, old.key)
		old.evicted.Store(true)
	}
	return rt
}

// len is the number of routes.
func (t *routeTable) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.m)
}

// route drives a routeCore: it owns its lock, its clock and, while somebody waits
// for an answer, a goroutine that looks it up.
type route struct {
	r             *router
	key           routeKey
	stream, topic wire.Identifier
	elem          *list.Element
	need          atomic.Uint64 // the metadata position its nodes must have applied
	at            atomic.Pointer[node]
	sure          atomic.Bool // at was confirmed
	evicted       atomic.Bool

	mu      sync.Mutex
	core    routeCore
	changed chan struct{}
	running bool
	until   time.Time // somebody waits for an answer till then
	unknown time.Time // since when nothing is confirmed, for the hook
}

// update runs a transition and tells who waits when it changed the node.
func (rt *route) update(f func(k *routeCore, now time.Time)) {
	rt.mu.Lock()
	rt.updateLocked(f)
	rt.mu.Unlock()
}

func (rt *route) updateLocked(f func(k *routeCore, now time.Time)) {
	now := time.Now()
	before, fault := rt.core.node, rt.core.faultAt
	f(&rt.core, now)
	switch {
	case rt.core.confirmed && !rt.sure.Load():
		if !rt.unknown.IsZero() {
			rt.r.h.onRouteConfirm(now.Sub(rt.unknown))
		}
		rt.unknown = time.Time{}
	case !rt.core.confirmed && rt.unknown.IsZero():
		rt.unknown = now
	}
	rt.sure.Store(rt.core.confirmed)
	if rt.core.node != before || rt.core.faultAt != fault {
		rt.at.Store(rt.core.node)
		close(rt.changed)
		rt.changed = make(chan struct{})
	}
}

// current gives the node, or nil, and when that changes. When there is none, or it
// cannot be reached (down), the route is looked up until the given time.
func (rt *route) current(down bool, w want) (*node, <-chan struct{}, error) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.updateLocked(func(k *routeCore, now time.Time) {
		if down && k.node != nil && k.node.lostAt() > k.learned.UnixNano() {
			k.unreachable(k.node)
		}
		k.probe(rt.r.topology.candidates(k.probing), now)
	})
	n := rt.core.node
	if n != nil && !down {
		return n, rt.changed, nil
	}
	if err := rt.core.faultFor(w.since); err != nil && !w.since.IsZero() {
		return nil, rt.changed, err
	}
	rt.until = later(rt.until, w.deadline)
	if !rt.running {
		rt.running = rt.r.c.run(rt.resolve)
	}
	return n, rt.changed, nil
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// resolve looks the route up until there is a node that can be reached, or nobody
// waits any more.
func (rt *route) resolve() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for attempt := 0; ; attempt++ {
		rt.mu.Lock()
		now := time.Now()
		down := rt.core.node != nil && rt.core.node.down()
		lookup, until := rt.core.step(down, now)
		if probe := rt.core.probing && !lookup && until.IsZero(); probe && rt.core.node == nil {
			// A new round of probing starts with whoever waits.
			close(rt.changed)
			rt.changed = make(chan struct{})
		}
		if !lookup && until.IsZero() || now.After(rt.until) || rt.r.c.ctx.Err() != nil {
			rt.running = false
			rt.mu.Unlock()
			return
		}
		changed := rt.changed
		rt.mu.Unlock()
		if lookup {
			rt.lookup(attempt)
			continue
		}
		timer.Reset(time.Until(until))
		select {
		case <-timer.C:
		case <-changed:
		case <-rt.r.c.ctx.Done():
		}
	}
}

var errBehind = errors.New("the node may be behind the session")

// lookup asks once. Every second time somebody else than the coordinator is asked,
// whose replica may be the one that is behind.
func (rt *route) lookup(attempt int) {
	select {
	case rt.r.lookups <- struct{}{}:
		defer func() { <-rt.r.lookups }()
	case <-rt.r.c.ctx.Done():
		return
	}
	asked := time.Now()
	var l *link
	src := sourceCoordinator
	if attempt%2 == 0 {
		l = rt.r.coordinator()
	}
	if l == nil {
		if l = rt.other(attempt); l != nil {
			src = sourcePeer
		} else {
			l = rt.r.coordinator()
		}
	}
	if l == nil {
		rt.update(func(k *routeCore, now time.Time) { k.fails = max(k.fails, 1); k.failed(now) })
		return
	}
	n, err := rt.ask(l, src)
	if classify(codeOf(err)) == reactRefresh && src == sourcePeer && l.attachedPos.Load() < rt.need.Load() {
		err = errBehind // it need not know the topic yet
	}
	doubt := false
	rt.update(func(k *routeCore, now time.Time) {
		switch code := codeOf(err); {
		case err == nil:
			doubt = k.hint(n, src, asked, now)
		case code != 0:
			k.refusedLookup(code, now)
		default:
			k.failed(now)
		}
	})
	if codeOf(err) != 0 && classify(codeOf(err)) == reactRefresh {
		rt.r.c.topics.invalidate(rt.stream, rt.topic)
	}
	if !doubt {
		return
	}
	// The node that refused knows best. Its write link may have a fence that must
	// not be lifted behind the lane's back; there the lane itself asks.
	l = n.slots[classRead].peek()
	if l == nil {
		if l = n.slots[classWrite].peek(); l == nil || l.caps.fence {
			return
		}
	}
	if m, err := rt.ask(l, sourcePeer); err == nil {
		rt.update(func(k *routeCore, now time.Time) { k.hint(m, sourcePeer, now, now) })
	}
}

// other is a link to ask instead of the coordinator's: of a node in turn, and none
// that may carry writes of this partition behind a fence.
func (rt *route) other(turn int) *link {
	rt.mu.Lock()
	avoid := [2]*node{rt.core.node, rt.core.refusedBy}
	rt.mu.Unlock()
	nodes := rt.r.topology.nodes()
	for i := range nodes {
		n := nodes[(i+turn/2)%len(nodes)]
		if l := n.slots[classRead].peek(); l != nil {
			return l
		}
		if n == avoid[0] || n == avoid[1] {
			continue
		}
		if l := n.slots[classWrite].peek(); l != nil {
			return l
		}
	}
	return nil
}

// ask asks 103 on a link.
func (rt *route) ask(l *link, src source) (n *node, err error) {
	start := time.Now()
	defer func() { rt.r.h.onLookup(src.String(), resultOf(err), time.Since(start)) }()
	ctx, cancel := context.WithTimeout(rt.r.c.ctx, lookupTimeout)
	defer cancel()
	req := routingQuery(rt.stream, rt.topic, rt.key.partition)
	got, err := l.roundTrip(ctx, call{op: wire.OpNonReplicated, code: req.Code(), meta: req.Append(nil)})
	if err != nil {
		return nil, err
	}
	payload, err := got.reply.Payload(got.body)
	if err != nil {
		return nil, err
	}
	var route wire.Route
	if err := route.Decode(payload); err != nil {
		return nil, wire.ErrInvalidCommand // as good as a server without the command
	}
	return rt.r.topology.note(&route.Primary), nil
}

// resultOf names an outcome for the hooks.
func resultOf(err error) string {
	switch code := codeOf(err); {
	case err == nil:
		return "ok"
	case code == 0:
		return "lost"
	case classify(code) == reactRetry, classify(code) == reactUnknown:
		return "not_now"
	case classify(code) == reactRefresh:
		return "not_found"
	case code == wire.ErrUnauthorized:
		return "unauthorized"
	}
	return "error"
}
