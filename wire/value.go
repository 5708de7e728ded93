package wire

import (
	"encoding/hex"
	"math"
	"strconv"
	"unicode/utf8"
)

// Kind is the type of a header or option value (commands §2.7). Kinds above
// KindFloat64 have no meaning yet and are carried as they are; 0 is never valid.
type Kind uint8

// Kinds of values.
const (
	KindRaw     Kind = 1
	KindString  Kind = 2
	KindBool    Kind = 3
	KindInt8    Kind = 4
	KindInt16   Kind = 5
	KindInt32   Kind = 6
	KindInt64   Kind = 7
	KindInt128  Kind = 8
	KindUint8   Kind = 9
	KindUint16  Kind = 10
	KindUint32  Kind = 11
	KindUint64  Kind = 12
	KindUint128 Kind = 13
	KindFloat32 Kind = 14
	KindFloat64 Kind = 15
)

var kindNames = [...]string{
	"", "raw", "string", "bool", "int8", "int16", "int32", "int64", "int128",
	"uint8", "uint16", "uint32", "uint64", "uint128", "float32", "float64",
}

// String is the kind's name as the JSON plane and the command line write it.
func (k Kind) String() string {
	if k != 0 && int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "kind(" + utoa(uint64(k)) + ")"
}

// ParseKind reads a kind's name.
func ParseKind(s string) (Kind, bool) {
	for k, n := range kindNames {
		if n == s && k != 0 {
			return Kind(k), true
		}
	}
	return 0, false
}

// Known reports whether the kind is in the table.
func (k Kind) Known() bool { return k >= KindRaw && k <= KindFloat64 }

// Size is the number of bytes of a value of this kind, or 0 for any.
func (k Kind) Size() int {
	switch k {
	case KindBool, KindInt8, KindUint8:
		return 1
	case KindInt16, KindUint16:
		return 2
	case KindInt32, KindUint32, KindFloat32:
		return 4
	case KindInt64, KindUint64, KindFloat64:
		return 8
	case KindInt128, KindUint128:
		return 16
	}
	return 0
}

// Value is a typed value: the key or value of a header, or the value of an
// option. Data has 1..255 bytes on the wire.
type Value struct {
	Kind Kind
	Data []byte
}

// RawValue makes a value of plain bytes, which are kept, not copied.
func RawValue(b []byte) Value { return Value{KindRaw, b} }

// StringValue makes a text.
func StringValue(s string) Value { return Value{KindString, []byte(s)} }

// BoolValue makes a truth value.
func BoolValue(v bool) Value { return Value{KindBool, appendBool(nil, v)} }

// Int8Value makes a signed number of 8 bits.
func Int8Value(v int8) Value { return Value{KindInt8, []byte{byte(v)}} }

// Int16Value makes a signed number of 16 bits.
func Int16Value(v int16) Value { return Value{KindInt16, le.AppendUint16(nil, uint16(v))} }

// Int32Value makes a signed number of 32 bits.
func Int32Value(v int32) Value { return Value{KindInt32, le.AppendUint32(nil, uint32(v))} }

// Int64Value makes a signed number of 64 bits.
func Int64Value(v int64) Value { return Value{KindInt64, le.AppendUint64(nil, uint64(v))} }

// Int128Value makes a signed number of 128 bits from its two's complement.
func Int128Value(v U128) Value { return Value{KindInt128, AppendU128(nil, v)} }

// Uint8Value makes an unsigned number of 8 bits.
func Uint8Value(v uint8) Value { return Value{KindUint8, []byte{v}} }

// Uint16Value makes an unsigned number of 16 bits.
func Uint16Value(v uint16) Value { return Value{KindUint16, le.AppendUint16(nil, v)} }

// Uint32Value makes an unsigned number of 32 bits.
func Uint32Value(v uint32) Value { return Value{KindUint32, le.AppendUint32(nil, v)} }

// Uint64Value makes an unsigned number of 64 bits.
func Uint64Value(v uint64) Value { return Value{KindUint64, le.AppendUint64(nil, v)} }

// Uint128Value makes an unsigned number of 128 bits.
func Uint128Value(v U128) Value { return Value{KindUint128, AppendU128(nil, v)} }

// Float32Value makes a floating-point number of 32 bits.
func Float32Value(v float32) Value {
	return Value{KindFloat32, le.AppendUint32(nil, math.Float32bits(v))}
}

// Float64Value makes a floating-point number of 64 bits.
func Float64Value(v float64) Value {
	return Value{KindFloat64, le.AppendUint64(nil, math.Float64bits(v))}
}

// as checks that v has the kind and the size that goes with it: another kind is
// ErrInvalidHeaderKind, a wrong size ErrInvalidHeaderValue (messages §3).
func (v Value) as(k Kind) error {
	if v.Kind != k {
		return ErrInvalidHeaderKind
	}
	if n := k.Size(); n != 0 && n != len(v.Data) {
		return ErrInvalidHeaderValue
	}
	return nil
}

// AsRaw gives plain bytes, aliasing Data.
func (v Value) AsRaw() ([]byte, error) { return v.Data, v.as(KindRaw) }

// AsString gives a text.
func (v Value) AsString() (string, error) {
	if err := v.as(KindString); err != nil {
		return "", err
	}
	if !utf8.Valid(v.Data) {
		return "", ErrInvalidHeaderValue
	}
	return string(v.Data), nil
}

// AsBool gives a truth value: exactly 0 or 1.
func (v Value) AsBool() (bool, error) {
	if err := v.as(KindBool); err != nil {
		return false, err
	}
	if v.Data[0] > 1 {
		return false, ErrInvalidHeaderValue
	}
	return v.Data[0] == 1, nil
}

// AsInt8 gives a signed number of 8 bits.
func (v Value) AsInt8() (int8, error) {
	if err := v.as(KindInt8); err != nil {
		return 0, err
	}
	return int8(v.Data[0]), nil
}

// AsInt16 gives a signed number of 16 bits.
func (v Value) AsInt16() (int16, error) {
	if err := v.as(KindInt16); err != nil {
		return 0, err
	}
	return int16(le.Uint16(v.Data)), nil
}

// AsInt32 gives a signed number of 32 bits.
func (v Value) AsInt32() (int32, error) {
	if err := v.as(KindInt32); err != nil {
		return 0, err
	}
	return int32(le.Uint32(v.Data)), nil
}

// AsInt64 gives a signed number of 64 bits.
func (v Value) AsInt64() (int64, error) {
	if err := v.as(KindInt64); err != nil {
		return 0, err
	}
	return int64(le.Uint64(v.Data)), nil
}

// AsInt128 gives the two's complement of a signed number of 128 bits.
func (v Value) AsInt128() (U128, error) {
	if err := v.as(KindInt128); err != nil {
		return U128{}, err
	}
	return GetU128(v.Data), nil
}

// AsUint8 gives an unsigned number of 8 bits.
func (v Value) AsUint8() (uint8, error) {
	if err := v.as(KindUint8); err != nil {
		return 0, err
	}
	return v.Data[0], nil
}

// AsUint16 gives an unsigned number of 16 bits.
func (v Value) AsUint16() (uint16, error) {
	if err := v.as(KindUint16); err != nil {
		return 0, err
	}
	return le.Uint16(v.Data), nil
}

// AsUint32 gives an unsigned number of 32 bits.
func (v Value) AsUint32() (uint32, error) {
	if err := v.as(KindUint32); err != nil {
		return 0, err
	}
	return le.Uint32(v.Data), nil
}

// AsUint64 gives an unsigned number of 64 bits.
func (v Value) AsUint64() (uint64, error) {
	if err := v.as(KindUint64); err != nil {
		return 0, err
	}
	return le.Uint64(v.Data), nil
}

// AsUint128 gives an unsigned number of 128 bits.
func (v Value) AsUint128() (U128, error) {
	if err := v.as(KindUint128); err != nil {
		return U128{}, err
	}
	return GetU128(v.Data), nil
}

// AsFloat32 gives a floating-point number of 32 bits.
func (v Value) AsFloat32() (float32, error) {
	if err := v.as(KindFloat32); err != nil {
		return 0, err
	}
	return math.Float32frombits(le.Uint32(v.Data)), nil
}

// AsFloat64 gives a floating-point number of 64 bits.
func (v Value) AsFloat64() (float64, error) {
	if err := v.as(KindFloat64); err != nil {
		return 0, err
	}
	return math.Float64frombits(le.Uint64(v.Data)), nil
}

// Check reports whether the bytes fit the kind: 1..255 of them, of the kind's
// size, UTF-8 for a text, 0 or 1 for a truth value. Unknown kinds pass.
func (v Value) Check() error {
	if v.Kind == 0 {
		return ErrInvalidHeaderKind
	}
	if len(v.Data) == 0 || len(v.Data) > maxName {
		return ErrInvalidHeaderValue
	}
	if n := v.Kind.Size(); n != 0 && n != len(v.Data) {
		return ErrInvalidHeaderValue
	}
	if v.Kind == KindString && !utf8.Valid(v.Data) || v.Kind == KindBool && v.Data[0] > 1 {
		return ErrInvalidHeaderValue
	}
	return nil
}

// String prints the value for people; raw and unknown kinds as hexadecimal, and
// so is anything whose bytes do not fit its kind.
func (v Value) String() string {
	if v.Check() == nil {
		switch v.Kind {
		case KindString:
			return string(v.Data)
		case KindBool:
			return strconv.FormatBool(v.Data[0] == 1)
		case KindInt8:
			return strconv.FormatInt(int64(int8(v.Data[0])), 10)
		case KindInt16:
			return strconv.FormatInt(int64(int16(le.Uint16(v.Data))), 10)
		case KindInt32:
			return strconv.FormatInt(int64(int32(le.Uint32(v.Data))), 10)
		case KindInt64:
			return strconv.FormatInt(int64(le.Uint64(v.Data)), 10)
		case KindInt128:
			u := GetU128(v.Data)
			if u.Hi>>63 == 1 {
				lo := -u.Lo
				hi := ^u.Hi
				if lo == 0 {
					hi++
				}
				return "-" + U128{Lo: lo, Hi: hi}.String()
			}
			return u.String()
		case KindUint8:
			return utoa(uint64(v.Data[0]))
		case KindUint16:
			return utoa(uint64(le.Uint16(v.Data)))
		case KindUint32:
			return utoa(uint64(le.Uint32(v.Data)))
		case KindUint64:
			return utoa(le.Uint64(v.Data))
		case KindUint128:
			return GetU128(v.Data).String()
		case KindFloat32:
			return strconv.FormatFloat(float64(math.Float32frombits(le.Uint32(v.Data))), 'g', -1, 32)
		case KindFloat64:
			return strconv.FormatFloat(math.Float64frombits(le.Uint64(v.Data)), 'g', -1, 64)
		}
	}
	return hex.EncodeToString(v.Data)
}

// Equal reports whether kind and bytes are the same.
func (v Value) Equal(w Value) bool { return v.Kind == w.Kind && string(v.Data) == string(w.Data) }

// size is the encoded size of the value: kind, length, bytes.
func (v Value) size() int { return 5 + len(v.Data) }

func (v Value) append(dst []byte) []byte {
	dst = append(dst, byte(v.Kind))
	dst = le.AppendUint32(dst, uint32(len(v.Data)))
	return append(dst, v.Data...)
}

// value reads one entry of a key/value list, aliasing the input.
func (r *reader) value() Value {
	at := r.off
	kind := Kind(r.u8())
	if r.fail == nil && kind == 0 {
		r.fail = invalid("header kind is 0 (reserved)", at)
	}
	at = r.off
	n := r.u32()
	if r.fail == nil && (n == 0 || n > maxName) {
		r.fail = invalid("header field length "+utoa(uint64(n))+" out of range 1..=255", at)
	}
	return Value{Kind: kind, Data: r.take("header field", int(n))}
}
