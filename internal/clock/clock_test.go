package clock

import (
	"sync"
	"testing"
	"time"
)

// fakeSource is a wall clock and a monotonic clock that move by hand.
type fakeSource struct {
	wall time.Time
	mono time.Duration
}

func (f *fakeSource) read() (time.Time, time.Duration) { return f.wall, f.mono }

func (f *fakeSource) advance(d time.Duration) {
	f.wall = f.wall.Add(d)
	f.mono += d
}

func TestSystemSlew(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	tests := []struct {
		name      string
		jump      time.Duration
		after     time.Duration
		wantAhead time.Duration // node time minus (start + after)
		wantSteps int
	}{
		{name: "no jump", after: 10 * time.Second},
		{name: "small jump forward is taken over within its share", jump: 20 * time.Millisecond, after: 10 * time.Second, wantAhead: 20 * time.Millisecond},
		{name: "small jump back", jump: -20 * time.Millisecond, after: 10 * time.Second, wantAhead: -20 * time.Millisecond},
		{name: "step forward is slewed by one percent and reported once", jump: time.Hour, after: 10 * time.Second, wantAhead: 100 * time.Millisecond, wantSteps: 1},
		{name: "step back is slewed by one percent and reported once", jump: -time.Hour, after: 10 * time.Second, wantAhead: -100 * time.Millisecond, wantSteps: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			src := &fakeSource{wall: start}
			steps := 0
			s := newSystem(src.read, func(time.Duration) { steps++ })
			src.wall = src.wall.Add(tt.jump)
			last := s.Now()
			for passed := time.Duration(0); passed < tt.after; passed += 10 * time.Millisecond {
				src.advance(10 * time.Millisecond)
				now := s.Now()
				if now < last {
					t.Fatalf("time went back from %d to %d", last, now)
				}
				last = now
			}
			want := uint64(start.Add(tt.after + tt.wantAhead).UnixMicro())
			if diff := int64(last) - int64(want); diff < -1000 || diff > 1000 {
				t.Errorf("node time is %d µs off", diff)
			}
			if steps != tt.wantSteps {
				t.Errorf("reported %d steps, want %d", steps, tt.wantSteps)
			}
			if s.Mono() != tt.after {
				t.Errorf("mono = %v, want %v", s.Mono(), tt.after)
			}
		})
	}
}

func TestSystemNeverGoesBackUnderConcurrency(t *testing.T) {
	c := System(nil)
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			last := uint64(0)
			for range 10_000 {
				now := c.Now()
				if now < last {
					t.Errorf("time went back from %d to %d", last, now)
					return
				}
				last = now
			}
		}()
	}
	wg.Wait()
}

func TestManual(t *testing.T) {
	m := NewManual(1_000)
	m.Advance(1500 * time.Nanosecond)
	m.Advance(1500 * time.Nanosecond)
	if got := m.Now(); got != 1_003 {
		t.Errorf("Now() = %d, want 1003", got)
	}
	if got := m.Mono(); got != 3*time.Microsecond {
		t.Errorf("Mono() = %v, want 3µs", got)
	}
	m.Advance(-time.Second)
	if got := m.Now(); got != 1_003 {
		t.Errorf("Now() after a negative advance = %d, want 1003", got)
	}
	m.Jump(-time.Millisecond)
	if got := m.Now(); got != 3 {
		t.Errorf("Now() after a jump = %d, want 3", got)
	}
}

func BenchmarkSystemNow(b *testing.B) {
	c := System(nil)
	b.ReportAllocs()
	for b.Loop() {
		c.Now()
	}
}
