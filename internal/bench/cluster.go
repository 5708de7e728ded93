package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/internal/cli/localnode"
	"github.com/whippetmq/whippet/wire"
)

// placeLimit bounds the moves of a topic's primaries.
const placeLimit = 30 * time.Second

// fixture is a cluster of a benchmark's own: processes on this machine in a directory that is removed at the end.
type fixture struct {
	cluster *localnode.Cluster
	dir     string
	admin   *client.Client
	topics  int
}

// stillPrimaries are the settings under which primaries stay where a benchmark puts them.
const stillPrimaries = "cluster.rebalance = false\n"

// startFixture starts n nodes with more settings, under parent ("" = where the system keeps temporary files).
func startFixture(ctx context.Context, executable, parent string, n int, settings string) (*fixture, error) {
	dir, err := os.MkdirTemp(parent, "whippet-bench-")
	if err != nil {
		return nil, fmt.Errorf("directory for the benchmark: %w", err)
	}
	f := &fixture{dir: dir}
	f.cluster, err = localnode.StartCluster(ctx, localnode.ClusterConfig{Executable: executable, Dir: dir, Nodes: n, Settings: settings})
	if err == nil {
		err = f.signIn(ctx)
	}
	if err == nil {
		_, err = f.admin.CreateStream(ctx, benchStream)
	}
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

// benchStream is where the topics of a cluster's benchmark are.
const benchStream = "bench"

// signIn signs the benchmark itself in, at the node that leads the metadata: without forwarding no other takes its changes.
func (f *fixture) signIn(ctx context.Context) error {
	at := f.cluster.Options()
	for {
		c, err := client.New(at)
		if err != nil {
			return err
		}
		f.admin = c
		if err := c.Connect(ctx); err != nil {
			return err
		}
		leader, err := f.leader(ctx)
		if err != nil || len(at.Addresses) == 1 {
			return err
		}
		at.Addresses = []string{f.address(leader)}
		_ = c.Close() // it was only a look
	}
}

// close ends everything and removes the files.
func (f *fixture) close() error {
	if f.admin != nil {
		_ = f.admin.Close() // nothing is lost by it
	}
	var err error
	if f.cluster != nil {
		err = f.cluster.Stop()
	}
	return errors.Join(err, os.RemoveAll(f.dir))
}

// configure restarts the nodes with other settings.
func (f *fixture) configure(ctx context.Context, settings string) error {
	_ = f.admin.Close() // nothing is lost by it
	f.admin = nil
	if err := f.cluster.Stop(); err != nil {
		return err
	}
	if err := f.cluster.StartAgain(ctx, settings); err != nil {
		return err
	}
	return f.signIn(ctx)
}

// target is the whole cluster.
func (f *fixture) target() Target {
	t := Target{Name: fmt.Sprintf("cluster of %d nodes", len(f.cluster.Nodes())), Options: f.cluster.Options()}
	for _, n := range f.cluster.Nodes() {
		t.Nodes = append(t.Nodes, Process{Name: n.Name(), PID: n.PID()})
	}
	return t
}

// leader is the number of the node that leads the metadata.
func (f *fixture) leader(ctx context.Context) (int, error) {
	r, err := f.admin.ClusterMetadata(ctx)
	if err != nil {
		return 0, err
	}
	if l := r.Leader(); l != nil {
		return f.number(l.Name), nil
	}
	return 0, errors.New("the metadata has no leader")
}

func (f *fixture) number(name string) int {
	for i, n := range f.cluster.Nodes() {
		if n.Name() == name {
			return i
		}
	}
	return -1
}

// address of a node for clients.
func (f *fixture) address(node int) string { return f.cluster.Nodes()[node].Address() }

// newTopic makes a topic whose partition i has its primary on nodes[i], and gives its name.
func (f *fixture) newTopic(ctx context.Context, durability string, nodes []int) (string, error) {
	f.topics++
	name := fmt.Sprintf("t%d", f.topics)
	cfg := client.TopicConfig{Name: name, Partitions: uint32(len(nodes))}
	cfg.Options = cfg.Options.Set(wire.OptDurability, wire.StringValue(durability))
	if _, err := f.admin.CreateTopic(ctx, wire.Name(benchStream), cfg); err != nil {
		return "", fmt.Errorf("make a topic: %w", err)
	}
	return name, f.place(ctx, name, nodes)
}

// place moves the primaries of a topic's partitions until they are where they should be.
func (f *fixture) place(ctx context.Context, topic string, nodes []int) error {
	ctx, cancel := context.WithTimeout(ctx, placeLimit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		at, err := f.primaries(ctx, topic, len(nodes))
		if err == nil {
			wrong := 0
			for i, want := range nodes {
				if at[i] == want {
					continue
				}
				wrong++
				if err := f.move(ctx, topic, uint32(i), want); err != nil {
					last = err
				}
			}
			if wrong == 0 {
				return nil
			}
		} else {
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("place the primaries of %s: %w", topic, errors.Join(context.Cause(ctx), last))
		}
	}
}

// move hands one partition's primary to a node, which it prefers from then on.
func (f *fixture) move(ctx context.Context, topic string, partition uint32, node int) error {
	_, err := f.admin.TransferLeader(ctx, wire.TransferLeader{
		Kind: wire.TransferPartition, Stream: wire.Name(benchStream), Topic: wire.Name(topic), Partition: partition,
		Target: f.cluster.Nodes()[node].Name(), Keep: true,
	})
	return err
}

// primaries tells on which node the primary of each of a topic's partitions is, -1 for none.
func (f *fixture) primaries(ctx context.Context, topic string, partitions int) ([]int, error) {
	t, err := f.admin.Topic(ctx, wire.Name(benchStream), wire.Name(topic))
	if err != nil {
		return nil, err
	}
	s, err := f.admin.Stream(ctx, wire.Name(benchStream))
	if err != nil {
		return nil, err
	}
	status, err := f.admin.ClusterStatus(ctx, true)
	if err != nil {
		return nil, err
	}
	at := make([]int, partitions)
	for i := range at {
		at[i] = -1
	}
	for _, g := range status.Groups {
		if g.StreamID == s.ID && g.TopicID == t.ID && int(g.PartitionID) < partitions && int64(g.Primary) < int64(len(status.Nodes)) {
			at[g.PartitionID] = f.number(status.Nodes[g.Primary].Name)
		}
	}
	return at, nil
}

func (f *fixture) dropTopic(ctx context.Context, topic string) error {
	return f.admin.DeleteTopic(ctx, wire.Name(benchStream), wire.Name(topic))
}
