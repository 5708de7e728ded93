package server

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// quiet returns the codes of sends written one by one.
func sendTo(t testing.TB, stream, topic wire.Identifier, p uint32, text string) *wire.SendMessages {
	t.Helper()
	return &wire.SendMessages{Stream: stream, Topic: topic, Partitioning: wire.PartitionID(p), Batch: batch(t, text)}
}

// capabilities declares what a connection is.
func (r *raw) capabilities(flags uint64) wire.CapabilitiesReply {
	r.t.Helper()
	var c wire.CapabilitiesReply
	r.must(&wire.Capabilities{Version: 1, Flags: flags}, &c)
	return c
}

func (r *raw) all(stream, topic wire.Identifier, p uint32) []string {
	r.t.Helper()
	got, _ := r.poll(pollRequest(stream, topic, p, 0, 100_000))
	return got
}

// The founding requirement: sends that alternate between partitions with
// different primaries neither move the session nor stall.
func TestClusterSplitPrimaries(t *testing.T) {
	t.Parallel()
	n := startNodes(t, 3, func(c *Config) { c.Cluster.Placement = "leader" })
	r := n.login(n.leader())
	stream, topic := n.topicOn(r, 2)
	n.move(stream, topic, 0, (n.leader()+1)%3)
	n.move(stream, topic, 1, (n.leader()+2)%3)
	for p := range uint32(2) {
		r.send(stream, topic, wire.PartitionID(p), "warm")
	}
	want := []string{"warm"}
	for i := range 20 {
		text := fmt.Sprint(i)
		want = append(want, text)
		for p := range uint32(2) {
			began := time.Now()
			if c := r.send(stream, topic, wire.PartitionID(p), text); c.BaseOffset != uint64(i+1) {
				t.Fatal(c)
			}
			if took := time.Since(began); took > 250*time.Millisecond {
				t.Errorf("send %d to partition %d took %v", i, p, took)
			}
		}
	}
	for p := range uint32(2) {
		if got := r.all(stream, topic, p); !slices.Equal(got, want) {
			t.Fatalf("partition %d: %q", p, got)
		}
	}
	if n.s[n.leader()].broker.Counters().Forwarded.Load() < 40 {
		t.Error("sends were not counted as forwarded")
	}
}

// A replay of a forwarded send is the same send, whichever node it comes through.
func TestClusterReplayIsAbsorbed(t *testing.T) {
	t.Parallel()
	n := startNodes(t, 3, nil)
	r := n.login(0)
	stream, topic := n.topicOn(r, 1)
	n.move(stream, topic, 0, 1)
	frame := r.frame(sendTo(t, stream, topic, 0, "once"))
	for range 3 {
		r.write(frame)
		var c wire.SendConfirmations
		payload, err := r.read().payload()
		if err != nil || c.Decode(payload) != nil || c.Confirmations[0].BaseOffset != 0 {
			t.Fatalf("%v %+v", err, c)
		}
	}
	n.move(stream, topic, 0, 2)
	r.write(frame)
	if _, err := r.read().payload(); err != nil {
		t.Fatal(err)
	}
	if got := r.all(stream, topic, 0); !slices.Equal(got, []string{"once"}) {
		t.Fatal(got)
	}
}

func TestClusterRoutingLinkIsRefused(t *testing.T) {
	t.Parallel()
	n := startNodes(t, 3, nil)
	r := n.login(0)
	stream, topic := n.topicOn(r, 1)
	n.move(stream, topic, 0, 1)
	if c := r.capabilities(0); c.Flags&wire.CanForward == 0 || c.NodeName != "n0" {
		t.Fatalf("%+v", c)
	}
	t.Run("declared", func(t *testing.T) {
		q := n.login(0)
		q.capabilities(wire.WantRoutingLink)
		began := time.Now()
		q.want(sendTo(t, stream, topic, 0, "x"), wire.ErrTransientNotAccepted)
		cons := wire.SingleConsumer(wire.ID(1))
		q.want(&wire.StoreConsumerOffset{Consumer: cons, Stream: stream, Topic: topic, Partition: wire.SomePartition(0)}, wire.ErrTransientNotAccepted)
		auto := pollRequest(stream, topic, 0, 0, 1)
		auto.AutoCommit = true
		q.want(auto, wire.ErrTransientNotAccepted)
		if took := time.Since(began); took > time.Second {
			t.Errorf("refused after %v", took)
		}
		// It asks for the route and goes there.
		var route wire.Route
		q.must(routeRequest(stream, topic, 0), &route)
		if route.Primary.Name != "n1" || route.Session.ClientID != q.client || route.Session.Session != q.session {
			t.Fatalf("%+v", route)
		}
	})
	t.Run("attached", func(t *testing.T) {
		q := n.login(0)
		q.must(&wire.AttachConsumerSession{Attachment: wire.Attachment{ClientID: r.client, Session: r.session}}, nil)
		q.want(sendTo(t, stream, topic, 0, "x"), wire.ErrTransientNotAccepted)
	})
	t.Run("the primary takes it", func(t *testing.T) {
		q := n.login(1)
		q.capabilities(wire.WantRoutingLink | wire.WantFence)
		q.send(stream, topic, wire.PartitionID(0), "x")
	})
	t.Run("fence", func(t *testing.T) {
		q := n.login(0)
		q.capabilities(wire.WantRoutingLink | wire.WantFence)
		q.want(sendTo(t, stream, topic, 0, "refused"), wire.ErrTransientNotAccepted)
		n.move(stream, topic, 0, 0)
		// The primary is here now, but nothing may overtake what was refused.
		q.want(sendTo(t, stream, topic, 0, "younger"), wire.ErrTransientNotAccepted)
		q.must(routeRequest(stream, topic, 0), nil)
		q.send(stream, topic, wire.PartitionID(0), "again")
		if got := q.all(stream, topic, 0); !slices.Equal(got, []string{"x", "again"}) {
			t.Fatal(got)
		}
	})
}

func routeRequest(stream, topic wire.Identifier, p uint32) *wire.GetPollRouting {
	m := pollRequest(stream, topic, p, 0, 1)
	m.AutoCommit = true
	return &wire.GetPollRouting{PollMessages: *m}
}

// Without forwarding a node that is not the leader refuses, as a released server does.
func TestClusterForwardingOff(t *testing.T) {
	t.Parallel()
	n := startNodes(t, 3, func(c *Config) { c.Cluster.Forwarding = false })
	lead := n.leader()
	r := n.login(lead)
	stream, topic := n.topicOn(r, 1)
	n.move(stream, topic, 0, (lead+1)%3)
	r.want(sendTo(t, stream, topic, 0, "x"), wire.ErrTransientNotAccepted)
	cons := wire.SingleConsumer(wire.ID(1))
	r.want(&wire.StoreConsumerOffset{Consumer: cons, Stream: stream, Topic: topic, Partition: wire.SomePartition(0)}, wire.ErrTransientNotAccepted)
	if c := r.capabilities(0); c.Flags&wire.CanForward != 0 {
		t.Fatalf("%+v", c)
	}
	// Sign-in and logout go to the leader all the same, and nothing else of the metadata.
	q := n.login((lead + 1) % 3)
	q.send(stream, topic, wire.PartitionID(0), "x")
	a := q.want(&wire.CreateStream{Name: "refused"}, wire.ErrTransientNotAccepted)
	if a.h.Status != 0 {
		t.Error("a metadata operation is refused in the result section")
	}
	q.must(&wire.LogoutUser{}, nil)
}

// A link that breaks under a request leaves its outcome unknown; one that is
// down before the request leaves is no reason for that.
func TestClusterLinkLost(t *testing.T) {
	t.Parallel()
	n := startNodes(t, 3, nil)
	r := n.login(0)
	stream, topic := n.topicOn(r, 1)
	n.move(stream, topic, 0, 1)
	r.send(stream, topic, wire.PartitionID(0), "first")

	t.Run("under the request", func(t *testing.T) {
		// The primary cannot commit, so that it does not answer before the link breaks.
		n.net.set(1, 0, true)
		n.net.set(1, 2, true)
		frame := r.frame(sendTo(t, stream, topic, 0, "second"))
		r.write(frame)
		eventually(t, func() bool { return n.s[1].broker.Counters().Served.Load() >= 2 })
		n.net.set(0, 1, true)
		if code := r.read().code(); code != wire.ErrTransientNotCommitted {
			t.Fatalf("code %v", code)
		}
		n.net.set(0, 1, false)
		n.net.set(1, 0, false)
		n.net.set(1, 2, false)
		// The same frame again, as a released client does: it is there once, whatever became of the first.
		for {
			r.write(frame)
			code := r.read().code()
			if code == 0 {
				break
			}
			if code != wire.ErrTransientNotCommitted && code != wire.ErrTransientNotAccepted {
				t.Fatal(code)
			}
		}
		if got := r.all(stream, topic, 0); !slices.Equal(got, []string{"first", "second"}) {
			t.Fatal(got)
		}
	})
	t.Run("before the request", func(t *testing.T) {
		at := n.settled(stream, topic)[0]
		if at == 0 {
			n.move(stream, topic, 0, 1)
			at = 1
		}
		n.net.set(0, at, true)
		eventually(t, func() bool { return !n.s[0].link.Up(uint64(at + 1)) })
		frame := r.frame(sendTo(t, stream, topic, 0, "third"))
		began := time.Now()
		r.write(frame)
		// Never admitted: held until its time is over, then refused for certain.
		if code := r.read().code(); code != wire.ErrTransientNotAccepted {
			t.Fatalf("code %v after %v", code, time.Since(began))
		}
		if took := time.Since(began); took < hold-time.Second || took > hold+3*time.Second {
			t.Errorf("refused after %v", took)
		}
		n.net.set(0, at, false)
		r.write(frame)
		if code := r.read().code(); code != 0 {
			t.Fatal(code)
		}
	})
}

// Sends wait out an election on the node that they came to.
func TestClusterPrimaryStops(t *testing.T) {
	t.Parallel()
	n := startNodes(t, 3, nil)
	r := n.login(0)
	stream, topic := n.topicOn(r, 1)
	n.move(stream, topic, 0, 1)
	r.send(stream, topic, wire.PartitionID(0), "a")
	n.net.isolate(1, 3, true) // as if its machine had gone
	began := time.Now()
	// A forward may be under way when the link goes: 57, and the replay goes through.
	if c := r.replay(stream, topic, wire.PartitionID(0), "b"); c.BaseOffset != 1 {
		t.Fatal(c)
	}
	t.Logf("sent through the failover in %v", time.Since(began))
	if got := r.all(stream, topic, 0); !slices.Equal(got, []string{"a", "b"}) {
		t.Fatal(got)
	}
	n.net.isolate(1, 3, false)
	// The old primary follows, and its clients see what was written without it.
	q := n.login(1)
	eventually(t, func() bool { return slices.Equal(q.all(stream, topic, 0), []string{"a", "b"}) })
}

// Sends of one connection keep their order while primaries move under them.
func TestClusterOrderUnderLoad(t *testing.T) {
	t.Parallel()
	n := startNodes(t, 3, nil)
	r := n.login(0)
	const partitions, count, window = 2, 400, 16
	stream, topic := n.topicOn(r, partitions)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			for p := range uint32(partitions) {
				n.move(stream, topic, p, (i+int(p))%3)
			}
		}
	})
	want := make([][]string, partitions)
	inFlight := 0
	settle := func() {
		inFlight--
		if code := r.read().code(); code != 0 {
			t.Errorf("a send fails at its caller: %v", code)
		}
	}
	for i := range count {
		for p := range uint32(partitions) {
			text := fmt.Sprintf("%d-%d", p, i)
			want[p] = append(want[p], text)
			r.write(r.frame(sendTo(t, stream, topic, p, text)))
			if inFlight++; inFlight == window {
				settle()
			}
		}
	}
	for inFlight > 0 {
		settle()
	}
	close(stop)
	wg.Wait()
	for p := range uint32(partitions) {
		if got := r.all(stream, topic, p); !slices.Equal(got, want[p]) {
			t.Errorf("partition %d: %d messages, %d sent; order broken or not complete", p, len(got), len(want[p]))
		}
	}
}

// What waits for a primary is bounded in time and refused for certain.
func TestClusterHoldIsBounded(t *testing.T) {
	t.Parallel()
	n := startNodes(t, 3, nil)
	r := n.login(0)
	stream, topic := n.topicOn(r, 1)
	r.send(stream, topic, wire.PartitionID(0), "a")
	n.halt(1)
	n.halt(2)
	eventually(t, func() bool { return n.group(0, stream, topic, 0).Status().Leader == 0 })
	began := time.Now()
	const sends = 20
	for i := range sends {
		r.write(r.frame(sendTo(t, stream, topic, 0, fmt.Sprint(i))))
	}
	for range sends {
		if code := r.read().code(); code != wire.ErrTransientNotAccepted {
			t.Fatalf("code %v", code)
		}
	}
	if took := time.Since(began); took < hold-time.Second || took > hold+3*time.Second {
		t.Errorf("refused after %v", took)
	}
	if b := n.s[0].broker; !b.Idle() {
		t.Error("refused sends still count as held")
	}
	// What is here is served without a primary.
	if got := r.all(stream, topic, 0); !slices.Equal(got, []string{"a"}) {
		t.Fatal(got)
	}
}
