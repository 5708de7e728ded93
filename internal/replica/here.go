package replica

import "context"

// maxRounds is how many rounds of a shard a submitter runs before it leaves the rest to the loop: its own request is in
// the first one, and its client waits for the answer.
const maxRounds = 2

// SubmitHere is Submit for a goroutine that has nothing better to do than to wait for the outcome: when nobody runs the
// shard, it does, so that the outcome is there, if it needs neither a flush nor another node, when SubmitHere returns. That
// saves two switches between goroutines per request. The caller must hold no lock that an outcome takes.
func (g *Group) SubmitHere(ctx context.Context, r Request) error { return g.submitHere(ctx, r) }

// TrySubmitHere is SubmitHere that never waits for room: ErrBusy.
func (g *Group) TrySubmitHere(r Request) error {
	var never context.Context // nil = do not wait
	return g.submitHere(never, r)
}

func (g *Group) submitHere(ctx context.Context, r Request) error {
	if err := g.admissible(r); err != nil {
		return err
	}
	run, err := g.shard.inbox.put(ctx, g, r)
	if run {
		g.shard.runHere()
	}
	return err
}

// runHere runs the shard on the goroutine of a submitter.
func (s *shard) runHere() {
	if s.host.cfg.Manual {
		s.inbox.signal()
		return
	}
	defer func() {
		if p := recover(); p != nil {
			// What is broken is the shard, whoever ran it: the loop ends the process.
			s.panicked = p
			s.inbox.signal()
		}
	}()
	for range maxRounds {
		// When the loop has to end, or to sleep less than it does, it goes on with the shard.
		if !s.round() && s.closing == nil && s.wakeEvery() >= s.every && s.inbox.free() {
			return
		}
	}
	s.inbox.signal()
}
