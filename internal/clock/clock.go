// Package clock is the node's source of time. Everything that stamps messages, expires state or measures leases takes a
// Clock, so that tests and the simulation drive time by hand.
package clock

import (
	"sync"
	"sync/atomic"
	"time"
)

// Clock tells node time and monotonic time. Implementations are safe for concurrent use.
type Clock interface {
	// Now is the node time in microseconds since 1970. It never goes backwards within a process and follows the wall
	// clock without jumps.
	Now() uint64
	// Mono is the time since the clock was made. It never goes backwards and is not changed by anybody.
	Mono() time.Duration
}

// StepLimit is the difference between node time and wall clock from which a change of the wall clock is reported to
// the function given to System.
const StepLimit = time.Second

// slewShare is the largest part of the elapsed time by which node time is corrected towards the wall clock: 1/100.
const slewShare = 100

// checkEvery bounds how often the wall clock is compared, which keeps Now cheap.
const checkEvery = 100 * time.Millisecond

type system struct {
	source  func() (wall time.Time, mono time.Duration)
	stepped func(behind time.Duration)

	// offset is what is added to mono to give node time, in nanoseconds since 1970.
	offset atomic.Int64
	// next is the mono time of the next comparison with the wall clock.
	next atomic.Int64
	// last is the newest node time that was handed out, so that a negative correction cannot turn time back.
	last atomic.Uint64

	mu       sync.Mutex
	checked  time.Duration // mono time of the last comparison; under mu
	reported bool          // a step was reported and has not been slewed away; under mu
}

// System is the clock of a production node: the wall clock at the start plus the monotonic clock, slewed towards the
// wall clock by at most one percent of the elapsed time. A difference of StepLimit or more is told to stepped once
// (nil = nobody), with how far node time is behind the wall clock; stepped must not call the clock.
func System(stepped func(behind time.Duration)) Clock {
	start := time.Now()
	return newSystem(func() (time.Time, time.Duration) { return wall(), time.Since(start) }, stepped)
}

func newSystem(source func() (time.Time, time.Duration), stepped func(time.Duration)) *system {
	s := &system{source: source, stepped: stepped}
	wall, mono := source()
	s.offset.Store(wall.UnixNano() - int64(mono))
	s.checked = mono
	s.next.Store(int64(mono + checkEvery))
	return s
}

func (s *system) Mono() time.Duration {
	_, mono := s.source()
	return mono
}

func (s *system) Now() uint64 {
	wall, mono := s.source()
	if int64(mono) >= s.next.Load() {
		s.slew(wall, mono)
	}
	now := uint64(max(0, s.offset.Load()+int64(mono))) / 1000
	for {
		last := s.last.Load()
		if now <= last {
			return last
		}
		if s.last.CompareAndSwap(last, now) {
			return now
		}
	}
}

// slew moves the offset by at most a hundredth of the time since the last comparison.
func (s *system) slew(wall time.Time, mono time.Duration) {
	s.mu.Lock()
	elapsed := mono - s.checked
	if elapsed < checkEvery {
		s.mu.Unlock()
		return
	}
	s.checked = mono
	s.next.Store(int64(mono + checkEvery))
	behind := wall.UnixNano() - (s.offset.Load() + int64(mono))
	limit := int64(elapsed) / slewShare
	s.offset.Add(min(max(behind, -limit), limit))
	report := false
	switch far := behind >= int64(StepLimit) || behind <= -int64(StepLimit); {
	case far && !s.reported:
		s.reported, report = true, true
	case !far:
		s.reported = false
	}
	s.mu.Unlock()
	if report && s.stepped != nil {
		s.stepped(time.Duration(behind))
	}
}

// Manual is a clock that moves only when it is told to. The zero value stands at 0; it is safe for concurrent use.
type Manual struct {
	now  atomic.Uint64
	mono atomic.Int64
}

// NewManual returns a clock that stands at the given node time in microseconds since 1970.
func NewManual(now uint64) *Manual {
	m := &Manual{}
	m.now.Store(now)
	return m
}

// Now implements Clock.
func (m *Manual) Now() uint64 { return m.now.Load() }

// Mono implements Clock.
func (m *Manual) Mono() time.Duration { return time.Duration(m.mono.Load()) }

// Advance moves node time and monotonic time forward by d; a negative d is ignored.
func (m *Manual) Advance(d time.Duration) {
	if d <= 0 {
		return
	}
	// The sum of monotonic nanoseconds keeps fractions of a microsecond from being lost over many calls.
	after := m.mono.Add(int64(d))
	before := after - int64(d)
	m.now.Add(uint64(after/1000 - before/1000))
}

// Jump moves only node time, forward or back, as an administrator's change of the wall clock would.
func (m *Manual) Jump(d time.Duration) {
	m.now.Add(uint64(d.Microseconds()))
}
