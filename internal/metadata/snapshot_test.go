package metadata

import (
	"bytes"
	"errors"
	"testing"

	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/wire"
)

// story runs a bit of everything.
func story(t testing.TB) *rig {
	r, c := newRig(t, Config{Nodes: []uint8{0, 1, 2}})
	check(t, r.do(&Command{Operation: OpNodeStarted, Body: (&NodeStart{Replica: 1, Directory: wire.U128{Lo: 4, Hi: 5}, Counter: 3}).Append(nil)}), "")
	for _, name := range []string{"a", "b", "c"} {
		c.must(&wire.CreateStream{Name: name})
		for _, topic := range []string{"x", "y"} {
			c.must(&wire.CreateTopic{Stream: wire.Name(name), Name: topic, PartitionsCount: 5, Options: opt("segment_size", 1<<20, "durability", "persisted")})
		}
	}
	c.must(&wire.DeleteStream{Stream: wire.Name("b")})
	c.must(&wire.DeleteTopic{Stream: wire.Name("c"), Topic: wire.Name("x")})
	c.must(&wire.DeletePartitions{Stream: wire.Name("a"), Topic: wire.Name("x"), PartitionsCount: 2})
	c.must(&wire.CreatePartitions{Stream: wire.Name("a"), Topic: wire.Name("x"), PartitionsCount: 4})
	c.must(&wire.UpdateTopic{Stream: wire.ID(0), Topic: wire.ID(1), Name: "z", Options: opt("message_expiry", "1 h", "max_topic_size", "5 MiB")})
	at := target(wire.ID(0), wire.ID(0))
	check(t, c.later(wire.OpCreateConsumerGroup, &createGroup{at, "g"}), "")
	check(t, c.later(wire.OpCreateConsumerGroup, &createGroup{at, "h"}), "")
	check(t, c.later(wire.OpDeleteConsumerGroup, &deleteGroup{at, wire.Name("g")}), "")
	check(t, c.later(wire.OpPurgeTopic, &purgeTopic{at}), "")
	check(t, c.later(wire.OpTruncatePartition, &truncatePartition{at, 2, 99}), "")
	check(t, c.later(wire.OpCreateUser, &createUser{name: "bob", hash: rootHash, active: true, permissions: &permissions{global: globalSend,
		streams: []streamPermissions{{id: 1, flags: streamRead, topics: []topicPermissions{{id: 2, flags: topicSend}}}, {id: 4}}}}), "")
	check(t, c.later(wire.OpCreateUser, &createUser{name: "eve", hash: rootHash}), "")
	check(t, c.later(wire.OpDeleteUser, &deleteUser{wire.Name("eve")}), "")
	bob := r.login(2, 1)
	check(t, bob.later(wire.OpCreatePersonalAccessToken, &createToken{name: "tok", hash: "abc", expiry: 5000}), "")
	check(t, bob.do(&wire.CreateStream{Name: "q"}), "committed 41")
	r.login(3, 1)
	check(t, r.do(&Command{Operation: wire.OpLogout, Client: wire.U128{Lo: 3}, Session: r.index, Request: 1}), "")
	// Members come with a later stage; the format has them already.
	next := *r.m.current
	s := *next.streams.get(0)
	tp := *s.topics.get(0)
	g := *tp.groups[0]
	g.Generation = 4
	g.Members = []*Member{nil, {Client: wire.U128{Lo: 2}, Partitions: []uint32{0, 3}, Revocations: []Revocation{{3, 2, 77}}}, {Client: wire.U128{Lo: 1}}}
	tp.groups = []*Group{&g}
	tp.groupNames = tp.groupNames.set(g.Name, &g)
	s.topics = s.topics.set(0, &tp)
	s.topicNames = s.topicNames.set(tp.Name, &tp)
	next.streams = next.streams.set(0, &s)
	next.streamNames = next.streamNames.set(s.Name, &s)
	r.m.publish(&next)
	return r
}

func TestCheckpointRoundTrip(t *testing.T) {
	r := story(t)
	want := r.m.Checkpoint(nil)
	if again := r.m.Checkpoint([]byte("prefix")); string(again) != "prefix"+string(want) {
		t.Error("a second checkpoint of the same state differs")
	}
	other := New(r.m.cfg)
	if err := other.Restore(nil, want, r.index); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(other.Checkpoint(nil), want) {
		t.Fatal("the checkpoint of a restored state differs")
	}
	a, b := r.m.Catalog(), other.Catalog()
	if a.Index() != b.Index() || a.StreamCount() != b.StreamCount() || a.TopicCount() != b.TopicCount() || a.PartitionCount() != b.PartitionCount() ||
		a.GroupCount() != b.GroupCount() || a.UserCount() != b.UserCount() || r.m.preferred != other.preferred || other.Applied() != r.index ||
		*a.TicketKey() != *b.TicketKey() || b.TokenByHash("abc") == nil || !b.Bootstrapped() || len(b.Nodes()) != 1 {
		t.Error("what is computed differs")
	}
	if got, _ := b.Topic(wire.Name("a"), wire.Name("z")); got == nil || got.Topic(wire.Name("z")).Config != a.StreamByID(0).Topic(wire.Name("z")).Config {
		t.Error("the options of a topic differ")
	}
	// Back to nothing, with readers told of it.
	told := 0
	other.Subscribe(func(*Catalog) { told++ })
	if err := other.Restore(nil, nil, 0); err != nil || other.Catalog().StreamCount() != 0 || other.SessionCount() != 0 || other.Catalog().Bootstrapped() || told != 1 {
		t.Errorf("restored to nothing: %v", err)
	}
	if !bytes.Equal(other.Checkpoint(nil), New(Config{}).Checkpoint(nil)) {
		t.Error("an empty state is not empty")
	}
}

func TestRestoreRefuses(t *testing.T) {
	r := story(t)
	good := r.m.Checkpoint(nil)
	for name, b := range map[string][]byte{
		"empty":           {},
		"magic":           append([]byte("X"), good[1:]...),
		"version":         append(append([]byte(snapshotMagic), 2, 0), good[8:]...),
		"cut":             good[:len(good)-1],
		"cut early":       good[:100],
		"bytes too many":  append(bytes.Clone(good), 0),
		"index in future": append(append(bytes.Clone(good[:16]), 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF), good[24:]...),
	} {
		t.Run(name, func(t *testing.T) {
			var corrupt *CorruptError
			if err := r.m.Restore(nil, b, r.index); !errors.As(err, &corrupt) || corrupt.Error() == "" {
				t.Fatalf("Restore = %v", err)
			}
			if !bytes.Equal(r.m.Checkpoint(nil), good) {
				t.Fatal("the state changed")
			}
		})
	}
	for i := range good {
		if err := r.m.Restore(nil, good[:i], r.index); err == nil {
			t.Fatalf("a checkpoint cut at %d was accepted", i)
		}
	}
}

// TestCorruptEntries: an entry that is none is a typed error and changes nothing.
func TestCorruptEntries(t *testing.T) {
	r, c := newRig(t, Config{})
	c.must(&wire.CreateStream{Name: "a"})
	good := r.log[len(r.log)-1].Data
	changed := func(change func(*header)) []byte {
		h := header{op: wire.OpCreateStream, client: c.id, session: c.session, request: 99}
		change(&h)
		return appendEntry(&h, &createStream{name: "x"}, 0)
	}
	want := r.m.Checkpoint(nil)
	for name, e := range map[string]segment.Entry{
		"no control entry":  {Index: 90, Data: make([]byte, 300)},
		"another kind":      {Index: 90, Data: segment.AppendControl(nil, segment.KindTrim, good[8:])},
		"a term's entry":    {Index: 90},
		"cut header":        {Index: 90, Data: good[:40]},
		"cut body":          {Index: 90, Data: good[:len(good)-1]},
		"bytes too many":    {Index: 90, Data: append(bytes.Clone(good), 0)},
		"older index":       {Index: r.index, Data: good},
		"another format":    {Index: 90, Data: append(append(bytes.Clone(good[:8]), 2), good[9:]...)},
		"unknown operation": {Index: 90, Data: changed(func(h *header) { h.op = 250 })},
		"client's form":     {Index: 90, Data: changed(func(h *header) { h.op = wire.OpCreateTopic })},
		"no client":         {Index: 90, Data: changed(func(h *header) { h.client = wire.U128{} })},
		"no session":        {Index: 90, Data: changed(func(h *header) { h.session = 0 })},
		"no request":        {Index: 90, Data: changed(func(h *header) { h.request = 0 })},
		"server with client": {Index: 90, Data: func() []byte {
			h := header2(OpBootstrap, c.id)
			return appendEntry(&h, &Bootstrap{Username: "x"}, 0)
		}()},
		"topic without candidates": {Index: 90, Data: func() []byte {
			h := header2(wire.OpCreateTopicWithAssignments, c.id)
			return appendEntry(&h, &createTopic{name: "x", partitions: 1}, 0)
		}()},
		"too many partitions": {Index: 90, Data: func() []byte {
			h := header2(wire.OpCreatePartitionsWithAssignments, c.id)
			return appendEntry(&h, &createPartitions{count: 1001, candidates: []uint8{0}, members: []uint8{0}}, 0)
		}()},
		"candidates twice": {Index: 90, Data: func() []byte {
			h := header2(wire.OpCreatePartitionsWithAssignments, c.id)
			return appendEntry(&h, &createPartitions{count: 1, candidates: []uint8{1, 1}, members: []uint8{1}}, 0)
		}()},
		"name too long": {Index: 90, Data: func() []byte {
			h := header2(wire.OpCreateStream, c.id)
			return appendEntry(&h, &createStream{name: string(make([]byte, 256))}, 0)
		}()},
		"name not UTF-8": {Index: 90, Data: func() []byte {
			h := header2(wire.OpCreateStream, c.id)
			return appendEntry(&h, &createStream{name: "\xff"}, 0)
		}()},
	} {
		t.Run(name, func(t *testing.T) {
			var corrupt *CorruptError
			if err := r.m.Apply(e, nil); !errors.As(err, &corrupt) || corrupt.Index != e.Index || corrupt.Error() == "" {
				t.Fatalf("Apply = %v", err)
			}
			if !bytes.Equal(r.m.Checkpoint(nil), want) || r.m.Applied() != r.index {
				t.Fatal("the state changed")
			}
		})
	}
}

func header2(op wire.Operation, client wire.U128) header {
	return header{op: op, client: client, session: 1, request: 1}
}
