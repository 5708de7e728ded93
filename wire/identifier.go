package wire

import (
	"strconv"
	"strings"
)

// Kinds of identifiers (commands §2.2).
const (
	identNumeric = 1
	identString  = 2
)

// Identifier names a stream, topic, group or user by number or by name. The
// zero value is the number 0, which is a legal id. It is comparable.
type Identifier struct {
	name string
	id   uint32
}

// ID makes a numeric identifier.
func ID(n uint32) Identifier { return Identifier{id: n} }

// Name makes an identifier that is looked up as a name, even when it looks like
// a number. The name must have 1..255 bytes (ValidateName); the empty name is
// the number 0.
func Name(s string) Identifier { return Identifier{name: s} }

// ParseIdentifier reads what a user typed: digits that fit a u32 are a number,
// anything else is a name.
func ParseIdentifier(text string) (Identifier, error) {
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		return ID(uint32(n)), nil
	}
	if err := ValidateName(text); err != nil {
		return Identifier{}, ErrInvalidIdentifier
	}
	return Name(text), nil
}

// IsName reports whether the identifier is a name.
func (i Identifier) IsName() bool { return i.name != "" }

// Number gives the numeric id; ok is false for a name.
func (i Identifier) Number() (id uint32, ok bool) { return i.id, i.name == "" }

// Text gives the name; ok is false for a number.
func (i Identifier) Text() (name string, ok bool) { return i.name, i.name != "" }

// String prints the number or the name as it is.
func (i Identifier) String() string {
	if i.name != "" {
		return i.name
	}
	return utoa(uint64(i.id))
}

// Equal reports whether both are the same number or the same name.
func (i Identifier) Equal(j Identifier) bool { return i == j }

// Clone copies a name that borrows from a decoded buffer.
func (i Identifier) Clone() Identifier {
	i.name = strings.Clone(i.name)
	return i
}

// Append encodes the identifier.
func (i Identifier) Append(dst []byte) []byte {
	if i.name == "" {
		dst = append(dst, identNumeric, 4)
		return le.AppendUint32(dst, i.id)
	}
	return appendName(append(dst, identString), i.name)
}

// Decode reads an identifier from the start of src and gives its length.
func (i *Identifier) Decode(src []byte) (n int, err error) {
	r := reader{b: src}
	*i = r.ident("identifier")
	return r.off, r.err()
}

func (r *reader) ident(what string) Identifier {
	start := r.off
	kind := r.u8()
	if r.fail == nil && kind != identNumeric && kind != identString {
		r.unknown(what+" kind", start, kind)
	}
	n := int(r.u8())
	if r.fail != nil {
		return Identifier{}
	}
	if kind == identNumeric {
		if n != 4 {
			r.fail = invalid("numeric identifier must be 4 bytes, got "+utoa(uint64(n)), start+1)
			return Identifier{}
		}
		return Identifier{id: r.u32()}
	}
	if n == 0 {
		r.fail = invalid("string identifier cannot be empty", start+1)
		return Identifier{}
	}
	off := r.off
	return Identifier{name: r.text(r.take(what, n), what, off)}
}
