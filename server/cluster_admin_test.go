package server

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whippetmq/whippet/internal/cluster"
	"github.com/whippetmq/whippet/wire"
)

func TestClusterTransfer(t *testing.T) {
	t.Parallel()
	n := startNodes(t, 3, nil)
	r := n.login(0)
	stream, topic := n.topicOn(r, 3)
	transfer := func(p uint32, target string, keep bool) *wire.TransferLeader {
		return &wire.TransferLeader{Kind: wire.TransferPartition, Stream: stream, Topic: topic, Partition: p, Target: target, Keep: keep}
	}
	preferred := func(p uint32) uint8 {
		_, top := n.s[0].machine.Catalog().Topic(stream, topic)
		return top.Partitions[p].Preferred
	}
	t.Run("every node asks for every move", func(t *testing.T) {
		for via := range n.s {
			q := n.login(via)
			for to := range n.s {
				var rep wire.TransferLeaderReply
				q.must(transfer(0, n.roster[to].Name, false), &rep)
				if rep.Node != n.roster[to].Name || rep.Term == 0 {
					t.Fatalf("%+v", rep)
				}
				if at := n.settled(stream, topic)[0]; at != to {
					t.Fatalf("via %d to %d: on %d", via, to, at)
				}
			}
		}
		if p := preferred(0); p != 0 {
			t.Errorf("the preference changed to %d", p)
		}
	})
	t.Run("keep", func(t *testing.T) {
		q := n.login(n.follower())
		q.must(transfer(1, "n2", true), nil)
		eventually(t, func() bool { return preferred(1) == 2 })
		if at := n.settled(stream, topic)[1]; at != 2 {
			t.Fatal(at)
		}
	})
	t.Run("any", func(t *testing.T) {
		before := n.settled(stream, topic)[2]
		var rep wire.TransferLeaderReply
		r.must(transfer(2, "", false), &rep)
		if at := n.settled(stream, topic)[2]; at == before || rep.Node != n.roster[at].Name {
			t.Fatalf("%+v on %d", rep, at)
		}
	})
	t.Run("metadata alone", func(t *testing.T) {
		before := n.settled(stream, topic)
		for range 3 {
			to := (n.leader() + 1) % 3
			q := n.login((to + 1) % 3)
			var rep wire.TransferLeaderReply
			q.must(&wire.TransferLeader{Kind: wire.TransferMetadata, Target: n.roster[to].Name, Stream: stream, Topic: topic}, &rep)
			if rep.Node != n.roster[to].Name || n.leader() != to {
				t.Fatalf("%+v, leader %d", rep, n.leader())
			}
			// Sessions go on, wherever they are.
			r.must(&wire.CreateStream{Name: fmt.Sprintf("after-%d-%d", to, r.request)}, nil)
		}
		if after := n.settled(stream, topic); !slices.Equal(before, after) {
			t.Fatalf("partitions moved: %v, %v", before, after)
		}
	})
	t.Run("wrong", func(t *testing.T) {
		r.want(transfer(0, "n9", false), wire.ErrResourceNotFound)
		r.want(transfer(9, "n1", false), wire.ErrPartitionNotFound)
		r.want(&wire.TransferLeader{Kind: wire.TransferPartition, Stream: wire.Name("none"), Topic: topic}, wire.ErrStreamIdNotFound)
		dial(t, n.s[0]).want(transfer(0, "n1", false), wire.ErrUnauthenticated)
	})
}

func TestClusterStatus(t *testing.T) {
	t.Parallel()
	n := startNodes(t, 3, nil)
	r := n.login(0)
	stream, topic := n.topicOn(r, 3)
	for p := range uint32(3) {
		r.send(stream, topic, wire.PartitionID(p), "a")
	}
	led := n.settled(stream, topic)
	lead := n.leader()
	for i := range n.s {
		q := n.login(i)
		eventually(t, func() bool {
			var st wire.ClusterStatusReply
			q.must(&wire.ClusterStatus{Flags: wire.ClusterStatusGroups}, &st)
			if len(st.Nodes) != 3 || len(st.Groups) != 3 {
				t.Fatalf("%+v", st)
			}
			for k, node := range st.Nodes {
				if node.Name != n.roster[k].Name || (node.Role == wire.RoleLeader) != (k == lead) || !node.Reachable || node.StartCounter != 1 {
					return false
				}
			}
			for p, g := range st.Groups {
				if int(g.Primary) != led[p] || int(g.Preferred) != p || g.Term == 0 || g.Commit < 2 || len(g.Followers) != 2 {
					return false
				}
				for _, f := range g.Followers {
					if f.Match != g.Commit || int(f.Node) == led[p] {
						return false
					}
				}
			}
			return true
		})
	}
	gone := (lead + 1) % 3
	n.halt(gone)
	q := n.login(lead)
	eventually(t, func() bool {
		var st wire.ClusterStatusReply
		q.must(&wire.ClusterStatus{Flags: wire.ClusterStatusGroups}, &st)
		for _, g := range st.Groups {
			if int(g.Primary) == gone || g.Primary == wire.NoNode || len(g.Followers) != 2 {
				return false
			}
		}
		return !st.Nodes[gone].Reachable && st.Nodes[lead].Reachable
	})
}

// Primaries go back to their nodes, one after the other, under load, without an
// error at anybody.
func TestClusterBalancer(t *testing.T) {
	t.Parallel()
	n := startNodes(t, 3, func(c *Config) { c.Cluster.Rebalance = true }, withBalancer(func(b *cluster.BalancerConfig) {
		b.Every, b.Settle, b.Live = 20*time.Millisecond, time.Second, time.Second
	}))
	r := n.login(n.leader())
	stream, topic := n.topicOn(r, 6)
	even := n.settled(stream, topic)
	stop := make(chan struct{})
	var load sync.WaitGroup
	sent := make([]int, 6)
	load.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			p := i % 6
			if code := r.do(sendTo(t, stream, topic, uint32(p), "x")).code(); code != 0 {
				t.Errorf("send to partition %d: %v", p, code)
				return
			}
			sent[p]++
		}
	})
	for p := range uint32(6) {
		n.move(stream, topic, p, 0)
	}
	eventually(t, func() bool { return slices.Equal(n.settled(stream, topic), even) })
	close(stop)
	load.Wait()
	for p := range uint32(6) {
		if got := n.login(1).all(stream, topic, p); len(got) != sent[p] {
			t.Errorf("partition %d has %d messages, %d were sent", p, len(got), sent[p])
		}
	}
}

// A node that stops hands over first: nobody waits for an election, and what its
// own clients send meanwhile arrives.
func TestClusterStopsWithoutAGap(t *testing.T) {
	t.Parallel()
	n := startNodes(t, 3, nil)
	stops := 1
	r := n.login((stops + 1) % 3)
	own := n.login(stops)
	stream, topic := n.topicOn(r, 4)
	for p := range uint32(4) {
		n.move(stream, topic, p, stops)
	}
	stop := make(chan struct{})
	var load sync.WaitGroup
	var slowest time.Duration
	sent := 0
	load.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			began := time.Now()
			if code := r.do(sendTo(t, stream, topic, uint32(sent%4), "x")).code(); code != 0 {
				t.Errorf("a send fails: %v", code)
				return
			}
			slowest = max(slowest, time.Since(began))
			sent++
		}
	})
	ownSent := 0
	var closed sync.WaitGroup
	closed.Go(func() { n.halt(stops) })
	for {
		own.write(own.frame(sendTo(t, stream, topic, 0, "own")))
		a, err := own.tryRead(patience)
		if err != nil {
			break // the node ended the connection
		}
		if code := a.code(); code != 0 {
			t.Errorf("a send of its own client fails: %v", code)
			break
		}
		ownSent++
	}
	closed.Wait()
	close(stop)
	load.Wait()
	t.Logf("%d sends, the slowest took %v", sent, slowest)
	if slowest > 700*time.Millisecond {
		t.Errorf("a send took %v: it waited for an election", slowest)
	}
	total := 0
	q := n.login((stops + 2) % 3)
	for p := range uint32(4) {
		total += len(q.all(stream, topic, p))
	}
	// The frame in work when the connection ended may or may not be there.
	if total != sent+ownSent && total != sent+ownSent+1 {
		t.Errorf("%d messages, %d and %d sends were confirmed", total, sent, ownSent)
	}
	n.restart(stops)
	if got := n.login(stops).all(stream, topic, 0); len(got) == 0 {
		t.Error("nothing after the restart")
	}
}

// All nodes stop at the same time, as by Ctrl-C: none waits for another one that is gone.
func TestClusterStopsAtOnce(t *testing.T) {
	t.Parallel()
	n := startNodes(t, 3, nil)
	r := n.login(0)
	stream, topic := n.topicOn(r, 24)
	n.settled(stream, topic)
	began := time.Now()
	var closed sync.WaitGroup
	for i := range 3 {
		closed.Go(func() { n.halt(i) })
	}
	closed.Wait()
	took := time.Since(began)
	t.Logf("took %v", took)
	if took > 2*time.Second {
		t.Errorf("all nodes together took %v to stop", took)
	}
}

// A cluster that is started again serves what it had.
func TestClusterRestart(t *testing.T) {
	t.Parallel()
	n := startNodes(t, 3, nil)
	r := n.login(0)
	stream, topic := n.topicOn(r, 3)
	for p := range uint32(3) {
		r.send(stream, topic, wire.PartitionID(p), "a")
	}
	n.stop()
	for i := range n.s {
		n.restart(i)
	}
	q := n.login(2)
	for p := range uint32(3) {
		if c := q.send(stream, topic, wire.PartitionID(p), "b"); c.BaseOffset != 1 {
			t.Fatal(c)
		}
		if got := q.all(stream, topic, p); !slices.Equal(got, []string{"a", "b"}) {
			t.Fatal(got)
		}
	}
}

// Nodes with different secrets, of different clusters or with the id of a node that
// runs stay apart, and say why.
func TestClusterStrangers(t *testing.T) {
	t.Parallel()
	n := startNodes(t, 3, func(c *Config) {
		c.Cluster.AuthEnabled, c.Cluster.Secret = true, strings.Repeat("s", 32)
	})
	for name, tt := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"another secret":  {func(c *Config) { c.Cluster.Secret = strings.Repeat("x", 32) }, "secret"},
		"no secret":       {func(c *Config) { c.Cluster.AuthEnabled = false }, "secret"},
		"another cluster": {func(c *Config) { c.Cluster.Name = "other" }, "another cluster"},
		"a twin":          {func(c *Config) { c.ReplicaID = 0 }, "and alive"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			var mu sync.Mutex
			cfg := *n.s[2].cfg
			cfg.Path, cfg.ReplicaID, cfg.Root.Default = t.TempDir(), 2, true
			tt.change(&cfg)
			clients, peers := freePort(t), freePort(t)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			s, err := Start(ctx, &cfg, WithLogger(slog.New(slog.NewTextHandler(writer{&mu, &log}, nil))), func(o *options) { o.clients, o.peers = clients, peers })
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return strings.Contains(log.String(), "refused: ") && strings.Contains(log.String(), tt.want)
			})
			stop(t, s)
		})
	}
	// The cluster itself is as it was.
	r := n.login(0)
	stream, topic := n.topicOn(r, 3)
	r.send(stream, topic, wire.PartitionID(1), "a")
}

type writer struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (w writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func freePort(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// A node whose metadata is behind at its start keeps the partitions that it has
// not heard of yet, and deletes those that were deleted meanwhile.
func TestClusterRestartBehind(t *testing.T) {
	t.Parallel()
	n := startNodes(t, 3, nil)
	behind := n.follower()
	r := n.login(n.leader())
	// A checkpoint of its metadata without the topics.
	n.halt(behind)
	n.restart(behind)
	kept, topic := n.topicOn(r, 2)
	deleted, other := n.topicOn(r, 2)
	for p := range uint32(2) {
		r.send(kept, topic, wire.PartitionID(p), "a")
		r.send(deleted, other, wire.PartitionID(p), "b")
	}
	dirs := func() int {
		found, err := filepath.Glob(filepath.Join(n.dirs[behind], "streams", "*", "topics", "*", "partitions", "*-*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	eventually(t, func() bool { return dirs() >= 4 })
	before := dirs()
	n.crash(behind)
	r.must(&wire.DeleteStream{Stream: deleted}, nil)
	// Alone it knows only what its checkpoint says.
	n.net.isolate(behind, 3, true)
	n.restart(behind)
	pause := time.NewTimer(500 * time.Millisecond)
	<-pause.C
	if after := dirs(); after != before {
		t.Fatalf("%d directories of partitions before the start, %d after", before, after)
	}
	n.net.isolate(behind, 3, false)
	eventually(t, func() bool { return dirs() == 2 })
	q := n.login(behind)
	for p := range uint32(2) {
		if got := q.all(kept, topic, p); !slices.Equal(got, []string{"a"}) {
			t.Fatal(got)
		}
	}
}
