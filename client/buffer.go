package client

import (
	"math/bits"
	"sync"
)

// Sizes of pooled buffers: powers of two from 4 KiB to 8 MiB. Larger ones are
// left to the garbage collector.
const (
	minBufferBits = 12
	maxBufferBits = 23
)

// bufferPool keeps buffers by size. The zero value is ready.
type bufferPool struct {
	pools [maxBufferBits - minBufferBits + 1]sync.Pool
}

// buffer is pooled memory with one owner at a time.
type buffer struct {
	b    []byte
	pool *sync.Pool
}

func (p *bufferPool) get(n int) *buffer {
	class := max(bits.Len(uint(max(n-1, 0))), minBufferBits)
	if class > maxBufferBits {
		return &buffer{b: make([]byte, n)}
	}
	pool := &p.pools[class-minBufferBits]
	if v, ok := pool.Get().(*buffer); ok {
		v.b = v.b[:n]
		return v
	}
	return &buffer{b: make([]byte, n, 1<<class), pool: pool}
}

func (b *buffer) release() {
	if b.pool != nil {
		b.pool.Put(b)
	}
}
