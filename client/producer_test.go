package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whippetmq/whippet/wire"
)

func TestPartitioners(t *testing.T) {
	s := newFake(t, 3)
	c := s.connect(t)
	ctx := within(t, 10*time.Second)
	t.Run("key", func(t *testing.T) {
		p := c.Producer(stream, topic, ProducerConfig{})
		for key, want := range map[string]uint32{"order-1": 2, "user-123": 1} { // XXH32 mod 3, messages §4.2
			conf, err := p.Send(ctx, Message{Payload: []byte("x"), Key: []byte(key)})
			if err != nil || conf.Partition != want {
				t.Errorf("%s: %+v %v, want partition %d", key, conf, err, want)
			}
		}
	})
	t.Run("balanced: one batch each", func(t *testing.T) {
		p := c.Producer(stream, topic, ProducerConfig{Partitioner: BalancedPartitioner(), BatchMessages: 4, Linger: time.Hour})
		var mu sync.Mutex
		got := map[uint32]int{}
		for range 24 {
			if err := p.Enqueue(ctx, text("b"), func(conf Confirmation, err error) {
				mu.Lock()
				got[conf.Partition]++
				mu.Unlock()
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		if got[0] != 8 || got[1] != 8 || got[2] != 8 {
			t.Errorf("spread %v", got)
		}
	})
	t.Run("balanced from a turn: one batch each, in order", func(t *testing.T) {
		p := c.Producer(stream, topic, ProducerConfig{Partitioner: BalancedFrom(5), BatchMessages: 2, Linger: time.Hour})
		for i, want := range []uint32{2, 0, 1, 2} {
			var got [2]uint32
			for n := range got {
				if err := p.Enqueue(ctx, text("b"), func(conf Confirmation, err error) { got[n] = conf.Partition }); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			if got != [2]uint32{want, want} {
				t.Errorf("batch %d went to partitions %v, want %d", i, got, want)
			}
		}
	})
	t.Run("fixed", func(t *testing.T) {
		p := c.Producer(stream, topic, ProducerConfig{Partitioner: FixedPartition(1)})
		if conf, err := p.Send(ctx, text("x")); err != nil || conf.Partition != 1 {
			t.Errorf("%+v %v", conf, err)
		}
		p = c.Producer(stream, topic, ProducerConfig{Partitioner: FixedPartition(9)})
		if _, err := p.Send(ctx, text("x")); !errors.Is(err, ErrNotFound) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("new partitions are used", func(t *testing.T) {
		key := []byte("user-123") // mod 3 = 1, mod 6 = 4
		p := c.Producer(stream, topic, ProducerConfig{})
		if conf, err := p.Send(ctx, Message{Payload: []byte("x"), Key: key}); err != nil || conf.Partition != 1 {
			t.Fatalf("%+v %v", conf, err)
		}
		if err := c.CreatePartitions(ctx, stream, topic, 3); err != nil {
			t.Fatal(err)
		}
		if conf, err := p.Send(ctx, Message{Payload: []byte("x"), Key: key}); err != nil || conf.Partition != 4 {
			t.Fatalf("%+v %v", conf, err)
		}
	})
}

// TestSendOnlyUser: a user who may not read the topic can still send, and on our
// server the client finds the number of partitions all the same.
func TestSendOnlyUser(t *testing.T) {
	for _, partitions := range []int{1, 2, 5, 8} {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) {
			s := newFake(t, partitions)
			s.set(func() { s.readable = false })
			c := s.connect(t)
			ctx := within(t, 5*time.Second)
			p := c.Producer(stream, topic, ProducerConfig{})
			for i := range partitions * 2 {
				conf, err := p.Send(ctx, text("x"))
				if err != nil || conf.Partition != uint32(i%partitions) {
					t.Fatalf("send %d: %+v %v", i, conf, err)
				}
			}
		})
	}
	t.Run("released server", func(t *testing.T) {
		s := newFake(t, 2)
		s.set(func() { s.readable, s.whippet = false, false })
		c := s.connect(t)
		ctx := within(t, 5*time.Second)
		p := c.Producer(stream, topic, ProducerConfig{BatchMessages: 10, Linger: time.Hour})
		var kinds []wire.Partitioning
		s.on(func(r *fakeRequest) verdict {
			var m wire.SendMessages
			if r.command == wire.CodeSendMessages && m.Decode(r.body) == nil {
				kinds = append(kinds, m.Partitioning)
			}
			return verdict{}
		})
		for _, key := range []string{"", "", "a", "a", "b"} {
			if err := p.Enqueue(ctx, Message{Payload: []byte("x"), Key: []byte(key)}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		if len(kinds) != 3 || kinds[0].Kind != wire.PartitioningBalanced || string(kinds[1].Key) != "a" || string(kinds[2].Key) != "b" {
			t.Fatalf("partitionings %+v", kinds)
		}
	})
}

// TestProducerBackpressure: what is buffered is bounded, and waiting honours the
// context.
func TestProducerBackpressure(t *testing.T) {
	s := newFake(t, 1)
	c := s.connect(t)
	release := make(chan struct{})
	s.on(func(r *fakeRequest) verdict {
		if r.command == wire.CodeSendMessages {
			return verdict{kind: after, wait: release}
		}
		return verdict{}
	})
	p := c.Producer(stream, topic, ProducerConfig{MaxBufferedBytes: 4000, BatchMessages: 5})
	m := Message{Payload: make([]byte, 52)} // 100 bytes with its header
	ctx := within(t, 5*time.Second)
	for i := range 40 {
		if err := p.Enqueue(ctx, m, nil); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := p.Enqueue(short, m, nil); !errors.Is(err, ErrNotAdmitted) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	blocked := make(chan error, 1)
	go func() { blocked <- p.Enqueue(ctx, m, nil) }()
	close(release)
	if err := <-blocked; err != nil {
		t.Fatal(err)
	}
	// Room or not, nothing is taken for a caller that has given up.
	if err := p.Enqueue(short, m, nil); !errors.Is(err, ErrNotAdmitted) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if n := len(s.payloads(0)); n != 41 {
		t.Fatalf("%d messages", n)
	}
	if used := p.budget.used.Load(); used != 0 {
		t.Fatalf("%d bytes still taken", used)
	}
}

// TestProducerFullLingers: a producer that is full sends what it holds instead of
// waiting for Linger, also when those who waited fill it again.
func TestProducerFullLingers(t *testing.T) {
	s := newFake(t, 2)
	c := s.connect(t)
	ctx := within(t, 10*time.Second)
	p := c.Producer(stream, topic, ProducerConfig{MaxBufferedBytes: 1000, Linger: time.Hour})
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for range 20 {
				m := Message{Payload: make([]byte, 100), Key: []byte{byte(g)}}
				if err := p.Enqueue(ctx, m, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if n := s.counted(wire.CodeSendMessages); n == 0 {
		t.Error("nothing was sent")
	}
	if err := p.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if n := len(s.payloads(0)) + len(s.payloads(1)); n != 160 {
		t.Errorf("%d messages", n)
	}
}

// TestProducerFrame: a batch fits the largest frame of the server, whatever the
// configuration, and a message that does not is refused.
func TestProducerFrame(t *testing.T) {
	long := strings.Repeat("k", 255)
	for _, readable := range []bool{true, false} { // else keys travel along
		t.Run(fmt.Sprint("readable ", readable), func(t *testing.T) {
			s := newFake(t, 1)
			s.frame, s.readable = 64<<10, readable
			s.on(func(r *fakeRequest) verdict {
				if !readable && r.command == wire.CodeGetPollRouting {
					return verdict{kind: refuse, code: wire.ErrUnauthorized}
				}
				return verdict{}
			})
			c := s.connect(t)
			ctx := within(t, 10*time.Second)
			p := c.Producer(stream, topic, ProducerConfig{Linger: time.Hour, BatchBytes: 128 << 20})
			largest := s.frame - 2*wire.HeaderSize - sendPrefix - wire.MessageHeaderSize
			told := 0
			for _, size := range slices.Concat(slices.Repeat([]int{1000}, 200), []int{largest, 10, largest - 10, 30_000, 30_000, 30_000}) {
				m := Message{Payload: make([]byte, size), Key: []byte(long)}
				if err := p.Enqueue(ctx, m, func(_ Confirmation, err error) {
					told++
					if err != nil {
						t.Errorf("%d bytes: %v", size, err)
					}
				}); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			if n := len(s.payloads(0)); n != 206 || told != 206 {
				t.Errorf("%d messages, %d told", n, told)
			}
			for _, size := range []int{largest + 1, 64_900, 65_000, 65_400, 64 << 10} {
				if _, err := p.Send(ctx, Message{Payload: make([]byte, size), Key: []byte(long)}); !errors.Is(err, ErrMessageTooLarge) {
					t.Errorf("%d bytes: %v", size, err)
				}
			}
			if n := len(s.registered()); n != 1 {
				t.Errorf("%d connections", n)
			}
		})
	}
}

// TestProducerErrors: a message that is refused takes the others of its batch
// with it, tells each, and leaves the producer working.
func TestProducerErrors(t *testing.T) {
	s := newFake(t, 1)
	c := s.connect(t)
	ctx := within(t, 5*time.Second)
	p := c.Producer(stream, topic, ProducerConfig{BatchMessages: 3, Linger: time.Hour})
	for name, m := range map[string]Message{
		"empty payload": {}, "headers too large": {Payload: []byte("x"), HeadersBytes: make([]byte, 100_001)},
		"bad headers": {Payload: []byte("x"), HeadersBytes: []byte{1, 2, 3}},
	} {
		if err := p.Enqueue(ctx, m, func(Confirmation, error) { t.Errorf("%s: callback", name) }); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	s.on(func(r *fakeRequest) verdict {
		if r.command == wire.CodeSendMessages && r.n == 0 {
			return verdict{kind: refuse, code: wire.ErrUnauthorized}
		}
		return verdict{}
	})
	var errs []error
	for range 6 {
		if err := p.Enqueue(ctx, text("x"), func(_ Confirmation, err error) { errs = append(errs, err) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	for i, err := range errs {
		if want := i < 3; errors.Is(err, wire.ErrUnauthorized) != want {
			t.Errorf("message %d: %v", i, err)
		}
	}
	if n := len(s.payloads(0)); n != 3 {
		t.Fatalf("%d messages", n)
	}
}

// TestProducerLinger: a batch waits for more messages, and leaves by itself.
func TestProducerLinger(t *testing.T) {
	s := newFake(t, 1)
	c := s.connect(t)
	p := c.Producer(stream, topic, ProducerConfig{Linger: 20 * time.Millisecond})
	ctx := within(t, 5*time.Second)
	for range 5 {
		if err := p.Enqueue(ctx, text("x"), nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Send(ctx, text("y")); err != nil {
		t.Fatal(err)
	}
	if n := s.counted(wire.CodeSendMessages); n != 1 {
		t.Fatalf("%d batches", n)
	}
}

// TestFullLink: a link that is full makes its lanes wait, and what is given up
// while it waits was never written.
func TestFullLink(t *testing.T) {
	s := newFake(t, 3)
	waits := &waitHook{}
	c := s.connect(t, WithHooks(waits), With(func(o *Options) { o.MaxPending = 2 }))
	ctx := within(t, 5*time.Second)
	for i := range uint32(3) { // reads the topic
		if _, err := c.Send(ctx, stream, topic, wire.PartitionID(i), text("warm")); err != nil {
			t.Fatal(err)
		}
	}
	release := make(chan struct{})
	s.on(func(r *fakeRequest) verdict {
		if r.command == wire.CodeSendMessages {
			return verdict{kind: after, wait: release}
		}
		return verdict{}
	})
	results := make(chan error, 2)
	for i := range uint32(2) {
		go func() {
			_, err := c.Send(ctx, stream, topic, wire.PartitionID(i), text("x"))
			results <- err
		}()
	}
	waitFor(t, "two in flight", func() bool { return s.counted(wire.CodeSendMessages) == 5 })
	short, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
	defer cancel()
	if _, err := c.Send(short, stream, topic, wire.PartitionID(2), text("never")); !errors.Is(err, ErrNotAdmitted) || errors.Is(err, ErrOutcomeUnknown) {
		t.Fatalf("got %v", err)
	}
	go func() {
		_, err := c.Send(ctx, stream, topic, wire.PartitionID(2), text("x"))
		results <- err
	}()
	close(release)
	for range 3 {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		if got := s.payloads(i); !slices.Equal(got, []string{"warm", "x"}) {
			t.Fatalf("partition %d: %v", i, got)
		}
	}
	if waits.count() == 0 {
		t.Fatal("the wait was not told")
	}
}

type waitHook struct{ lateHook }

func (h *waitHook) OnBackpressure(cause string, _ time.Duration) {
	if cause == "link" {
		h.OnLateReply("")
	}
}

// TestProducerClose: Close sends what is buffered; with a context that is over it
// gives up, tells everybody, and does not hang.
func TestProducerClose(t *testing.T) {
	s := newFake(t, 1)
	c := s.connect(t)
	ctx := within(t, 5*time.Second)
	p := c.Producer(stream, topic, ProducerConfig{Linger: time.Hour})
	for range 10 {
		if err := p.Enqueue(ctx, text("x"), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if n := len(s.payloads(0)); n != 10 {
		t.Fatalf("%d messages", n)
	}
	s.on(func(r *fakeRequest) verdict {
		if r.command == wire.CodeSendMessages {
			return verdict{kind: ignore}
		}
		return verdict{}
	})
	p = c.Producer(stream, topic, ProducerConfig{BatchMessages: 1, MaxInFlight: 2})
	told := 0
	for range 5 {
		if err := p.Enqueue(ctx, text("y"), func(_ Confirmation, err error) {
			if err == nil {
				t.Error("confirmed")
			}
			told++
		}); err != nil {
			t.Fatal(err)
		}
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := p.Close(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	if told != 5 {
		t.Fatalf("%d told", told)
	}
	// A client that is closed ends everything that waits.
	p = c.Producer(stream, topic, ProducerConfig{})
	got := make(chan error, 1)
	go func() {
		_, err := p.Send(ctx, text("z"))
		got <- err
	}()
	waitFor(t, "the send", func() bool { return p.any.Load() != nil || len(p.all()) > 0 })
	short, cancel = context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_ = c.Shutdown(short)
	if err := <-got; err == nil {
		t.Fatal("confirmed")
	}
	if _, err := c.Ping(ctx); !errors.Is(err, ErrClosed) {
		t.Fatalf("got %v", err)
	}
}

// TestProducerConcurrent: many goroutines, each with an order of its own.
func TestProducerConcurrent(t *testing.T) {
	s := newFake(t, 2)
	c := s.connect(t)
	ctx := within(t, 10*time.Second)
	p := c.Producer(stream, topic, ProducerConfig{Partitioner: KeyPartitioner(), BatchMessages: 7})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			key := fmt.Append(nil, "key", g)
			for i := range 200 {
				if err := p.Enqueue(ctx, Message{Payload: fmt.Appendf(nil, "%d/%03d", g, i), Key: key}, nil); err != nil {
					t.Error(err)
				}
				if i%50 == 0 {
					if err := p.Flush(ctx); err != nil {
						t.Error(err)
					}
				}
			}
		}()
	}
	wg.Wait()
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	by := map[byte][]string{}
	for i := range 2 {
		for _, v := range s.payloads(i) {
			by[v[0]] = append(by[v[0]], v)
		}
	}
	for g, list := range by {
		if len(list) != 200 || !slices.IsSorted(list) {
			t.Errorf("goroutine %c: %d messages, in order %v", g, len(list), slices.IsSorted(list))
		}
	}
}

// TestMessageIDs: ids are unique and never zero.
func TestMessageIDs(t *testing.T) {
	s := newFake(t, 1)
	c := s.connect(t)
	ctx := within(t, 5*time.Second)
	for range 2 {
		p := c.Producer(stream, topic, ProducerConfig{})
		for range 50 {
			if err := p.Enqueue(ctx, text("x"), nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[wire.U128]bool{}
	s.set(func() {
		for _, m := range s.parts[0].log {
			if m.id.IsZero() || seen[m.id] {
				t.Errorf("id %v", m.id)
			}
			seen[m.id] = true
		}
	})
}

// TestProducerAllocations: a message costs no allocation of its own.
func TestProducerAllocations(t *testing.T) {
	s := newFake(t, 1)
	c := s.connect(t)
	ctx := context.Background()
	p := c.Producer(stream, topic, ProducerConfig{})
	m := Message{Payload: make([]byte, 100)}
	if _, err := p.Send(ctx, m); err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	s.on(func(r *fakeRequest) verdict {
		if r.command == wire.CodeSendMessages {
			return verdict{kind: after, wait: release}
		}
		return verdict{}
	})
	for range 2000 { // the window is full from here on: only encoding is measured
		if err := p.Enqueue(ctx, m, nil); err != nil {
			t.Fatal(err)
		}
	}
	n := testing.AllocsPerRun(20_000, func() {
		if err := p.Enqueue(ctx, m, nil); err != nil {
			t.Error(err)
		}
	})
	close(release)
	if n >= 0.5 {
		t.Errorf("%.2f allocations per message", n)
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}
