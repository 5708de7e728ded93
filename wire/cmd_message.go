package wire

import "iter"

// PollMessages asks for messages (100, commands §3.9). Answer: PolledMessages.
// Decoded names borrow from the input.
type PollMessages struct {
	Consumer      Consumer
	Stream, Topic Identifier
	Partition     OptionalPartition
	Strategy      PollingStrategy
	Count         uint32
	AutoCommit    bool
}

// Code is CodePollMessages.
func (*PollMessages) Code() Code { return CodePollMessages }

// AppendRoutingKey appends the bytes that a route is cached by: everything up to
// and including the partition (framing §6.4).
func (p *PollMessages) AppendRoutingKey(dst []byte) []byte {
	return p.Partition.Append(p.Topic.Append(p.Stream.Append(p.Consumer.Append(dst))))
}

// Append encodes the body.
func (p *PollMessages) Append(dst []byte) []byte {
	dst = p.Strategy.Append(p.AppendRoutingKey(dst))
	return appendBool(le.AppendUint32(dst, p.Count), p.AutoCommit)
}

// Decode reads the body without allocating; names alias src.
func (p *PollMessages) Decode(src []byte) error {
	r := reader{b: src, borrow: true}
	p.Consumer = r.consumer()
	p.Stream = r.ident("stream id")
	p.Topic = r.ident("topic id")
	p.Partition = r.optionalPartition()
	p.Strategy = r.strategy()
	p.Count = r.u32()
	p.AutoCommit = r.bool()
	return r.err()
}

// GetPollRouting asks for the primary that serves the poll (103). The body is
// that of the poll, with AutoCommit set. Answer: Route.
type GetPollRouting struct {
	PollMessages
}

// Code is CodeGetPollRouting.
func (*GetPollRouting) Code() Code { return CodeGetPollRouting }

// PollMessagesOnPrimary polls on the partition's primary with the attached
// identity (104). The body is that of the poll. Answer: PolledMessages.
type PollMessagesOnPrimary struct {
	PollMessages
}

// Code is CodePollMessagesOnPrimary.
func (*PollMessagesOnPrimary) Code() Code { return CodePollMessagesOnPrimary }

// Special partition ids of an empty poll (messages §5.2).
const (
	// PollResync: the group fence refused this member; sync the assignment.
	PollResync uint32 = 1<<32 - 1
	// PollNoPartition: the member holds no partition. Made by clients for
	// themselves, never on the wire.
	PollNoPartition uint32 = 1<<32 - 2
)

// PollReplyPrefix is the size of the fields in front of the records.
const PollReplyPrefix = 16

// PolledMessages answers PollMessages and PollMessagesOnPrimary. Records are
// the batches back to back; decoded, they alias the input.
type PolledMessages struct {
	PartitionID   uint32
	CurrentOffset uint64 // of the partition's last committed message
	Count         uint32 // messages over all records
	Records       []byte
}

// AppendPollPrefix appends the 16 bytes in front of the records, for servers
// that send the records from elsewhere.
func AppendPollPrefix(dst []byte, partition uint32, currentOffset uint64, count uint32) []byte {
	dst = le.AppendUint32(dst, partition)
	dst = le.AppendUint64(dst, currentOffset)
	return le.AppendUint32(dst, count)
}

// Append encodes the payload.
func (p *PolledMessages) Append(dst []byte) []byte {
	return append(AppendPollPrefix(dst, p.PartitionID, p.CurrentOffset, p.Count), p.Records...)
}

// Decode reads the payload without allocating. Every record must be laid out
// exactly, with zero reserved bytes, and the counts must agree; checksums are
// not verified, as released clients do not.
func (p *PolledMessages) Decode(src []byte) error {
	r := reader{b: src}
	p.PartitionID = r.u32()
	p.CurrentOffset = r.u64()
	p.Count = r.u32()
	p.Records = r.rest()
	if r.fail != nil {
		return r.fail
	}
	var n uint64
	for rest := p.Records; len(rest) > 0; {
		b, tail, err := ParseBatch(rest)
		if err != nil {
			return err
		}
		if err := b.CheckFrames(); err != nil {
			return err
		}
		n += uint64(b.Count())
		rest = tail
	}
	if n != uint64(p.Count) {
		return invalid("poll reply announces "+utoa(uint64(p.Count))+" messages, records hold "+utoa(n), 12)
	}
	return nil
}

// Batches walks the records of a decoded reply.
func (p *PolledMessages) Batches() iter.Seq[Batch] {
	return func(yield func(Batch) bool) {
		for rest := p.Records; len(rest) > 0; {
			b, tail, err := ParseBatch(rest)
			if err != nil || !yield(b) {
				return
			}
			rest = tail
		}
	}
}

// Messages walks the messages of all records of a decoded reply.
func (p *PolledMessages) Messages() iter.Seq[MessageView] {
	return func(yield func(MessageView) bool) {
		for rest := p.Records; len(rest) > 0; {
			b, tail, err := ParseBatch(rest)
			if err != nil {
				return
			}
			w := b.walk()
			for {
				m, ok := w.next()
				if !ok {
					break
				}
				if !yield(m) {
					return
				}
			}
			rest = tail
		}
	}
}

// SendMessages appends a batch to a partition (101, commands §3.10). Answer:
// SendConfirmations, or an empty payload for a duplicate. Decoded names, key
// and batch alias the input.
type SendMessages struct {
	Stream, Topic Identifier
	Partitioning  Partitioning
	Batch         Batch
}

// Code is CodeSendMessages.
func (*SendMessages) Code() Code { return CodeSendMessages }

// AppendPrefix appends everything in front of the batch, for senders that keep
// the batch in a buffer of its own.
func (s *SendMessages) AppendPrefix(dst []byte) []byte {
	at := len(dst)
	dst = le.AppendUint32(dst, 0)
	dst = s.Partitioning.Append(s.Topic.Append(s.Stream.Append(dst)))
	dst = le.AppendUint32(dst, s.Batch.Count())
	le.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

// Append encodes the body.
func (s *SendMessages) Append(dst []byte) []byte { return append(s.AppendPrefix(dst), s.Batch...) }

// Decode reads the body without allocating. It checks the layout of metadata
// and batch header and that the counts agree; Batch.Verify checks the frames
// and both checksums.
func (s *SendMessages) Decode(src []byte) error {
	r := reader{b: src}
	n := r.u32()
	if r.fail == nil && uint64(n) > uint64(r.left()) {
		r.fail = eof("send metadata", 4, int(n), r.left())
	}
	if r.fail != nil {
		return r.fail
	}
	m := reader{b: src[:4+int(n)], off: 4, borrow: true}
	s.Stream = m.ident("stream id")
	s.Topic = m.ident("topic id")
	s.Partitioning = m.partitioning()
	count := m.u32()
	if m.fail == nil && m.left() != 0 {
		m.fail = invalid("send metadata has "+utoa(uint64(m.left()))+" bytes too many", m.off)
	}
	if m.fail != nil {
		return m.fail
	}
	b, rest, err := ParseBatch(src[m.off:])
	if err != nil {
		return err
	}
	switch {
	case len(rest) != 0:
		return invalid("bytes behind the batch", len(src)-len(rest))
	case count == 0:
		return invalid("batch without messages", m.off-4)
	case count != b.Count():
		return invalid("messages_count differs from the batch", m.off-4)
	case b.FirstDelta() != 0:
		return invalid("offset deltas of a send must start at 0", m.off+BatchHeaderSize+offMsgDelta)
	}
	s.Batch = b
	return nil
}

// SendConfirmation is where a batch was appended.
type SendConfirmation struct {
	StreamID, TopicID, PartitionID uint32
	BaseOffset                     uint64 // of the first message
}

// SendConfirmations answers SendMessages. Decoding reuses the list.
type SendConfirmations struct {
	Confirmations []SendConfirmation
}

// Append encodes the payload.
func (s *SendConfirmations) Append(dst []byte) []byte {
	dst = le.AppendUint32(dst, uint32(len(s.Confirmations)))
	for i := range s.Confirmations {
		dst = s.Confirmations[i].append(dst)
	}
	return dst
}

// AppendConfirmation encodes the payload of one confirmation.
func AppendConfirmation(dst []byte, c SendConfirmation) []byte {
	return c.append(le.AppendUint32(dst, 1))
}

func (c SendConfirmation) append(dst []byte) []byte {
	dst = le.AppendUint32(dst, c.StreamID)
	dst = le.AppendUint32(dst, c.TopicID)
	dst = le.AppendUint32(dst, c.PartitionID)
	return le.AppendUint64(dst, c.BaseOffset)
}

// Decode reads the payload. An empty payload has no confirmation: a duplicate of
// a committed request. An error must not be reported as a failed send, because
// the write is already committed (messages §4.3).
func (s *SendConfirmations) Decode(src []byte) error {
	s.Confirmations = s.Confirmations[:0]
	if len(src) == 0 {
		return nil
	}
	r := reader{b: src}
	n := r.count("confirmations", 20)
	for range n {
		s.Confirmations = append(s.Confirmations, SendConfirmation{r.u32(), r.u32(), r.u32(), r.u64()})
	}
	if r.fail == nil && r.left() != 0 {
		r.fail = invalid("send reply has "+utoa(uint64(r.left()))+" trailing bytes", r.off)
	}
	return r.err()
}
