package partition

import (
	"fmt"

	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/wire"
)

// Apply folds one committed entry into the state and completes the local requests that proposed it. An error is always an
// *InvariantError: nothing of the entry was applied, rs are not completed, and no later entry will be accepted.
func (p *Replica) Apply(e segment.Entry, rs []replica.Request) error {
	if p.fenced {
		return p.broken(e, "applied after a broken invariant", nil)
	}
	kind, body, control := segment.ParseControl(e.Data)
	if !control {
		return p.applyData(e, rs)
	}
	switch kind {
	case segment.KindCommands:
		return p.applyCommands(e, body, rs)
	case segment.KindTrim:
		return p.applyTrim(e, body, rs)
	case segment.KindPurge:
		return p.applyPurge(e, body, rs)
	case segment.KindForget:
		return p.applyForget(e, body)
	case segment.KindTerm, segment.KindConfChange:
		return nil // the host's own
	default:
		return p.broken(e, fmt.Sprintf("unknown kind of record %d", kind), nil)
	}
}

func (p *Replica) broken(e segment.Entry, what string, cause error) error {
	p.fenced = true
	p.stopLeading()
	return &InvariantError{
		Stream: p.cfg.Stream, Topic: p.cfg.Topic, Partition: p.cfg.Partition,
		Index: e.Index, Term: e.Term, What: what, Err: cause,
	}
}

func (p *Replica) applyData(e segment.Entry, rs []replica.Request) error {
	if !segment.IsData(e.Data) {
		return p.broken(e, "neither a batch nor a control record", nil)
	}
	base, count := segment.BaseOffset(e.Data), uint64(segment.MessageCount(e.Data))
	switch {
	case base != p.state.next:
		return p.broken(e, fmt.Sprintf("base offset %d, next offset of the partition %d", base, p.state.next), nil)
	case count == 0 || count > maxOffset-base:
		return p.broken(e, fmt.Sprintf("batch of %d messages at offset %d", count, base), nil)
	}
	p.advance(segment.BaseTimestamp(e.Data))
	p.state.next = base + count
	if o := segment.GetOrigin(e.Data); o.Request != 0 {
		from := identity{wire.U128{Lo: o.ClientLo, Hi: o.ClientHi}, o.User}
		p.dedup.record(from, o.Request, sendOutcome(base), p.state.stamp)
	}
	p.publish()
	for _, r := range rs {
		if s, ok := r.(*Send); ok {
			s.Term, s.Index = e.Term, e.Index
			s.finish()
		}
	}
	return nil
}

// advance moves entry time. It never goes back, so that rows stay in order of use even if a primary's clock misled it.
func (p *Replica) advance(at uint64) { p.state.stamp = max(p.state.stamp, at) }

func (p *Replica) applyCommands(e segment.Entry, body []byte, rs []replica.Request) error {
	// Decoded once in full before anything is changed: an entry is applied whole or not at all.
	check, err := openCommands(body)
	if err != nil {
		return p.broken(e, "offset commands", err)
	}
	for ok := true; ok; {
		_, ok = check.next()
	}
	if check.err != nil {
		return p.broken(e, "offset commands", check.err)
	}

	r, _ := openCommands(body)
	p.advance(r.at)
	results := p.fold.results[:0]
	for c, ok := r.next(); ok; c, ok = r.next() {
		code := p.run(c)
		if len(rs) > 0 {
			results = append(results, code)
		}
	}
	p.publish()
	p.writing = max(0, p.writing-len(rs))
	for _, r := range rs {
		w, ok := r.(*OffsetWrite)
		if !ok {
			continue
		}
		w.Term, w.Index = e.Term, e.Index
		if int(w.command) >= len(results) {
			w.Err = wire.ErrTransientNotCommitted // not reachable: the entry is the one that Fold built
		} else if code := results[w.command]; code != 0 {
			w.Err = code
		}
		w.finish()
	}
	if cap(results) <= foldedKept {
		p.fold.results = results
	}
	return nil
}

// run executes one offset command on the applied state. The result is a function of the state alone.
func (p *Replica) run(c command) wire.ErrorCode {
	if c.request != 0 {
		// Cannot happen while primaries check before they propose; if it does, the first run counts.
		if o, ok := p.dedup.lookup(c.from, c.request); ok {
			if o.isWrite() {
				return o.code()
			}
			return 0
		}
	}
	code := p.change(c)
	if c.request != 0 {
		p.dedup.record(c.from, c.request, writeOutcome(code), p.state.stamp)
	}
	return code
}

func (p *Replica) change(c command) wire.ErrorCode {
	if c.op == opDelete {
		if !p.offsets.remove(c.target) {
			return wire.ErrConsumerOffsetNotFound
		}
		return 0
	}
	if c.offset >= p.state.next {
		return wire.ErrInvalidOffset
	}
	stored, ok := p.offsets.stored[c.target]
	switch {
	case !ok && p.offsets.count(c.target.kind) >= p.cfg.OffsetKeys:
		return wire.ErrTooManyConsumerOffsets
	case ok && c.op == opRaise && stored >= c.offset:
		return 0
	}
	p.offsets.store(c.target, c.offset)
	return 0
}

func (p *Replica) applyForget(e segment.Entry, body []byte) error {
	cutoff, ids, err := decodeForget(body)
	if err != nil {
		return p.broken(e, "forget", err)
	}
	for _, id := range ids {
		p.dedup.forget(id, cutoff)
	}
	return nil
}
