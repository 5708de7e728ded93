package client

import (
	"context"
	"testing"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// warmLane is the lane of a partition whose route and link are warm.
func warmLane(tb testing.TB) (*lane, *link, func()) {
	s := newCluster(tb, 3, 1)
	s.move(0, 1)
	c, w := s.connect(0)
	if _, err := c.Send(context.Background(), stream, topic, wire.PartitionID(0), text("x")); err != nil {
		tb.Fatal(err)
	}
	info, err := c.topics.get(context.Background(), stream, topic)
	if err != nil {
		tb.Fatal(err)
	}
	ln, err := c.lane(info.sendKey(wire.PartitionID(0)), stream, topic, true)
	if err != nil {
		tb.Fatal(err)
	}
	l, _, err := ln.links.current(want{since: time.Now()})
	if err != nil || l == nil {
		tb.Fatalf("no link: %v", err)
	}
	return ln, l, func() { s.close(c, w) }
}

// TestRouterWarmAllocs: a warm send does not allocate in the router.
func TestRouterWarmAllocs(t *testing.T) {
	ln, l, done := warmLane(t)
	defer done()
	w := want{since: time.Now(), deadline: time.Now().Add(time.Minute)}
	if n := testing.AllocsPerRun(1000, func() {
		if got, _, _ := ln.links.current(w); got != l {
			t.Fatal("another link")
		}
		ln.links.admitted(l)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkRouterWarm is what the router adds to a warm send: finding the link, and
// noting the success.
func BenchmarkRouterWarm(b *testing.B) {
	ln, l, done := warmLane(b)
	defer done()
	w := want{since: time.Now(), deadline: time.Now().Add(time.Hour)}
	b.ReportAllocs()
	for b.Loop() {
		if got, _, _ := ln.links.current(w); got != l {
			b.Fatal("another link")
		}
		ln.links.admitted(l)
	}
}
