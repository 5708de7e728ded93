package segment

import (
	"errors"
	"fmt"
	"io"

	"github.com/whippetmq/whippet/internal/vfs"
)

const (
	// readChunk is the most that is read from a file at once.
	readChunk = 1 << 20
	// headerChunk is read when only headers are wanted and records are small.
	headerChunk = 64 << 10
)

// breakError says that a file does not continue with a valid record.
type breakError struct {
	pos    int64
	index  uint64
	reason string
}

func (e *breakError) Error() string { return fmt.Sprintf("at byte %d: %s", e.pos, e.reason) }

// asDamage turns a break into the error that the package reports.
func asDamage(file string, err error) error {
	if err == nil {
		return nil
	}
	var b *breakError
	if errors.As(err, &b) {
		return &DamageError{File: file, Position: b.pos, Index: b.index, Reason: b.reason}
	}
	return err
}

// scanner reads the records of a segment file one after the other and checks
// that each continues the one before.
type scanner struct {
	f   vfs.File
	end int64 // nothing at or behind it is read
	// st is the state before the next record. Its chain and term are only
	// known when linked is set; the first record sets them otherwise.
	st     state
	linked bool
	// lost tells that the offset of the next message is not known either.
	lost bool
	// headers reads no bodies: next returns the header's bytes only.
	headers bool
	// grow returns a buffer of at least need bytes for the next read. The
	// bytes of records that were returned stay in the old one, which the
	// caller owns. Nil reuses one buffer: bytes are valid until the next call.
	grow func(need int) []byte

	buf  []byte
	base int64 // file position of buf[0]
	have int   // bytes in buf
	jump int64 // length of the last record
}

// next returns the next record with its bytes (header and body, or the header
// alone). At the end it returns io.EOF, before an invalid record a
// *breakError; both leave st where it is.
func (s *scanner) next() (record, []byte, error) {
	if s.st.pos >= s.end {
		return record{}, nil, io.EOF
	}
	b, err := s.need(controlHeaderSize)
	if err != nil {
		return record{}, nil, err
	}
	if !isControl(b) {
		if b, err = s.need(headerSize); err != nil {
			return record{}, nil, err
		}
	}
	r, reason := parseRecord(b)
	r.pos = s.st.pos
	if reason == "" {
		reason = s.follows(&r)
	}
	if reason != "" {
		return r, nil, s.broken(reason)
	}
	n := int64(headerSize)
	if !r.data() {
		n = controlHeaderSize
	}
	switch {
	case !s.headers:
		n = r.length
	case r.kind == KindPurge:
		n += 8
	case r.length > s.end-r.pos:
		return r, nil, s.broken("record is cut short")
	}
	if b, err = s.need(n); err != nil {
		return r, nil, err
	}
	if r.kind == KindPurge {
		if r.bodyLength < 8 {
			return r, nil, s.broken("purge record without a generation")
		}
		r.generation = le.Uint64(b[controlHeaderSize:])
	}
	s.st = s.st.after(&r)
	s.linked, s.lost = true, s.lost && !r.data()
	s.jump = r.length
	return r, b, nil
}

// follows tells why a record does not continue the state, or "".
func (s *scanner) follows(r *record) string {
	switch {
	case r.index != s.st.index+1:
		return fmt.Sprintf("record has index %d", r.index)
	case r.data() && !s.lost && r.offset != s.st.offset:
		return fmt.Sprintf("batch has base offset %d instead of %d", r.offset, s.st.offset)
	case r.data() && r.count == 0:
		return "batch without messages"
	case s.linked && r.before != s.st.chain:
		return "record does not continue the chain"
	case s.linked && r.term < s.st.term:
		return "term goes back"
	}
	return ""
}

// after is the state behind a record.
func (s state) after(r *record) state {
	s.index, s.term, s.chain = r.index, r.term, r.after
	s.pos += r.length
	switch {
	case r.data():
		s.offset = r.offset + uint64(r.count)
		s.ts = max(s.ts, r.ts)
	case r.kind == KindPurge:
		s.gen = r.generation
		fallthrough
	default:
		s.ctrl += r.length
	}
	return s
}

func (s *scanner) broken(reason string) error {
	return &breakError{pos: s.st.pos, index: s.st.index + 1, reason: reason}
}

// need returns at least n bytes from the next record's start on.
func (s *scanner) need(n int64) ([]byte, error) {
	if n > s.end-s.st.pos {
		return nil, s.broken("record is cut short")
	}
	at := s.st.pos - s.base
	if s.base+int64(s.have) < s.st.pos || at < 0 {
		s.base, s.have, at = s.st.pos, 0, 0
	}
	if int64(s.have)-at >= n {
		return s.buf[at : at+n : at+n], nil
	}
	if int64(len(s.buf))-at < n {
		// The rest of the buffer goes to the start of the next one.
		next := s.buf
		if s.grow != nil || int64(len(s.buf)) < n {
			want := int64(headerChunk)
			if !s.headers {
				want = readChunk
			}
			want = max(n, min(want, s.end-s.st.pos))
			if s.grow != nil {
				next = s.grow(int(want))
			} else {
				next = make([]byte, want)
			}
		}
		if s.have > 0 {
			s.have = copy(next, s.buf[at:s.have])
		}
		s.buf, s.base, at = next, s.st.pos, 0
	}
	for int64(s.have)-at < n {
		want := min(int64(len(s.buf)-s.have), s.end-s.base-int64(s.have), readChunk)
		if s.headers && s.jump > headerChunk/4 {
			want = min(want, max(n-int64(s.have), 2*headerSize))
		}
		got, err := s.f.ReadAt(s.buf[s.have:s.have+int(want)], s.base+int64(s.have))
		s.have += got
		if err != nil && !(errors.Is(err, io.EOF) && got > 0) {
			if errors.Is(err, io.EOF) {
				return nil, s.broken("file is shorter than it was")
			}
			return nil, err
		}
	}
	return s.buf[at : at+n : at+n], nil
}
