package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/test/cluster/harness"
	"github.com/whippetmq/whippet/wire"
)

// stored is the answer to a read of a stored offset; nothing stored is an answer too.
type stored struct {
	wire.OffsetReply
	there bool
}

// Decode implements wire.Reply.
func (s *stored) Decode(src []byte) error {
	if s.there = len(src) > 0; !s.there {
		return nil
	}
	return s.OffsetReply.Decode(src)
}

// storedOn reads a stored offset as a node has it; ok is false when there is none.
func storedOn(t *testing.T, n *harness.Node, consumer wire.Consumer, p harness.Partition) (offset uint64, ok bool) {
	t.Helper()
	var s stored
	must(t, n.Call(patient(t), &wire.GetConsumerOffset{Consumer: consumer, Stream: p.Stream, Topic: p.Topic, Partition: wire.SomePartition(p.ID)}, &s))
	return s.StoredOffset, s.there
}

// TestOffsetsOnSplitPrimaries is E.2/8 for single consumers: offsets of partitions with different primaries are stored,
// read and deleted, and every node has them.
func TestOffsetsOnSplitPrimaries(t *testing.T) {
	c := three(t)
	s := c.SplitPrimaries(t)
	cl, w := c.Client(t, s.Y)
	before := session(t, cl)
	consumer := wire.SingleConsumer(wire.Name("reader"))
	for p := range uint32(2) {
		for range 10 {
			_, err := cl.Send(patient(t), s.Stream, s.Topic, wire.PartitionID(p), client.Message{Payload: []byte("m")})
			must(t, err)
		}
	}
	quick := func(what string, f func() error) {
		t.Helper()
		start := time.Now()
		must(t, f())
		if took := time.Since(start); took >= harness.Slack(100*time.Millisecond) {
			t.Errorf("%s took %v", what, took)
		}
	}
	for round := range uint64(3) {
		warm := c.Counts()
		for p := range uint32(2) {
			offset := 2*round + uint64(p)
			store := func() error {
				return cl.StoreConsumerOffset(patient(t), consumer, s.Stream, s.Topic, p, offset)
			}
			if round == 0 {
				must(t, store()) // it may have to find the primary first
			} else {
				quick("a store", store)
			}
			quick("a read", func() error {
				got, err := cl.ConsumerOffset(patient(t), consumer, s.Stream, s.Topic, p)
				if err == nil && got.StoredOffset != offset {
					t.Errorf("partition %d: read %d behind a store of %d", p, got.StoredOffset, offset)
				}
				return err
			})
			for _, n := range c.Nodes() {
				if got, ok := storedOn(t, n, consumer, s.Partition(p)); !ok || got != offset {
					t.Errorf("partition %d on %s: offset %d (stored %v), want %d", p, n.Name, got, ok, offset)
				}
			}
		}
		if n := c.Counts().Since(warm).Refusals(); round > 0 && n != 0 {
			t.Errorf("round %d: %d refusals", round, n)
		}
	}
	for p := range uint32(2) {
		quick("a deletion", func() error { return cl.DeleteConsumerOffset(patient(t), consumer, s.Stream, s.Topic, p) })
		if _, err := cl.ConsumerOffset(patient(t), consumer, s.Stream, s.Topic, p); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("partition %d: the deleted offset is read: %v", p, err)
		}
		for _, n := range c.Nodes() {
			if got, ok := storedOn(t, n, consumer, s.Partition(p)); ok {
				t.Errorf("partition %d on %s: offset %d is still there", p, n.Name, got)
			}
		}
	}
	stays(t, cl, w, before)
}

// TestConsumerOnSplitPrimaries: a consumer that commits as it goes reads both partitions, then goes on where it stopped,
// also when the primaries have moved meanwhile.
func TestConsumerOnSplitPrimaries(t *testing.T) {
	c := three(t)
	stream, tp := topic(t, c, 2)
	c.MustPlace(t, stream, tp, 0, 1)
	cl, w := c.Client(t, 2)
	before := session(t, cl)
	sent := 0
	send := func(n int) {
		t.Helper()
		for range n {
			_, err := cl.Send(patient(t), stream, tp, wire.PartitionID(uint32(sent%2)), client.Message{Payload: []byte{byte(sent)}})
			must(t, err)
			sent++
		}
	}
	read := map[[2]uint64]bool{}
	receive := func(n int) {
		t.Helper()
		k := cl.Consumer(stream, tp, client.ConsumerConfig{Name: "reader", Commit: client.CommitEach(), PollInterval: 10 * time.Millisecond})
		got := 0
		for m, err := range k.Messages(patient(t)) {
			must(t, err)
			at := [2]uint64{uint64(m.Partition), m.Offset}
			if read[at] {
				t.Errorf("offset %d of partition %d came twice", m.Offset, m.Partition)
			}
			read[at] = true
			must(t, k.Commit(patient(t), m))
			if got++; got == n {
				break
			}
		}
		if got != n {
			t.Fatalf("%d messages came, want %d", got, n)
		}
		must(t, k.Close(patient(t)))
	}
	for round := range 3 {
		send(20)
		receive(20)
		c.MustPlace(t, stream, tp, (round+1)%3, (round+2)%3)
	}
	stays(t, cl, w, before)
}
