package metadata

import (
	"bytes"
	"errors"
	"testing"

	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/wire"
)

// FuzzRequest: whatever a client sends, Validate refuses it with a code, or it can be applied, here and by another node, and the state
// afterwards survives a checkpoint.
func FuzzRequest(f *testing.F) {
	id, name := wire.ID(0), wire.Name("a")
	status, text := wire.UserInactive, "bob"
	for _, req := range []wire.Request{
		&wire.CreateStream{Name: "x"}, &wire.UpdateStream{Stream: id, Name: "y"}, &wire.DeleteStream{Stream: name}, &wire.PurgeStream{Stream: id},
		&wire.CreateTopic{Stream: id, Name: "x", PartitionsCount: 3, Options: opt("segment_size", "1 MiB", "max_topic_size", "1 GiB")},
		&wire.UpdateTopic{Stream: name, Topic: name, Name: "z", Options: opt("message_expiry", "1 h", "max_topic_size", 0)},
		&wire.DeleteTopic{Stream: id, Topic: id}, &wire.PurgeTopic{Stream: id, Topic: id},
		&wire.CreatePartitions{Stream: id, Topic: id, PartitionsCount: 7}, &wire.DeletePartitions{Stream: id, Topic: id, PartitionsCount: 1},
		&wire.DeleteSegments{Stream: id, Topic: id, SegmentsCount: 1},
		&wire.CreateUser{Username: "bob", Password: "secret", Status: 1, Permissions: one(2, "send_messages")},
		&wire.UpdateUser{User: id, Username: &text, Status: &status}, &wire.DeleteUser{User: wire.ID(1)},
		&wire.UpdatePermissions{User: wire.ID(1), Permissions: one(1, "poll_messages")}, &wire.ChangePassword{User: id, NewPassword: "abc"},
		&wire.CreatePersonalAccessToken{Name: "t", Expiry: 5}, &wire.DeletePersonalAccessToken{Name: "t"},
		&wire.CreateConsumerGroup{Stream: id, Topic: id, Name: "g"}, &wire.DeleteConsumerGroup{Stream: id, Topic: id, Group: id},
		&wire.JoinConsumerGroup{Stream: id, Topic: id, Group: id}, &wire.LeaveConsumerGroup{Stream: id, Topic: id, Group: id},
	} {
		f.Add(byte(wire.OperationFor(req.Code())), req.Append(nil))
	}
	f.Add(byte(wire.OpRegister), []byte{})
	f.Add(byte(wire.OpLogout), []byte{1})
	f.Add(byte(OpBootstrap), (&Bootstrap{Username: "x"}).Append(nil))
	f.Fuzz(func(t *testing.T, op byte, body []byte) {
		r, c := newRig(t, Config{Nodes: []uint8{0, 1}})
		c.must(&wire.CreateStream{Name: "a"})
		c.must(&wire.CreateTopic{Stream: wire.ID(0), Name: "a", PartitionsCount: 2})
		operation := wire.Operation(op)
		err := Validate(operation, body)
		var status *StatusError
		var evicted *EvictionError
		if err != nil && !errors.As(err, &status) && !errors.As(err, &evicted) {
			t.Fatalf("untyped refusal %v", err)
		}
		offeredOrLater := err == nil || status != nil && status.Code == wire.ErrFeatureUnavailable
		cmd := c.command(operation, bytes.Clone(body))
		cmd.Secret = Secret{Hash: "hash", Revision: r.m.Catalog().UserByID(0).Revision, Verified: true}
		res := r.do(cmd) // a rig fails the test when an entry cannot be applied
		if err != nil && res.Index != 0 && !serverOperation(operation) {
			t.Fatalf("refused with %v and executed all the same", err)
		}
		if offeredOrLater {
			// What is not offered yet must be as safe as the rest on the day it is.
			if o, err := decode(operation, body, wire.DefaultTopicOptions()); err == nil && o != nil {
				switch o := o.(type) {
				case *createTopic:
					o.candidates, o.members = []uint8{0}, []uint8{0}
				case *createPartitions:
					o.candidates, o.members = []uint8{0}, []uint8{0}
				case *createToken:
					o.hash = "h"
				}
				c.request = 500
				c.later(replyOperation(operation), o)
			}
		}
		want := r.m.Checkpoint(nil)
		m := New(r.m.cfg)
		if err := m.Restore(nil, want, r.index); err != nil || !bytes.Equal(m.Checkpoint(nil), want) {
			t.Fatalf("the state does not survive a checkpoint: %v", err)
		}
	})
}

// FuzzApply: bytes that are no entry are a typed error and change nothing; others are applied alike everywhere.
func FuzzApply(f *testing.F) {
	for _, e := range story(f).log {
		f.Add(e.Data)
	}
	for op := range 256 {
		if body := newOperation(wire.Operation(op)); body != nil {
			h := header{op: wire.Operation(op), client: wire.U128{Lo: 1}, session: 11, request: 100}
			f.Add(appendEntry(&h, body, 0))
		}
	}
	r := story(f)
	before := r.m.Checkpoint(nil)
	restored := func(t *testing.T) *Machine {
		m := New(r.m.cfg)
		if err := m.Restore(nil, before, r.index); err != nil {
			t.Fatal(err)
		}
		return m
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, other := restored(t), restored(t)
		e := segment.Entry{Index: r.index + 1, Term: 1, Data: data}
		err := m.Apply(e, nil)
		after := m.Checkpoint(nil)
		var corrupt *CorruptError
		if err != nil && (!errors.As(err, &corrupt) || !bytes.Equal(before, after)) {
			t.Fatalf("error %v, state changed %v", err, !bytes.Equal(before, after))
		}
		if again := other.Apply(e, nil); (again == nil) != (err == nil) || !bytes.Equal(other.Checkpoint(nil), after) {
			t.Fatalf("another node did something else: %v and %v", err, again)
		}
		if err := other.Restore(nil, after, r.index+1); err != nil || !bytes.Equal(other.Checkpoint(nil), after) {
			t.Fatalf("the state does not survive a checkpoint: %v", err)
		}
	})
}

// FuzzRestore: a checkpoint is either refused or is exactly what the restored state writes.
func FuzzRestore(f *testing.F) {
	f.Add(story(f).m.Checkpoint(nil))
	f.Add(New(Config{}).Checkpoint(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := New(Config{})
		if err := m.Restore(nil, b, 1<<40); err != nil {
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if got := m.Checkpoint(nil); !bytes.Equal(got, b) {
			t.Fatalf("accepted %x and writes %x", b, got)
		}
	})
}
