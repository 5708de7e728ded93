package wire

import (
	"slices"
	"strings"
)

// Limits of an options block (commands §2.8).
const (
	MaxOptions     = 1024
	MaxOptionsSize = 100_000
)

// Option is one entry of an options block.
type Option struct {
	Key   string // 1..255 bytes
	Value Value
}

// Options are the settings of a topic, stream or user (commands §2.8). A
// decoded block is a copy.
type Options []Option

// Get finds an option.
func (o Options) Get(key string) (Value, bool) {
	for i := range o {
		if o[i].Key == key {
			return o[i].Value, true
		}
	}
	return Value{}, false
}

// Set replaces or adds an option and gives the new list.
func (o Options) Set(key string, v Value) Options {
	for i := range o {
		if o[i].Key == key {
			o[i].Value = v
			return o
		}
	}
	return append(o, Option{Key: key, Value: v})
}

// Delete removes an option and gives the new list.
func (o Options) Delete(key string) Options {
	return slices.DeleteFunc(o, func(e Option) bool { return e.Key == key })
}

// Clone copies the list. Values are shared; they are never changed in place.
func (o Options) Clone() Options { return slices.Clone(o) }

// Size is the length of the encoding.
func (o Options) Size() int {
	n := 0
	for i := range o {
		n += 5 + len(o[i].Key) + o[i].Value.size()
	}
	return n
}

// Append encodes the block sorted by key, without a length in front.
func (o Options) Append(dst []byte) []byte {
	if !slices.IsSortedFunc(o, compareOptions) {
		o = slices.Clone(o)
		slices.SortStableFunc(o, compareOptions)
	}
	for i := range o {
		dst = append(dst, byte(KindString))
		dst = appendStr32(dst, o[i].Key)
		dst = o[i].Value.append(dst)
	}
	return dst
}

func compareOptions(a, b Option) int { return strings.Compare(a.Key, b.Key) }

// append32 encodes the block with its u32 byte length in front.
func (o Options) append32(dst []byte) []byte { return appendSized(dst, o.Append) }

// Decode reads a whole block. More than MaxOptions entries or MaxOptionsSize
// bytes answer ErrOptionsBlockTooLarge.
func (o *Options) Decode(src []byte) error {
	r := reader{b: src}
	*o = r.options(src)
	return r.err()
}

// optionsRest reads a block that fills the rest of the payload.
func (r *reader) optionsRest() Options {
	base := r.off
	return r.optionsAt(r.rest(), base)
}

// options32 reads a block with a u32 byte length in front.
func (r *reader) options32() Options {
	b := r.bytes32("options block")
	return r.optionsAt(b, r.off-len(b))
}

func (r *reader) options(src []byte) Options { return r.optionsAt(src, 0) }

// optionsAt decodes a block that starts at base of r's input.
func (r *reader) optionsAt(src []byte, base int) Options {
	if r.fail != nil || len(src) == 0 {
		return nil
	}
	if len(src) > MaxOptionsSize {
		r.fail = &DecodeError{Kind: ErrValidation, What: "options block over 100000 bytes", Offset: base, Status: ErrOptionsBlockTooLarge}
		return nil
	}
	var out Options
	var seen map[string]struct{} // only for long blocks; short ones are searched
	in := reader{b: src}
	for in.left() > 0 {
		at := base + in.off
		kv := in.keyValue()
		if in.fail == nil && kv.Key.Kind != KindString {
			in.fail = invalid("option key kind "+utoa(uint64(kv.Key.Kind))+" is not a string", at)
		}
		key := in.text(kv.Key.Data, "option key", at+5)
		if in.fail == nil && len(out) == MaxOptions {
			in.fail = &DecodeError{Kind: ErrValidation, What: "more than 1024 options", Offset: at, Status: ErrOptionsBlockTooLarge}
		}
		if in.fail != nil {
			r.fail = in.fail
			return nil
		}
		var dup bool
		if len(out) < 32 {
			_, dup = out.Get(key)
		} else {
			if seen == nil {
				seen = make(map[string]struct{}, 64)
				for i := range out {
					seen[out[i].Key] = struct{}{}
				}
			}
			_, dup = seen[key]
			seen[key] = struct{}{}
		}
		if dup {
			r.fail = invalid("duplicate option key: "+key, at)
			return nil
		}
		out = append(out, Option{Key: key, Value: Value{kv.Value.Kind, slices.Clone(kv.Value.Data)}})
	}
	return out
}
