package segment

import (
	"errors"
	"io"
	"sort"
	"sync"

	"github.com/whippetmq/whippet/internal/vfs"
)

// headerBuffers are the buffers of header walks.
var headerBuffers = sync.Pool{New: func() any { b := make([]byte, headerChunk); return &b }}

// indexOf returns the sparse index of a segment, from memory, from its file, or
// made again from the log. It may be shorter than the segment. The caller is
// the owner or has a sealed segment.
func (l *Log) indexOf(s *seg) ([]indexEntry, error) {
	l.mu.RLock()
	active, entries, end := s == l.active(), s.entries, s.end
	l.mu.RUnlock()
	if active || entries != nil {
		return entries, nil
	}
	if entries, ok := l.o.Handles.index(s); ok {
		return entries, nil
	}
	idx, err := readIndex(l.fs, s.path+indexSuffix, s.key, s.start, end.pos)
	if err != nil {
		return nil, err
	}
	entries = idx.entries
	if len(entries) == 0 && end.pos > segmentHeaderSize {
		if entries, err = l.rebuildIndex(s, end); err != nil {
			return nil, err
		}
	}
	l.o.Handles.putIndex(s, entries)
	return entries, nil
}

// rebuildIndex makes the index of a sealed segment from its records and
// replaces the file.
func (l *Log) rebuildIndex(s *seg, end state) ([]indexEntry, error) {
	hd, err := l.o.Handles.acquire(l.fs, s, false)
	if err != nil {
		return nil, err
	}
	defer l.o.Handles.release(hd)
	sc := &scanner{f: hd.f, st: s.start, linked: true, end: end.pos, headers: true}
	entries, err := walkIndex(sc, s.start)
	if err != nil {
		return nil, asDamage(s.path+logSuffix, err)
	}
	// A hint: without the file it is made again another time.
	_ = writeIndex(l.fs, s.path+indexSuffix, s.key, s.start, entries, &end)
	return entries, nil
}

// walkIndex walks a scanner to its end and returns the index entries.
func walkIndex(sc *scanner, start state) (entries []indexEntry, err error) {
	var x indexer
	for {
		before := sc.st
		r, _, err := sc.next()
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return entries, err
		}
		if e, ok := x.add(start, before, r.ts); ok {
			entries = append(entries, e)
		}
	}
}

// scanFrom returns a header scanner that stands at or before the record of an
// index, as near as the sparse index allows. done ends its use. Owner, or a
// sealed segment.
func (l *Log) scanFrom(s *seg, index uint64) (sc *scanner, done func(), err error) {
	entries, err := l.indexOf(s)
	if err != nil {
		return nil, nil, err
	}
	st, linked := s.start, true
	if i := byIndex(entries, index-s.firstIndex()); i > 0 {
		st, linked = entries[i].state(s.start), false
	}
	hd, err := l.o.Handles.acquire(l.fs, s, false)
	if err != nil {
		return nil, nil, err
	}
	l.mu.RLock()
	end := s.end.pos
	l.mu.RUnlock()
	buf := headerBuffers.Get().(*[]byte)
	sc = &scanner{f: hd.f, st: st, linked: linked, end: end, headers: true, buf: *buf}
	return sc, func() {
		l.o.Handles.release(hd)
		headerBuffers.Put(buf)
	}, nil
}

// unexpectedEnd turns the end of a file that should go on into a break.
func unexpectedEnd(sc *scanner, err error) error {
	if errors.Is(err, io.EOF) {
		return sc.broken("log ends before its last record")
	}
	return err
}

// OffsetAtTime returns the offset of the first message of the first batch
// whose base timestamp is at least ts, and false when there is none.
func (l *Log) OffsetAtTime(ts uint64) (uint64, bool, error) {
	for try := 0; ; try++ {
		offset, ok, err := l.offsetAtTime(ts)
		// A segment that was deleted meanwhile is no longer part of the answer.
		if !vfs.IsNotExist(err) || try == 3 {
			return offset, ok, err
		}
	}
}

func (l *Log) offsetAtTime(ts uint64) (uint64, bool, error) {
	l.mu.RLock()
	if err := l.usable(); err != nil {
		l.mu.RUnlock()
		return 0, false, err
	}
	var s *seg
	for _, v := range l.visible() {
		if v.end.ts >= ts && v.end.offset > v.start.offset {
			s = v
			break
		}
	}
	if s == nil {
		l.mu.RUnlock()
		return 0, false, nil
	}
	active := s == l.active()
	entries, start, end := s.entries, s.start, s.end.pos
	first := sort.Search(len(l.items), func(i int) bool { return l.items[i].st.index > start.index })
	if rest := l.items[first:]; len(rest) > 0 && rest[0].s == s {
		end = rest[0].pos()
		// All before an entry is older than ts when the highest timestamp up
		// to it is; else the batch can also be before, in the file.
		if end == segmentHeaderSize || rest[0].st.ts < ts {
			k := sort.Search(len(rest), func(i int) bool { return rest[i].st.ts >= ts })
			for KindOf(rest[k].data) != KindData {
				k++
			}
			offset := BaseOffset(rest[k].data)
			l.mu.RUnlock()
			return offset, true, nil
		}
	}
	l.mu.RUnlock()
	if !active && entries == nil {
		var err error
		if entries, err = l.indexOf(s); err != nil {
			return 0, false, err
		}
	}
	st, linked := start, true
	if i := byTime(entries, ts); i > 0 {
		st, linked = entries[i].state(start), false
	}
	hd, err := l.o.Handles.acquire(l.fs, s, false)
	if err != nil {
		return 0, false, err
	}
	defer l.o.Handles.release(hd)
	buf := headerBuffers.Get().(*[]byte)
	defer headerBuffers.Put(buf)
	sc := &scanner{f: hd.f, st: st, linked: linked, end: end, headers: true, buf: *buf}
	for {
		r, _, err := sc.next()
		if errors.Is(err, io.EOF) {
			// The first one in memory, then.
			return sc.st.offset, true, nil
		}
		if err != nil {
			return 0, false, asDamage(s.path+logSuffix, err)
		}
		if r.data() && r.ts >= ts {
			return r.offset, true, nil
		}
	}
}
