package server

import "testing"

// TestIdleness: memory is given back when a node is idle, also while clients ping it, and only when it is worth it.
func TestIdleness(t *testing.T) {
	const kept, taken = 20 << 20, 200 << 20
	for _, tt := range []struct {
		name        string
		frames      uint64
		connections int64
		resident    uint64
		want        bool
	}{
		{"nothing came, memory was taken", 100, 0, taken, true},
		{"nothing came, nothing was taken", 100, 0, kept + 1<<20, false},
		{"three clients ping", 100 + 3*2, 3, taken, true},
		{"one client works", 100 + 50, 1, taken, false},
		{"somebody came and left", 101, 0, taken, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			i := idleness{seen: 100, kept: kept}
			if got := i.trim(tt.frames, tt.connections, tt.resident); got != tt.want {
				t.Errorf("trim: %v", got)
			}
			if i.seen != tt.frames {
				t.Errorf("%d frames seen", i.seen)
			}
		})
	}
}
