package segment

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"
)

const (
	// segmentHeaderSize is the size of the header of a segment file.
	segmentHeaderSize = 64
	// segmentMagic is `WPSEG\0\0` with the format version as the last byte.
	segmentMagic   = "WPSEG\x00\x00"
	segmentVersion = 1

	logSuffix   = ".log"
	indexSuffix = ".index"

	defaultSegmentBytes = 1 << 30
	defaultControlBytes = 64 << 20
	// maxRecord bounds one record, so that positions in a segment fit the 31
	// bits of an index entry.
	maxRecord = 512 << 20
)

// state is the log between two records: everything that the next record needs,
// and the place in the segment.
type state struct {
	index, term uint64 // of the record before
	offset      uint64 // of the next message
	chain       uint64
	ts          uint64 // highest base timestamp so far
	gen         uint64 // purge generation of the next record
	pos         int64  // file position of the next record
	ctrl        int64  // bytes of control records before it in this segment
}

// dataBytes is the number of bytes of data records before the state in its
// segment.
func (s state) dataBytes() int64 { return s.pos - segmentHeaderSize - s.ctrl }

func (s state) position() Position {
	return Position{Index: s.index, Term: s.term, NextOffset: s.offset, Chain: s.chain, Timestamp: s.ts, Generation: s.gen}
}

func (p Position) state() state {
	return state{
		index: p.Index, term: p.Term, offset: p.NextOffset, chain: p.Chain, ts: p.Timestamp, gen: p.Generation,
		pos: segmentHeaderSize,
	}
}

// chainHash is the chain value after a record: over the value before it and
// its header without the last field.
func chainHash(before uint64, header []byte) uint64 {
	var b [headerSize]byte
	le.PutUint64(b[:], before)
	n := copy(b[8:], header)
	return xxh3.Hash(b[:8+n])
}

// putSegmentHeader writes the header of a segment that starts at st.
func putSegmentHeader(b []byte, group uint64, st state) {
	b = b[:segmentHeaderSize]
	copy(b, segmentMagic)
	b[7] = segmentVersion
	le.PutUint64(b[8:], group)
	le.PutUint64(b[16:], st.index+1)
	le.PutUint64(b[24:], st.term)
	le.PutUint64(b[32:], st.offset)
	le.PutUint64(b[40:], st.chain)
	le.PutUint64(b[48:], st.gen)
	le.PutUint64(b[56:], xxh3.Hash(b[:56]))
}

// otherVersion tells whether a header of 64 bytes is a whole one of another
// format version. All versions begin with the magic and the version, and have
// the checksum of what is before it in the last eight bytes, so that it cannot
// be taken for damage.
func otherVersion(b []byte, magic string, known uint8) bool {
	return len(b) >= 64 && string(b[:7]) == magic && b[7] != known && le.Uint64(b[56:]) == xxh3.Hash(b[:56])
}

// parseSegmentHeader returns the group and the state at the start of a
// segment, whose version was looked at. The reason is not empty when the header is not whole.
func parseSegmentHeader(b []byte) (group uint64, st state, reason string) {
	switch {
	case len(b) < segmentHeaderSize:
		return 0, st, "segment header is cut short"
	case string(b[:7]) != segmentMagic:
		return 0, st, "not a segment file"
	case le.Uint64(b[56:]) != xxh3.Hash(b[:56]):
		return 0, st, "segment header does not match its checksum"
	case le.Uint64(b[16:]) == 0:
		return 0, st, "segment header has no first index"
	}
	return le.Uint64(b[8:]), state{
		index:  le.Uint64(b[16:]) - 1,
		term:   le.Uint64(b[24:]),
		offset: le.Uint64(b[32:]),
		chain:  le.Uint64(b[40:]),
		gen:    le.Uint64(b[48:]),
		pos:    segmentHeaderSize,
	}, ""
}

// record is the header of a record, decoded.
type record struct {
	kind          Kind
	pos, length   int64 // in the file, length with padding
	index, term   uint64
	before, after uint64 // chain
	offset, ts    uint64 // data only
	count         uint32 // data only
	bodyLength    int64  // control only
	generation    uint64 // purge only
}

func (r *record) data() bool { return r.kind == KindData }

// isControl tells from the first bytes which kind of header follows.
func isControl(b []byte) bool { return le.Uint32(b) == controlMagic }

// parseRecord decodes and checks a record's header: its own checksum, and that
// its numbers make sense. b holds at least the header (64 bytes for control,
// 256 for data). The reason is not empty when the header is bad.
func parseRecord(b []byte) (r record, reason string) {
	if isControl(b) {
		r = record{
			kind:       Kind(le.Uint16(b[4:])),
			length:     int64(le.Uint64(b[offControlLength:])),
			term:       le.Uint64(b[offControlTerm:]),
			index:      le.Uint64(b[offControlIndex:]),
			before:     le.Uint64(b[offControlChainBefore:]),
			after:      le.Uint64(b[offControlChainAfter:]),
			bodyLength: int64(le.Uint64(b[offControlBodyLength:])),
		}
		switch {
		case chainHash(r.before, b[:offControlChainAfter]) != r.after:
			return r, "control header does not match its checksum"
		case r.bodyLength < 0 || r.bodyLength > maxRecord || r.length != controlLength(r.bodyLength):
			return r, "control record has an impossible length"
		case r.kind == KindData:
			return r, "control record of kind 0"
		}
		return r, ""
	}
	r = record{
		kind:   KindData,
		length: int64(le.Uint64(b[offBatchLength:])),
		term:   le.Uint64(b[offTerm:]),
		index:  le.Uint64(b[offIndex:]),
		before: le.Uint64(b[offChainBefore:]),
		after:  le.Uint64(b[offChainAfter:]),
		offset: le.Uint64(b[offBaseOffset:]),
		ts:     le.Uint64(b[offBaseTimestamp:]),
		count:  le.Uint32(b[offCount:]),
	}
	switch {
	case le.Uint32(b[offStampKind:]) != stampData:
		return r, "not a record header"
	case chainHash(r.before, b[:offChainAfter]) != r.after:
		return r, "batch header does not match its checksum"
	case r.length < headerSize || r.length > maxRecord:
		return r, "batch has an impossible length"
	}
	return r, ""
}

func controlLength(body int64) int64 { return controlHeaderSize + (body+7)&^7 }

// recordLength is the length on disk of an entry's data.
func recordLength(data []byte) int64 {
	if _, body, ok := ParseControl(data); ok {
		return controlLength(int64(len(body)))
	}
	return int64(len(data))
}

// verifyBody checks the body of a whole record against the checksums of its
// header. scratch is memory for the work, kept by the caller.
func verifyBody(b []byte, r *record, scratch *[]byte) string {
	if !r.data() {
		if xxh3.Hash(b[controlHeaderSize:controlHeaderSize+r.bodyLength]) != le.Uint64(b[offControlBodySum:]) {
			return "control body does not match its checksum"
		}
		for _, x := range b[controlHeaderSize+r.bodyLength:] {
			if x != 0 {
				return "padding is not zero"
			}
		}
		return ""
	}
	sums := batchSummed((*scratch)[:0], b)
	blob := b[headerSize:]
	for range r.count {
		n := frameLength(blob)
		if n < 0 {
			return "frames do not fill the batch"
		}
		sum := le.Uint64(blob)
		if xxh3.Hash(blob[8:n]) != sum {
			return "message does not match its checksum"
		}
		sums = le.AppendUint64(sums, sum)
		blob = blob[n:]
	}
	*scratch = sums
	if len(blob) != 0 {
		return "frames do not fill the batch"
	}
	if xxh3.Hash(sums) != le.Uint64(b[offChecksum:]) {
		return "batch does not match its checksum"
	}
	return ""
}

// frameLength is the length of the frame at the start of blob, or -1.
func frameLength(blob []byte) int {
	if len(blob) < frameHeaderSize {
		return -1
	}
	n := frameHeaderSize + uint64(le.Uint32(blob[offFramePayload:])) + uint64(le.Uint32(blob[offFrameHeaders:]))
	if n > uint64(len(blob)) {
		return -1
	}
	return int(n)
}

// batchSummed appends the part of a batch header that its checksum covers.
func batchSummed(dst, header []byte) []byte {
	dst = append(dst, header[:offChecksum]...)
	return append(dst, header[offCount:wireHeaderEnd]...)
}

// batchChecksum is the checksum of a batch from its header and frames, as the
// protocol defines it.
func batchChecksum(header, blob []byte, scratch *[]byte) uint64 {
	sums := batchSummed((*scratch)[:0], header)
	for len(blob) > 0 {
		n := frameLength(blob)
		if n < 0 {
			break
		}
		sums = append(sums, blob[:8]...)
		blob = blob[n:]
	}
	*scratch = sums
	return xxh3.Hash(sums)
}

// segmentName is the file name of a segment without its suffix. The first
// index is part of it when the segment before has the same base offset.
func segmentName(offset, first uint64, repeated bool) string {
	if repeated {
		return fmt.Sprintf("%020d-%d", offset, first)
	}
	return fmt.Sprintf("%020d", offset)
}

func generationDir(dir string, gen uint64) string {
	return filepath.Join(dir, strconv.FormatUint(gen, 10))
}

// parseSegmentName reads the base offset and, where the name has one, the first
// index (else 0).
func parseSegmentName(name string) (offset, first uint64, ok bool) {
	name, ok = strings.CutSuffix(name, logSuffix)
	if !ok {
		return 0, 0, false
	}
	o, f, two := strings.Cut(name, "-")
	offset, err := strconv.ParseUint(o, 10, 64)
	if err != nil || len(o) != 20 {
		return 0, 0, false
	}
	if two {
		if first, err = strconv.ParseUint(f, 10, 64); err != nil || first == 0 || f[0] == '0' {
			return 0, 0, false
		}
	}
	return offset, first, true
}
