package broker

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// Buffer is a body in pooled memory. It has one owner at a time, who calls
// Release when the bytes are not needed any more. The log of a partition may
// become the owner of a sent batch, and then share it with those who read it
// (segment.Memory).
type Buffer struct {
	// B is the body; its capacity is that of the size class.
	B     []byte
	class int
	more  atomic.Int32 // users beside the first
}

// Size classes: four steps for each doubling from 512 bytes to 64 MiB and a
// little more, so that at most a fifth of a buffer is unused. Larger buffers
// are not pooled.
const (
	minClassBits = 9
	maxClassBits = 26
	classes      = (maxClassBits-minClassBits)*4 + 2
)

var pools [classes]sync.Pool //nolint:gochecknoglobals // free lists, no state

// classOf is the smallest class that holds n bytes, -1 when none does.
func classOf(n int) int {
	if n <= 1<<minClassBits {
		return 0
	}
	exp := bits.Len(uint(n-1)) - 1 // 2^exp < n <= 2^(exp+1)
	step := 1 << (exp - 2)
	c := (exp-minClassBits)*4 + (n-(1<<exp)+step-1)/step
	if c >= classes {
		return -1
	}
	return c
}

func classSize(c int) int {
	exp, q := minClassBits+c/4, c%4
	return 1<<exp + q<<(exp-2)
}

// GetBuffer takes a buffer for at least n bytes; B has length n and arbitrary content.
func GetBuffer(n int) *Buffer {
	c := classOf(n)
	if c < 0 {
		return &Buffer{B: make([]byte, n), class: -1}
	}
	if b, ok := pools[c].Get().(*Buffer); ok {
		b.B = b.B[:n]
		return b
	}
	return &Buffer{B: make([]byte, n, classSize(c)), class: c}
}

// Retain adds a user.
func (b *Buffer) Retain() { b.more.Add(1) }

// Size is the memory that the buffer takes.
func (b *Buffer) Size() int { return cap(b.B) }

// Release ends a use; the last one gives the memory back. The buffer must not be
// used afterwards. Nil is allowed.
func (b *Buffer) Release() {
	if b == nil || b.class < 0 {
		return
	}
	if b.more.Load() != 0 && b.more.Add(-1) >= 0 {
		return
	}
	b.more.Store(0)
	poison(b.B[:cap(b.B)])
	pools[b.class].Put(b)
}

// Bytes of the buffer; nil for a nil buffer.
func (b *Buffer) Bytes() []byte {
	if b == nil {
		return nil
	}
	return b.B
}
