//go:build unix

package vfs

import (
	"errors"
	"io"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// filePerm and dirPerm keep messages from other users of the machine.
const (
	filePerm = 0o640
	dirPerm  = 0o750
)

type osFS struct{}

// OS returns the file system of the machine.
func OS() FS { return osFS{} }

func (osFS) OpenFile(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, filePerm)
	if err != nil {
		return nil, err
	}
	return &osFile{f: f, fd: int(f.Fd())}, nil
}

func (o osFS) Create(name string) (File, error) {
	return o.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

func (osFS) MkdirAll(dir string) error            { return os.MkdirAll(dir, dirPerm) }
func (osFS) Remove(name string) error             { return os.Remove(name) }
func (osFS) RemoveAll(name string) error          { return os.RemoveAll(name) }
func (osFS) Rename(oldname, newname string) error { return os.Rename(oldname, newname) }

func (osFS) List(dir string) ([]DirEntry, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := make([]DirEntry, len(list))
	for i, e := range list {
		out[i] = DirEntry{Name: e.Name(), Dir: e.IsDir()}
	}
	return out, nil
}

func (osFS) Stat(name string) (FileInfo, error) {
	fi, err := os.Stat(name)
	if err != nil {
		return FileInfo{}, err
	}
	if fi.IsDir() {
		return FileInfo{Dir: true}, nil
	}
	return FileInfo{Size: fi.Size()}, nil
}

func (osFS) SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, filePerm)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, lockedError(name)
		}
		return nil, &os.PathError{Op: "flock", Path: name, Err: err}
	}
	// Closing the descriptor gives the lock back; the file stays, so that two
	// processes never hold locks of two different files of one name.
	return f, nil
}

func (osFS) Free(dir string) (free, total uint64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return st.Bavail * uint64(st.Bsize), st.Blocks * uint64(st.Bsize), nil
}

// osFile keeps the descriptor beside the os.File for the calls that package os
// does not have. The os.File owns it.
type osFile struct {
	f  *os.File
	fd int
}

func (f *osFile) ReadAt(p []byte, off int64) (int, error)  { return f.f.ReadAt(p, off) }
func (f *osFile) WriteAt(p []byte, off int64) (int, error) { return f.f.WriteAt(p, off) }
func (f *osFile) Truncate(size int64) error                { return f.f.Truncate(size) }
func (f *osFile) Sync() error                              { return f.f.Sync() }
func (f *osFile) Close() error                             { return f.f.Close() }

func (f *osFile) Size() (int64, error) {
	fi, err := f.f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

// retry repeats a call that a signal interrupted and names the file in errors.
func (f *osFile) retry(op string, call func(fd int) error) error {
	for {
		err := call(f.fd)
		runtime.KeepAlive(f)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return &os.PathError{Op: op, Path: f.f.Name(), Err: err}
		}
		return nil
	}
}

// writevLoop writes all buffers with a primitive that may write fewer bytes
// than asked for. It takes at most maxIov buffers per call, which is the
// kernel's limit, and continues inside a buffer after a short write.
func writevLoop(bufs [][]byte, off int64, maxIov int, writev func(bufs [][]byte, off int64) (int, error)) (int, error) {
	total := 0
	var head [1][]byte // the rest of a buffer that was written in part
	for len(bufs) > 0 {
		if len(head[0]) == 0 && len(bufs[0]) == 0 {
			bufs = bufs[1:]
			continue
		}
		var n int
		var err error
		if len(head[0]) > 0 {
			n, err = writev(head[:], off)
		} else {
			n, err = writev(bufs[:min(len(bufs), maxIov)], off)
		}
		if n > 0 {
			total += n
			off += int64(n)
		}
		if err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return total, err
		}
		if n <= 0 {
			return total, io.ErrShortWrite
		}
		for n > 0 {
			cur := bufs[0]
			if len(head[0]) > 0 {
				cur = head[0]
			}
			if n < len(cur) {
				head[0] = cur[n:]
				break
			}
			n -= len(cur)
			head[0] = nil
			bufs = bufs[1:]
		}
	}
	return total, nil
}
