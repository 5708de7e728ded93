package harness

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// Status is an answer that is no success, by the command that got it.
type Status struct {
	Code   wire.Code
	Status wire.ErrorCode
}

// Counts is what passed a proxy, or several.
type Counts struct {
	Accepted  int // connections, ever
	Open      int // connections now
	Requests  map[wire.Code]int
	Statuses  map[Status]int // from the status field of replies
	Evictions int
	// Registrations counts sign-ins by connection.
	Registrations map[uint64]int
	PeerFrames    int
	Bytes         [2]int64
}

func newCounts() Counts {
	return Counts{Requests: map[wire.Code]int{}, Statuses: map[Status]int{}, Registrations: map[uint64]int{}}
}

func (c Counts) registered(conn uint64) { c.Registrations[conn]++ }

// Lookups are the requests for the primary of a partition.
func (c Counts) Lookups() int {
	return c.Requests[wire.CodeGetPollRouting] + c.Requests[wire.CodeGetConsumerOffsetRouting]
}

// Registered is the number of sign-ins.
func (c Counts) Registered() int { return c.Requests[wire.CodeLoginRegister] }

// Refusals are partition writes that were answered "not accepted" (58).
func (c Counts) Refusals() int {
	n := 0
	for _, code := range []wire.Code{wire.CodeSendMessages, wire.CodeStoreConsumerOffset, wire.CodeDeleteConsumerOffset} {
		n += c.Statuses[Status{code, wire.ErrTransientNotAccepted}]
	}
	return n
}

// Counts is a copy of what passed so far.
func (p *Proxy) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.counts
	c.Requests, c.Statuses, c.Registrations = maps.Clone(c.Requests), maps.Clone(c.Statuses), maps.Clone(c.Registrations)
	return c
}

// Plus adds two counts. Registrations of different proxies are not told apart any more.
func (c Counts) Plus(o Counts) Counts { return c.combine(o, 1) }

// Since is what came to c since an earlier count of the same proxies. Open stays as it is now.
func (c Counts) Since(earlier Counts) Counts {
	d := c.combine(earlier, -1)
	d.Open = c.Open
	return d
}

func (c Counts) combine(o Counts, sign int) Counts {
	out := c
	out.Accepted += sign * o.Accepted
	out.Open += sign * o.Open
	out.Evictions += sign * o.Evictions
	out.PeerFrames += sign * o.PeerFrames
	for i := range out.Bytes {
		out.Bytes[i] += int64(sign) * o.Bytes[i]
	}
	out.Requests = combine(c.Requests, o.Requests, sign)
	out.Statuses = combine(c.Statuses, o.Statuses, sign)
	out.Registrations = combine(c.Registrations, o.Registrations, sign)
	return out
}

func combine[K comparable](a, b map[K]int, sign int) map[K]int {
	out := maps.Clone(a)
	if out == nil {
		out = map[K]int{}
	}
	for k, n := range b {
		if out[k] += sign * n; out[k] == 0 {
			delete(out, k)
		}
	}
	return out
}

// Recent lists the newest frames that passed, oldest first.
func (p *Proxy) Recent() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	for i := max(0, p.written-recentFrames); i < p.written; i++ {
		r := &p.recent[i%recentFrames]
		fmt.Fprintf(&b, "%s %s\n", r.at.Format(time.StampMicro), &r.frame)
	}
	return b.String()
}
