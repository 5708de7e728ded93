package metadata

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/whippetmq/whippet/wire"
)

var le = binary.LittleEndian

// CorruptError means that bytes of the log or of a checkpoint are not what this package wrote. Nothing was changed. The group must
// be fenced: to go on would let this node's state differ from the others'.
type CorruptError struct {
	// Index of the entry, 0 for a checkpoint.
	Index uint64
	// What is wrong and where.
	What string
}

// Error describes it.
func (e *CorruptError) Error() string {
	if e.Index == 0 {
		return "metadata checkpoint is corrupt: " + e.What
	}
	return fmt.Sprintf("metadata entry %d is corrupt: %s", e.Index, e.What)
}

// reader walks encoded bytes. The first failure sticks and everything read after it is zero, so one check at the end is enough.
// Texts and byte strings are copied: the bytes belong to the log.
type reader struct {
	b   []byte
	off int
	bad string
}

func (r *reader) fail(format string, args ...any) {
	if r.bad == "" {
		r.bad = fmt.Sprintf(format, args...) + fmt.Sprintf(" at byte %d", r.off)
	}
}

func (r *reader) ok() bool { return r.bad == "" }

func (r *reader) take(n int) []byte {
	if r.bad != "" {
		return nil
	}
	if n < 0 || n > len(r.b)-r.off {
		r.fail("%d bytes wanted, %d left", n, len(r.b)-r.off)
		return nil
	}
	b := r.b[r.off : r.off+n]
	r.off += n
	return b
}

func (r *reader) u8() uint8 {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) flag() bool {
	v := r.u8()
	if v > 1 {
		r.fail("flag is %d", v)
	}
	return v == 1
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return le.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return le.Uint64(b)
	}
	return 0
}

func (r *reader) u128() wire.U128 {
	if b := r.take(16); b != nil {
		return wire.GetU128(b)
	}
	return wire.U128{}
}

// count reads the number of elements of at least size bytes each, bounded by what is left.
func (r *reader) count(size int) int {
	n := r.u32()
	if r.ok() && uint64(n)*uint64(size) > uint64(len(r.b)-r.off) {
		r.fail("%d elements announced, %d bytes left", n, len(r.b)-r.off)
		return 0
	}
	return int(n)
}

// bytes reads a u32 length and that many bytes, and copies them; nil when there are none.
func (r *reader) bytes() []byte {
	b := r.take(r.count(1))
	if len(b) == 0 {
		return nil
	}
	return append([]byte(nil), b...)
}

// text reads a u32 length and UTF-8.
func (r *reader) text() string {
	b := r.take(r.count(1))
	if !utf8.Valid(b) {
		r.fail("text is not UTF-8")
		return ""
	}
	return string(b)
}

// name reads a text of 1..255 bytes.
func (r *reader) name() string {
	s := r.text()
	if r.ok() && (len(s) == 0 || len(s) > 255) {
		r.fail("name of %d bytes", len(s))
	}
	return s
}

func (r *reader) ident() wire.Identifier {
	switch kind := r.u8(); kind {
	case 1:
		return wire.ID(r.u32())
	case 2:
		return wire.Name(r.name())
	default:
		r.fail("identifier kind %d", kind)
		return wire.Identifier{}
	}
}

// end fails when bytes are left.
func (r *reader) end() {
	if r.ok() && r.off != len(r.b) {
		r.fail("%d bytes too many", len(r.b)-r.off)
	}
}

func (r *reader) err(index uint64) error {
	if r.ok() {
		return nil
	}
	return &CorruptError{Index: index, What: r.bad}
}

func appendFlag(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func appendText(dst []byte, s string) []byte {
	dst = le.AppendUint32(dst, uint32(len(s)))
	return append(dst, s...)
}

func appendBytes(dst, b []byte) []byte {
	dst = le.AppendUint32(dst, uint32(len(b)))
	return append(dst, b...)
}

func appendIdent(dst []byte, id wire.Identifier) []byte {
	if name, ok := id.Text(); ok {
		return appendText(append(dst, 2), name)
	}
	n, _ := id.Number()
	return le.AppendUint32(append(dst, 1), n)
}

// keep copies a text that may borrow from a request or from the log.
func keep(s string) string { return strings.Clone(s) }
