package segment

import "sync"

const (
	// writebackBytes is after how much the system is asked to begin writing a
	// file to the device, which bounds dirty memory and the next flush.
	writebackBytes = 8 << 20
	// writebackAlign keeps the page that the next write goes on with, and its
	// neighbours, out of it.
	writebackAlign = 64 << 10
	// writebackQueue is how many requests may wait.
	writebackQueue = 64
)

// Writeback asks the system to begin writing files to the device, on a goroutine
// that its owner gives it with Run: the call may wait for the device's queue,
// which whoever appends to a log must not. What finds the queue full, or nobody
// to take it, is left for a later write of the same file.
type Writeback struct {
	wake chan struct{} // capacity 1

	mu     sync.Mutex
	jobs   []writebackJob
	closed bool
}

type writebackJob struct {
	handles *Handles
	hd      *handle
	off, n  int64
}

// NewWriteback returns one that takes requests; without Run they stay.
func NewWriteback() *Writeback { return &Writeback{wake: make(chan struct{}, 1)} }

// Run works until stop is closed. After that nothing is taken any more.
func (b *Writeback) Run(stop <-chan struct{}) {
	for {
		select {
		case <-b.wake:
			for _, j := range b.take(false) {
				// It promises nothing, and a device that fails says so again when it is flushed.
				_ = j.hd.f.StartWriteback(j.off, j.n)
				j.handles.release(j.hd)
			}
		case <-stop:
			for _, j := range b.take(true) {
				j.handles.release(j.hd)
			}
			return
		}
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
		if !b.put(writebackJob{l.o.Handles, hd, s.writeback, n}) {
			l.o.Handles.release(hd)
			return
		}
	} else {
		_ = hd.f.StartWriteback(s.writeback, n)
	}
	s.writeback += n
}
