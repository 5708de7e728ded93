package partition

import (
	"fmt"

	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/wire"
)

// CutKind is what a Cut removes.
type CutKind uint8

// Kinds of cuts.
const (
	// TrimBelow removes the messages below an offset on a segment boundary (retention, delete segments; engine §2.6).
	TrimBelow CutKind = iota
	// PurgeAll removes all messages and offsets and starts the given purge generation at offset 0 (messages §8).
	PurgeAll
)

// Cut removes messages on every replica: a replica.Request that only the primary's retention and purge make. Which offset
// may go is decided by its submitter.
type Cut struct {
	Kind  CutKind
	Value uint64 // lowest offset to keep, or the generation
	Owner any

	// Done is called exactly once, on the shard's goroutine, when the cut is applied here or failed. It must not block.
	Done func(*Cut)

	Err   error // result; see StatusOf
	Term  uint64
	Index uint64

	before uint64 // offset to number from when the proposal of a purge is refused
}

// cutSize is what a Cut counts against the bound of an inbox.
const cutSize = 128

// Size is what the request counts for (replica.Request).
func (c *Cut) Size() int { return cutSize }

// Proposed does nothing: a cut lends no memory (replica.Request).
func (c *Cut) Proposed() {}

// Fail ends the request without a result of the state machine (replica.Request).
func (c *Cut) Fail(err error) {
	c.Err = err
	c.finish()
}

func (c *Cut) finish() {
	if c.Done != nil {
		c.Done(c)
	}
}

// admitCut returns the record of a cut. Cuts are rare: the record is allocated.
func (p *Replica) admitCut(c *Cut) []byte {
	if !p.leading {
		c.Fail(replica.ErrNotAdmitted)
		return nil
	}
	switch c.Kind {
	case TrimBelow:
		switch {
		case c.Value > p.state.next:
			c.Fail(wire.ErrInvalidOffset)
			return nil
		case c.Value <= p.state.keep:
			c.finish()
			return nil
		}
		return segment.AppendControl(nil, segment.KindTrim, appendTrim(nil, c.Value))
	case PurgeAll:
		switch {
		case c.Value <= p.state.generation:
			c.finish()
			return nil
		case p.purging:
			c.Fail(replica.ErrNotAdmitted)
			return nil
		}
		// Batches admitted from here on stand behind the purge in the log, where offsets start again.
		c.before, p.admitNext, p.purging = p.admitNext, 0, true
		return segment.AppendControl(nil, segment.KindPurge, appendPurge(nil, c.Value))
	default:
		c.Fail(wire.ErrInvalidCommand)
		return nil
	}
}

// applyTrim raises the lowest offset kept. It only ever rises and never passes the end.
func (p *Replica) applyTrim(e segment.Entry, body []byte, rs []replica.Request) error {
	keep, err := decodeTrim(body)
	switch {
	case err != nil:
		return p.broken(e, "trim", err)
	case keep > p.state.next:
		// A purge came between proposal and apply: what the trim meant is gone already.
		keep = 0
	}
	if keep > p.state.keep {
		p.state.keep = keep
		p.publish()
		if log := p.log.Load(); log != nil {
			log.Trim(keep)
		}
	}
	completeCuts(e, rs)
	return nil
}

// applyPurge starts a new generation: no messages, no offsets, next offset 0. Dedup rows stay, so that a send from before
// the purge is not executed by a replay that comes after it. The log itself reads the generation from the record.
func (p *Replica) applyPurge(e segment.Entry, body []byte, rs []replica.Request) error {
	generation, err := decodePurge(body)
	switch {
	case err != nil:
		return p.broken(e, "purge", err)
	case generation <= p.state.generation:
		return p.broken(e, fmt.Sprintf("purge generation %d after %d", generation, p.state.generation), nil)
	}
	p.state.next, p.state.keep, p.state.generation = 0, 0, generation
	p.purging = false
	p.offsets.reset(nil)
	p.publish()
	completeCuts(e, rs)
	return nil
}

func completeCuts(e segment.Entry, rs []replica.Request) {
	for _, r := range rs {
		if c, ok := r.(*Cut); ok {
			c.Term, c.Index = e.Term, e.Index
			c.finish()
		}
	}
}
