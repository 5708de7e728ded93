package bench

import (
	"errors"
	"fmt"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// Kinds of runs.
const (
	Produce = "produce"
	Consume = "consume"
	Mixed   = "mixed"
)

// Ways to send: one request per call, or messages through the batching producer.
const (
	APISend     = "send"
	APIProducer = "producer"
)

// Plan says what one run does. Rates and counts are over all producers or consumers together.
type Plan struct {
	Kind          string  `json:"kind"`
	Stream        string  `json:"stream"`
	Topic         string  `json:"topic"`
	Partitions    uint32  `json:"partitions"`
	Durability    string  `json:"durability"` // replicated or persisted
	Producers     int     `json:"producers"`  // each with a connection of its own
	Consumers     int     `json:"consumers"`
	BatchMessages int     `json:"batch_messages"`
	MessageBytes  int     `json:"message_bytes"` // payload
	InFlight      int     `json:"in_flight"`     // unanswered requests per connection
	Rate          float64 `json:"rate"`          // messages per second offered; 0 = as fast as it goes
	API           string  `json:"api"`
	PollMessages  uint32  `json:"poll_messages"` // messages asked for by one poll
	// The run ends after Duration, or after Messages when that is not 0.
	Duration Seconds `json:"duration_s"`
	Messages uint64  `json:"messages"`
	WarmUp   Seconds `json:"warm_up_s"` // runs before counting starts
	// Fill is how many messages a consume run puts into the topic first; Cold drops their files from the page cache.
	Fill uint64 `json:"fill"`
	Cold bool   `json:"cold"`
}

// Seconds is a duration that JSON writes in seconds.
type Seconds time.Duration

// MarshalJSON writes the seconds as a number.
func (s Seconds) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "%g", time.Duration(s).Seconds()), nil
}

// Check reports the first thing that is wrong with the plan.
func (p *Plan) Check() error {
	positive := func(what string, n int) error {
		if n < 1 {
			return fmt.Errorf("%s must be 1 or more", what)
		}
		return nil
	}
	var errs []error
	if p.Kind != Consume {
		errs = append(errs, positive("producers", p.Producers))
	}
	if p.Kind != Produce {
		errs = append(errs, positive("consumers", p.Consumers), positive("messages per poll", int(p.PollMessages)))
	}
	errs = append(errs, positive("partitions", int(p.Partitions)), positive("messages per batch", p.BatchMessages),
		positive("bytes per message", p.MessageBytes), positive("requests in flight", p.InFlight))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	batch := (p.MessageBytes+wire.MessageHeaderSize)*p.BatchMessages + wire.BatchHeaderSize
	switch {
	case p.Partitions > wire.MaxPartitionsPerRequest:
		return fmt.Errorf("at most %d partitions", wire.MaxPartitionsPerRequest)
	case p.MessageBytes > wire.MaxPayloadSize:
		return fmt.Errorf("at most %d bytes per message", wire.MaxPayloadSize)
	case batch > wire.DefaultMaxFrame-4096:
		return fmt.Errorf("a batch of %d bytes does not fit a frame of %d", batch, wire.DefaultMaxFrame)
	case p.InFlight > 16:
		return errors.New("at most 16 requests in flight per connection")
	case p.Rate < 0:
		return errors.New("the rate must not be negative")
	case p.Duration <= 0 && p.Messages == 0:
		return errors.New("give a duration or a number of messages")
	}
	return nil
}
