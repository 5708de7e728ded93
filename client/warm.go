package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// Warm finds out who leads each partition of a topic and connects to those nodes,
// so that the first sends are as quick as the later ones. On a server of one node
// it reads the topic only.
func (c *Client) Warm(ctx context.Context, stream, topic wire.Identifier) error {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	info, err := c.topics.get(ctx, stream, topic)
	if err != nil {
		return fmt.Errorf("warm up topic %v of stream %v: %w", topic, stream, err)
	}
	if !c.router.on.Load() {
		return nil
	}
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
		next uint32
	)
	for range min(maxLookups, info.partitions) {
		wg.Go(func() {
			for {
				mu.Lock()
				id := next
				next++
				mu.Unlock()
				if id >= info.partitions || ctx.Err() != nil {
					return
				}
				key := routeKey{info.stream, info.topic, info.created, id}
				if err := c.router.warm(ctx, c.router.routes.get(key, stream, topic)); err != nil {
					mu.Lock()
					errs = append(errs, fmt.Errorf("partition %d: %w", id, err))
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("warm up topic %v of stream %v: %w", topic, stream, err)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("warm up topic %v of stream %v: %w", topic, stream, context.Cause(ctx))
	}
	return nil
}

// warm waits for a route and its write link.
func (r *router) warm(ctx context.Context, rt *route) error {
	deadline, _ := ctx.Deadline()
	w := want{since: time.Now(), deadline: deadline}
	for {
		n := rt.at.Load()
		down := n != nil && n.slots[classWrite].down()
		n, moved, err := rt.current(down, w)
		if err != nil {
			return notFoundToo(err)
		}
		var changed <-chan struct{}
		if n != nil {
			l, ch, err := n.slots[classWrite].current(rt.need.Load())
			if l != nil || err != nil {
				return err
			}
			changed = ch
		}
		select {
		case <-changed:
		case <-moved:
		case <-r.c.ctx.Done():
			return ErrClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// RouterStats is what the router holds at the moment.
type RouterStats struct {
	// Routing: the server is a cluster and routing is on.
	Routing bool
	// Nodes that are known, routes that are remembered, data links that are open or
	// being opened, and identities on their way to other nodes with writes of
	// unknown outcome.
	Nodes, Routes, Links, Recoveries int
	// Lanes are the orders of writes that are kept, Depth the writes in them.
	Lanes, Depth int
}

// RouterStats tells what the router holds: links_open, lane_depth.
func (c *Client) RouterStats() RouterStats {
	r := c.router
	s := RouterStats{Routing: r.on.Load(), Nodes: len(r.topology.all()), Routes: r.routes.len()}
	r.pool.mu.Lock()
	s.Links = r.pool.open
	r.pool.mu.Unlock()
	r.recoveries.mu.Lock()
	s.Recoveries = len(r.recoveries.m)
	r.recoveries.mu.Unlock()
	c.mu.Lock()
	lanes := make([]*lane, 0, len(c.lanes))
	for _, ln := range c.lanes {
		lanes = append(lanes, ln)
	}
	c.mu.Unlock()
	s.Lanes = len(lanes)
	for _, ln := range lanes {
		ln.mu.Lock()
		s.Depth += len(ln.core.list)
		ln.mu.Unlock()
	}
	return s
}
