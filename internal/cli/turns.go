package cli

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/whippetmq/whippet/client"
)

// turns is a client.Partitioner that gives each batch to the next partition, as client.BalancedPartitioner does, but begins
// at a random one: a command sends few messages, and a loop of such commands is to use all partitions.
//
// It does not see batches end. It takes the same bounds for them as the producer: so many messages, or so long after the
// first.
type turns struct {
	messages int           // of a batch, at most
	linger   time.Duration // of a batch
	now      func() time.Time

	mu      sync.Mutex
	current uint32 // runs on beyond the number of partitions
	taken   int    // messages of the current partition's batch
	began   time.Time
}

func newTurns(messages int, linger time.Duration) *turns {
	return &turns{messages: messages, linger: linger, now: time.Now, current: rand.Uint32()}
}

// Partition is client.Partitioner.
func (t *turns) Partition(_ *client.Message, count uint32) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if t.taken > 0 && (t.taken == t.messages || now.Sub(t.began) >= t.linger) {
		t.current++
		t.taken = 0
	}
	if t.taken == 0 {
		t.began = now
	}
	t.taken++
	return t.current % count
}
