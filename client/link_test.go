package client

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// pipeLink makes a link over a pipe in a synctest bubble; far is the server's end.
func pipeLink(t *testing.T, change func(*Options)) (l *link, far net.Conn) {
	t.Helper()
	o := new(Options).withDefaults()
	if change != nil {
		change(&o)
	}
	near, far := net.Pipe()
	l = newLink(&o, sortHooks(o.Hooks), near, "pipe", newIdentity(), new(atomic.Uint64))
	l.session = 5
	l.start()
	t.Cleanup(func() {
		l.fail("close", ErrClosed)
		_ = far.Close()
		<-l.done
	})
	return l, far
}

func readRequest(t *testing.T, c net.Conn) (h wire.RequestHeader, body []byte) {
	t.Helper()
	head := make([]byte, wire.HeaderSize)
	if _, err := io.ReadFull(c, head); err != nil {
		t.Fatal(err)
	}
	if err := h.Decode(head); err != nil {
		t.Fatal(err)
	}
	body = make([]byte, h.Size-wire.HeaderSize)
	if _, err := io.ReadFull(c, body); err != nil {
		t.Fatal(err)
	}
	return h, body
}

func answer(t *testing.T, c net.Conn, h wire.RequestHeader, body string) {
	t.Helper()
	if _, err := c.Write(wire.AppendReply(nil, h.Reply(), []byte(body))); err != nil {
		t.Fatal(err)
	}
}

// collector takes outcomes.
type collector struct {
	call
	out chan<- *collector
	got string
}

func (c *collector) complete(*call) {
	c.got = string(c.body)
	c.out <- c
}

func newCollector(out chan<- *collector, op wire.Operation, bulk string) *collector {
	c := &collector{out: out}
	c.op, c.bulk, c.to, c.deadline = op, []byte(bulk), c, time.Now().Add(30*time.Second)
	if op == wire.OpNonReplicated {
		c.code = wire.CodePing
	}
	return c
}

func TestLinkRepliesInAnyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, far := pipeLink(t, nil)
		l.pipeline()
		out := make(chan *collector, 8)
		var sent []*collector
		for _, op := range []wire.Operation{wire.OpSendMessages, wire.OpNonReplicated, wire.OpSendMessages, wire.OpNonReplicated} {
			c := newCollector(out, op, op.String())
			if err := l.submit(t.Context(), &c.call); err != nil {
				t.Fatal(err)
			}
			sent = append(sent, c)
		}
		var heads []wire.RequestHeader
		for range sent {
			h, _ := readRequest(t, far)
			heads = append(heads, h)
		}
		ids := []uint64{heads[0].Request, heads[1].Request, heads[2].Request, heads[3].Request}
		if !slices.Equal(ids, []uint64{1, 1 << 63, 2, 1<<63 + 1}) {
			t.Fatalf("request ids %v", ids)
		}
		for _, i := range []int{3, 1, 2, 0} {
			if heads[i].Session != 5 || heads[i].Client != l.ident.client {
				t.Fatalf("header %+v", heads[i])
			}
			answer(t, far, heads[i], string(rune('a'+i)))
			if c := <-out; c != sent[i] || c.got != string(rune('a'+i)) || c.err != nil {
				t.Fatalf("reply %d went to another request: %q %v", i, c.got, c.err)
			}
		}
	})
}

// TestLinkLockstep: towards a released server one request at a time, and reads
// carry the next number without consuming it.
func TestLinkLockstep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, far := pipeLink(t, nil)
		out := make(chan *collector, 8)
		for _, op := range []wire.Operation{wire.OpNonReplicated, wire.OpSendMessages, wire.OpNonReplicated} {
			c := newCollector(out, op, "")
			go func() {
				if err := l.submit(t.Context(), &c.call); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait() // in this order
		}
		for i, want := range []uint64{1, 1, 2} {
			h, _ := readRequest(t, far)
			if h.Request != want {
				t.Fatalf("request %d carries %d, want %d", i, h.Request, want)
			}
			synctest.Wait()
			l.mu.Lock()
			pending := len(l.pending)
			l.mu.Unlock()
			if pending != 1 {
				t.Fatalf("%d in flight", pending)
			}
			answer(t, far, h, "")
			<-out
		}
	})
}

func TestLinkBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, far := pipeLink(t, func(o *Options) { o.MaxPending, o.MaxUnanswered = 3, 10_000 })
		l.pipeline()
		out := make(chan *collector, 8)
		for range 3 {
			c := newCollector(out, wire.OpSendMessages, "x")
			if err := l.submit(t.Context(), &c.call); err != nil {
				t.Fatal(err)
			}
		}
		c := newCollector(out, wire.OpSendMessages, "fourth")
		place, err := l.offer(&c.call)
		if place == nil || err != nil {
			t.Fatalf("a full link took a call: %v", err)
		}
		if err := l.leave(&c.call, place); !errors.Is(err, errNoRoom) {
			t.Fatalf("left the line with %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.submit(ctx, &c.call); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		got := make(chan error, 1)
		go func() { got <- l.submit(t.Context(), &c.call) }()
		synctest.Wait()
		h, _ := readRequest(t, far)
		answer(t, far, h, "")
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		// Bytes bound as well; one request that is larger alone is let in.
		big := newCollector(out, wire.OpSendMessages, string(make([]byte, 20_000)))
		if place, err = l.offer(&big.call); place == nil || err != nil {
			t.Fatalf("bytes do not bound: %v", err)
		}
		for range 3 {
			h, _ := readRequest(t, far)
			answer(t, far, h, "")
		}
		l.await(ctx, place)
		if err := l.leave(&big.call, place); err != nil {
			t.Fatalf("a large request is never let in: %v", err)
		}
	})
}

// TestLinkEnds: however a link ends, every call gets its outcome once, in order,
// before done closes, and the outcome says how much was written.
func TestLinkEnds(t *testing.T) {
	tests := []struct {
		name string
		end  func(t *testing.T, l *link, far net.Conn)
		want func(error) bool
	}{
		{"closed by the server", func(_ *testing.T, _ *link, far net.Conn) { _ = far.Close() }, func(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) }},
		{"bad size", func(t *testing.T, _ *link, far net.Conn) {
			if _, err := far.Write(make([]byte, wire.HeaderSize)); err != nil {
				t.Fatal(err)
			}
		}, func(err error) bool { return errors.Is(err, wire.ErrInvalidSize) }},
		{"frame too large", func(t *testing.T, _ *link, far net.Conn) {
			h := wire.ReplyHeader{Size: 1 << 30, Operation: wire.OpNonReplicated}
			b := make([]byte, wire.HeaderSize)
			h.Put(b)
			if _, err := far.Write(b); err != nil {
				t.Fatal(err)
			}
		}, func(err error) bool { return errors.Is(err, wire.ErrInvalidCommand) }},
		{"evicted", func(t *testing.T, l *link, far net.Conn) {
			if _, err := far.Write(wire.AppendEviction(nil, wire.EvictionHeader{Client: l.ident.client, Reason: wire.EvictStaleClient})); err != nil {
				t.Fatal(err)
			}
		}, func(err error) bool { return errors.Is(err, wire.ErrStaleClient) }},
		{"silence", func(_ *testing.T, _ *link, _ net.Conn) {}, func(err error) bool { return errors.Is(err, errNoReply) || err != nil }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, far := pipeLink(t, nil)
				l.pipeline()
				out := make(chan *collector, 8)
				var sent []*collector
				for range 3 {
					c := newCollector(out, wire.OpSendMessages, "x")
					if err := l.submit(t.Context(), &c.call); err != nil {
						t.Fatal(err)
					}
					sent = append(sent, c)
				}
				for range 3 {
					readRequest(t, far)
				}
				// These are never read: the writer is stuck in the first of them.
				for range 2 {
					c := newCollector(out, wire.OpSendMessages, "y")
					if err := l.submit(t.Context(), &c.call); err != nil {
						t.Fatal(err)
					}
					sent = append(sent, c)
					synctest.Wait()
				}
				tt.end(t, l, far)
				<-l.done
				for i, want := range sent {
					c := <-out
					if c != want {
						t.Fatalf("outcome %d out of order", i)
					}
					var le *LinkError
					if !errors.As(c.err, &le) || !tt.want(c.err) {
						t.Fatalf("outcome %d: %v", i, c.err)
					}
					// The pipe may have taken part of the fourth without saying so.
					if i < 3 && c.wrote != wroteAll || i == 4 && c.wrote != wroteNothing {
						t.Fatalf("outcome %d: wrote %d", i, c.wrote)
					}
				}
				c := newCollector(out, wire.OpSendMessages, "late")
				if err := l.submit(t.Context(), &c.call); !errors.Is(err, errLinkClosed) {
					t.Fatalf("got %v", err)
				}
			})
		})
	}
}

// TestLinkPartialWrite: on plain TCP the number of bytes that left tells which
// frames cannot have been executed; under TLS every frame that was begun may.
func TestLinkPartialWrite(t *testing.T) {
	const frame = wire.HeaderSize + 10
	for _, tt := range []struct {
		name  string
		plain bool
		n     int64
		want  []wrote
	}{
		{"nothing", true, 0, []wrote{wroteNothing, wroteNothing, wroteNothing}},
		{"one byte", true, 1, []wrote{wrotePart, wroteNothing, wroteNothing}},
		{"all but one byte", true, frame - 1, []wrote{wrotePart, wroteNothing, wroteNothing}},
		{"one frame", true, frame, []wrote{wroteAll, wroteNothing, wroteNothing}},
		{"into the second", true, frame + 5, []wrote{wroteAll, wrotePart, wroteNothing}},
		{"tls, nothing counted", false, 0, []wrote{wroteAll, wroteNothing, wroteNothing}},
		{"tls, into the second", false, frame + 5, []wrote{wroteAll, wroteAll, wroteNothing}},
		{"tls, one frame", false, frame, []wrote{wroteAll, wroteAll, wroteNothing}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := &link{plain: tt.plain}
			batch := []*call{{bulk: make([]byte, 10)}, {bulk: make([]byte, 10)}, {bulk: make([]byte, 10)}}
			l.written(batch, tt.n, io.ErrShortWrite)
			for i, c := range batch {
				if c.wrote != tt.want[i] {
					t.Errorf("frame %d: %d, want %d", i, c.wrote, tt.want[i])
				}
			}
		})
	}
}

// TestLinkCancelled: a caller that gives up gets its error at once; what was not
// written is taken back, a late reply reaches nobody.
func TestLinkCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := &lateHook{}
		l, far := pipeLink(t, func(o *Options) { o.Hooks = []Hook{late} })
		l.pipeline()
		ping := call{op: wire.OpNonReplicated, code: wire.CodePing}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		result := make(chan error, 2)
		wroteIt := make(chan wrote, 2)
		for range 2 {
			go func() {
				got, err := l.roundTrip(ctx, ping)
				wroteIt <- got.wrote
				result <- err
			}()
			synctest.Wait()
		}
		h, _ := readRequest(t, far) // the second stays in the queue or in the writer
		for range 2 {
			if err := <-result; !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("got %v", err)
			}
		}
		answer(t, far, h, "late")
		go func() {
			for {
				head := make([]byte, wire.HeaderSize)
				if _, err := io.ReadFull(far, head); err != nil {
					return
				}
				var h wire.RequestHeader
				if h.Decode(head) == nil {
					_, _ = far.Write(wire.AppendReply(nil, h.Reply(), []byte("fresh")))
				}
			}
		}()
		got, err := l.roundTrip(t.Context(), ping)
		if err != nil || string(got.body) != "fresh" {
			t.Fatalf("%q %v", got.body, err)
		}
	})
}
