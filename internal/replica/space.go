package replica

import (
	"fmt"
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
	// A start writes a few small files: with less than startRoom free the ballast gives startStep away for them.
	startRoom = 256 << 10
	startStep = 1 << 20
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

	mu   sync.Mutex
	have int64 // bytes of the ballast that are there
}

func openSpace(cfg *Config) *space {
	s := &space{fs: cfg.FS, dir: cfg.Dir, log: cfg.Logger}
	// The size of the disk counts, not what is free of it: a restart on a full disk must not make do with less.
	_, total, err := cfg.FS.Free(cfg.Dir)
	if err != nil {
		cfg.Logger.Warn("the free space of the data directory is unknown", "error", err)
		s.reserve, s.ballast = -1, -1
		return s
	}
	s.reserve = sizeOr(cfg.ReserveBytes, min(16<<20, int64(total)/32))
	s.ballast = sizeOr(cfg.BallastBytes, min(64<<20, int64(total)/8))
	s.have = ballastSize(cfg)
	s.look()
	return s
}

// ballastSize is how much ballast an earlier run has left.
func ballastSize(cfg *Config) int64 {
	st, err := cfg.FS.Stat(filepath.Join(cfg.Dir, ballastName))
	if err != nil {
		return 0
	}
	return st.Size
}

// roomToStart gives a little of the ballast away when the disk has no room for what a start writes.
func roomToStart(cfg *Config) error {
	free, _, err := cfg.FS.Free(cfg.Dir)
	have := ballastSize(cfg)
	if err != nil || free >= startRoom || have == 0 {
		return nil //nolint:nilerr // not known: it is tried
	}
	path := filepath.Join(cfg.Dir, ballastName)
	f, err := cfg.FS.OpenFile(path, os.O_RDWR)
	if err != nil {
		return fmt.Errorf("replica: open the ballast: %w", err)
	}
	err = f.Truncate(max(0, have-startStep))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("replica: make room with the ballast: %w", err)
	}
	return nil
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
	left := s.look()
	if n <= spaceStep {
		return s.budget.Add(-n) >= 0 && !s.full.Load()
	}
	return n <= left && !s.full.Load()
}

// admitVital reports whether a Vital request may go into the log although admit refused it.
func (s *space) admitVital() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.have > 0 {
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

// look looks at the free space, and gives what may be admitted.
func (s *space) look() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	free, _, err := s.fs.Free(s.dir)
	if err != nil {
		s.budget.Store(spaceStep) // nobody knows: a write that finds no room says so
		return spaceStep
	}
	left := int64(free) - s.reserve
	if lacks := s.ballast - s.have; lacks > 0 && left >= lacks+s.ballast {
		if err := s.place(); err != nil {
			s.log.Warn("the ballast file cannot be made", "error", err)
			s.have = 0
		} else {
			s.have = s.ballast
			left -= lacks
		}
	}
	full := left <= 0 || s.have < s.ballast/2
	if full != s.full.Swap(full) {
		if full {
			s.log.Warn("the disk is full, requests are refused", "dir", s.dir, "free", free, "reserve", s.reserve)
		} else {
			s.log.Info("the disk has room again", "dir", s.dir, "free", free)
		}
	}
	s.budget.Store(min(left, spaceStep))
	return left
}

func (s *space) place() error {
	path := filepath.Join(s.dir, ballastName)
	f, err := s.fs.OpenFile(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	// The size tells a later run how much there is.
	if err = f.Preallocate(0, s.ballast); err == nil {
		err = f.Truncate(s.ballast)
	}
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
	if s.have <= 0 {
		return false
	}
	s.log.Warn("a write found the disk full, the ballast is given back", "dir", s.dir, "bytes", s.have)
	s.have = 0
	return s.fs.Remove(filepath.Join(s.dir, ballastName)) == nil
}
