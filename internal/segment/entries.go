package segment

import (
	"errors"
	"fmt"
	"io"
)

// Entries returns entries from lo on, up to hi-1: at least one, and else no more
// than maxBytes of data or than one place (memory, one file) has. Their Data is what was placed and must not be changed.
// Damage is a *DamageError. Owner.
func (l *Log) Entries(lo, hi uint64, maxBytes int) ([]Entry, error) {
	if err := l.Err(); err != nil {
		return nil, err
	}
	switch {
	case lo < l.segs[0].firstIndex():
		return nil, ErrTrimmed
	case hi > l.active().end.index+1 || lo > hi:
		return nil, ErrOutOfRange
	case lo == hi:
		return nil, nil
	}
	// The cache may evict for another log's sake at any time.
	l.mu.RLock()
	items := l.items
	if i := l.itemOf(lo); i >= 0 {
		items = append([]item(nil), items[i:min(len(items), i+int(hi-lo))]...)
		for i := range items {
			if m := items[i].mem; m != nil {
				m.Retain() // nobody says when the caller is done with it
			}
		}
		l.mu.RUnlock()
		return entriesOf(items, maxBytes), nil
	}
	if len(items) > 0 {
		hi = min(hi, items[0].st.index)
	}
	l.mu.RUnlock()
	l.o.Cache.entryMisses.Add(1)
	return l.readEntries(lo, hi, maxBytes)
}

func entriesOf(items []item, maxBytes int) []Entry {
	n, size := 0, 0
	for n < len(items) {
		size += len(items[n].data)
		if n > 0 && size > maxBytes {
			break
		}
		n++
	}
	out := make([]Entry, n)
	for i := range out {
		it := &items[i]
		out[i] = Entry{Index: it.st.index, Term: it.st.term, Data: it.data}
	}
	return out
}

// readEntries reads entries that are not in memory, of one segment.
func (l *Log) readEntries(lo, hi uint64, maxBytes int) ([]Entry, error) {
	s := l.segs[l.segmentOf(lo)]
	hi = min(hi, s.end.index+1)
	sc, done, err := l.scanFrom(s, lo)
	if err != nil {
		return nil, err
	}
	defer done()
	for sc.st.index+1 < lo {
		if _, _, err := sc.next(); err != nil {
			return nil, asDamage(s.path+logSuffix, unexpectedEnd(sc, err))
		}
	}
	// From here on everything is kept: fresh memory, at most a chunk at once.
	budget := min(int64(maxBytes), sc.end-sc.st.pos)
	sc = &scanner{f: sc.f, st: sc.st, linked: sc.linked, end: sc.end, grow: func(need int) []byte {
		return make([]byte, max(int64(need), min(budget+headerSize, readChunk)))
	}}
	// The first read needs not be a whole chunk when little is asked for.
	first := min(max(budget+headerSize, headerSize), readChunk, sc.end-sc.st.pos)
	sc.buf = make([]byte, first)
	var out []Entry
	var scratch []byte
	size := 0
	for sc.st.index+1 < hi {
		r, b, err := sc.next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = unexpectedEnd(sc, err)
			}
			err = asDamage(s.path+logSuffix, err)
		} else if reason := verifyBody(b, &r, &scratch); reason != "" {
			err = &DamageError{File: s.path + logSuffix, Position: r.pos, Index: r.index, Reason: reason}
		}
		if err != nil {
			if len(out) > 0 {
				return out, nil // the next call reports it
			}
			return nil, fmt.Errorf("read entry %d: %w", sc.st.index+1, err)
		}
		data := entryData(b, &r)
		if size += len(data); len(out) > 0 && size > maxBytes {
			break
		}
		budget -= r.length
		budget = max(budget, 0)
		out = append(out, Entry{Index: r.index, Term: r.term, Data: data})
	}
	return out, nil
}

// entryData turns a record in place into the entry's data as it was placed.
func entryData(b []byte, r *record) []byte {
	if r.data() {
		clear(b[offTerm:headerSize])
		return b[:r.length:r.length]
	}
	if r.kind == KindTerm && r.bodyLength == 0 {
		return nil
	}
	// The marker goes right before the body.
	const at = controlHeaderSize - controlMarkerSize
	copy(b[at:], b[:controlMarkerSize])
	end := controlHeaderSize + r.bodyLength
	return b[at:end:end]
}
