package wire

import (
	"encoding/binary"
	"math"
	"unicode/utf8"
	"unsafe"
)

var le = binary.LittleEndian

// maxName is the largest length of anything behind a length byte.
const maxName = 255

// reader walks a payload. The first failure sticks; everything read after it is
// zero, so decoders need one check at the end. With borrow set, texts alias b.
type reader struct {
	b      []byte
	off    int
	fail   error
	borrow bool
}

func (r *reader) err() error { return r.fail }

func (r *reader) setErr(err error) {
	if r.fail == nil {
		r.fail = err
	}
}

func (r *reader) left() int { return len(r.b) - r.off }

// take gives the next n bytes, or nil.
func (r *reader) take(what string, n int) []byte {
	if r.fail != nil {
		return nil
	}
	if n > len(r.b)-r.off {
		r.fail = eof(what, r.off, n, len(r.b)-r.off)
		return nil
	}
	b := r.b[r.off : r.off+n : r.off+n]
	r.off += n
	return b
}

func (r *reader) u8() uint8 {
	b := r.take("u8", 1)
	if b == nil {
		return 0
	}
	return b[0]
}

func (r *reader) bool() bool { return r.u8() != 0 }

func (r *reader) u16() uint16 {
	b := r.take("u16", 2)
	if b == nil {
		return 0
	}
	return le.Uint16(b)
}

func (r *reader) u32() uint32 {
	b := r.take("u32", 4)
	if b == nil {
		return 0
	}
	return le.Uint32(b)
}

func (r *reader) u64() uint64 {
	b := r.take("u64", 8)
	if b == nil {
		return 0
	}
	return le.Uint64(b)
}

func (r *reader) u128() U128 {
	b := r.take("u128", 16)
	if b == nil {
		return U128{}
	}
	return GetU128(b)
}

func (r *reader) f32() float32 { return math.Float32frombits(r.u32()) }

// text turns bytes into a string, checking UTF-8; off is where they start.
func (r *reader) text(b []byte, what string, off int) string {
	if len(b) == 0 {
		return ""
	}
	if !utf8.Valid(b) {
		r.setErr(&DecodeError{Kind: ErrInvalidUTF8, What: what, Offset: off})
		return ""
	}
	if r.borrow {
		return unsafe.String(unsafe.SliceData(b), len(b))
	}
	return string(b)
}

// name reads a u8 length of 1..255 and UTF-8 (commands §2.1).
func (r *reader) name(what string) string {
	start := r.off
	n := int(r.u8())
	if r.fail != nil {
		return ""
	}
	if n == 0 {
		r.fail = invalid(what+" must be 1-255 bytes, got 0", start)
		return ""
	}
	return r.text(r.take(what, n), what, start+1)
}

// secret reads a u8 length of 0..255 and UTF-8: passwords and tokens.
func (r *reader) secret(what string) string {
	off := r.off + 1
	n := int(r.u8())
	return r.text(r.take(what, n), what, off)
}

// str32 reads a u32 length and UTF-8.
func (r *reader) str32(what string) string {
	off := r.off + 4
	return r.text(r.bytes32(what), what, off)
}

// bytes32 reads a u32 length and that many bytes, aliasing the input.
func (r *reader) bytes32(what string) []byte {
	n := r.u32()
	if r.fail != nil {
		return nil
	}
	if uint64(n) > uint64(r.left()) {
		r.fail = eof(what, r.off, int(n), r.left())
		return nil
	}
	return r.take(what, int(n))
}

// count reads a u32 element count and bounds it by the bytes that are left,
// given that each element takes at least size bytes.
func (r *reader) count(what string, size int) int {
	off := r.off
	n := r.u32()
	if r.fail != nil {
		return 0
	}
	if uint64(n)*uint64(size) > uint64(r.left()) {
		r.fail = eof(what, off, int(uint64(n)*uint64(size)), r.left())
		return 0
	}
	return int(n)
}

func (r *reader) unknown(what string, off int, v uint8) {
	r.setErr(&DecodeError{Kind: ErrUnknownDiscriminant, What: what, Offset: off, Have: int(v)})
}

func (r *reader) rest() []byte {
	if r.fail != nil {
		return nil
	}
	b := r.b[r.off:]
	r.off = len(r.b)
	return b
}

// appendName writes a u8 length and the text. What does not fit is written with
// length 0, which every decoder of a name refuses.
func appendName(dst []byte, s string) []byte {
	if len(s) > maxName {
		return append(dst, 0)
	}
	dst = append(dst, byte(len(s)))
	return append(dst, s...)
}

func appendStr32(dst []byte, s string) []byte {
	dst = le.AppendUint32(dst, uint32(len(s)))
	return append(dst, s...)
}

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// appendSized appends a u32 byte length and what enc appends.
func appendSized(dst []byte, enc func([]byte) []byte) []byte {
	at := len(dst)
	dst = le.AppendUint32(dst, 0)
	dst = enc(dst)
	le.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

func allZero(b []byte) bool {
	for len(b) >= 8 {
		if le.Uint64(b) != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// ValidateName checks the rule of names, identifiers and keys: 1..255 bytes of
// UTF-8 (commands §2.1).
func ValidateName(s string) error {
	if len(s) == 0 || len(s) > maxName {
		return invalid("name must be 1-255 bytes, got "+utoa(uint64(len(s))), 0)
	}
	if !utf8.ValidString(s) {
		return &DecodeError{Kind: ErrInvalidUTF8, What: "name"}
	}
	return nil
}
