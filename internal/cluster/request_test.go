package cluster

import (
	"errors"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/whippetmq/whippet/internal/config"
	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/internal/replica/transport"
	"github.com/whippetmq/whippet/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRequest(t *testing.T) {
	want := Request{
		Wait: 1500 * time.Millisecond, Operation: wire.OpSendMessages, Code: wire.CodePollMessages, Client: wire.U128{Lo: 1, Hi: 2}, User: 3, Session: 4,
		Request: 5, Position: 6, Stream: 7, Topic: 8, Partition: 9, Group: replica.PartitionGroup(10, 11), Body: []byte("body"),
	}
	b := append(want.header(), want.Body...)
	if len(b) != requestHeader+4 {
		t.Fatalf("%d bytes", len(b))
	}
	var got Request
	if err := got.decode(b); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%v: %+v", err, got)
	}
	for n := range requestHeader {
		if err := got.decode(b[:n]); !errors.Is(err, errMalformed) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	b[4] = 2
	if err := got.decode(b); !errors.Is(err, errMalformed) {
		t.Errorf("a request that was passed on: %v", err)
	}
	for _, wait := range []time.Duration{-time.Second, 0, 2 * time.Hour} {
		r := Request{Wait: wait}
		if err := got.decode(r.header()); err != nil || got.Wait < 0 || got.Wait > 2*time.Hour {
			t.Errorf("wait %v comes as %v, %v", wait, got.Wait, err)
		}
	}
}

func TestReply(t *testing.T) {
	want := Reply{Status: wire.ErrResourceNotFound, Op: 1, Commit: 2, Timestamp: 3, View: 4, Payload: []byte("payload")}
	b := want.append(nil)
	var got Reply
	if err := got.decode(b); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%v: %+v", err, got)
	}
	for n := range replyHeader {
		if err := got.decode(b[:n]); !errors.Is(err, errMalformed) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	hint := Hint{Leader: 3, Term: 9}
	if h := Refusal(hint).Hint(); h != hint {
		t.Errorf("hint %+v", h)
	}
	for name, r := range map[string]*Reply{
		"success": {Payload: make([]byte, 16)}, "another status": {Status: wire.ErrTransientNotCommitted, Payload: make([]byte, 16)},
		"short": {Status: wire.ErrTransientNotAccepted, Payload: make([]byte, 15)},
	} {
		if h := r.Hint(); h != (Hint{}) {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

func TestReports(t *testing.T) {
	want := []GroupReport{
		{Group: 1, Term: 2, Commit: 3, Followers: []wire.FollowerState{{Node: 1, Match: 3}, {Node: 2, Match: 1}}}, {Group: 4, Term: 5, Commit: 6},
	}
	b := AppendReports(nil, want)
	got, err := DecodeReports(b)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%v: %+v", err, got)
	}
	for n := range b {
		if _, err := DecodeReports(b[:n]); !errors.Is(err, errMalformed) {
			t.Errorf("%d of %d bytes: %v", n, len(b), err)
		}
	}
	if _, err := DecodeReports([]byte{0xff, 0xff, 0xff, 0xff, 1}); !errors.Is(err, errMalformed) {
		t.Error(err)
	}
}

func FuzzBetweenNodes(f *testing.F) {
	f.Add((&Request{Body: []byte("x")}).header())
	f.Add((&Reply{Payload: []byte("x")}).append(nil))
	f.Add(AppendReports(nil, []GroupReport{{Group: 1, Followers: []wire.FollowerState{{Node: 1}}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var (
			q Request
			r Reply
		)
		if q.decode(b) == nil {
			var again Request
			if err := again.decode(append(q.header(), q.Body...)); err != nil || !reflect.DeepEqual(again, q) {
				t.Fatalf("%v: %+v, %+v", err, q, again)
			}
		}
		if r.decode(b) == nil && string(r.append(nil)) != string(b) {
			t.Fatalf("%+v", r)
		}
		if reports, err := DecodeReports(b); err == nil && len(reports) > len(b) {
			t.Fatal(len(reports))
		}
	})
}

func roster() []config.Node {
	node := func(id uint8, name string) config.Node {
		return config.Node{Name: name, IP: netip.AddrFrom4([4]byte{10, 0, 0, id + 1}), ReplicaID: id, Ports: config.Ports{TCP: 8090, Replica: 9090, HTTP: 3000}}
	}
	a := node(0, "a")
	a.Advertised = "a.example"
	a.PerNetwork = []config.Advertised{{Network: netip.MustParsePrefix("192.168.0.0/16"), Address: "a.inside"}}
	return []config.Node{node(2, "c"), a, node(1, "b")}
}

// Before the links work there is a roster, and nobody can be reached.
func TestRoster(t *testing.T) {
	l := New(Config{Name: "x", Nodes: roster(), Self: 1})
	r := l.Roster(netip.MustParseAddr("203.0.113.9"), 3)
	want := []wire.Node{
		{Name: "a", IP: "a.example", TCP: 8090, Role: wire.RoleFollower, Status: wire.StatusUnreachable},
		{Name: "b", IP: "10.0.0.2", TCP: 8090, Role: wire.RoleFollower, Status: wire.StatusHealthy},
		{Name: "c", IP: "10.0.0.3", TCP: 8090, Role: wire.RoleLeader, Status: wire.StatusHealthy},
	}
	if r.Name != "x" || !reflect.DeepEqual(r.Nodes, want) {
		t.Fatalf("%+v", r)
	}
	if r := l.Roster(netip.MustParseAddr("192.168.3.4"), 0); r.Nodes[0].IP != "a.inside" || r.Leader() != nil {
		t.Fatalf("%+v", r)
	}
	if l.Find("c") != 3 || l.Find("d") != 0 || l.Name(1) != "a" || l.Name(0) != "" || l.Name(4) != "" || !l.Up(2) || l.Up(1) || !reflect.DeepEqual(l.Others(), []uint64{1, 3}) {
		t.Error("nodes are not found")
	}
	_, err := l.Ask(t.Context(), 1, &Request{})
	if !errors.Is(err, transport.ErrNotSent) {
		t.Error(err)
	}
	l.Close()
}
