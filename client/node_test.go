package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/server"
	"github.com/whippetmq/whippet/whippettest"
	"github.com/whippetmq/whippet/wire"
)

var streamName, topicName = wire.Name("orders"), wire.Name("events")

// connect makes a client of a node with a topic of n partitions.
func connect(t testing.TB, address string, n uint32, opts ...client.Option) *client.Client {
	t.Helper()
	ctx := timeout(t, 20*time.Second)
	c, err := client.Connect(ctx, "iggy://"+whippettest.Username+":"+whippettest.Password+"@"+address, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.CreateStream(ctx, "orders"); err != nil && !errors.Is(err, wire.ErrStreamNameAlreadyExists) {
		t.Fatal(err)
	}
	_, err = c.CreateTopic(ctx, streamName, client.TopicConfig{Name: "events", Partitions: n})
	if err != nil && !errors.Is(err, wire.ErrTopicNameAlreadyExists) {
		t.Fatal(err)
	}
	return c
}

func timeout(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestNodeCommands(t *testing.T) {
	s := whippettest.Start(t)
	c := connect(t, s.Addr(), 2)
	ctx := timeout(t, 20*time.Second)
	caps, err := c.Capabilities(ctx)
	if err != nil || !caps.Whippet || !caps.Fence {
		t.Fatalf("%+v %v", caps, err)
	}
	if d, err := c.Topic(ctx, streamName, topicName); err != nil || d.PartitionsCount != 2 {
		t.Fatalf("%+v %v", d, err)
	}
	if _, err := c.Stream(ctx, wire.Name("none")); !errors.Is(err, client.ErrNotFound) {
		t.Fatalf("got %v", err)
	}
	if _, err := c.CreateStream(ctx, "orders"); !errors.Is(err, wire.ErrStreamNameAlreadyExists) {
		t.Fatalf("got %v", err)
	}
	if _, err := c.Users(ctx); err != nil && !errors.Is(err, wire.ErrFeatureUnavailable) {
		t.Fatalf("got %v", err)
	}
	if _, err := c.Stats(ctx); err != nil {
		t.Fatal(err)
	}
	if r, err := c.ClusterMetadata(ctx); err != nil || len(r.Nodes) != 1 {
		t.Fatalf("%+v %v", r, err)
	}
	if _, err := c.Me(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.CreatePartitions(ctx, streamName, topicName, 1); err != nil {
		t.Fatal(err)
	}
	conf, err := c.Send(ctx, streamName, topicName, wire.PartitionID(2), client.Message{Payload: []byte("new partition")})
	if err != nil || !conf.Known || conf.Partition != 2 || conf.Offset != 0 {
		t.Fatalf("%+v %v", conf, err)
	}
	consumer := wire.SingleConsumer(wire.Name("me"))
	if _, err := c.ConsumerOffset(ctx, consumer, streamName, topicName, 2); !errors.Is(err, client.ErrNotFound) {
		t.Fatalf("got %v", err)
	}
	if err := c.StoreConsumerOffset(ctx, consumer, streamName, topicName, 2, 0); err != nil {
		t.Fatal(err)
	}
	if o, err := c.ConsumerOffset(ctx, consumer, streamName, topicName, 2); err != nil || o.StoredOffset != 0 {
		t.Fatalf("%+v %v", o, err)
	}
	if err := c.StoreConsumerOffset(ctx, consumer, streamName, topicName, 2, 99); !errors.Is(err, wire.ErrInvalidOffset) {
		t.Fatalf("got %v", err)
	}
	if err := c.DeleteConsumerOffset(ctx, consumer, streamName, topicName, 2); err != nil {
		t.Fatal(err)
	}
	if err := c.Logout(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stats(ctx); !errors.Is(err, wire.ErrUnauthenticated) {
		t.Fatalf("got %v", err)
	}
	if err := c.Login(ctx, whippettest.Username, "wrong"); !errors.Is(err, wire.ErrInvalidCredentials) {
		t.Fatalf("got %v", err)
	}
	if err := c.Login(ctx, whippettest.Username, whippettest.Password); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stats(ctx); err != nil {
		t.Fatal(err)
	}
}

// breaker is a dialer whose connections can be cut in the middle of anything.
type breaker struct {
	client.TCPDialer
	mu    sync.Mutex
	conns []net.Conn
}

func (b *breaker) Dial(ctx context.Context, address string) (net.Conn, error) {
	c, err := b.TCPDialer.Dial(ctx, address)
	if err == nil {
		b.mu.Lock()
		b.conns = append(b.conns, c)
		b.mu.Unlock()
	}
	return c, err
}

func (b *breaker) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns {
		_ = c.Close()
	}
	b.conns = nil
}

// TestNodeExactlyOnce produces while connections are cut all the time: every
// message is there once, in order, and a consumer that is cut too sees each once.
func TestNodeExactlyOnce(t *testing.T) {
	s := whippettest.Start(t)
	b := new(breaker)
	c := connect(t, s.Addr(), 1, client.WithDialer(b), client.WithReconnect(client.Reconnect{Interval: 5 * time.Millisecond}))
	ctx := timeout(t, 60*time.Second)
	before, err := c.Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var cuts atomic.Int32
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for ctx.Err() == nil {
			// Signing in takes a while: give each connection some time of its own.
			if _, err := c.Session(ctx); err != nil {
				return
			}
			life := time.NewTimer(time.Duration(20+rand.IntN(80)) * time.Millisecond)
			select {
			case <-life.C:
				b.cut()
				cuts.Add(1)
			case <-stop:
				life.Stop()
				return
			}
		}
	}()
	p := c.Producer(streamName, topicName, client.ProducerConfig{BatchMessages: 20})
	var failed atomic.Int32
	var total atomic.Int64
	total.Store(-1)
	wg.Add(1)
	go func() {
		defer wg.Done()
		pace := time.NewTicker(time.Millisecond)
		defer pace.Stop()
		sent := 0
		for i := 0; cuts.Load() < 6; i++ {
			err := p.Enqueue(ctx, client.Message{Payload: fmt.Appendf(nil, "%d", i)}, func(conf client.Confirmation, err error) {
				if (err != nil || conf.Known && conf.Offset != uint64(i)) && failed.Add(1) < 5 {
					t.Errorf("message %d: %+v %v", i, conf, err)
				}
			})
			if err != nil {
				t.Error(err)
				break
			}
			sent = i + 1
			if i%20 == 19 {
				<-pace.C
			}
		}
		total.Store(int64(sent))
		if _, err := p.Send(ctx, client.Message{Payload: []byte("end")}); err != nil {
			t.Error(err)
		}
	}()
	k := c.Consumer(streamName, topicName, client.ConsumerConfig{
		Name: "checker", Start: wire.FromFirst(), Commit: client.CommitBatch(), PollInterval: time.Millisecond, Views: true,
	})
	next := 0
	for m, err := range k.Messages(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if m.Offset == uint64(next) && string(m.Payload) == "end" {
			break
		}
		if m.Offset != uint64(next) || string(m.Payload) != fmt.Sprint(next) {
			t.Fatalf("want message %d, got %q at offset %d", next, m.Payload, m.Offset)
		}
		next++
	}
	close(stop)
	wg.Wait()
	n := total.Load()
	if int64(next) != n {
		t.Fatalf("%d messages, want %d", next, n)
	}
	d, err := c.Topic(ctx, streamName, topicName)
	if err != nil || int64(d.MessagesCount) != n+1 {
		t.Fatalf("%d messages in the topic, want %d: %v", d.MessagesCount, n+1, err)
	}
	after, err := c.Session(ctx)
	if err != nil || after.ClientID != before.ClientID || after.Session <= before.Session {
		t.Fatalf("before %+v, after %+v, %v", before, after, err)
	}
	t.Logf("%d cuts, %d connections", cuts.Load(), after.Generation)
}

// freeAddress is an address that a node can listen on again after a restart.
func freeAddress(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	return ln.Addr().String()
}

// TestNodeRestart produces and consumes over a restart of the node.
func TestNodeRestart(t *testing.T) {
	address := freeAddress(t)
	s := whippettest.Start(t, whippettest.WithConfig(func(cfg *server.Config) { cfg.TCP.Address = address }))
	c := connect(t, s.Addr(), 1, client.WithReconnect(client.Reconnect{Interval: 20 * time.Millisecond}))
	ctx := timeout(t, 60*time.Second)
	p := c.Producer(streamName, topicName, client.ProducerConfig{BatchMessages: 10})
	const n = 2000
	var bad atomic.Int32
	for i := range n {
		if i == n/2 {
			s.Restart()
		}
		err := p.Enqueue(ctx, client.Message{Payload: fmt.Appendf(nil, "%d", i)}, func(conf client.Confirmation, err error) {
			if err != nil || conf.Known && conf.Offset != uint64(i) {
				if bad.Add(1) < 5 {
					t.Errorf("message %d: %+v %v", i, conf, err)
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	next := 0
	for m, err := range c.Consumer(streamName, topicName, client.ConsumerConfig{}).Messages(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if string(m.Payload) != fmt.Sprint(next) {
			t.Fatalf("want message %d, got %q at offset %d", next, m.Payload, m.Offset)
		}
		if next++; next == n {
			break
		}
	}
}
