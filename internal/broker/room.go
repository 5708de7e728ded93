package broker

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// Bounds of the memory in poll replies that were made and are not written yet: a
// request of a hundred bytes can ask for a whole frame, and its client need not
// read it.
const (
	// pollPlenty is what all of a node may hold before a poll gets only pollShort.
	pollPlenty = 256 << 20
	// pollMost is where a poll waits, pollRoomWait at most.
	pollMost = 512 << 20
	// pollShort is what a poll gets when much is held: fewer messages than it asked
	// for, at least one.
	pollShort = 1 << 20
	// pollOwn is what one connection may hold when its next poll begins.
	pollOwn = 16 << 20

	pollRoomWait = 3 * time.Second
)

// pollRoom are the books of poll replies.
type pollRoom struct {
	plenty, most int64
	patience     time.Duration

	used    atomic.Int64
	waiters Waiters
}

func newPollRoom() *pollRoom {
	return &pollRoom{plenty: pollPlenty, most: pollMost, patience: pollRoomWait}
}

// give gives n bytes back.
func (p *pollRoom) give(own *atomic.Int64, n int64) {
	own.Add(-n)
	p.used.Add(-n)
	p.waiters.Wake()
}

// reserve takes room for a poll of at most limit bytes and gives what the poll
// may read, 0 = there is none. While the connection holds much, it waits for the
// client to read: that ends with the connection at the latest.
func (c *conn) reserve(limit int) int {
	p := c.b.polls
	if !p.waiters.Wait(c.ctx.Done(), func() bool { return c.polled.Load() < pollOwn }) {
		return 0
	}
	if p.used.Load() >= p.most {
		ctx, cancel := context.WithTimeout(c.ctx, p.patience)
		defer cancel()
		if !p.waiters.Wait(ctx.Done(), func() bool { return p.used.Load() < p.most }) {
			return 0
		}
	}
	if p.used.Add(int64(limit)) > p.plenty && limit > pollShort {
		p.used.Add(int64(pollShort - limit))
		limit = pollShort
	}
	c.polled.Add(int64(limit))
	return limit
}

// charge makes a reply hold what it takes of the reserved room; Release gives it back.
func (c *conn) charge(r *Reply, reserved int) {
	size := r.Size() - wire.HeaderSize
	r.charged, r.charge = c, int64(size)
	if size > reserved {
		c.polled.Add(int64(size - reserved))
		c.b.polls.used.Add(int64(size - reserved))
	} else if size < reserved {
		c.b.polls.give(&c.polled, int64(reserved-size))
	}
}
