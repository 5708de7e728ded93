package wire

import (
	"bytes"
	"iter"
	"slices"
)

// MaxHeadersSize is the largest encoded header list of a message (messages §2).
const MaxHeadersSize = 100_000

// KeyValue is one user header.
type KeyValue struct {
	Key, Value Value
}

// Header makes a header with a text key.
func Header(key string, value Value) KeyValue {
	return KeyValue{Key: StringValue(key), Value: value}
}

// Headers are the user headers of a message (commands §2.7). Keys may be of any
// kind. What decoding gives aliases its input.
type Headers []KeyValue

// Get finds the value of a text key.
func (h Headers) Get(key string) (Value, bool) {
	for i := range h {
		if h[i].Key.Kind == KindString && string(h[i].Key.Data) == key {
			return h[i].Value, true
		}
	}
	return Value{}, false
}

// Size is the length of the encoding.
func (h Headers) Size() int {
	n := 0
	for i := range h {
		n += h[i].Key.size() + h[i].Value.size()
	}
	return n
}

// Validate checks what a client may send: keys and values that fit their kinds
// (ErrInvalidHeaderKey, ErrInvalidHeaderValue, ErrInvalidHeaderKind), at most
// MaxHeadersSize bytes in all (ErrTooBigUserHeaders).
func (h Headers) Validate() error {
	for i := range h {
		if h[i].Key.Check() != nil {
			return ErrInvalidHeaderKey
		}
		if err := h[i].Value.Check(); err != nil {
			return err
		}
	}
	if h.Size() > MaxHeadersSize {
		return ErrTooBigUserHeaders
	}
	return nil
}

// Append encodes the headers in the order that they are in.
func (h Headers) Append(dst []byte) []byte {
	for i := range h {
		dst = h[i].Value.append(h[i].Key.append(dst))
	}
	return dst
}

// AppendSorted encodes the headers in the canonical order, by key kind and key
// bytes, so that equal sets give equal bytes and checksums in every client. It
// allocates only when h is not sorted already.
func (h Headers) AppendSorted(dst []byte) []byte {
	if !slices.IsSortedFunc(h, compareKeys) {
		h = slices.Clone(h)
		slices.SortStableFunc(h, compareKeys)
	}
	return h.Append(dst)
}

// Sort puts the headers into the canonical order.
func (h Headers) Sort() { slices.SortStableFunc(h, compareKeys) }

func compareKeys(a, b KeyValue) int {
	if a.Key.Kind != b.Key.Kind {
		return int(a.Key.Kind) - int(b.Key.Kind)
	}
	return bytes.Compare(a.Key.Data, b.Key.Data)
}

// Decode reads a whole list. Data slices alias src; h's backing array is reused.
func (h *Headers) Decode(src []byte) error {
	out := (*h)[:0]
	r := reader{b: src}
	for r.left() > 0 {
		kv := r.keyValue()
		if r.fail != nil {
			*h = out
			return r.fail
		}
		out = append(out, kv)
	}
	*h = out
	return nil
}

// AllHeaders walks an encoded list without allocating. It stops silently at the
// first entry that does not decode; check with CheckHeaders first where that
// matters.
func AllHeaders(src []byte) iter.Seq2[Value, Value] {
	return func(yield func(Value, Value) bool) {
		r := reader{b: src}
		for r.left() > 0 {
			kv := r.keyValue()
			if r.fail != nil || !yield(kv.Key, kv.Value) {
				return
			}
		}
	}
}

// CheckHeaders reports whether an encoded list decodes.
func CheckHeaders(src []byte) error {
	r := reader{b: src}
	for r.left() > 0 && r.fail == nil {
		r.keyValue()
	}
	return r.fail
}

func (r *reader) keyValue() KeyValue {
	key := r.value()
	if r.fail == nil && r.left() == 0 {
		r.fail = invalid("odd number of header fields, expected key-value pairs", r.off)
	}
	return KeyValue{Key: key, Value: r.value()}
}
