package segment

import (
	"errors"
	"fmt"
)

// Errors of a log. Compare with errors.Is.
var (
	// ErrDiskFull: there is no room. Nothing of the write is in the log's
	// files; it may be done again later, or undone.
	ErrDiskFull = errors.New("disk full")
	// ErrSyncFailed: a flush failed, so what is on the disk is unknown. The
	// log refuses everything from then on.
	ErrSyncFailed = errors.New("flush failed, log is unusable")
	// ErrClosed: the log is closed.
	ErrClosed = errors.New("log is closed")
	// ErrCommitted: a cut below the committed index was asked for, which
	// means that an invariant of the group is broken.
	ErrCommitted = errors.New("committed entries cannot be cut")
	// ErrInvalidEntry: an entry does not continue the log, or is not
	// well-formed.
	ErrInvalidEntry = errors.New("entry does not fit the log")
	// ErrTrimmed: the entry was deleted by retention.
	ErrTrimmed = errors.New("entry is no longer in the log")
	// ErrOutOfRange: the entry is behind the end of the log.
	ErrOutOfRange = errors.New("entry is not in the log")
	// ErrOrder: a write was done before an earlier one, or after it was
	// undone.
	ErrOrder = errors.New("write out of order")
	// ErrNoCheckpoint: there is no valid checkpoint.
	ErrNoCheckpoint = errors.New("no valid checkpoint")
)

// VersionError tells that a file was written in a format that this program
// does not know, most likely by a newer one. The file is whole: it is neither
// damage nor a torn end, and must not be cut, replaced or set aside.
type VersionError struct {
	// File is the path of the file.
	File string
	// Version is that of the file, Known the one that can be read.
	Version, Known uint8
}

// Error implements error.
func (e *VersionError) Error() string {
	return fmt.Sprintf("%s has format version %d, this program reads version %d: start the version of Whippet that wrote it", e.File, e.Version, e.Known)
}

// DamageError tells that a file does not hold what was written to it, in a
// place where a crash cannot be the reason. The files are left as they are.
type DamageError struct {
	// File is the path of the damaged file.
	File string
	// Position is where in the file the damage begins.
	Position int64
	// Index is the raft index of the damaged record, as far as it is known.
	Index uint64
	// Reason says what is wrong.
	Reason string
}

// Error implements error.
func (e *DamageError) Error() string {
	return fmt.Sprintf("damaged log %s at byte %d (index %d): %s", e.File, e.Position, e.Index, e.Reason)
}
