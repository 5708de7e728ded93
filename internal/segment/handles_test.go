package segment

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/whippetmq/whippet/internal/vfs"
)

// TestUnflushedFilesAreBounded: many logs with bytes that nobody flushed do not keep more files open than may be; what has
// to make room is flushed, and nothing is lost.
func TestUnflushedFilesAreBounded(t *testing.T) {
	const files, logs = 4, 30
	m := vfs.NewMem(1)
	var bad string
	fs := vfs.NewFaulty(m, func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && bad != "" && strings.HasPrefix(op.Name, bad) {
			return syscall.EIO
		}
		return nil
	})
	h := NewHandles(files, 1<<20)
	var all []*Log
	for i := range logs {
		l, _, err := Open(fs, fmt.Sprint("node/", i), Options{Group: uint64(i), Handles: h}, 0)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	write := func(l *Log) error {
		w, err := l.Place(nextBatches(l, rng, 1, 1, 2, 100))
		if err != nil {
			return err
		}
		defer w.Release()
		return w.Do()
	}
	for range 3 {
		for i, l := range all {
			if err := write(l); err != nil {
				t.Fatalf("log %d: %v", i, err)
			}
			if n := h.Open(); n > files+1 {
				t.Fatalf("%d files open", n)
			}
		}
	}
	after := m.CrashClone(1)
	durable := 0
	for i := range all {
		l, _, err := Open(after, fmt.Sprint("node/", i), Options{Group: uint64(i)}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if l.LastIndex() == 3 {
			durable++
		}
	}
	if durable < logs-files-1 {
		t.Errorf("%d of %d logs survive a power loss whole", durable, logs)
	}

	// A log that cannot be flushed fails by itself; the others go on, and the bound holds as far as the rest allows.
	bad = "node/7/"
	failed := 0
	for range 3 {
		for i, l := range all {
			err := write(l)
			switch {
			case err != nil && (i != 7 || !errors.Is(err, ErrSyncFailed)):
				t.Fatalf("log %d: %v", i, err)
			case err != nil:
				failed++
			}
			if n := h.Open(); n > files+2 {
				t.Fatalf("%d files open", n)
			}
		}
	}
	if failed == 0 {
		t.Error("the log that cannot be flushed does not say so")
	}
	for _, l := range all {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := h.Open(); n != 0 || h.pinned != 0 {
		t.Errorf("%d files open, %d pinned after all are closed", n, h.pinned)
	}
}

// TestUnflushedFilesAtTheSameTime: logs on several goroutines flush each other's files.
func TestUnflushedFilesAtTheSameTime(t *testing.T) {
	h := NewHandles(2, 1<<20)
	fs := vfs.NewMem(1)
	var wg sync.WaitGroup
	for i := range 8 {
		l, _, err := Open(fs, fmt.Sprint("node/", i), Options{Group: uint64(i), Handles: h}, 0)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			for range 200 {
				w, err := l.Place(nextBatches(l, rng, 1, 1, 2, 100))
				if err == nil {
					err = w.Do()
				}
				if err != nil {
					t.Errorf("log %d: %v", i, err)
					return
				}
				w.Release()
			}
			if got, err := allEntries(l, 1<<20); err != nil || len(got) != 200 {
				t.Errorf("log %d: %d entries, %v", i, len(got), err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
