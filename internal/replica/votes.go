package replica

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/internal/vfs"
)

const (
	votesName = "votes.log"
	// votesCompactAt is the size from which the log is rewritten, provided that at least half of it is dead.
	votesCompactAt = 1 << 20
	votesMaxSize   = 1 << 30
)

// votesLog makes terms and votes durable. save is called by one goroutine at a time (the votes writer); get by StartGroup.
type votesLog struct {
	fs   vfs.FS
	dir  string
	path string

	mu        sync.Mutex // the next two
	table     map[GroupID]vote
	forgotten []GroupID // written with the next save

	file vfs.File
	size int64
	seq  uint64
	buf  []byte
	err  error // sticky: a failed flush; nothing more is written
}

// openVotes reads the log and cuts a torn tail off, by rewriting it.
func openVotes(fs vfs.FS, dir string) (*votesLog, error) {
	l := &votesLog{fs: fs, dir: dir, path: filepath.Join(dir, votesName), table: map[GroupID]vote{}}
	b, err := vfs.ReadFile(fs, l.path, votesMaxSize)
	switch {
	case vfs.IsNotExist(err):
		return l, l.rewrite()
	case err != nil:
		return nil, fmt.Errorf("replica: read votes: %w", err)
	}
	good, seq, reason := readVotes(b, l.table)
	// A batch of another version is not a torn one: to cut it off would be to forget votes.
	if rest := b[good:]; len(rest) >= 8 {
		var version *segment.VersionError
		if err := checkMagic(l.path, rest, votesMagic); errors.As(err, &version) {
			return nil, fmt.Errorf("replica: read votes: %w", err)
		}
	}
	if reason != "" {
		return nil, &CorruptError{l.path, reason}
	}
	l.seq = seq
	if good != len(b) {
		return l, l.rewrite()
	}
	if l.file, err = fs.OpenFile(l.path, os.O_RDWR); err != nil {
		return nil, fmt.Errorf("replica: open votes: %w", err)
	}
	// What was read may never have been flushed (the process died between the write and the flush). Nobody relies on it
	// yet, but from now on this node does.
	if err := l.file.Datasync(); err != nil {
		_ = l.file.Close()
		return nil, fmt.Errorf("replica: flush votes: %w", err)
	}
	l.size = int64(good)
	return l, nil
}

func (l *votesLog) get(id GroupID) vote {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.table[id]
}

// save makes the changes durable. For one group the last of several changes counts. A full disk may be tried again;
// any other error is final.
func (l *votesLog) save(changes []voteChange) error {
	if l.err != nil {
		return l.err
	}
	l.mu.Lock()
	forgotten := l.forgotten
	l.forgotten = nil
	l.mu.Unlock()
	if len(forgotten) > 0 {
		// First, because the id may be in use again in a test.
		all := make([]voteChange, 0, len(forgotten)+len(changes))
		for _, id := range forgotten {
			all = append(all, voteChange{group: id})
		}
		changes = append(all, changes...)
	}
	err := l.append(changes)
	if err == nil {
		l.mu.Lock()
		for _, c := range changes {
			if c.term == 0 {
				delete(l.table, c.group)
			} else {
				l.table[c.group] = c.vote
			}
		}
		live := votesHeaderLen + len(l.table)*votesRecordLen
		l.mu.Unlock()
		if l.size > votesCompactAt && l.size > 2*int64(live) {
			// The log is as good without it: a failure only leaves it long.
			if rerr := l.rewrite(); rerr != nil && !vfs.IsDiskFull(rerr) {
				l.err = rerr
			}
		}
		return nil
	}
	if !vfs.IsDiskFull(err) {
		l.err = err
	}
	l.mu.Lock()
	l.forgotten = append(forgotten, l.forgotten...)
	l.mu.Unlock()
	return err
}

// forget drops the vote of a deleted group. It needs no flush: a vote that comes back after a crash belongs to nobody.
func (l *votesLog) forget(id GroupID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, there := l.table[id]; there {
		delete(l.table, id)
		l.forgotten = append(l.forgotten, id)
	}
}

func (l *votesLog) append(changes []voteChange) error {
	l.buf = appendVotes(l.buf[:0], l.seq+1, changes)
	if _, err := l.file.WriteAt(l.buf, l.size); err != nil {
		// The next attempt writes to the same position with the same sequence number.
		return fmt.Errorf("replica: write votes: %w", err)
	}
	if err := l.file.Datasync(); err != nil {
		if vfs.IsDiskFull(err) {
			// Delayed allocation: the pages may be gone, so this is as final as any failed flush.
			err = fmt.Errorf("%w (%s)", errFlush, err.Error())
		}
		return fmt.Errorf("replica: flush votes: %w", err)
	}
	l.seq++
	l.size += int64(len(l.buf))
	return nil
}

// rewrite replaces the log by one batch of the table, sorted by group so that runs repeat.
func (l *votesLog) rewrite() error {
	l.mu.Lock()
	changes := make([]voteChange, 0, len(l.table))
	for id, v := range l.table {
		changes = append(changes, voteChange{id, v})
	}
	l.mu.Unlock()
	slices.SortFunc(changes, func(a, b voteChange) int {
		if a.group < b.group {
			return -1
		}
		return 1
	})
	seq := l.seq + 1
	f, size, err := replaceFile(l.fs, l.dir, l.path, appendVotes(nil, seq, changes))
	if err != nil {
		return fmt.Errorf("replica: rewrite votes: %w", err)
	}
	if l.file != nil {
		_ = l.file.Close() // superseded
	}
	l.file, l.size, l.seq = f, size, seq
	return nil
}

func (l *votesLog) close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// replaceFile writes a whole file in one durable step and returns it open.
func replaceFile(fs vfs.FS, dir, path string, content []byte) (f vfs.File, size int64, err error) {
	tmp := path + ".tmp"
	made, err := fs.Create(tmp)
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		if err != nil {
			_ = made.Close()
			_ = fs.Remove(tmp)
		}
	}()
	if _, err = made.WriteAt(content, 0); err != nil {
		return nil, 0, err
	}
	if err = made.Sync(); err != nil {
		return nil, 0, err
	}
	if err = fs.Rename(tmp, path); err != nil {
		return nil, 0, err
	}
	if err = fs.SyncDir(dir); err != nil {
		return nil, 0, err
	}
	return made, int64(len(content)), nil
}
