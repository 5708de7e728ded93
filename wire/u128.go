package wire

import (
	"crypto/rand"
	"encoding/binary"
	"math/big"
)

// U128 is an unsigned 128-bit number: client ids, message ids, stamps.
// On the wire it is 16 bytes, little-endian.
type U128 struct {
	Lo, Hi uint64
}

// IsZero reports whether u is 0, which no client and no message may have as id.
func (u U128) IsZero() bool { return u.Lo|u.Hi == 0 }

// Compare orders two numbers: -1, 0 or +1.
func (u U128) Compare(v U128) int {
	switch {
	case u.Hi != v.Hi:
		if u.Hi < v.Hi {
			return -1
		}
		return 1
	case u.Lo != v.Lo:
		if u.Lo < v.Lo {
			return -1
		}
		return 1
	}
	return 0
}

// String gives the decimal form, as the released clients print ids.
func (u U128) String() string {
	if u.Hi == 0 {
		return utoa(u.Lo)
	}
	n := new(big.Int).SetUint64(u.Hi)
	n.Lsh(n, 64)
	n.Or(n, new(big.Int).SetUint64(u.Lo))
	return n.String()
}

// Hex gives the 32-digit hexadecimal form without a prefix.
func (u U128) Hex() string {
	const digits = "0123456789abcdef"
	var b [32]byte
	for i := range 16 {
		b[15-i] = digits[u.Hi>>(4*i)&15]
		b[31-i] = digits[u.Lo>>(4*i)&15]
	}
	return string(b[:])
}

// ParseU128 reads the decimal form.
func ParseU128(s string) (U128, bool) {
	n, ok := new(big.Int).SetString(s, 10)
	if !ok || n.Sign() < 0 || n.BitLen() > 128 {
		return U128{}, false
	}
	lo := new(big.Int).And(n, new(big.Int).SetUint64(^uint64(0)))
	return U128{Lo: lo.Uint64(), Hi: new(big.Int).Rsh(n, 64).Uint64()}, true
}

// PutU128 writes u to the first 16 bytes of b.
func PutU128(b []byte, u U128) {
	_ = b[15]
	binary.LittleEndian.PutUint64(b, u.Lo)
	binary.LittleEndian.PutUint64(b[8:], u.Hi)
}

// GetU128 reads a number from the first 16 bytes of b.
func GetU128(b []byte) U128 {
	_ = b[15]
	return U128{Lo: binary.LittleEndian.Uint64(b), Hi: binary.LittleEndian.Uint64(b[8:])}
}

// AppendU128 appends the 16 bytes of u.
func AppendU128(dst []byte, u U128) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, u.Lo)
	return binary.LittleEndian.AppendUint64(dst, u.Hi)
}

// NewID makes a random id with the bits of a version 4 UUID: client ids and
// message ids (framing §4.1). It is never zero.
func NewID() U128 {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24: it crashes the process instead
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	// A UUID's text is big-endian; as a number its first byte is the highest.
	return U128{Hi: binary.BigEndian.Uint64(b[:8]), Lo: binary.BigEndian.Uint64(b[8:])}
}

func utoa(n uint64) string {
	var b [20]byte
	i := len(b)
	for {
		i--
		b[i] = byte('0' + n%10)
		n /= 10
		if n == 0 {
			return string(b[i:])
		}
	}
}
