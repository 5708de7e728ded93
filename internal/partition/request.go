package partition

import (
	"sync/atomic"

	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/wire"
)

// Send is one batch to be appended: a replica.Request. It is made to be reused: set the input fields, submit it, and after
// Done take it back with Reset. It belongs to the submitter until Submit returns nil, then to the shard until Done is
// called (or Submit failed).
//
// Copied and Done are called on the shard's goroutine and must not block. They are plain fields so that a connection sets
// them once per object and a send needs no closure; Owner carries what they need.
type Send struct {
	// Input.
	Client  wire.U128  // header field client, of the identity the request was made under
	User    uint32     // authenticated user
	Request uint64     // header field request; 0 = no identity, no deduplication (HTTP)
	Batch   wire.Batch // verified, see Verify; stamped in place at admission; not touched after Copied
	Owner   any        // the submitter's own

	// Fence, when set, is asked at admission: true refuses the send as not admitted. The submitter raises it in Done after
	// a refusal, so that no younger send of its connection overtakes the refused one (routing G11). nil = no fence.
	Fence *atomic.Bool

	// Memory is what Batch is in. When it is set the log may take it over instead of making a copy, see Given.
	Memory segment.Memory

	// Copied is called exactly once, always before Done: the bytes of Batch are not needed any more, or are the log's. May
	// be nil.
	Copied func(*Send)
	// Done is called exactly once with the result fields set.
	Done func(*Send)

	// Result.
	Err        error  // nil = appended now or earlier; see StatusOf
	BaseOffset uint64 // of the first message; only when Err is nil and NoPosition is false
	Duplicate  bool   // the request was done before
	NoPosition bool   // with Duplicate: the same request id was an offset write, there is no base offset to tell
	Timestamp  uint64 // base timestamp, µs; 0 for a duplicate
	Term       uint64 // of the entry, 0 when none was applied
	Index      uint64 // of the entry, 0 when none was applied
	Given      bool   // the submitter's use of Memory is the log's

	count  uint32
	size   int // of Batch, once it is gone
	copied bool
	summed bool // sums belongs to Batch
	sums   wire.FrameSums
}

// Reset clears input and result but keeps Owner and the two functions. It must be called before an object is used again.
func (s *Send) Reset() {
	*s = Send{Owner: s.Owner, Copied: s.Copied, Done: s.Done, sums: s.sums}
}

// Verify checks Batch as a server does before it admits one (wire.Batch.Verify) and keeps the frame checksums, so that
// stamping on the shard's goroutine need not walk the batch again. Whoever has verified it already may leave it out.
func (s *Send) Verify() error {
	err := s.Batch.VerifyInto(&s.sums)
	s.summed = err == nil
	return err
}

// Size is the number of bytes the request holds; it stays the same after Proposed (replica.Request).
func (s *Send) Size() int {
	if s.Batch == nil {
		return s.size
	}
	return len(s.Batch)
}

// Give lets the log have the batch (replica.Giver).
func (s *Send) Give() segment.Memory {
	s.Given = s.Memory != nil
	return s.Memory
}

// Proposed tells that the log has its own copy of the batch (replica.Request).
func (s *Send) Proposed() {
	if s.copied {
		return
	}
	s.copied = true
	s.size, s.Batch = s.Size(), nil
	if s.Copied != nil {
		s.Copied(s)
	}
}

// Fail ends the request without a result of the state machine (replica.Request).
func (s *Send) Fail(err error) {
	s.Err = err
	s.finish()
}

func (s *Send) finish() {
	s.Proposed()
	if s.Done != nil {
		s.Done(s)
	}
}

// WriteOp is what an OffsetWrite does.
type WriteOp uint8

// Offset writes.
const (
	StoreOffset  WriteOp = iota // set, forward or back (command 121)
	DeleteOffset                // remove (command 122)
	RaiseOffset                 // set unless the stored one is higher: auto-commit of a poll (observed 3)
)

// OffsetWrite stores or deletes the offset of a consumer: a replica.Request, reusable like Send. Ownership of a group's
// partition (5009) is the submitter's check.
type OffsetWrite struct {
	// Input.
	Client  wire.U128
	User    uint32
	Request uint64 // 0 = no identity: auto-commit, HTTP
	Op      WriteOp
	Kind    wire.ConsumerKind
	Key     uint32 // consumer id, XXH32 of its name, or the group's internal id (messages §6)
	Offset  uint64 // not used by DeleteOffset
	Owner   any

	// Done is called exactly once, on the shard's goroutine, with Err, Term and Index set. It must not block.
	Done func(*OffsetWrite)

	// Result.
	Err       error // nil, or see StatusOf: 4100, 3021, 3024, 57, 58 ...
	Duplicate bool  // the request was done before; Err is its result then
	Term      uint64
	Index     uint64

	command int32 // position in the folded entry
}

// offsetWriteSize is what one write counts against the bound of an inbox: the object and its part of an entry.
const offsetWriteSize = 192

// Reset clears input and result but keeps Owner and Done.
func (w *OffsetWrite) Reset() {
	*w = OffsetWrite{Owner: w.Owner, Done: w.Done}
}

// Size is what the request counts for (replica.Request).
func (w *OffsetWrite) Size() int { return offsetWriteSize }

// Proposed does nothing: an offset write lends no memory (replica.Request).
func (w *OffsetWrite) Proposed() {}

// Fail ends the request without a result of the state machine (replica.Request).
func (w *OffsetWrite) Fail(err error) {
	w.Err = err
	w.finish()
}

func (w *OffsetWrite) finish() {
	if w.Done != nil {
		w.Done(w)
	}
}
