package vfs

import (
	"io"
	"os"
	"slices"
	"syscall"
)

// memFile is an open file of a Mem. Like a descriptor it stays usable when the
// name is removed.
type memFile struct {
	m        *Mem
	n        *node
	name     string
	readOnly bool
	closed   bool // guarded by m.mu
}

// begin locks the file system for one operation.
func (f *memFile) begin(op string, write bool) error {
	f.m.mu.Lock()
	var err error
	switch {
	case f.closed:
		err = os.ErrClosed
	case write && f.readOnly:
		err = syscall.EBADF
	default:
		return nil
	}
	f.m.mu.Unlock()
	return pathErr(op, f.name, err)
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.begin("read", false); err != nil {
		return 0, err
	}
	defer f.m.mu.Unlock()
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	return f.WritevAt([][]byte{p}, off)
}

func (f *memFile) WritevAt(bufs [][]byte, off int64) (int, error) {
	if err := f.begin("write", true); err != nil {
		return 0, err
	}
	defer f.m.mu.Unlock()
	total := 0
	for _, b := range bufs {
		total += len(b)
	}
	if total == 0 {
		return 0, nil
	}
	data := make([]byte, 0, total)
	for _, b := range bufs {
		data = append(data, b...)
	}
	grow := max(0, off+int64(len(data))-int64(len(f.n.data)))
	var full error
	if c := f.m.capacity; c > 0 && f.m.used+grow > c {
		room := max(0, c-f.m.used)
		data = data[:max(0, int64(len(data))-(grow-room))]
		grow = max(0, off+int64(len(data))-int64(len(f.n.data)))
		full = pathErr("write", f.name, syscall.ENOSPC)
		if len(data) == 0 {
			return 0, full
		}
	}
	f.m.used += grow
	op := fileOp{off: off, data: data}
	f.n.data = op.apply(f.n.data)
	f.n.fileOps = append(f.n.fileOps, op)
	return len(data), full
}

func (f *memFile) Truncate(size int64) error {
	if err := f.begin("truncate", true); err != nil {
		return err
	}
	defer f.m.mu.Unlock()
	f.m.truncate(f.n, size)
	return nil
}

// truncate sets a file's size; m.mu is held.
func (m *Mem) truncate(n *node, size int64) {
	m.used += size - int64(len(n.data))
	op := fileOp{off: size}
	n.data = op.apply(n.data)
	n.fileOps = append(n.fileOps, op)
}

func (f *memFile) Datasync() error { return f.Sync() }

func (f *memFile) Sync() error {
	if err := f.begin("sync", false); err != nil {
		return err
	}
	defer f.m.mu.Unlock()
	f.n.syncFile()
	return nil
}

func (f *memFile) Preallocate(_, _ int64) error    { return nil }
func (f *memFile) StartWriteback(_, _ int64) error { return nil }
func (f *memFile) DropCache(_, _ int64)            {}
func (f *memFile) AdviseWillNeed(_, _ int64)       {}

func (f *memFile) Size() (int64, error) {
	if err := f.begin("stat", false); err != nil {
		return 0, err
	}
	defer f.m.mu.Unlock()
	return int64(len(f.n.data)), nil
}

func (f *memFile) Close() error {
	if err := f.begin("close", false); err != nil {
		return err
	}
	defer f.m.mu.Unlock()
	f.closed = true
	return nil
}

// Corrupt flips the given bits of one byte of a file, in what is written and
// in what is flushed, as a failing device would. It reports whether the file
// has such a byte.
func (m *Mem) Corrupt(name string, off int64, mask byte) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(name)
	if n == nil || n.isDir() || off < 0 || off >= int64(len(n.data)) {
		return false
	}
	n.syncFile()
	// data and flushed never share memory.
	n.data[off] ^= mask
	n.flushed = slices.Clone(n.data)
	return true
}
