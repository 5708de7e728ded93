package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// bubble runs a test with a fake cluster and virtual time.
func bubble(t *testing.T, nodes, partitions int, f func(t *testing.T, s *fakeCluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newCluster(t, nodes, partitions)) })
}

func sendTo(t *testing.T, c *Client, part uint32, payload string) time.Duration {
	t.Helper()
	start := time.Now()
	if _, err := c.Send(context.Background(), stream, topic, wire.PartitionID(part), text(payload)); err != nil {
		t.Fatalf("send %q to partition %d: %v", payload, part, err)
	}
	return time.Since(start)
}

// TestRouterSplitPrimaries is the shape of E.1 on the fake cluster: sends to
// partitions on different nodes leave the session alone, and after the first one
// to each partition cost nothing more.
func TestRouterSplitPrimaries(t *testing.T) {
	bubble(t, 3, 2, func(t *testing.T, s *fakeCluster) {
		s.move(0, 1)
		s.move(1, 0)
		c, w := s.connect(0)
		defer s.close(c, w)
		before, _ := c.Session(context.Background())
		sendTo(t, c, 0, "a0")
		sendTo(t, c, 1, "b0")
		lookups, attaches, conns := w.looked(), s.counted(wire.CodeAttachConsumerSession), s.conns.Load()
		if lookups != 2 || conns != 3 || s.refusals() != 0 {
			t.Errorf("warm-up: %d lookups, %d connections, %d refusals; want 2, 3, 0", lookups, conns, s.refusals())
		}
		for i := range 20 {
			if d := sendTo(t, c, uint32(i%2), fmt.Sprint(i)); d != 0 {
				t.Errorf("send %d took %v", i, d)
			}
		}
		if w.looked() != lookups || s.counted(wire.CodeAttachConsumerSession) != attaches || s.conns.Load() != conns || s.refusals() != 0 {
			t.Errorf("after warm-up: %d lookups, %d attaches, %d connections, %d refusals", w.looked()-lookups,
				s.counted(wire.CodeAttachConsumerSession)-attaches, s.conns.Load()-conns, s.refusals())
		}
		if now, _ := c.Session(context.Background()); now != before {
			t.Errorf("the session was %+v, is %+v", before, now)
		}
		if s.nodes[0].count[wire.CodeSendMessages] != 11 || s.nodes[1].count[wire.CodeSendMessages] != 11 {
			t.Errorf("sends did not go to the primaries")
		}
		if w.paths["warm"] != 20 || w.paths["cold"] != 2 {
			t.Errorf("paths %v", w.paths)
		}
	})
}

// TestRouterMove: the primary moves; the next send is refused once and goes on.
func TestRouterMove(t *testing.T) {
	bubble(t, 3, 1, func(t *testing.T, s *fakeCluster) {
		c, w := s.connect(0)
		defer s.close(c, w)
		for i := range 10 {
			s.move(0, i%3)
			if d := sendTo(t, c, 0, fmt.Sprint(i)); d != 0 {
				t.Errorf("send %d took %v", i, d)
			}
		}
		if n := s.refusals(); n > 9 {
			t.Errorf("%d refusals of 9 moves", n)
		}
		if got := s.payloads(0); len(got) != 10 {
			t.Errorf("log %v", got)
		}
	})
}

// TestRouterStandalone: with one node there is no router.
func TestRouterStandalone(t *testing.T) {
	bubble(t, 1, 1, func(t *testing.T, s *fakeCluster) {
		c, w := s.connect(0)
		defer s.close(c, w)
		sendTo(t, c, 0, "x")
		if _, err := c.Poll(context.Background(), PollRequest{Stream: stream, Topic: topic, Strategy: wire.FromFirst()}); err != nil {
			t.Fatal(err)
		}
		if s.conns.Load() != 1 || w.looked() != 0 || s.counted(wire.CodePollMessagesOnPrimary) != 0 {
			t.Errorf("%d connections, %d lookups", s.conns.Load(), w.looked())
		}
		if c.RouterStats().Routing {
			t.Error("it routes")
		}
	})
}

// TestRouterOff: without routing everything goes over the session, and a node that
// does not lead refuses until the time is over.
func TestRouterOff(t *testing.T) {
	bubble(t, 3, 2, func(t *testing.T, s *fakeCluster) {
		c, w := s.connect(0, WithRouting(false), WithRequestTimeout(4*time.Second))
		defer s.close(c, w)
		sendTo(t, c, 0, "led here")
		start := time.Now()
		_, err := c.Send(context.Background(), stream, topic, wire.PartitionID(1), text("x"))
		if !errors.Is(err, ErrNotAdmitted) || time.Since(start) < 4*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		if s.conns.Load() != 1 {
			t.Errorf("%d connections", s.conns.Load())
		}
	})
}

// TestRouterDead: the primary's node dies with writes in flight and another leads
// after an election. Nothing is lost or doubled, and what was unknown is found out
// under its own identity.
func TestRouterDead(t *testing.T) {
	for _, executed := range []bool{false, true} {
		t.Run(fmt.Sprintf("executed=%v", executed), func(t *testing.T) {
			bubble(t, 3, 2, func(t *testing.T, s *fakeCluster) {
				s.move(0, 1)
				s.move(1, 1)
				c, w := s.connect(0)
				defer s.close(c, w)
				sendTo(t, c, 0, "a")
				sendTo(t, c, 1, "b")
				verdictOf := verdict{kind: ignore}
				if executed {
					verdictOf.kind = swallow
				}
				s.on(func(r *clusterRequest) verdict {
					if r.command == wire.CodeSendMessages && r.node == 1 {
						return verdictOf
					}
					return verdict{}
				})
				done := make(chan error, 2)
				for p := range uint32(2) {
					go func() {
						_, err := c.Send(context.Background(), stream, topic, wire.PartitionID(p), text("in flight"))
						done <- err
					}()
				}
				synctest.Wait()
				s.set(func() { s.parts[0].primary, s.parts[1].primary = -1, -1 })
				s.kill(1)
				time.Sleep(time.Second) // the election
				s.move(0, 0)
				s.move(1, 2)
				start := time.Now()
				for range 2 {
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
				if d := time.Since(start); d > 1200*time.Millisecond {
					t.Errorf("writable again after %v", d)
				}
				for p := range 2 {
					if got := s.payloads(p); len(got) != 2 || got[1] != "in flight" {
						t.Errorf("partition %d: %v", p, got)
					}
					if ids := s.parts[p].by["in flight"]; executed && (len(ids) != 2 || ids[0] != ids[1]) {
						t.Errorf("identities %v", ids)
					}
				}
				if w.dialled("recovery") == 0 {
					t.Error("nothing was recovered")
				}
				if w.ambig != 0 {
					t.Errorf("%d lanes are still in doubt", w.ambig)
				}
				sendTo(t, c, 0, "after")
				if n := c.RouterStats().Recoveries; n != 0 {
					synctest.Wait()
					if n = c.RouterStats().Recoveries; n != 0 {
						t.Errorf("%d recoveries are left", n)
					}
				}
			})
		})
	}
}

// TestRouterHung: the primary's node stops without a word, as with SIGSTOP, and
// another is elected. Other partitions do not notice.
func TestRouterHung(t *testing.T) {
	bubble(t, 3, 2, func(t *testing.T, s *fakeCluster) {
		s.move(0, 1)
		s.move(1, 2)
		c, w := s.connect(0)
		defer s.close(c, w)
		sendTo(t, c, 0, "a")
		sendTo(t, c, 1, "b")
		resume := s.hang(1)
		defer resume()
		done := make(chan time.Duration, 1)
		go func() { done <- sendTo(t, c, 0, "in flight") }()
		go func() {
			time.Sleep(1500 * time.Millisecond)
			s.move(0, 2)
		}()
		for i := range 100 {
			if d := sendTo(t, c, 1, fmt.Sprint(i)); d != 0 {
				t.Errorf("a send to another partition took %v", d)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if d := <-done; d > 3*time.Second {
			t.Errorf("the send took %v", d)
		}
		resume()
		if got := s.payloads(0); !slices.Equal(got, []string{"a", "in flight"}) {
			t.Errorf("log %v", got)
		}
	})
}

// TestRouterCoordinatorDies is E.2/15.
func TestRouterCoordinatorDies(t *testing.T) {
	bubble(t, 3, 2, func(t *testing.T, s *fakeCluster) {
		s.move(0, 1)
		s.move(1, 2)
		c, w := s.connect(0)
		defer s.close(c, w)
		sendTo(t, c, 0, "a")
		sendTo(t, c, 1, "b")
		before, _ := c.Session(context.Background())
		s.kill(0)
		for i := range 100 {
			if d := sendTo(t, c, uint32(i%2), fmt.Sprint(i)); d > 10*time.Millisecond {
				t.Errorf("send %d took %v", i, d)
			}
			time.Sleep(10 * time.Millisecond)
		}
		after, err := c.Session(context.Background())
		if err != nil || after.Address == before.Address || after.ClientID != before.ClientID {
			t.Errorf("session %+v, %v", after, err)
		}
		if w.moved("coordinator_lost") != 1 || w.dialled("write") != 2 {
			t.Errorf("moves %v, dials %v", w.moves, w.dials)
		}
	})
}

// TestRouterProbing is E.2/16: nobody tells the user who leads.
func TestRouterProbing(t *testing.T) {
	bubble(t, 3, 3, func(t *testing.T, s *fakeCluster) {
		s.mayPoll = false
		c, w := s.connect(0)
		defer s.close(c, w)
		for i := range 30 {
			sendTo(t, c, uint32(i%3), fmt.Sprint(i))
		}
		if n := s.refusals(); n > 6 {
			t.Errorf("%d refusals", n)
		}
		s.move(0, 2)
		sendTo(t, c, 0, "moved")
		for p := range 3 {
			if got := s.payloads(p); len(got) < 10 {
				t.Errorf("partition %d: %v", p, got)
			}
		}
	})
}

// TestRouterLag is E.2/17: a node does not know the topic yet that this client has
// just made.
func TestRouterLag(t *testing.T) {
	bubble(t, 3, 1, func(t *testing.T, s *fakeCluster) {
		s.created = 0
		s.move(0, 1)
		c, w := s.connect(0)
		defer s.close(c, w)
		s.set(func() { s.nodes[1].applied = s.commit })
		if _, err := c.CreateTopic(context.Background(), stream, TopicConfig{Name: "t", Partitions: 1}); err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(300 * time.Millisecond)
			s.set(func() { s.nodes[1].applied = 0 })
		}()
		if d := sendTo(t, c, 0, "x"); d < 300*time.Millisecond || d > 500*time.Millisecond {
			t.Errorf("it took %v", d)
		}
		if n := s.nodes[1].count[wire.CodeSendMessages]; n != 1 {
			t.Errorf("%d attempts on the node that was behind", n)
		}
	})
}

// TestRouterRecreated is E.2/20: a write of unknown outcome is not written into a
// topic that has taken the place of its own.
func TestRouterRecreated(t *testing.T) {
	bubble(t, 3, 1, func(t *testing.T, s *fakeCluster) {
		s.move(0, 1)
		c, w := s.connect(0)
		defer s.close(c, w)
		sendTo(t, c, 0, "a")
		s.on(func(r *clusterRequest) verdict {
			if r.command == wire.CodeSendMessages {
				return verdict{kind: ignore}
			}
			return verdict{}
		})
		done := make(chan error, 1)
		go func() {
			_, err := c.Send(context.Background(), stream, topic, wire.PartitionID(0), text("old"))
			done <- err
		}()
		synctest.Wait()
		s.set(func() { s.script = nil; s.commit++; s.makeTopic(s.commit) })
		s.cut(1)
		if err := <-done; !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("got %v", err)
		}
		sendTo(t, c, 0, "new")
		if got := s.payloads(0); !slices.Equal(got, []string{"new"}) {
			t.Errorf("log %v", got)
		}
	})
}

// TestRouterBounds is E.2/18: the bounds make things slower and nothing fails.
func TestRouterBounds(t *testing.T) {
	bubble(t, 3, 32, func(t *testing.T, s *fakeCluster) {
		c, w := s.connect(0, With(func(o *Options) { o.MaxLinks, o.MaxRoutes = 2, 4 }))
		defer s.close(c, w)
		done := make(chan error, 32)
		for p := range uint32(32) {
			go func() {
				for i := range 20 {
					if _, err := c.Send(context.Background(), stream, topic, wire.PartitionID(p), text(fmt.Sprint(i))); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
		}
		for range 32 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		for p := range 32 {
			if got := s.payloads(p); len(got) != 20 {
				t.Errorf("partition %d: %v", p, got)
			}
		}
		if st := c.RouterStats(); st.Links > 2 || st.Routes > 4 {
			t.Errorf("%+v", st)
		}
	})
}

// TestRouterIdle: a link that nobody uses is closed and made again when needed,
// under the same identity.
func TestRouterIdle(t *testing.T) {
	bubble(t, 3, 1, func(t *testing.T, s *fakeCluster) {
		c, w := s.connect(1)
		defer s.close(c, w)
		sendTo(t, c, 0, "a")
		time.Sleep(7 * time.Minute)
		if n := c.RouterStats().Links; n != 0 {
			t.Errorf("%d links after seven minutes", n)
		}
		sendTo(t, c, 0, "b")
		if len(s.parts[0].seen) != 1 {
			t.Errorf("%d identities", len(s.parts[0].seen))
		}
	})
}

// TestRouterTickets: data links sign in with a ticket, or with the password where
// there is none or it is not good.
func TestRouterTickets(t *testing.T) {
	for _, tt := range []struct {
		name    string
		change  func(s *fakeCluster)
		tickets int
		pw      int
	}{
		{"tickets", func(*fakeCluster) {}, 3, 1},
		{"no tickets", func(s *fakeCluster) { s.tickets = false }, 0, 4},
		{"refused", func(s *fakeCluster) {
			s.script = func(r *clusterRequest) verdict {
				var pw wire.LoginRegister
				if r.Operation == wire.OpRegister && (pw.Decode(r.body) != nil || pw.Username != "iggy") {
					return verdict{kind: evict, reason: wire.EvictInvalidToken}
				}
				return verdict{}
			}
		}, 0, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, 3, 3, func(t *testing.T, s *fakeCluster) {
				tt.change(s)
				c, w := s.connect(0)
				defer s.close(c, w)
				if err := c.Warm(context.Background(), stream, topic); err != nil {
					t.Fatal(err)
				}
				if s.logins["ticket"] != tt.tickets || s.logins["password"] != tt.pw {
					t.Errorf("logins %v", s.logins)
				}
				looked := w.looked()
				for p := range uint32(3) {
					if d := sendTo(t, c, p, "x"); d != 0 {
						t.Errorf("it took %v", d)
					}
				}
				if w.looked() != looked || w.dialled("write") != 3 {
					t.Errorf("not everything was warm: %v %v", w.lookups, w.dials)
				}
			})
		})
	}
}
