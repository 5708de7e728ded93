package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// router takes writes, polls and offsets of a partition to its primary over data
// links, while the session stays where it is (routing part D). On a server of one
// node there is nothing to route, and it does nothing.
type router struct {
	c              *Client
	h              *hooks
	on             atomic.Bool // the roster has more than one node
	noPrimaryPolls atomic.Bool // the servers do not know command 104
	topology       topology
	routes         routeTable
	pool           pool
	recoveries     recoveries
	lookups        chan struct{} // one per lookup in flight

	rosterMu sync.Mutex
	rosterAt time.Time // of the last time it was asked for

	ticketSem chan struct{} // held by whoever asks for a ticket
	ticketMu  sync.Mutex
	token     string
	tokenFor  int // the credentials it was given to
	tokenTill time.Time
}

func newRouter(c *Client) *router {
	r := &router{c: c, h: c.h, lookups: make(chan struct{}, maxLookups), ticketSem: make(chan struct{}, 1)}
	r.topology.r, r.topology.byName = r, make(map[string]*node)
	r.routes.r, r.routes.m = r, make(map[routeKey]*route)
	r.pool.r, r.pool.links = r, make(map[*link]struct{})
	r.recoveries.r, r.recoveries.m = r, make(map[*identity]*recovery)
	return r
}

// adopt takes what a new coordinator link brought.
func (r *router) adopt(l *link) {
	if r.c.o.NoRouting || l.roster == nil {
		return
	}
	if len(l.roster.Nodes) < 2 && !r.on.Load() {
		return
	}
	r.topology.set(l.roster)
	if !r.on.Swap(true) {
		r.c.run(r.janitor)
	}
}

// janitor closes idle links.
func (r *router) janitor() {
	tick := time.NewTicker(max(r.c.o.IdleTimeout/10, 10*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			r.pool.sweep(now)
		case <-r.c.ctx.Done():
			return
		}
	}
}

// coordinator is the session's link when it is usable and signed in.
func (r *router) coordinator() *link {
	if l := r.c.session.now.Load(); l != nil && l.usable() && l.session != 0 {
		return l
	}
	return nil
}

// leave has the links of a node closed that has another address now. Identities
// stay.
func (r *router) leave(n *node) {
	for _, s := range n.slots {
		if l := s.peek(); l != nil {
			r.c.run(func() { l.retire(drainGrace, errGone) })
		}
	}
}

// rosterPause is the least time between two questions for the roster.
const rosterPause = 5 * time.Second

// refresh asks for the roster in the background, after something did not fit what
// is known: a node could not be reached, or one was named that is not in it.
func (r *router) refresh() {
	parent := r.coordinator()
	if parent == nil {
		return // a new session reads it anyway
	}
	r.rosterMu.Lock()
	defer r.rosterMu.Unlock()
	if now := time.Now(); now.Sub(r.rosterAt) >= rosterPause {
		r.rosterAt = now
		r.checkParent(parent)
	}
}

// checkParent reads the roster over the session. When a node said that the session
// does not stand any more, this has its server end it if it is so.
func (r *router) checkParent(parent *link) {
	r.c.run(func() {
		ctx, cancel := context.WithTimeout(r.c.ctx, lookupTimeout)
		defer cancel()
		roster, err := askRoster(ctx, parent)
		if classifyErr(err) == reactReconnect {
			r.c.session.renew(parent, err)
		}
		if err == nil && len(roster.Nodes) > 0 {
			r.topology.set(roster)
		}
	})
}

// askRoster reads the roster on a link.
func askRoster(ctx context.Context, l *link) (*wire.Roster, error) {
	req := &wire.GetClusterMetadata{}
	got, err := l.roundTrip(ctx, call{op: wire.OpNonReplicated, code: req.Code()})
	if err != nil {
		return nil, err
	}
	payload, err := got.reply.Payload(got.body)
	if err != nil {
		return nil, err
	}
	roster := new(wire.Roster)
	if err := roster.Decode(payload); err != nil {
		return nil, err
	}
	return roster, nil
}

// ticket gives a token that signs data links in, or "" when there is none.
func (r *router) ticket(ctx context.Context) string {
	parent := r.coordinator()
	if t := r.knownTicket(); t != "" || parent == nil || !parent.caps.tickets {
		return t
	}
	select {
	case r.ticketSem <- struct{}{}:
		defer func() { <-r.ticketSem }()
	case <-ctx.Done():
		return ""
	}
	if t := r.knownTicket(); t != "" {
		return t
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	req := &wire.Ticket{}
	start := time.Now()
	got, err := parent.roundTrip(ctx, call{op: wire.OpNonReplicated, code: req.Code()})
	if err != nil {
		return ""
	}
	payload, err := got.reply.Payload(got.body)
	var reply wire.TicketReply
	if err != nil || reply.Decode(payload) != nil {
		return ""
	}
	r.ticketMu.Lock()
	defer r.ticketMu.Unlock()
	r.token, r.tokenFor = reply.Token, parent.wanted
	// Half of its time is left for the way and for the difference of clocks.
	r.tokenTill = start.Add(time.Duration(reply.Valid) * time.Microsecond / 2)
	return r.token
}

func (r *router) knownTicket() string {
	r.ticketMu.Lock()
	defer r.ticketMu.Unlock()
	if r.tokenFor != int(r.c.session.credsNow.Load()) || !time.Now().Before(r.tokenTill) {
		return ""
	}
	return r.token
}

func (r *router) dropTicket(token string) {
	r.ticketMu.Lock()
	defer r.ticketMu.Unlock()
	if r.token == token {
		r.token, r.tokenTill = "", time.Time{}
	}
}

// routedLinks gives a lane the link to its partition's primary; over the session
// where there is nothing to route. current and rest are called by the lane's
// goroutine only.
type routedLinks struct {
	r     *router
	ln    *lane
	class class

	route atomic.Pointer[route]
	rec   *recovery // carries an identity for the lane
}

// target is the route of the lane's partition.
func (x *routedLinks) target() *route {
	rt := x.route.Load()
	if rt == nil {
		k := &x.ln.key
		rt = x.r.routes.get(routeKey{k.stream, k.topic, k.created, k.partition}, x.ln.stream, x.ln.topic)
		x.route.Store(rt)
	}
	return rt
}

func (x *routedLinks) current(w want) (*link, changes, error) {
	if !x.r.on.Load() {
		l, changed, fault := x.r.c.session.current()
		return l, changes{changed}, fault
	}
	if x.r.c.ctx.Err() != nil {
		return nil, changes{}, ErrClosed
	}
	rt := x.target()
	n := rt.at.Load()
	var moved <-chan struct{}
	if n == nil || n.slots[x.class].down() {
		var fault error
		if n, moved, fault = rt.current(n != nil, w); n == nil {
			return nil, changes{moved}, fault
		}
	}
	s := n.slots[x.class]
	var l *link
	var changed <-chan struct{}
	var fault error
	if w.carry != nil && s.identity() != w.carry {
		x.rec, l, changed, fault = x.r.recoveries.carry(w.carry, n, x.ln)
	} else {
		x.leave()
		l, changed, fault = s.current(rt.need.Load())
	}
	switch {
	case l != nil && w.carry != nil && l.ident != w.carry:
		return x.current(w) // the identity has just left the slot
	case l != nil || fault != nil:
		return l, changes{changed}, fault
	}
	if moved == nil {
		rt.mu.Lock()
		at := rt.core.node
		moved = rt.changed
		rt.mu.Unlock()
		if at != n {
			return x.current(w)
		}
	}
	return nil, changes{changed, moved}, nil
}

// rest: the lane is idle. A route that was pushed out of the table served its turn.
func (x *routedLinks) rest() {
	x.leave()
	if rt := x.route.Load(); rt != nil && rt.evicted.Load() {
		x.route.Store(nil)
	}
}

// leave: no identity has to be carried.
func (x *routedLinks) leave() {
	if x.rec != nil {
		x.r.recoveries.drop(x.rec, x.ln)
		x.rec = nil
	}
}

func (x *routedLinks) renew(l *link, cause error) {
	switch {
	case l.node == nil:
		x.r.c.session.renew(l, cause)
	case x.class == classRead:
		// What it was attached to is gone, or the node does not know it any more.
		l.node.slots[classRead].reattach(l)
	default:
		l.fail("session lost", cause)
	}
}

func (x *routedLinks) refused(l *link) {
	if rt := x.route.Load(); rt != nil && l.node != nil {
		rt.update(func(k *routeCore, now time.Time) { k.refused(l.node, now) })
	}
}

func (x *routedLinks) admitted(l *link) {
	if rt := x.route.Load(); rt != nil && l.node != nil && (!rt.sure.Load() || rt.at.Load() != l.node) {
		rt.update(func(k *routeCore, now time.Time) { k.admitted(l.node, now) })
	}
}

// missing: the node may lag behind the metadata. It is asked to catch up with all
// that the session has seen.
func (x *routedLinks) missing(l *link) {
	if rt := x.route.Load(); rt != nil && l.node != nil {
		raise(&rt.need, x.r.c.session.watermark.Load())
		rt.update(func(k *routeCore, now time.Time) { k.refused(l.node, now) })
	}
}

// suspect: a write has been unanswered for a while. When another node leads by
// now, the old one's link goes: what is in flight on it is to be found out about
// at the new one.
func (x *routedLinks) suspect(l *link) {
	rt := x.route.Load()
	if rt == nil || l.node == nil {
		return
	}
	x.r.c.run(func() {
		if rt.at.Load() == l.node {
			rt.lookup(0)
		}
		if n := rt.at.Load(); n != nil && n != l.node {
			l.retire(drainGrace, errMoved)
		}
	})
}

func (x *routedLinks) hint(l *link, route *wire.Route) {
	rt := x.route.Load()
	if rt == nil || l.node == nil {
		return
	}
	n := x.r.topology.note(&route.Primary)
	rt.update(func(k *routeCore, now time.Time) { k.hint(n, sourcePeer, now, now) })
}
