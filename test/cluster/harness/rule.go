package harness

import (
	"context"
	"fmt"
	"time"
)

// Action is what a rule does to a frame.
type Action struct {
	kind  actionKind
	after int
	delay time.Duration
	reset bool
}

type actionKind uint8

const (
	actPass actionKind = iota
	actCut
	actSwallow
	actDelay
	actHold
)

// Pass lets the frame through: a rule that only counts.
func Pass() Action { return Action{} }

// Cut passes the first n bytes of the frame, all of them when it has no more, and then closes the connection on both sides.
func Cut(n int) Action { return Action{kind: actCut, after: n} }

// CutReset is Cut with a reset instead of an orderly end, as from a host that went away.
func CutReset(n int) Action { return Action{kind: actCut, after: n, reset: true} }

// Swallow drops the frame; the connection goes on.
func Swallow() Action { return Action{kind: actSwallow} }

// Delay passes the frame so much later; what follows on the connection in its direction stays behind it.
func Delay(d time.Duration) Action { return Action{kind: actDelay, delay: d} }

// Hold keeps the frame, and what follows on the connection in its direction, until the rule is removed.
func Hold() Action { return Action{kind: actHold} }

// Rule acts on frames that pass a proxy. The first rule that matches a frame and is not used up acts; the others do not see
// the frame.
type Rule struct {
	// Name of the rule, in failures.
	Name string
	// Match chooses frames; nil takes all. It is called from the proxy's goroutines, one at a time per rule.
	Match func(*Frame) bool
	// Skip so many matching frames first; they are for the next rules.
	Skip int
	// Times bounds the frames it acts on; 0 = no bound.
	Times int
	// Do is what happens to them.
	Do Action
	// Decide, when it is set, chooses the action per frame instead of Do.
	Decide func(*Frame) Action
}

// ActiveRule is a rule of a proxy.
type ActiveRule struct {
	Rule
	proxy *Proxy

	// Guarded by the proxy's mutex.
	skipped, hits int
	removed       bool
	gate          chan struct{} // closed by Remove
	changed       chan struct{} // closed and renewed at every hit
}

// Hits is how many frames the rule acted on.
func (r *ActiveRule) Hits() int {
	r.proxy.mu.Lock()
	defer r.proxy.mu.Unlock()
	return r.hits
}

// Wait until the rule acted on n frames.
func (r *ActiveRule) Wait(ctx context.Context, n int) error {
	for {
		r.proxy.mu.Lock()
		hits, changed := r.hits, r.changed
		r.proxy.mu.Unlock()
		if hits >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waited for rule %q of proxy %s to act %d times, it did %d times: %w", r.Name, r.proxy.Name, n, hits, context.Cause(ctx))
		}
	}
}

// Remove ends the rule and lets go what it holds.
func (r *ActiveRule) Remove() {
	r.proxy.mu.Lock()
	defer r.proxy.mu.Unlock()
	if r.removed {
		return
	}
	r.removed = true
	close(r.gate)
	for i, other := range r.proxy.rules {
		if other == r {
			r.proxy.rules = append(r.proxy.rules[:i:i], r.proxy.rules[i+1:]...)
			break
		}
	}
}

// Rule adds a rule behind those that are there.
func (p *Proxy) Rule(r Rule) *ActiveRule {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := &ActiveRule{Rule: r, proxy: p, gate: make(chan struct{}), changed: make(chan struct{})}
	p.rules = append(p.rules[:len(p.rules):len(p.rules)], a)
	return a
}

// Observe shows every frame of the proxy to f, which must be quick. Remove ends it.
func (p *Proxy) Observe(f func(*Frame)) *ActiveRule {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := &ActiveRule{proxy: p, gate: make(chan struct{}), changed: make(chan struct{})}
	a.Match = func(frame *Frame) bool {
		f(frame)
		return false
	}
	// In front of the others, which may keep frames from those behind them.
	p.rules = append([]*ActiveRule{a}, p.rules...)
	return a
}

// judge finds what happens to a frame, and what it waits for when it is held. Caller holds mu.
func (p *Proxy) judge(f *Frame) (Action, <-chan struct{}) {
	for _, r := range p.rules {
		if r.Times > 0 && r.hits >= r.Times || r.Match != nil && !r.Match(f) {
			continue
		}
		if r.skipped < r.Skip {
			r.skipped++
			continue
		}
		r.hits++
		close(r.changed)
		r.changed = make(chan struct{})
		if r.Decide != nil {
			return r.Decide(f), r.gate
		}
		return r.Do, r.gate
	}
	return Action{}, nil
}
