package main

import "testing"

func TestParseStats(t *testing.T) {
	const several = `
[1] 30,000 msgs/sec ~ 3 MiB/sec
NATS JetStream asynchronous publisher aggregated stats: 62,580 msgs/sec ~ 60 MiB/sec
`
	const one = `NATS JetStream synchronous publisher stats: 6,653 msgs/sec ~ 650 KiB/sec ~ min: 39.00us ~ avg: 150.01us ~ max: 3,666.68us ~ P50: 1,141.28us ~ P90: 226.37us`
	if r, err := parseStats(several); err != nil || r.perSecond != 62580 || r.p50 != 0 {
		t.Errorf("several clients: %+v, %v", r, err)
	}
	if r, err := parseStats(one); err != nil || r.perSecond != 6653 || r.p50 != 1141.28 {
		t.Errorf("one client: %+v, %v", r, err)
	}
	if _, err := parseStats("nats: error"); err == nil {
		t.Error("an output without statistics is taken")
	}
}

func TestMedian(t *testing.T) {
	if m := median([]float64{3, 1, 2}); m != 2 {
		t.Error(m)
	}
	if m := median([]float64{4, 1, 2, 3}); m != 2.5 {
		t.Error(m)
	}
}
