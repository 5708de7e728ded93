package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// TestProducerCloseInFlight: what Close gives up while it is on its way has one
// outcome, whatever the server answers meanwhile. The race detector looks at the
// rest: the lane goes on with the writes.
func TestProducerCloseInFlight(t *testing.T) {
	s := newFake(t, 4)
	c := s.connect(t)
	ctx := within(t, 30*time.Second)
	const messages = 100
	for round := range 60 {
		p := c.Producer(stream, topic, ProducerConfig{BatchMessages: 3 + round%5})
		var told atomic.Int64
		for i := range messages {
			err := p.Enqueue(ctx, Message{Payload: []byte("x"), Key: []byte{byte(i)}}, func(conf Confirmation, err error) {
				told.Add(1)
				if err != nil && conf != (Confirmation{}) {
					t.Errorf("%v, and yet %+v", err, conf)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		short, cancel := context.WithTimeout(ctx, time.Duration(round%6)*50*time.Microsecond)
		_ = p.Close(short)
		cancel()
		if n := told.Load(); n != messages {
			t.Fatalf("%d told of %d", n, messages)
		}
	}
}

// TestProducerCloseMeanwhile: what is accepted while Close runs is sent and told
// before it returns.
func TestProducerCloseMeanwhile(t *testing.T) {
	s := newFake(t, 2)
	c := s.connect(t)
	ctx := within(t, 30*time.Second)
	for round := range 60 {
		p := c.Producer(stream, topic, ProducerConfig{})
		var accepted, told atomic.Int64
		var group sync.WaitGroup
		for g := range 4 {
			group.Go(func() {
				for {
					err := p.Enqueue(ctx, Message{Payload: []byte("x"), Key: []byte{byte(g)}}, func(_ Confirmation, err error) {
						told.Add(1)
						if err != nil {
							t.Errorf("round %d: %v", round, err)
						}
					})
					if err != nil {
						if !errors.Is(err, ErrClosed) {
							t.Error(err)
						}
						return
					}
					accepted.Add(1)
				}
			})
		}
		waitFor(t, "messages", func() bool { return accepted.Load() > int64(round%20) })
		if err := p.Close(ctx); err != nil {
			t.Fatal(err)
		}
		n := told.Load()
		group.Wait()
		if n != accepted.Load() {
			t.Fatalf("round %d: %d accepted, %d told when Close returned", round, accepted.Load(), n)
		}
	}
}

// TestProducerCloseTwice: the second Close waits for the first, so that closing
// the client does not take the connection away from it.
func TestProducerCloseTwice(t *testing.T) {
	s := newFake(t, 1)
	c := s.connect(t)
	ctx := within(t, 10*time.Second)
	release := make(chan struct{})
	s.on(func(r *fakeRequest) verdict {
		if r.command == wire.CodeSendMessages {
			return verdict{kind: after, wait: release}
		}
		return verdict{}
	})
	p := c.Producer(stream, topic, ProducerConfig{})
	if err := p.Enqueue(ctx, text("x"), func(_ Confirmation, err error) {
		if err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	first := make(chan error, 1)
	go func() { first <- p.Close(ctx) }()
	waitFor(t, "Close", p.closed.Load)
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := p.Close(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	if err := p.Flush(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	close(release)
	if err := c.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-first; err != nil {
		t.Fatal(err)
	}
}

// TestProducerCallbackCalls: a callback may call the producer. Flush and Close
// wait for the callback itself, so they end with their context; the callbacks
// behind it are called all the same.
func TestProducerCallbackCalls(t *testing.T) {
	s := newFake(t, 1)
	c := s.connect(t)
	ctx := within(t, 20*time.Second)
	p := c.Producer(stream, topic, ProducerConfig{BatchMessages: 1})
	var told atomic.Int64
	var errs [4]error
	returned := make(chan struct{})
	if err := p.Enqueue(ctx, text("first"), func(Confirmation, error) {
		defer close(returned)
		_, errs[0] = p.Send(ctx, text("sent"))
		for range 5 {
			errs[1] = p.Enqueue(ctx, text("handed over"), func(Confirmation, error) { told.Add(1) })
		}
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		errs[2] = p.Flush(short)
		errs[3] = p.Close(short)
	}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-returned:
	case <-ctx.Done():
		t.Fatal("the callback hangs")
	}
	if errs[0] != nil || errs[1] != nil || !errors.Is(errs[2], context.DeadlineExceeded) || !errors.Is(errs[3], context.DeadlineExceeded) {
		t.Fatalf("Send: %v, Enqueue: %v, Flush: %v, Close: %v", errs[0], errs[1], errs[2], errs[3])
	}
	<-p.stopped
	if n := told.Load(); n != 5 {
		t.Fatalf("%d told", n)
	}
}
