package client_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/whippettest"
	"github.com/whippetmq/whippet/wire"
)

// BenchmarkProducer hands 100-byte messages to a node.
func BenchmarkProducer(b *testing.B) {
	for _, partitions := range []uint32{1, 4} {
		b.Run(map[uint32]string{1: "1 partition", 4: "4 partitions"}[partitions], func(b *testing.B) {
			s := whippettest.Start(b)
			c := connect(b, s.Addr(), partitions)
			p := c.Producer(streamName, topicName, client.ProducerConfig{Linger: time.Millisecond})
			m := client.Message{Payload: make([]byte, 100)}
			ctx := context.Background()
			if _, err := p.Send(ctx, m); err != nil {
				b.Fatal(err)
			}
			var failed atomic.Int64
			confirm := func(_ client.Confirmation, err error) {
				if err != nil {
					failed.Add(1)
				}
			}
			b.SetBytes(100)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if err := p.Enqueue(ctx, m, confirm); err != nil {
					b.Fatal(err)
				}
			}
			if err := p.Flush(ctx); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
			if failed.Load() > 0 {
				b.Fatalf("%d failed", failed.Load())
			}
		})
	}
}

// BenchmarkSend is one acknowledged message after another.
func BenchmarkSend(b *testing.B) {
	s := whippettest.Start(b)
	c := connect(b, s.Addr(), 1)
	m := client.Message{Payload: make([]byte, 100)}
	ctx := context.Background()
	p := c.Producer(streamName, topicName, client.ProducerConfig{})
	b.Run("client", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if _, err := c.Send(ctx, streamName, topicName, wire.PartitionID(0), m); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("producer", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if _, err := p.Send(ctx, m); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkConsumer reads 100-byte messages from a node.
func BenchmarkConsumer(b *testing.B) {
	s := whippettest.Start(b)
	c := connect(b, s.Addr(), 1)
	ctx := context.Background()
	const stored = 500_000
	p := c.Producer(streamName, topicName, client.ProducerConfig{})
	m := client.Message{Payload: make([]byte, 100)}
	for range stored {
		if err := p.Enqueue(ctx, m, nil); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Flush(ctx); err != nil {
		b.Fatal(err)
	}
	for name, views := range map[string]bool{"views": true, "kept": false} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(100)
			b.ReportAllocs()
			k := c.Consumer(streamName, topicName, client.ConsumerConfig{Start: wire.FromFirst(), BatchMessages: 5000, Views: views})
			n := 0
			for n < b.N {
				for msg, err := range k.Messages(ctx) {
					if err != nil {
						b.Fatal(err)
					}
					if n++; n == b.N || msg.Offset == stored-1 {
						break
					}
				}
				k.Seek(0, 0)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}
