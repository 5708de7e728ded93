package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Variables that change the run: WHIPPET_CRASH_ROUNDS kills (6), WHIPPET_CRASH_SEED for the times between them.
const (
	roundsVariable = "WHIPPET_CRASH_ROUNDS"
	seedVariable   = "WHIPPET_CRASH_SEED"
)

const (
	partitions  = 3
	producers   = 3
	outstanding = 64 // messages of one producer without an outcome
)

func number(t *testing.T, variable string, otherwise uint64) uint64 {
	s := os.Getenv(variable)
	if s == "" {
		return otherwise
	}
	v, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return v
}

// topic is one topic under load with its history.
type topic struct {
	name string
	mu   sync.Mutex
	h    history // guarded by mu
	errs []error // guarded by mu: outcomes that should not be
}

func (o *topic) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.errs = append(o.errs, err)
}

var stream = wire.Name("crash")

func connect(t *testing.T, n *node) *client.Client {
	t.Helper()
	// A kill and a restart take about a second; whatever takes longer than this is a failure.
	c, err := client.Connect(t.Context(), n.connection(), client.WithRequestTimeout(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestKillLoop(t *testing.T) {
	if testing.Short() {
		t.Skip("kills a real process for about twenty seconds")
	}
	rounds := number(t, roundsVariable, 6)
	seed := number(t, seedVariable, uint64(time.Now().UnixNano())&0xffffffff)
	t.Logf("%s=%d", seedVariable, seed)
	random := rand.New(rand.NewPCG(seed, 0))

	n := newNode(t)
	n.start()
	admin := connect(t, n)
	if _, err := admin.CreateStream(t.Context(), "crash"); err != nil {
		t.Fatal(err)
	}
	var topics []*topic
	for _, durability := range []string{"replicated", "persisted"} {
		o := &topic{name: durability}
		for range partitions {
			o.h.seen = append(o.h.seen, map[uint64]message{})
		}
		_, err := admin.CreateTopic(t.Context(), stream, client.TopicConfig{Name: durability, Partitions: partitions, Options: wire.Options{
			{Key: wire.OptDurability, Value: wire.StringValue(durability)},
			{Key: wire.OptSegmentSize, Value: wire.Uint64Value(1 << 20)}, // the smallest: segments roll during the run
		}})
		if err != nil {
			t.Fatal(err)
		}
		topics = append(topics, o)
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var load sync.WaitGroup
	var created []string
	var offsets offsetLog
	for _, o := range topics {
		for i := range producers {
			c := connect(t, n)
			load.Go(func() { o.produce(ctx, c, uint32(i)) })
		}
		c := connect(t, n)
		load.Go(func() { o.consume(ctx, c) })
	}
	storing, making := connect(t, n), connect(t, n)
	load.Go(func() { offsets.run(ctx, storing, topics[0]) })
	load.Go(func() { created = makeTopics(ctx, making, topics[0]) })

	var slowest time.Duration
	for range rounds {
		pause(ctx, time.Duration(150+random.IntN(700))*time.Millisecond)
		n.kill()
		if random.IntN(3) == 0 {
			// Again while it recovers.
			n.launch()
			pause(ctx, time.Duration(random.IntN(120))*time.Millisecond)
			n.kill()
		}
		slowest = max(slowest, n.start())
	}
	pause(ctx, 300*time.Millisecond)
	stop()
	load.Wait()
	t.Logf("%d kills, slowest restart %v", rounds, slowest)

	verify := func(when string) {
		c := connect(t, n)
		for _, o := range topics {
			logs := o.read(t, c)
			if err := o.h.check(logs); err != nil {
				t.Errorf("%s, topic %s: %v", when, o.name, err)
			}
		}
		offsets.verify(t, c, topics[0].name)
		for _, name := range created {
			if _, err := c.Topic(t.Context(), stream, wire.Name(name)); err != nil {
				t.Errorf("%s: created topic %s: %v", when, name, err)
			}
		}
	}
	verify("after the last kill")
	n.stop()
	n.start()
	verify("after an orderly restart")

	for _, o := range topics {
		t.Logf("topic %s: %d confirmed, %d unknown, %d other failures", o.name, len(o.h.confirmed), len(o.h.unknown), len(o.errs))
		for i, err := range o.errs {
			if i == maxReported {
				break
			}
			t.Errorf("topic %s: %v", o.name, err)
		}
		if len(o.h.unknown) > 0 {
			t.Errorf("topic %s: the outcome of %d messages stayed unknown", o.name, len(o.h.unknown))
		}
		if len(o.h.confirmed) < int(rounds)*10 {
			t.Errorf("topic %s: only %d messages, this proves nothing", o.name, len(o.h.confirmed))
		}
	}
	if len(created) == 0 || offsets.last == 0 {
		t.Errorf("%d topics created, last offset stored %d: this proves nothing", len(created), offsets.last)
	}
}

// pause waits, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// produce sends to all partitions in turn, with many messages in flight, until ctx ends; then it waits for the outcomes.
func (o *topic) produce(ctx context.Context, c *client.Client, id uint32) {
	// Partition by message: the load decides, so that the checker knows what should be where.
	var target atomic.Uint32
	p := c.Producer(stream, wire.Name(o.name), client.ProducerConfig{Partitioner: byLoad{&target}, BatchMessages: 20})
	slots := make(chan struct{}, outstanding)
	for seq := uint64(1); ctx.Err() == nil; seq++ {
		m := message{producer: id, partition: uint32(seq % partitions), seq: seq}
		slots <- struct{}{}
		target.Store(m.partition)
		err := p.Enqueue(context.WithoutCancel(ctx), client.Message{Payload: m.payload(int(seq*37) % 600)}, func(conf client.Confirmation, err error) {
			o.outcome(m, conf, err)
			<-slots
		})
		if err != nil {
			o.fail(fmt.Errorf("enqueue %+v: %w", m, err))
			<-slots
			break
		}
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if err := p.Close(end); err != nil {
		o.fail(fmt.Errorf("close producer %d: %w", id, err))
	}
}

type byLoad struct{ target *atomic.Uint32 }

func (b byLoad) Partition(*client.Message, uint32) uint32 { return b.target.Load() }

func (o *topic) outcome(m message, conf client.Confirmation, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil:
		o.h.confirmed = append(o.h.confirmed, confirmed{m, conf.Offset, conf.Known})
	case errors.Is(err, client.ErrOutcomeUnknown):
		o.h.unknown = append(o.h.unknown, m)
	default:
		o.errs = append(o.errs, fmt.Errorf("%+v: %w", m, err))
	}
}

// consume reads all partitions from offset 0 on and notes what it saw.
func (o *topic) consume(ctx context.Context, c *client.Client) {
	next := make([]uint64, partitions)
	for ctx.Err() == nil {
		read := 0
		for p := range next {
			r, err := c.Poll(ctx, client.PollRequest{Stream: stream, Topic: wire.Name(o.name), Partition: uint32(p), Strategy: wire.FromOffset(next[p]), Count: 500})
			if err != nil {
				if ctx.Err() == nil {
					o.fail(fmt.Errorf("poll partition %d at %d: %w", p, next[p], err))
				}
				return
			}
			for m := range r.Messages() {
				got, err := parse(m.Payload)
				if err != nil {
					o.fail(fmt.Errorf("partition %d offset %d: %w", p, m.Offset, err))
				}
				if m.Offset != next[p] {
					o.fail(fmt.Errorf("partition %d: offset %d after %d", p, m.Offset, next[p]))
				}
				o.mu.Lock()
				o.h.seen[p][m.Offset] = got
				o.mu.Unlock()
				next[p] = m.Offset + 1
				read++
			}
			r.Release()
		}
		if read == 0 {
			pause(ctx, 10*time.Millisecond)
		}
	}
}

// read returns the whole topic.
func (o *topic) read(t *testing.T, c *client.Client) [][]message {
	t.Helper()
	logs := make([][]message, partitions)
	for p := range logs {
		for {
			next := uint64(len(logs[p]))
			r, err := c.Poll(t.Context(), client.PollRequest{Stream: stream, Topic: wire.Name(o.name), Partition: uint32(p), Strategy: wire.FromOffset(next), Count: 10_000})
			if err != nil {
				t.Fatalf("read partition %d at %d: %v", p, next, err)
			}
			for m := range r.Messages() {
				got, err := parse(m.Payload)
				if err != nil {
					t.Errorf("partition %d offset %d: %v", p, m.Offset, err)
				}
				if m.Offset != uint64(len(logs[p])) {
					t.Fatalf("partition %d: offset %d where %d was due", p, m.Offset, len(logs[p]))
				}
				logs[p] = append(logs[p], got)
			}
			count, current := r.Count, r.CurrentOffset
			r.Release()
			if count > 0 {
				continue
			}
			if next > 0 && current != next-1 {
				t.Errorf("partition %d: current offset %d, last message %d", p, current, next-1)
			}
			break
		}
	}
	return logs
}

// offsetLog stores growing offsets of a consumer, with deletions in between.
type offsetLog struct {
	last uint64 // newest acknowledged one
}

var offsetConsumer = wire.SingleConsumer(wire.ID(7))

func (l *offsetLog) run(ctx context.Context, c *client.Client, o *topic) {
	for ctx.Err() == nil {
		pause(ctx, 5*time.Millisecond)
		r, err := c.Poll(ctx, client.PollRequest{Stream: stream, Topic: wire.Name(o.name), Consumer: offsetConsumer, Strategy: wire.FromLast(), Count: 1})
		if err != nil || r.Count == 0 {
			continue
		}
		offset := r.CurrentOffset
		r.Release()
		if offset <= l.last {
			continue
		}
		// Without the context's end: a store that was sent has an outcome that must be known.
		if err := c.StoreConsumerOffset(context.WithoutCancel(ctx), offsetConsumer, stream, wire.Name(o.name), 0, offset); err != nil {
			o.fail(fmt.Errorf("store offset %d: %w", offset, err))
			continue
		}
		l.last = offset
		got, err := c.ConsumerOffset(context.WithoutCancel(ctx), offsetConsumer, stream, wire.Name(o.name), 0)
		if err != nil || got.StoredOffset != offset {
			o.fail(fmt.Errorf("offset after storing %d: %+v, %w", offset, got, err))
		}
	}
}

func (l *offsetLog) verify(t *testing.T, c *client.Client, name string) {
	t.Helper()
	got, err := c.ConsumerOffset(t.Context(), offsetConsumer, stream, wire.Name(name), 0)
	if err != nil || got.StoredOffset != l.last {
		t.Errorf("stored offset %+v, %v; acknowledged was %d", got, err, l.last)
	}
}

// makeTopics creates topics and returns the acknowledged names.
func makeTopics(ctx context.Context, c *client.Client, o *topic) []string {
	var names []string
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("made-%d", i)
		d, err := c.CreateTopic(context.WithoutCancel(ctx), stream, client.TopicConfig{Name: name, Partitions: 1})
		if err != nil {
			o.fail(fmt.Errorf("create topic %s: %w", name, err))
			continue
		}
		if d.Name != name {
			o.fail(fmt.Errorf("created topic %s, the answer says %s", name, d.Name))
		}
		names = append(names, name)
		pause(ctx, 50*time.Millisecond)
	}
	return names
}
