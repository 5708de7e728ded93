package segment

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/whippetmq/whippet/internal/vfs"
)

// arenaKeep is the largest memory that a released write keeps.
const arenaKeep = 1 << 20

type opKind uint8

const (
	opWrite opKind = iota // write vecs[v0:v1] at off of s, a new file if create
	opSeal                // finish the index of s, whose end state is end
	opCut                 // cut the files back
)

type op struct {
	kind   opKind
	create bool
	s      *seg
	off    int64
	v0, v1 int
	idx    int // number of index entries
	end    state
	cut    *cut
}

type indexRec struct {
	s *seg
	e indexEntry
}

// Write is a part of the log that has its place but is not yet written.
type Write struct {
	l           *Log
	first, last uint64
	bytes       int64
	arena       []byte
	run         int // start of the last vec in the arena, -1 when it is elsewhere
	vecs        [][]byte
	ops         []op
	idx         []indexRec
	items       []item // for publish
	segs        []*seg // new ones
	active      *seg
	end         state

	next    int // first operation not done
	nextIdx int // its index entries
	undone  bool
	err     error
}

// writes recycles the memory of writes; it holds nothing that matters.
var writes = sync.Pool{New: func() any { return new(Write) }}

func newWrite(l *Log, first, last uint64, need int) *Write {
	w := writes.Get().(*Write)
	w.l, w.first, w.last, w.run = l, first, last, -1
	if cap(w.arena) < need {
		w.arena = make([]byte, 0, need+2*segmentHeaderSize)
	}
	return w
}

// alloc returns n bytes of the arena, which become the next bytes of the
// current operation.
func (w *Write) alloc(n int) []byte {
	if cap(w.arena)-len(w.arena) < n {
		// The old memory stays with the vecs that point to it.
		w.arena, w.run = make([]byte, 0, max(n, 4096)), -1
	}
	start := len(w.arena)
	w.arena = w.arena[:start+n]
	if w.run < 0 {
		w.run = start
		w.addVec(nil)
	}
	w.vecs[len(w.vecs)-1] = w.arena[w.run:]
	w.bytes += int64(n)
	return w.arena[start:]
}

// raw makes memory of the caller the next bytes of the current operation.
func (w *Write) raw(b []byte) {
	w.addVec(b)
	w.run = -1
	w.bytes += int64(len(b))
}

func (w *Write) addVec(b []byte) {
	w.vecs = append(w.vecs, b)
	w.ops[len(w.ops)-1].v1 = len(w.vecs)
}

// First is the index of the first entry of the write.
func (w *Write) First() uint64 { return w.first }

// Last is the index of the last entry of the write.
func (w *Write) Last() uint64 { return w.last }

// Bytes is the number of bytes that Do writes.
func (w *Write) Bytes() int64 { return w.bytes }

// Err is the outcome of the last Do, Sync or Flush.
func (w *Write) Err() error { return w.err }

// Release gives the write's memory back for reuse. The write must be done or
// undone, or its log closed, and must not be used afterwards.
func (w *Write) Release() {
	clear(w.vecs)
	clear(w.ops)
	clear(w.idx)
	clear(w.items)
	clear(w.segs)
	arena := w.arena
	if cap(arena) > arenaKeep {
		arena = nil
	}
	vecs, items := w.vecs[:0], w.items[:0]
	if cap(items) > 4096 {
		vecs, items = nil, nil
	}
	*w = Write{arena: arena[:0], vecs: vecs, ops: w.ops[:0], idx: w.idx[:0], items: items, segs: w.segs[:0]}
	writes.Put(w)
}

// Do cuts and writes the files. After an error the write may be done again or
// undone with Log.Undo; later writes of the log are refused until then.
func (w *Write) Do() error {
	w.err = w.do()
	return w.err
}

func (w *Write) do() error {
	l := w.l
	if err := l.turn(w); err != nil {
		return err
	}
	for w.next < len(w.ops) {
		var err error
		switch o := &w.ops[w.next]; o.kind {
		case opWrite:
			idx := w.idx[w.nextIdx : w.nextIdx+o.idx]
			if err = l.write(o, w.vecs[o.v0:o.v1], idx); err == nil {
				w.nextIdx += o.idx
			}
		case opSeal:
			l.sealIndex(o.s, o.end)
		case opCut:
			err = l.cutFiles(o.cut)
		}
		if err != nil {
			if vfs.IsDiskFull(err) {
				err = fmt.Errorf("%w: %w", ErrDiskFull, err)
			}
			return fmt.Errorf("write log of group %d: %w", l.o.Group, err)
		}
		w.next++
	}
	l.did(w.last, 1)
	return nil
}

// turn reports whether ws are the next writes to be done.
func (l *Log) turn(ws ...*Write) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if err := l.usable(); err != nil {
		return err
	}
	for i, w := range ws {
		if w.undone || len(l.outstanding) <= i {
			return ErrOrder
		}
		if l.outstanding[i] != w {
			if failed := l.outstanding[0].err; failed != nil {
				return fmt.Errorf("an earlier write is not done: %w", failed)
			}
			return ErrOrder
		}
	}
	return nil
}

// did notes that the first n outstanding writes are done, which end with index last.
func (l *Log) did(last uint64, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outstanding = slices.Delete(l.outstanding, 0, n)
	// A later write may have cut into these and be not yet written.
	l.written = last
	for _, o := range l.outstanding {
		l.written = min(l.written, o.first-1)
	}
	if len(l.outstanding) == 0 {
		// The indexes of sealed segments are in their files now and may leave
		// the memory.
		for i := len(l.segs) - 2; i >= 0 && l.segs[i].entries != nil; i-- {
			l.o.Handles.putIndex(l.segs[i], l.segs[i].entries)
			l.segs[i].entries = nil
		}
	}
}

// togetherBytes is about how much one call writes for several writes.
const togetherBytes = 4 << 20

// together does several writes with one call: those at the beginning of ws that follow each other in one file. It gives
// their number, or 0 when there are not two, or when it failed: they are as before then, to be done one by one.
func together(ws []*Write) int {
	first := ws[0]
	n, bytes := 0, int64(0)
	for _, w := range ws {
		if w.l != first.l || len(w.ops) != 1 || w.next > 0 || bytes > togetherBytes {
			break
		}
		o, from := &w.ops[0], &first.ops[0]
		if o.kind != opWrite || o.create || o.s != from.s || o.off != from.off+bytes {
			break
		}
		n++
		bytes += w.bytes
	}
	if n < 2 || first.l.turn(ws[:n]...) != nil {
		return 0
	}
	var vecs [][]byte
	var idx []indexRec
	for _, w := range ws[:n] {
		vecs = append(vecs, w.vecs...)
		idx = append(idx, w.idx...)
	}
	if first.l.write(&first.ops[0], vecs, idx) != nil {
		return 0
	}
	for _, w := range ws[:n] {
		w.next, w.nextIdx, w.err = 1, len(w.idx), nil
	}
	first.l.did(ws[n-1].last, n)
	return n
}

// write does one run of bytes, which begins where o says; idx are the index entries that go with it.
func (l *Log) write(o *op, vecs [][]byte, idx []indexRec) error {
	s := o.s
	if o.create {
		if err := l.makeDir(filepath.Dir(s.path)); err != nil {
			return err
		}
	}
	l.mu.RLock()
	pinned := s.pin != nil
	l.mu.RUnlock()
	if !pinned {
		if other := l.o.Handles.crowd(l); other != nil {
			_ = other.Sync() // an error is that log's, which remembers it
		}
	}
	hd, err := l.o.Handles.acquire(l.fs, s, o.create)
	if err != nil {
		return err
	}
	defer l.o.Handles.release(hd)
	if o.create && l.o.Preallocate {
		if err := hd.f.Preallocate(0, l.o.SegmentBytes); err != nil {
			l.undoWrite(o, hd)
			return err
		}
	}
	n, err := hd.f.WritevAt(vecs, o.off)
	l.changed(s, hd, o.off+int64(n), o.create)
	if err != nil {
		l.undoWrite(o, hd)
		return err
	}
	for _, r := range idx {
		s.unsaved = append(s.unsaved, r.e)
	}
	if len(s.unsaved) >= indexBatch {
		// The index can be made again from the log, so a failure to write
		// it is not one of the write.
		_ = l.saveIndex(s)
	}
	l.writeBack(s, hd, o.off+int64(n))
	return nil
}

// undoWrite takes back what a failed run may have left in the file. When that
// fails too, the rest has no valid record behind the log's end and is cut by
// the next write or at the next start.
func (l *Log) undoWrite(o *op, hd *handle) {
	if o.create {
		l.mu.Lock()
		o.s.created = false
		l.mu.Unlock()
		l.o.Handles.drop(o.s)
		_ = l.fs.Remove(o.s.path + logSuffix)
		return
	}
	_ = hd.f.Truncate(o.off)
}

// makeDir makes the directory of a generation and remembers which directories
// have to be flushed for it.
func (l *Log) makeDir(dir string) error {
	dirs, err := vfs.MakeDirs(l.fs, dir)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range append(dirs, dir) {
		if !slices.Contains(l.dirtyDir, d) {
			l.dirtyDir = append(l.dirtyDir, d)
		}
	}
	return nil
}

// changed notes that a file was written to. It is called after the I/O, so
// that a flush which began before does not count for it.
func (l *Log) changed(s *seg, hd *handle, end int64, created bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.changes++
	s.written = end
	s.created = s.created || created
	if s.pin != hd {
		if s.pin != nil {
			l.o.Handles.unpin(s.pin)
		}
		l.o.Handles.pin(hd, l)
		s.pin = hd
	}
	if !slices.Contains(l.dirty, s) {
		l.dirty = append(l.dirty, s)
	}
}

// cutFiles brings the files to the state of a cut: later files go, newest
// first, then the rest of the file at the cut. Index entries go durably before
// the records that they vouch for, since recovery takes a record that a
// durable entry vouches for and that is not there as damage.
func (l *Log) cutFiles(c *cut) error {
	for _, s := range c.remove {
		if err := l.removeSegment(s); err != nil {
			return err
		}
		// One after the other, so that a crash leaves no gap.
		if err := l.fs.SyncDir(filepath.Dir(s.path)); err != nil && !vfs.IsNotExist(err) {
			return l.fail(err)
		}
	}
	s := c.s
	s.unsaved = nil
	if kept := len(c.entries); s.saved < 0 || s.saved > kept || len(c.remove) > 0 {
		if err := l.cutIndex(s, kept); err != nil {
			return err
		}
		if s.saved < 0 {
			s.saved = kept
		}
		s.saved = min(s.saved, kept)
	}
	// What stays and was not saved yet is not worth remembering; the index is
	// a prefix until it is made again.
	s.unsaved = append(s.unsaved, c.entries[min(s.saved, len(c.entries)):]...)
	l.mu.RLock()
	created := s.created
	l.mu.RUnlock()
	if !created {
		return nil
	}
	hd, err := l.o.Handles.acquire(l.fs, s, false)
	if err != nil {
		return err
	}
	defer l.o.Handles.release(hd)
	size, err := hd.f.Size()
	if err != nil {
		return err
	}
	if size > c.st.pos {
		err = hd.f.Truncate(c.st.pos)
		l.changed(s, hd, min(size, c.st.pos), false)
	}
	s.writeback = min(s.writeback, c.st.pos)
	l.mu.Lock()
	s.durable = min(s.durable, c.st.pos)
	s.cuts++
	l.mu.Unlock()
	return err
}

// cutIndex shortens an index file durably.
func (l *Log) cutIndex(s *seg, entries int) error {
	f, err := l.fs.OpenFile(s.path+indexSuffix, os.O_RDWR)
	if vfs.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	size, err := f.Size()
	if n := int64(entries) * indexEntrySize; err == nil && size > n {
		if err = f.Truncate(n); err == nil {
			if serr := f.Datasync(); serr != nil {
				err = l.fail(serr)
			}
		}
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// removeSegment deletes a segment that is no longer part of the log.
func (l *Log) removeSegment(s *seg) error {
	l.mu.Lock()
	hd := s.pin
	s.pin = nil
	s.created = false
	l.dirty = slices.DeleteFunc(l.dirty, func(d *seg) bool { return d == s })
	l.mu.Unlock()
	if hd != nil {
		l.o.Handles.unpin(hd)
	}
	l.o.Handles.drop(s)
	// The index first: without it the log is whole, alone it is nothing.
	for _, suffix := range [...]string{indexSuffix, logSuffix} {
		if err := l.fs.Remove(s.path + suffix); err != nil && !vfs.IsNotExist(err) {
			return err
		}
	}
	return nil
}

// saveIndex appends the index entries of written records to the index file.
func (l *Log) saveIndex(s *seg) error {
	if len(s.unsaved) == 0 {
		return nil
	}
	l.mu.RLock()
	durable := s.durable
	l.mu.RUnlock()
	b := make([]byte, 0, len(s.unsaved)*indexEntrySize)
	for _, e := range s.unsaved {
		b = appendIndexEntry(b, s.key, e, 0, int64(e.pos) <= durable)
	}
	if err := l.writeIndexAt(s, b, s.saved); err != nil {
		return err
	}
	s.saved += len(s.unsaved)
	s.unsaved = s.unsaved[:0]
	return nil
}

// sealIndex completes the index file of a segment that is full.
func (l *Log) sealIndex(s *seg, end state) {
	if l.saveIndex(s) != nil {
		return
	}
	s.unsaved = nil
	_ = l.writeIndexAt(s, appendTrailer(nil, s.key, s.start, end, false), s.saved)
}

func (l *Log) writeIndexAt(s *seg, b []byte, entry int) error {
	flag := os.O_RDWR | os.O_CREATE
	if entry == 0 {
		flag |= os.O_TRUNC
	}
	f, err := l.fs.OpenFile(s.path+indexSuffix, flag)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, int64(entry)*indexEntrySize)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// fail makes the log unusable: after a failed flush nobody knows what is on
// the disk, and the system may have dropped the pages that it could not write,
// so that a second flush would succeed without them.
func (l *Log) fail(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fatal == nil {
		l.fatal = fmt.Errorf("%w: group %d: %w", ErrSyncFailed, l.o.Group, err)
	}
	return l.fatal
}

// Sync makes this and all earlier writes of the log durable.
func (w *Write) Sync() error {
	if w.err == nil {
		w.err = w.l.Sync()
	}
	return w.err
}

// Sync makes everything durable that was written before the call. An error is
// ErrSyncFailed and final.
func (l *Log) Sync() error {
	jobs, dirs, err := l.beginSync(nil)
	if err != nil {
		return err
	}
	for i := range jobs {
		jobs[i].run()
	}
	return l.endSync(jobs, dirs)
}

// syncJob is the flush of one file.
type syncJob struct {
	l       *Log
	s       *seg
	hd      *handle
	changes uint64
	cuts    int
	end     int64
	err     error
}

// run flushes the file. One that an earlier process wrote is not open yet.
func (j *syncJob) run() {
	if j.hd == nil {
		if j.hd, j.err = j.l.o.Handles.acquire(j.l.fs, j.s, false); j.err != nil {
			return
		}
	}
	j.err = j.hd.f.Datasync()
}

// beginSync collects what has to be flushed. Two flushes of one log at the same
// time do the same work twice; each vouches for what it flushed itself.
func (l *Log) beginSync(jobs []syncJob) ([]syncJob, []string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return jobs, nil, err
	}
	for _, s := range l.dirty {
		if s.pin != nil {
			l.o.Handles.retain(s.pin)
		}
		jobs = append(jobs, syncJob{l: l, s: s, hd: s.pin, changes: s.changes, cuts: s.cuts, end: s.written})
	}
	dirs := l.dirtyDir
	if l.dirtyPath && len(jobs)+len(dirs) > 0 {
		dirs = slices.Clone(dirs)
		for d := l.dir; ; d = filepath.Dir(d) {
			dirs = append(dirs, d)
			if d == filepath.Dir(d) {
				break
			}
		}
	}
	return jobs, dirs, nil
}

// endSync flushes the directories and notes what is durable now.
func (l *Log) endSync(jobs []syncJob, dirs []string) error {
	var err error
	for i := range jobs {
		if jobs[i].err != nil && err == nil {
			err = jobs[i].err
		}
	}
	for _, d := range dirs {
		// A directory that is gone, or that is not ours, has nothing of ours.
		if derr := l.fs.SyncDir(d); derr != nil && !vfs.IsNotExist(derr) && !errors.Is(derr, os.ErrPermission) && err == nil {
			err = derr
		}
	}
	if err != nil {
		err = l.fail(err)
	}
	var used, unpin []*handle
	l.mu.Lock()
	for i := range jobs {
		j := &jobs[i]
		if j.hd != nil {
			used = append(used, j.hd)
		}
		if err != nil {
			continue
		}
		s := j.s
		s.flushed = max(s.flushed, j.changes)
		if s.cuts == j.cuts {
			s.durable = max(s.durable, j.end)
		}
		if s.flushed == s.changes {
			if s.pin != nil {
				unpin = append(unpin, s.pin)
				s.pin = nil
			}
			l.dirty = slices.DeleteFunc(l.dirty, func(d *seg) bool { return d == s })
		}
	}
	if err != nil { // nothing is flushed any more, nor written
		for _, s := range l.dirty {
			if s.pin != nil {
				unpin = append(unpin, s.pin)
				s.pin = nil
			}
		}
	}
	if err == nil && len(dirs) > 0 {
		l.dirtyPath = false
		l.dirtyDir = slices.DeleteFunc(slices.Clone(l.dirtyDir), func(d string) bool { return slices.Contains(dirs, d) })
	}
	l.mu.Unlock()
	for _, hd := range used {
		l.o.Handles.release(hd)
	}
	for _, hd := range unpin {
		l.o.Handles.unpin(hd)
	}
	return err
}

// Flush is one flush round: it does all writes, in order, then flushes every
// file that they touched once, at most parallel files at a time. Each write's
// outcome is its Err; the result is the first of them.
func Flush(ws []*Write, parallel int) error {
	type logSync struct {
		l          *Log
		dirs       []string
		from, upTo int
		err        error
	}
	var logs []logSync
	seen := make(map[*Log]int, len(ws))
	for i := 0; i < len(ws); {
		w := ws[i]
		if n := together(ws[i:]); n > 0 {
			i += n
		} else {
			i++
			if w.Do() != nil {
				continue
			}
		}
		if _, ok := seen[w.l]; !ok {
			seen[w.l] = len(logs)
			logs = append(logs, logSync{l: w.l})
		}
	}
	var jobs []syncJob
	for i := range logs {
		g := &logs[i]
		g.from = len(jobs)
		jobs, g.dirs, g.err = g.l.beginSync(jobs)
		g.upTo = len(jobs)
	}
	syncFiles(jobs, parallel)
	for i := range logs {
		g := &logs[i]
		if g.err == nil {
			g.err = g.l.endSync(jobs[g.from:g.upTo], g.dirs)
		}
	}
	var first error
	for _, w := range ws {
		if i, ok := seen[w.l]; ok && w.err == nil {
			w.err = logs[i].err
		}
		if first == nil {
			first = w.err
		}
	}
	return first
}

// syncFiles flushes files on a few goroutines and waits for them.
func syncFiles(jobs []syncJob, parallel int) {
	if len(jobs) <= 1 || parallel <= 1 {
		for i := range jobs {
			jobs[i].run()
		}
		return
	}
	var wg sync.WaitGroup
	next := make(chan *syncJob, len(jobs))
	for i := range jobs {
		next <- &jobs[i]
	}
	close(next)
	for range min(parallel, len(jobs)) {
		wg.Go(func() {
			for j := range next {
				j.run()
			}
		})
	}
	wg.Wait()
}
