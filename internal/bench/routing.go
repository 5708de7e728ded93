package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/client"
)

// Routing is what clients did to reach the partitions' primaries.
type Routing struct {
	SessionMoves uint64 `json:"session_moves"` // sessions signed in again elsewhere
	Refusals     uint64 `json:"refusals"`      // writes that a node did not take because it was not the primary
	Lookups      uint64 `json:"lookups"`       // questions who the primary is
	Links        uint64 `json:"links"`         // connections made, those of sessions included
}

func (r Routing) minus(o Routing) Routing {
	return Routing{r.SessionMoves - o.SessionMoves, r.Refusals - o.Refusals, r.Lookups - o.Lookups, r.Links - o.Links}
}

func (r *Routing) add(o Routing) {
	r.SessionMoves += o.SessionMoves
	r.Refusals += o.Refusals
	r.Lookups += o.Lookups
	r.Links += o.Links
}

// routingCounter counts it, as a hook of all clients of a run.
type routingCounter struct{ moves, refusals, lookups, links atomic.Uint64 }

// OnSessionMove counts a session that moved.
func (c *routingCounter) OnSessionMove(string) { c.moves.Add(1) }

// OnRefusal counts a refused write.
func (c *routingCounter) OnRefusal(string, uint32) { c.refusals.Add(1) }

// OnRouteLookup counts a question.
func (c *routingCounter) OnRouteLookup(string, string, time.Duration) { c.lookups.Add(1) }

// OnLinkDial counts a connection.
func (c *routingCounter) OnLinkDial(string, string, time.Duration, error) { c.links.Add(1) }

func (c *routingCounter) read() Routing {
	return Routing{c.moves.Load(), c.refusals.Load(), c.lookups.Load(), c.links.Load()}
}

// Process is one of several processes that serve together.
type Process struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
}

// NodeUsage is what one of several processes used during the measured part.
type NodeUsage struct {
	Name string `json:"name"`
	Usage
	// Cores is its CPU time in relation to the time that went by.
	Cores float64 `json:"cpu_cores"`
}

// usages reads all processes; one that is gone has nothing.
func usages(ps []Process) []Usage {
	out := make([]Usage, len(ps))
	for i, p := range ps {
		if u, err := ReadUsage(p.PID); err == nil {
			out[i] = u
		}
	}
	return out
}

// nodesSince is what the processes used since an earlier reading.
func nodesSince(ps []Process, before []Usage, took time.Duration) []NodeUsage {
	out := make([]NodeUsage, len(ps))
	for i, u := range usages(ps) {
		out[i] = NodeUsage{Name: ps[i].Name}
		if u.PID == 0 || before[i].PID != u.PID {
			continue
		}
		out[i].Usage = u.since(before[i])
		if s := took.Seconds(); s > 0 {
			out[i].Cores = out[i].CPUSeconds / s
		}
	}
	return out
}

// warm has the producing clients look for the primaries before anything is sent.
func (r *runner) warm(ctx context.Context, clients []*client.Client) error {
	for _, c := range clients {
		if err := c.Warm(ctx, r.stream, r.topic); err != nil {
			return fmt.Errorf("connect to the primaries: %w", err)
		}
	}
	return nil
}
