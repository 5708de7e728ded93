package segment

import (
	"os"
	"slices"
	"sync"

	"github.com/whippetmq/whippet/internal/vfs"
)

const (
	// writebackBytes is after how much the system is asked to begin writing a
	// file to the device, which bounds dirty memory and the next flush.
	writebackBytes = 8 << 20
	// writebackAlign keeps the page that the next write goes on with, and its
	// neighbours, out of it.
	writebackAlign = 64 << 10
	// writebackQueue is how many requests may wait.
	writebackQueue = 64
	// keepCached is how much of what was written last stays in the page cache, of
	// all logs of a node together. What is older and on the device leaves it: logs
	// that are written in full flow would push everything else out of memory, and
	// each page that the system has to find for them anew costs many times what one
	// costs that was just given back, most of all in a virtual machine, whose host
	// has to provide it. What is read again later is cached as usual.
	keepCached = 256 << 20
)

// Writeback asks the system to begin writing files to the device, on a goroutine
// that its owner gives it with Run: the call may wait for the device's queue,
// which whoever appends to a log must not. What finds the queue full, or nobody
// to take it, is left for a later write of the same file.
//
// The same goroutine has what was written long before leave the page cache.
type Writeback struct {
	keep int64
	wake chan struct{} // capacity 1

	mu     sync.Mutex
	jobs   []writebackJob
	closed bool

	// cached are the stretches that are kept in the page cache, oldest first, and
	// their bytes. Of the goroutine of Run.
	cached []stretch
	bytes  int64
}

type writebackJob struct {
	handles *Handles
	hd      *handle
	stretch
}

// stretch is a part of a file. It holds no open file, which would keep the space
// of one that is deleted.
type stretch struct {
	fs     vfs.FS
	file   string
	off, n int64
}

// dropCache has the stretch leave the page cache, if its file is still there.
func (s *stretch) dropCache() {
	f, err := s.fs.OpenFile(s.file, os.O_RDONLY)
	if err != nil {
		return
	}
	f.DropCache(s.off, s.n)
	_ = f.Close() // nothing was written
}

// NewWriteback returns one that takes requests; without Run they stay.
func NewWriteback() *Writeback { return &Writeback{keep: keepCached, wake: make(chan struct{}, 1)} }

// Run works until stop is closed. After that nothing is taken any more.
func (b *Writeback) Run(stop <-chan struct{}) {
	for {
		select {
		case <-b.wake:
			for _, j := range b.take(false) {
				// It promises nothing, and a device that fails says so again when it is flushed.
				_ = j.hd.f.StartWriteback(j.off, j.n)
				j.handles.release(j.hd)
				b.age(j.stretch)
			}
		case <-stop:
			for _, j := range b.take(true) {
				j.handles.release(j.hd)
			}
			return
		}
	}
}

// age adds a stretch to those that are kept in the page cache, and drops the oldest
// ones beyond what is kept. Those are on the device by now; what is not stays.
func (b *Writeback) age(s stretch) {
	b.cached = append(b.cached, s)
	b.bytes += s.n
	for b.bytes > b.keep {
		old := b.cached[0]
		b.cached = slices.Delete(b.cached, 0, 1)
		b.bytes -= old.n
		old.dropCache()
	}
}

func (b *Writeback) take(last bool) []writebackJob {
	b.mu.Lock()
	defer b.mu.Unlock()
	jobs := b.jobs
	b.jobs, b.closed = nil, last
	return jobs
}

// put takes over a use of the file. False = it did not.
func (b *Writeback) put(j writebackJob) bool {
	b.mu.Lock()
	ok := !b.closed && len(b.jobs) < writebackQueue
	if ok {
		b.jobs = append(b.jobs, j)
	}
	b.mu.Unlock()
	if ok {
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
	return ok
}

// writeBack has what was written of s up to end brought to the device when it has
// become much. hd is in use by the caller.
func (l *Log) writeBack(s *seg, hd *handle, end int64) {
	n := (end - s.writeback) &^ (writebackAlign - 1)
	if n < writebackBytes {
		return
	}
	if b := l.o.Writeback; b != nil {
		l.o.Handles.retain(hd)
		if !b.put(writebackJob{l.o.Handles, hd, stretch{l.fs, s.path + logSuffix, s.writeback, n}}) {
			l.o.Handles.release(hd)
			return
		}
	} else {
		_ = hd.f.StartWriteback(s.writeback, n)
	}
	s.writeback += n
}
