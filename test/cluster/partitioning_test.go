package cluster

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/test/cluster/harness"
	"github.com/whippetmq/whippet/wire"
)

// TestMessagesKey is E.2/10: messages go to the partition of their key, by the number of partitions that was known when
// they were assigned; the order per key holds while that number stands; new partitions are used once they are known.
func TestMessagesKey(t *testing.T) {
	c := three(t)
	const old, added = 6, 3
	stream, tp := topic(t, c, old)
	c.MustPlace(t, stream, tp, 0, 1, 2, 0, 1, 2)
	cl, w := c.Client(t, 0)
	before := session(t, cl)
	keys := harness.Scale(2000, 10_000)
	key := func(i int) []byte { return fmt.Appendf(nil, "key-%d", i) }

	type placed struct {
		phase, key int
		conf       client.Confirmation
	}
	var mu sync.Mutex
	var confirmed []placed
	p := cl.Producer(stream, tp, client.ProducerConfig{Partitioner: client.KeyPartitioner()})
	phase := func(n, rounds int) {
		t.Helper()
		for round := range rounds {
			for i := range keys {
				m := client.Message{Key: key(i), Payload: fmt.Appendf(nil, "%d %d %d", n, i, round)}
				err := p.Enqueue(patient(t), m, func(conf client.Confirmation, err error) {
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						t.Errorf("key %d: %v", i, err)
					}
					confirmed = append(confirmed, placed{n, i, conf})
				})
				must(t, err)
			}
		}
		must(t, p.Flush(bounded(t, time.Minute)))
	}
	phase(0, 2)
	must(t, c.Node(0).Call(patient(t), &wire.CreatePartitions{Stream: stream, Topic: tp, PartitionsCount: added}, nil))
	must(t, c.WaitTopic(patient(t), stream, tp, old+added))
	phase(1, 2)
	rounds := 4
	// The client looks at a topic again once a minute.
	grown := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.ContainsFunc(confirmed, func(f placed) bool { return f.conf.Partition >= old })
	}
	for n, end := 2, time.Now().Add(75*time.Second); harness.Slow() && !grown(); n++ {
		if time.Now().After(end) {
			t.Error("the new partitions were not used within 75 s")
			break
		}
		elapse(t, time.Second)
		phase(n, 1)
		rounds++
	}
	must(t, p.Close(bounded(t, time.Minute)))

	usedNew := false
	for _, f := range confirmed {
		under, over := wire.KeyPartition(key(f.key), old), wire.KeyPartition(key(f.key), old+added)
		switch {
		case f.phase == 0 && f.conf.Partition != under:
			t.Fatalf("key %d went to partition %d of %d, want %d", f.key, f.conf.Partition, old, under)
		case f.phase > 0 && f.conf.Partition != under && f.conf.Partition != over:
			t.Fatalf("key %d went to partition %d, want %d or %d", f.key, f.conf.Partition, under, over)
		}
		usedNew = usedNew || f.conf.Partition >= old
	}
	if !usedNew {
		t.Log("the new partitions were not used yet: the client had not looked at the topic again (WHIPPET_SLOW=1 waits for that)")
	}
	total := 0
	for partition := range uint32(old + added) {
		log, err := harness.ReadLog(patient(t), c.Node(int(partition)%3), stream, tp, partition, 0)
		must(t, err)
		total += len(log)
		last := map[[2]int]int{}
		for _, m := range log {
			var n, k, round int
			if _, err := fmt.Sscanf(string(m.Payload), "%d %d %d", &n, &k, &round); err != nil {
				t.Fatal(err)
			}
			if before, ok := last[[2]int{n, k}]; ok && round != before+1 {
				t.Errorf("partition %d: round %d of key %d is behind round %d", partition, round, k, before)
			}
			last[[2]int{n, k}] = round
		}
	}
	if total != rounds*keys {
		t.Errorf("the partitions hold %d messages, %d were sent", total, rounds*keys)
	}
	stays(t, cl, w, before)
}

// TestBalanced is E.2/11: balanced sends are spread evenly, and the partitions' lanes run side by side: six partitions take
// about as long as one of them with its share.
func TestBalanced(t *testing.T) {
	c := three(t)
	stream, tp := topic(t, c, 6)
	c.MustPlace(t, stream, tp, 0, 1, 2, 0, 1, 2)
	cl, w := c.Client(t, 0)
	before := session(t, cl)
	for p := range uint32(6) {
		_, err := cl.Send(patient(t), stream, tp, wire.PartitionID(p), client.Message{Payload: []byte("warm")})
		must(t, err)
	}
	// The wire is what takes the time, not this machine's processors.
	for _, n := range c.Nodes() {
		n.Proxy().SetDelay(harness.ToServer, 30*time.Millisecond)
	}
	const each = 100
	send := func(partitioning wire.Partitioning, n int, got []int) time.Duration {
		t.Helper()
		var wg sync.WaitGroup
		var mu sync.Mutex
		start := time.Now()
		for range n {
			wg.Go(func() {
				conf, err := cl.Send(patient(t), stream, tp, partitioning, client.Message{Payload: []byte("m")})
				mu.Lock()
				defer mu.Unlock()
				if err != nil || !conf.Known {
					t.Errorf("balanced send: %+v, %v", conf, err)
					return
				}
				got[conf.Partition]++
			})
		}
		wg.Wait()
		return time.Since(start)
	}
	var slowest time.Duration
	for p := range uint32(6) {
		got := make([]int, 6)
		slowest = max(slowest, send(wire.PartitionID(p), each, got))
	}
	got := make([]int, 6)
	took := send(wire.Balanced(), 6*each, got)
	for p, n := range got {
		if n != each {
			t.Errorf("partition %d got %d of %d sends: %v", p, n, 6*each, got)
		}
	}
	if took >= slowest*3/2+harness.Slack(100*time.Millisecond) {
		t.Errorf("six partitions took %v, the slowest one alone %v", took, slowest)
	}
	stays(t, cl, w, before)
}
