package metadata

import (
	"errors"
	"fmt"
	"testing"

	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/wire"
)

func same(a, b Result) bool {
	return a.Index == b.Index && a.Timestamp == b.Timestamp && a.ReplyOperation == b.ReplyOperation && string(a.Payload) == string(b.Payload) &&
		outcome(a) == outcome(b)
}

// TestRepeatedRequests goes through the rules of framing.md §5.1.
func TestRepeatedRequests(t *testing.T) {
	r, c := newRig(t, Config{})
	create := func(name string) wire.Request { return &wire.CreateStream{Name: name} }
	repeat := func(cmd *Command) Result {
		again := *cmd
		again.released = false
		res, queued := r.propose(&again)
		if queued {
			t.Errorf("request %d was proposed again", cmd.Request)
			r.settle()
		}
		return *res
	}
	command := func(req wire.Request) *Command {
		return c.command(wire.OperationFor(req.Code()), req.Append(nil))
	}

	first := command(create("a"))
	want := r.do(first)
	if got := repeat(first); !same(got, want) || len(got.Payload) == 0 {
		t.Errorf("a repeated request got %+v, first %+v", got, want)
	}
	refused := command(create("a"))
	wantRefused := r.do(refused)
	check(t, wantRefused, "committed 1012")
	c.must(&wire.DeleteStream{Stream: wire.Name("a")})
	if got := repeat(refused); !same(got, wantRefused) {
		t.Errorf("a repeated refusal became %+v", got)
	}
	if got := repeat(first); !same(got, want) {
		t.Error("a repeated request was decided anew")
	}

	other := *first
	other.Stamp = wire.U128{Lo: 99}
	check(t, repeat(&other), "status 3")
	other.Stamp = wire.U128{}
	if got := repeat(&other); !same(got, want) {
		t.Errorf("without a stamp: %+v", got)
	}

	topic := command(&wire.CreateTopic{Stream: wire.Name("b"), Name: "t", PartitionsCount: 40})
	c.request-- // "b" first
	topic.Request++
	c.must(create("b"))
	c.request++
	wantTopic := r.do(topic)
	check(t, wantTopic, "")
	if got := repeat(topic); !same(got, wantTopic) {
		t.Error("the details of a topic differ when they are repeated")
	}

	// Gaps are legal, and after five more the first replies are gone.
	c.request += 100
	for i := range keptReplies {
		c.must(create(fmt.Sprint("x", i)))
	}
	check(t, repeat(first), "committed 59")
	missing := *first
	missing.Request = 50 // in the gap: below the watermark and never seen
	check(t, repeat(&missing), "committed 59")

	stale := command(create("z"))
	stale.Session = c.session - 1
	check(t, repeat(stale), "evicted 7")
	stale.Session = c.session + 1
	check(t, repeat(stale), "status 3")
	stale.Client = wire.U128{Lo: 777}
	check(t, repeat(stale), "evicted 1")
	stale.Client = wire.U128{}
	check(t, repeat(stale), "status 3")
	if r.m.Catalog().Stream(wire.Name("z")) != nil {
		t.Error("a refused request had an effect")
	}
}

func TestOneRequestInFlight(t *testing.T) {
	r, c := newRig(t, Config{})
	body := (&wire.CreateStream{Name: "a"}).Append(nil)
	first := c.command(wire.OpCreateStream, body)
	got, queued := r.propose(first)
	if !queued {
		t.Fatal("not proposed")
	}
	again := *first
	again.released = false
	res, queued := r.propose(&again)
	if queued || res.Code() != wire.ErrTransientNotCommitted {
		t.Errorf("the same request in flight: %+v", res)
	}
	next := c.command(wire.OpCreateStream, (&wire.CreateStream{Name: "b"}).Append(nil))
	if res, queued := r.propose(next); queued || outcome(*res) != "committed 57" {
		t.Errorf("another request of the client in flight: %+v", res)
	}
	if other := r.m.sessions.find(c.id); other == nil {
		t.Fatal("no session")
	}
	r.settle()
	check(t, *got, "")
	next.released = false
	check(t, r.do(next), "")

	// What raft did not take is not in flight.
	lost := c.command(wire.OpCreateStream, (&wire.CreateStream{Name: "c"}).Append(nil))
	res, _ = r.propose(lost)
	r.queue = nil
	r.m.Rejected([]replica.Request{lost})
	lost.Fail(replica.ErrNotAdmitted)
	if res.Code() != wire.ErrTransientNotAccepted || !errors.Is(res.Err, replica.ErrNotAdmitted) {
		t.Errorf("rejected: %+v", res)
	}
	lost.released = false
	check(t, r.do(lost), "")

	// Nor is what was in flight when the node stopped leading; it is unknown.
	unknown := c.command(wire.OpCreateStream, (&wire.CreateStream{Name: "d"}).Append(nil))
	res, _ = r.propose(unknown)
	r.m.Lead(1, false)
	unknown.Fail(replica.ErrOutcomeUnknown)
	if res.Code() != wire.ErrTransientNotCommitted {
		t.Errorf("lost leadership: %+v", res)
	}
	late := *unknown
	late.released = false
	if res, queued := r.propose(&late); queued || res.Code() != wire.ErrTransientNotAccepted {
		t.Errorf("not leading: %+v", res)
	}
	// The entry is committed by another leader after all, then repeated here.
	entry := r.queue[0].entry
	r.queue = nil
	if err := r.m.Apply(entry, nil); err != nil {
		t.Fatal(err)
	}
	r.m.Lead(2, true)
	late.released = false
	res, queued = r.propose(&late)
	if queued || res.Err != nil || res.Index != entry.Index {
		t.Errorf("repeated after the change of leader: %+v", res)
	}
}

// TestCommittedTwice: the same request is in the log twice, from two leaders. The second one must not be executed.
func TestCommittedTwice(t *testing.T) {
	r, c := newRig(t, Config{})
	cmd := c.command(wire.OpCreateStream, (&wire.CreateStream{Name: "a"}).Append(nil))
	want := r.do(cmd)
	entry := r.log[len(r.log)-1]
	r.index++
	entry.Index = r.index
	before := r.m.Catalog()
	var got Result
	if err := r.m.Apply(entry, []replica.Request{&Command{Done: func(res Result) { got = res }}}); err != nil {
		t.Fatal(err)
	}
	if !same(got, want) || r.m.Catalog() != before {
		t.Errorf("the second copy gave %+v, the first %+v", got, want)
	}
}

func TestRegister(t *testing.T) {
	r, root := newRig(t, Config{})
	check(t, root.later(wire.OpCreateUser, &createUser{name: "bob", hash: "x", active: true}), "")

	res := root.must(&wire.CreateStream{Name: "a"})
	epoch := r.m.SessionEpoch()
	again := r.register(1, RootUser)
	check(t, again, "")
	if again.Session != r.index || again.Session <= root.session || r.m.SessionEpoch() == epoch {
		t.Errorf("session %d after %d, epoch %d after %d", again.Session, root.session, r.m.SessionEpoch(), epoch)
	}
	s, ok := r.m.Session(root.id)
	if !ok || s.ID != again.Session || s.Watermark != root.request || s.User != RootUser {
		t.Errorf("session %+v", s)
	}
	// The old session is over, the replies are still there for the new one.
	old := root.command(wire.OpCreateStream, nil)
	check(t, r.do(old), "evicted 7")
	root.session = again.Session
	root.request = 1
	repeated := root.command(wire.OpCreateStream, (&wire.CreateStream{Name: "a"}).Append(nil))
	if got := r.do(repeated); !same(got, res) {
		t.Errorf("the reply of the older session is gone: %+v", got)
	}

	check(t, r.register(1, 1), "evicted 12")
	check(t, r.register(2, 7), "evicted 9")
	check(t, r.do(&Command{Operation: wire.OpRegister, Client: wire.U128{Lo: 3}, User: 1, Secret: Secret{Revision: 1}}), "evicted 9")
	check(t, r.do(&Command{Operation: wire.OpRegister, User: 1}), "status 3")
	epoch = r.m.SessionEpoch()
	check(t, r.register(4, 1), "")
	if r.m.SessionEpoch() != epoch {
		t.Error("a new client id ended no session")
	}
	check(t, root.later(wire.OpUpdateUser, &updateUser{user: wire.ID(1), hasActive: true}), "")
	check(t, r.register(5, 1), "evicted 9")
}

func TestLogout(t *testing.T) {
	r, c := newRig(t, Config{})
	c.must(&wire.CreateStream{Name: "a"})
	older := *c
	c.session = r.register(1, RootUser).Session
	// An older connection that closes must not take the younger session along.
	check(t, r.do(&Command{Operation: wire.OpLogout, Client: older.id, Session: older.session, Request: LogoutAtDisconnect}), "evicted 7")
	if _, ok := r.m.Session(c.id); !ok {
		t.Fatal("the session is gone")
	}
	// It passes what is in flight.
	inFlight, _ := r.propose(c.command(wire.OpCreateStream, (&wire.CreateStream{Name: "b"}).Append(nil)))
	out, queued := r.propose(&Command{Operation: wire.OpLogout, Client: c.id, Session: c.session})
	if !queued {
		t.Fatalf("logout: %+v", out)
	}
	epoch := r.m.SessionEpoch()
	r.settle()
	check(t, *inFlight, "")
	check(t, *out, "")
	if _, ok := r.m.Session(c.id); ok || out.Index == 0 || r.m.SessionEpoch() == epoch {
		t.Error("the session is still there")
	}
	// Repeated, and twice in the log.
	check(t, r.do(&Command{Operation: wire.OpLogout, Client: c.id, Session: c.session, Request: c.request + 1}), "")
	h := header{op: wire.OpLogout, client: c.id, session: c.session, request: c.request + 1}
	r.index++
	if err := r.m.Apply(segment.Entry{Index: r.index, Data: appendEntry(&h, new(logout), 0)}, nil); err != nil {
		t.Fatal(err)
	}
	check(t, c.do(&wire.CreateStream{Name: "c"}), "evicted 1")
	if r.m.SessionCount() != 0 {
		t.Error("sessions are left")
	}
}

func TestTableIsBounded(t *testing.T) {
	r, root := newRig(t, Config{ClientsMax: 4})
	var clients []*client
	for i := range 3 {
		clients = append(clients, r.login(uint64(10+i), RootUser))
	}
	// The one with the oldest latest reply goes, and a register counts as a reply.
	root.must(&wire.CreateStream{Name: "a"})
	clients[0].must(&wire.CreateStream{Name: "b"})
	r.login(20, RootUser)
	r.login(21, RootUser)
	var left []string
	for _, s := range r.m.Sessions() {
		left = append(left, s.Client.String())
	}
	if got := fmt.Sprint(left); got != "[1 10 20 21]" {
		t.Errorf("left in the table: %s", got)
	}
	check(t, clients[1].do(&wire.CreateStream{Name: "c"}), "evicted 1")
	if r.m.SessionCount() != 4 {
		t.Errorf("%d sessions", r.m.SessionCount())
	}
}

// TestLongRepliesAreNotKept: a table of 65,536 sessions must not hold gigabytes of them.
func TestLongRepliesAreNotKept(t *testing.T) {
	r, root := newRig(t, Config{})
	big := &permissions{}
	for i := range 2000 {
		big.streams = append(big.streams, streamPermissions{id: uint32(i)})
	}
	res := root.later(wire.OpCreateUser, &createUser{name: "bob", hash: "x", permissions: big})
	check(t, res, "")
	if len(res.Payload) <= maxKeptPayload {
		t.Fatalf("%d bytes are not long", len(res.Payload))
	}
	entry := r.log[len(r.log)-1]
	r.index++
	entry.Index = r.index
	var got Result
	if err := r.m.Apply(entry, []replica.Request{&Command{Done: func(res Result) { got = res }}}); err != nil {
		t.Fatal(err)
	}
	check(t, got, "committed 59")
}

func TestReleasedOnce(t *testing.T) {
	r, c := newRig(t, Config{})
	released := 0
	cmd := c.command(wire.OpCreateStream, (&wire.CreateStream{Name: "a"}).Append(nil))
	cmd.Released = func() { released++ }
	r.do(cmd)
	if released != 1 || cmd.Size() <= len(cmd.Body) {
		t.Errorf("released %d times, size %d", released, cmd.Size())
	}
	refused := c.command(wire.OpCreateStream, nil)
	refused.Released = func() { released++ }
	check(t, r.do(refused), "status 3")
	if released != 2 {
		t.Errorf("released %d times", released)
	}
	if res := (Result{Err: fmt.Errorf("no room: %w", replica.ErrDiskFull)}); res.Code() != wire.ErrCannotWriteToFile {
		t.Errorf("code of a full disk is %v", res.Code())
	}
}

func TestErrors(t *testing.T) {
	_, err := parse(wire.OpCreateStream, nil, wire.DefaultTopicOptions())
	if wire.StatusOf(err) != wire.ErrInvalidCommand || !errors.Is(err, wire.ErrInvalidCommand) || !errors.Is(err, wire.ErrUnexpectedEOF) || err.Error() == "" {
		t.Errorf("a cut body: %v", err)
	}
	bare := &StatusError{Code: wire.ErrFeatureUnavailable}
	if wire.StatusOf(bare) != wire.ErrFeatureUnavailable || bare.Error() != wire.ErrFeatureUnavailable.Error() {
		t.Errorf("a bare refusal: %v", bare)
	}
	evicted := &EvictionError{Reason: wire.EvictSessionTooLow}
	for want, res := range map[wire.ErrorCode]Result{
		0:  {},
		5:  {Err: bare},
		41: {Err: wire.ErrUnauthorized},
		57: {Err: errors.New("anything else")},
	} {
		if got := res.Code(); got != want {
			t.Errorf("code of %v is %d, want %d", res.Err, got, want)
		}
	}
	if res := (Result{Err: evicted}); res.Code() != 0 || evicted.Error() == "" {
		t.Error("an eviction has no code")
	}
}
