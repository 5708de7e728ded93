package segment

import (
	"sync"
	"testing"

	"github.com/whippetmq/whippet/internal/vfs"
)

// backFS notes what is asked to be brought to the device.
type backFS struct {
	vfs.FS
	block chan struct{} // nil = calls return at once

	mu    sync.Mutex
	asked [][2]int64
}

type backFile struct {
	vfs.File
	fs *backFS
}

func (f *backFS) OpenFile(name string, flag int) (vfs.File, error) {
	file, err := f.FS.OpenFile(name, flag)
	if err != nil {
		return nil, err
	}
	return &backFile{file, f}, nil
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
