package client

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
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
