package replica

import (
	"reflect"
	"testing"
	"time"
)

func TestControlFrames(t *testing.T) {
	beats := []beat{{group: 5, term: 1, commit: 9, flags: beatSleep}, {group: MetadataGroup, term: 1<<32 - 1, commit: 1 << 60}}
	b := appendBeatsHeader(nil, 3, 77*time.Second)
	for _, x := range beats {
		b = appendBeat(b, x)
	}
	if len(b) != beatsHeader+len(beats)*beatSize {
		t.Errorf("%d bytes", len(b))
	}
	shard, sent, got, err := decodeBeats(b)
	if err != nil || shard != 3 || sent != 77*time.Second || !reflect.DeepEqual(got, beats) {
		t.Errorf("%d %v %+v %v", shard, sent, got, err)
	}
	excepts := []except{{5, exceptOther}, {MetadataGroup, exceptAwake}}
	a := appendAnswerHeader(nil, 2, 5*time.Second, true)
	for _, x := range excepts {
		a = appendExcept(a, x)
	}
	shard, sent, gotExcepts, err := decodeAnswer(a)
	if err != nil || shard != 2 || sent != 5*time.Second || !reflect.DeepEqual(gotExcepts, excepts) || a[answerUrgent] != 1 {
		t.Errorf("%d %v %+v %v", shard, sent, gotExcepts, err)
	}
	for n := range len(b) {
		if _, _, got, err := decodeBeats(b[:n]); err == nil && len(got) != (n-beatsHeader)/beatSize {
			t.Errorf("%d bytes: %d heartbeats", n, len(got))
		}
	}
	for n := range len(a) {
		if _, _, got, err := decodeAnswer(a[:n]); err == nil && len(got) != (n-answerHeader)/exceptSize {
			t.Errorf("%d bytes: %d exceptions", n, len(got))
		}
	}
}

// FuzzControl: whatever a peer sends, the host goes on.
func FuzzControl(f *testing.F) {
	f.Add(uint8(controlBeats), uint16(1), appendBeat(appendBeatsHeader(nil, 1, 1), beat{group: 5, term: 3, commit: 2}))
	f.Add(uint8(controlAnswer), uint16(1), appendExcept(appendAnswerHeader(nil, 1, 1, true), except{5, exceptOther}))
	f.Add(uint8(controlGoodbye), uint16(0), []byte{})
	f.Add(uint8(controlBeats), uint16(9), []byte{1})
	f.Fuzz(func(t *testing.T, kind uint8, shard uint16, body []byte) {
		s := newStage(t, 3, 5)
		l := s.leader(5)
		from := s.nodes[l.id%3]
		l.h.Control(from.id, kind, shard, body)
		s.settle()
		for _, n := range s.nodes {
			n.h.Control(99, kind, shard, body) // of a node that is in no group
		}
		s.pass(stageTick)
		for _, n := range s.nodes {
			if err := n.groups[5].Err(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
