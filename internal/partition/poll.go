package partition

import (
	"errors"
	"fmt"

	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/wire"
)

// MaxPollBytes is the most that the records of a poll reply take: the frame limit of 64 MiB less the frame header and the
// head of the reply (observed 14). A single message is served whatever its size.
const MaxPollBytes = 64<<20 - 256 - 16

// Poll errors.
var (
	// ErrStrategy says that a query names a strategy that does not exist.
	ErrStrategy = errors.New("partition: unknown poll strategy")
	// ErrClosed says that the partition has no log (not restored yet).
	ErrClosed = errors.New("partition: no log")
)

// PollQuery asks for committed messages.
type PollQuery struct {
	Strategy wire.PollingStrategy
	Count    uint32 // most messages; 0 = an empty result
	MaxBytes int    // most bytes of records, 0 = MaxPollBytes; a first message above it is served alone

	// Kind and Key name the consumer whose stored offset StrategyNext continues.
	Kind wire.ConsumerKind
	Key  uint32
}

// PollResult is the answer to a query, made to be reused: Release, then the next Poll.
type PollResult struct {
	CurrentOffset uint64 // newest committed offset, 0 in an empty partition
	Count         uint32 // messages
	First, Last   uint64 // offsets of the first and last message, when Count > 0; Last is what auto-commit stores
	Bytes         int    // length of all records

	buffer segment.ReadBuffer
}

// Records are the records as a consumer sees them, in pieces for one vectored write: valid until Release, not to be
// changed.
func (r *PollResult) Records() [][]byte {
	if r.Count == 0 {
		return nil
	}
	return r.buffer.Records()
}

// Release gives the memory of the records back. The result is empty then.
func (r *PollResult) Release() {
	r.buffer.Release()
	r.CurrentOffset, r.Count, r.First, r.Last, r.Bytes = 0, 0, 0, 0, 0
}

// Poll reads committed messages into out, from any goroutine. Nothing to read is an empty result with the current offset.
// It does not store anything: with auto-commit the caller submits an OffsetWrite that raises the offset to out.Last.
func (p *Replica) Poll(q PollQuery, out *PollResult) error {
	out.Release()
	if q.Strategy.Kind < wire.StrategyOffset || q.Strategy.Kind > wire.StrategyNext {
		return fmt.Errorf("%w %d", ErrStrategy, q.Strategy.Kind)
	}
	log := p.log.Load()
	if log == nil {
		return ErrClosed
	}
	if q.MaxBytes <= 0 {
		q.MaxBytes = MaxPollBytes
	}
	for {
		// The purge generation is read before the limit and again after the messages. A purge stores next (0) before the
		// generation, and the log shows the new generation later still; so an unchanged generation means that the limit
		// belonged to the messages, and nothing uncommitted was read.
		generation := p.generation.Load()
		next := p.next.Load()
		if next > 0 {
			out.CurrentOffset = next - 1
		}
		if err := p.poll(log, q, next, out); err != nil {
			return fmt.Errorf("poll partition %d/%d/%d: %w", p.cfg.Stream, p.cfg.Topic, p.cfg.Partition, err)
		}
		if p.generation.Load() == generation {
			return nil
		}
		out.Release()
	}
}

func (p *Replica) poll(log *segment.Log, q PollQuery, next uint64, out *PollResult) error {
	if q.Count == 0 || next == 0 {
		return nil
	}
	var from uint64
	switch q.Strategy.Kind {
	case wire.StrategyOffset:
		from = q.Strategy.Value
	case wire.StrategyTimestamp:
		offset, ok, err := log.OffsetAtTime(q.Strategy.Value)
		if err != nil || !ok {
			return err
		}
		from = offset
	case wire.StrategyFirst:
	case wire.StrategyLast:
		from = next - min(next, uint64(q.Count))
	case wire.StrategyNext:
		if stored, ok := p.offsets.get(offsetKey{q.Kind, q.Key}); ok {
			from = stored + 1
		}
	}
	from = max(from, p.keep.Load())
	if from >= next {
		return nil
	}
	if err := log.Read(&out.buffer, from, q.Count, q.MaxBytes, next); err != nil {
		return err
	}
	b := &out.buffer
	out.Count, out.First, out.Last, out.Bytes = b.Count, b.First, b.Last, b.Bytes
	return nil
}

// Offset is the committed offset of a consumer or group, from any goroutine; false when none is stored.
func (p *Replica) Offset(kind wire.ConsumerKind, key uint32) (uint64, bool) {
	return p.offsets.get(offsetKey{kind, key})
}

// LowestOffset is the smallest stored offset of all consumers and groups, from any goroutine; false when none is stored.
// Retention must not pass it.
func (p *Replica) LowestOffset() (uint64, bool) { return p.offsets.lowest() }

// CurrentOffset is the newest committed offset, from any goroutine; 0 in an empty partition, as the protocol has it.
func (p *Replica) CurrentOffset() uint64 {
	next := p.next.Load()
	return next - min(next, 1)
}

// Stats are figures of a partition for the statistics of its topic.
type Stats struct {
	Messages      uint64 // committed and retained
	Bytes         uint64 // of the batches in the log
	Segments      uint32 // with data, plus the active one
	FirstOffset   uint64 // oldest retained message; NextOffset when there is none
	NextOffset    uint64 // of the next message to be committed
	CurrentOffset uint64 // NextOffset-1, 0 in an empty partition
	Generation    uint64 // of the newest purge
}

// Stats may be called from any goroutine. The fields are read one after the other; they agree while nothing is written.
func (p *Replica) Stats() Stats {
	s := Stats{
		Segments:      1,
		FirstOffset:   p.keep.Load(),
		Generation:    p.generation.Load(),
		CurrentOffset: p.CurrentOffset(),
	}
	if log := p.log.Load(); log != nil {
		s.Bytes = uint64(max(0, log.Size()))
		s.Segments = uint32(log.SegmentCount())
		s.FirstOffset = max(s.FirstOffset, log.FirstOffset())
	}
	s.NextOffset = p.next.Load()
	s.FirstOffset = min(s.FirstOffset, s.NextOffset)
	s.Messages = s.NextOffset - s.FirstOffset
	return s
}
