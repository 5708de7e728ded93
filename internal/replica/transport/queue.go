package transport

import "net"

const arenaChunk = 32 << 10

// queue gathers frames for one vectored write: small pieces are copied into an arena, large ones are referred to where they
// are. It is not safe for concurrent use.
type queue struct {
	buffers net.Buffers
	arena   []byte // the chunk that is being filled
	open    int    // where in arena the newest buffer starts; -1 = the newest buffer is not of the arena
	bytes   int
}

// room gives a slice of length 0 that n bytes can be appended to in place; take adds it to the queue.
func (q *queue) room(n int) []byte {
	if cap(q.arena)-len(q.arena) < n {
		q.arena = make([]byte, 0, max(arenaChunk, n))
		q.open = -1
	}
	return q.arena[len(q.arena):len(q.arena):cap(q.arena)]
}

// take adds what was appended to the slice that room gave.
func (q *queue) take(b []byte) {
	start := len(q.arena)
	q.arena = q.arena[:start+len(b)]
	q.bytes += len(b)
	if q.open >= 0 {
		q.buffers[len(q.buffers)-1] = q.arena[q.open:]
		return
	}
	q.open = start
	q.buffers = append(q.buffers, q.arena[start:])
}

// piece adds bytes: a copy when they are few, else themselves, which must not change until they are written.
func (q *queue) piece(b []byte) {
	switch {
	case len(b) == 0:
	case len(b) < ownPiece:
		q.take(append(q.room(len(b)), b...))
	default:
		q.buffers = append(q.buffers, b)
		q.bytes += len(b)
		q.open = -1
	}
}

// reset empties the queue, whose bytes are written or given up; memory is kept for the next frames, up to a bound.
func (q *queue) reset() {
	if cap(q.buffers) > 4096 {
		q.buffers = nil
	}
	clear(q.buffers[:cap(q.buffers)])
	q.buffers = q.buffers[:0]
	if cap(q.arena) > 2*arenaChunk {
		q.arena = nil
	}
	q.arena = q.arena[:0]
	q.open = -1
	q.bytes = 0
}
