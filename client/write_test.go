package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// identityOf is the identity that a send arrived under.
type identityOf struct {
	client  wire.U128
	request uint64
}

// scriptSends answers the sends of a test in turn and records their identities;
// sends behind the script pass.
func scriptSends(s *fakeServer, script ...verdict) func() []identityOf {
	var mu sync.Mutex
	var seen []identityOf
	s.on(func(r *fakeRequest) verdict {
		if r.command != wire.CodeSendMessages {
			return verdict{}
		}
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, identityOf{r.Client, r.Request})
		if n := len(seen) - 1; n < len(script) {
			return script[n]
		}
		return verdict{}
	})
	return func() []identityOf {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

// TestReplyClassification plays every row of the table of answers to a write
// (routing D.6) against a server that executes each identity once.
func TestReplyClassification(t *testing.T) {
	notAccepted, notCommitted := wire.ErrTransientNotAccepted, wire.ErrTransientNotCommitted
	known := Confirmation{Stream: 1, Topic: 2, Known: true}
	tests := []struct {
		name     string
		script   []verdict
		want     Confirmation
		err      error
		copies   int // in the log afterwards
		attempts int
		same     bool // every attempt under one identity
		fresh    bool // every attempt under a number of its own
		logins   int
	}{
		{name: "accepted", want: known, copies: 1, attempts: 1, logins: 1},
		{name: "accepted without position", script: []verdict{{kind: bare}}, copies: 1, attempts: 1, logins: 1},
		{name: "accepted, reply lost", script: []verdict{{kind: cutReply}}, want: known, copies: 1, attempts: 2, same: true, logins: 2},
		{name: "accepted, reply cut", script: []verdict{{kind: cutReply, n: 255}}, want: known, copies: 1, attempts: 2, same: true, logins: 2},
		{name: "absorbed without position", script: []verdict{{kind: cutReply}, {kind: bare}}, want: Confirmation{Duplicate: true}, copies: 1, attempts: 2, same: true, logins: 2},
		{name: "refused", script: []verdict{{kind: refuse, code: notAccepted}}, want: known, copies: 1, attempts: 2, fresh: true, logins: 1},
		{name: "refused five times", script: slices.Repeat([]verdict{{kind: refuse, code: notAccepted}}, 5), want: known, copies: 1, attempts: 6, fresh: true, logins: 1},
		{name: "lost, executed, then refused", script: []verdict{{kind: cutReply}, {kind: refuse, code: notAccepted}, {kind: refuse, code: notAccepted}}, want: known, copies: 1, attempts: 4, same: true, logins: 2},
		{name: "lost, not executed, then refused", script: []verdict{{kind: hangUp}, {kind: refuse, code: notAccepted}}, want: known, copies: 1, attempts: 3, same: true, logins: 2},
		{name: "not committed, executed", script: []verdict{{kind: execAs, code: notCommitted}}, want: known, copies: 1, attempts: 2, same: true, logins: 1},
		{name: "not committed, not executed", script: []verdict{{kind: refuse, code: notCommitted}}, want: known, copies: 1, attempts: 2, same: true, logins: 1},
		{name: "not committed, then refused", script: []verdict{{kind: execAs, code: notCommitted}, {kind: refuse, code: notAccepted}}, want: known, copies: 1, attempts: 3, same: true, logins: 1},
		{name: "applied already", script: []verdict{{kind: execAs, code: wire.ErrRequestAlreadyApplied}}, want: Confirmation{Duplicate: true}, copies: 1, attempts: 1, logins: 1},
		{name: "session gone", script: []verdict{{kind: refuse, code: wire.ErrUnauthenticated}}, want: known, copies: 1, attempts: 2, logins: 2},
		{name: "stale session", script: []verdict{{kind: refuse, code: wire.ErrStaleClient}}, want: known, copies: 1, attempts: 2, logins: 2},
		{name: "session gone twice", script: slices.Repeat([]verdict{{kind: refuse, code: wire.ErrUnauthenticated}}, 2), err: wire.ErrUnauthenticated, attempts: 2},
		{name: "session gone on a replay", script: []verdict{{kind: cutReply}, {kind: refuse, code: wire.ErrUnauthenticated}}, want: known, copies: 1, attempts: 3, same: true, logins: 3},
		{name: "not found once", script: []verdict{{kind: refuse, code: wire.ErrResourceNotFound}}, want: known, copies: 1, attempts: 2, logins: 1},
		{name: "not found", script: slices.Repeat([]verdict{{kind: refuse, code: wire.ErrPartitionNotFound}}, 2), err: ErrNotFound, attempts: 2, logins: 1},
		{name: "not found on a replay", script: []verdict{{kind: cutReply}, {kind: refuse, code: wire.ErrTopicIdNotFound}}, err: ErrOutcomeUnknown, copies: 1, attempts: 2, same: true, logins: 2},
		{name: "unauthorized", script: []verdict{{kind: refuse, code: wire.ErrUnauthorized}}, err: wire.ErrUnauthorized, attempts: 1, logins: 1},
		{name: "bad body", script: []verdict{{kind: refuse, code: wire.ErrInvalidCommand}}, err: wire.ErrInvalidCommand, attempts: 1, logins: 1},
		{name: "bad checksum", script: []verdict{{kind: refuse, code: wire.ErrInvalidBatchChecksum}}, err: wire.ErrInvalidBatchChecksum, attempts: 1, logins: 1},
		{name: "disk full", script: []verdict{{kind: refuse, code: wire.ErrCannotAppendMessage}}, err: wire.ErrCannotAppendMessage, attempts: 1, logins: 1},
		{name: "unauthorized on a replay", script: []verdict{{kind: cutReply}, {kind: refuse, code: wire.ErrUnauthorized}}, err: ErrOutcomeUnknown, copies: 1, attempts: 2, same: true, logins: 2},
		{name: "evicted", script: []verdict{{kind: evict, reason: wire.EvictNoSession}}, want: known, copies: 1, attempts: 2, same: true, logins: 2},
		{name: "evicted twice", script: slices.Repeat([]verdict{{kind: evict, reason: wire.EvictSessionTooLow}}, 2), want: known, copies: 1, attempts: 3, same: true, logins: 3},
		{name: "connection lost before execution", script: []verdict{{kind: hangUp}}, want: known, copies: 1, attempts: 2, same: true, logins: 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newFake(t, 1)
			seen := scriptSends(s, tt.script...)
			c := s.connect(t)
			conf, err := c.Send(within(t, 5*time.Second), stream, topic, wire.PartitionID(0), text("x"))
			if tt.err == nil && err != nil || !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if tt.err != nil && !errors.Is(tt.err, ErrOutcomeUnknown) && errors.Is(err, ErrOutcomeUnknown) {
				t.Fatalf("outcome is known: %v", err)
			}
			if conf != tt.want {
				t.Fatalf("confirmation %+v, want %+v", conf, tt.want)
			}
			if n := len(s.payloads(0)); n != tt.copies {
				t.Fatalf("%d copies in the log, want %d", n, tt.copies)
			}
			ids := seen()
			if len(ids) != tt.attempts {
				t.Fatalf("%d attempts, want %d: %v", len(ids), tt.attempts, ids)
			}
			for i := 1; i < len(ids); i++ {
				if tt.same && ids[i] != ids[0] {
					t.Fatalf("a replay under another identity: %v", ids)
				}
				if tt.fresh && ids[i].request <= ids[i-1].request {
					t.Fatalf("numbers do not grow: %v", ids)
				}
			}
			logins := s.registered()
			if tt.logins != 0 && len(logins) != tt.logins {
				t.Fatalf("%d registrations, want %d", len(logins), tt.logins)
			}
			for _, id := range logins {
				if id != logins[0] {
					t.Fatalf("the client id changed: %v", logins)
				}
			}
		})
	}
}

// TestReleasedServer: against a server without our extension a reconnection is a
// new client, so a write whose reply was lost cannot be replayed.
func TestReleasedServer(t *testing.T) {
	tests := []struct {
		name     string
		script   []verdict
		err      error
		copies   int
		attempts int
		logins   int
	}{
		{name: "accepted", copies: 1, attempts: 1, logins: 1},
		{name: "refused", script: slices.Repeat([]verdict{{kind: refuse, code: wire.ErrTransientNotAccepted}}, 3), copies: 1, attempts: 4, logins: 1},
		{name: "not committed: replayed on the same session", script: []verdict{{kind: execAs, code: wire.ErrTransientNotCommitted}}, copies: 1, attempts: 2, logins: 1},
		{name: "reply lost", script: []verdict{{kind: cutReply}}, err: ErrOutcomeUnknown, copies: 1, attempts: 1, logins: 2},
		{name: "lost before execution", script: []verdict{{kind: hangUp}}, err: ErrOutcomeUnknown, copies: 0, attempts: 1, logins: 2},
		{name: "session gone: nothing was written", script: []verdict{{kind: refuse, code: wire.ErrUnauthenticated}}, copies: 1, attempts: 2, logins: 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newFake(t, 1)
			s.set(func() { s.whippet = false })
			seen := scriptSends(s, tt.script...)
			c := s.connect(t)
			_, err := c.Send(within(t, 5*time.Second), stream, topic, wire.PartitionID(0), text("x"))
			if tt.err == nil && err != nil || !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if n := len(s.payloads(0)); n != tt.copies {
				t.Fatalf("%d copies, want %d", n, tt.copies)
			}
			if n := len(seen()); n != tt.attempts {
				t.Fatalf("%d attempts, want %d", n, tt.attempts)
			}
			logins := s.registered()
			if len(logins) != tt.logins || tt.logins == 2 && logins[0] == logins[1] {
				t.Fatalf("registrations %v", logins)
			}
		})
	}
}

// TestCutAtEveryByte cuts the connection at every byte of a send and at every
// byte of its reply: each message is in the log once, at the confirmed offset.
func TestCutAtEveryByte(t *testing.T) {
	s := newFake(t, 1)
	c := s.connect(t, WithReconnect(Reconnect{Interval: time.Millisecond}))
	ctx := within(t, 20*time.Second)
	var want []string
	send := func(name string) {
		t.Helper()
		conf, err := c.Send(ctx, stream, topic, wire.PartitionID(0), text(name))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if conf.Known && conf.Offset != uint64(len(want)) {
			t.Fatalf("%s: confirmed at %d, want %d", name, conf.Offset, len(want))
		}
		want = append(want, name)
	}
	send("first")
	frame := wire.HeaderSize + 4 + 3 + 3 + 6 + 4 + wire.BatchHeaderSize + wire.MessageHeaderSize + len("request 000")
	for n := range frame {
		s.cutAt(n)
		send(fmt.Sprintf("request %3d", n))
	}
	for n := range wire.HeaderSize + 24 {
		var once sync.Once
		s.on(func(r *fakeRequest) (v verdict) {
			if r.command == wire.CodeSendMessages {
				once.Do(func() { v = verdict{kind: cutReply, n: n} })
			}
			return v
		})
		send(fmt.Sprintf("reply %3d", n))
	}
	if got := s.payloads(0); !slices.Equal(got, want) {
		t.Fatalf("log differs: %d messages, want %d", len(got), len(want))
	}
	for _, id := range s.registered() {
		if id != s.registered()[0] {
			t.Fatal("the client id changed")
		}
	}
}

// TestMetadataExactlyOnce: a metadata operation whose reply is lost gives the
// verdict of its first execution.
func TestMetadataExactlyOnce(t *testing.T) {
	for _, v := range []verdict{
		{kind: cutReply}, {kind: cutReply, n: 259}, {kind: hangUp}, {kind: evict, reason: wire.EvictNoSession},
		{kind: refuseBody, code: wire.ErrTransientNotAccepted}, {kind: refuseBody, code: wire.ErrTransientNotCommitted},
		{kind: refuse, code: wire.ErrUnauthenticated},
	} {
		t.Run(fmt.Sprintf("%d/%d", v.kind, v.code), func(t *testing.T) {
			s := newFake(t, 1)
			c := s.connect(t)
			s.on(func(r *fakeRequest) verdict {
				if r.command == wire.CodeCreateStream && r.n == 0 {
					return v
				}
				return verdict{}
			})
			d, err := c.CreateStream(within(t, 5*time.Second), "once")
			if err != nil || d.Name != "once" {
				t.Fatalf("%+v %v", d, err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.streams) != 1 {
				t.Fatalf("streams %v", s.streams)
			}
		})
	}
}

// TestOrderUnderRefusals pipelines 16 batches and refuses, loses and cuts some in
// the middle: every message is in the log once, in the order of the calls.
func TestOrderUnderRefusals(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			s := newFake(t, 1)
			c := s.connect(t, WithReconnect(Reconnect{Interval: time.Millisecond}))
			var mu sync.Mutex // an old connection may still be served beside a new one
			s.on(func(r *fakeRequest) verdict {
				mu.Lock()
				defer mu.Unlock()
				if r.command != wire.CodeSendMessages || rnd.IntN(12) != 0 {
					return verdict{}
				}
				return []verdict{
					{kind: refuse, code: wire.ErrTransientNotAccepted}, {kind: refuse, code: wire.ErrTransientNotAccepted},
					{kind: refuse, code: wire.ErrTransientNotCommitted}, {kind: execAs, code: wire.ErrTransientNotCommitted},
					{kind: hangUp}, {kind: cutReply, n: rnd.IntN(280)}, {kind: evict, reason: wire.EvictSessionTooLow},
				}[rnd.IntN(7)]
			})
			p := c.Producer(stream, topic, ProducerConfig{BatchMessages: 1, MaxInFlight: 16})
			ctx := within(t, 15*time.Second)
			const n = 300
			for i := range n {
				err := p.Enqueue(ctx, text(fmt.Sprint(i)), func(conf Confirmation, err error) {
					if err != nil || conf.Known && conf.Offset != uint64(i) {
						t.Errorf("message %d: %+v %v", i, conf, err)
					}
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			got := s.payloads(0)
			if len(got) != n {
				t.Fatalf("%d messages in the log, want %d", len(got), n)
			}
			for i, v := range got {
				if v != fmt.Sprint(i) {
					t.Fatalf("at %d: %s", i, v)
				}
			}
			for _, id := range s.registered() {
				if id != s.registered()[0] {
					t.Fatal("the client id changed")
				}
			}
		})
	}
}

// TestOnlyOneInFlightWithoutFence: without the fence a refusal could reorder.
func TestOnlyOneInFlightWithoutFence(t *testing.T) {
	s := newFake(t, 1)
	s.set(func() { s.fence = false })
	c := s.connect(t)
	release := make(chan struct{})
	s.on(func(r *fakeRequest) verdict {
		if r.command == wire.CodeSendMessages {
			return verdict{kind: after, wait: release}
		}
		return verdict{}
	})
	p := c.Producer(stream, topic, ProducerConfig{BatchMessages: 1})
	ctx := within(t, 5*time.Second)
	for i := range 4 {
		if err := p.Enqueue(ctx, text(fmt.Sprint(i)), nil); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "the first send", func() bool { return s.counted(wire.CodeSendMessages) > 0 })
	if _, err := c.Ping(ctx); err != nil { // whatever was written before it has arrived
		t.Fatal(err)
	}
	if n := s.counted(wire.CodeSendMessages); n != 1 {
		t.Fatalf("%d sends in flight", n)
	}
	close(release)
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestDeadline: a write that is not answered ends with an unknown outcome, its
// late reply is swallowed, and the link stays.
func TestDeadline(t *testing.T) {
	s := newFake(t, 1)
	late := &lateHook{}
	c := s.connect(t, WithHooks(late))
	release := make(chan struct{})
	s.on(func(r *fakeRequest) verdict {
		if r.command == wire.CodeSendMessages && r.n == 0 {
			return verdict{kind: after, wait: release}
		}
		return verdict{}
	})
	_, err := c.Send(within(t, 60*time.Millisecond), stream, topic, wire.PartitionID(0), text("late"))
	var unknown *OutcomeUnknownError
	if !errors.As(err, &unknown) || !errors.Is(err, context.DeadlineExceeded) || unknown.Request != 1 {
		t.Fatalf("got %v", err)
	}
	close(release)
	waitFor(t, "the late send to be executed", func() bool { return len(s.payloads(0)) == 1 })
	if conf, err := c.Send(within(t, 5*time.Second), stream, topic, wire.PartitionID(0), text("next")); err != nil || conf.Offset != 1 {
		t.Fatalf("%+v %v", conf, err)
	}
	waitFor(t, "the late reply to be counted", func() bool { return late.count() == 1 })
	if n := len(s.registered()); n != 1 {
		t.Fatalf("%d registrations", n)
	}
}

// TestDeadlineNeverAdmitted: a write that is refused until its deadline was never
// admitted, and never becomes unknown.
func TestDeadlineNeverAdmitted(t *testing.T) {
	s := newFake(t, 1)
	c := s.connect(t)
	s.on(func(r *fakeRequest) verdict {
		if r.command == wire.CodeSendMessages {
			return verdict{kind: refuse, code: wire.ErrTransientNotAccepted}
		}
		return verdict{}
	})
	_, err := c.Send(within(t, 150*time.Millisecond), stream, topic, wire.PartitionID(0), text("x"))
	if !errors.Is(err, ErrNotAdmitted) || errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, wire.ErrTransientNotAccepted) {
		t.Fatalf("got %v", err)
	}
	if n := len(s.payloads(0)); n != 0 {
		t.Fatalf("%d in the log", n)
	}
}

// TestCancellation cancels callers at random points: the link stays framed, no
// reply reaches another request, and an error never lies about the log.
func TestCancellation(t *testing.T) {
	s := newFake(t, 1)
	c := s.connect(t)
	rnd := rand.New(rand.NewPCG(3, 1))
	ctx := within(t, 15*time.Second)
	if _, err := c.Send(ctx, stream, topic, wire.PartitionID(0), text("first")); err != nil {
		t.Fatal(err)
	}
	type result struct {
		name string
		conf Confirmation
		err  error
	}
	results := make([]result, 200)
	var wg sync.WaitGroup
	for i := range results {
		delay := time.Duration(rnd.IntN(400)) * time.Microsecond
		wg.Add(1)
		go func() {
			defer wg.Done()
			ctx, cancel := context.WithTimeout(ctx, delay)
			defer cancel()
			name := fmt.Sprint("m", i)
			conf, err := c.Send(ctx, stream, topic, wire.PartitionID(0), text(name))
			results[i] = result{name, conf, err}
		}()
	}
	wg.Wait()
	if _, err := c.Send(ctx, stream, topic, wire.PartitionID(0), text("last")); err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	for i, name := range s.payloads(0) {
		if _, twice := at[name]; twice {
			t.Fatalf("%s is in the log twice", name)
		}
		at[name] = i
	}
	for _, r := range results {
		offset, there := at[r.name]
		switch {
		case r.err == nil && (!there || r.conf.Offset != uint64(offset)):
			t.Errorf("%s: confirmed %+v, in the log at %d %v", r.name, r.conf, offset, there)
		case errors.Is(r.err, ErrNotAdmitted) && there:
			t.Errorf("%s: not admitted, but in the log", r.name)
		}
	}
	if n := len(s.registered()); n != 1 {
		t.Fatalf("%d registrations", n)
	}
}

// TestUnknownBlocks: behind a write of unknown outcome nothing is sent until
// somebody decides.
func TestUnknownBlocks(t *testing.T) {
	for _, how := range []string{"resolve", "abandon"} {
		t.Run(how, func(t *testing.T) {
			s := newFake(t, 1)
			c := s.connect(t, WithReconnect(Reconnect{Interval: time.Millisecond}))
			p := c.Producer(stream, topic, ProducerConfig{BatchMessages: 1, DeliveryTimeout: 200 * time.Millisecond})
			ctx := within(t, 10*time.Second)
			if _, err := p.Send(ctx, text("first")); err != nil {
				t.Fatal(err)
			}
			s.on(func(r *fakeRequest) verdict {
				if r.command == wire.CodeSendMessages {
					return verdict{kind: execAs, code: wire.ErrTransientNotCommitted}
				}
				return verdict{}
			})
			if _, err := p.Send(ctx, text("second")); !errors.Is(err, ErrOutcomeUnknown) {
				t.Fatalf("got %v", err)
			}
			s.on(nil)
			if _, err := p.Send(ctx, text("third")); !errors.Is(err, ErrBlocked) || !errors.Is(err, ErrNotAdmitted) {
				t.Fatalf("got %v", err)
			}
			if how == "resolve" {
				if err := p.Resolve(ctx); err != nil {
					t.Fatal(err)
				}
			} else {
				p.Abandon()
			}
			if _, err := p.Send(ctx, text("fourth")); err != nil {
				t.Fatal(err)
			}
			if got := s.payloads(0); !slices.Equal(got, []string{"first", "second", "fourth"}) {
				t.Fatalf("log %v", got)
			}
		})
	}
}

type lateHook struct {
	mu sync.Mutex
	n  int
}

func (h *lateHook) OnLateReply(string) {
	h.mu.Lock()
	h.n++
	h.mu.Unlock()
}

func (h *lateHook) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}

func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
		<-tick.C
	}
}

// TestRefusedForGood: each of many sends is refused for good, one per round,
// because the fence refuses those behind it. Every round gets one of them over
// with, so the pause between rounds does not grow.
func TestRefusedForGood(t *testing.T) {
	s := newFake(t, 1)
	c := s.connect(t)
	ctx := within(t, 30*time.Second)
	s.on(func(r *fakeRequest) verdict {
		fenced := false
		s.set(func() { fenced = r.conn.fenced[0] })
		if r.command != wire.CodeSendMessages || fenced {
			return verdict{} // of a send: the fence refuses it
		}
		return verdict{kind: refuse, code: wire.ErrCannotAppendMessage}
	})
	p := c.Producer(stream, topic, ProducerConfig{BatchMessages: 1, MaxInFlight: 16})
	const batches = 64
	refused := 0
	start := time.Now()
	for range batches {
		if err := p.Enqueue(ctx, text("x"), func(_ Confirmation, err error) {
			if errors.Is(err, wire.ErrCannotAppendMessage) {
				refused++
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if refused != batches {
		t.Errorf("%d refused", refused)
	}
	if took := time.Since(start); took > 5*time.Second { // growing pauses make it 25
		t.Errorf("took %v", took)
	}
}
