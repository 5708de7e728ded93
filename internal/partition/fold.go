package partition

import (
	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/wire"
)

// folder gathers the offset writes of a loop turn. It is empty until the first write, and gives large memory back, so that
// partitions without offset traffic cost nothing.
type folder struct {
	kept     []*OffsetWrite    // admitted, to be folded
	requests []replica.Request // result of Fold
	commands []command
	lastOf   map[offsetKey]int32 // newest command of a key in commands
	body     []byte
	record   []byte
	results  []wire.ErrorCode // of the entry that is being applied
}

// foldedKept is the number of writes up to which the folder keeps its memory for the next turn.
const foldedKept = 1024

// drop empties the folder and returns what was kept.
func (f *folder) drop() []*OffsetWrite {
	kept := f.kept
	f.kept = nil
	return kept
}

// place finds the command that carries w, adding one when needed, and returns its position.
//
// Two writes share a command only when neither carries an identity and no other command touches the key between them, so
// that every result and the final offset are what they would have been one by one. With a purge in flight (merge = false)
// none do: the offsets that were valid at admission may not be any more, each for itself.
func (f *folder) place(w *OffsetWrite, merge bool) int32 {
	c := command{op: w.Op.command(), target: offsetKey{w.Kind, w.Key}, offset: w.Offset}
	if w.Op == DeleteOffset {
		c.offset = 0
	}
	if w.Request != 0 {
		c.from, c.request = identity{w.Client, w.User}, w.Request
	} else if i, ok := f.lastOf[c.target]; ok && merge && f.commands[i].absorb(c) {
		return i
	}
	i := int32(len(f.commands))
	f.commands = append(f.commands, c)
	f.lastOf[c.target] = i
	return i
}

func (o WriteOp) command() commandOp {
	switch o {
	case DeleteOffset:
		return opDelete
	case RaiseOffset:
		return opRaise
	default:
		return opStore
	}
}

// absorb merges a later write into c where one command can stand for both.
func (c *command) absorb(later command) bool {
	if c.request != 0 || later.request != 0 || c.op == opDelete || later.op == opDelete {
		return false
	}
	if later.op == opStore {
		c.op, c.offset = opStore, later.offset
		return true
	}
	c.offset = max(c.offset, later.offset)
	return true
}

// admitWrite answers an offset write or keeps it for Fold.
func (p *Replica) admitWrite(w *OffsetWrite) {
	target := offsetKey{w.Kind, w.Key}
	switch {
	case !p.leading, len(p.fold.kept) >= p.cfg.Folded:
		w.Fail(replica.ErrNotAdmitted)
		return
	case !validKind(w.Kind), w.Op > RaiseOffset:
		w.Fail(wire.ErrInvalidCommand)
		return
	}
	id := identity{w.Client, w.User}
	if w.Request != 0 {
		// Before the checks of content: a replay gets the answer of the first run, not one of today's state.
		switch v, o := p.decide(id, w.Request, p.entryTime()); v {
		case admit:
		case duplicate:
			w.Duplicate = true
			if o.isWrite() && o.code() != 0 {
				w.Err = o.code()
			}
			w.finish()
			return
		case unknown:
			w.Fail(wire.ErrTransientNotCommitted)
			return
		case refuse:
			w.Fail(replica.ErrNotAdmitted)
			return
		}
	}
	if code, done := p.precheck(w, target); done {
		if w.Request != 0 {
			p.dedup.undo(id, w.Request)
		}
		if code != 0 {
			w.Err = code
		}
		w.finish()
		return
	}
	p.fold.kept = append(p.fold.kept, w)
	p.writing++
}

// precheck answers what the applied state already decides, so that it costs no entry. While other writes are on their way
// the stored offsets are about to change, and only apply can tell.
func (p *Replica) precheck(w *OffsetWrite, target offsetKey) (code wire.ErrorCode, done bool) {
	if w.Op != DeleteOffset && w.Offset >= p.state.next {
		return wire.ErrInvalidOffset, true
	}
	if p.writing > 0 {
		return 0, false
	}
	stored, ok := p.offsets.stored[target]
	switch {
	case w.Op == DeleteOffset:
		return wire.ErrConsumerOffsetNotFound, !ok
	case !ok:
		return wire.ErrTooManyConsumerOffsets, p.offsets.count(target.kind) >= p.cfg.OffsetKeys
	case w.Op == RaiseOffset:
		return 0, stored >= w.Offset // nothing to raise
	}
	return 0, false
}

// Fold turns the offset writes of this turn into one entry and returns it with its requests in admission order. Of writes
// without identity that follow each other on one key only the newest offset is kept; every write with an identity stays
// visible, because apply remembers its request. Both results are valid until the next Fold.
func (p *Replica) Fold() ([]byte, []replica.Request) {
	f := &p.fold
	if len(f.kept) == 0 {
		return nil, nil
	}
	if cap(f.requests) > foldedKept {
		*f = folder{kept: f.kept}
	}
	if f.lastOf == nil {
		f.lastOf = make(map[offsetKey]int32)
	}
	p.admitTime = p.entryTime()

	clear(f.requests)
	f.requests, f.commands = f.requests[:0], f.commands[:0]
	for _, w := range f.kept {
		w.command = f.place(w, !p.purging)
		f.requests = append(f.requests, w)
	}
	clear(f.lastOf)
	clear(f.kept)
	f.kept = f.kept[:0]
	if cap(f.kept) > foldedKept {
		f.kept = nil
	}

	f.body = appendCommands(f.body[:0], p.admitTime, f.commands)
	f.record = segment.AppendControl(f.record[:0], segment.KindCommands, f.body)
	return f.record, f.requests
}
