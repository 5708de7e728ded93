package server

import (
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/whippetmq/whippet/wire"
)

// cpu is the CPU time of this process: on a machine that others use it says more than the clock.
func cpu() float64 {
	var ru unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &ru) != nil {
		return 0
	}
	return float64(ru.Utime.Nano() + ru.Stime.Nano())
}

// BenchmarkForwarding compares sends of clients that cannot route, one in flight
// each, to a primary on their own node with those to a primary elsewhere, and to
// partitions of all nodes.
func BenchmarkForwarding(b *testing.B) {
	n := startNodes(b, 3, nil)
	r := n.login(0)
	stream, topic := n.topicOn(r, 6)
	payload := make([]byte, 100)
	messages := make([]wire.Message, 100)
	for i := range messages {
		messages[i].Payload = payload
	}
	for name, at := range map[string][]int{"here": {0, 0, 0, 0, 0, 0}, "elsewhere": {1, 1, 1, 1, 1, 1}, "spread": {0, 1, 2, 0, 1, 2}} {
		b.Run(name, func(b *testing.B) {
			for p, node := range at {
				n.move(stream, topic, uint32(p), node)
			}
			const producers = 12
			clients := make([]*raw, producers)
			for i := range clients {
				clients[i] = n.login(0)
			}
			b.SetBytes(100 * 100)
			b.ReportAllocs()
			b.ResetTimer()
			used := cpu()
			var wg sync.WaitGroup
			for i, c := range clients {
				wg.Go(func() {
					batch, err := wire.BuildBatch(nil, messages)
					if err != nil {
						b.Error(err)
						return
					}
					for k := 0; k < b.N/producers; k++ {
						p := uint32((i + k) % 6)
						if code := c.do(&wire.SendMessages{Stream: stream, Topic: topic, Partitioning: wire.PartitionID(p), Batch: batch}).code(); code != 0 {
							b.Error(code)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric((cpu()-used)/float64(b.N), "cpu-ns/op")
			for _, c := range clients {
				_ = c.nc.Close()
			}
		})
	}
}
