package client_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/whippettest"
	"github.com/whippetmq/whippet/wire"
)

// exampleNode starts a node for an example and gives its connection string. A
// program has the address of its server instead.
func exampleNode() (connection string, stop func()) {
	t := new(exampleT)
	s := whippettest.Start(t)
	return s.ConnectionString(), t.end
}

// Connect, make a stream and a topic, send a message and poll it.
func Example() {
	connection, stop := exampleNode()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()

	c, err := client.Connect(ctx, connection)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()

	stream, topic := wire.Name("shop"), wire.Name("orders")
	if _, err := c.CreateStream(ctx, "shop"); err != nil {
		log.Fatal(err)
	}
	if _, err := c.CreateTopic(ctx, stream, client.TopicConfig{Name: "orders", Partitions: 3}); err != nil {
		log.Fatal(err)
	}
	conf, err := c.Send(ctx, stream, topic, wire.PartitionID(1), client.Message{Payload: []byte("hello")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("partition", conf.Partition, "offset", conf.Offset)

	polled, err := c.Poll(ctx, client.PollRequest{Stream: stream, Topic: topic, Partition: 1, Strategy: wire.FromFirst()})
	if err != nil {
		log.Fatal(err)
	}
	for m := range polled.Messages() {
		fmt.Printf("%s\n", m.Payload)
	}
	// Output:
	// partition 1 offset 0
	// hello
}

// A producer batches messages and keeps several batches in flight; messages with
// one key stay in order.
func ExampleProducer() {
	connection, stop := exampleNode()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := client.Connect(ctx, connection)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	stream, topic := wire.Name("shop"), wire.Name("orders")
	if _, err := c.CreateStream(ctx, "shop"); err != nil {
		log.Fatal(err)
	}
	if _, err := c.CreateTopic(ctx, stream, client.TopicConfig{Name: "orders", Partitions: 3}); err != nil {
		log.Fatal(err)
	}

	p := c.Producer(stream, topic, client.ProducerConfig{Linger: 5 * time.Millisecond})
	acknowledged := 0
	for i := range 1000 {
		m := client.Message{Key: []byte("customer-7"), Payload: fmt.Appendf(nil, "order %d", i)}
		err := p.Enqueue(ctx, m, func(_ client.Confirmation, err error) {
			if err == nil {
				acknowledged++
			}
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	if err := p.Close(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(acknowledged)
	// Output: 1000
}

// A consumer reads all partitions and stores how far it got after every hundred
// messages.
func ExampleConsumer() {
	connection, stop := exampleNode()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := client.Connect(ctx, connection)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	stream, topic := wire.Name("shop"), wire.Name("orders")
	if _, err := c.CreateStream(ctx, "shop"); err != nil {
		log.Fatal(err)
	}
	if _, err := c.CreateTopic(ctx, stream, client.TopicConfig{Name: "orders", Partitions: 1}); err != nil {
		log.Fatal(err)
	}
	for i := range 3 {
		m := client.Message{Payload: fmt.Appendf(nil, "order %d", i)}
		if _, err := c.Send(ctx, stream, topic, wire.Balanced(), m); err != nil {
			log.Fatal(err)
		}
	}

	k := c.Consumer(stream, topic, client.ConsumerConfig{Name: "billing", Commit: client.CommitEvery(100)})
	for m, err := range k.Messages(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d: %s\n", m.Offset, m.Payload)
		if m.Offset == 2 {
			break
		}
	}
	// Output:
	// 0: order 0
	// 1: order 1
	// 2: order 2
}

// exampleT lets whippettest run in an example, which has no testing.TB.
type exampleT struct {
	testing.TB
	cleanups []func()
	dirs     []string
}

func (t *exampleT) Helper()                   {}
func (t *exampleT) Cleanup(f func())          { t.cleanups = append(t.cleanups, f) }
func (t *exampleT) Fatalf(f string, a ...any) { log.Fatalf(f, a...) }
func (t *exampleT) Fatal(a ...any)            { log.Fatal(a...) }
func (t *exampleT) Errorf(f string, a ...any) { log.Printf(f, a...) }

func (t *exampleT) TempDir() string {
	dir, err := os.MkdirTemp("", "whippet-example-")
	if err != nil {
		log.Fatal(err)
	}
	t.dirs = append(t.dirs, dir)
	return dir
}

func (t *exampleT) end() {
	for i := len(t.cleanups) - 1; i >= 0; i-- {
		t.cleanups[i]()
	}
	for _, d := range t.dirs {
		_ = os.RemoveAll(d)
	}
}

// In a cluster the client finds each partition's primary by itself. Warm does it
// ahead of the first send.
func ExampleClient_Warm() {
	ctx := context.Background()
	c, err := client.Connect(ctx, "iggy://iggy:iggy@127.0.0.1:8090", client.WithAddresses("127.0.0.1:8090", "127.0.0.1:8091", "127.0.0.1:8092"))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.Warm(ctx, wire.Name("orders"), wire.Name("events")); err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.RouterStats().Routing)
}
