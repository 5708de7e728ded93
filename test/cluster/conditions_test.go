package cluster

import (
	"context"
	"fmt"
	"strings"

	"github.com/whippetmq/whippet/test/cluster/harness"
	"github.com/whippetmq/whippet/wire"
)

// backTo holds when the primaries of a topic stand where they stood.
func backTo(c *harness.Cluster, stream, topic wire.Identifier, want []int) func(context.Context) error {
	return func(ctx context.Context) error {
		for i, node := range want {
			p := harness.Partition{Stream: stream, Topic: topic, ID: uint32(i)}
			g, err := c.Primary(ctx, p)
			if err != nil {
				return err
			}
			if g.Primary != node {
				return fmt.Errorf("%s is led by %s", p, harness.NodeName(g.Primary))
			}
		}
		return nil
	}
}

// prefers holds when every node reports that a partition prefers a node.
func prefers(c *harness.Cluster, p harness.Partition, want int) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, n := range c.Nodes() {
			g, err := c.Group(ctx, n, p)
			if err != nil {
				return err
			}
			if g.Preferred != want {
				return fmt.Errorf("%s reports the preference %d", n.Name, g.Preferred)
			}
		}
		return nil
	}
}

// ledBy holds when a node reports that a partition is led by a node of the list.
func ledBy(c *harness.Cluster, via *harness.Node, p harness.Partition, nodes ...int) func(context.Context) error {
	return func(ctx context.Context) error {
		g, err := c.Group(ctx, via, p)
		if err != nil {
			return err
		}
		for _, n := range nodes {
			if g.Primary == n {
				return nil
			}
		}
		return fmt.Errorf("%s reports %s as primary of %s", via.Name, harness.NodeName(g.Primary), p)
	}
}

// inSomeLog holds when the log of some node has a text behind a position.
func inSomeLog(c *harness.Cluster, from []int, text string) func(context.Context) error {
	return func(context.Context) error {
		for i, n := range c.Nodes() {
			if log := n.Log(); from[i] <= len(log) && strings.Contains(log[from[i]:], text) {
				return nil
			}
		}
		return harness.ErrNotYet
	}
}
