package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/test/cluster/harness"
	"github.com/whippetmq/whippet/wire"
)

// writes keeps under which identities sends to partition 0 passed the proxies, and where.
type writes struct {
	mu   sync.Mutex
	list []write
}

type write struct {
	node    int
	client  wire.U128
	request uint64
}

func (w write) String() string {
	return fmt.Sprintf("%s: client %s request %d", harness.NodeName(w.node), w.client, w.request)
}

// watchWrites observes all proxies until the test ends.
func watchWrites(t *testing.T, c *harness.Cluster) *writes {
	t.Helper()
	w := &writes{}
	for _, n := range c.Nodes() {
		rule := n.Proxy().Observe(func(f *harness.Frame) {
			if f.Dir == harness.ToServer && f.Code == wire.CodeSendMessages {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.list = append(w.list, write{n.Index, f.Client, f.Request})
			}
		})
		t.Cleanup(rule.Remove)
	}
	return w
}

// seen so far, from a position on.
func (w *writes) seen(from int) []write {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.list[from:])
}

func isSend(f *harness.Frame) bool {
	return f.Dir == harness.ToServer && f.Code == wire.CodeSendMessages
}

func isSendReply(f *harness.Frame) bool {
	return f.Dir == harness.ToClient && f.Code == wire.CodeSendMessages
}

// TestLinkIsCut is E.2/4 over TCP: the data link to the primary is cut in front of, within and behind the request, and in
// front of, within and behind the reply, at every byte in the long version. Every send is acknowledged, and there is one
// copy of it.
func TestLinkIsCut(t *testing.T) {
	c := three(t)
	stream, tp := topic(t, c, 1)
	c.MustPlace(t, stream, tp, 0)
	cl, w := c.Client(t, 1)
	before := session(t, cl)
	checker := harness.NewChecker()
	producer := checker.Producer()
	p := c.Node(0).Proxy()
	var request, reply int
	measure := p.Observe(func(f *harness.Frame) {
		if isSend(f) {
			request = f.Size
		}
		if isSendReply(f) {
			reply = f.Size
		}
	})
	sendOne(t, checker, producer, cl, stream, tp, 0)
	measure.Remove()
	if request == 0 || reply == 0 {
		t.Fatal("the send did not go to the primary's node: nothing to cut")
	}
	for _, side := range []struct {
		name  string
		match func(*harness.Frame) bool
		size  int
		short []int
	}{
		{"request", isSend, request, []int{0, 1, 48, 60, 128, 255, 256, 257, 300, 400, request - 1, request}},
		{"reply", isSendReply, reply, []int{0, 1, 128, 216, 255, 256, 257, reply - 1, reply}},
	} {
		at := side.short
		if harness.Slow() {
			at = at[:0]
			for i := range side.size + 1 {
				at = append(at, i)
			}
		}
		for i, n := range at {
			do := harness.Cut(n)
			if i%2 == 1 {
				do = harness.CutReset(n)
			}
			rule := p.Rule(harness.Rule{Name: fmt.Sprintf("cut the %s after %d bytes", side.name, n), Match: side.match, Times: 1, Do: do})
			s := checker.Begin(producer, 0, 1, 100)
			conf, err := cl.Send(patient(t), stream, tp, wire.PartitionID(0), s.ClientMessages()...)
			s.Confirm(conf, err)
			if err != nil {
				t.Errorf("%s cut after %d bytes: %v", side.name, n, err)
			}
			if rule.Hits() != 1 {
				t.Errorf("%s cut after %d bytes: the rule acted %d times", side.name, n, rule.Hits())
			}
			rule.Remove()
		}
	}
	stays(t, cl, w, before)
	checker.MustVerify(t, c, stream, tp)
}

// ambiguous starts a send to partition 0, led by node 0, whose reply is swallowed, and gives control once the node has
// answered: from then on nobody but the node knows whether it was applied.
func ambiguous(t *testing.T, c *harness.Cluster, checker *harness.Checker, cl *client.Client, stream, tp wire.Identifier) (outcome <-chan harness.Record) {
	t.Helper()
	rule := c.Node(0).Proxy().Rule(harness.Rule{Name: "reply to a send", Match: isSendReply, Times: 1, Do: harness.Swallow()})
	t.Cleanup(rule.Remove)
	done := make(chan harness.Record, 1)
	s := checker.Begin(checker.Producer(), 0, 1, 100)
	ctx, cancel := context.WithTimeout(context.Background(), client.DefaultRequestTimeout)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer cancel()
		conf, err := cl.Send(ctx, stream, tp, wire.PartitionID(0), s.ClientMessages()...)
		done <- s.Confirm(conf, err)
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	must(t, rule.Wait(patient(t), 1))
	return done
}

// TestReplyIsLostAndThePrimaryMoves is E.2/5: the write is replayed on the new primary under its own identity, and
// absorbed there.
func TestReplyIsLostAndThePrimaryMoves(t *testing.T) {
	for _, cut := range []bool{true, false} {
		name := map[bool]string{true: "the link is cut", false: "the link stays silent"}[cut]
		t.Run(name, func(t *testing.T) {
			c := three(t)
			stream, tp := topic(t, c, 1)
			c.MustPlace(t, stream, tp, 0)
			cl, w := c.Client(t, 1)
			checker := harness.NewChecker()
			sendOne(t, checker, checker.Producer(), cl, stream, tp, 0)
			before := session(t, cl)
			seen := watchWrites(t, c)
			outcome := ambiguous(t, c, checker, cl, stream, tp)
			c.MustPlace(t, stream, tp, 2)
			if cut {
				c.Node(0).Proxy().CutAll()
			}
			r := harness.Await(t, client.DefaultRequestTimeout+time.Second, "the outcome of the send", outcome)
			if r.Outcome != harness.Acknowledged {
				t.Errorf("the send ended %s: %v", r.Outcome, r.Err)
			}
			oneIdentity(t, seen.seen(0), 2)
			stays(t, cl, w, before)
			checker.MustVerify(t, c, stream, tp)
		})
	}
}

// oneIdentity fails the test unless all writes had the same identity and one of them went to a node.
func oneIdentity(t *testing.T, list []write, reached int) {
	t.Helper()
	there := false
	for _, w := range list {
		if w.client != list[0].client || w.request != list[0].request {
			t.Errorf("an ambiguous write was written again under another identity:\n%s\nfirst:\n%s", w, list[0])
		}
		there = there || w.node == reached
	}
	if !there {
		t.Errorf("no replay reached %s: %v", harness.NodeName(reached), list)
	}
}

// TestAmbiguousThenRefused is E.2/6: after the reply was lost, the old primary, now a follower, answers "not accepted" to
// the replay. That says nothing about the write itself.
func TestAmbiguousThenRefused(t *testing.T) {
	c := three(t)
	stream, tp := topic(t, c, 1)
	c.MustPlace(t, stream, tp, 0)
	cl, w := c.Client(t, 1)
	checker := harness.NewChecker()
	sendOne(t, checker, checker.Producer(), cl, stream, tp, 0)
	before := session(t, cl)
	seen := watchWrites(t, c)
	outcome := ambiguous(t, c, checker, cl, stream, tp)
	// The client believes for a while that node 0 leads: whoever it asks for the primary does not answer yet.
	lookup := func(f *harness.Frame) bool { return f.Dir == harness.ToClient && f.Code == wire.CodeGetPollRouting }
	var held []*harness.ActiveRule
	for _, n := range c.Nodes() {
		held = append(held, n.Proxy().Rule(harness.Rule{Name: "answers to lookups", Match: lookup, Do: harness.Swallow()}))
	}
	refusal := c.Node(0).Proxy().Rule(harness.Rule{Name: "refusal by the old primary", Match: func(f *harness.Frame) bool {
		return isSendReply(f) && f.Status == wire.ErrTransientNotAccepted
	}})
	c.MustPlace(t, stream, tp, 2)
	c.Node(0).Proxy().CutAll()
	refused := refusal.Wait(bounded(t, 10*time.Second), 1)
	for _, r := range held {
		r.Remove()
	}
	r := harness.Await(t, client.DefaultRequestTimeout+time.Second, "the outcome of the send", outcome)
	if r.Outcome != harness.Acknowledged {
		t.Errorf("the send ended %s: %v", r.Outcome, r.Err)
	}
	if refused != nil {
		t.Errorf("the client did not ask the old primary again, so it was not refused: %v", refused)
	}
	oneIdentity(t, seen.seen(0), 2)
	stays(t, cl, w, before)
	checker.MustVerify(t, c, stream, tp)
}

// TestTopicIsRecreated is E.2/20: a topic is deleted and made anew under its name while a write is ambiguous. That write
// ends unknown and is never written into the new topic.
func TestTopicIsRecreated(t *testing.T) {
	c := three(t)
	stream, tp := topic(t, c, 1)
	c.MustPlace(t, stream, tp, 0)
	cl, _ := c.Client(t, 1)
	checker := harness.NewChecker()
	sendOne(t, checker, checker.Producer(), cl, stream, tp, 0)
	outcome := ambiguous(t, c, checker, cl, stream, tp)
	must(t, c.Node(0).Call(patient(t), &wire.DeleteTopic{Stream: stream, Topic: tp}, nil))
	topic(t, c, 1)
	settle(t, c, stream, tp, 1)
	c.Node(0).Proxy().CutAll()
	r := harness.Await(t, client.DefaultRequestTimeout+time.Second, "the outcome of the send", outcome)
	if r.Outcome != harness.Unknown {
		t.Errorf("the send ended %s: %v, want unknown", r.Outcome, r.Err)
	}
	for _, n := range c.Nodes() {
		log, err := harness.ReadLog(patient(t), n, stream, tp, 0, 0)
		must(t, err)
		if len(log) != 0 {
			t.Errorf("the new topic on %s holds %d messages", n.Name, len(log))
		}
	}
	if _, err := cl.Send(patient(t), stream, tp, wire.PartitionID(0), client.Message{Payload: []byte("to the new one")}); err != nil {
		t.Errorf("the next send to the new topic: %v", err)
	}
}
