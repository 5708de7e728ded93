package wire

// BatchRange is a run of frames of a batch, for serving a part of it.
type BatchRange struct {
	Start, End int    // byte range within the batch
	Count      uint32 // messages
}

// Size is the size of the slice as a batch of its own, header included.
func (r BatchRange) Size() int { return BatchHeaderSize + r.End - r.Start }

// Range finds the frames from an offset on: at most maxCount of them, and at most
// maxBytes of frames (0 = any), but always at least one. ok is false when the
// batch has no message at or behind the offset, or maxCount is 0. Frames that do
// not fit the batch end the walk.
func (b Batch) Range(from uint64, maxCount uint32, maxBytes int) (r BatchRange, ok bool) {
	base := b.BaseOffset()
	w := walker{b, BatchHeaderSize}
	for range b.Count() {
		at := w.off
		f := w.frame()
		if f == nil {
			break
		}
		if base+uint64(le.Uint32(f[offMsgDelta:])) < from {
			continue
		}
		if r.Count == maxCount || r.Count > 0 && maxBytes > 0 && w.off-r.Start > maxBytes {
			break
		}
		if r.Count == 0 {
			r.Start = at
		}
		r.End = w.off
		r.Count++
	}
	return r, r.Count > 0
}

// PutSliceHeader writes the header of the slice r of b to the first
// BatchHeaderSize bytes of dst: that of b with length, count and checksum of the
// slice and with zero reserved bytes (commands §2.13). The frames of the slice
// are b[r.Start:r.End]. dst may be anywhere in b in front of r.End that does not
// overlap the frames.
func (b Batch) PutSliceHeader(dst []byte, r BatchRange) {
	dst = dst[:BatchHeaderSize]
	copy(dst, b[:BatchReservedOffset])
	clear(dst[BatchReservedOffset:])
	if r.Start == BatchHeaderSize && r.End == len(b) {
		return // the whole batch: its checksum holds
	}
	le.PutUint64(dst[offBatchLength:], uint64(r.Size()))
	le.PutUint32(dst[offBatchCount:], r.Count)
	s := sumsPool.Get().(*FrameSums)
	s.begin(int(r.Count))
	w := walker{b[:r.End], r.Start}
	for i := range int(r.Count) {
		s.add(i, le.Uint64(w.frame()))
	}
	le.PutUint64(dst[offBatchChecksum:], s.hash(dst))
	putSums(s)
}

// Slice cuts b down, in place and without copying frames, to at most maxCount
// messages from an offset on, and gives the slice as a batch of its own that
// aliases b. The rewritten header overwrites what stood in front of the first
// kept frame, so b must be the caller's to destroy: a private copy of stored
// bytes. It gives nil when nothing is left. The reserved bytes are zeroed.
func Slice(b Batch, fromOffset uint64, maxCount uint32) Batch {
	r, ok := b.Range(fromOffset, maxCount, 0)
	if !ok {
		return nil
	}
	return SliceRange(b, r)
}

// SliceRange is Slice for a range that Range found.
func SliceRange(b Batch, r BatchRange) Batch {
	var header [BatchHeaderSize]byte
	b.PutSliceHeader(header[:], r)
	out := b[r.Start-BatchHeaderSize : r.End : r.End]
	copy(out, header[:])
	return out
}

// AppendSlice appends the slice r of b behind dst and leaves b as it is.
func AppendSlice(dst []byte, b Batch, r BatchRange) []byte {
	n := len(dst)
	var zero [BatchHeaderSize]byte
	dst = append(dst, zero[:]...)
	b.PutSliceHeader(dst[n:], r)
	return append(dst, b[r.Start:r.End]...)
}
