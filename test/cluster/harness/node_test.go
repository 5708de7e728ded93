package harness

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/wire"
)

// topicOf makes a topic for a test.
func topicOf(t *testing.T, c *Cluster, partitions uint32) (stream, topic wire.Identifier) {
	t.Helper()
	if err := c.Topic(testContext(t), "s", "t", partitions); err != nil {
		t.Fatal(err)
	}
	return wire.Name("s"), wire.Name("t")
}

func TestLoadOnOneNode(t *testing.T) {
	c := New(t, Options{Proxies: true})
	stream, topic := topicOf(t, c, 2)
	checker := NewChecker()
	a, _ := c.Client(t, 0)
	b, w := c.Client(t, 0)
	inLine := Load{Stream: stream, Topic: topic, Partitions: []uint32{0, 1}, Batch: 10}.Start(checker, a)
	pipelined := Load{Stream: stream, Topic: topic, Partitions: []uint32{0, 1}, Batch: 10, Pipelined: true}.Start(checker, b)
	inLine.MustFlow(t, Patience, 500)
	pipelined.MustFlow(t, Patience, 500)
	inLine.MustStop(t)
	pipelined.MustStop(t)
	checker.MustVerify(t, c, stream, topic)
	if s := checker.Summarise(nil); s.Acknowledged != s.Sends || s.Pending != 0 {
		t.Errorf("%s\n%s", s, checker.Failures(5))
	}
	if n := Total(w.Seen().Moves); n != 0 {
		t.Errorf("%d session moves", n)
	}
	if n := c.Counts().Requests[wire.CodeSendMessages]; n == 0 {
		t.Error("the proxy saw no send")
	}
}

// TestKillUnderLoad kills and restarts the node while two producers send; the proxy stays, so they find it again.
func TestKillUnderLoad(t *testing.T) {
	c := New(t, Options{Proxies: true})
	stream, topic := topicOf(t, c, 1)
	checker := NewChecker()
	a, _ := c.Client(t, 0)
	b, _ := c.Client(t, 0)
	n := c.Node(0)
	inLine := Load{Stream: stream, Topic: topic, Partitions: []uint32{0}, Batch: 5}.Start(checker, a)
	pipelined := Load{Stream: stream, Topic: topic, Partitions: []uint32{0}, Pipelined: true}.Start(checker, b)
	for range Scale(2, 10) {
		inLine.MustFlow(t, Patience, 50)
		pipelined.MustFlow(t, Patience, 50)
		if err := n.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
	}
	inLine.MustFlow(t, Patience, 50)
	inLine.MustStop(t)
	pipelined.MustStop(t)
	checker.MustVerify(t, c, stream, topic)
}

// TestLostReplyIsReplayed swallows the reply to a send and cuts the connection: the client replays it under its own
// identity and there is one copy.
func TestLostReplyIsReplayed(t *testing.T) {
	c := New(t, Options{Proxies: true})
	stream, topic := topicOf(t, c, 1)
	cl, _ := c.Client(t, 0)
	checker := NewChecker()
	p := c.Node(0).Proxy()
	rule := p.Rule(Rule{Name: "reply to a send", Times: 1, Do: Cut(0), Match: func(f *Frame) bool {
		return f.Dir == ToClient && f.Code == wire.CodeSendMessages
	}})
	producer := checker.Producer()
	for range 3 {
		s := checker.Begin(producer, 0, 1, 50)
		conf, err := cl.Send(testContext(t), stream, topic, wire.PartitionID(0), s.ClientMessages()...)
		s.Confirm(conf, err)
		if err != nil {
			t.Fatal(err)
		}
	}
	if rule.Hits() != 1 {
		t.Fatalf("%d replies were cut", rule.Hits())
	}
	checker.MustVerify(t, c, stream, topic)
}

func TestVerifyFailsOnLoss(t *testing.T) {
	c := New(t, Options{})
	stream, topic := topicOf(t, c, 1)
	checker := NewChecker()
	checker.Begin(checker.Producer(), 0, 1, 50).End(Acknowledged, false, 0, nil) // nobody sent it
	err := checker.Verify(testContext(t), c, stream, topic)
	if err == nil || !strings.Contains(err.Error(), "lost: message 0") {
		t.Fatalf("got %v", err)
	}
}

func TestPausedNode(t *testing.T) {
	c := New(t, Options{})
	stream, topic := topicOf(t, c, 1)
	n := c.Node(0)
	if err := n.Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := ReadLog(ctx, n, stream, topic, 0, 0); err == nil {
		t.Error("a paused node answered")
	}
	if err := n.Resume(); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadLog(testContext(t), n, stream, topic, 0, 0); err != nil {
		t.Errorf("a resumed node does not answer: %v", err)
	}
}

func TestBackupAndWipe(t *testing.T) {
	c := New(t, Options{})
	stream, topic := topicOf(t, c, 1)
	n := c.Node(0)
	sendOne := func(text string) {
		t.Helper()
		cl, err := c.ConnectTo(testContext(t), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		if _, err := cl.Send(testContext(t), stream, topic, wire.PartitionID(0), client.Message{Payload: []byte(text)}); err != nil {
			t.Fatal(err)
		}
	}
	restart := func(between func() error) {
		t.Helper()
		if err := n.Stop(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if err := between(); err != nil {
			t.Fatal(err)
		}
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
		if err := n.WaitReady(testContext(t), Patience); err != nil {
			t.Fatal(err)
		}
	}
	sendOne("in the copy")
	restart(func() error { return n.Backup("old") })
	sendOne("not in the copy")
	restart(func() error { return n.Restore("old") })
	log, err := ReadLog(testContext(t), n, stream, topic, 0, 1)
	if err != nil || len(log) != 1 || string(log[0].Payload) != "in the copy" {
		t.Fatalf("the restored node has %d messages: %v", len(log), err)
	}
	restart(n.Wipe)
	if err := n.Call(testContext(t), &wire.GetTopic{Stream: stream, Topic: topic}, &wire.TopicDetails{}); err == nil {
		t.Fatal("a wiped node knows the topic")
	}
}

func TestNodeThatEndsByItselfIsAFault(t *testing.T) {
	c, err := Start(testContext(t), Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	n := c.Node(0)
	n.mu.Lock()
	process := n.process
	n.mu.Unlock()
	if err := process.cmd.Process.Kill(); err != nil { // not through the harness
		t.Fatal(err)
	}
	Await(t, Patience, "the end of the process", process.ended)
	err = c.Close(testContext(t))
	if err == nil || !strings.Contains(err.Error(), "nobody told it to") {
		t.Fatalf("got %v", err)
	}
}

func TestRefusalOfAWrongConfiguration(t *testing.T) {
	c, err := Prepare(Options{Dir: t.TempDir(), Set: map[string]string{"tcp.enabled": `"perhaps"`}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.Node(0).Refusal(testContext(t), Patience)
	if err != nil || !strings.Contains(text, "tcp.enabled") {
		t.Fatalf("%v: %s", err, text)
	}
	if err := c.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

func TestRawSeesRefusals(t *testing.T) {
	c := New(t, Options{})
	r, err := DialRaw(testContext(t), c.Node(0).Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Call(testContext(t), &wire.GetStreams{}, nil); !errors.Is(err, wire.ErrUnauthenticated) {
		t.Fatalf("got %v", err)
	}
	if err := r.Login(testContext(t), Username, "wrong"); err == nil {
		t.Fatal("a wrong password was taken")
	}
}
