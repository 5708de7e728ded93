package segment

import (
	"fmt"

	"github.com/zeebo/xxh3"
)

// smallBody is the size up to which a body is copied behind its header, which
// costs less than a buffer of its own in the vectored write.
const smallBody = 1024

// cut describes what a cut of the log's end changes.
type cut struct {
	st      state // behind the last entry that stays
	at      int   // segment that becomes active
	s       *seg
	entries []indexEntry // of its index, those that stay
	remove  []*seg       // later segments, newest first
}

// Place puts entries into the log: consecutive indexes, the first at most one
// behind the end. Entries from the first index on that are there already are
// cut. Data batches must have the offsets that follow. On an error nothing has
// changed. The log keeps Entry.Data. Owner.
func (l *Log) Place(entries []Entry) (*Write, error) {
	if err := l.Err(); err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("%w: no entries", ErrInvalidEntry)
	}
	first, last := entries[0].Index, l.active().end.index
	switch {
	case first == 0 || first > last+1:
		return nil, fmt.Errorf("%w: index %d after %d", ErrInvalidEntry, first, last)
	case first <= l.committed:
		return nil, fmt.Errorf("%w: index %d, committed %d", ErrCommitted, first, l.committed)
	}
	var c *cut
	cur, st := l.active(), l.active().end
	if first <= last {
		var err error
		if c, err = l.planCut(first - 1); err != nil {
			return nil, err
		}
		cur, st = c.s, c.st
	}
	need, err := checkEntries(entries, st)
	if err != nil {
		return nil, err
	}
	w := newWrite(l, first, entries[len(entries)-1].Index, need)
	if len(l.cuts) > 0 {
		for _, old := range l.cuts {
			w.ops = append(w.ops, op{kind: opCut, s: old.s, cut: old})
		}
		l.cuts = nil
	}
	if c != nil {
		w.ops = append(w.ops, op{kind: opCut, s: c.s, cut: c})
	}
	w.build(entries, cur, st)
	l.publish(w, c)
	return w, nil
}

// checkEntries tells whether entries continue the log at st, and how much
// memory their headers take.
func checkEntries(entries []Entry, st state) (need int, err error) {
	bad := func(e *Entry, format string, args ...any) error {
		return fmt.Errorf("%w: index %d: %s", ErrInvalidEntry, e.Index, fmt.Sprintf(format, args...))
	}
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Index != st.index+1:
			return 0, bad(e, "follows index %d", st.index)
		case e.Term < st.term || e.Term == 0:
			return 0, bad(e, "term %d after term %d", e.Term, st.term)
		case len(e.Data) > maxRecord:
			return 0, bad(e, "%d bytes", len(e.Data))
		}
		st.index, st.term = e.Index, e.Term
		if kind, body, ok := ParseControl(e.Data); ok {
			if kind == KindData {
				return 0, bad(e, "control entry of kind 0")
			}
			if kind == KindPurge {
				if len(body) < 8 || le.Uint64(body) <= st.gen {
					return 0, bad(e, "purge without a newer generation than %d", st.gen)
				}
				st.gen, st.offset = le.Uint64(body), 0
			}
			need += controlHeaderSize + 8
			if len(body) <= smallBody {
				need += len(body)
			}
			continue
		}
		switch {
		case !IsData(e.Data):
			return 0, bad(e, "neither a batch nor a control entry")
		case le.Uint32(e.Data[offStampKind:]) != stampData:
			return 0, bad(e, "batch without an origin stamp")
		case BaseOffset(e.Data) != st.offset:
			return 0, bad(e, "base offset %d instead of %d", BaseOffset(e.Data), st.offset)
		case MessageCount(e.Data) == 0:
			return 0, bad(e, "batch without messages")
		}
		st.offset += uint64(MessageCount(e.Data))
		need += headerSize
		if len(e.Data) <= headerSize+smallBody {
			need += len(e.Data) - headerSize
		}
	}
	return need, nil
}

// build makes the records, segments and index entries of a write.
func (w *Write) build(entries []Entry, cur *seg, st state) {
	l := w.l
	w.active, w.end = cur, st
	if !cur.placed {
		w.beginSegment(cur)
	} else {
		w.beginOp(cur, st.pos)
	}
	for i := range entries {
		e := &entries[i]
		before := st
		var ts uint64
		if kind, body, ok := ParseControl(e.Data); ok {
			st = w.control(e, kind, body, st)
		} else {
			st = w.data(e, st)
			ts = st.ts
		}
		if entry, ok := cur.x.add(cur.start, before, ts); ok {
			w.idx = append(w.idx, indexRec{cur, entry})
			w.ops[len(w.ops)-1].idx++
		}
		w.items = append(w.items, item{e.Data, e.Mem, cur, st})
		w.end = st
		if next, ended := l.ended(cur.start, st); ended {
			w.ops = append(w.ops, op{kind: opSeal, s: cur, end: st})
			cur = l.newSegment(next, cur)
			st = cur.start
			w.segs = append(w.segs, cur)
			w.beginSegment(cur)
		}
	}
	w.active = cur
}

// beginOp starts a run of bytes in a segment.
func (w *Write) beginOp(s *seg, pos int64) {
	w.run = -1
	w.ops = append(w.ops, op{kind: opWrite, s: s, off: pos, v0: len(w.vecs), v1: len(w.vecs)})
}

// beginSegment starts a run with the header of a new file.
func (w *Write) beginSegment(s *seg) {
	w.beginOp(s, 0)
	w.ops[len(w.ops)-1].create = true
	s.placed = true
	putSegmentHeader(w.alloc(segmentHeaderSize), w.l.o.Group, s.start)
}

// data adds the record of a batch: the entry's header with the stamp filled in,
// and the rest of the entry as it is.
func (w *Write) data(e *Entry, st state) state {
	small := len(e.Data) <= headerSize+smallBody
	n := headerSize
	if small {
		n = len(e.Data)
	}
	b := w.alloc(n)
	copy(b, e.Data[:offTerm])
	le.PutUint64(b[offTerm:], e.Term)
	le.PutUint64(b[offIndex:], e.Index)
	le.PutUint64(b[offChainBefore:], st.chain)
	clear(b[offChainBefore+8 : offChainAfter])
	after := chainHash(st.chain, b[:offChainAfter])
	le.PutUint64(b[offChainAfter:], after)
	if small {
		copy(b[headerSize:], e.Data[headerSize:])
	} else {
		w.raw(e.Data[headerSize:])
	}
	return st.after(&record{
		index: e.Index, term: e.Term, after: after, length: int64(len(e.Data)),
		offset: BaseOffset(b), ts: BaseTimestamp(b), count: MessageCount(b),
	})
}

// control adds the record of a control entry.
func (w *Write) control(e *Entry, kind Kind, body []byte, st state) state {
	length := controlLength(int64(len(body)))
	small := len(body) <= smallBody
	n := controlHeaderSize
	if small {
		n = int(length)
	}
	b := w.alloc(n)
	if len(e.Data) == 0 {
		AppendControl(b[:0], KindTerm, nil)
	} else {
		copy(b, e.Data[:controlMarkerSize])
	}
	le.PutUint64(b[offControlLength:], uint64(length))
	le.PutUint64(b[offControlTerm:], e.Term)
	le.PutUint64(b[offControlIndex:], e.Index)
	le.PutUint64(b[offControlChainBefore:], st.chain)
	le.PutUint64(b[offControlBodySum:], xxh3.Hash(body))
	le.PutUint64(b[offControlBodyLength:], uint64(len(body)))
	after := chainHash(st.chain, b[:offControlChainAfter])
	le.PutUint64(b[offControlChainAfter:], after)
	if small {
		clear(b[controlHeaderSize+copy(b[controlHeaderSize:], body):])
	} else {
		w.raw(body)
		if pad := int(length) - controlHeaderSize - len(body); pad > 0 {
			clear(w.alloc(pad))
		}
	}
	r := record{kind: kind, index: e.Index, term: e.Term, after: after, length: length}
	if kind == KindPurge {
		r.generation = le.Uint64(body)
	}
	return st.after(&r)
}

// publish makes a write's entries part of the log.
func (l *Log) publish(w *Write, c *cut) {
	var freed, added int64
	l.mu.Lock()
	if c != nil {
		freed = l.applyCut(c)
	}
	l.segs = append(l.segs, w.segs...)
	for i := range w.idx {
		s := w.idx[i].s
		s.entries = append(s.entries, w.idx[i].e)
	}
	if len(l.items) == 0 && cap(l.items) == 0 {
		l.items = make([]item, 0, max(4, len(w.items)))
	}
	for i := range w.items {
		it := &w.items[i]
		added += it.cost()
		it.s.end = it.st
		l.addTerm(it.st.index, it.st.term)
	}
	l.items = append(l.items, w.items...)
	l.outstanding = append(l.outstanding, w)
	e := min(l.applied, l.written)
	l.mu.Unlock()
	l.appended += uint64(w.bytes)
	l.o.Cache.used.Add(added - freed)
	l.evictTo(e)
}

// planCut finds out what a cut behind an index changes; it changes nothing.
func (l *Log) planCut(last uint64) (*cut, error) {
	at := l.segmentOf(last + 1)
	if at < 0 {
		return nil, fmt.Errorf("%w: index %d", ErrTrimmed, last)
	}
	s := l.segs[at]
	st, err := l.stateBehind(last)
	if err != nil {
		return nil, err
	}
	c := &cut{st: st, at: at, s: s}
	entries, err := l.indexOf(s)
	if err != nil {
		return nil, err
	}
	if n := byIndex(entries, last+1-s.firstIndex()) + 1; n > 0 {
		// An entry for the first record that goes, goes too.
		if uint64(entries[n-1].index) == last+1-s.firstIndex() {
			n--
		}
		c.entries = append([]indexEntry(nil), entries[:n]...)
	}
	for i := len(l.segs) - 1; i > at; i-- {
		c.remove = append(c.remove, l.segs[i])
	}
	return c, nil
}

// applyCut takes the entries behind a cut out of the log; l.mu is held. It
// returns how many bytes of memory became free.
func (l *Log) applyCut(c *cut) (freed int64) {
	s := c.s
	for _, old := range l.segs[c.at+1:] {
		l.o.Handles.dropIndex(old)
	}
	l.cursors = nil
	clear(l.segs[c.at+1:])
	l.segs = l.segs[:c.at+1]
	l.o.Handles.dropIndex(s)
	s.entries, s.end = c.entries, c.st
	s.x.resume(s.entries, s.start, s.end)
	n := len(l.items)
	for n > 0 && l.items[n-1].st.index > c.st.index {
		n--
		freed += l.items[n].cost()
	}
	clear(l.items[n:])
	l.items = l.items[:n]
	for n := len(l.terms); n > 0 && l.terms[n-1].index > c.st.index; n-- {
		l.terms = l.terms[:n-1]
	}
	return freed
}

// Undo takes a write that failed, and all later ones, out of the log, which
// then ends before the lowest of their indexes. Their entries may be placed
// again. None of them may be in Do; Do of an undone
// write is refused, and each still has to be released. Owner.
func (l *Log) Undo(w *Write) error {
	l.mu.RLock()
	n := len(l.outstanding)
	for n > 0 && l.outstanding[n-1] != w {
		n--
	}
	undone := l.outstanding[max(0, n-1):]
	l.mu.RUnlock()
	if n == 0 {
		return ErrOrder
	}
	// A later write may have cut below this one; what it replaced is gone, so
	// the log ends below both.
	first := w.first
	for _, u := range undone {
		first = min(first, u.first)
	}
	c, err := l.planCut(first - 1)
	if err != nil {
		return err
	}
	// Cuts that were not done must still be done, in their order. Those that
	// were done must not be repeated: the files of what was written after them
	// have to go first.
	var cuts []*cut
	for _, u := range undone {
		for i, o := range u.ops {
			switch {
			case o.kind == opCut && i >= u.next:
				cuts = append(cuts, o.cut)
			case o.kind == opCut:
			case o.create:
				o.s.placed = false
			}
		}
	}
	l.mu.Lock()
	freed := l.applyCut(c)
	for _, u := range undone {
		u.undone = true
	}
	clear(undone)
	l.outstanding = l.outstanding[:n-1]
	l.cuts = append(append(l.cuts, cuts...), c)
	idle := len(l.outstanding) == 0
	l.mu.Unlock()
	l.o.Cache.used.Add(-freed)
	// With no other write under way the files can be cut at once. What cannot
	// be done now is done by the next write.
	for idle && len(l.cuts) > 0 {
		if err := l.cutFiles(l.cuts[0]); err != nil {
			return l.Err()
		}
		l.cuts = l.cuts[1:]
	}
	return nil
}

// segmentOf returns the segment that has an index, or would have it as its
// next, preferring the later one. -1 when the index was trimmed. Owner, or
// with l.mu held.
func (l *Log) segmentOf(index uint64) int {
	for i := len(l.segs) - 1; i >= 0; i-- {
		if l.segs[i].firstIndex() <= index {
			return i
		}
	}
	return -1
}

// stateBehind returns the state behind an entry. Owner.
func (l *Log) stateBehind(index uint64) (state, error) {
	at := l.segmentOf(index + 1)
	if at < 0 {
		return state{}, ErrTrimmed
	}
	s := l.segs[at]
	switch {
	case index > l.active().end.index:
		return state{}, ErrOutOfRange
	case index == s.start.index:
		return s.start, nil
	case index == s.end.index:
		return s.end, nil
	}
	l.mu.RLock()
	if i := l.itemOf(index); i >= 0 {
		defer l.mu.RUnlock()
		return l.items[i].st, nil
	}
	l.mu.RUnlock()
	sc, done, err := l.scanFrom(s, index)
	if err != nil {
		return state{}, err
	}
	defer done()
	for sc.st.index < index {
		if _, _, err := sc.next(); err != nil {
			return state{}, asDamage(s.path+logSuffix, unexpectedEnd(sc, err))
		}
	}
	return sc.st, nil
}

// itemOf returns the place of an entry in memory, or -1. Owner, or with l.mu
// held.
func (l *Log) itemOf(index uint64) int {
	if len(l.items) == 0 || index < l.items[0].st.index {
		return -1
	}
	if i := int(index - l.items[0].st.index); i < len(l.items) {
		return i
	}
	return -1
}

// PositionAt returns the state behind an entry, from FirstIndex-1 to
// LastIndex. Owner.
func (l *Log) PositionAt(index uint64) (Position, error) {
	if err := l.Err(); err != nil {
		return Position{}, err
	}
	st, err := l.stateBehind(index)
	return st.position(), err
}
