package client

import (
	"bytes"
	"context"
	"iter"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// Message is a message to send.
type Message struct {
	// ID is the caller's id. Zero: the client mints one. Servers do not look at it.
	ID wire.U128
	// Payload has 1 to 64,000,000 bytes.
	Payload []byte
	// Headers are the user headers, at most 100,000 bytes encoded; HeadersBytes is
	// the encoded form, used when Headers is empty.
	Headers      wire.Headers
	HeadersBytes []byte
	// Key chooses the partition in a [Producer]; it is not sent.
	Key []byte
	// OriginTimestamp is the producer's time in microseconds since 1970; 0 = now.
	OriginTimestamp uint64
}

// Confirmation says where a message, or the first of several, was appended.
type Confirmation struct {
	Stream, Topic, Partition uint32 // numeric ids
	Offset                   uint64
	// Known: the fields above are set. A server may accept without a position,
	// as a released one does for a duplicate it absorbed.
	Known bool
	// Duplicate: an earlier attempt had been applied; this one was absorbed.
	Duplicate bool
}

// confirmationOf reads a send reply. A reply that cannot be read is still a
// success: the write is committed (messages §4.3).
func confirmationOf(payload []byte) Confirmation {
	var buf [1]wire.SendConfirmation
	s := wire.SendConfirmations{Confirmations: buf[:0]}
	if s.Decode(payload) != nil || len(s.Confirmations) == 0 {
		return Confirmation{}
	}
	f := s.Confirmations[0]
	return Confirmation{Stream: f.StreamID, Topic: f.TopicID, Partition: f.PartitionID, Offset: f.BaseOffset, Known: true}
}

// Received is a message that was polled.
//
// Payload and HeadersBytes point into the reply that brought the message. Unless
// the consumer was told to reuse its buffers (ConsumerConfig.Views) they stay
// valid as long as they are referenced; note that one message then keeps the
// whole reply in memory, see [Received.Clone].
type Received struct {
	wire.MessageView
	Partition uint32
	// CurrentOffset is the offset of the partition's last committed message when
	// the reply was made.
	CurrentOffset uint64

	born incarnation // of the partition that a Consumer read it from
}

// Clone copies the message out of the buffer it points into.
func (r Received) Clone() Received {
	r.Payload = bytes.Clone(r.Payload)
	r.HeadersBytes = bytes.Clone(r.HeadersBytes)
	return r
}

// PollRequest asks for messages of one partition.
type PollRequest struct {
	Stream, Topic wire.Identifier
	Partition     uint32
	// Consumer is who polls. The zero value is the single consumer 0.
	Consumer wire.Consumer
	// Strategy is where to start. The zero value is FromNext.
	Strategy wire.PollingStrategy
	// Count is the most messages to return; 0 = 1000.
	Count uint32
	// AutoCommit stores the offset of the last returned message. Such a poll is
	// never repeated once its bytes left: a lost reply is ErrAutoCommitLost.
	AutoCommit bool
}

// defaultPollCount is how many messages a poll asks for.
const defaultPollCount = 1000

// Polled is the reply to a poll.
type Polled struct {
	wire.PolledMessages
	buf *buffer
}

// Messages walks the messages; they point into the reply.
func (p *Polled) Messages() iter.Seq[Received] {
	return func(yield func(Received) bool) {
		for m := range p.PolledMessages.Messages() {
			if !yield(Received{MessageView: m, Partition: p.PartitionID, CurrentOffset: p.CurrentOffset}) {
				return
			}
		}
	}
}

// Release gives the reply's memory back for reuse. Nothing of the reply may be
// used afterwards. Calling it is optional.
func (p *Polled) Release() {
	if p.buf != nil {
		p.buf.release()
		p.buf, p.Records = nil, nil
	}
}

// Poll reads messages of a partition.
func (c *Client) Poll(ctx context.Context, r PollRequest) (*Polled, error) {
	p := new(Polled)
	if _, err := c.poll(ctx, &r, false, p); err != nil {
		return nil, err
	}
	return p, nil
}

// Send appends messages to one partition in one request and waits until they are
// acknowledged. Balanced partitioning takes the partitions in turn, one request
// each; a key maps to XXH32 of the key modulo the number of partitions. The
// confirmation is that of the first message, the others follow it.
//
// An error that matches ErrNotAdmitted, or any error of the server, means that
// nothing was appended; ErrOutcomeUnknown means that the messages may have been.
func (c *Client) Send(ctx context.Context, stream, topic wire.Identifier, p wire.Partitioning, msgs ...Message) (Confirmation, error) {
	return c.send(ctx, stream, topic, p, msgs)
}

func nowMicros() uint64 { return uint64(time.Now().UnixMicro()) }
