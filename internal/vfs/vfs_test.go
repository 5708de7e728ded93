package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// As a child process: try to take the lock and tell how it went.
	if name := os.Getenv("VFS_TEST_LOCK"); name != "" {
		if _, err := OS().Lock(name); err != nil {
			fmt.Print(err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// eachFS runs a test on every implementation.
func eachFS(t *testing.T, f func(t *testing.T, fs FS, dir string)) {
	t.Run("os", func(t *testing.T) { f(t, OS(), t.TempDir()) })
	t.Run("mem", func(t *testing.T) {
		m := NewMem(1)
		if err := m.MkdirAll("work"); err != nil {
			t.Fatal(err)
		}
		f(t, m, "work")
	})
	t.Run("faulty", func(t *testing.T) { f(t, NewFaulty(OS(), func(Op) error { return nil }), t.TempDir()) })
}

func TestFiles(t *testing.T) {
	eachFS(t, func(t *testing.T, fs FS, dir string) {
		name := filepath.Join(dir, "a")
		if _, err := fs.OpenFile(name, os.O_RDWR); !IsNotExist(err) {
			t.Errorf("open missing: %v", err)
		}
		f, err := fs.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fs.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL); !errors.Is(err, os.ErrExist) {
			t.Errorf("exclusive open: %v", err)
		}
		if n, err := f.WritevAt([][]byte{[]byte("ab"), nil, []byte("c"), []byte("def")}, 3); n != 6 || err != nil {
			t.Errorf("writev: %d, %v", n, err)
		}
		if n, err := f.WriteAt([]byte("X"), 0); n != 1 || err != nil {
			t.Errorf("write: %d, %v", n, err)
		}
		b := make([]byte, 20)
		if n, err := f.ReadAt(b, 0); n != 9 || !errors.Is(err, io.EOF) || string(b[:n]) != "X\x00\x00abcdef" {
			t.Errorf("read %q, %v", b[:n], err)
		}
		if _, err := f.ReadAt(b, 9); !errors.Is(err, io.EOF) {
			t.Errorf("read at the end: %v", err)
		}
		for _, size := range []int64{5, 7} {
			if err := f.Truncate(size); err != nil {
				t.Error(err)
			}
			if n, err := f.Size(); n != size || err != nil {
				t.Errorf("size %d, %v", n, err)
			}
		}
		if n, _ := f.ReadAt(b, 0); string(b[:n]) != "X\x00\x00ab\x00\x00" {
			t.Errorf("after truncation %q", b[:n])
		}
		if err := errors.Join(f.Preallocate(0, 4096), f.StartWriteback(0, 5), f.Datasync(), f.Sync()); err != nil {
			t.Error(err)
		}
		f.AdviseWillNeed(0, 100)
		f.DropCache(0, 100)
		if n, err := f.Size(); n != 7 || err != nil {
			t.Errorf("size after preallocation %d, %v", n, err)
		}
		if err := fs.Rename(name, filepath.Join(dir, "b")); err != nil {
			t.Error(err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		changed, err := MakeDirs(fs, filepath.Join(dir, "x", "y"))
		if err != nil || len(changed) != 2 || changed[0] != filepath.Join(dir, "x") || changed[1] != dir {
			t.Errorf("made %v, %v", changed, err)
		}
		if changed, err := MakeDirs(fs, filepath.Join(dir, "x", "y")); err != nil || changed != nil {
			t.Errorf("made again %v, %v", changed, err)
		}
		list, err := fs.List(dir)
		if err != nil || len(list) != 2 || list[0] != (DirEntry{Name: "b"}) || list[1] != (DirEntry{Name: "x", Dir: true}) {
			t.Errorf("list %v, %v", list, err)
		}
		if err := fs.Remove(filepath.Join(dir, "x")); err == nil {
			t.Error("removed a directory that is not empty")
		}
		if err := errors.Join(fs.SyncDir(dir), fs.RemoveAll(filepath.Join(dir, "x")), fs.RemoveAll(filepath.Join(dir, "x")), fs.Remove(filepath.Join(dir, "b"))); err != nil {
			t.Error(err)
		}
		if _, err := fs.Stat(filepath.Join(dir, "b")); !IsNotExist(err) {
			t.Errorf("stat removed: %v", err)
		}
		if free, total, err := fs.Free(dir); err != nil || free == 0 || total < free {
			t.Errorf("free %d of %d, %v", free, total, err)
		}
	})
}

func TestManyBuffers(t *testing.T) {
	eachFS(t, func(t *testing.T, fs FS, dir string) {
		f, err := fs.Create(filepath.Join(dir, "a"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close() //nolint:errcheck // test
		var bufs [][]byte
		var want []byte
		for i := range 3000 {
			b := bytes.Repeat([]byte{byte(i)}, i%5)
			bufs, want = append(bufs, b), append(want, b...)
		}
		if n, err := f.WritevAt(bufs, 10); n != len(want) || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		got := make([]byte, len(want))
		if _, err := f.ReadAt(got, 10); err != nil || !bytes.Equal(got, want) {
			t.Errorf("content differs, %v", err)
		}
	})
}

// TestWritevShort lets the system call write fewer bytes than asked for, be
// interrupted and fail.
func TestWritevShort(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		var bufs [][]byte
		var want []byte
		for i := range rng.IntN(20) {
			b := bytes.Repeat([]byte{byte(i + 1)}, rng.IntN(9))
			bufs, want = append(bufs, b), append(want, b...)
		}
		got := make([]byte, len(want))
		failAt := rng.IntN(2*len(want) + 1)
		n, err := writevLoop(bufs, 0, 4, func(bufs [][]byte, off int64) (int, error) {
			if len(bufs) > 4 {
				t.Fatalf("%d buffers at once", len(bufs))
			}
			if rng.IntN(5) == 0 {
				return -1, syscall.EINTR
			}
			if int(off) >= failAt {
				return 0, syscall.ENOSPC
			}
			all := bytes.Join(bufs, nil)
			n := min(1+rng.IntN(len(all)), failAt-int(off))
			return copy(got[off:], all[:n]), nil
		})
		if failAt < len(want) {
			if !IsDiskFull(err) || n != failAt {
				t.Fatalf("failed at %d: %d, %v", failAt, n, err)
			}
			continue
		}
		if err != nil || n != len(want) || !bytes.Equal(got, want) {
			t.Fatalf("%d of %d, %v", n, len(want), err)
		}
	}
	if _, err := writevLoop([][]byte{{1}}, 0, 4, func([][]byte, int64) (int, error) { return 0, nil }); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("no progress: %v", err)
	}
}

func TestLock(t *testing.T) {
	eachFS(t, func(t *testing.T, fs FS, dir string) {
		name := filepath.Join(dir, "lock")
		l, err := fs.Lock(name)
		if err != nil {
			t.Fatal(err)
		}
		_, err = fs.Lock(name)
		var locked *LockedError
		if !errors.As(err, &locked) || locked.Dir != dir {
			t.Errorf("second lock: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		l, err = fs.Lock(name)
		if err != nil {
			t.Fatalf("after it was given back: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestLockOfAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "lock")
	l, err := OS().Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	try := func() (string, error) {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), "VFS_TEST_LOCK="+name)
		out, err := cmd.Output()
		return string(out), err
	}
	out, err := try()
	if err == nil || !bytes.Contains([]byte(out), []byte(dir)) {
		t.Errorf("child got the lock, or does not name the directory: %q, %v", out, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if out, err := try(); err != nil {
		t.Errorf("child: %q, %v", out, err)
	}
}

func TestMemCrash(t *testing.T) {
	m := NewMem(3)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(m.MkdirAll("d"))
	must(m.SyncDir("."))
	f, err := m.Create("d/f")
	must(err)
	old := bytes.Repeat([]byte{1}, 4096)
	_, err = f.WriteAt(old, 0)
	must(err)
	must(f.Datasync())
	must(m.SyncDir("d"))
	_, err = f.WriteAt(bytes.Repeat([]byte{2}, 8000), 100)
	must(err)
	g, err := m.Create("d/g")
	must(err)
	must(g.Sync())
	must(m.Rename("d/f", "d/h"))

	seen := map[string]bool{}
	for seed := range uint64(400) {
		c := m.CrashClone(seed)
		name := "d/f"
		if _, err := c.Stat(name); err != nil {
			name = "d/h"
			seen["renamed"] = true
		} else if _, err := c.Stat("d/h"); err == nil {
			t.Fatalf("seed %d: half a rename", seed)
		}
		b, err := ReadFile(c, name, 1<<20)
		if err != nil {
			t.Fatalf("seed %d: the flushed file is gone: %v", seed, err)
		}
		if len(b) < 4096 || b[0] != 1 {
			t.Fatalf("seed %d: flushed content is gone", seed)
		}
		// Each sector is old or new as a whole.
		for at := 100; at < len(b); {
			next := min((at/512+1)*512, len(b))
			for i := at; i < min(next, 8100); i++ {
				if b[i] != b[at] && i != 4096 {
					t.Fatalf("seed %d: sector of byte %d is torn", seed, i)
				}
			}
			seen[fmt.Sprint("byte ", b[at])] = true
			at = next
		}
		if _, err := c.Stat("d/g"); err != nil {
			seen["name lost"] = true
		} else {
			seen["name kept"] = true
		}
		if d := m.CrashClone(seed); d.Used() != c.Used() {
			t.Errorf("seed %d gives two results", seed)
		}
	}
	for _, s := range []string{"renamed", "byte 0", "byte 1", "byte 2", "name lost", "name kept"} {
		if !seen[s] {
			t.Errorf("no crash had: %s", s)
		}
	}
	k := m.KillClone()
	b, err := ReadFile(k, "d/h", 1<<20)
	if err != nil || len(b) != 8100 || b[8099] != 2 {
		t.Errorf("kill lost something: %d bytes, %v", len(b), err)
	}
	lost := false
	for seed := range uint64(50) {
		if b, err := ReadFile(k.CrashClone(seed), "d/f", 1<<20); err == nil && len(b) == 4096 {
			lost = true
		}
	}
	if !lost {
		t.Error("what was not flushed before a kill survives every later crash")
	}
}

func TestMemCapacity(t *testing.T) {
	m := NewMem(1)
	m.SetCapacity(1000)
	f, err := m.Create("f")
	if err != nil {
		t.Fatal(err)
	}
	n, err := f.WriteAt(make([]byte, 1500), 0)
	if n != 1000 || !IsDiskFull(err) {
		t.Errorf("wrote %d, %v", n, err)
	}
	if n, err := f.WriteAt(make([]byte, 10), 1000); n != 0 || !IsDiskFull(err) {
		t.Errorf("wrote %d, %v", n, err)
	}
	if n, err := f.WriteAt(make([]byte, 500), 500); n != 500 || err != nil {
		t.Errorf("overwrite: %d, %v", n, err)
	}
	if err := f.Truncate(100); err != nil {
		t.Fatal(err)
	}
	if free, total, _ := m.Free("."); free != 900 || total != 1000 {
		t.Errorf("free %d of %d", free, total)
	}
}

func TestFaulty(t *testing.T) {
	m := NewMem(1)
	var ops []string
	var fail error
	fs := NewFaulty(m, func(op Op) error {
		ops = append(ops, fmt.Sprint(op.Kind, " ", op.Name, " ", op.Off, " ", op.Len))
		return fail
	})
	f, err := fs.Create("f")
	if err != nil {
		t.Fatal(err)
	}
	fail = &PartialError{N: 3, Err: syscall.EIO}
	if n, err := f.WritevAt([][]byte{[]byte("ab"), []byte("cd")}, 5); n != 3 || !errors.Is(err, syscall.EIO) {
		t.Errorf("%d, %v", n, err)
	}
	if err := f.Datasync(); !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}
	fail = nil
	if b, err := ReadFile(fs, "f", 100); err != nil || string(b) != "\x00\x00\x00\x00\x00abc" {
		t.Errorf("%q, %v", b, err)
	}
	want := []string{"create f 0 0", "write f 5 4", "sync f 0 0", "open f 0 0", "read f 0 8", "close f 0 0"}
	if fmt.Sprint(ops) != fmt.Sprint(want) {
		t.Errorf("%q", ops)
	}
}
