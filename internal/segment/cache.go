package segment

import (
	"sync"
	"sync/atomic"
)

// itemOverhead is what an entry in memory costs beside its data.
const itemOverhead = 160

// Cache is the tail cache: the newest entries of many logs in memory, as the
// same memory that the caller placed. One limit holds for all logs together,
// and the entries that became evictable (written and applied) first go first,
// whichever log they belong to.
type Cache struct {
	limit       int64
	used        atomic.Int64
	hits        atomic.Uint64
	misses      atomic.Uint64
	entryMisses atomic.Uint64

	mu   sync.Mutex
	runs []cacheRun // queue: runs[head:] is in use
	head int
}

// cacheRun says that a log's entries up to an index may go.
type cacheRun struct {
	l     *Log
	index uint64
}

// NewCache returns a cache with a limit in bytes. Entries that are not yet
// written and applied stay even above it.
func NewCache(limit int64) *Cache { return &Cache{limit: limit} }

// CacheStats are counters of a cache.
type CacheStats struct {
	// Bytes is the memory in use, Limit the limit.
	Bytes, Limit int64
	// Hits and Misses count reads served from memory and from a file;
	// EntryMisses counts reads of the owner (Entries) that went to a file.
	Hits, Misses, EntryMisses uint64
}

// Stats returns the counters.
func (c *Cache) Stats() CacheStats {
	return CacheStats{
		Bytes: c.used.Load(), Limit: c.limit,
		Hits: c.hits.Load(), Misses: c.misses.Load(), EntryMisses: c.entryMisses.Load(),
	}
}

// release queues a log's entries up to an index for eviction.
func (c *Cache) release(l *Log, index uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.runs); n > c.head && c.runs[n-1].l == l {
		c.runs[n-1].index = index
		return
	}
	if c.head > 64 && c.head > len(c.runs)/2 {
		n := copy(c.runs, c.runs[c.head:])
		clear(c.runs[n:])
		c.runs, c.head = c.runs[:n], 0
	}
	c.runs = append(c.runs, cacheRun{l, index})
}

// reclaim evicts until the limit holds or nothing more may go. No log's lock is
// held by the caller.
func (c *Cache) reclaim() {
	for {
		excess := c.used.Load() - c.limit
		if excess <= 0 {
			return
		}
		c.mu.Lock()
		if c.head == len(c.runs) {
			c.runs, c.head = c.runs[:0], 0
			c.mu.Unlock()
			return
		}
		run := c.runs[c.head]
		c.runs[c.head] = cacheRun{}
		c.head++
		c.mu.Unlock()
		if more := run.l.evict(run.index, excess); more {
			c.mu.Lock()
			if c.head > 0 {
				c.head--
				c.runs[c.head] = run
			} else {
				c.runs = append([]cacheRun{run}, c.runs...)
			}
			c.mu.Unlock()
		}
	}
}
