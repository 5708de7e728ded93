package cli

import (
	"testing"
	"time"
)

// Commands that send one message each reach all partitions.
func TestTurnsBeginAnywhere(t *testing.T) {
	used := map[uint32]bool{}
	for range 100 {
		used[newTurns(10, time.Second).Partition(nil, 3)] = true
	}
	if len(used) != 3 {
		t.Errorf("used: %v", used)
	}
}

func TestTurnsGoOnWithBatches(t *testing.T) {
	now := time.Now()
	p := newTurns(3, 5*time.Millisecond)
	p.now = func() time.Time { return now }
	first := p.Partition(nil, 4)
	for i, tt := range []struct {
		after time.Duration
		ahead uint32 // of the first partition
	}{{0, 0}, {0, 0}, {0, 1}, {4 * time.Millisecond, 1}, {time.Millisecond, 2}, {0, 2}, {time.Second, 3}, {time.Second, 0}} {
		now = now.Add(tt.after)
		if got, want := p.Partition(nil, 4), (first+tt.ahead)%4; got != want {
			t.Errorf("call %d: partition %d, want %d", i, got, want)
		}
	}
}
