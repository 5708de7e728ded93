package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// TestRouterAllPlacements is E.2/1: every assignment of three primaries to three
// nodes, a client on each node, 30 sends in turn. After each change at most one
// refusal per partition, no pause, no move of the session.
func TestRouterAllPlacements(t *testing.T) {
	bubble(t, 3, 3, func(t *testing.T, s *fakeCluster) {
		var clients []*Client
		var watchers []*watcher
		for node := range 3 {
			c, w := s.connect(node)
			clients, watchers = append(clients, c), append(watchers, w)
		}
		n := 0
		for i := range 27 {
			s.set(func() { s.parts[0].primary, s.parts[1].primary, s.parts[2].primary = i/9, i/3%3, i%3 })
			for node, c := range clients {
				before := watchers[node].refusals
				for j := range 30 {
					if d := sendTo(t, c, uint32(j%3), fmt.Sprint(n)); d > 10*time.Millisecond {
						t.Errorf("placement %d: a send took %v", i, d)
					}
					n++
				}
				if r := watchers[node].refusals - before; r > 3 {
					t.Errorf("placement %d, client on node %d: %d refusals", i, node, r)
				}
			}
		}
		total := 0
		for p := range 3 {
			total += len(s.payloads(p))
		}
		if total != n {
			t.Errorf("%d messages, want %d", total, n)
		}
		for i, c := range clients {
			if i < 2 {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
			if watchers[i].dialled("coordinator") != 1 {
				t.Errorf("client %d: dials %v", i, watchers[i].dials)
			}
		}
		s.close(clients[2], watchers[2])
	})
}

// TestRouterMovesUnderLoad is E.2/2: the primary moves every 100 ms under a
// pipelined producer. Order, no copy, nothing lost.
func TestRouterMovesUnderLoad(t *testing.T) {
	bubble(t, 3, 1, func(t *testing.T, s *fakeCluster) {
		c, w := s.connect(0)
		defer s.close(c, w)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for to := 0; ; to = (to + 1) % 3 {
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Millisecond):
					s.move(0, to)
				}
			}
		})
		p := c.Producer(stream, topic, ProducerConfig{BatchMessages: 3})
		const n = 2000
		for i := range n {
			start := time.Now()
			err := p.Enqueue(context.Background(), text(fmt.Sprint(i)), func(conf Confirmation, err error) {
				if err != nil || int(conf.Offset) != i || time.Since(start) > time.Second {
					t.Errorf("message %d: %+v %v after %v", i, conf, err, time.Since(start))
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if i%3 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		if err := p.Flush(context.Background()); err != nil {
			t.Error(err)
		}
		close(stop)
		wg.Wait()
		if got := s.payloads(0); len(got) != n {
			t.Errorf("%d messages", len(got))
		}
	})
}

// TestRouterCut is E.2/4: the data link breaks at every byte of the request and of
// the reply; each message is there once and its sender learns where.
func TestRouterCut(t *testing.T) {
	run := func(t *testing.T, s *fakeCluster, step int) {
		s.move(0, 1)
		c, w := s.connect(0)
		defer s.close(c, w)
		sendTo(t, c, 0, "first")
		n := 1
		for at := 0; at < 420; at += step {
			s.set(func() { s.cutAt = at })
			sendTo(t, c, 0, fmt.Sprintf("request %d", at))
			n++
		}
		s.set(func() { s.cutAt = -1 })
		for at := 0; at < 300; at += step {
			var once atomic.Bool
			s.on(func(r *clusterRequest) verdict {
				if r.command == wire.CodeSendMessages && !once.Swap(true) {
					return verdict{kind: cutReply, n: at}
				}
				return verdict{}
			})
			sendTo(t, c, 0, fmt.Sprintf("reply %d", at))
			n++
		}
		got := s.payloads(0)
		slices.Sort(got)
		if len(got) != n || len(slices.Compact(got)) != n {
			t.Errorf("%d messages, %d different, want %d", len(got), len(slices.Compact(got)), n)
		}
		if len(s.parts[0].seen) != 1 {
			t.Errorf("%d identities", len(s.parts[0].seen))
		}
		if w.moved("coordinator_lost") != 0 {
			t.Error("the session moved")
		}
	}
	t.Run("like TLS", func(t *testing.T) {
		bubble(t, 3, 1, func(t *testing.T, s *fakeCluster) { run(t, s, 1) })
	})
	t.Run("plain TCP", func(t *testing.T) {
		s := newCluster(t, 3, 1)
		s.tcp = true
		run(t, s, 23)
	})
}

// TestRouterSwallowed is E.2/5 and E.2/6: the reply is lost, the primary moves, and
// the old one refuses the replay. That says nothing about the original: it is found
// on the new primary, under the identity it was written under.
func TestRouterSwallowed(t *testing.T) {
	for _, executed := range []bool{true, false} {
		t.Run(fmt.Sprintf("executed=%v", executed), func(t *testing.T) {
			bubble(t, 3, 1, func(t *testing.T, s *fakeCluster) {
				s.move(0, 1)
				c, w := s.connect(0)
				defer s.close(c, w)
				sendTo(t, c, 0, "a")
				kind := verdict{kind: execAs, code: wire.ErrTransientNotCommitted}
				if !executed {
					kind = verdict{kind: refuse, code: wire.ErrTransientNotCommitted}
				}
				var ids []identityOf
				s.on(func(r *clusterRequest) verdict {
					if r.command != wire.CodeSendMessages {
						return verdict{}
					}
					s.mu.Lock()
					defer s.mu.Unlock()
					ids = append(ids, identityOf{r.Client, r.Request})
					if len(ids) == 1 {
						s.nodes[0].says[0], s.nodes[2].says[0] = 1, 1
						return kind
					}
					s.parts[0].primary = 2
					if r.node == 1 {
						delete(s.nodes[0].says, 0)
						delete(s.nodes[2].says, 0)
						return verdict{kind: refuse, code: wire.ErrTransientNotAccepted}
					}
					return verdict{}
				})
				sendTo(t, c, 0, "b")
				if got := s.payloads(0); !slices.Equal(got, []string{"a", "b"}) {
					t.Errorf("log %v", got)
				}
				if len(ids) != 3 || ids[1] != ids[0] || ids[2] != ids[0] {
					t.Errorf("identities %v", ids)
				}
				if w.dialled("recovery") != 1 || w.paths["recovered"] != 1 {
					t.Errorf("dials %v, paths %v", w.dials, w.paths)
				}
			})
		})
	}
}

// TestRouterNoPrimary is E.2/13: while nobody leads nothing is confirmed; what was
// never written ends as not admitted; afterwards everything goes on.
func TestRouterNoPrimary(t *testing.T) {
	bubble(t, 3, 1, func(t *testing.T, s *fakeCluster) {
		c, w := s.connect(0)
		defer s.close(c, w)
		sendTo(t, c, 0, "a")
		s.move(0, -1)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if _, err := c.Send(ctx, stream, topic, wire.PartitionID(0), text("never")); !errors.Is(err, ErrNotAdmitted) || errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("got %v", err)
		}
		done := make(chan time.Duration, 1)
		go func() { done <- sendTo(t, c, 0, "b") }()
		time.Sleep(3 * time.Second)
		s.move(0, 2)
		if d := <-done; d > 4*time.Second {
			t.Errorf("it took %v", d)
		}
		if n := s.counted(wire.CodeGetPollRouting); n > 60 {
			t.Errorf("%d lookups in five seconds", n)
		}
		if got := s.payloads(0); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("log %v", got)
		}
	})
}

// TestRouterBalanced is E.2/11: balanced sends take the partitions in turn,
// wherever they are.
func TestRouterBalanced(t *testing.T) {
	bubble(t, 3, 6, func(t *testing.T, s *fakeCluster) {
		c, w := s.connect(0)
		defer s.close(c, w)
		for i := range 600 {
			if _, err := c.Send(context.Background(), stream, topic, wire.Balanced(), text(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		for p := range 6 {
			if n := len(s.payloads(p)); n != 100 {
				t.Errorf("partition %d: %d", p, n)
			}
		}
	})
}

// TestRouterEvictions is E.2/19: the server ends the sessions of links all the
// time. They register again under the same client id, and nothing is there twice.
func TestRouterEvictions(t *testing.T) {
	bubble(t, 3, 2, func(t *testing.T, s *fakeCluster) {
		c, w := s.connect(0)
		defer s.close(c, w)
		n := atomic.Int64{}
		s.on(func(r *clusterRequest) verdict {
			if r.command == wire.CodeSendMessages && n.Add(1)%7 == 0 {
				return verdict{kind: evict, reason: wire.EvictNoSession}
			}
			return verdict{}
		})
		for i := range 200 {
			sendTo(t, c, uint32(i%2), fmt.Sprint(i))
		}
		for p := range 2 {
			if got := s.payloads(p); len(got) != 100 || len(s.parts[p].seen) != 1 {
				t.Errorf("partition %d: %d messages under %d identities", p, len(got), len(s.parts[p].seen))
			}
		}
	})
}

// TestRouterCancel is E.2/21: callers give up at any moment, and nobody gets an
// answer to another's request.
func TestRouterCancel(t *testing.T) {
	bubble(t, 3, 3, func(t *testing.T, s *fakeCluster) {
		c, w := s.connect(0)
		defer s.close(c, w)
		s.on(func(*clusterRequest) verdict {
			time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
			return verdict{}
		})
		var wg sync.WaitGroup
		var confirmed sync.Map
		for g := range 12 {
			wg.Go(func() {
				for i := range 100 {
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(20_000))*time.Microsecond)
					payload := fmt.Sprintf("%d-%d", g, i)
					conf, err := c.Send(ctx, stream, topic, wire.PartitionID(uint32(g%3)), text(payload))
					cancel()
					switch {
					case err == nil:
						confirmed.Store(payload, conf)
					case !errors.Is(err, ErrOutcomeUnknown) && !errors.Is(err, ErrNotAdmitted) && !errors.Is(err, context.DeadlineExceeded):
						t.Errorf("%s: %v", payload, err)
					}
				}
			})
		}
		wg.Wait()
		s.on(nil)
		sendTo(t, c, 0, "after")
		for p := range 3 {
			for i, payload := range s.payloads(p) {
				if conf, ok := confirmed.LoadAndDelete(payload); ok {
					if conf := conf.(Confirmation); int(conf.Offset) != i || int(conf.Partition) != p {
						t.Errorf("%s at %d of %d was confirmed as %+v", payload, i, p, conf)
					}
				}
			}
		}
		confirmed.Range(func(k, v any) bool {
			t.Errorf("%v was confirmed as %+v and is not there", k, v)
			return true
		})
		if n := w.dialled("write"); n != 3 {
			t.Errorf("%d write links were made", n)
		}
	})
}

// TestRouterReads: polls and offsets go to the primary, for the session, and follow
// it. A poll with auto-commit is not sent twice.
func TestRouterReads(t *testing.T) {
	bubble(t, 3, 2, func(t *testing.T, s *fakeCluster) {
		s.move(0, 1)
		s.move(1, 2)
		c, w := s.connect(0)
		defer s.close(c, w)
		ctx := context.Background()
		sendTo(t, c, 0, "a")
		me := wire.SingleConsumer(wire.Name("me"))
		poll := func(part uint32, commit bool) (int, error) {
			p, err := c.Poll(ctx, PollRequest{Stream: stream, Topic: topic, Partition: part, Consumer: me, AutoCommit: commit})
			if err != nil {
				return 0, err
			}
			return int(p.Count), nil
		}
		for i, to := range []int{1, 2, 0, 0} {
			s.move(0, to)
			if n, err := poll(0, true); err != nil || (n == 1) != (i == 0) {
				t.Fatalf("poll %d: %d messages, %v", i, n, err)
			}
			if err := c.StoreConsumerOffset(ctx, me, stream, topic, 0, 0); err != nil {
				t.Fatal(err)
			}
			if o, err := c.ConsumerOffset(ctx, me, stream, topic, 0); err != nil || o.StoredOffset != 0 {
				t.Fatalf("%+v %v", o, err)
			}
		}
		if err := c.DeleteConsumerOffset(ctx, me, stream, topic, 0); err != nil {
			t.Fatal(err)
		}
		if n := s.nodes[0].count[wire.CodePollMessages]; n != 0 {
			t.Errorf("%d polls went over the session", n)
		}
		if w.dialled("read") != 3 || w.dialled("write") != 1 || s.counted(wire.CodeAttachConsumerSession) < 3 {
			t.Errorf("dials %v", w.dials)
		}
		// A lost reply.
		s.on(func(r *clusterRequest) verdict {
			if r.command == wire.CodePollMessagesOnPrimary {
				return verdict{kind: cutReply}
			}
			return verdict{}
		})
		polls := s.counted(wire.CodePollMessagesOnPrimary)
		if _, err := poll(0, true); !errors.Is(err, ErrAutoCommitLost) {
			t.Errorf("got %v", err)
		}
		if n := s.counted(wire.CodePollMessagesOnPrimary) - polls; n != 1 {
			t.Errorf("%d attempts", n)
		}
		s.on(nil)
		// The session is made anew: links attach to the new one.
		s.cut(0)
		if _, err := poll(1, true); err != nil {
			t.Error(err)
		}
		if _, err := poll(0, false); err != nil {
			t.Error(err)
		}
		if w.moved("coordinator_lost") != 1 {
			t.Errorf("moves %v", w.moves)
		}
	})
}

// TestRouterMissing: what does not exist is an error at once, not at the deadline.
func TestRouterMissing(t *testing.T) {
	bubble(t, 3, 1, func(t *testing.T, s *fakeCluster) {
		c, w := s.connect(0)
		defer s.close(c, w)
		ctx := context.Background()
		sendTo(t, c, 0, "a")
		start := time.Now()
		s.set(s.dropTopic)
		if _, err := c.Send(ctx, stream, topic, wire.PartitionID(0), text("x")); !errors.Is(err, ErrNotFound) {
			t.Errorf("send: %v", err)
		}
		if _, err := c.Poll(ctx, PollRequest{Stream: stream, Topic: topic}); !errors.Is(err, ErrNotFound) && codeOf(err) == 0 {
			t.Errorf("poll: %v", err)
		}
		if d := time.Since(start); d > time.Second {
			t.Errorf("it took %v", d)
		}
		s.set(func() { s.commit++; s.makeTopic(s.commit) })
		sendTo(t, c, 0, "b")
		if got := s.payloads(0); !slices.Equal(got, []string{"b"}) {
			t.Errorf("log %v", got)
		}
	})
}

// TestRouterAddress: a node comes back under another address. Same name: the same
// node, and the same identity.
func TestRouterAddress(t *testing.T) {
	bubble(t, 3, 1, func(t *testing.T, s *fakeCluster) {
		s.move(0, 1)
		c, w := s.connect(0)
		defer s.close(c, w)
		sendTo(t, c, 0, "a")
		s.kill(1)
		s.set(func() { s.nodes[1].address = "10.0.9.9:7"; s.nodes[1].down = false })
		sendTo(t, c, 0, "b")
		if len(s.parts[0].seen) != 1 {
			t.Errorf("%d identities", len(s.parts[0].seen))
		}
	})
}

// TestRouterLogin: another user signs in; links and identities of the old one are
// not used any more.
func TestRouterLogin(t *testing.T) {
	bubble(t, 3, 1, func(t *testing.T, s *fakeCluster) {
		s.move(0, 1)
		c, w := s.connect(0)
		defer s.close(c, w)
		sendTo(t, c, 0, "a")
		if err := c.Login(context.Background(), "iggy", "iggy"); err != nil {
			t.Fatal(err)
		}
		sendTo(t, c, 0, "b")
		if len(s.parts[0].seen) != 2 {
			t.Errorf("%d identities", len(s.parts[0].seen))
		}
		if err := c.Logout(context.Background()); err != nil {
			t.Fatal(err)
		}
		_, err := c.Send(context.Background(), stream, topic, wire.PartitionID(0), text("x"))
		if !errors.Is(err, wire.ErrUnauthenticated) {
			t.Errorf("got %v", err)
		}
	})
}

// TestRouterClose: closing while everything is in the air ends everything.
func TestRouterClose(t *testing.T) {
	bubble(t, 3, 3, func(t *testing.T, s *fakeCluster) {
		s.move(0, -1)
		s.move(1, 1)
		c, w := s.connect(0)
		resume := s.hang(1)
		var wg sync.WaitGroup
		for p := range uint32(2) {
			wg.Go(func() {
				_, err := c.Send(context.Background(), stream, topic, wire.PartitionID(p), text("x"))
				if !errors.Is(err, ErrClosed) {
					t.Errorf("got %v", err)
				}
			})
		}
		synctest.Wait()
		go func() {
			time.Sleep(time.Second)
			resume()
		}()
		s.close(c, w)
		wg.Wait()
	})
}

// TestRouterProducerRecreated: a producer goes on with a topic that was made anew,
// and what was unknown before stays unknown.
func TestRouterProducerRecreated(t *testing.T) {
	bubble(t, 3, 1, func(t *testing.T, s *fakeCluster) {
		s.move(0, 1)
		c, w := s.connect(0)
		defer s.close(c, w)
		ctx := context.Background()
		p := c.Producer(stream, topic, ProducerConfig{})
		for round := range 4 {
			if _, err := p.Send(ctx, text(fmt.Sprint(round))); err != nil {
				t.Fatal(err)
			}
			s.on(func(r *clusterRequest) verdict {
				if r.command == wire.CodeSendMessages {
					return verdict{kind: swallow}
				}
				return verdict{}
			})
			done := make(chan error, 1)
			go func() {
				_, err := p.Send(ctx, text("unknown"))
				done <- err
			}()
			synctest.Wait()
			s.set(func() { s.script = nil; s.commit++; s.makeTopic(s.commit) })
			s.cut(1)
			if err := <-done; !errors.Is(err, ErrOutcomeUnknown) {
				t.Errorf("round %d: %v", round, err)
			}
		}
		if _, err := p.Send(ctx, text("last")); err != nil {
			t.Fatal(err)
		}
		if got := s.payloads(0); !slices.Equal(got, []string{"last"}) {
			t.Errorf("log %v", got)
		}
		if n := len(p.former); n > 2 {
			t.Errorf("%d former partitions are kept", n)
		}
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}

// TestRouterConsumerRecreated: the primary knows that the topic was made anew before
// the session's node does. Nothing is handed out until that knows it too, and then
// from the start.
func TestRouterConsumerRecreated(t *testing.T) {
	bubble(t, 3, 1, func(t *testing.T, s *fakeCluster) {
		s.move(0, 1)
		c, w := s.connect(0)
		defer s.close(c, w)
		for i := range 3 {
			sendTo(t, c, 0, fmt.Sprint("old", i))
		}
		var behind sync.WaitGroup
		defer behind.Wait()
		var got []string
		k := c.Consumer(stream, topic, ConsumerConfig{Name: "me", NoPrefetch: true})
		for m, err := range k.Messages(within(t, time.Minute)) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(m.Payload))
			if len(got) == 3 {
				s.set(func() {
					s.nodes[0].applied = s.commit
					s.commit++
					s.makeTopic(s.commit)
					s.parts[0].log = []string{"new0", "new1", "new2", "new3", "new4"}
				})
				behind.Go(func() {
					time.Sleep(2 * time.Second)
					s.set(func() { s.nodes[0].applied = 0 })
				})
			}
			if len(got) == 8 {
				break
			}
		}
		want := []string{"old0", "old1", "old2", "new0", "new1", "new2", "new3", "new4"}
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// TestRouterReleasedLeader: on a released cluster the session goes to the leader,
// also when another node becomes it. Sends do not care.
func TestRouterReleasedLeader(t *testing.T) {
	bubble(t, 3, 2, func(t *testing.T, s *fakeCluster) {
		s.whippet, s.leader = false, 2
		ctx := context.Background()
		c, w := s.connect(0)
		defer s.close(c, w)
		at := func(node int) {
			t.Helper()
			if now, err := c.Session(ctx); err != nil || now.Address != s.nodes[node].address {
				t.Fatalf("the session is at %+v, %v; want node %d", now, err, node)
			}
		}
		at(2)
		if _, err := c.CreateStream(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		sendTo(t, c, 0, "a")
		s.set(func() { s.leader = 1 })
		sendTo(t, c, 1, "b")
		at(2)
		start := time.Now()
		if _, err := c.CreateStream(ctx, "b"); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d > 3*time.Second {
			t.Errorf("it took %v", d)
		}
		at(1)
		if w.moved("leader_change") != 1 || w.moved("coordinator_lost") != 0 {
			t.Errorf("moves %v", w.moves)
		}
	})
}

// TestRouterElsewhere: a node moves to another address while nobody has a route to
// tell; the roster does.
func TestRouterElsewhere(t *testing.T) {
	bubble(t, 3, 1, func(t *testing.T, s *fakeCluster) {
		s.move(0, 1)
		s.mayPoll = false // no routes: the request itself is offered
		c, w := s.connect(0)
		defer s.close(c, w)
		sendTo(t, c, 0, "a")
		s.kill(1)
		s.set(func() { s.nodes[1].address = "10.0.9.9:7"; s.nodes[1].down = false })
		if d := sendTo(t, c, 0, "b"); d > 3*time.Second {
			t.Errorf("it took %v", d)
		}
	})
}

// TestRouterBehind: the coordinator cannot tell yet who leads a new topic, and
// another node has not even heard of it. That is no reason to give up.
func TestRouterBehind(t *testing.T) {
	bubble(t, 3, 1, func(t *testing.T, s *fakeCluster) {
		c, w := s.connect(0)
		defer s.close(c, w)
		sendTo(t, c, 0, "a")
		s.move(0, 1)
		sendTo(t, c, 0, "b") // links to two nodes
		s.set(func() {
			for _, n := range s.nodes[1:] {
				n.applied = s.commit
			}
			s.parts[0].primary = -1
		})
		if _, err := c.CreateTopic(context.Background(), stream, TopicConfig{Name: "t", Partitions: 1}); err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(2 * time.Second)
			s.set(func() { s.parts[0].primary, s.nodes[1].applied, s.nodes[2].applied = 2, 0, 0 })
		}()
		if d := sendTo(t, c, 0, "c"); d > 3*time.Second {
			t.Errorf("it took %v", d)
		}
	})
}
