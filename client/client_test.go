package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/whippetmq/whippet/wire"
)

func TestSendAndPoll(t *testing.T) {
	for _, whippet := range []bool{true, false} {
		t.Run(fmt.Sprintf("whippet=%v", whippet), func(t *testing.T) {
			s := newFake(t, 3)
			s.set(func() { s.whippet = whippet })
			c := s.connect(t)
			ctx := within(t, 5*time.Second)
			for i := range 6 {
				conf, err := c.Send(ctx, stream, topic, wire.Balanced(), text(fmt.Sprint("m", i)))
				if err != nil {
					t.Fatal(err)
				}
				want := Confirmation{Stream: 1, Topic: 2, Partition: uint32(i % 3), Offset: uint64(i / 3), Known: true}
				if conf != want {
					t.Fatalf("send %d: got %+v, want %+v", i, conf, want)
				}
			}
			p, err := c.Poll(ctx, PollRequest{Stream: stream, Topic: topic, Partition: 1, Strategy: wire.FromFirst()})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for m := range p.Messages() {
				got = append(got, string(m.Payload))
			}
			if !slices.Equal(got, []string{"m1", "m4"}) {
				t.Fatalf("polled %v", got)
			}
			if _, err := c.Ping(ctx); err != nil {
				t.Fatal(err)
			}
			if _, err := c.CreateStream(ctx, "a"); err != nil {
				t.Fatal(err)
			}
			if _, err := c.CreateStream(ctx, "a"); !errors.Is(err, wire.ErrStreamNameAlreadyExists) {
				t.Fatalf("got %v", err)
			}
			if _, err := c.Stats(ctx); !errors.Is(err, wire.ErrFeatureUnavailable) {
				t.Fatalf("got %v", err)
			}
			if _, err := c.Topic(ctx, stream, wire.Name("none")); !errors.Is(err, ErrNotFound) {
				t.Fatalf("got %v", err)
			}
			if _, err := c.Send(ctx, stream, wire.Name("none"), wire.Balanced(), text("x")); !errors.Is(err, ErrNotFound) {
				t.Fatalf("got %v", err)
			}
			key, _ := wire.MessagesKey([]byte("order-1"))
			conf, err := c.Send(ctx, stream, topic, key, text("k"))
			if err != nil || conf.Partition != 2 {
				t.Fatalf("key order-1 of 3 partitions: %+v %v", conf, err)
			}
		})
	}
}

func TestProducerAndConsumer(t *testing.T) {
	s := newFake(t, 2)
	c := s.connect(t)
	ctx := within(t, 10*time.Second)
	p := c.Producer(stream, topic, ProducerConfig{Partitioner: FixedPartition(1)})
	const n = 5000
	confirmed := 0
	for i := range n {
		err := p.Enqueue(ctx, text(fmt.Sprint(i)), func(conf Confirmation, err error) {
			if err != nil || conf.Offset != uint64(i) {
				t.Errorf("message %d: %+v %v", i, conf, err)
			}
			confirmed++
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if confirmed != n {
		t.Fatalf("%d confirmed", confirmed)
	}
	if conf, err := p.Send(ctx, text("last")); err != nil || conf.Offset != n {
		t.Fatalf("%+v %v", conf, err)
	}
	k := c.Consumer(stream, topic, ConsumerConfig{Name: "me", Commit: CommitEvery(100), BatchMessages: 333, Views: true})
	next := 0
	for m, err := range k.Messages(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if m.Offset != uint64(next) || next < n && string(m.Payload) != fmt.Sprint(next) {
			t.Fatalf("at %d: offset %d %q", next, m.Offset, m.Payload)
		}
		if next++; next == n+1 {
			break
		}
	}
	o, err := c.ConsumerOffset(ctx, wire.SingleConsumer(wire.Name("me")), stream, topic, 1)
	if err != nil || o.StoredOffset != n-1 {
		t.Fatalf("stored %+v %v: the message at which the loop was left is not handled", o, err)
	}
	if err := p.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := p.Enqueue(ctx, text("x"), nil); !errors.Is(err, ErrClosed) {
		t.Fatalf("got %v", err)
	}
}
