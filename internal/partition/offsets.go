package partition

import (
	"cmp"
	"slices"
	"sync"

	"github.com/whippetmq/whippet/wire"
)

func validKind(k wire.ConsumerKind) bool { return k == wire.ConsumerSingle || k == wire.ConsumerGroup }

// DefaultOffsetKeys is how many keys of one kind a partition stores by default (partition.consumer_offsets_max).
const DefaultOffsetKeys = 4096

type offsetKey struct {
	kind wire.ConsumerKind
	key  uint32
}

func (a offsetKey) compare(b offsetKey) int {
	if c := cmp.Compare(a.kind, b.kind); c != 0 {
		return c
	}
	return cmp.Compare(a.key, b.key)
}

// offsetTable holds the committed offsets. The shard's goroutine is its only writer; it reads without the lock, everybody
// else with it.
type offsetTable struct {
	mu     sync.RWMutex
	stored map[offsetKey]uint64 // guarded by mu for readers of other goroutines; nil until the first store
	groups int                  // keys of kind wire.ConsumerGroup; shard goroutine only
}

// get may be called from any goroutine.
func (t *offsetTable) get(k offsetKey) (uint64, bool) {
	t.mu.RLock()
	o, ok := t.stored[k]
	t.mu.RUnlock()
	return o, ok
}

// lowest is the smallest stored offset of all kinds, from any goroutine.
func (t *offsetTable) lowest() (uint64, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var low uint64
	ok := false
	for _, o := range t.stored { // a minimum does not depend on the order
		if !ok || o < low {
			low, ok = o, true
		}
	}
	return low, ok
}

// count is the number of keys of a kind; shard goroutine only.
func (t *offsetTable) count(kind wire.ConsumerKind) int {
	if kind == wire.ConsumerGroup {
		return t.groups
	}
	return len(t.stored) - t.groups
}

func (t *offsetTable) store(k offsetKey, offset uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stored == nil {
		t.stored = make(map[offsetKey]uint64)
	}
	if _, ok := t.stored[k]; !ok && k.kind == wire.ConsumerGroup {
		t.groups++
	}
	t.stored[k] = offset
}

func (t *offsetTable) remove(k offsetKey) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.stored[k]; !ok {
		return false
	}
	delete(t.stored, k)
	if k.kind == wire.ConsumerGroup {
		t.groups--
	}
	return true
}

// reset replaces the content.
func (t *offsetTable) reset(stored map[offsetKey]uint64) {
	groups := 0
	for k := range stored {
		if k.kind == wire.ConsumerGroup {
			groups++
		}
	}
	t.mu.Lock()
	t.stored, t.groups = stored, groups
	t.mu.Unlock()
}

// keys lists all keys in order; shard goroutine only.
func (t *offsetTable) keys() []offsetKey {
	if len(t.stored) == 0 {
		return nil
	}
	ks := make([]offsetKey, 0, len(t.stored))
	for k := range t.stored {
		ks = append(ks, k)
	}
	slices.SortFunc(ks, offsetKey.compare)
	return ks
}
