package segment

import (
	"sort"
	"sync"

	"github.com/whippetmq/whippet/internal/vfs"
)

// Options are the settings of a log.
type Options struct {
	// Group is the id of the group, which every segment header carries.
	Group uint64
	// SegmentBytes is how many data bytes a segment takes before the next one
	// begins; the batch that reaches it is written whole. Zero is 1 GiB.
	SegmentBytes int64
	// ControlBytes is the same for control records. Zero is 64 MiB.
	ControlBytes int64
	// PurgeGeneration is the generation in which a new, empty log starts.
	PurgeGeneration uint64
	// Cache is the tail cache, shared by the logs of a shard. Nil makes one
	// of the default size for this log alone.
	Cache *Cache
	// Handles holds the open files, shared by the logs of a node. Nil makes
	// one for this log alone.
	Handles *Handles
	// Writeback starts the writing of full stretches to the device, shared by
	// the logs of a node. Nil starts it on the goroutine that writes.
	Writeback *Writeback
	// Preallocate reserves the space of a segment when it is made.
	Preallocate bool
	// SameBoot says that the machine has not gone down since the log was last
	// written (or was shut down in an orderly way): everything that was
	// written is in the files and only the last write may be torn. Without it
	// whatever was not flushed may be missing, and all bodies behind the
	// verified index are checked.
	SameBoot bool
	// SyncOnOpen makes Open flush what an earlier process wrote and may not
	// have flushed. Groups whose acknowledgement promises a flush need it,
	// because after Open the entries count as stored.
	SyncOnOpen bool
}

// Recovery tells what Open found.
type Recovery struct {
	// FirstIndex and LastIndex are the range of the log.
	FirstIndex, LastIndex uint64
	// Torn is the file in which a torn end was cut off, empty when none was.
	Torn string
	// TornBytes is how much was cut off there.
	TornBytes int64
	// Removed lists later files that went with a torn end.
	Removed []string
	// Rebuilt counts sparse indexes that were missing or unusable.
	Rebuilt int
	// Walked is how many bytes of records were looked at.
	Walked int64
}

// Position is the state of the log between two entries. It is all that is
// needed to continue a log behind an entry, and is equal on all replicas.
type Position struct {
	// Index and Term are of the last entry before.
	Index, Term uint64
	// NextOffset is the offset of the next message.
	NextOffset uint64
	// Chain is the chain value.
	Chain uint64
	// Timestamp is the base timestamp of the last data batch before.
	Timestamp uint64
	// Generation is the purge generation.
	Generation uint64
}

// Info describes one segment.
type Info struct {
	// File is the path of the segment.
	File string
	// Generation is the purge generation.
	Generation uint64
	// BaseOffset is the offset of the first message, NextOffset the one after
	// the last; they are equal when there is no data.
	BaseOffset, NextOffset uint64
	// FirstIndex and LastIndex are the raft indexes; LastIndex is
	// FirstIndex-1 in an empty segment.
	FirstIndex, LastIndex uint64
	// LastTimestamp is the base timestamp of the last batch up to its end.
	LastTimestamp uint64
	// DataBytes counts the data records, FileBytes the whole file.
	DataBytes, FileBytes int64
	// Sealed tells that nothing is appended to it any more.
	Sealed bool
}

// seg is one segment. What is not marked otherwise is guarded by Log.mu; path,
// key and start never change.
type seg struct {
	path  string // without suffix
	key   uint64 // of its index entries
	start state
	// end is the state behind its last record as placed.
	end state
	// entries is the sparse index of the active segment, and of a sealed one
	// until it is written. After that it is in Handles.
	entries []indexEntry
	x       indexer // owner

	// created tells that the file is there with its header.
	created bool
	// changes counts what was done to the file; flushed is the count that
	// the last flush covered. They differ while the file is dirty, and as long
	// pin keeps it open.
	changes, flushed uint64
	pin              *handle
	// written is the end of the file, durable the position up to which it was
	// flushed, cuts how often it was cut.
	written, durable int64
	cuts             int

	// placed tells that a write with the file's header was placed. Owner.
	placed bool

	// Used by Write.Do only, which runs for one write of a log at a time.
	unsaved   []indexEntry // index entries of written records, not yet in the file
	saved     int          // entries in the index file, -1 when not known
	writeback int64        // up to where writing to the device was asked for
}

func (s *seg) firstIndex() uint64 { return s.start.index + 1 }

// Log is the log of one group. See the package comment for who may call what.
type Log struct {
	fs  vfs.FS
	dir string
	o   Options

	mu sync.RWMutex // guards what follows, except where the owner is alone
	// segs is never empty. The last one is active. Segments of an older purge
	// generation may stand before.
	segs []*seg
	// items are the entries in memory, oldest first: always the last ones of
	// the log.
	items []item
	// terms are the indexes at which a term begins.
	terms []termRun
	// readGen is the purge generation that readers see.
	readGen uint64
	// outstanding are the writes that are placed and not done, oldest first.
	outstanding []*Write
	// cuts are cuts of writes that were undone, to be done by the next one.
	cuts []*cut
	// written is the last index whose entry, and all before, is in the file.
	written  uint64
	closed   bool
	fatal    error
	dirty    []*seg
	dirtyDir []string
	// dirtyPath tells that directories above the log may not have been flushed
	// since an earlier process made them.
	dirtyPath bool
	pins      map[*pin]struct{}
	cursors   *[cursorCount]cursor
	cursor    int // the next one to replace

	// Owner only.
	committed, applied uint64
	evictable          uint64 // told to the cache
	checkpointed       uint64
	trim               uint64
	appended           uint64
}

// item is an entry in memory.
type item struct {
	data []byte
	mem  Memory
	s    *seg
	st   state // behind the entry
}

// pos is where the entry's record begins in its segment.
func (it *item) pos() int64 { return it.st.pos - recordLength(it.data) }

func (it *item) cost() int64 {
	if it.mem != nil {
		return int64(it.mem.Size()) + itemOverhead
	}
	return int64(len(it.data)) + itemOverhead
}

// termRun says that the entries from an index on have a term.
type termRun struct{ index, term uint64 }

type pin struct{ first uint64 }

func (o Options) withDefaults() Options {
	if o.SegmentBytes <= 0 || o.SegmentBytes > defaultSegmentBytes {
		o.SegmentBytes = defaultSegmentBytes
	}
	if o.ControlBytes <= 0 || o.ControlBytes > defaultControlBytes {
		o.ControlBytes = defaultControlBytes
	}
	if o.Cache == nil {
		o.Cache = NewCache(defaultCacheBytes)
	}
	if o.Handles == nil {
		o.Handles = NewHandles(defaultMaxFiles, defaultIndexBytes)
	}
	return o
}

func (l *Log) active() *seg { return l.segs[len(l.segs)-1] }

// newSegment describes the segment that starts at st behind the segment before
// (nil for the first).
func (l *Log) newSegment(st state, before *seg) *seg {
	st.pos, st.ctrl = segmentHeaderSize, 0
	repeated := before != nil && before.start.gen == st.gen && before.start.offset == st.offset
	name := segmentName(st.offset, st.index+1, repeated)
	return l.segmentAt(generationDir(l.dir, st.gen)+"/"+name, st)
}

func (l *Log) segmentAt(path string, st state) *seg {
	return &seg{path: path, key: indexKey(l.o.Group, st), start: st, end: st, written: segmentHeaderSize}
}

// ended tells that nothing may follow in the segment, and with which offset the
// next one starts. It depends on the records only, so all replicas agree.
func (l *Log) ended(start, end state) (next state, ended bool) {
	next = end
	if end.gen != start.gen {
		next.offset = 0
		return next, true
	}
	return next, end.dataBytes() >= l.o.SegmentBytes || end.ctrl >= l.o.ControlBytes
}

// FirstIndex is the index of the first entry; LastIndex+1 when the log is empty.
func (l *Log) FirstIndex() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.segs[0].firstIndex()
}

// LastIndex is the index of the last entry placed.
func (l *Log) LastIndex() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.active().end.index
}

// Term returns the term of an entry from FirstIndex-1 to LastIndex, from
// memory. Others are ErrTrimmed or ErrOutOfRange.
func (l *Log) Term(i uint64) (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	first := &l.segs[0].start
	switch {
	case i < first.index:
		return 0, ErrTrimmed
	case i == first.index:
		return first.term, nil
	case i > l.active().end.index:
		return 0, ErrOutOfRange
	}
	n := sort.Search(len(l.terms), func(k int) bool { return l.terms[k].index > i })
	if n == 0 {
		return first.term, nil
	}
	return l.terms[n-1].term, nil
}

// addTerm records the term of an entry; l.mu is held or the log not yet shared.
func (l *Log) addTerm(index, term uint64) {
	last := l.segs[0].start.term
	if n := len(l.terms); n > 0 {
		last = l.terms[n-1].term
	}
	if term != last {
		l.terms = append(l.terms, termRun{index, term})
	}
}

// NextOffset is the offset of the next message at the end of the log.
func (l *Log) NextOffset() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.active().end.offset
}

// FirstOffset is the lowest offset that Read can serve; it equals the next
// offset when there is no message.
func (l *Log) FirstOffset() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.visible()[0].start.offset
}

// visible returns the segments that readers see; l.mu is held. It is never
// empty.
func (l *Log) visible() []*seg {
	lo, hi := 0, len(l.segs)
	for lo < hi-1 && l.segs[lo].start.gen < l.readGen {
		lo++
	}
	for hi > lo+1 && l.segs[hi-1].start.gen > l.readGen {
		hi--
	}
	return l.segs[lo:hi]
}

// LastTimestamp is the base timestamp of the last data batch placed. It is 0
// when Open found no batch, which happens after a trim of all sealed segments:
// the caller's checkpoint keeps the highest timestamp beside it.
func (l *Log) LastTimestamp() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.active().end.ts
}

// Size is the number of bytes of data records that Read can serve.
func (l *Log) Size() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var n int64
	for _, s := range l.visible() {
		n += s.end.dataBytes()
	}
	return n
}

// SegmentCount counts segments with data plus the active one.
func (l *Log) SegmentCount() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	segs := l.visible()
	n := 1
	for _, s := range segs[:len(segs)-1] {
		if s.end.offset > s.start.offset {
			n++
		}
	}
	return n
}

// Segments describes the segments, oldest first, those of an older purge
// generation that still has to be deleted included. The last one is active.
func (l *Log) Segments() []Info {
	l.mu.RLock()
	defer l.mu.RUnlock()
	out := make([]Info, len(l.segs))
	for i, s := range l.segs {
		out[i] = Info{
			File: s.path + logSuffix, Generation: s.start.gen,
			BaseOffset: s.start.offset, NextOffset: s.end.offset,
			FirstIndex: s.firstIndex(), LastIndex: s.end.index, LastTimestamp: s.end.ts,
			DataBytes: s.end.dataBytes(), FileBytes: s.end.pos, Sealed: i < len(l.segs)-1,
		}
	}
	return out
}

// Appended is the number of bytes placed since Open, for the caller's decision
// when to write a checkpoint. Owner.
func (l *Log) Appended() uint64 { return l.appended }

// LastSealed is the last index of the newest sealed segment, 0 without one.
func (l *Log) LastSealed() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if n := len(l.segs); n > 1 {
		return l.segs[n-2].end.index
	}
	return 0
}

// Err is the error that made the log unusable, nil when it is fine.
func (l *Log) Err() error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.usable()
}

// usable returns why the log refuses work; l.mu is held.
func (l *Log) usable() error {
	if l.fatal != nil {
		return l.fatal
	}
	if l.closed {
		return ErrClosed
	}
	return nil
}

// Committed raises the index below which nothing is cut. Owner.
func (l *Log) Committed(index uint64) { l.committed = max(l.committed, index) }

// Applied raises the index up to which entries may leave the memory, and shows
// a purge to readers once it is reached. It implies Committed. Owner.
func (l *Log) Applied(index uint64) {
	if index <= l.applied {
		return
	}
	l.applied = index
	l.Committed(index)
	l.mu.Lock()
	l.showPurges()
	e := min(l.applied, l.written)
	l.mu.Unlock()
	l.evictTo(e)
}

// showPurges moves the readers to the newest generation whose purge is
// applied; l.mu is held.
func (l *Log) showPurges() {
	for _, s := range l.segs {
		if s.start.gen > l.readGen && s.start.index <= l.applied {
			l.readGen = s.start.gen
		}
	}
}

// evictTo tells the cache that entries up to an index may go.
func (l *Log) evictTo(index uint64) {
	if index > l.evictable {
		l.evictable = index
		l.o.Cache.release(l, index)
	}
	l.o.Cache.reclaim()
}

// evict takes entries up to an index out of memory until enough bytes are free,
// and tells whether more of them are left.
func (l *Log) evict(index uint64, enough int64) (more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, freed := 0, int64(0)
	for n < len(l.items) && l.items[n].st.index <= index && freed < enough {
		it := &l.items[n]
		freed += it.cost()
		if it.mem != nil {
			it.mem.Release()
		}
		n++
	}
	l.dropItems(n)
	l.o.Cache.used.Add(-freed)
	return len(l.items) > 0 && l.items[0].st.index <= index
}

// dropItems forgets the oldest n entries in memory; l.mu is held. An empty list
// gives its memory back.
func (l *Log) dropItems(n int) {
	if n == len(l.items) {
		l.items = nil
		return
	}
	clear(l.items[:n])
	l.items = l.items[n:]
}

// Close writes what is left of the sparse index and closes the files. It does
// not flush. Owner.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	segs := l.segs
	var freed int64
	for i := range l.items {
		freed += l.items[i].cost()
	}
	l.items = nil
	fatal := l.fatal
	l.mu.Unlock()
	l.o.Cache.used.Add(-freed)
	var err error
	if fatal == nil {
		err = l.saveIndex(l.active())
	}
	for _, s := range segs {
		l.mu.Lock()
		hd := s.pin
		s.pin = nil
		l.mu.Unlock()
		if hd != nil {
			l.o.Handles.unpin(hd)
		}
		l.o.Handles.drop(s)
	}
	return err
}
