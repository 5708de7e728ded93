package replica

import (
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/internal/vfs"
)

const (
	ballastName = "ballast"
	// spaceEvery is how often the free space is looked at while the host is awake.
	spaceEvery = 100 * time.Millisecond
	// spaceStep is how many bytes are admitted between two looks.
	spaceStep = 16 << 20
)

// space keeps requests out of raft when the disk has no room for them. An entry that raft has taken cannot be taken back
// by a single node: its write must be repeated until it succeeds, and its request waits. So refusals come first, at a
// reserve, and the ballast is given back when a write fails all the same.
//
//	free ≥ reserve:  requests are admitted
//	free < reserve:  requests are refused with ErrDiskFull; what raft has, control entries and Vital requests are written
//	a write failed:  the ballast is removed, the write is repeated; requests are refused until the ballast is back
//
// Vital requests have the ballast and the upper half of the reserve; the lower half is left to what cannot be refused.
//
// Any goroutine may call admit and the others.
type space struct {
	fs      vfs.FS
	dir     string
	log     *slog.Logger
	reserve int64
	ballast int64

	budget atomic.Int64 // bytes that may be admitted before the next look
	full   atomic.Bool
	next   atomic.Int64 // Clock.Mono of the next look

	mu       sync.Mutex
	released bool // the ballast is not there
}

func openSpace(cfg *Config) *space {
	s := &space{fs: cfg.FS, dir: cfg.Dir, log: cfg.Logger}
	free, _, err := cfg.FS.Free(cfg.Dir)
	if err != nil {
		cfg.Logger.Warn("the free space of the data directory is unknown", "error", err)
		s.reserve, s.ballast = -1, -1
		return s
	}
	s.reserve = sizeOr(cfg.ReserveBytes, min(16<<20, int64(free)/32))
	s.ballast = sizeOr(cfg.BallastBytes, min(64<<20, int64(free)/8))
	s.released = s.ballast > 0
	s.look()
	return s
}

// sizeOr is the configured size: 0 = the default, negative = none.
func sizeOr(configured, byDefault int64) int64 {
	if configured == 0 {
		return byDefault
	}
	return max(configured, 0)
}

// admit reports whether n more bytes may go into the log.
func (s *space) admit(n int64) bool {
	if s.reserve < 0 {
		return true
	}
	if s.full.Load() {
		return false
	}
	if s.budget.Add(-n) >= 0 {
		return true
	}
	s.look()
	return !s.full.Load()
}

// admitVital reports whether a Vital request may go into the log although admit refused it.
func (s *space) admitVital() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.released && s.ballast > 0 {
		return true // its write succeeds, with the ballast's room if need be
	}
	free, _, err := s.fs.Free(s.dir)
	return err == nil && int64(free) >= s.reserve/2
}

// tick looks at the free space now and then; it reports whether writes that wait for room should be tried.
func (s *space) tick(now time.Duration) {
	next := s.next.Load()
	if s.reserve < 0 || int64(now) < next || !s.next.CompareAndSwap(next, int64(now+spaceEvery)) {
		return
	}
	s.look()
}

func (s *space) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	free, _, err := s.fs.Free(s.dir)
	if err != nil {
		return // as it was
	}
	left := int64(free) - s.reserve
	if s.released && left >= 2*s.ballast {
		if err := s.place(); err != nil {
			s.log.Warn("the ballast file cannot be made", "error", err)
		} else {
			s.released = false
			left -= s.ballast
		}
	}
	full := left <= 0 || s.released
	if full != s.full.Swap(full) {
		if full {
			s.log.Warn("the disk is full, requests are refused", "dir", s.dir, "free", free, "reserve", s.reserve)
		} else {
			s.log.Info("the disk has room again", "dir", s.dir, "free", free)
		}
	}
	s.budget.Store(min(left, spaceStep))
}

func (s *space) place() error {
	path := filepath.Join(s.dir, ballastName)
	f, err := s.fs.OpenFile(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	err = f.Preallocate(0, s.ballast)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = s.fs.Remove(path)
	}
	return err
}

// failed says that a write found no room. It gives the ballast back and reports whether that may have helped.
func (s *space) failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full.Store(true)
	if s.released || s.ballast <= 0 {
		return false
	}
	s.released = true
	s.log.Warn("a write found the disk full, the ballast is given back", "dir", s.dir, "bytes", s.ballast)
	return s.fs.Remove(filepath.Join(s.dir, ballastName)) == nil
}
