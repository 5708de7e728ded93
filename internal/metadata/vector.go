package metadata

import "iter"

// vectorChunk is the number of places that are copied together when one changes.
const vectorChunk = 256

// vector is a persistent list of pointers by small id: set returns a changed copy that shares all but one chunk with the old one,
// which stays as it was. The zero value is empty.
type vector[T any] struct {
	chunks []*chunk[T]
	count  int
}

type chunk[T any] struct {
	used  int
	items [vectorChunk]*T
}

// len is the number of ids in use.
func (v vector[T]) len() int { return v.count }

// get gives nil for an id that is free.
func (v vector[T]) get(id uint32) *T {
	c := int(id / vectorChunk)
	if c >= len(v.chunks) || v.chunks[c] == nil {
		return nil
	}
	return v.chunks[c].items[id%vectorChunk]
}

// set puts an item at an id; nil frees the id.
func (v vector[T]) set(id uint32, item *T) vector[T] {
	n, at := int(id/vectorChunk), id%vectorChunk
	if item == nil && v.get(id) == nil {
		return v
	}
	chunks := make([]*chunk[T], max(len(v.chunks), n+1))
	copy(chunks, v.chunks)
	next := new(chunk[T])
	if chunks[n] != nil {
		*next = *chunks[n]
	}
	if next.items[at] != nil {
		next.used--
		v.count--
	}
	if item != nil {
		next.used++
		v.count++
	}
	next.items[at] = item
	chunks[n] = next
	if next.used == 0 {
		chunks[n] = nil
	}
	for len(chunks) > 0 && chunks[len(chunks)-1] == nil {
		chunks = chunks[:len(chunks)-1]
	}
	return vector[T]{chunks: chunks, count: v.count}
}

// push puts an item at an id above all others, in place: only for a vector that nobody else has seen.
func (v *vector[T]) push(id uint32, item *T) {
	n := int(id / vectorChunk)
	for len(v.chunks) <= n {
		v.chunks = append(v.chunks, nil)
	}
	if v.chunks[n] == nil {
		v.chunks[n] = new(chunk[T])
	}
	v.chunks[n].items[id%vectorChunk] = item
	v.chunks[n].used++
	v.count++
}

// free is the lowest id that is not in use (model.md §1: it depends on the set of used ids only).
func (v vector[T]) free() uint32 {
	for n, c := range v.chunks {
		if c == nil {
			return uint32(n * vectorChunk)
		}
		if c.used == vectorChunk {
			continue
		}
		for i, item := range c.items {
			if item == nil {
				return uint32(n*vectorChunk + i)
			}
		}
	}
	return uint32(len(v.chunks) * vectorChunk)
}

// all walks the items in order of their ids.
func (v vector[T]) all() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, c := range v.chunks {
			if c == nil {
				continue
			}
			for _, item := range c.items {
				if item != nil && !yield(item) {
					return
				}
			}
		}
	}
}
