package replica

import (
	"errors"
	"fmt"

	"github.com/whippetmq/whippet/internal/segment"
)

var (
	// ErrNotAdmitted says that a request never entered the log and never will: it may be sent again at once, to another
	// node too (status 58 of the protocol).
	ErrNotAdmitted = errors.New("replica: not admitted")

	// ErrOutcomeUnknown says that a request entered the log of this node and that the node cannot tell what became of
	// it. It may be sent again only under the same identity (status 57 of the protocol).
	ErrOutcomeUnknown = errors.New("replica: outcome unknown")

	// ErrDiskFull says that a request was refused before it entered the log because the disk has no room for it.
	ErrDiskFull = errors.New("replica: disk full")

	// ErrNotLeader says that this node does not lead the group, or cannot prove that it still does.
	ErrNotLeader = errors.New("replica: not the leader")

	// ErrStopped says that the group or the host was stopped.
	ErrStopped = errors.New("replica: stopped")

	// ErrTooLarge says that a request is larger than Config.MaxEntryBytes.
	ErrTooLarge = errors.New("replica: request too large")

	// ErrLocked says that another process uses the data directory.
	ErrLocked = errors.New("the data directory is used by another process")

	// ErrBusy says that there is no room for the request at the moment; it was not taken (Group.TrySubmit).
	ErrBusy = errors.New("replica: busy")

	// ErrBehind says that leadership was not handed over because the other node lacks too much of the log.
	ErrBehind = errors.New("replica: the other replica is behind")

	// ErrGroupExists says that the group runs already.
	ErrGroupExists = errors.New("replica: group runs already")

	// ErrUnknownGroup says that no such group runs here.
	ErrUnknownGroup = errors.New("replica: unknown group")
)

// FencedError says that a group stopped itself to keep what it has: its log is damaged, a flush failed, or its Machine
// found a broken invariant. Its files are kept. Other groups are not affected.
type FencedError struct {
	Group GroupID
	Err   error
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("replica: group %s is fenced: %v", e.Group, e.Err)
}

// Unwrap gives the cause.
func (e *FencedError) Unwrap() error { return e.Err }

// IdentityError says that the data directory belongs to another node or cluster than the configuration names.
type IdentityError struct {
	What      string // "cluster" or "node"
	Directory string
	Found     string
	Want      string
}

func (e *IdentityError) Error() string {
	return fmt.Sprintf("replica: data directory %s belongs to %s %s, the configuration says %s", e.Directory, e.What, e.Found, e.Want)
}

// CorruptError says that a file of the node itself (terms and votes, identity) cannot be trusted. The node must not
// start: it could vote twice.
type CorruptError struct {
	Path   string
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("replica: %s is corrupt: %s", e.Path, e.Reason)
}

// checkMagic looks at the first eight bytes of a file, of which the last is the format version. nil = it can be read on.
func checkMagic(path string, b []byte, magic uint64) error {
	const versionShift = 56
	switch known := uint8(magic >> versionShift); {
	case len(b) < 8:
		return &CorruptError{path, fmt.Sprintf("%d bytes", len(b))}
	case le.Uint64(b) == magic:
		return nil
	case le.Uint64(b)<<8 == magic<<8:
		return &segment.VersionError{File: path, Version: b[7], Known: known}
	}
	return &CorruptError{path, fmt.Sprintf("unknown format %x", b[:8])}
}

// errFlush marks a failed flush, which is final whatever its cause.
var errFlush = errors.New("flush failed")
