package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// maxInFlight is the most writes of one lane that may be unanswered: a quarter
// of the 64 request ids that a server remembers per client and partition
// (routing D.14).
const maxInFlight = 16

// writeOwner gets the outcome of a write. Both methods are called once, without
// locks held, on a goroutine of the lane or the link; they must not block.
type writeOwner interface {
	// told brings the outcome. The lane may go on with the write until it is
	// released, so of w itself only what was fixed when it was pushed may be read.
	// For [Producer.Resolve] it is called once more.
	told(w *write, o outcome)
	// released: nobody reads the write's memory any more.
	released(w *write)
}

// outcome is how a write ended, as far as its owner is concerned. It is the owner's
// copy: a write that was given up may still be answered.
type outcome struct {
	confirmation Confirmation
	payload      []byte
	err          error
	path         string       // how it got through, for metrics
	resolve      chan<- error // set when Resolve asked for it; the owner was told before
}

// toldWrite is a write whose owner is to be told.
type toldWrite struct {
	*write
	outcome
}

// write is one replicated request in its lane. The lane's lock guards everything
// but what is fixed when it is pushed.
type write struct {
	call
	lane  *lane
	owner writeOwner
	name  string // for errors and hooks
	// block: when the outcome stays unknown, the lane waits for a decision.
	block    bool
	messages int
	start    time.Time

	inFlight  bool
	ambiguous bool // may have been applied; only ever replayed under ident and id
	isTold    bool // the owner has its outcome; the write may live on to keep order
	replayed  bool
	refused   bool
	refreshed bool // the one retry after "not found" is used up
	renewed   bool // the one retry after "unauthenticated" is used up
	cold      bool // it had to wait for a route or a link

	on      *link // the link it was last written on
	ident   *identity
	cluster wire.U128
	last    error // the last refusal or loss, for the error at the deadline

	resolve chan<- error // of the Resolve that waits for it
}

// complete hands the link's outcome to the lane.
func (w *write) complete(*call) { w.lane.answered(w) }

// path names how a send got through, for metrics.
func (w *write) path() string {
	switch {
	case w.replayed:
		return "recovered"
	case w.refused:
		return "rerouted"
	case w.cold:
		return "cold"
	}
	return "warm"
}

// stepKind is what a lane wants done next.
type stepKind uint8

const (
	stepIdle  stepKind = iota // nothing left
	stepWait                  // for an answer, a link, a push, or until a time
	stepSend                  // write step.write to the link
	stepLift                  // ask 103, so that the server lifts the fence
	stepCheck                 // find out whether the topic is still the one that was written to
)

type step struct {
	kind  stepKind
	write *write    // with stepSend
	until time.Time // the deadline of what is to be done; zero = no limit, only with stepWait
}

// laneCore is the state machine of the writes to one partition, or of any other
// sequence of replicated requests that must keep its order (routing D.5, D.14).
// It has no clock, lock or I/O; lane drives it.
//
//	open ──send──▶ in flight ──ok──▶ gone
//	                  │ refused (58)               → queued again, lane drains
//	                  │ typed error                → gone, lane drains
//	                  │ link lost before it left   → queued again, lane drains
//	                  └ link lost, 57, deadline    → ambiguous, lane drains
//
// Draining: after anything but a success nothing is sent until every write in
// flight is answered or its link is gone. The server refuses the younger ones
// meanwhile (its fence, G11), so nothing overtakes. Then the fence is lifted and
// everything is sent again from the oldest: ambiguous writes under their own
// identity, the others under new numbers.
//
// Hence, but while it drains: the writes in flight are a prefix of the list.
type laneCore struct {
	fences bool // sends: the server fences the connection after a refusal
	window int  // in flight on a server with the fence; else one

	list       []*write
	inFlight   int
	drain      bool
	counted    bool // this drain has raised refusals already
	refusals   int  // rounds refused in a row
	pauseUntil time.Time
	fenced     []*link // where writes are refused until 103 is asked, the newest last
	blocked    bool
	on         *link // what was written to last

	// With several nodes:
	patience time.Duration // without an answer for so long, the route is looked up; 0 = never
	progress time.Time     // of the last answer, or of the first write after a rest
	verify   bool          // before writes of unknown outcome are sent again, the topic is looked at
	verified bool
	cold     bool // there was no link when somebody wanted one
}

// effects is what a transition asks the shell to do after the lock is released.
type effects struct {
	told     []toldWrite
	released []*write
	renew    *link // its session is gone
	renewFor error
	refresh  bool // what is known of the topic is stale
	refusals []wire.ErrorCode
	refuser  *link
	refused  *link // it did not admit a write (58)
	admitted *link // of a write
	suspect  *link // it is silent
	delta    int   // change in the number of lanes with ambiguous writes
}

func (k *laneCore) push(w *write) { k.list = append(k.list, w) }

// next says what to do. l is the usable link, or nil.
func (k *laneCore) next(now time.Time, l *link, fx *effects) step {
	for {
		switch {
		case len(k.list) == 0:
			return step{kind: stepIdle}
		case l == nil || k.blocked || k.inFlight > 0 && (k.drain || k.on != l):
			k.cold = k.cold || l == nil
			return step{kind: stepWait, until: k.attend(now, fx)}
		}
		k.drain, k.counted = false, false
		w := k.firstUnsent()
		switch {
		case w == nil || k.inFlight >= k.limit(l):
			return step{kind: stepWait, until: k.attend(now, fx)}
		case w.ambiguous && !replayable(w, l):
			k.settleUnknown(w, fx)
			continue
		case now.Before(k.pauseUntil):
			until := k.pauseUntil
			if d := k.deadline(); !d.IsZero() && d.Before(until) {
				until = d
			}
			return step{kind: stepWait, until: until}
		case w.ambiguous && k.verify && !k.verified:
			return step{kind: stepCheck, until: w.deadline}
		case slices.Contains(k.fenced, l):
			return step{kind: stepLift, until: w.deadline}
		}
		return step{kind: stepSend, write: w, until: w.deadline}
	}
}

// attend notices when what was written stays unanswered for long, and gives the
// next moment at which something is due.
func (k *laneCore) attend(now time.Time, fx *effects) time.Time {
	d := k.deadline()
	if k.patience <= 0 || k.inFlight == 0 {
		return d
	}
	if now.Sub(k.progress) >= k.patience {
		fx.suspect, k.progress = k.on, now.Add(-k.patience/2)
	}
	if due := k.progress.Add(k.patience); d.IsZero() || due.Before(d) {
		d = due
	}
	return d
}

// pending is the first write of unknown outcome that is to be sent again, or nil.
// All of a lane have one identity: until they are resolved nothing is written
// under another.
func (k *laneCore) pending() *write {
	if k.blocked {
		return nil
	}
	for _, w := range k.list {
		if w.ambiguous {
			return w
		}
	}
	return nil
}

// want is what a link is needed for.
func (k *laneCore) want() want {
	var w want
	if p := k.pending(); p != nil && p.on.caps.whippet {
		w.carry = p.ident
	}
	if len(k.list) > 0 {
		w.since, w.deadline = k.list[0].start, k.list[len(k.list)-1].deadline
	}
	return w
}

// checked takes what was found out about the topic: gone, or the same.
func (k *laneCore) checked(same bool, fx *effects) {
	k.verified = true
	if same {
		return
	}
	// What was written went to a topic that is no more: nobody will ever know, and
	// nothing of it may get into the new one.
	for w := k.pending(); w != nil && !w.inFlight; w = k.pending() {
		w.last = joinCause(errRecreated, w.last)
		k.settleUnknown(w, fx)
	}
}

var errRecreated = errors.New("the topic was deleted or made anew")

// limit is how many writes may be in flight on a link: more than one only where
// the server keeps order after a refusal.
func (k *laneCore) limit(l *link) int {
	if !k.fences || !l.caps.fence {
		return 1
	}
	n := min(k.window, maxInFlight)
	if m := l.caps.maxInFlight; m > 0 {
		n = min(n, m)
	}
	return max(n, 1)
}

// replayable reports whether a write of unknown outcome may be written to l:
// the same connection, or one that carries the same identity to a cluster that
// remembers it. A released server cannot prove that it does (framing §5.3).
func replayable(w *write, l *link) bool {
	return w.on == l || l.ident == w.ident && l.caps.whippet && l.caps.cluster == w.cluster
}

func (k *laneCore) firstUnsent() *write {
	for _, w := range k.list {
		if !w.inFlight {
			return w
		}
	}
	return nil
}

// deadline is the next moment at which something expires.
func (k *laneCore) deadline() time.Time {
	var d time.Time
	for _, w := range k.list {
		if w.isTold && (w.inFlight || w.block) {
			continue
		}
		if d.IsZero() || w.deadline.Before(d) {
			d = w.deadline
		}
	}
	return d
}

// sending records that w is about to be written to l.
func (k *laneCore) sending(w *write, l *link, now time.Time) {
	if w.ambiguous {
		w.replayed = true
	} else {
		w.id = 0
	}
	if k.inFlight == 0 {
		k.progress = now
	}
	w.cold, k.cold = w.cold || k.cold, false
	w.inFlight, w.on, k.on = true, l, l
	k.inFlight++
}

// unsent takes sending back: the link did not take w.
func (k *laneCore) unsent(w *write) {
	w.inFlight = false
	k.inFlight--
}

// maxFenced is how many fences a lane remembers. Forgetting one costs a refusal.
const maxFenced = 8

// raise notes that the server fences a link. Those of links that are gone went
// with them.
func (k *laneCore) raise(l *link) {
	k.fenced = slices.DeleteFunc(k.fenced, func(f *link) bool { return f == l || !f.usable() })
	if len(k.fenced) >= maxFenced {
		k.fenced = slices.Delete(k.fenced, 0, 1)
	}
	k.fenced = append(k.fenced, l)
}

// notTaken is unsent for a link that could not take w. Nobody waits any more for
// one that was given up meanwhile.
func (k *laneCore) notTaken(w *write, fx *effects) {
	k.unsent(w)
	if w.isTold && !w.ambiguous {
		k.remove(w, fx)
	}
}

// lifted records that the fence on l is gone, or that it could not be lifted yet.
func (k *laneCore) lifted(l *link, ok bool, now time.Time) {
	if ok {
		k.fenced = slices.DeleteFunc(k.fenced, func(f *link) bool { return f == l })
		return
	}
	k.pauseUntil = now.Add(k.refusalPause())
}

// refusalPause counts a refused round: the first is repeated at once, then the
// pause grows from 25 to 500 ms.
func (k *laneCore) refusalPause() time.Duration {
	k.refusals++
	if k.refusals == 1 {
		return 0
	}
	return retryPause(k.refusals - 2)
}

// answered takes the outcome that the link left in w.call (routing D.6).
func (k *laneCore) answered(w *write, now time.Time, fx *effects) {
	before := k.anyAmbiguous()
	k.inFlight--
	w.inFlight = false
	k.progress = now
	if w.call.err != nil {
		k.lost(w)
	} else {
		k.replied(w, now, fx)
	}
	if w.isTold && !w.block && (now.After(w.deadline) || !w.ambiguous && !w.inFlight) {
		// Nobody waits for it: a refused write is not sent again, and an ambiguous
		// one has had its time.
		k.remove(w, fx)
	}
	fx.delta += k.anyAmbiguous() - before
}

// lost: the link ended without a reply.
func (k *laneCore) lost(w *write) {
	k.drain = true
	k.verified = false
	w.last = w.call.err
	if w.wrote == wroteAll {
		k.becomeAmbiguous(w)
	}
}

func (k *laneCore) becomeAmbiguous(w *write) {
	if w.ambiguous {
		return
	}
	w.ambiguous, w.ident, w.cluster = true, w.on.ident, w.on.caps.cluster
}

// replied: a whole reply came.
func (k *laneCore) replied(w *write, now time.Time, fx *effects) {
	payload, err := w.reply.Payload(w.body)
	if err == nil {
		k.refusals = 0
		fx.admitted = w.on
		k.succeed(w, payload, false, fx)
		return
	}
	k.drain = true
	k.verified = false
	if k.fences && w.on.caps.fence {
		k.raise(w.on)
	}
	w.last = err
	var code wire.ErrorCode
	if !errors.As(err, &code) {
		// A reply that does not decode proves nothing.
		k.becomeAmbiguous(w)
		k.finish(w, outcome{err: k.unknown(w)}, fx)
		return
	}
	fx.refuser = w.on
	if k.fences {
		fx.refusals = append(fx.refusals, code)
	}
	switch classify(code) {
	case reactRetry:
		w.refused, fx.refused = true, w.on
		if !k.counted {
			k.counted = true
			k.later(now.Add(k.refusalPause()))
		}
	case reactUnknown:
		k.becomeAmbiguous(w)
		k.later(now.Add(replayPause))
	case reactApplied:
		k.refusals = 0
		fx.admitted = w.on
		k.succeed(w, nil, true, fx)
	case reactReconnect:
		fx.renew, fx.renewFor = w.on, err
		if w.renewed {
			k.reject(w, err, fx)
		}
		w.renewed = true
	case reactRefresh:
		if w.ambiguous || w.refreshed || !w.op.Partition() {
			k.reject(w, err, fx)
			return
		}
		w.refreshed, fx.refresh = true, true
	default:
		k.reject(w, err, fx)
	}
}

func (k *laneCore) later(t time.Time) {
	if t.After(k.pauseUntil) {
		k.pauseUntil = t
	}
}

func (k *laneCore) succeed(w *write, payload []byte, applied bool, fx *effects) {
	var o outcome
	if w.op == wire.OpSendMessages {
		o.confirmation = confirmationOf(payload)
		applied = applied || w.replayed && len(payload) == 0
	} else {
		o.payload = payload
	}
	o.confirmation.Duplicate = applied
	k.finish(w, o, fx)
}

// reject ends a write that was refused with a typed error. For a write of
// unknown outcome the refusal of its replay says nothing about the original,
// unless it is the stored verdict of a metadata operation, which travels in the
// result section.
func (k *laneCore) reject(w *write, err error, fx *effects) {
	k.refusals = 0 // the write is over with, so the lane gets on
	if w.ambiguous && (w.reply.Status != 0 || !w.reply.Operation.Metadata()) {
		k.finish(w, outcome{err: k.unknown(w)}, fx)
		return
	}
	k.finish(w, outcome{err: fmt.Errorf("%s: %w", w.name, err)}, fx)
}

func (k *laneCore) unknown(w *write) error {
	cause := w.last
	if cause == nil {
		cause = context.DeadlineExceeded
	}
	ident := w.ident
	if ident == nil {
		ident = w.on.ident
	}
	return &OutcomeUnknownError{Operation: w.name, Client: ident.client, Request: w.id, Cause: cause}
}

// settleUnknown gives up a write of unknown outcome.
func (k *laneCore) settleUnknown(w *write, fx *effects) {
	before := k.anyAmbiguous()
	k.tell(w, outcome{err: k.unknown(w)}, fx)
	k.remove(w, fx)
	fx.delta += k.anyAmbiguous() - before
}

// finish tells the owner and takes the write out.
func (k *laneCore) finish(w *write, o outcome, fx *effects) {
	w.ambiguous = false
	k.tell(w, o, fx)
	k.remove(w, fx)
}

func (k *laneCore) tell(w *write, o outcome, fx *effects) {
	if w.isTold {
		return
	}
	o.path = w.path()
	o.resolve, w.resolve = w.resolve, nil
	w.isTold = true
	fx.told = append(fx.told, toldWrite{w, o})
}

func (k *laneCore) remove(w *write, fx *effects) {
	for i, o := range k.list {
		if o == w {
			copy(k.list[i:], k.list[i+1:])
			k.list[len(k.list)-1] = nil
			k.list = k.list[:len(k.list)-1]
			fx.released = append(fx.released, w)
			return
		}
	}
}

// expire ends what has passed its deadline. withdraw takes a write back from its
// link when nothing of it was written.
func (k *laneCore) expire(now time.Time, withdraw func(*write) bool, fx *effects) {
	before := k.anyAmbiguous()
	for i := 0; i < len(k.list); i++ {
		w := k.list[i]
		if now.Before(w.deadline) || w.isTold && (w.inFlight || w.block) {
			continue
		}
		if w.inFlight && withdraw(w) {
			k.unsent(w)
		}
		switch {
		case w.inFlight:
			if w.last == nil {
				w.last = context.DeadlineExceeded
			}
			k.tell(w, outcome{err: k.unknown(w)}, fx) // it stays until it is answered or its link gone
		case w.ambiguous:
			k.tell(w, outcome{err: k.unknown(w)}, fx)
			if w.block {
				k.blocked = true
				continue
			}
			k.remove(w, fx)
			i--
		default:
			cause := context.DeadlineExceeded
			if k.blocked {
				cause = ErrBlocked
			}
			k.tell(w, outcome{err: notAdmitted(w.name, joinCause(cause, w.last))}, fx)
			k.remove(w, fx)
			i--
		}
	}
	fx.delta += k.anyAmbiguous() - before
}

// cancel is called when w's caller does not want to wait any more, and gives the
// caller's error. A write that may have been applied stays in the lane, which goes
// on trying to resolve it until its deadline: the writes behind it need to know.
func (k *laneCore) cancel(w *write, cause error, withdraw func(*write) bool, fx *effects) error {
	if w.inFlight && withdraw(w) {
		k.unsent(w)
	}
	w.isTold = true // by the error returned here
	w.last = joinCause(cause, w.last)
	if w.inFlight || w.ambiguous {
		return k.unknown(w)
	}
	k.remove(w, fx)
	return notAdmitted(w.name, w.last)
}

// abort ends everything, because there will be no link.
func (k *laneCore) abort(cause error, fx *effects) {
	before := k.anyAmbiguous()
	for i := 0; i < len(k.list); i++ {
		w := k.list[i]
		if w.inFlight {
			continue // its link is about to settle it
		}
		if w.ambiguous {
			w.last = joinCause(cause, w.last)
			k.tell(w, outcome{err: k.unknown(w)}, fx)
		} else {
			k.tell(w, outcome{err: notAdmitted(w.name, joinCause(cause, w.last))}, fx)
		}
		k.remove(w, fx)
		i--
	}
	k.blocked = false
	fx.delta += k.anyAmbiguous() - before
}

// resolve opens a blocked lane for another try until the deadline, or gives its
// writes of unknown outcome up.
func (k *laneCore) resolve(deadline time.Time, abandon bool, fx *effects) {
	before := k.anyAmbiguous()
	for i := 0; i < len(k.list); i++ {
		w := k.list[i]
		if !w.isTold || !w.block || w.inFlight {
			continue
		}
		if abandon {
			k.remove(w, fx)
			i--
			continue
		}
		w.deadline = deadline
		w.isTold = false
	}
	k.blocked = false
	fx.delta += k.anyAmbiguous() - before
}

func (k *laneCore) anyAmbiguous() int {
	for _, w := range k.list {
		if w.ambiguous {
			return 1
		}
	}
	return 0
}

func joinCause(err, last error) error {
	if last == nil {
		return err
	}
	return fmt.Errorf("%w: last seen: %w", err, last)
}
