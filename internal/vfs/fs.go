package vfs

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// FS is a file system. Names are paths in the form of path/filepath; all
// methods may be called from any goroutine.
type FS interface {
	// OpenFile opens a file with the flags of package os (O_RDONLY, O_RDWR,
	// O_CREATE, O_EXCL, O_TRUNC). There is no append mode: all I/O is
	// positional.
	OpenFile(name string, flag int) (File, error)
	// Create opens a file for reading and writing, new or emptied.
	Create(name string) (File, error)
	// MkdirAll makes a directory with all its parents. The names become
	// durable by SyncDir of each parent.
	MkdirAll(dir string) error
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// RemoveAll removes a file or a whole directory. A missing one is no error.
	RemoveAll(name string) error
	// Rename replaces newname by oldname in one step.
	Rename(oldname, newname string) error
	// List returns the entries of a directory, sorted by name.
	List(dir string) ([]DirEntry, error)
	// Stat describes a file or a directory.
	Stat(name string) (FileInfo, error)
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error
	// Lock takes the exclusive lock of a file, made when it is missing, until
	// the result is closed. It does not wait: a lock that is held elsewhere is
	// a *LockedError.
	Lock(name string) (io.Closer, error)
	// Free returns the free and the total bytes of the file system of dir.
	Free(dir string) (free, total uint64, err error)
}

// File is an open file. Positions and lengths are in bytes.
type File interface {
	// ReadAt reads as io.ReaderAt does: fewer bytes than asked for come with
	// an error, io.EOF at the end of the file.
	ReadAt(p []byte, off int64) (int, error)
	// WriteAt writes all of p or returns an error with the number written.
	WriteAt(p []byte, off int64) (int, error)
	// WritevAt writes the buffers back to back from off on, with as few
	// system calls as the platform allows. It does not keep or change bufs.
	WritevAt(bufs [][]byte, off int64) (int, error)
	// Truncate sets the size.
	Truncate(size int64) error
	// Datasync makes the content (and the size needed to read it) durable.
	Datasync() error
	// Sync makes content and all metadata durable.
	Sync() error
	// Preallocate reserves space without changing the size. A file system
	// without that ability ignores it.
	Preallocate(off, n int64) error
	// StartWriteback asks the system to begin writing a range to the device
	// and does not wait. It makes nothing durable.
	StartWriteback(off, n int64) error
	// DropCache asks the system to forget what it has of a range in memory and
	// on the device. It loses nothing: what is not on the device stays.
	DropCache(off, n int64)
	// AdviseWillNeed asks the system to read a range ahead. Errors are of no
	// interest and not reported.
	AdviseWillNeed(off, n int64)
	// Size is the current size.
	Size() (int64, error)
	// Close closes the file without flushing it.
	Close() error
}

// DirEntry is one name in a directory.
type DirEntry struct {
	// Name is the base name.
	Name string
	// Dir tells a directory from a file.
	Dir bool
}

// FileInfo describes a file or a directory.
type FileInfo struct {
	// Size is the length in bytes, 0 for a directory.
	Size int64
	// Dir tells a directory from a file.
	Dir bool
}

// LockedError is the answer to a Lock that another process or another part of
// this one holds.
type LockedError struct {
	// Dir is the directory that is in use.
	Dir string
	// Name is the lock file.
	Name string
}

// Error implements error.
func (e *LockedError) Error() string {
	return "the lock " + e.Name + " is held"
}

func lockedError(name string) error {
	return &LockedError{Dir: filepath.Dir(name), Name: name}
}

// IsDiskFull tells whether an error means that there is no room: no space on
// the device or the quota used up.
func IsDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// IsNotExist tells whether an error means that the name is not there.
func IsNotExist(err error) bool { return errors.Is(err, os.ErrNotExist) }

// MakeDirs makes dir with its missing parents and returns the directories
// whose entries changed by that, which is what must be given to SyncDir before
// the new directory is durable. The list is empty when dir was there.
func MakeDirs(fs FS, dir string) ([]string, error) {
	var changed []string
	for d := filepath.Clean(dir); ; {
		if _, err := fs.Stat(d); err == nil {
			break
		} else if !IsNotExist(err) {
			return nil, err
		}
		parent := filepath.Dir(d)
		if parent == d {
			break
		}
		changed = append(changed, parent)
		d = parent
	}
	if len(changed) == 0 {
		return nil, nil
	}
	return changed, fs.MkdirAll(dir)
}

// ReadFile returns the content of a file, which must not be larger than limit.
func ReadFile(fs FS, name string, limit int64) ([]byte, error) {
	f, err := fs.OpenFile(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, &os.PathError{Op: "read", Path: name, Err: syscall.EFBIG}
	}
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b[:n], nil
}
