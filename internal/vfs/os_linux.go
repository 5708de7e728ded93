package vfs

import (
	"errors"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// maxIovecs is UIO_MAXIOV, the most buffers that one pwritev takes.
const maxIovecs = 1024

func (f *osFile) WritevAt(bufs [][]byte, off int64) (int, error) {
	n, err := writevLoop(bufs, off, maxIovecs, func(b [][]byte, off int64) (int, error) {
		if len(b) == 1 {
			return unix.Pwrite(f.fd, b[0], off)
		}
		return unix.Pwritev(f.fd, b, off)
	})
	runtime.KeepAlive(f)
	if err != nil {
		return n, &os.PathError{Op: "pwritev", Path: f.f.Name(), Err: err}
	}
	return n, nil
}

func (f *osFile) Datasync() error { return f.retry("fdatasync", unix.Fdatasync) }

func (f *osFile) Preallocate(off, n int64) error {
	err := f.retry("fallocate", func(fd int) error {
		return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, off, n)
	})
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}

func (f *osFile) StartWriteback(off, n int64) error {
	return f.retry("sync_file_range", func(fd int) error {
		return unix.SyncFileRange(fd, off, n, unix.SYNC_FILE_RANGE_WRITE)
	})
}

func (f *osFile) DropCache(off, n int64) {
	_ = unix.Fadvise(f.fd, off, n, unix.FADV_DONTNEED)
	runtime.KeepAlive(f)
}

func (f *osFile) AdviseWillNeed(off, n int64) {
	_ = unix.Fadvise(f.fd, off, n, unix.FADV_WILLNEED)
	runtime.KeepAlive(f)
}
