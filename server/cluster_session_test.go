package server

import (
	"testing"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// follower is a node that does not lead the metadata.
func (n *nodes) follower() int { return (n.leader() + 1) % len(n.s) }

// A session lives on the node that was dialled, and everywhere in the table.
func TestClusterSessionOnAFollower(t *testing.T) {
	t.Parallel()
	n := startNodes(t, 3, nil)
	r := n.login(n.follower())
	for _, s := range n.s {
		eventually(t, func() bool { _, ok := s.machine.Session(r.client); return ok })
	}
	t.Run("wrong password", func(t *testing.T) {
		q := dial(t, n.s[n.follower()])
		if a := q.do(loginBody("iggy", "wrong")); a.eviction != wire.EvictInvalidCredentials {
			t.Fatalf("%+v", a)
		}
	})
	t.Run("a repeated operation is answered from the table", func(t *testing.T) {
		f := r.frame(&wire.CreateStream{Name: "once"})
		r.write(f)
		first := r.read()
		r.write(f)
		again := r.read()
		if first.code() != 0 || again.code() != 0 || first.h.Op != again.h.Op || string(first.body) != string(again.body) {
			t.Fatalf("%+v %+v", first.h, again.h)
		}
	})
	t.Run("an error comes as from the leader", func(t *testing.T) {
		if a := r.want(&wire.CreateStream{Name: "once"}, wire.ErrStreamNameAlreadyExists); a.h.Status != 0 || a.h.Op == 0 {
			t.Fatalf("%+v", a.h)
		}
		r.want(&wire.CreateTopic{Stream: wire.Name("once"), Name: "t", PartitionsCount: 5000}, wire.ErrTooManyPartitions)
	})
	t.Run("registered elsewhere", func(t *testing.T) {
		q := n.login(n.follower())
		other := dial(t, n.s[n.leader()])
		other.client = q.client
		other.login("iggy", "iggy")
		eventually(t, func() bool { a := q.do(&wire.GetStreams{}); return a.eviction == wire.EvictSessionTooLow })
		other.must(&wire.GetStreams{}, nil)
	})
	t.Run("logout", func(t *testing.T) {
		q := n.login(n.follower())
		q.must(&wire.LogoutUser{}, nil)
		for _, s := range n.s {
			eventually(t, func() bool { _, ok := s.machine.Session(q.client); return !ok })
		}
	})
	t.Run("connection lost", func(t *testing.T) {
		q := n.login(n.follower())
		_ = q.nc.Close()
		for _, s := range n.s {
			eventually(t, func() bool { _, ok := s.machine.Session(q.client); return !ok })
		}
	})
}

// A metadata leader that goes away does not end sessions elsewhere.
func TestClusterMetadataLeaderStops(t *testing.T) {
	t.Parallel()
	n := startNodes(t, 3, nil)
	lead := n.leader()
	r := n.login(n.follower())
	n.net.isolate(lead, 3, true)
	began := time.Now()
	f := r.frame(&wire.CreateStream{Name: "meanwhile"})
	for {
		r.write(f)
		code := r.read().code()
		if code == 0 {
			break
		}
		if code != wire.ErrTransientNotAccepted && code != wire.ErrTransientNotCommitted {
			t.Fatal(code)
		}
	}
	t.Logf("created after %v", time.Since(began))
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	q := n.login(n.follower())
	var list wire.Streams
	q.must(&wire.GetStreams{}, &list)
	if len(list.Streams) != 1 {
		t.Fatal(list)
	}
	n.net.isolate(lead, 3, false)
}

// Tickets sign in on every node, and only while they are good.
func TestClusterTicket(t *testing.T) {
	t.Parallel()
	n := startNodes(t, 3, nil)
	r := n.login(0)
	var ticket wire.TicketReply
	r.must(&wire.Ticket{}, &ticket)
	if ticket.Valid != 60_000_000 || len(ticket.Token) < 10 || ticket.Token[:4] != "wt1." {
		t.Fatalf("%+v", ticket)
	}
	version := wire.ClientVersion{Protocol: wire.CurrentVersion, SDKName: "raw", SDKVersion: "1"}
	for i := range n.s {
		q := dial(t, n.s[i])
		began := time.Now()
		var lr wire.LoginReply
		q.must(&wire.LoginRegisterWithPat{Version: version, Token: ticket.Token}, &lr)
		t.Logf("node %d: %v", i, time.Since(began))
		q.session = lr.Session
		q.must(&wire.GetStreams{}, nil)
		if lr.UserID != 0 {
			t.Fatal(lr)
		}
	}
	changed := []byte(ticket.Token)
	changed[12] ^= 1
	for name, token := range map[string]string{"cut": ticket.Token[:len(ticket.Token)-1], "changed": string(changed), "prefix": "wt1.", "none": "x"} {
		q := dial(t, n.s[1])
		if a := q.do(&wire.LoginRegisterWithPat{Version: version, Token: token}); a.eviction != wire.EvictInvalidToken {
			t.Errorf("%s: %+v", name, a.h)
		}
	}
}

// Attachments: O07 to O09 as far as there are no groups yet.
func TestClusterAttachment(t *testing.T) {
	t.Parallel()
	n := startNodes(t, 3, nil)
	parent := n.login(0)
	stream, topic := n.topicOn(parent, 1)
	n.move(stream, topic, 0, 1)
	parent.send(stream, topic, wire.PartitionID(0), "a")
	attach := func(client wire.U128, session, watermark uint64) *wire.AttachConsumerSession {
		return &wire.AttachConsumerSession{Attachment: wire.Attachment{ClientID: client, Session: session, Watermark: watermark}}
	}
	on := func(p *wire.PollMessages) *wire.PollMessagesOnPrimary {
		return &wire.PollMessagesOnPrimary{PollMessages: *p}
	}
	poll := pollRequest(stream, topic, 0, 0, 10)
	poll.AutoCommit = true
	cons := wire.SingleConsumer(wire.ID(1))

	bare := dial(t, n.s[1])
	bare.want(attach(parent.client, parent.session, 0), wire.ErrUnauthenticated)
	link := n.login(1)
	link.want(on(poll), wire.ErrUnauthenticated)
	link.want(attach(parent.client, parent.session+1, 0), wire.ErrStaleClient)
	link.want(attach(parent.client, parent.session-1, 0), wire.ErrStaleClient)
	link.want(attach(wire.NewID(), parent.session, 0), wire.ErrStaleClient)
	link.want(attach(parent.client, parent.session, 1<<40), wire.ErrTransientNotAccepted)

	var route wire.Route
	parent.must(routeRequest(stream, topic, 0), &route)
	link.must(&wire.AttachConsumerSession{Attachment: route.Session}, nil)
	var pm wire.PolledMessages
	link.must(on(poll), &pm)
	if pm.Count != 1 {
		t.Fatalf("%+v", pm)
	}
	link.must(&wire.StoreConsumerOffset{Consumer: cons, Stream: stream, Topic: topic, Partition: wire.SomePartition(0), Offset: 0}, nil)
	// The offset is everywhere.
	for i := range n.s {
		var o wire.OffsetReply
		n.login(i).must(&wire.GetConsumerOffset{Consumer: cons, Stream: stream, Topic: topic, Partition: wire.SomePartition(0)}, &o)
		if o.StoredOffset != 0 || o.CurrentOffset != 0 {
			t.Fatalf("node %d: %+v", i, o)
		}
	}
	// Not on a node that is not the primary.
	other := n.login(2)
	other.must(&wire.AttachConsumerSession{Attachment: route.Session}, nil)
	other.want(on(poll), wire.ErrTransientNotAccepted)
	// The parent ends.
	parent.must(&wire.LogoutUser{}, nil)
	eventually(t, func() bool { return link.do(on(poll)).code() == wire.ErrStaleClient })
	link.want(&wire.StoreConsumerOffset{Consumer: cons, Stream: stream, Topic: topic, Partition: wire.SomePartition(0), Offset: 0}, wire.ErrStaleClient)
	// Its sends need no parent.
	link.send(stream, topic, wire.PartitionID(0), "b")
}

// 103 and 123 name the primary on every node, and nobody while there is none.
func TestClusterRoute(t *testing.T) {
	t.Parallel()
	n := startNodes(t, 3, nil)
	r := n.login(0)
	stream, topic := n.topicOn(r, 3)
	led := n.settled(stream, topic)
	offset := func(p uint32) *wire.GetConsumerOffsetRouting {
		return &wire.GetConsumerOffsetRouting{GetConsumerOffset: wire.GetConsumerOffset{
			Consumer: wire.SingleConsumer(wire.ID(1)), Stream: stream, Topic: topic, Partition: wire.SomePartition(p)}}
	}
	for i := range n.s {
		q := n.login(i)
		for p := range uint32(3) {
			for _, req := range []wire.Request{routeRequest(stream, topic, p), offset(p)} {
				var route wire.Route
				q.must(req, &route)
				if want := n.roster[led[p]]; route.Primary.Name != want.Name || route.Primary.TCP != want.Ports.TCP || route.Session.Session != q.session ||
					route.Session.Watermark < q.session {
					t.Fatalf("node %d, partition %d: %+v, primary %v", i, p, route, want.Name)
				}
			}
		}
		q.want(routeRequest(stream, topic, 3), wire.ErrPartitionNotFound)
		plain := routeRequest(stream, topic, 0)
		plain.AutoCommit = false
		q.want(plain, wire.ErrInvalidCommand)
	}
	n.halt(1)
	n.halt(2)
	eventually(t, func() bool { return n.group(0, stream, topic, 0).Status().Leader == 0 })
	r.want(routeRequest(stream, topic, 0), wire.ErrTransientNotAccepted)
}
