package wire

import (
	"math/bits"
	"unsafe"
)

const (
	xxh32p1 uint32 = 2654435761
	xxh32p2 uint32 = 2246822519
	xxh32p3 uint32 = 3266489917
	xxh32p4 uint32 = 668265263
	xxh32p5 uint32 = 374761393
)

// XXH32 is the 32-bit xxHash with seed 0: message keys and named consumers
// (framing §2).
func XXH32(b []byte) uint32 {
	n := uint32(len(b))
	var h uint32
	if len(b) >= 16 {
		var zero uint32 // the additions wrap, so they cannot be constants
		v1, v2, v3, v4 := zero+xxh32p1+xxh32p2, zero+xxh32p2, zero, zero-xxh32p1
		for len(b) >= 16 {
			v1 = bits.RotateLeft32(v1+le.Uint32(b)*xxh32p2, 13) * xxh32p1
			v2 = bits.RotateLeft32(v2+le.Uint32(b[4:])*xxh32p2, 13) * xxh32p1
			v3 = bits.RotateLeft32(v3+le.Uint32(b[8:])*xxh32p2, 13) * xxh32p1
			v4 = bits.RotateLeft32(v4+le.Uint32(b[12:])*xxh32p2, 13) * xxh32p1
			b = b[16:]
		}
		h = bits.RotateLeft32(v1, 1) + bits.RotateLeft32(v2, 7) + bits.RotateLeft32(v3, 12) + bits.RotateLeft32(v4, 18)
	} else {
		h = xxh32p5
	}
	h += n
	for len(b) >= 4 {
		h = bits.RotateLeft32(h+le.Uint32(b)*xxh32p3, 17) * xxh32p4
		b = b[4:]
	}
	for _, c := range b {
		h = bits.RotateLeft32(h+uint32(c)*xxh32p5, 11) * xxh32p1
	}
	h ^= h >> 15
	h *= xxh32p2
	h ^= h >> 13
	h *= xxh32p3
	h ^= h >> 16
	return h
}

func xxh32String(s string) uint32 { return XXH32(unsafe.Slice(unsafe.StringData(s), len(s))) }
