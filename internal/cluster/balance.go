package cluster

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"github.com/whippetmq/whippet/internal/metadata"
	"github.com/whippetmq/whippet/internal/replica"
)

// BalancerConfig configures a Balancer. Zero times take the defaults in
// parentheses; everything else must be set.
type BalancerConfig struct {
	Self     uint64
	Nodes    []uint64
	Host     *replica.Host
	Metadata *metadata.Machine
	Leads    func() bool            // this node leads the metadata
	Up       func(node uint64) bool // a node can be reached
	Transfer func(ctx context.Context, group replica.GroupID, to uint64) error
	Logger   *slog.Logger

	Every  time.Duration // between two looks (1 s)
	Settle time.Duration // without a failover before anything moves (60 s)
	Live   time.Duration // that a node must have been reachable before it gets primaries (30 s)
	Pace   time.Duration // between two moves (20 ms: 50/s)
	Limit  time.Duration // of one move (5 s)
}

// Balancer returns primaries to their preferred nodes after failovers, one group
// at a time (decisions 6). Every node has one; only that of the metadata leader
// moves anything, the others watch, so that a new leader knows for how long
// things have been quiet.
type Balancer struct {
	cfg BalancerConfig

	quiet time.Time            // since when no primary was lost
	up    map[uint64]time.Time // since when a node has been reachable
	led   map[replica.GroupID]uint64
	later map[replica.GroupID]time.Time // when a group that was refused may be tried again
	leads bool
}

// NewBalancer makes a balancer; Run runs it.
func NewBalancer(cfg BalancerConfig) *Balancer {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&cfg.Every, time.Second)
	def(&cfg.Settle, time.Minute)
	def(&cfg.Live, 30*time.Second)
	def(&cfg.Pace, 20*time.Millisecond)
	def(&cfg.Limit, 5*time.Second)
	return &Balancer{cfg: cfg, quiet: time.Now(), up: map[uint64]time.Time{}, led: map[replica.GroupID]uint64{}, later: map[replica.GroupID]time.Time{}}
}

// Run looks and moves until ctx ends.
func (b *Balancer) Run(ctx context.Context) {
	tick := time.NewTicker(b.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if moves := b.look(now); len(moves) > 0 {
				b.move(ctx, moves)
			}
		}
	}
}

// move is a group that is to go to its preferred node.
type move struct {
	group    replica.GroupID
	from, to uint64
}

// look takes notes of nodes and primaries, and gives the moves that are due.
func (b *Balancer) look(now time.Time) []move {
	for _, n := range b.cfg.Nodes {
		switch since := b.up[n]; {
		case n == b.cfg.Self || b.cfg.Up(n):
			if since.IsZero() {
				b.up[n] = now
			}
		case !since.IsZero():
			b.up[n] = time.Time{}
			b.quiet = now
		}
	}
	primaries := map[uint64]int{}
	var misplaced []move
	seen := make(map[replica.GroupID]uint64, len(b.led))
	for _, p := range b.cfg.Metadata.Catalog().Partitions() {
		g := b.cfg.Host.Group(p.Group())
		if g == nil {
			continue
		}
		leader := g.Status().Leader
		before := b.led[p.Group()]
		if leader == 0 {
			leader = before
		} else if before != 0 && before != leader {
			b.quiet = now // it was moved, or its node failed
		}
		if leader == 0 {
			continue
		}
		seen[p.Group()] = leader
		primaries[leader]++
		if want := NodeID(p.Preferred); leader != want {
			misplaced = append(misplaced, move{p.Group(), leader, want})
		}
	}
	b.led = seen
	maps.DeleteFunc(b.later, func(g replica.GroupID, _ time.Time) bool { return seen[g] == 0 })
	leads := b.cfg.Leads()
	if leads && !b.leads {
		// The last leader may have been in the middle of it, or have failed.
		b.quiet = now
	}
	b.leads = leads
	if !leads || now.Sub(b.quiet) < b.cfg.Settle || len(misplaced) == 0 || !b.uneven(primaries, len(seen)) {
		return nil
	}
	due := misplaced[:0]
	for _, m := range misplaced {
		if since := b.up[m.to]; !since.IsZero() && now.Sub(since) >= b.cfg.Live && !now.Before(b.later[m.group]) {
			due = append(due, m)
		}
	}
	return due
}

// uneven reports whether the nodes' shares differ by more than one group and
// more than a tenth of an even share.
func (b *Balancer) uneven(primaries map[uint64]int, groups int) bool {
	least, most := groups, 0
	nodes := 0
	for _, n := range b.cfg.Nodes {
		if b.up[n].IsZero() {
			continue
		}
		nodes++
		least, most = min(least, primaries[n]), max(most, primaries[n])
	}
	return nodes > 1 && most-least > 1 && (most-least)*10*nodes > groups
}

// refusals is how many groups a node is asked to take in vain in one go.
const refusals = 3

// move hands the groups over, one after the other, as long as this node leads
// the metadata. A replica that is suspect or lacks much of the log does not get
// its group; only its group's leader knows that, and says so. Such a group is
// tried again later, and those of other nodes do not wait for it.
func (b *Balancer) move(ctx context.Context, moves []move) {
	moved := 0
	refused := map[uint64]int{}
	pace := time.NewTicker(b.cfg.Pace)
	defer pace.Stop()
	for _, m := range moves {
		if ctx.Err() != nil || !b.cfg.Leads() {
			break
		}
		if refused[m.to] >= refusals || m.to != b.cfg.Self && !b.cfg.Up(m.to) {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, b.cfg.Limit)
		err := b.cfg.Transfer(limited, m.group, m.to)
		cancel()
		if err != nil {
			b.cfg.Logger.Info("a primary was not brought back", "group", m.group, "from", m.from, "to", m.to, "error", err)
			refused[m.to]++
			b.later[m.group] = time.Now().Add(b.cfg.Live)
			continue
		}
		// A move of our own does not count as unrest.
		b.led[m.group] = m.to
		moved++
		select {
		case <-pace.C:
		case <-ctx.Done():
		}
	}
	if moved > 0 {
		b.cfg.Logger.Info("primaries brought back to their nodes", "moved", moved, "of", len(moves))
	}
}
