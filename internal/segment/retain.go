package segment

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/whippetmq/whippet/internal/vfs"
)

// Checkpointed says that a checkpoint at index is durable. Segments before it
// may then be deleted by Reap. Owner.
func (l *Log) Checkpointed(index uint64) { l.checkpointed = max(l.checkpointed, index) }

// Trim raises the lowest offset to keep: whole sealed segments below it may be
// deleted by Reap once a checkpoint covers them. Owner.
func (l *Log) Trim(offset uint64) { l.trim = max(l.trim, offset) }

// Reap takes the segments that may go out of the log: those below the trimmed
// offset, those of an older purge generation and those without data, as far as
// a checkpoint covers them and no pin holds them. The caller runs the
// result's Do, on any goroutine. Nil when there is nothing to do. Owner.
//
// After a crash before Do is through some of the segments are there again; the
// caller trims again after Open.
func (l *Log) Reap() *Removal {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.usable() != nil {
		return nil
	}
	n := 0
	for n < len(l.segs)-1 && l.reapable(l.segs[n]) {
		n++
	}
	if n == 0 {
		return nil
	}
	r := &Removal{l: l, segs: slices.Clone(l.segs[:n])}
	l.segs = slices.Clone(l.segs[n:])
	first := &l.segs[0].start
	for len(l.terms) > 0 && l.terms[0].index <= first.index {
		l.terms = l.terms[1:]
	}
	freed, k := int64(0), 0
	for k < len(l.items) && l.items[k].st.index <= first.index {
		freed += l.items[k].cost()
		k++
	}
	l.dropItems(k)
	l.o.Cache.used.Add(-freed)
	if l.cursors != nil {
		for i := range l.cursors {
			if slices.Contains(r.segs, l.cursors[i].s) {
				l.cursors[i] = cursor{}
			}
		}
	}
	if l.segs[0].start.gen != r.segs[0].start.gen {
		r.dirs = append(r.dirs, generationDir(l.dir, r.segs[0].start.gen))
		for _, s := range r.segs {
			if d := generationDir(l.dir, s.start.gen); s.start.gen != l.segs[0].start.gen && !slices.Contains(r.dirs, d) {
				r.dirs = append(r.dirs, d)
			}
		}
	}
	return r
}

// reapable tells whether a sealed segment may go; l.mu is held.
func (l *Log) reapable(s *seg) bool {
	if s.end.index > l.checkpointed || s.end.index > l.written || s.end.index > l.applied {
		return false
	}
	for p := range l.pins {
		if p.first <= s.end.index {
			return false
		}
	}
	switch {
	case s.start.gen < l.readGen:
		return true
	case s.start.gen > l.readGen:
		return false
	}
	return s.end.offset <= l.trim || s.end.offset == s.start.offset
}

// Removal deletes files that left the log.
type Removal struct {
	l    *Log
	segs []*seg
	dirs []string
}

// Segments is the number of segments to delete.
func (r *Removal) Segments() int { return len(r.segs) }

// Do deletes the files, oldest first and each durably before the next, so that
// a crash never leaves a gap. What remains of the log is flushed before. It may
// be repeated after an error.
func (r *Removal) Do() error {
	l := r.l
	if err := l.Sync(); err != nil {
		return err
	}
	for len(r.segs) > 0 {
		s := r.segs[0]
		if err := l.removeSegment(s); err != nil {
			return fmt.Errorf("delete segment of group %d: %w", l.o.Group, err)
		}
		if err := l.fs.SyncDir(filepath.Dir(s.path)); err != nil {
			return fmt.Errorf("delete segment of group %d: %w", l.o.Group, err)
		}
		r.segs = r.segs[1:]
	}
	for _, d := range r.dirs {
		if err := l.fs.RemoveAll(d); err != nil {
			return fmt.Errorf("delete purged generation of group %d: %w", l.o.Group, err)
		}
	}
	if len(r.dirs) > 0 {
		return l.fs.SyncDir(l.dir)
	}
	return nil
}

// Pin keeps all present segments from being deleted until the result is
// called.
func (l *Log) Pin() (unpin func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &pin{l.segs[0].firstIndex()}
	if l.pins == nil {
		l.pins = map[*pin]struct{}{}
	}
	l.pins[p] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.pins, p)
	}
}

// Create makes an empty log in dir that continues behind a position, durably.
// It is for a replica that gets a checkpoint without the log before it; dir must
// not have a log.
func Create(fs vfs.FS, dir string, o Options, p Position) error {
	l := &Log{fs: fs, dir: filepath.Clean(dir), o: o.withDefaults()}
	files, err := listSegments(fs, l.dir)
	if err != nil {
		return err
	}
	if len(files) > 0 {
		return fmt.Errorf("create log of group %d: %s has segments", o.Group, l.dir)
	}
	if err := l.createSegment(l.newSegment(p.state(), nil)); err != nil {
		return fmt.Errorf("create log of group %d: %w", o.Group, err)
	}
	return nil
}

// Reset deletes all entries and lets the log continue behind the given
// position, durably. A checkpoint at the position must be durable before; after
// a crash in between the log may be as before, empty, or new, and has to be
// reset again when it does not reach up to the checkpoint. Owner.
func (l *Log) Reset(p Position) error {
	l.mu.Lock()
	if err := l.usable(); err != nil {
		l.mu.Unlock()
		return err
	}
	old := l.segs
	var freed int64
	for i := range l.items {
		freed += l.items[i].cost()
	}
	for _, w := range l.outstanding {
		w.undone = true
	}
	l.items, l.terms, l.outstanding, l.cuts, l.cursors = nil, nil, nil, nil, nil
	s := l.newSegment(p.state(), nil)
	l.segs = []*seg{s}
	l.readGen = p.Generation
	l.written = p.Index
	l.mu.Unlock()
	l.o.Cache.used.Add(-freed)
	l.committed, l.applied, l.evictable, l.checkpointed = p.Index, p.Index, p.Index, p.Index
	l.trim = 0
	for i := len(old) - 1; i >= 0; i-- {
		if err := l.removeSegment(old[i]); err != nil {
			return l.fail(err)
		}
		if err := l.fs.SyncDir(filepath.Dir(old[i].path)); err != nil && !vfs.IsNotExist(err) {
			return l.fail(err)
		}
	}
	if err := l.createSegment(s); err != nil {
		return l.fail(err)
	}
	return nil
}
