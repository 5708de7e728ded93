package metadata

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/whippetmq/whippet/internal/credential"
	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const rootHash = "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"

// rig plays the host of a machine: it gives indexes to what Admit proposes and applies it at once, or on demand.
type rig struct {
	t     testing.TB
	m     *Machine
	index uint64
	now   uint64
	log   []segment.Entry // everything that was applied
	// queue holds proposals that are not applied yet.
	queue []pending
}

type pending struct {
	entry segment.Entry
	cmd   *Command
}

// newRig makes a machine that leads and has its root user, whose session is client 1.
func newRig(t testing.TB, cfg Config) (*rig, *client) {
	r := bareRig(t, cfg)
	res := r.do(&Command{Operation: OpBootstrap, Body: (&Bootstrap{Username: "iggy", PasswordHash: rootHash,
		TicketKey: credential.TicketKey{1, 2, 3}}).Append(nil)})
	if res.Err != nil {
		t.Fatalf("bootstrap: %v", res.Err)
	}
	return r, r.login(1, RootUser)
}

func bareRig(t testing.TB, cfg Config) *rig {
	r := &rig{t: t, m: New(cfg), index: 10, now: 1_000_000}
	if err := r.m.Restore(nil, nil, 0); err != nil {
		t.Fatal(err)
	}
	r.m.Lead(1, true)
	return r
}

// propose submits a command; its outcome is in the returned place when it is settled. queued is false when it was answered by Admit.
func (r *rig) propose(cmd *Command) (res *Result, queued bool) {
	r.t.Helper()
	res = new(Result)
	calls := 0
	cmd.Now = r.now
	cmd.Done = func(got Result) {
		calls++
		if calls > 1 {
			r.t.Errorf("the outcome of %v was told %d times", cmd.Operation, calls)
		}
		*res = got
	}
	data := r.m.Admit(cmd)
	if data == nil {
		if calls != 1 {
			r.t.Fatalf("%v was neither proposed nor answered", cmd.Operation)
		}
		return res, false
	}
	r.index++
	r.queue = append(r.queue, pending{segment.Entry{Index: r.index, Term: 1, Data: append([]byte(nil), data...)}, cmd})
	cmd.Proposed()
	return res, true
}

// settle applies what was proposed.
func (r *rig) settle() {
	r.t.Helper()
	for _, p := range r.queue {
		r.log = append(r.log, p.entry)
		if err := r.m.Apply(p.entry, []replica.Request{p.cmd}); err != nil {
			r.t.Fatalf("apply %v: %v", p.cmd.Operation, err)
		}
	}
	r.queue = nil
}

// do proposes and applies.
func (r *rig) do(cmd *Command) Result {
	r.t.Helper()
	r.now += 10
	res, _ := r.propose(cmd)
	r.settle()
	return *res
}

// client is one session.
type client struct {
	r       *rig
	id      wire.U128
	user    uint32
	session uint64
	request uint64
}

func (r *rig) register(id uint64, user uint32) Result {
	r.t.Helper()
	var revision uint64
	if u := r.m.Catalog().UserByID(user); u != nil {
		revision = u.Revision
	}
	return r.do(&Command{Operation: wire.OpRegister, Client: wire.U128{Lo: id}, User: user, Secret: Secret{Revision: revision}})
}

func (r *rig) login(id uint64, user uint32) *client {
	r.t.Helper()
	res := r.register(id, user)
	if res.Err != nil || res.Session == 0 || res.User != user {
		r.t.Fatalf("login of user %d: %+v", user, res)
	}
	return &client{r: r, id: wire.U128{Lo: id}, user: user, session: res.Session}
}

// command makes the next command of the session.
func (c *client) command(op wire.Operation, body []byte) *Command {
	c.request++
	return &Command{Client: c.id, Session: c.session, Request: c.request, Stamp: wire.BodyStamp(body), User: c.user, Operation: op, Body: body}
}

// do runs a request the way the broker does: validated first.
func (c *client) do(req wire.Request) Result {
	c.r.t.Helper()
	op, body := wire.OperationFor(req.Code()), req.Append(nil)
	if err := Validate(op, body); err != nil {
		return Result{Err: err}
	}
	return c.r.do(c.command(op, body))
}

// later runs an operation that is complete in the log and not yet offered to clients.
func (c *client) later(op wire.Operation, body operation) Result {
	c.r.t.Helper()
	r := c.r
	r.now += 10
	r.index++
	c.request++
	h := header{op: op, client: c.id, session: c.session, request: c.request, now: r.now}
	e := segment.Entry{Index: r.index, Term: 1, Data: appendEntry(&h, body, 0)}
	var res Result
	cmd := &Command{Client: c.id, Operation: op, Done: func(got Result) { res = got }}
	r.log = append(r.log, e)
	if err := r.m.Apply(e, []replica.Request{cmd}); err != nil {
		r.t.Fatalf("apply %v: %v", op, err)
	}
	return res
}

func (c *client) must(req wire.Request) Result {
	c.r.t.Helper()
	res := c.do(req)
	if res.Err != nil {
		c.r.t.Fatalf("%v: %v", req.Code(), res.Err)
	}
	return res
}

// outcome describes the error of a result: "" for a success, "status 3", "committed 1009", "evicted 7".
func outcome(res Result) string {
	var status *StatusError
	var evicted *EvictionError
	var code wire.ErrorCode
	switch {
	case res.Err == nil:
		return ""
	case errors.As(res.Err, &status):
		return "status " + number(status.Code)
	case errors.As(res.Err, &evicted):
		return "evicted " + number(wire.ErrorCode(evicted.Reason))
	case errors.As(res.Err, &code):
		return "committed " + number(code)
	}
	return res.Err.Error()
}

func number(code wire.ErrorCode) string {
	digits := ""
	for n := uint32(code); ; n /= 10 {
		digits = string(rune('0'+n%10)) + digits
		if n < 10 {
			return digits
		}
	}
}

// check wants an outcome in the notation of outcome.
func check(t testing.TB, res Result, want string) {
	t.Helper()
	if got := outcome(res); got != want {
		t.Fatalf("outcome %q (%v), want %q", got, res.Err, want)
	}
}
