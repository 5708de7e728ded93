package harness

import (
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	cases := []struct {
		name   string
		values []time.Duration
		p      float64
		want   time.Duration
	}{
		{"none", nil, 0.99, 0},
		{"one", hundred[:1], 0.5, 1},
		{"median of two", hundred[:2], 0.5, 1},
		{"median", hundred, 0.5, 50},
		{"p99", hundred, 0.99, 99},
		{"largest", hundred, 1, 100},
		{"beyond the last", hundred, 0.999, 100},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := Percentile(c.values, c.p); got != c.want {
				t.Fatalf("got %d, want %d", got, c.want)
			}
		})
	}
}
