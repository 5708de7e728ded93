package segment

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/whippetmq/whippet/internal/vfs"
)

// found is a segment file that recovery looks at.
type found struct {
	path    string // without suffix
	gen     uint64
	offset  uint64
	first   uint64 // from the name, 0 without
	size    int64
	reason  string // why the header is not valid
	start   state
	key     uint64
	trailer state
	sealed  bool // trailer is valid and fits the file
	idx     loadedIndex
	hasIdx  bool

	end   state
	saved int
}

// listSegments returns the segment files of a log directory in their order.
func listSegments(fs vfs.FS, dir string) ([]*found, error) {
	gens, err := fs.List(dir)
	if vfs.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []*found
	for _, g := range gens {
		gen, err := strconv.ParseUint(g.Name, 10, 64)
		if err != nil || !g.Dir || strconv.FormatUint(gen, 10) != g.Name {
			continue
		}
		files, err := fs.List(filepath.Join(dir, g.Name))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			offset, first, ok := parseSegmentName(f.Name)
			if !ok || f.Dir {
				continue
			}
			out = append(out, &found{
				path: filepath.Join(dir, g.Name, strings.TrimSuffix(f.Name, logSuffix)),
				gen:  gen, offset: offset, first: first,
			})
		}
	}
	slices.SortFunc(out, func(a, b *found) int {
		return cmp.Or(cmp.Compare(a.gen, b.gen), cmp.Compare(a.offset, b.offset), cmp.Compare(a.first, b.first))
	})
	return out, nil
}

// readHeader reads the header of a segment file.
func (f *found) readHeader(fs vfs.FS, group uint64) error {
	file, err := fs.OpenFile(f.path+logSuffix, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	if f.size, err = file.Size(); err != nil {
		return err
	}
	var b [segmentHeaderSize]byte
	n, err := file.ReadAt(b[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if otherVersion(b[:n], segmentMagic, segmentVersion) {
		return &VersionError{File: f.path + logSuffix, Version: b[7], Known: segmentVersion}
	}
	g, st, reason := parseSegmentHeader(b[:n])
	switch {
	case reason != "":
	case group != anyGroup && g != group:
		reason = fmt.Sprintf("segment of group %d", g)
	case st.gen != f.gen || st.offset != f.offset || f.first != 0 && st.index+1 != f.first:
		reason = "segment header does not fit the file's name"
	}
	f.reason, f.start, f.end = reason, st, st
	f.key = indexKey(g, st)
	return nil
}

// anyGroup is for tools that look at a directory without knowing its group.
const anyGroup = ^uint64(0)

// recovery is one run of Open.
type recovery struct {
	l        *Log
	verified uint64
	// durable is the highest index that was flushed for certain.
	durable uint64
	files   []*found
	out     Recovery
	scratch []byte
}

// Open opens the log in dir, which is made by the first write when it is
// missing. The index verified is the highest one that a durable checkpoint
// covers (0 without one): entries up to it must be there and whole, and count
// as committed and applied. Damage is a *DamageError, and changes nothing on
// the disk; so is a *VersionError. The caller holds the lock of the node's directory.
func Open(fs vfs.FS, dir string, o Options, verified uint64) (*Log, Recovery, error) {
	l := &Log{fs: fs, dir: filepath.Clean(dir), o: o.withDefaults(), committed: verified, applied: verified}
	l.checkpointed, l.dirtyPath = verified, true
	r := &recovery{l: l, verified: verified, durable: verified}
	if err := r.run(); err != nil {
		return nil, r.out, fmt.Errorf("open log of group %d: %w", o.Group, err)
	}
	l.written, l.evictable = l.active().end.index, l.active().end.index
	l.showPurges()
	r.out.FirstIndex, r.out.LastIndex = l.segs[0].firstIndex(), l.active().end.index
	return l, r.out, nil
}

func (r *recovery) run() error {
	var err error
	if r.files, err = listSegments(r.l.fs, r.l.dir); err != nil {
		return err
	}
	for i, f := range r.files {
		if err := f.readHeader(r.l.fs, r.l.o.Group); err != nil {
			return err
		}
		if f.reason != "" {
			continue
		}
		if err := r.readHints(f, i == len(r.files)-1); err != nil {
			return err
		}
	}
	b, at, err := r.walk()
	if err != nil {
		return err
	}
	if b != nil {
		if err := r.judge(at, b); err != nil {
			return err
		}
	}
	if err := r.complete(b, at); err != nil {
		return err
	}
	if b != nil {
		if err := r.cut(at, b); err != nil {
			return err
		}
	}
	return r.build()
}

// readHints reads what the index files tell: the end of sealed segments, the
// entries of the last one, and what was flushed.
func (r *recovery) readHints(f *found, last bool) error {
	if !last {
		end, durable, ok, err := readTrailer(r.l.fs, f.path+indexSuffix, f.key, f.start)
		if err != nil {
			return err
		}
		f.sealed = ok && end.pos == f.size
		if f.sealed {
			f.trailer = end
			if durable {
				r.durable = max(r.durable, end.index)
			}
			return nil
		}
	}
	return r.loadIndex(f)
}

func (r *recovery) loadIndex(f *found) error {
	if f.hasIdx {
		return nil
	}
	var err error
	if f.idx, err = readIndex(r.l.fs, f.path+indexSuffix, f.key, f.start, f.size); err != nil {
		return err
	}
	f.hasIdx = true
	r.durable = max(r.durable, f.idx.durable)
	if len(f.idx.entries) == 0 && f.size > segmentHeaderSize {
		r.out.Rebuilt++
	}
	return nil
}

// walk follows the log from file to file. It stops at the first place where it
// does not continue, and returns that break and the file it is in; the file's
// end is the state before the break.
func (r *recovery) walk() (*breakError, int, error) {
	var st state
	for i, f := range r.files {
		reason := f.reason
		if reason == "" && i > 0 {
			reason = r.continues(r.files[i-1], f)
		}
		if reason != "" {
			return &breakError{index: st.index + 1, reason: reason}, i, nil
		}
		if i > 0 {
			f.start.ts = r.files[i-1].end.ts
		}
		last := i == len(r.files)-1
		if f.sealed && !last && (r.l.o.SameBoot || f.trailer.index <= r.durable) {
			f.end = f.trailer
		} else if b, err := r.walkFile(f); b != nil || err != nil {
			return b, i, err
		}
		st = f.end
	}
	return nil, len(r.files), nil
}

// continues tells why a segment does not continue the one before, or "".
func (r *recovery) continues(prev, f *found) string {
	want, _ := r.l.ended(prev.start, prev.end)
	got := f.start
	switch {
	case got.index != want.index:
		return fmt.Sprintf("segment begins with index %d after %d", got.index+1, want.index)
	case got.chain != want.chain || got.term != want.term:
		return "segment does not continue the chain"
	case got.offset != want.offset || got.gen != want.gen:
		return "segment begins with another offset or generation"
	}
	return ""
}

// walkFile walks the records of a file from the nearest place before which
// everything is known to be whole, and leaves its end and index in f.
func (r *recovery) walkFile(f *found) (*breakError, error) {
	if err := r.loadIndex(f); err != nil {
		return nil, err
	}
	file, err := r.l.fs.OpenFile(f.path+logSuffix, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	// Bodies are checked behind the bound; before it only headers, from the
	// last index entry that is not behind it.
	bound := r.durable
	entries := f.idx.entries
	if r.l.o.SameBoot && len(entries) > 0 {
		// Everything before an index entry was written before it.
		bound = max(bound, f.start.index+uint64(entries[len(entries)-1].index))
	}
	n := len(entries)
	for {
		b, again, err := r.walkFrom(f, file, entries, &n, bound)
		if !again {
			return b, err
		}
		n--
	}
}

// walkFrom walks a file from the last of the first n index entries that has its
// record and is not behind the bound. n becomes the number of entries up to
// it. It asks for another try from an earlier entry when the very first record
// is broken: then chain and term before it are not known.
func (r *recovery) walkFrom(f *found, file vfs.File, entries []indexEntry, n *int, bound uint64) (b *breakError, again bool, err error) {
	st, linked := f.start, true
	for ; *n > 0; *n-- {
		e := entries[*n-1]
		if f.start.index+uint64(e.index) > bound {
			continue
		}
		if r.entryFits(file, f, e) {
			if e.index > 0 {
				st, linked = e.state(f.start), false
			}
			break
		}
	}
	// Entries further on are kept when the walk meets their records.
	ahead := entries[*n:]
	f.saved = *n
	f.idx.entries = slices.Clone(entries[:*n])
	var x indexer
	x.resume(f.idx.entries, f.start, st)
	from := st.pos
	sc := &scanner{f: file, st: st, linked: linked, end: f.size}
	sc.headers = st.index < bound
	for {
		before := sc.st
		if sc.headers && before.index >= bound {
			sc = &scanner{f: file, st: before, linked: sc.linked, end: f.size}
		}
		linked := sc.linked
		rec, body, err := sc.next()
		if err == nil && !sc.headers {
			if reason := verifyBody(body, &rec, &r.scratch); reason != "" {
				err = &breakError{pos: before.pos, index: rec.index, reason: reason}
			}
		}
		var broken *breakError
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			f.end = sc.st
			r.out.Walked += f.end.pos - from
			return nil, false, nil
		case errors.As(err, &broken):
			f.end = before
			r.out.Walked += f.end.pos - from
			return broken, !linked, nil
		default:
			return nil, false, err
		}
		if before.pos == from && len(f.idx.entries) > 0 && int64(f.idx.entries[len(f.idx.entries)-1].pos) == from {
			continue // has its entry
		}
		if e, ok := x.add(f.start, before, rec.ts); ok {
			f.idx.entries = append(f.idx.entries, e)
			if len(ahead) > 0 && f.saved == len(f.idx.entries)-1 && ahead[0] == e {
				ahead, f.saved = ahead[1:], f.saved+1
			}
		}
	}
}

// entryFits tells whether the record that an index entry points to is there.
// An entry can be older than a cut of the log, or garbage that passed for one.
func (r *recovery) entryFits(file vfs.File, f *found, e indexEntry) bool {
	st := e.state(f.start)
	if st.pos == f.size {
		return false
	}
	sc := &scanner{f: file, st: st, end: f.size, headers: true, buf: make([]byte, headerSize)}
	_, _, err := sc.next()
	return err == nil
}

// judge decides whether a break is the torn end that a crash leaves, or damage.
func (r *recovery) judge(at int, b *breakError) error {
	f := r.files[at]
	damage := &DamageError{File: f.path + logSuffix, Position: b.pos, Index: b.index, Reason: b.reason}
	if strings.HasPrefix(b.reason, "segment of group") {
		return damage
	}
	if at == 0 && b.pos < segmentHeaderSize {
		// Nothing is left that says where the log began. Only a log of one
		// file is certain to have been new.
		if r.durable > 0 || f.offset != 0 || len(r.files) > 1 {
			return damage
		}
	}
	if b.index <= r.durable && (at > 0 || b.pos >= segmentHeaderSize) {
		return damage
	}
	if !r.l.o.SameBoot {
		// What was not flushed may be missing in any place, also before
		// something that was written later and is there.
		return nil
	}
	if b.pos < segmentHeaderSize && f.reason == "" {
		return damage // a whole file that does not belong here
	}
	for _, later := range r.files[at+1:] {
		if later.reason == "" {
			return damage
		}
	}
	behind, err := r.validBehind(f, b)
	if err != nil {
		return err
	}
	if behind {
		return damage
	}
	return nil
}

// validBehind looks for a record behind a break that was written after it. The
// last write may be torn, but what is behind it was never begun.
func (r *recovery) validBehind(f *found, b *breakError) (bool, error) {
	file, err := r.l.fs.OpenFile(f.path+logSuffix, os.O_RDONLY)
	if err != nil {
		return false, err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	const overlap = headerSize
	buf := make([]byte, readChunk+overlap)
	for pos := b.pos + 1; pos < f.size; pos += readChunk {
		n, err := file.ReadAt(buf, pos)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		if validIn(buf[:n], b.index, b.index+uint64(f.size)/controlHeaderSize) {
			return true, nil
		}
	}
	return false, nil
}

// validIn tells whether a record with an index from lo to hi begins somewhere
// in b.
func validIn(b []byte, lo, hi uint64) bool {
	marker := le.AppendUint32(nil, controlMagic)
	for at := 0; ; at++ {
		i := bytes.Index(b[at:], marker)
		if i < 0 {
			break
		}
		at += i
		if len(b)-at >= controlHeaderSize {
			if r, reason := parseRecord(b[at:]); reason == "" && r.index >= lo && r.index <= hi {
				return true
			}
		}
	}
	stamp := le.AppendUint32(nil, stampData)
	for at := 0; ; at++ {
		i := bytes.Index(b[at:], stamp)
		if i < 0 {
			return false
		}
		at += i
		start := at - offStampKind
		if start >= 0 && len(b)-start >= headerSize {
			if r, reason := parseRecord(b[start:]); reason == "" && r.index >= lo && r.index <= hi {
				return true
			}
		}
	}
}

// complete checks that nothing is missing at the ends of what was found: a
// checkpoint covers entries that have to be there.
func (r *recovery) complete(b *breakError, at int) error {
	dir := r.l.dir
	keep := r.files
	if b != nil {
		keep = r.files[:at]
		if b.pos >= segmentHeaderSize {
			keep = r.files[:at+1]
		}
	}
	if len(keep) == 0 {
		if r.durable > 0 {
			return &DamageError{File: dir, Index: r.durable, Reason: "no segment, although a checkpoint covers entries"}
		}
		return nil
	}
	first, end := keep[0], keep[len(keep)-1]
	if first.start.index > r.verified {
		return &DamageError{
			File: first.path + logSuffix, Index: r.verified + 1,
			Reason: fmt.Sprintf("the log begins with index %d, the checkpoint ends with %d", first.start.index+1, r.verified),
		}
	}
	if end.end.index < r.durable {
		return &DamageError{
			File: end.path + logSuffix, Position: end.end.pos, Index: end.end.index + 1,
			Reason: fmt.Sprintf("the log ends with index %d, entries up to %d were there", end.end.index, r.durable),
		}
	}
	return nil
}

// cut removes what is behind a torn end, newest first, and makes that durable:
// the next records go to the same place, and nothing old may come back.
func (r *recovery) cut(at int, b *breakError) error {
	fs := r.l.fs
	from := at + 1
	if b.pos < segmentHeaderSize {
		from = at
	}
	for i := len(r.files) - 1; i >= from; i-- {
		f := r.files[i]
		for _, suffix := range [...]string{indexSuffix, logSuffix} {
			if err := fs.Remove(f.path + suffix); err != nil && !vfs.IsNotExist(err) {
				return err
			}
		}
		if err := fs.SyncDir(filepath.Dir(f.path)); err != nil {
			return err
		}
		r.out.Removed = append(r.out.Removed, f.path+logSuffix)
	}
	r.out.Torn = r.files[at].path + logSuffix
	r.out.TornBytes = r.files[at].size - b.pos
	if from == at+1 {
		f := r.files[at]
		n := 0
		for n < len(f.idx.entries) && int64(f.idx.entries[n].pos) < b.pos {
			n++
		}
		f.idx.entries = f.idx.entries[:n]
		f.saved = min(f.saved, n)
		if err := truncateDurably(fs, f.path+indexSuffix, int64(f.saved)*indexEntrySize); err != nil {
			return err
		}
		if err := truncateDurably(fs, f.path+logSuffix, b.pos); err != nil {
			return err
		}
		f.size = b.pos
	}
	r.files = r.files[:from]
	return nil
}

func truncateDurably(fs vfs.FS, name string, size int64) error {
	f, err := fs.OpenFile(name, os.O_RDWR)
	if vfs.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	now, err := f.Size()
	if err == nil && now > size {
		err = f.Truncate(size)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// build fills in the log from what was found.
func (r *recovery) build() error {
	l := r.l
	if len(r.files) == 0 {
		l.segs = []*seg{l.newSegment(state{gen: l.o.PurgeGeneration}, nil)}
		l.readGen = l.o.PurgeGeneration
		return nil
	}
	for i, f := range r.files {
		s := l.segmentAt(f.path, f.start)
		s.end, s.placed, s.created = f.end, true, true
		s.written, s.writeback = f.end.pos, f.end.pos
		s.saved = -1
		l.segs = append(l.segs, s)
		if i < len(r.files)-1 {
			if f.hasIdx && !f.sealed {
				// Found while walking: keep it, so that the next start need
				// not walk again.
				_ = writeIndex(l.fs, s.path+indexSuffix, s.key, s.start, f.idx.entries, &f.end)
			}
			continue
		}
		s.entries, s.saved = f.idx.entries, f.saved
		s.unsaved = slices.Clone(s.entries[s.saved:])
		s.x.resume(s.entries, s.start, s.end)
	}
	l.readGen = l.segs[0].start.gen
	if err := l.findTerms(); err != nil {
		return err
	}
	last := l.active()
	if next, ended := l.ended(last.start, last.end); ended {
		// The crash came between the last record of a segment and the file
		// of the next one.
		l.sealIndex(last, last.end)
		last.entries = nil
		s := l.newSegment(next, last)
		l.segs = append(l.segs, s)
		if err := l.createSegment(s); err != nil {
			return err
		}
	}
	// What the earlier process wrote, or cut off, it may not have flushed.
	for _, s := range l.segs {
		if s.end.index > r.durable || s == l.active() {
			s.changes++
			l.dirty = append(l.dirty, s)
		}
	}
	for _, s := range l.dirty {
		if d := filepath.Dir(s.path); !slices.Contains(l.dirtyDir, d) {
			l.dirtyDir = append(l.dirtyDir, d)
		}
	}
	if l.o.SyncOnOpen {
		return l.Sync()
	}
	return nil
}

// createSegment makes the file of an empty segment durably.
func (l *Log) createSegment(s *seg) error {
	if err := l.makeDir(filepath.Dir(s.path)); err != nil {
		return err
	}
	f, err := l.fs.Create(s.path + logSuffix)
	if err != nil {
		return err
	}
	var b [segmentHeaderSize]byte
	putSegmentHeader(b[:], l.o.Group, s.start)
	if _, err = f.WriteAt(b[:], 0); err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	for _, d := range l.dirtyDir {
		if err := l.fs.SyncDir(d); err != nil {
			return err
		}
	}
	l.dirtyDir = nil
	s.placed, s.created, s.written, s.durable = true, true, segmentHeaderSize, segmentHeaderSize
	return nil
}

// findTerms finds where terms begin. The segment headers tell between which
// files; inside a file it is a binary search over its index.
func (l *Log) findTerms() error {
	for _, s := range l.segs {
		if s.end.index == s.start.index || s.end.term == s.start.term {
			continue
		}
		if err := l.findTermsIn(s); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) findTermsIn(s *seg) error {
	entries, err := l.indexOf(s)
	if err != nil {
		return err
	}
	hd, err := l.o.Handles.acquire(l.fs, s, false)
	if err != nil {
		return err
	}
	defer l.o.Handles.drop(s)
	defer l.o.Handles.release(hd)
	if len(entries) == 0 {
		entries = []indexEntry{entryOf(s.start, s.start, 0)}
	}
	termAt := func(i int) (uint64, error) {
		sc := &scanner{f: hd.f, st: entries[i].state(s.start), end: s.end.pos, headers: true, buf: make([]byte, headerSize)}
		rec, _, err := sc.next()
		return rec.term, err
	}
	// between adds the terms that begin behind entry a (which has term ta) up
	// to entry b (or the end).
	var between func(a int, ta uint64, b int, tb uint64) error
	between = func(a int, ta uint64, b int, tb uint64) error {
		if ta == tb {
			return nil
		}
		if b-a > 1 {
			mid := (a + b) / 2
			tm, err := termAt(mid)
			if err != nil {
				return err
			}
			if err := between(a, ta, mid, tm); err != nil {
				return err
			}
			return between(mid, tm, b, tb)
		}
		sc := &scanner{f: hd.f, st: entries[a].state(s.start), end: s.end.pos, headers: true}
		for sc.st.pos < s.end.pos {
			rec, _, err := sc.next()
			if err != nil {
				return err
			}
			l.addTerm(rec.index, rec.term)
			if rec.term == tb {
				return nil
			}
		}
		return nil
	}
	first, err := termAt(0)
	if err != nil {
		return asDamage(s.path+logSuffix, err)
	}
	l.addTerm(s.firstIndex(), first)
	return asDamage(s.path+logSuffix, between(0, first, len(entries), s.end.term))
}
