package metadata

import (
	"hash/maphash"
	"math/bits"
)

// index is a persistent map from names to items: set and remove return a changed copy that shares what did not change, so that one
// change among a million names copies a few hundred bytes, and look-ups need no lock and do not allocate. It is a hash trie.
//
// The order inside depends on the seed of this process. Nothing may ever be derived from it, so there is no way to walk an index.
type index[T any] struct {
	seed maphash.Seed
	root *indexNode[T]
}

// indexBits of the hash choose a slot at each level.
const indexBits = 5

type indexNode[T any] struct {
	mask  uint32 // which of the 32 slots exist
	slots []indexSlot[T]
}

// indexSlot is either a level deeper, or the items whose hash led here.
type indexSlot[T any] struct {
	sub  *indexNode[T]
	leaf *indexLeaf[T]
}

type indexLeaf[T any] struct {
	hash uint64
	name string
	item *T
	next *indexLeaf[T] // another name with the very same hash
}

func newIndex[T any](seed maphash.Seed) index[T] { return index[T]{seed: seed} }

// get gives nil for a name that is not there. It does not keep name.
func (x index[T]) get(name string) *T {
	if x.root == nil {
		return nil
	}
	hash := maphash.String(x.seed, name)
	for n, shift := x.root, 0; n != nil; shift += indexBits {
		bit := uint32(1) << (hash >> shift & 31)
		if n.mask&bit == 0 {
			return nil
		}
		slot := &n.slots[bits.OnesCount32(n.mask&(bit-1))]
		for l := slot.leaf; l != nil; l = l.next {
			if l.hash == hash && l.name == name {
				return l.item
			}
		}
		n = slot.sub
	}
	return nil
}

// set puts an item under a name, which it keeps.
func (x index[T]) set(name string, item *T) index[T] {
	hash := maphash.String(x.seed, name)
	x.root = x.root.set(&indexLeaf[T]{hash: hash, name: name, item: item}, 0)
	return x
}

// remove takes a name out.
func (x index[T]) remove(name string) index[T] {
	if x.root != nil {
		x.root = x.root.remove(maphash.String(x.seed, name), name, 0)
	}
	return x
}

func (n *indexNode[T]) set(leaf *indexLeaf[T], shift int) *indexNode[T] {
	bit := uint32(1) << (leaf.hash >> shift & 31)
	if n == nil {
		return &indexNode[T]{mask: bit, slots: []indexSlot[T]{{leaf: leaf}}}
	}
	at := bits.OnesCount32(n.mask & (bit - 1))
	if n.mask&bit == 0 {
		slots := make([]indexSlot[T], 0, len(n.slots)+1)
		slots = append(slots, n.slots[:at]...)
		slots = append(slots, indexSlot[T]{leaf: leaf})
		slots = append(slots, n.slots[at:]...)
		return &indexNode[T]{mask: n.mask | bit, slots: slots}
	}
	next := &indexNode[T]{mask: n.mask, slots: append([]indexSlot[T](nil), n.slots...)}
	old := n.slots[at]
	switch {
	case old.sub != nil:
		next.slots[at] = indexSlot[T]{sub: old.sub.set(leaf, shift+indexBits)}
	case old.leaf.hash == leaf.hash:
		leaf.next = old.leaf.without(leaf.name)
		next.slots[at] = indexSlot[T]{leaf: leaf}
	default:
		// Both go a level deeper. Their hashes differ, so the recursion ends.
		oldBit := uint32(1) << (old.leaf.hash >> (shift + indexBits) & 31)
		sub := &indexNode[T]{mask: oldBit, slots: []indexSlot[T]{{leaf: old.leaf}}}
		next.slots[at] = indexSlot[T]{sub: sub.set(leaf, shift+indexBits)}
	}
	return next
}

func (n *indexNode[T]) remove(hash uint64, name string, shift int) *indexNode[T] {
	bit := uint32(1) << (hash >> shift & 31)
	if n.mask&bit == 0 {
		return n
	}
	at := bits.OnesCount32(n.mask & (bit - 1))
	old := n.slots[at]
	var slot indexSlot[T]
	if old.sub != nil {
		slot.sub = old.sub.remove(hash, name, shift+indexBits)
	} else {
		slot.leaf = old.leaf.without(name)
	}
	if slot == old {
		return n
	}
	if slot.sub == nil && slot.leaf == nil {
		if len(n.slots) == 1 {
			return nil
		}
		slots := make([]indexSlot[T], 0, len(n.slots)-1)
		slots = append(slots, n.slots[:at]...)
		slots = append(slots, n.slots[at+1:]...)
		return &indexNode[T]{mask: n.mask &^ bit, slots: slots}
	}
	next := &indexNode[T]{mask: n.mask, slots: append([]indexSlot[T](nil), n.slots...)}
	next.slots[at] = slot
	return next
}

// without copies a chain of leaves up to the one that goes; the chain itself when the name is not in it.
func (l *indexLeaf[T]) without(name string) *indexLeaf[T] {
	if l == nil {
		return nil
	}
	if l.name == name {
		return l.next
	}
	rest := l.next.without(name)
	if rest == l.next {
		return l
	}
	return &indexLeaf[T]{hash: l.hash, name: l.name, item: l.item, next: rest}
}
