package segment

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/whippetmq/whippet/internal/vfs"
)

// backFS notes what is asked to be brought to the device.
type backFS struct {
	vfs.FS
	block chan struct{} // nil = calls return at once

	mu      sync.Mutex
	asked   [][2]int64
	dropped []stretch
}

type backFile struct {
	vfs.File
	fs   *backFS
	name string
}

func (f *backFS) OpenFile(name string, flag int) (vfs.File, error) {
	file, err := f.FS.OpenFile(name, flag)
	if err != nil {
		return nil, err
	}
	return &backFile{file, f, name}, nil
}

func (f *backFile) DropCache(off, n int64) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.fs.dropped = append(f.fs.dropped, stretch{nil, f.name, off, n})
}

func (f *backFile) StartWriteback(off, n int64) error {
	f.fs.mu.Lock()
	f.fs.asked = append(f.fs.asked, [2]int64{off, n})
	f.fs.mu.Unlock()
	if f.fs.block != nil {
		<-f.fs.block
	}
	return nil
}

// TestWriteback: full stretches are brought to the device one after the other, none twice and none left out, and a device
// that takes its time holds nobody up who appends.
func TestWriteback(t *testing.T) {
	for _, tt := range []struct {
		name string
		own  bool
	}{{"by who writes", false}, {"by a goroutine that the device blocks", true}} {
		t.Run(tt.name, func(t *testing.T) {
			fs := &backFS{FS: vfs.NewMem(1)}
			o := Options{Group: testGroup, Handles: NewHandles(8, 1<<20)}
			stop := make(chan struct{})
			var wg sync.WaitGroup
			if tt.own {
				fs.block = make(chan struct{})
				o.Writeback = NewWriteback()
				wg.Go(func() { o.Writeback.Run(stop) })
			}
			l, _, err := Open(fs, testDir, o, 0)
			if err != nil {
				t.Fatal(err)
			}
			body := make([]byte, 2<<20)
			for l.Size() < 3*writebackBytes {
				putIn(t, l, Entry{Index: l.LastIndex() + 1, Term: 1, Data: makeBatch(l.NextOffset(), 1, body)})
				l.Applied(l.LastIndex())
			}
			end := l.active().written
			if tt.own {
				close(fs.block)
				for done := false; !done; {
					o.Writeback.mu.Lock()
					done = len(o.Writeback.jobs) == 0
					o.Writeback.mu.Unlock()
				}
			}
			close(stop)
			wg.Wait()
			if tt.own && o.Writeback.put(writebackJob{}) {
				t.Error("something was taken after the end")
			}
			var next int64
			for _, a := range fs.asked {
				if a[0] != next || a[1] < writebackBytes {
					t.Errorf("asked for %d bytes from %d, after %d", a[1], a[0], next)
				}
				next = a[0] + a[1]
			}
			if next > end || end-next >= writebackBytes+writebackAlign {
				t.Errorf("asked up to %d of %d", next, end)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if err := o.Handles.Close(); err != nil || o.Handles.Open() != 0 {
				t.Errorf("%d files are open: %v", o.Handles.Open(), err)
			}
		})
	}
}

// TestPageCacheIsBounded: of what several logs write, what is older than the newest leaves the page cache, oldest first,
// each byte once; a log that is deleted meanwhile keeps nothing, and no file stays open for it.
func TestPageCacheIsBounded(t *testing.T) {
	const keep, logs = 5 * writebackBytes / 2, 3
	fs := &backFS{FS: vfs.NewMem(1)}
	h, b := NewHandles(8, 1<<20), NewWriteback()
	b.keep = keep
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { b.Run(stop) })
	var all []*Log
	for i := range logs {
		l, _, err := Open(fs, fmt.Sprint("node/", i), Options{Group: uint64(i), Handles: h, Writeback: b, SegmentBytes: 2 * writebackBytes}, 0)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	body := make([]byte, 2<<20)
	written := int64(0)
	for range 3 * writebackBytes / len(body) {
		for i, l := range all {
			if i == 2 && written > logs*writebackBytes {
				continue // deleted below
			}
			putIn(t, l, Entry{Index: l.LastIndex() + 1, Term: 1, Data: makeBatch(l.NextOffset(), 1, body)})
			l.Applied(l.LastIndex())
			written += int64(len(body))
		}
		if written == logs*writebackBytes {
			if err := errors.Join(all[2].Close(), fs.RemoveAll("node/2")); err != nil {
				t.Fatal(err)
			}
		}
	}
	for done := false; !done; {
		b.mu.Lock()
		done = len(b.jobs) == 0
		b.mu.Unlock()
	}
	close(stop)
	wg.Wait()
	var asked, dropped int64
	for _, a := range fs.asked {
		asked += a[1]
	}
	next := map[string]int64{}
	for _, d := range fs.dropped {
		if d.off != next[d.file] {
			t.Errorf("%s: %d bytes from %d, after %d", d.file, d.n, d.off, next[d.file])
		}
		next[d.file] = d.off + d.n
		dropped += d.n
	}
	if b.bytes > keep || len(next) < logs-1 {
		t.Errorf("%d bytes are kept, %d files were dropped from", b.bytes, len(next))
	}
	if left := asked - dropped - b.bytes; left < 0 || left > 2*writebackBytes { // of the log that was deleted
		t.Errorf("%d bytes of %d are neither kept nor dropped", left, asked)
	}
	for _, l := range all[:2] {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := h.Close(); err != nil || h.Open() != 0 {
		t.Errorf("%d files are open: %v", h.Open(), err)
	}
}
