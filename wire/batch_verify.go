package wire

import (
	"sync"

	"github.com/zeebo/xxh3"
)

// FrameSums is the input of a batch checksum: the 44 hashed header bytes and the
// checksum of every frame. VerifyInto collects it, StampFrom uses it, so that a
// batch is walked only once between its arrival and its append. The zero value is
// ready; it is reused without allocating once it has grown.
type FrameSums struct {
	buf []byte
}

// sumsHeader is the number of header bytes in front of the frame checksums: the
// header's first 40 bytes and the count.
const sumsHeader = 44

// Len is the number of frames collected.
func (s *FrameSums) Len() int { return max(0, len(s.buf)-sumsHeader) / 8 }

// begin starts collecting for n frames.
func (s *FrameSums) begin(n int) {
	if need := sumsHeader + 8*n; cap(s.buf) < need {
		s.buf = make([]byte, need)
	} else {
		s.buf = s.buf[:need]
	}
}

func (s *FrameSums) add(i int, sum uint64) { le.PutUint64(s.buf[sumsHeader+8*i:], sum) }

// hash gives the batch checksum for the fields in this header.
func (s *FrameSums) hash(header []byte) uint64 {
	copy(s.buf, header[:40])
	copy(s.buf[40:], header[offBatchCount:offBatchCount+4])
	return xxh3.Hash(s.buf)
}

// maxPooledSums bounds what the pool keeps: larger buffers belong to batches of
// more than 32,000 messages.
const maxPooledSums = 256 << 10

var sumsPool = sync.Pool{New: func() any { return new(FrameSums) }}

func putSums(s *FrameSums) {
	if cap(s.buf) <= maxPooledSums {
		sumsPool.Put(s)
	}
}

// Verify checks everything that a server checks before it admits a batch
// (messages §1.3): the layout (as CheckFrames), consecutive offset deltas, on
// which offsets in the log rest (commands §3.10), then the batch checksum
// (ErrInvalidBatchChecksum), then every message checksum
// (ErrInvalidMessageChecksum). It reads the batch once.
func (b Batch) Verify() error {
	s := sumsPool.Get().(*FrameSums)
	err := b.VerifyInto(s)
	putSums(s)
	return err
}

// VerifyInto is Verify that keeps the frame checksums for StampFrom.
func (b Batch) VerifyInto(s *FrameSums) error {
	n := int(b.Count())
	if len(b) < BatchHeaderSize || n > (len(b)-BatchHeaderSize)/MessageHeaderSize {
		return errTiling
	}
	s.begin(n)
	w := walker{b, BatchHeaderSize}
	delta := b.FirstDelta()
	damaged := false
	for i := range n {
		f := w.frame()
		if f == nil {
			return errTiling
		}
		if le.Uint32(f[offMsgDelta:]) != delta+uint32(i) {
			return errDeltas
		}
		sum := le.Uint64(f)
		damaged = damaged || sum != xxh3.Hash(f[offMsgID:])
		s.add(i, sum)
	}
	if w.off != len(b) {
		return errTiling
	}
	if s.hash(b) != b.Checksum() {
		return ErrInvalidBatchChecksum
	}
	if damaged {
		return ErrInvalidMessageChecksum
	}
	return nil
}

// VerifyMessages checks only the layout and the message checksums: what a client
// can check of a served record.
func (b Batch) VerifyMessages() error {
	w := walker{b, BatchHeaderSize}
	for range b.Count() {
		f := w.frame()
		if f == nil {
			return errTiling
		}
		if le.Uint64(f) != xxh3.Hash(f[offMsgID:]) {
			return ErrInvalidMessageChecksum
		}
	}
	if w.off != len(b) {
		return errTiling
	}
	return nil
}

// collect gathers the stored frame checksums. The frames must be known to tile;
// it reports whether they do.
func (b Batch) collect(s *FrameSums) bool {
	n := int(b.Count())
	if n > (len(b)-BatchHeaderSize)/MessageHeaderSize {
		return false
	}
	s.begin(n)
	w := walker{b, BatchHeaderSize}
	for i := range n {
		f := w.frame()
		if f == nil {
			return false
		}
		s.add(i, le.Uint64(f))
	}
	return w.off == len(b)
}

// Stamp writes partition, offset and time into the header and recomputes the
// batch checksum (messages §1.1). The batch must have passed CheckFrames or
// Verify. Frames are not changed.
func (b Batch) Stamp(partition uint32, baseOffset, baseTimestamp uint64) {
	b.setStamp(partition, baseOffset, baseTimestamp)
	b.rehash()
}

// StampFrom is Stamp with the checksums that VerifyInto collected for this very
// batch; it touches only the header.
func (b Batch) StampFrom(s *FrameSums, partition uint32, baseOffset, baseTimestamp uint64) {
	b.setStamp(partition, baseOffset, baseTimestamp)
	if s.Len() != int(b.Count()) {
		b.rehash() // collected for another batch: never write a wrong checksum
		return
	}
	le.PutUint64(b[offBatchChecksum:], s.hash(b))
}

func (b Batch) setStamp(partition uint32, baseOffset, baseTimestamp uint64) {
	le.PutUint64(b[offBatchPartition:], uint64(partition))
	le.PutUint64(b[offBatchOffset:], baseOffset)
	le.PutUint64(b[offBatchTime:], baseTimestamp)
}

// rehash recomputes the batch checksum from header and stored frame checksums.
func (b Batch) rehash() {
	s := sumsPool.Get().(*FrameSums)
	if b.collect(s) {
		le.PutUint64(b[offBatchChecksum:], s.hash(b))
	}
	putSums(s)
}
