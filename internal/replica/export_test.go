package replica

import (
	"context"
	"testing"
	"time"
)

// What the tests over real links (package replica_test) use of the tests in this package.

type (
	ListMachine   = listMachine
	ListCommand   = command
	NumberMachine = numberMachine
	TestBatch     = batch
)

var (
	WaitFor    = waitFor
	WaitReady  = waitReady
	OpenHost   = openHost
	CloseHost  = closeHost
	TestConfig = testConfig
	DiskConfig = diskConfig
	NewCommand = newCommand
	NewBatch   = newBatch
	UpTo       = upTo
	CPUTime    = cpuTime
)

const RaceEnabled = raceEnabled

func NewListMachine(t testing.TB) *ListMachine { return &listMachine{t: t} }

// NewDataMachine makes the entries of a list batches of one message, of which the newest are kept.
func NewDataMachine(m *ListMachine, keep uint64) Machine {
	return &dataMachine{listMachine: m, keepLast: keep}
}

// AwaitHeir is the wait of a node that has given the group up.
func (g *Group) AwaitHeir(ctx context.Context) error { return g.awaitHeir(ctx) }

func (m *listMachine) List() []uint64 { return m.list() }

func (c *command) Wait(t testing.TB) error { return c.wait(t) }

func (c *command) Done() <-chan *command { return c.done }

func (c *command) Pad(n int) { c.pad = n }

func (b *batch) Err() error { return b.err }

// censusControl counts in a shard.
type censusControl struct {
	count func(s *shard) int
	done  chan int
}

func (c *censusControl) run(s *shard) { c.done <- c.count(s) }

func (h *Host) count(f func(s *shard) int) int {
	n := 0
	for _, s := range h.shards {
		c := &censusControl{f, make(chan int, 1)}
		if s.inbox.post(item{ctl: c}) {
			n += <-c.done
		}
	}
	return n
}

// Awake counts the groups that need raft's clock.
func (h *Host) Awake() int {
	return h.count(func(s *shard) int {
		n := 0
		for _, g := range s.ticking {
			if g.needsTicks() {
				n++
			}
		}
		return n
	})
}

// Asleep reports whether the group sleeps here.
func (g *Group) Asleep() bool {
	return g.host.count(func(s *shard) int {
		if s == g.shard && g.asleep {
			return 1
		}
		return 0
	}) == 1
}

// Leased reports whether a read needs no round trip.
func (g *Group) Leased() bool { return g.leased() }

// EntryMisses counts reads of the log of all shards.
func (h *Host) EntryMisses() int {
	return h.count(func(s *shard) int { return int(s.cache.Stats().EntryMisses) })
}

// ElectionTimeout of the host.
func (h *Host) ElectionTimeout() time.Duration {
	return time.Duration(h.cfg.ElectionTicks) * h.cfg.Tick
}

func (b *inbox) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.items)
}

func (c *command) Value() uint64 { return c.value }
