package server

import (
	"slices"
	"testing"

	"github.com/whippetmq/whippet/wire"
)

func TestSendAndPoll(t *testing.T) {
	s := start(t, nil)
	r := login(t, s)
	stream, topic := r.topic(3)
	c := r.send(stream, topic, wire.PartitionID(1), "a", "b")
	if c.PartitionID != 1 || c.BaseOffset != 0 {
		t.Fatalf("confirmation %+v", c)
	}
	if c = r.send(stream, topic, wire.PartitionID(1), "c"); c.BaseOffset != 2 {
		t.Fatalf("confirmation %+v", c)
	}
	got, pm := r.poll(pollRequest(stream, topic, 1, 0, 10))
	if !slices.Equal(got, []string{"a", "b", "c"}) || pm.CurrentOffset != 2 || pm.PartitionID != 1 {
		t.Fatalf("%q %+v", got, pm)
	}
	got, _ = r.poll(pollRequest(stream, topic, 1, 1, 1))
	if !slices.Equal(got, []string{"b"}) {
		t.Fatalf("slice %q", got)
	}
}
