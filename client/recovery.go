package client

import (
	"errors"
	"sync"
	"time"
)

// recoveryTurn is how long a recovery stays on a node without end while lanes wait
// for it on another.
const recoveryTurn = time.Second

var errRecovered = errors.New("recovered")

// recoveries are the identities that are under way to other nodes (routing D.7).
type recoveries struct {
	r  *router
	mu sync.Mutex
	m  map[*identity]*recovery
}

// recovery carries one identity to the nodes that lead now where writes of unknown
// outcome are to be sent again under it: one node after the other, because only
// one connection at a time may carry an identity. Its goroutine first takes the
// identity away from the slot that has it, and ends with the last lane that wants
// it; the identity is not used any more then.
type recovery struct {
	r     *router
	ident *identity

	// Guarded by recoveries.mu.
	wants   map[*lane]*node
	node    *node // where link is
	link    *link
	fault   error // the identity cannot be registered: nobody will find out
	changed chan struct{}
	wake    chan struct{}
}

// carry asks for a link to a node under an identity.
func (x *recoveries) carry(ident *identity, n *node, ln *lane) (rec *recovery, l *link, changed <-chan struct{}, fault error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	rec = x.m[ident]
	if rec == nil {
		rec = &recovery{r: x.r, ident: ident, wants: make(map[*lane]*node), changed: make(chan struct{}), wake: make(chan struct{}, 1)}
		if !x.r.c.run(rec.run) {
			return nil, nil, nil, ErrClosed
		}
		x.m[ident] = rec
	}
	if rec.wants[ln] != n {
		rec.wants[ln] = n
		rec.notify()
	}
	if rec.fault != nil {
		return rec, nil, nil, rec.fault
	}
	if rec.link != nil && rec.node == n && rec.link.usable() {
		return rec, rec.link, nil, nil
	}
	return rec, nil, rec.changed, nil
}

// drop says that a lane does not want the identity any more.
func (x *recoveries) drop(rec *recovery, ln *lane) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(rec.wants, ln)
	rec.notify()
}

func (c *recovery) notify() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// publish sets the link. recoveries.mu is held.
func (c *recovery) publish(l *link, n *node, fault error) {
	c.link, c.node, c.fault = l, n, fault
	close(c.changed)
	c.changed = make(chan struct{})
}

// next is the node to go to: the one where most is wanted but for the last one,
// unless nothing else is. False = nothing is wanted at all, and the recovery has
// ended.
func (c *recovery) next(last *node) (*node, bool) {
	x := &c.r.recoveries
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(c.wants) == 0 {
		delete(x.m, c.ident)
		c.publish(nil, nil, nil)
		return nil, false
	}
	count := map[*node]int{}
	for _, n := range c.wants {
		count[n]++
	}
	best, most := last, -1
	for n, k := range count {
		if n != last && k > most {
			best, most = n, k
		}
	}
	return best, true
}

func (c *recovery) run() {
	ctx := c.r.c.ctx
	for _, n := range c.r.topology.all() {
		for _, s := range n.slots {
			s.detach(c.ident)
		}
	}
	var last *node
	failures := 0
	for ctx.Err() == nil {
		n, ok := c.next(last)
		if !ok {
			return
		}
		l, err := c.r.dial(ctx, n, c.ident, "recovery")
		if err != nil {
			last = n
			if c.refused(err) {
				return
			}
			n.slots[classWrite].miss()
			failures++
			t := time.NewTimer(retryPause(failures - 1))
			select {
			case <-t.C:
			case <-c.wake: // perhaps another node leads now
			case <-ctx.Done():
			}
			t.Stop()
			continue
		}
		failures = 0
		c.serve(l, n)
		last = n
	}
	c.end(ErrClosed)
}

// refused reports whether the identity cannot be registered, ever: the writes
// under it stay unknown.
func (c *recovery) refused(err error) bool {
	var ev *evictedError
	if !errors.As(err, &ev) && !rejectsLogin(err) {
		return false
	}
	c.end(err)
	return true
}

// end has everybody give up who wants the identity.
func (c *recovery) end(err error) {
	x := &c.r.recoveries
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.m, c.ident)
	c.publish(nil, nil, err)
}

// serve publishes a link until nobody wants its node, or others have waited long
// enough, or it ends.
func (c *recovery) serve(l *link, n *node) {
	x := &c.r.recoveries
	x.mu.Lock()
	c.publish(l, n, nil)
	x.mu.Unlock()
	turn := time.NewTicker(recoveryTurn)
	defer turn.Stop()
	over := false
	for {
		here, elsewhere := 0, 0
		x.mu.Lock()
		for _, w := range c.wants {
			if w == n {
				here++
			} else {
				elsewhere++
			}
		}
		if here == 0 || over && elsewhere > 0 {
			c.publish(nil, nil, nil)
			x.mu.Unlock()
			break
		}
		x.mu.Unlock()
		select {
		case <-c.wake:
			continue
		case <-turn.C:
			over = true
			continue
		case <-l.done:
		case <-c.r.c.ctx.Done():
		}
		break
	}
	l.retire(drainGrace, errRecovered)
	<-l.done
	x.mu.Lock()
	if c.link == l {
		c.publish(nil, nil, nil)
	}
	x.mu.Unlock()
}
