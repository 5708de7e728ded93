package vfs

import (
	"errors"
	"io"
)

// Op names one operation for the hook of a faulty file system.
type Op struct {
	// Kind is what is done.
	Kind OpKind
	// Name is the path that it is done to (the old path of a rename).
	Name string
	// Off and Len are the range of a read or a write, or the size of a
	// truncation in Off.
	Off int64
	Len int
}

// OpKind is the kind of an operation.
type OpKind uint8

// The operations that a hook sees.
const (
	OpOpen OpKind = iota + 1
	OpCreate
	OpMkdir
	OpRemove
	OpRename
	OpList
	OpStat
	OpSyncDir
	OpLock
	OpFree
	OpRead
	OpWrite
	OpTruncate
	OpSync
	OpPreallocate
	OpWriteback
	OpClose
)

var opNames = [...]string{
	OpOpen: "open", OpCreate: "create", OpMkdir: "mkdir", OpRemove: "remove", OpRename: "rename", OpList: "list",
	OpStat: "stat", OpSyncDir: "syncdir", OpLock: "lock", OpFree: "free", OpRead: "read", OpWrite: "write",
	OpTruncate: "truncate", OpSync: "sync", OpPreallocate: "preallocate", OpWriteback: "writeback", OpClose: "close",
}

// String is the name of the kind.
func (k OpKind) String() string {
	if int(k) < len(opNames) && opNames[k] != "" {
		return opNames[k]
	}
	return "unknown"
}

// Changes tells whether the operation changes what is stored or makes it
// durable.
func (k OpKind) Changes() bool {
	switch k {
	case OpCreate, OpMkdir, OpRemove, OpRename, OpSyncDir, OpWrite, OpTruncate, OpSync, OpPreallocate:
		return true
	default:
		return false
	}
}

// PartialError, returned by the hook for a write, lets the first N bytes
// through and fails then.
type PartialError struct {
	// N is how many bytes are written.
	N int
	// Err is the error of the write.
	Err error
}

// Error implements error.
func (e *PartialError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the write.
func (e *PartialError) Unwrap() error { return e.Err }

type faultyFS struct {
	fs     FS
	inject func(Op) error
}

// NewFaulty returns fs with a hook in front of every operation. When the hook
// returns an error the operation is not done and fails with that error. The
// hook may block (a slow disk) and is called from whichever goroutine does the
// operation, with no lock held.
func NewFaulty(fs FS, inject func(Op) error) FS { return &faultyFS{fs: fs, inject: inject} }

func (f *faultyFS) OpenFile(name string, flag int) (File, error) {
	kind := OpOpen
	if flag&createFlags != 0 {
		kind = OpCreate
	}
	if err := f.inject(Op{Kind: kind, Name: name}); err != nil {
		return nil, err
	}
	file, err := f.fs.OpenFile(name, flag)
	if err != nil {
		return nil, err
	}
	return &faultyFile{f: file, fs: f, name: name}, nil
}

func (f *faultyFS) Create(name string) (File, error) {
	if err := f.inject(Op{Kind: OpCreate, Name: name}); err != nil {
		return nil, err
	}
	file, err := f.fs.Create(name)
	if err != nil {
		return nil, err
	}
	return &faultyFile{f: file, fs: f, name: name}, nil
}

func (f *faultyFS) MkdirAll(dir string) error {
	if err := f.inject(Op{Kind: OpMkdir, Name: dir}); err != nil {
		return err
	}
	return f.fs.MkdirAll(dir)
}

func (f *faultyFS) Remove(name string) error {
	if err := f.inject(Op{Kind: OpRemove, Name: name}); err != nil {
		return err
	}
	return f.fs.Remove(name)
}

func (f *faultyFS) RemoveAll(name string) error {
	if err := f.inject(Op{Kind: OpRemove, Name: name}); err != nil {
		return err
	}
	return f.fs.RemoveAll(name)
}

func (f *faultyFS) Rename(oldname, newname string) error {
	if err := f.inject(Op{Kind: OpRename, Name: oldname}); err != nil {
		return err
	}
	return f.fs.Rename(oldname, newname)
}

func (f *faultyFS) List(dir string) ([]DirEntry, error) {
	if err := f.inject(Op{Kind: OpList, Name: dir}); err != nil {
		return nil, err
	}
	return f.fs.List(dir)
}

func (f *faultyFS) Stat(name string) (FileInfo, error) {
	if err := f.inject(Op{Kind: OpStat, Name: name}); err != nil {
		return FileInfo{}, err
	}
	return f.fs.Stat(name)
}

func (f *faultyFS) SyncDir(dir string) error {
	if err := f.inject(Op{Kind: OpSyncDir, Name: dir}); err != nil {
		return err
	}
	return f.fs.SyncDir(dir)
}

func (f *faultyFS) Lock(name string) (io.Closer, error) {
	if err := f.inject(Op{Kind: OpLock, Name: name}); err != nil {
		return nil, err
	}
	return f.fs.Lock(name)
}

func (f *faultyFS) Free(dir string) (free, total uint64, err error) {
	if err := f.inject(Op{Kind: OpFree, Name: dir}); err != nil {
		return 0, 0, err
	}
	return f.fs.Free(dir)
}

type faultyFile struct {
	f    File
	fs   *faultyFS
	name string
}

func (f *faultyFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.fs.inject(Op{Kind: OpRead, Name: f.name, Off: off, Len: len(p)}); err != nil {
		return 0, err
	}
	return f.f.ReadAt(p, off)
}

func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	return f.WritevAt([][]byte{p}, off)
}

func (f *faultyFile) WritevAt(bufs [][]byte, off int64) (int, error) {
	total := 0
	for _, b := range bufs {
		total += len(b)
	}
	err := f.fs.inject(Op{Kind: OpWrite, Name: f.name, Off: off, Len: total})
	if err == nil {
		return f.f.WritevAt(bufs, off)
	}
	var partial *PartialError
	if !errors.As(err, &partial) {
		return 0, err
	}
	done := 0
	for _, b := range bufs {
		b = b[:min(len(b), partial.N-done)]
		n, werr := f.f.WriteAt(b, off+int64(done))
		done += n
		if werr != nil {
			return done, werr
		}
	}
	return done, partial.Err
}

func (f *faultyFile) Truncate(size int64) error {
	if err := f.fs.inject(Op{Kind: OpTruncate, Name: f.name, Off: size}); err != nil {
		return err
	}
	return f.f.Truncate(size)
}

func (f *faultyFile) Datasync() error {
	if err := f.fs.inject(Op{Kind: OpSync, Name: f.name}); err != nil {
		return err
	}
	return f.f.Datasync()
}

func (f *faultyFile) Sync() error {
	if err := f.fs.inject(Op{Kind: OpSync, Name: f.name}); err != nil {
		return err
	}
	return f.f.Sync()
}

func (f *faultyFile) Preallocate(off, n int64) error {
	if err := f.fs.inject(Op{Kind: OpPreallocate, Name: f.name, Off: off, Len: int(n)}); err != nil {
		return err
	}
	return f.f.Preallocate(off, n)
}

func (f *faultyFile) StartWriteback(off, n int64) error {
	if err := f.fs.inject(Op{Kind: OpWriteback, Name: f.name, Off: off, Len: int(n)}); err != nil {
		return err
	}
	return f.f.StartWriteback(off, n)
}

func (f *faultyFile) DropCache(off, n int64)      { f.f.DropCache(off, n) }
func (f *faultyFile) AdviseWillNeed(off, n int64) { f.f.AdviseWillNeed(off, n) }
func (f *faultyFile) Size() (int64, error)        { return f.f.Size() }

func (f *faultyFile) Close() error {
	err := f.fs.inject(Op{Kind: OpClose, Name: f.name})
	// The descriptor is gone either way, as on a real system.
	if cerr := f.f.Close(); err == nil {
		err = cerr
	}
	return err
}
