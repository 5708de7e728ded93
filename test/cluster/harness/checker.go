package harness

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/wire"
)

// Outcome is what the caller of a send was told.
type Outcome uint8

// Outcomes of a send.
const (
	// Pending: the caller was told nothing yet. For the checker the message may be there or not.
	Pending Outcome = iota
	// Acknowledged: the message must be there, once.
	Acknowledged
	// Refused: the message must not be there.
	Refused
	// Unknown: the message may be there, at most once.
	Unknown
)

// String names the outcome.
func (o Outcome) String() string {
	return [...]string{"pending", "acknowledged", "refused", "unknown"}[o&3]
}

// OutcomeOf tells what an error of a client's send says about the messages. An error that says nothing is Unknown.
func OutcomeOf(err error) Outcome {
	var code wire.ErrorCode
	switch {
	case err == nil:
		return Acknowledged
	case errors.Is(err, client.ErrOutcomeUnknown):
		return Unknown
	case errors.Is(err, client.ErrNotAdmitted), errors.Is(err, client.ErrBlocked), errors.Is(err, client.ErrMessageTooLarge):
		return Refused
	case errors.As(err, &code):
		if code == wire.ErrTransientNotCommitted {
			return Unknown
		}
		return Refused // the client's contract: any error of the server means that nothing was appended
	}
	return Unknown
}

// sent is what is known of one message.
type sent struct {
	outcome Outcome
	known   bool // offset is the one that was acknowledged
	offset  uint64
}

// lane is what one producer sent to one partition.
type lane struct {
	messages []sent // by sequence
}

type laneKey struct{ producer, partition uint32 }

// Record is one send, of one or several messages, as the caller saw it.
type Record struct {
	Key        // of the first message
	Messages   int
	Start, End time.Duration // since the checker was made
	Outcome    Outcome
	Err        error
}

// Took is how long the caller waited.
func (r *Record) Took() time.Duration { return r.End - r.Start }

// Checker keeps what was sent and what became of it, and compares logs with that. All methods may be called concurrently.
type Checker struct {
	began time.Time

	mu        sync.Mutex
	producers uint32
	lanes     map[laneKey]*lane
	records   []Record
	open      int // sends without an outcome
}

// NewChecker starts a history.
func NewChecker() *Checker {
	return &Checker{began: time.Now(), lanes: map[laneKey]*lane{}}
}

// Producer gives the next producer's number. Order is checked per producer and partition, so a producer is one goroutine
// that sends, or one client.Producer that is called by one goroutine.
func (c *Checker) Producer() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.producers++
	return c.producers
}

// Send is a send under way.
type Send struct {
	checker *Checker
	record  Record
	// Messages to send, in this order.
	Messages []wire.Message
}

// Begin makes the messages of a producer's next send to a partition. Calls of one producer must be in the order of its
// sends. End must be called with the outcome, unless the caller dies with it.
func (c *Checker) Begin(producer, partition uint32, count, size int) *Send {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lanes[laneKey{producer, partition}]
	if l == nil {
		l = &lane{}
		c.lanes[laneKey{producer, partition}] = l
	}
	first := Key{Producer: producer, Partition: partition, Sequence: uint64(len(l.messages))}
	s := &Send{checker: c, record: Record{Key: first, Messages: count, Start: time.Since(c.began)}}
	for i := range count {
		k := first
		k.Sequence += uint64(i)
		s.Messages = append(s.Messages, k.message(size))
		l.messages = append(l.messages, sent{})
	}
	c.open++
	return s
}

// ClientMessages are the messages in the form of the Go client.
func (s *Send) ClientMessages() []client.Message {
	out := make([]client.Message, len(s.Messages))
	for i, m := range s.Messages {
		out[i] = client.Message{ID: m.ID, Payload: m.Payload}
	}
	return out
}

// End says how the send ended. offset is that of the first message when it is known.
func (s *Send) End(outcome Outcome, known bool, offset uint64, err error) Record {
	c := s.checker
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lanes[laneKey{s.record.Producer, s.record.Partition}]
	for i := range s.record.Messages {
		m := &l.messages[s.record.Sequence+uint64(i)]
		*m = sent{outcome: outcome, known: known && outcome == Acknowledged, offset: offset + uint64(i)}
	}
	s.record.End, s.record.Outcome, s.record.Err = time.Since(c.began), outcome, err
	c.records = append(c.records, s.record)
	c.open--
	return s.record
}

// Confirm ends a send of the Go client.
func (s *Send) Confirm(conf client.Confirmation, err error) Record {
	return s.End(OutcomeOf(err), conf.Known, conf.Offset, err)
}

// Records are the sends that ended, in the order in which they did.
func (c *Checker) Records() []Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Record(nil), c.records...)
}

// Now is the time on the clock of the records.
func (c *Checker) Now() time.Duration { return time.Since(c.began) }

// Logged is a message of a partition's log.
type Logged struct {
	Offset  uint64
	ID      wire.U128
	Payload []byte
}

// maxFaults bounds what one check reports.
const maxFaults = 20

// Check compares a partition's whole log, from its first message to its last, with the history. Sends may still be under
// way; what is not acknowledged yet may be there or not. The error joins everything that is wrong.
func (c *Checker) Check(partition uint32, log []Logged) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var faults []error
	fault := func(format string, args ...any) {
		if len(faults) < maxFaults {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	type place struct {
		offset uint64
		times  int
	}
	found := map[Key]place{}
	newest := map[uint32]Key{} // of a producer, so far in the log
	for i, m := range log {
		if want := log[0].Offset + uint64(i); m.Offset != want {
			fault("offsets: %d where %d is due", m.Offset, want)
		}
		k, err := readPayload(m.ID, m.Payload)
		if err != nil {
			fault("altered: offset %d: %w", m.Offset, err)
			continue
		}
		l := c.lanes[laneKey{k.Producer, k.Partition}]
		if l == nil || k.Sequence >= uint64(len(l.messages)) || k.Partition != partition {
			fault("stranger: offset %d holds %s, which was not sent there", m.Offset, k)
			continue
		}
		p := found[k]
		p.times++
		if p.times > 1 {
			fault("duplicate: %s is at offset %d and at offset %d", k, p.offset, m.Offset)
			found[k] = p
			continue
		}
		p.offset = m.Offset
		found[k] = p
		s := l.messages[k.Sequence]
		if s.outcome == Refused {
			fault("refused: %s is at offset %d although its caller was told that it is not there", k, m.Offset)
		}
		if s.known && s.offset != m.Offset {
			fault("moved: %s is at offset %d, acknowledged was %d", k, m.Offset, s.offset)
		}
		if before, ok := newest[k.Producer]; ok && before.Sequence > k.Sequence {
			fault("reordered: %s is at offset %d, behind %s", k, m.Offset, before)
		} else {
			newest[k.Producer] = k
		}
	}
	for lk, l := range c.lanes {
		if lk.partition != partition {
			continue
		}
		for i, s := range l.messages {
			k := Key{lk.producer, lk.partition, uint64(i)}
			if _, ok := found[k]; s.outcome == Acknowledged && !ok {
				fault("lost: %s was acknowledged (offset %d, known %v) and is not in the log of %d messages", k, s.offset, s.known, len(log))
			}
		}
	}
	if len(faults) == maxFaults {
		faults = append(faults, errors.New("and more"))
	}
	return errors.Join(faults...)
}

// Partitions that messages were sent to.
func (c *Checker) Partitions() []uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := map[uint32]bool{}
	var out []uint32
	for k := range c.lanes {
		if !seen[k.partition] {
			seen[k.partition] = true
			out = append(out, k.partition)
		}
	}
	return out
}

// acknowledged is the end of what was acknowledged in a partition: one more than its highest known offset.
func (c *Checker) acknowledged(partition uint32) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var end uint64
	for k, l := range c.lanes {
		if k.partition != partition {
			continue
		}
		for _, s := range l.messages {
			if s.known {
				end = max(end, s.offset+1)
			}
		}
	}
	return end
}
