package segment

import (
	"errors"
	"io"
	"math/bits"
	"sort"
	"sync"

	"github.com/whippetmq/whippet/internal/vfs"
)

// gatherItems is how many entries in memory are looked at under one hold of
// the lock.
const gatherItems = 64

// cursorCount is how many readers' places a log remembers.
const cursorCount = 4

// cursor is where a reader of the file stopped, so that the next read of the
// same consumer starts there instead of at the nearest index entry.
type cursor struct {
	offset uint64 // next one of the reader
	s      *seg
	st     state // before the record that has it
}

// ReadBuffer is the result of Read, to be reused: records as a consumer sees
// them, in pieces of memory for one vectored write.
type ReadBuffer struct {
	// First and Last are the offsets of the first and the last message.
	First, Last uint64
	// Count is the number of messages, 0 when there were none.
	Count uint32
	// Bytes is the length of all records.
	Bytes int

	vecs [][]byte
	bufs []*buffer // pooled memory that vecs point into
	mems []Memory  // memory of entries that vecs point into
	// arena is the buffer for headers and small batches, used so far.
	arena []byte
	used  int
	// last is the buffer that the last vec is in, from..to, so that what
	// follows it becomes part of the same vec.
	last     []byte
	from, to int

	grow    func(n int) []byte
	scratch []byte
	items   [gatherItems]struct {
		data []byte
		mem  Memory
		s    *seg
	}
	sc scanner

	next, limit uint64 // next offset, end
	left        uint32 // messages
	room        int    // bytes
}

// Records returns the records' bytes. They are valid until Release, and must
// not be changed.
func (b *ReadBuffer) Records() [][]byte { return b.vecs }

// Release gives the memory back. The buffer is empty then and may be used
// again.
func (b *ReadBuffer) Release() {
	clear(b.vecs)
	for i, p := range b.bufs {
		p.free()
		b.bufs[i] = nil
	}
	for i, m := range b.mems {
		m.Release()
		b.mems[i] = nil
	}
	b.mems = b.mems[:0]
	if cap(b.vecs) > 1<<16 {
		b.vecs = nil
	}
	b.vecs, b.bufs, b.arena, b.used, b.last = b.vecs[:0], b.bufs[:0], nil, 0, nil
	b.First, b.Last, b.Count, b.Bytes = 0, 0, 0, 0
	b.sc = scanner{}
	if cap(b.scratch) > readChunk {
		b.scratch = nil
	}
}

// buffer is pooled memory. A free one's bytes are anything.
type buffer struct {
	b     []byte
	class int
}

const (
	minClass = 12 // 4 KiB
	maxClass = 26 // 64 MiB; larger ones are not kept
)

// bufferPools recycle the memory of reads, by size: class c has 2^c bytes.
var bufferPools [maxClass + 1]sync.Pool

func newBuffer(n int) *buffer {
	class := max(minClass, bits.Len(uint(n-1)))
	if class > maxClass {
		return &buffer{b: make([]byte, n)}
	}
	if p, ok := bufferPools[class].Get().(*buffer); ok {
		return p
	}
	return &buffer{b: make([]byte, 1<<class), class: class}
}

func (p *buffer) free() {
	if p.class > 0 {
		bufferPools[p.class].Put(p)
	}
}

// buffer returns pooled memory that stays until Release.
func (b *ReadBuffer) buffer(n int) []byte {
	p := newBuffer(n)
	b.bufs = append(b.bufs, p)
	return p.b
}

// alloc takes n bytes of the arena, which stay until Release, and returns where
// they begin in it.
func (b *ReadBuffer) alloc(n int) (at int) {
	if len(b.arena)-b.used < n {
		b.arena, b.used = b.buffer(max(n, 4096<<min(len(b.bufs), 4))), 0
	}
	b.used += n
	return b.used - n
}

// add appends bytes of others to the result.
func (b *ReadBuffer) add(p []byte) {
	b.vecs = append(b.vecs, p)
	b.last = nil
	b.Bytes += len(p)
}

// addOwn appends bytes of one of the result's buffers. When they follow the
// last ones they become one piece with them.
func (b *ReadBuffer) addOwn(buf []byte, from, to int) {
	if len(b.last) > 0 && &b.last[0] == &buf[0] && b.to == from {
		b.vecs[len(b.vecs)-1] = buf[b.from:to:to]
	} else {
		b.vecs = append(b.vecs, buf[from:to:to])
		b.last, b.from = buf, from
	}
	b.to = to
	b.Bytes += to - from
}

// Read fills dst with the messages from offset from on: at most maxCount
// messages and about maxBytes bytes (at least one message), none at or behind
// limit. Reading below FirstOffset starts there. Nothing to read is an empty
// result, not an error. Damage is a *DamageError, unless there was something
// to serve before it. dst must be released before its next use.
func (l *Log) Read(dst *ReadBuffer, from uint64, maxCount uint32, maxBytes int, limit uint64) error {
	if dst.grow == nil {
		dst.grow = dst.buffer
	}
	dst.next, dst.limit, dst.left, dst.room = from, limit, maxCount, maxBytes
	missing, hit := 0, true
	for dst.left > 0 && (dst.room > 0 || dst.Count == 0) {
		p, err := l.plan(dst)
		if err != nil {
			return err
		}
		var more bool
		before := dst.next
		switch {
		case p.items > 0:
			more, err = dst.gather(p.items)
		case p.s == nil:
			// Nothing further.
		default:
			hit = false
			more, err = l.readFile(dst, &p)
			if vfs.IsNotExist(err) && missing < 3 {
				// The segment was deleted since the plan was made: what is
				// left begins later.
				missing++
				continue
			}
			if err == nil && more && dst.next == before {
				err = &DamageError{File: p.s.path + logSuffix, Position: p.endPos, Reason: errMissing.Error()}
			}
		}
		if err != nil && dst.Count == 0 {
			return err
		}
		if err != nil || !more {
			break // what is sound is served; the next read reports the error
		}
	}
	if hit {
		l.o.Cache.hits.Add(1)
	} else {
		l.o.Cache.misses.Add(1)
	}
	return nil
}

// readPlan is where the next messages are: items in memory, or a part of a
// file.
type readPlan struct {
	items   int
	s       *seg
	st      state // where to begin, when known
	linked  bool
	known   bool // st is the very record, from a cursor
	sealed  bool
	endPos  int64 // of the part
	end     state // of the segment
	average int   // bytes per message
}

// plan finds the next messages of a read.
func (l *Log) plan(dst *ReadBuffer) (p readPlan, err error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if err := l.usable(); err != nil {
		return p, err
	}
	segs := l.visible()
	if first := segs[0].start.offset; dst.next < first {
		if dst.Count > 0 {
			return p, nil // deleted while being read
		}
		dst.next = first
	}
	last := segs[len(segs)-1]
	dst.limit = min(dst.limit, last.end.offset)
	if dst.next >= dst.limit {
		return p, nil
	}
	s := segs[sort.Search(len(segs), func(i int) bool { return segs[i].end.offset > dst.next })]
	p.endPos = s.end.pos
	// Entries of the segment in memory: always its last ones.
	first := sort.Search(len(l.items), func(i int) bool { return l.items[i].st.index > s.start.index })
	if rest := l.items[first:]; len(rest) > 0 && rest[0].s == s {
		at := sort.Search(len(rest), func(i int) bool { return rest[i].s != s || rest[i].st.offset > dst.next })
		it := &rest[at]
		if KindOf(it.data) == KindData && BaseOffset(it.data) <= dst.next {
			for room := dst.room; at < len(rest) && p.items < gatherItems && rest[at].s.start.gen == s.start.gen && (room > 0 || p.items == 0); at++ {
				it := &rest[at]
				if it.mem != nil {
					it.mem.Retain()
				}
				dst.items[p.items].data, dst.items[p.items].mem, dst.items[p.items].s = it.data, it.mem, it.s
				p.items++
				room -= len(it.data)
			}
			return p, nil
		}
		p.endPos = rest[0].pos()
	}
	p.s, p.end, p.sealed = s, s.end, s != l.active() && s.entries == nil
	p.average = int(s.end.dataBytes()/int64(s.end.offset-s.start.offset)) + 1
	p.st, p.linked = s.start, true
	if l.cursors != nil {
		for i := range l.cursors {
			if c := &l.cursors[i]; c.s == s && c.offset == dst.next {
				p.st, p.known, p.linked = c.st, true, true
				return p, nil
			}
		}
	}
	if !p.sealed {
		if i := byOffset(s.entries, dst.next-s.start.offset); i > 0 {
			p.st, p.linked = s.entries[i].state(s.start), false
		}
	}
	return p, nil
}

// gather serves entries from memory. It reports whether the result can take
// more.
func (b *ReadBuffer) gather(n int) (more bool, err error) {
	more = true
	for i := range n {
		it := &b.items[i]
		if KindOf(it.data) == KindData {
			if more, err = b.take(it.data, nil, 0); err != nil {
				err = &DamageError{File: it.s.path + logSuffix, Reason: err.Error()}
			}
			if !more {
				break
			}
		}
	}
	// What was not taken is retained a little longer than needed, with the rest.
	for i := range n {
		if m := b.items[i].mem; m != nil {
			b.mems = append(b.mems, m)
		}
	}
	clear(b.items[:n])
	return more, err
}

var (
	errFrames  = errors.New("frames do not fill the batch")
	errMissing = errors.New("offset is missing in the log")
)

// take adds the wanted messages of a batch, with a clean header. The batch is
// at own[at:] when own is given, which is memory of the result, and else in
// memory that others share. It reports whether more can follow.
func (b *ReadBuffer) take(batch, own []byte, at int) (more bool, err error) {
	base, count := BaseOffset(batch), uint64(MessageCount(batch))
	end := min(base+count, b.limit)
	if end <= b.next {
		return true, nil
	}
	if base > b.next {
		return false, errMissing
	}
	skip := b.next - base
	want := min(end-b.next, uint64(b.left))
	whole := skip == 0 && want == count
	switch {
	case whole && len(batch) <= b.room:
		b.whole(batch, own, at)
	case whole && b.Count > 0:
		return false, nil
	default:
		if want, err = b.slice(batch, own, at, skip, want); err != nil || want == 0 {
			return false, err
		}
	}
	if b.Count == 0 {
		b.First = b.next
	}
	b.next += want
	b.Last = b.next - 1
	b.Count += uint32(want)
	b.left -= uint32(want)
	return b.next == base+count && b.wants(), nil
}

// wants tells whether the result can take more.
func (b *ReadBuffer) wants() bool {
	return b.left > 0 && (b.room > 0 || b.Count == 0) && b.next < b.limit
}

// whole adds a whole batch.
func (b *ReadBuffer) whole(batch, own []byte, at int) {
	b.room -= len(batch)
	if own != nil {
		clear(batch[wireHeaderEnd:headerSize])
		b.addOwn(own, at, at+len(batch))
		return
	}
	n := headerSize
	if len(batch) <= headerSize+smallBody {
		n = len(batch)
	}
	at = b.alloc(n)
	h := b.arena[at : at+n]
	copy(h, batch[:wireHeaderEnd])
	clear(h[wireHeaderEnd:headerSize])
	copy(h[headerSize:], batch[headerSize:])
	b.addOwn(b.arena, at, at+n)
	if n < len(batch) {
		b.add(batch[headerSize:])
	}
}

// slice adds messages skip..skip+want-1 of a batch, fewer when the room ends,
// under a header that describes only them. It returns how many.
func (b *ReadBuffer) slice(batch, own []byte, at int, skip, want uint64) (uint64, error) {
	blob := batch[headerSize:]
	from := 0
	for range skip {
		n := frameLength(blob[from:])
		if n < 0 {
			return 0, errFrames
		}
		from += n
	}
	room := b.room - headerSize
	to, got := from, uint64(0)
	for got < want {
		n := frameLength(blob[to:])
		if n < 0 {
			return 0, errFrames
		}
		if to-from+n > room && (got > 0 || b.Count > 0) {
			break
		}
		to += n
		got++
	}
	if got == 0 {
		return 0, nil
	}
	frames := blob[from:to]
	buf := own
	if own != nil {
		// In place, right before the frames: the header moves forward over
		// frames that nobody asked for.
		at += from
	} else {
		at = b.alloc(headerSize)
		buf = b.arena
	}
	h := buf[at : at+headerSize]
	copy(h, batch[:wireHeaderEnd])
	clear(h[wireHeaderEnd:])
	le.PutUint64(h[offBatchLength:], uint64(headerSize+len(frames)))
	le.PutUint32(h[offCount:], uint32(got))
	le.PutUint64(h[offChecksum:], batchChecksum(h, frames, &b.scratch))
	b.room -= headerSize + len(frames)
	if own != nil {
		b.addOwn(buf, at, at+headerSize+len(frames))
	} else {
		b.addOwn(buf, at, at+headerSize)
		b.add(frames)
	}
	return got, nil
}

// readFile serves a part of a file. It reports whether the result can take
// more after it.
func (l *Log) readFile(dst *ReadBuffer, p *readPlan) (more bool, err error) {
	s := p.s
	if p.sealed && !p.known {
		entries, err := l.indexOf(s)
		if err != nil {
			return false, err
		}
		if i := byOffset(entries, dst.next-s.start.offset); i > 0 {
			p.st, p.linked = entries[i].state(s.start), false
		}
	}
	hd, err := l.o.Handles.acquire(l.fs, s, false)
	if err != nil {
		return false, err
	}
	defer l.o.Handles.release(hd)
	if more, err = l.scanPart(dst, p, hd.f); err == nil {
		return more, nil
	}
	return l.readAgain(dst, p, hd.f, err)
}

// readAgain looks at the error of a read. When the index pointed to where no
// record is, the index is made again and the part is read with it: the index is
// a hint, the log decides. Everything else is reported.
func (l *Log) readAgain(dst *ReadBuffer, p *readPlan, f vfs.File, err error) (more bool, _ error) {
	s := p.s
	var broken *breakError
	if errors.As(err, &broken) && !p.linked && broken.pos == p.st.pos && p.sealed {
		entries, ierr := l.rebuildIndex(s, p.end)
		if ierr != nil {
			return false, ierr
		}
		l.o.Handles.putIndex(s, entries)
		p.st, p.linked = s.start, true
		if i := byOffset(entries, dst.next-s.start.offset); i > 0 {
			p.st, p.linked = entries[i].state(s.start), false
		}
		more, err = l.scanPart(dst, p, f)
	}
	return more, asDamage(s.path+logSuffix, err)
}

// scanPart reads from p.st on until the result is full or the part ends.
func (l *Log) scanPart(dst *ReadBuffer, p *readPlan, f vfs.File) (more bool, err error) {
	want := dst.room
	if n := uint64(dst.left) * uint64(p.average); n < uint64(want) {
		want = int(n + n/4)
	}
	want = max(want, 0) + 8<<10
	if !p.known {
		want += indexBytes / 2
	}
	left := p.endPos - p.st.pos
	sc := &dst.sc
	*sc = scanner{f: f, st: p.st, linked: p.linked, end: p.endPos}
	sc.grow = dst.grow
	sc.buf = dst.buffer(int(min(int64(want), left, readChunk)))
	for {
		before, linked := sc.st, sc.linked
		r, b, err := sc.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return false, err
		}
		if !r.data() || r.offset+uint64(r.count) <= dst.next {
			continue
		}
		if reason := verifyBody(b, &r, &dst.scratch); reason != "" {
			return false, &breakError{pos: r.pos, index: r.index, reason: reason}
		}
		more, err := dst.take(b, sc.buf, int(r.pos-sc.base))
		if err != nil {
			return false, &breakError{pos: r.pos, index: r.index, reason: err.Error()}
		}
		if !more {
			if dst.next >= r.offset+uint64(r.count) {
				before, linked = sc.st, sc.linked
			}
			l.remember(dst.next, p, before, linked, f)
			return false, nil
		}
	}
	return dst.wants(), nil
}

// remember keeps a reader's place and asks the system to read on from there,
// when the reader has come from such a place itself.
func (l *Log) remember(offset uint64, p *readPlan, st state, linked bool, f vfs.File) {
	if !linked || st.pos >= p.endPos {
		return
	}
	l.mu.Lock()
	if l.cursors == nil {
		l.cursors = new([cursorCount]cursor)
	}
	at := -1
	for i := range l.cursors {
		// The reader's old place, or the same place again.
		if c := &l.cursors[i]; c.s == p.s && (c.offset == offset || p.known && c.st == p.st) {
			at = i
		}
	}
	if at < 0 {
		at = l.cursor
		l.cursor = (l.cursor + 1) % cursorCount
	}
	l.cursors[at] = cursor{offset, p.s, st}
	l.mu.Unlock()
	if p.known && st.pos/readChunk != p.st.pos/readChunk {
		// Once per chunk: the call walks the page cache.
		f.AdviseWillNeed(st.pos, readChunk)
	}
}
