package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// laneKind says what a lane orders.
type laneKind uint8

const (
	laneSend     laneKind = iota + 1 // sends to one partition
	laneProgress                     // offsets of one consumer in one partition
	laneMetadata                     // metadata operations of the session
)

// laneKey names a lane. Streams and topics are numeric where they are known, so
// that both spellings of a topic share one lane.
type laneKey struct {
	kind          laneKind
	stream, topic wire.Identifier
	created       uint64 // tells a topic from an earlier one of the same name and ids; 0 = not known
	partition     uint32
	anyPartition  bool // sends whose partition the server chooses
	consumer      wire.Consumer
}

func progressKey(consumer wire.Consumer, stream, topic wire.Identifier, partition uint32) laneKey {
	return laneKey{kind: laneProgress, stream: stream, topic: topic, partition: partition, consumer: consumer}
}

// want is what a lane needs a link for.
type want struct {
	// carry, when it is set, is the identity of a write of unknown outcome: only a
	// link that carries it will do.
	carry    *identity
	since    time.Time // of the oldest write
	deadline time.Time // of the one that waits longest
}

// changes are channels of which one closes when the answer may be another. All
// may be nil.
type changes [3]<-chan struct{}

// links is where a lane gets its link from: the session, or the node of the
// partition's primary. All but the first and the last are called from links'
// goroutines.
type links interface {
	// current gives the usable link, or nil and when to ask again, or the reason
	// why there will be none.
	current(w want) (l *link, changed changes, fault error)
	// renew drops a link whose session is gone.
	renew(l *link, cause error)
	// refused: the link's node did not admit a write.
	refused(l *link)
	// admitted: it did.
	admitted(l *link)
	// missing: the node does not know the target.
	missing(l *link)
	// suspect: a write has been unanswered for a while.
	suspect(l *link)
	// hint takes what a node said about who leads.
	hint(l *link, r *wire.Route)
	// rest: nothing is wanted any more.
	rest()
}

// sessionLinks are links of a lane whose writes go over the session.
type sessionLinks struct{ s *session }

func (x sessionLinks) current(want) (*link, changes, error) {
	l, changed, fault := x.s.current()
	return l, changes{changed}, fault
}
func (x sessionLinks) renew(l *link, cause error) { x.s.renew(l, cause) }
func (x sessionLinks) refused(l *link)            { x.s.refused(l) }
func (x sessionLinks) admitted(*link)             { x.s.refusedAt.Store(0) }
func (x sessionLinks) missing(*link)              {}
func (x sessionLinks) suspect(*link)              {}
func (x sessionLinks) hint(*link, *wire.Route)    {}
func (x sessionLinks) rest()                      {}

// lane drives a laneCore: it owns the goroutine, the lock and the clock.
//
// The goroutine runs while there is something to do. It takes the link first and
// asks the core for the next step second, under one lock, so that a step is never
// decided on outcomes that are older than the link.
type lane struct {
	c     *Client
	key   laneKey
	links links
	// The spelling used on the wire, for asking 103.
	stream, topic wire.Identifier

	mu      sync.Mutex
	core    laneCore
	running bool
	pins    int          // producers that hold on to it
	window  atomic.Int32 // core.window, for room
	inDoubt atomic.Int64 // since when, in ns; 0 = not

	wake chan struct{}
}

func newLane(c *Client, key laneKey, stream, topic wire.Identifier) *lane {
	ln := &lane{c: c, key: key, links: sessionLinks{c.session}, stream: stream, topic: topic, wake: make(chan struct{}, 1)}
	ln.core.fences = key.kind == laneSend
	ln.core.window = 1
	if key.kind == laneSend && !key.anyPartition {
		ln.core.window = c.o.InFlight
	}
	if !c.o.NoRouting && key.kind != laneMetadata && !key.anyPartition {
		class := classWrite
		if key.kind == laneProgress {
			class = classRead
		}
		ln.links = &routedLinks{r: c.router, ln: ln, class: class}
		ln.core.patience, ln.core.verify = suspectAfter, key.created != 0
	}
	ln.window.Store(int32(ln.core.window))
	return ln
}

// lane finds or makes a lane. pin keeps it in the table until unpin.
func (c *Client) lane(key laneKey, stream, topic wire.Identifier, pin bool) (*lane, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.ctx.Done():
		return nil, ErrClosed
	default:
	}
	ln, ok := c.lanes[key]
	if !ok {
		if len(c.lanes) >= maxLanes {
			c.dropIdleLanes()
		}
		ln = newLane(c, key, stream, topic)
		c.lanes[key] = ln
	}
	if pin {
		ln.mu.Lock()
		ln.pins++
		ln.mu.Unlock()
	}
	return ln, nil
}

func (ln *lane) unpin() {
	ln.mu.Lock()
	ln.pins--
	ln.mu.Unlock()
}

// dropIdleLanes removes lanes that hold nothing; c.mu is held. What an idle lane
// remembers, a fence, costs one refusal to find out again.
func (c *Client) dropIdleLanes() {
	for k, ln := range c.lanes {
		ln.mu.Lock()
		idle := !ln.running && ln.pins == 0 && len(ln.core.list) == 0
		ln.mu.Unlock()
		if idle {
			delete(c.lanes, k)
		}
	}
}

// push hands a write to the lane; its owner will be told. Order is that of the
// calls.
func (ln *lane) push(w *write) error {
	w.lane, w.to = ln, w
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if !ln.running {
		if !ln.c.run(ln.run) {
			return ErrClosed
		}
		ln.running = true
	}
	ln.core.push(w)
	ln.notify()
	return nil
}

// widen lets more writes be in flight, for a producer that wants it.
func (ln *lane) widen(window int) {
	ln.mu.Lock()
	ln.core.window = max(ln.core.window, window)
	if ln.key.anyPartition {
		ln.core.window = 1
	}
	ln.window.Store(int32(ln.core.window))
	ln.mu.Unlock()
}

// room is how many writes may be in flight on the server we have now.
func (ln *lane) room() int {
	if ln.c.session.pipelined.Load() {
		return int(ln.window.Load())
	}
	return 1
}

// resolve lets a blocked lane try again; the channels give the outcome of each of
// the producer's writes that blocked it.
func (ln *lane) resolve(deadline time.Time, p *Producer) []<-chan error {
	var list []<-chan error
	var fx effects
	ln.mu.Lock()
	if ln.core.blocked {
		for _, w := range ln.core.list {
			b, ok := w.owner.(*batch)
			if ok && b.pp.p == p && w.isTold && w.block && !w.inFlight {
				ch := make(chan error, 1)
				b.resolve = ch
				list = append(list, ch)
			}
		}
		ln.core.resolve(deadline, false, &fx)
	}
	ln.mu.Unlock()
	ln.apply(&fx)
	ln.notify()
	return list
}

// abandon gives up the writes that block the lane.
func (ln *lane) abandon(*Producer) {
	var fx effects
	ln.mu.Lock()
	ln.core.resolve(time.Time{}, true, &fx)
	ln.mu.Unlock()
	ln.apply(&fx)
	ln.notify()
}

func (ln *lane) notify() {
	select {
	case ln.wake <- struct{}{}:
	default:
	}
}

// answered is called by a link.
func (ln *lane) answered(w *write) {
	var fx effects
	ln.mu.Lock()
	late, address := w.isTold && w.call.err == nil, w.on.address
	ln.core.answered(w, time.Now(), &fx)
	ln.mu.Unlock()
	if late {
		ln.c.h.onLate(address)
	}
	ln.apply(&fx)
	ln.notify()
}

// cancel gives a write up for its caller and gives the error to return. told
// means that the write has its outcome already.
func (ln *lane) cancel(w *write, cause error) (err error, told bool) {
	var fx effects
	ln.mu.Lock()
	if w.isTold {
		ln.mu.Unlock()
		return nil, true
	}
	err = ln.core.cancel(w, cause, withdraw, &fx)
	ln.mu.Unlock()
	ln.apply(&fx)
	ln.notify()
	return err, false
}

func withdraw(w *write) bool { return w.on.withdraw(&w.call) }

// apply carries out what a transition asked for.
func (ln *lane) apply(fx *effects) {
	for _, code := range fx.refusals {
		ln.c.h.onRefusal(fx.refuser.address, uint32(code))
	}
	if fx.delta != 0 {
		ln.c.h.onAmbiguous(fx.delta)
		ln.doubt(fx.delta > 0)
	}
	if fx.refresh {
		ln.c.topics.invalidate(ln.stream, ln.topic)
		ln.links.missing(fx.refuser)
	}
	if fx.refused != nil {
		ln.links.refused(fx.refused)
	}
	if fx.admitted != nil {
		ln.links.admitted(fx.admitted)
	}
	if fx.suspect != nil {
		ln.links.suspect(fx.suspect)
	}
	if fx.renew != nil {
		ln.links.renew(fx.renew, fx.renewFor)
	}
	for i := range fx.told {
		fx.told[i].owner.told(fx.told[i].write, fx.told[i].outcome)
	}
	for _, w := range fx.released {
		w.owner.released(w)
	}
}

// doubt tells for how long the lane held writes of unknown outcome.
func (ln *lane) doubt(begins bool) {
	if len(ln.c.h.blocked) == 0 {
		return
	}
	now := time.Now().UnixNano()
	if begins {
		ln.inDoubt.Store(now)
	} else if since := ln.inDoubt.Swap(0); since != 0 {
		ln.c.h.onBlocked(time.Duration(now - since))
	}
}

func (ln *lane) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	ln.mu.Lock()
	want := ln.core.want()
	ln.mu.Unlock()
	for {
		l, changed, fault := ln.links.current(want)
		var fx effects
		var place *roomWaiter
		ln.mu.Lock()
		now := time.Now()
		if due := ln.core.want(); due.carry != want.carry {
			// An answer came meanwhile: another link may be due.
			want = due
			ln.mu.Unlock()
			continue
		}
		ln.core.expire(now, withdraw, &fx)
		if fault != nil {
			ln.core.abort(fault, &fx)
		}
		next := ln.core.next(now, l, &fx)
		switch next.kind {
		case stepIdle:
			ln.links.rest()
			ln.running = false
		case stepSend:
			ln.core.sending(next.write, l, now)
			// The link takes it under the lane's lock, so that whoever finds it in
			// flight under this lock finds it with the link, its number given.
			var err error
			if place, err = l.offer(&next.write.call); err != nil {
				ln.core.notTaken(next.write, &fx)
			}
		}
		want = ln.core.want()
		ln.mu.Unlock()
		ln.apply(&fx)

		switch next.kind {
		case stepIdle:
			return
		case stepSend:
			if place != nil {
				ln.queue(next, l, place)
			}
		case stepLift:
			ln.lift(next.until, l)
		case stepCheck:
			ln.check(next.until)
		case stepWait:
			if l != nil {
				changed = changes{l.closed}
			} else if ln.c.ctx.Err() == nil {
				changed[2] = ln.c.ctx.Done()
			}
			ln.wait(timer, next.until, changed)
			ln.mu.Lock()
			want = ln.core.want()
			ln.mu.Unlock()
		}
	}
}

// wait blocks until something may have changed.
func (ln *lane) wait(timer *time.Timer, until time.Time, changed changes) {
	var expired <-chan time.Time
	if !until.IsZero() {
		timer.Reset(max(time.Until(until), 0))
		expired = timer.C
	}
	select {
	case <-ln.wake:
	case <-changed[0]:
	case <-changed[1]:
	case <-changed[2]:
	case <-expired:
	}
}

// queue waits for room on l for the write of s, which has its place in line
// there. Once the place is decided about, the write is not the lane's any more: it
// may be answered, or withdrawn, and used again.
func (ln *lane) queue(s step, l *link, place *roomWaiter) {
	ctx, cancel := context.WithDeadline(ln.c.ctx, s.until)
	defer cancel()
	l.await(ctx, place)
	var fx effects
	ln.mu.Lock()
	if err := l.leave(&s.write.call, place); err != nil && !errors.Is(err, errWithdrawn) {
		ln.core.notTaken(s.write, &fx)
	}
	ln.mu.Unlock()
	ln.apply(&fx)
}

// lift asks 103 on the fenced link, which makes the server accept sends to the
// partition again (routing D.14).
func (ln *lane) lift(until time.Time, l *link) {
	ctx, cancel := context.WithDeadline(ln.c.ctx, until)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, lookupTimeout)
	defer stop()
	ok := false
	if ln.key.anyPartition {
		// Which partition refused is not known: the fence goes with the connection.
		ln.links.renew(l, errFenced)
		ok = true
	} else {
		req := routingQuery(ln.stream, ln.topic, ln.key.partition)
		got, err := l.roundTrip(ctx, call{op: wire.OpNonReplicated, code: req.Code(), meta: req.Append(nil)})
		if err == nil {
			var payload []byte
			payload, err = got.reply.Payload(got.body)
			ok = liftDone(err)
			if code := codeOf(err); code == wire.ErrUnauthorized || code == wire.ErrInvalidCommand || code == wire.ErrFeatureUnavailable {
				// It does not let us ask, so the fence stays: it goes with the connection.
				ln.links.renew(l, errFenced)
			}
			var route wire.Route
			if err == nil && route.Decode(payload) == nil {
				ln.links.hint(l, &route)
			}
		}
	}
	ln.mu.Lock()
	ln.core.lifted(l, ok, time.Now())
	ln.mu.Unlock()
}

var errFenced = errors.New("fenced")

// check finds out whether the lane's topic is still the one that was written to.
func (ln *lane) check(until time.Time) {
	ctx, cancel := context.WithDeadline(ln.c.ctx, until)
	defer cancel()
	same, err := ln.c.topics.same(ctx, ln.stream, ln.topic, &ln.key)
	if err != nil {
		return // the deadline of the write: it ends as unknown
	}
	var fx effects
	ln.mu.Lock()
	ln.core.checked(same, &fx)
	ln.mu.Unlock()
	ln.apply(&fx)
}

// liftDone reports whether the server lifted the fence, or never will, in which
// case the next send tells why.
func liftDone(err error) bool {
	switch classifyErr(err) {
	case reactRetry, reactUnknown, reactReconnect:
		return false
	}
	return true
}

// classifyErr is classify for the code in an error's chain; no code is fatal,
// nil is applied.
func classifyErr(err error) reaction {
	if err == nil {
		return reactApplied
	}
	var code wire.ErrorCode
	if errors.As(err, &code) {
		return classify(code)
	}
	return reactFatal
}
