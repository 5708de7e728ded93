package metadata

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/wire"
)

// oracle is a naive model of streams, topics, partitions and repeated requests: maps and full copies.
type oracle struct {
	streams  map[uint32]*modelStream
	sessions map[uint64]*modelSession
}

type modelStream struct {
	name   string
	topics map[uint32]*modelTopic
}

type modelTopic struct {
	name       string
	partitions []uint64 // created index
}

type modelSession struct {
	session   uint64
	watermark uint64
	answers   map[uint64]string // outcome by request
	order     []uint64
}

func (o *oracle) stream(id wire.Identifier) (uint32, *modelStream) {
	for n, s := range o.streams {
		if id == wire.ID(n) || id == wire.Name(s.name) {
			return n, s
		}
	}
	return 0, nil
}

func (s *modelStream) topic(id wire.Identifier) (uint32, *modelTopic) {
	for n, t := range s.topics {
		if id == wire.ID(n) || id == wire.Name(t.name) {
			return n, t
		}
	}
	return 0, nil
}

func lowestFree[T any](m map[uint32]T) uint32 {
	for id := uint32(0); ; id++ {
		if _, used := m[id]; !used {
			return id
		}
	}
}

// apply gives the error code and makes the change.
func (o *oracle) apply(req wire.Request, index uint64) wire.ErrorCode {
	var streamID, topicID wire.Identifier
	switch q := req.(type) {
	case *wire.CreateStream:
		if _, s := o.stream(wire.Name(q.Name)); s != nil {
			return 1012
		}
		o.streams[lowestFree(o.streams)] = &modelStream{name: q.Name, topics: map[uint32]*modelTopic{}}
		return 0
	case *wire.UpdateStream:
		streamID = q.Stream
	case *wire.DeleteStream:
		streamID = q.Stream
	case *wire.CreateTopic:
		streamID = q.Stream
	case *wire.UpdateTopic:
		streamID, topicID = q.Stream, q.Topic
	case *wire.DeleteTopic:
		streamID, topicID = q.Stream, q.Topic
	case *wire.CreatePartitions:
		streamID, topicID = q.Stream, q.Topic
	case *wire.DeletePartitions:
		streamID, topicID = q.Stream, q.Topic
	}
	sid, s := o.stream(streamID)
	if s == nil {
		return 1009
	}
	switch q := req.(type) {
	case *wire.UpdateStream:
		if n, other := o.stream(wire.Name(q.Name)); other != nil && n != sid {
			return 1012
		}
		s.name = q.Name
		return 0
	case *wire.DeleteStream:
		delete(o.streams, sid)
		return 0
	case *wire.CreateTopic:
		if _, t := s.topic(wire.Name(q.Name)); t != nil {
			return 2013
		}
		t := &modelTopic{name: q.Name}
		for range q.PartitionsCount {
			t.partitions = append(t.partitions, index)
		}
		s.topics[lowestFree(s.topics)] = t
		return 0
	}
	tid, t := s.topic(topicID)
	if t == nil {
		return 2010
	}
	switch q := req.(type) {
	case *wire.UpdateTopic:
		if n, other := s.topic(wire.Name(q.Name)); other != nil && n != tid {
			return 2013
		}
		t.name = q.Name
	case *wire.DeleteTopic:
		delete(s.topics, tid)
	case *wire.CreatePartitions:
		for range q.PartitionsCount {
			t.partitions = append(t.partitions, index)
		}
	case *wire.DeletePartitions:
		if int(q.PartitionsCount) > len(t.partitions) {
			return 2019
		}
		t.partitions = t.partitions[:len(t.partitions)-int(q.PartitionsCount)]
	}
	return 0
}

// compare checks the catalog against the model.
func (o *oracle) compare(t *rapid.T, c *Catalog) {
	topics, partitions := 0, 0
	if c.StreamCount() != len(o.streams) {
		t.Fatalf("%d streams, want %d", c.StreamCount(), len(o.streams))
	}
	for id, s := range o.streams {
		got := c.StreamByID(id)
		if got == nil || got.Name != s.name || c.Stream(wire.Name(s.name)) != got || got.TopicCount() != len(s.topics) {
			t.Fatalf("stream %d: %+v, want %q with %d topics", id, got, s.name, len(s.topics))
		}
		topics += len(s.topics)
		for id, want := range s.topics {
			tp := got.TopicByID(id)
			if tp == nil || tp.Name != want.name || got.Topic(wire.Name(want.name)) != tp || len(tp.Partitions) != len(want.partitions) {
				t.Fatalf("topic %d: %+v, want %+v", id, tp, want)
			}
			partitions += len(want.partitions)
			for i, p := range tp.Partitions {
				if p.ID != uint32(i) || p.Created != want.partitions[i] {
					t.Fatalf("partition %+v, want created by %d", p, want.partitions[i])
				}
			}
		}
	}
	if c.TopicCount() != topics || c.PartitionCount() != partitions {
		t.Fatalf("%d topics and %d partitions, want %d and %d", c.TopicCount(), c.PartitionCount(), topics, partitions)
	}
}

var drawIdent = rapid.Custom(func(t *rapid.T) wire.Identifier {
	if rapid.Bool().Draw(t, "by name") {
		return wire.Name(drawName.Draw(t, "name"))
	}
	return wire.ID(rapid.Uint32Range(0, 3).Draw(t, "id"))
})

var drawName = rapid.SampledFrom([]string{"a", "b", "c", "0", "ä"})

var drawRequest = rapid.Custom(func(t *rapid.T) wire.Request {
	s, tp := drawIdent.Draw(t, "stream"), drawIdent.Draw(t, "topic")
	name := drawName.Draw(t, "name")
	n := rapid.Uint32Range(1, 4).Draw(t, "count")
	switch rapid.IntRange(0, 9).Draw(t, "request") {
	case 0, 1:
		return &wire.CreateStream{Name: name}
	case 2:
		return &wire.UpdateStream{Stream: s, Name: name}
	case 3:
		return &wire.DeleteStream{Stream: s}
	case 4, 5:
		return &wire.CreateTopic{Stream: s, Name: name, PartitionsCount: n - 1}
	case 6:
		return &wire.UpdateTopic{Stream: s, Topic: tp, Name: name, Options: opt("message_expiry", int(n))}
	case 7:
		return &wire.DeleteTopic{Stream: s, Topic: tp}
	case 8:
		return &wire.CreatePartitions{Stream: s, Topic: tp, PartitionsCount: n}
	}
	return &wire.DeletePartitions{Stream: s, Topic: tp, PartitionsCount: n}
})

// TestModel runs random sessions against the oracle: new requests, repeated ones, registers and logouts. Every outcome and the whole
// catalog must agree. Then the same entries, and a checkpoint taken anywhere plus the rest, must lead to the same state.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r, _ := newRig(t, Config{Nodes: []uint8{0, 1, 2}, ClientsMax: 3})
		o := &oracle{streams: map[uint32]*modelStream{}, sessions: map[uint64]*modelSession{}}
		o.sessions[1] = &modelSession{session: r.index, answers: map[uint64]string{}}
		recent := []uint64{1} // clients by age of their latest reply
		touch := func(id uint64) {
			recent = append(slices.DeleteFunc(recent, func(x uint64) bool { return x == id }), id)
		}
		checkpoints := map[int][]byte{}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			if rapid.IntRange(0, 9).Draw(rt, "checkpoint") == 0 {
				checkpoints[len(r.log)] = r.m.Checkpoint(nil)
			}
			id := rapid.Uint64Range(1, 5).Draw(rt, "client")
			s := o.sessions[id]
			kind := rapid.IntRange(0, 9).Draw(rt, "kind")
			if s == nil || kind == 0 {
				if s == nil {
					if len(o.sessions) == 3 {
						delete(o.sessions, recent[0])
						recent = recent[1:]
					}
					s = &modelSession{answers: map[uint64]string{}}
					o.sessions[id] = s
				}
				res := r.register(id, RootUser)
				if res.Err != nil {
					rt.Fatalf("register: %v", res.Err)
				}
				s.session = res.Session
				touch(id)
				continue
			}
			if kind == 1 {
				res := r.do(&Command{Operation: wire.OpLogout, Client: wire.U128{Lo: id}, Session: s.session, Request: s.watermark + 1})
				if res.Err != nil {
					rt.Fatalf("logout: %v", res.Err)
				}
				delete(o.sessions, id)
				recent = slices.DeleteFunc(recent, func(x uint64) bool { return x == id })
				continue
			}
			req := drawRequest.Draw(rt, "request")
			c := &client{r: r, id: wire.U128{Lo: id}, session: s.session, request: s.watermark + rapid.Uint64Range(0, 2).Draw(rt, "gap")}
			if kind == 2 && s.watermark > 0 {
				// Repeat an older request, under its own number and content: the stamp is left out, since the model has no bodies.
				c.request = rapid.Uint64Range(1, s.watermark).Draw(rt, "repeated") - 1
				cmd := c.command(wire.OperationFor(req.Code()), req.Append(nil))
				cmd.Stamp = wire.U128{}
				got := outcome(r.do(cmd))
				want, kept := s.answers[cmd.Request]
				if !kept {
					want = "committed 59"
				}
				if got != want {
					rt.Fatalf("request %d repeated: %q, want %q", cmd.Request, got, want)
				}
				continue
			}
			res := c.do(req)
			want := ""
			if code := o.apply(req, r.index); code != 0 {
				want = "committed " + number(code)
			}
			if got := outcome(res); got != want {
				rt.Fatalf("%T: %q, want %q", req, got, want)
			}
			s.watermark = c.request
			s.answers[c.request] = want
			s.order = append(s.order, c.request)
			if len(s.order) > keptReplies {
				delete(s.answers, s.order[0])
				s.order = s.order[1:]
			}
			touch(id)
			o.compare(rt, r.m.Catalog())
		}
		var ids []uint64
		for _, s := range r.m.Sessions() {
			ids = append(ids, s.Client.Lo)
		}
		if fmt.Sprint(ids) != fmt.Sprint(recent) {
			rt.Fatalf("sessions %v, want %v", ids, recent)
		}
		want := r.m.Checkpoint(nil)
		// A node with other settings of its own: only what is in the entries may count.
		follower := New(Config{Replica: 9, Placement: LeaderPlacement, ClientsMax: 77})
		replay(rt, follower, r.log)
		if !bytes.Equal(follower.Checkpoint(nil), want) {
			rt.Fatal("two machines with the same entries differ")
		}
		for at, checkpoint := range checkpoints {
			m := New(Config{})
			if err := m.Restore(nil, checkpoint, r.log[at-1].Index); err != nil {
				rt.Fatal(err)
			}
			replay(rt, m, r.log[at:])
			if !bytes.Equal(m.Checkpoint(nil), want) {
				rt.Fatalf("checkpoint at %d plus tail differs from all entries", at)
			}
		}
	})
}

func replay(t *rapid.T, m *Machine, log []segment.Entry) {
	for _, e := range log {
		if err := m.Apply(e, nil); err != nil {
			t.Fatal(err)
		}
	}
}
