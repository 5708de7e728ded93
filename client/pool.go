package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// Times of data links (routing D.4).
const (
	dataDialTimeout = 2 * time.Second
	firstRedial     = 50 * time.Millisecond
	maxRedial       = 2 * time.Second
	// drainGrace is how long the answers to what is in flight are waited for before
	// a link is closed that has to go.
	drainGrace = 250 * time.Millisecond
	// poolTurn is the least time a busy link is left open when others wait for its
	// place.
	poolTurn = 50 * time.Millisecond
)

var (
	errIdle  = errors.New("idle")
	errPool  = errors.New("its place is needed")
	errMoved = errors.New("its identity is needed elsewhere")
	errGone  = errors.New("the node has another address")
)

// pool bounds the data links. At the bound whoever wants one waits until the link
// that has been idle longest is closed, or, when none is, the one that has been
// open longest.
type pool struct {
	r     *router
	mu    sync.Mutex
	open  int // dialing included
	links map[*link]struct{}
	freed chan struct{} // closes when there may be room
}

// acquire takes a place, waiting for one.
func (p *pool) acquire(ctx context.Context) error {
	var start time.Time
	for {
		p.mu.Lock()
		if p.open < p.r.c.o.MaxLinks {
			p.open++
			p.mu.Unlock()
			if !start.IsZero() {
				p.r.h.onBackpressure("pool", time.Since(start))
			}
			return nil
		}
		if p.freed == nil {
			p.freed = make(chan struct{})
		}
		freed := p.freed
		victim, after := p.victim(time.Now())
		if victim != nil {
			delete(p.links, victim)
		}
		p.mu.Unlock()
		if start.IsZero() {
			start = time.Now()
		}
		if victim != nil {
			victim.retire(drainGrace, errPool)
			continue
		}
		t := time.NewTimer(max(after, time.Millisecond))
		select {
		case <-freed:
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		}
		t.Stop()
	}
}

// victim is the link to close, or how long until there is one; p.mu is held.
func (p *pool) victim(now time.Time) (v *link, after time.Duration) {
	after = poolTurn
	var idle, busy *link
	var idleSince time.Time
	for l := range p.links {
		used, pending := l.use()
		age := now.Sub(l.started)
		switch {
		case pending == 0 && age >= poolTurn && (idle == nil || used.Before(idleSince)):
			idle, idleSince = l, used
		case pending > 0 && age >= poolTurn && (busy == nil || l.started.Before(busy.started)):
			busy = l
		case age < poolTurn:
			after = min(after, poolTurn-age)
		}
	}
	if idle != nil {
		return idle, 0
	}
	return busy, after
}

func (p *pool) release() {
	p.mu.Lock()
	p.open--
	if p.freed != nil {
		close(p.freed)
		p.freed = nil
	}
	p.mu.Unlock()
}

// use tells when the link took its last call and how many are unanswered.
func (l *link) use() (last time.Time, pending int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used, len(l.pending)
}

// sweep closes the links that nobody used for long.
func (p *pool) sweep(now time.Time) {
	var idle []*link
	p.mu.Lock()
	for l := range p.links {
		if used, pending := l.use(); pending == 0 && now.Sub(used) >= p.r.c.o.IdleTimeout {
			idle = append(idle, l)
		}
	}
	p.mu.Unlock()
	for _, l := range idle {
		l.retire(drainGrace, errIdle)
	}
}

// dial opens a data link to a node under an identity: connection, sign-in,
// capabilities. The pool watches it until it has ended.
func (r *router) dial(ctx context.Context, n *node, ident *identity, role string) (*link, error) {
	creds, wanted := r.c.session.credentials()
	if creds.empty() {
		return nil, fmt.Errorf("data link: not signed in: %w", wire.ErrUnauthenticated)
	}
	if ticket := r.ticket(ctx); ticket != "" {
		l, err := r.dialAs(ctx, n, ident, role, credentials{token: ticket}, wanted)
		if err == nil || !rejectsLogin(err) {
			return l, err
		}
		r.dropTicket(ticket)
	}
	return r.dialAs(ctx, n, ident, role, creds, wanted)
}

func (r *router) dialAs(ctx context.Context, n *node, ident *identity, role string, creds credentials, wanted int) (l *link, err error) {
	address, err := n.dialAddress()
	if err != nil {
		return nil, err
	}
	if err := r.pool.acquire(ctx); err != nil {
		return nil, err
	}
	start := time.Now()
	defer func() {
		r.h.onDial(address, role, time.Since(start), err)
		if err != nil {
			r.pool.release()
		}
	}()
	dctx, cancel := context.WithTimeout(ctx, min(r.c.o.DialTimeout, dataDialTimeout))
	conn, err := r.c.o.Dialer.Dial(dctx, address)
	cancel()
	if err != nil {
		return nil, &LinkError{Address: address, Op: "dial", Err: err}
	}
	// What a node says of its metadata here is not what the session has seen.
	l = newLink(&r.c.o, r.h, conn, address, ident, new(atomic.Uint64))
	l.node, l.wanted, l.attempt, l.used = n, wanted, r.c.o.AttemptTimeout, start
	l.start()
	sctx, cancel := context.WithTimeout(ctx, r.c.o.AttemptTimeout)
	defer cancel()
	if err := r.c.session.signIn(sctx, l, creds, wire.WantRoutingLink|wire.WantFence); err != nil {
		l.fail("sign in", err)
		<-l.done
		return nil, err
	}
	for _, s := range n.slots {
		s.lost.Store(0)
	}
	r.pool.mu.Lock()
	r.pool.links[l] = struct{}{}
	r.pool.mu.Unlock()
	if !r.c.run(func() { r.watch(l, role) }) {
		l.fail("close", ErrClosed)
		<-l.done
		r.pool.forget(l)
		return nil, ErrClosed
	}
	return l, nil
}

func (p *pool) forget(l *link) {
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// watch ends a link with the client and gives its place back when it has ended.
func (r *router) watch(l *link, role string) {
	select {
	case <-l.done:
	case <-r.c.ctx.Done():
		l.fail("close", ErrClosed)
		<-l.done
	}
	r.pool.forget(l)
	r.pool.release()
	r.h.onClose(l.address, role, l.reason())
	for _, s := range l.node.slots {
		s.ended(l)
	}
}

// isWanted reports whether a link ended because the client wanted it.
func isWanted(err error) bool {
	return errors.Is(err, errIdle) || errors.Is(err, errPool) || errors.Is(err, errMoved) || errors.Is(err, errRetired) || errors.Is(err, errGone)
}

// slot is the link of one class to one node, and the identity that it keeps over
// reconnections. It connects when somebody wants the link.
type slot struct {
	r     *router
	node  *node
	class class
	cur   atomic.Pointer[link] // may have ended
	lost  atomic.Int64         // when a link was lost or could not be made, in ns, if none was made to the node since; else 0

	mu       sync.Mutex
	ident    *identity
	caps     capabilities // of the last link
	tried    bool         // ident was used
	busy     bool         // a goroutine connects or attaches
	dialing  chan struct{}
	need     uint64 // the metadata position to attach with
	failures int
	retryAt  time.Time
	fault    error // the credentials were refused: these, with the number of faultFor
	faultFor int
	changed  chan struct{}
}

func newSlot(r *router, n *node, k class) *slot {
	return &slot{r: r, node: n, class: k, ident: newIdentity(), changed: make(chan struct{})}
}

// miss notes that the node cannot be reached.
func (s *slot) miss() { s.lost.Store(time.Now().UnixNano()) }

// down reports whether the node could not be reached when that was tried last.
func (s *slot) down() bool { return s.lost.Load() != 0 && s.peek() == nil }

// peek gives the link when it is usable.
func (s *slot) peek() *link {
	if l := s.cur.Load(); l != nil && l.usable() {
		return l
	}
	return nil
}

// identity is whose request ids the next link carries.
func (s *slot) identity() *identity {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ident
}

// current gives the link, attached to what is needed, or nil and when to ask again.
func (s *slot) current(need uint64) (l *link, changed <-chan struct{}, fault error) {
	if l := s.cur.Load(); l != nil && s.fit(l, need) {
		return l, nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.cur.Load(); l != nil && s.fit(l, need) {
		return l, nil, nil
	}
	if s.fault != nil && s.faultFor == int(s.r.c.session.credsNow.Load()) {
		return nil, s.changed, s.fault
	}
	s.need = max(s.need, need)
	if !s.busy {
		s.busy = s.r.c.run(s.work)
	}
	return nil, s.changed, nil
}

// fit reports whether a link can be used now.
func (s *slot) fit(l *link, need uint64) bool {
	if !l.usable() || l.wanted != int(s.r.c.session.credsNow.Load()) {
		return false
	}
	parent := s.r.coordinator()
	if s.class == classRead {
		return parent != nil && l.attachedGen.Load() == parent.gen && l.attachedPos.Load() >= need
	}
	// A write link needs no parent. Attaching has its node catch up, if it can be.
	return l.attachedPos.Load() >= need || parent == nil
}

func (s *slot) broadcast() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// ended is told that a link of the node has ended.
func (s *slot) ended(l *link) {
	if s.cur.Load() != l {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cur.Load() == l {
		if !isWanted(l.reason()) {
			s.miss()
		}
		s.broadcast()
	}
}

// work connects and attaches. It makes one attempt; whoever still wants the link
// starts the next one.
func (s *slot) work() {
	err := s.attempt()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = false
	if err == nil {
		s.failures, s.fault = 0, nil
	} else {
		s.failures++
		s.retryAt = time.Now().Add(backoff(s.failures-1, firstRedial, maxRedial))
	}
	s.broadcast()
}

func (s *slot) attempt() error {
	ctx := s.r.c.ctx
	s.mu.Lock()
	pause := time.Until(s.retryAt)
	s.mu.Unlock()
	if err := sleep(ctx, pause); err != nil {
		return err
	}
	l := s.peek()
	if l != nil && l.wanted != int(s.r.c.session.credsNow.Load()) {
		// Somebody else signed in: what this link does, it does as the old user.
		l.retire(drainGrace, errRetired)
		l = nil
		s.mu.Lock()
		s.ident, s.tried = newIdentity(), false
		s.mu.Unlock()
	}
	if l == nil {
		var err error
		if l, err = s.connect(ctx); err != nil {
			return err
		}
	}
	return s.attach(ctx, l)
}

// connect makes the slot's link.
func (s *slot) connect(ctx context.Context) (*link, error) {
	if old := s.cur.Load(); old != nil && old.ident == s.identity() {
		<-old.done // one connection at a time carries an identity
	}
	s.mu.Lock()
	if s.tried && !s.caps.whippet {
		s.ident = newIdentity() // a released server is given a new one each time
	}
	ident := s.ident
	s.tried = true
	dialing := make(chan struct{})
	s.dialing = dialing
	s.mu.Unlock()
	l, err := s.r.dial(ctx, s.node, ident, s.class.String())
	s.mu.Lock()
	defer close(dialing)
	s.dialing = nil
	switch {
	case err == nil && s.ident != ident:
		s.mu.Unlock()
		l.fail("retire", errMoved)
		<-l.done
		return nil, errMoved
	case err != nil:
		defer s.mu.Unlock()
		s.miss()
		s.r.refresh() // it may listen elsewhere
		var ev *evictedError
		switch {
		case rejectsLogin(err):
			s.fault, s.faultFor = err, int(s.r.c.session.credsNow.Load())
		case errors.As(err, &ev) && s.ident == ident:
			s.ident, s.tried = newIdentity(), false // it cannot be registered
		}
		return nil, err
	}
	s.caps = l.caps
	s.cur.Store(l)
	s.mu.Unlock()
	return l, nil
}

// attach ties the link to the session, which also has its node catch up with what
// the session has seen (routing D.4).
func (s *slot) attach(ctx context.Context, l *link) error {
	for {
		parent := s.r.coordinator()
		s.mu.Lock()
		need := s.need
		s.mu.Unlock()
		if s.fit(l, need) && parent != nil {
			return nil
		}
		if parent == nil {
			if s.class == classWrite {
				return nil
			}
			lctx, cancel := context.WithTimeout(ctx, s.r.c.o.AttemptTimeout)
			p, err := s.r.c.session.ready(lctx)
			cancel()
			if err != nil {
				return fmt.Errorf("attach: %w", err)
			}
			parent = p
		}
		if parent.session == 0 {
			return fmt.Errorf("attach: not signed in: %w", wire.ErrUnauthenticated)
		}
		start := time.Now()
		err := s.attachTo(ctx, l, parent, need)
		s.r.h.onAttach(l.address, resultOf(err), time.Since(start))
		code := codeOf(err)
		switch {
		case err == nil:
		case code == 0:
			return err
		case classify(code) == reactRetry, classify(code) == reactUnknown:
			// The node is behind. Those who do not need what it lacks go on.
			if err := sleep(ctx, replayPause); err != nil {
				return err
			}
			if !l.usable() {
				return l.reason()
			}
			continue
		case s.class == classRead && classify(code) == reactReconnect:
			s.r.checkParent(parent)
			return err
		}
		// Attached; or the server cannot or will not, and serves without.
		l.attachedGen.Store(parent.gen)
		raise(&l.attachedPos, need)
	}
}

func (s *slot) attachTo(ctx context.Context, l, parent *link, need uint64) error {
	ctx, cancel := context.WithTimeout(ctx, s.r.c.o.AttemptTimeout)
	defer cancel()
	req := &wire.AttachConsumerSession{Attachment: wire.Attachment{ClientID: parent.ident.client, Session: parent.session, Watermark: need}}
	got, err := l.roundTrip(ctx, call{op: wire.OpNonReplicated, code: req.Code(), meta: req.Append(nil)})
	if err != nil {
		return err
	}
	_, err = got.reply.Payload(got.body)
	return err
}

// reattach has the link attach again before it is used.
func (s *slot) reattach(l *link) { l.attachedGen.Store(0) }

// detach takes an identity away from the slot and waits until no connection of the
// slot carries it; what was in flight has its outcome then. The next link to the
// node has a new one.
func (s *slot) detach(ident *identity) {
	s.mu.Lock()
	if s.ident != ident {
		s.mu.Unlock()
		return
	}
	s.ident, s.tried = newIdentity(), false
	l, dialing := s.cur.Load(), s.dialing
	s.broadcast()
	s.mu.Unlock()
	if dialing != nil {
		<-dialing
	}
	if l != nil && l.ident == ident {
		l.retire(drainGrace, errMoved)
	}
}
