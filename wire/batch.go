package wire

// Sizes and offsets of a batch (messages §1.1, §1.2).
const (
	// BatchHeaderSize is the size of a batch header.
	BatchHeaderSize = 256
	// MessageHeaderSize is the size of the header of a message frame.
	MessageHeaderSize = 48
	// BatchReservedOffset is where the reserved bytes of a batch header start.
	// They are zero on the wire and not covered by the batch checksum; a log may
	// keep its own stamp there and must clear it before it serves the batch.
	BatchReservedOffset = 52
	// MaxPayloadSize is the largest payload of a message.
	MaxPayloadSize = 64_000_000

	offBatchPartition = 0
	offBatchOffset    = 8
	offBatchTime      = 16
	offBatchOrigin    = 24
	offBatchLength    = 32
	offBatchChecksum  = 40
	offBatchCount     = 48

	offMsgID       = 8
	offMsgDelta    = 24
	offMsgTime     = 28
	offMsgHeaders  = 32
	offMsgPayload  = 36
	offMsgReserved = 40
)

// Batch is a view of one batch: its 256-byte header and its message frames, the
// same bytes in a send, in the log and in a poll reply. The accessors need at
// least a whole header, which ParseBatch makes sure of; on a shorter slice they
// give 0.
type Batch []byte

func (b Batch) u64(off int) uint64 {
	if len(b) < BatchHeaderSize {
		return 0
	}
	return le.Uint64(b[off:])
}

// PartitionID is the partition, 0 before it is stamped.
func (b Batch) PartitionID() uint64 { return b.u64(offBatchPartition) }

// BaseOffset is the offset of the first message of the batch as it was appended.
// A served slice starts at FirstOffset instead.
func (b Batch) BaseOffset() uint64 { return b.u64(offBatchOffset) }

// BaseTimestamp is the time of the append, in microseconds.
func (b Batch) BaseTimestamp() uint64 { return b.u64(offBatchTime) }

// OriginTimestamp is the smallest origin timestamp of the messages.
func (b Batch) OriginTimestamp() uint64 { return b.u64(offBatchOrigin) }

// Length is the number of bytes, header and frames, as the header says.
func (b Batch) Length() uint64 { return b.u64(offBatchLength) }

// Checksum is the batch checksum.
func (b Batch) Checksum() uint64 { return b.u64(offBatchChecksum) }

// Count is the number of messages.
func (b Batch) Count() uint32 {
	if len(b) < BatchHeaderSize {
		return 0
	}
	return le.Uint32(b[offBatchCount:])
}

// FirstDelta is the offset delta of the first frame: 0 unless b is a slice.
func (b Batch) FirstDelta() uint32 {
	if len(b) < BatchHeaderSize+MessageHeaderSize {
		return 0
	}
	return le.Uint32(b[BatchHeaderSize+offMsgDelta:])
}

// FirstOffset is the offset of the first message in b.
func (b Batch) FirstOffset() uint64 { return b.BaseOffset() + uint64(b.FirstDelta()) }

// LastOffset is the offset of the last message in b; b must not be empty.
func (b Batch) LastOffset() uint64 { return b.FirstOffset() + uint64(b.Count()) - 1 }

// Frames are the message frames behind the header.
func (b Batch) Frames() []byte { return b[BatchHeaderSize:] }

// Reserved are the reserved bytes of the header, for a log's own stamp.
func (b Batch) Reserved() []byte { return b[BatchReservedOffset:BatchHeaderSize] }

// ClearReserved zeroes the reserved bytes. The checksums stay valid.
func (b Batch) ClearReserved() { clear(b.Reserved()) }

// ParseBatch cuts one batch off b and gives what follows it. It checks the
// header's layout (length, zero reserved bytes), not the frames: see CheckFrames
// and Verify.
func ParseBatch(b []byte) (batch Batch, rest []byte, err error) {
	batch, rest, err = ParseStoredBatch(b)
	if err == nil && !allZero(batch.Reserved()) {
		return nil, b, invalid("batch header reserved bytes must be zero", BatchReservedOffset)
	}
	return batch, rest, err
}

// ParseStoredBatch is ParseBatch for a log that keeps a stamp in the reserved
// bytes: it does not look at them.
func ParseStoredBatch(b []byte) (batch Batch, rest []byte, err error) {
	if len(b) < BatchHeaderSize {
		return nil, b, eof("batch header", 0, BatchHeaderSize, len(b))
	}
	n := le.Uint64(b[offBatchLength:])
	if n < BatchHeaderSize {
		return nil, b, invalid("batch length must cover the batch header", offBatchLength)
	}
	if n > uint64(len(b)) {
		return nil, b, eof("batch", 0, int(min(n, 1<<62)), len(b))
	}
	return Batch(b[:n:n]), b[n:], nil
}

// walker steps through the frames. After the last step, off equals len(b) exactly
// when the frames tile the batch.
type walker struct {
	b   []byte
	off int
}

// frame gives the next frame, or nil at the end or at a frame that does not fit
// or has nonzero reserved bytes.
func (w *walker) frame() []byte {
	b := w.b[w.off:]
	if len(b) < MessageHeaderSize {
		return nil
	}
	n := MessageHeaderSize + uint64(le.Uint32(b[offMsgPayload:])) + uint64(le.Uint32(b[offMsgHeaders:]))
	if n > uint64(len(b)) || le.Uint64(b[offMsgReserved:]) != 0 {
		return nil
	}
	w.off += int(n)
	return b[:n:n]
}

var errTiling = &DecodeError{Kind: ErrValidation, What: "batch frames do not tile message_count exactly", Offset: BatchHeaderSize}

var errDeltas = &DecodeError{Kind: ErrValidation, What: "offset deltas of a batch must be consecutive", Offset: BatchHeaderSize}

// CheckFrames checks that the frames fill the batch exactly, that there are as
// many as the header says and that their reserved bytes are zero: what a reader
// needs, and no more, so that a batch that was admitted can always be read.
func (b Batch) CheckFrames() error {
	w := walker{b, BatchHeaderSize}
	for range b.Count() {
		if w.frame() == nil {
			return errTiling
		}
	}
	if w.off != len(b) {
		return errTiling
	}
	return nil
}
