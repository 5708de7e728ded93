package client

import (
	"errors"
	"slices"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// source is where a route was learned from.
type source uint8

const (
	sourceNone        source = iota
	sourceCoordinator        // 103 on the session
	sourcePeer               // 103 on the link of another node, best that of the node that refused
	sourceProbe              // offered to one node after another
)

func (s source) String() string { return [...]string{"none", "coordinator", "peer", "probe"}[s] }

// routeCore is what is known of who leads a partition, and what to do to know it
// (routing D.3). It has no clock, lock or I/O; route drives it.
//
// Every answer is a hint until a node admits something: offering a request to the
// wrong node costs one refusal, never a copy. Therefore nothing here needs to be
// right, only to come to an end.
type routeCore struct {
	node      *node // the hint, or nil
	src       source
	confirmed bool      // it admitted a request
	learned   time.Time // when node was set

	// The floor: an answer that was asked for before this refusal and names the node
	// that refused is older than what is known; one asked for afterwards is in doubt.
	refusedBy *node
	refusedAt time.Time
	// round lists who refused since somebody admitted, for probing.
	round   []*node
	probing bool // nobody tells: offer the request itself

	fails      int // lookups in a row that did not help
	missing    int // that said there is no such partition
	pauseUntil time.Time
	fault      error // what to tell whoever asked before faultAt
	faultAt    time.Time
}

// refused: n did not admit a request. What younger requests are told while the
// route is known better already changes nothing.
func (k *routeCore) refused(n *node, now time.Time) {
	if k.node != n {
		return
	}
	k.refusedBy, k.refusedAt = n, now
	if !slices.Contains(k.round, n) {
		k.round = append(k.round, n)
	}
	k.node, k.confirmed = nil, false
}

// admitted: n leads.
func (k *routeCore) admitted(n *node, now time.Time) {
	if k.node == nil {
		if n == k.refusedBy && !now.After(k.refusedAt) {
			return
		}
		k.node, k.learned = n, now
	}
	if k.node != n {
		return
	}
	k.confirmed, k.refusedBy, k.round = true, nil, k.round[:0]
	k.fails, k.missing, k.pauseUntil = 0, 0, time.Time{}
}

// hint takes an answer to a question of the time asked. doubt: it names the node
// that refused, so another opinion is worth a round trip.
func (k *routeCore) hint(n *node, src source, asked, now time.Time) (doubt bool) {
	k.missing = 0
	if src == sourceCoordinator && k.node != nil && k.node != n && k.learned.After(asked) {
		return false // older than what an admission or a peer told since
	}
	if n == k.refusedBy && asked.Before(k.refusedAt) {
		k.failed(now) // older than the refusal
		return false
	}
	same := k.node == n
	k.probing = false
	k.node, k.src, k.learned = n, src, now
	if !same {
		k.confirmed = false
		k.fails = 0
		k.pauseUntil = time.Time{}
		return n == k.refusedBy && src == sourceCoordinator
	}
	// Nothing new. Whoever asks because the node cannot be reached asks again.
	k.failed(now)
	return false
}

// failed: a lookup did not help.
func (k *routeCore) failed(now time.Time) {
	k.fails++
	if k.fails > 1 {
		k.pauseUntil = now.Add(retryPause(k.fails - 2))
	}
}

// refusedLookup takes the code of an answer to 103.
func (k *routeCore) refusedLookup(code wire.ErrorCode, now time.Time) {
	switch {
	case code == wire.ErrUnauthorized, code == wire.ErrInvalidCommand, code == wire.ErrFeatureUnavailable:
		// A user without the right to poll, or a server without the command.
		k.probing = true
		k.failed(now)
	case classify(code) == reactRefresh:
		// A node that lags behind says so too: the second time counts.
		k.missing++
		k.failed(now)
		if k.missing > 1 {
			k.giveUp(code, now)
		}
	default:
		k.failed(now)
	}
}

// giveUp ends the waiting of everybody who waits now.
func (k *routeCore) giveUp(err error, now time.Time) {
	k.fault, k.faultAt = err, now
	k.missing, k.fails = 0, 0
	k.node, k.confirmed = nil, false
}

// faultFor is the reason to give up for somebody who has waited since a time.
func (k *routeCore) faultFor(since time.Time) error {
	if k.fault != nil && !since.After(k.faultAt) {
		return k.fault
	}
	return nil
}

// probe chooses the next node to offer the request to: in order, without those
// that refused it in this round. When all have, a new round starts after a pause.
func (k *routeCore) probe(order []*node, now time.Time) {
	if !k.probing || k.node != nil || now.Before(k.pauseUntil) {
		return
	}
	for _, n := range order {
		if !slices.Contains(k.round, n) {
			k.node, k.src, k.learned = n, sourceProbe, now
			return
		}
	}
	k.round = k.round[:0]
	k.failed(now)
}

// unreachable: the node of a probe cannot be reached; the next one is due.
func (k *routeCore) unreachable(n *node) {
	if !k.probing || k.node != n {
		return
	}
	if !slices.Contains(k.round, n) {
		k.round = append(k.round, n)
	}
	k.node, k.confirmed = nil, false
}

// step says what the resolver has to do: look up now, wait until a time, or
// nothing. down says that the node of the hint cannot be reached now.
func (k *routeCore) step(down bool, now time.Time) (lookup bool, until time.Time) {
	if k.node != nil && !down {
		return false, time.Time{}
	}
	if now.Before(k.pauseUntil) {
		return false, k.pauseUntil
	}
	return !k.probing, time.Time{}
}

// codeOf is the code in an error's chain, 0 when there is none.
func codeOf(err error) wire.ErrorCode {
	var code wire.ErrorCode
	if errors.As(err, &code) {
		return code
	}
	return 0
}
