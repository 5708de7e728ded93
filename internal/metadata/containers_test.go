package metadata

import (
	"hash/maphash"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// TestVector compares with a map, and checks that no older version changes.
func TestVector(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var v vector[int]
		model := map[uint32]*int{}
		type version struct {
			v     vector[int]
			model map[uint32]*int
		}
		var versions []version
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			id := rapid.Uint32Range(0, 3*vectorChunk).Draw(t, "id")
			if rapid.Bool().Draw(t, "free") {
				id = v.free()
			}
			if rapid.IntRange(0, 2).Draw(t, "op") == 0 {
				v = v.set(id, nil)
				delete(model, id)
			} else {
				n := new(int)
				v = v.set(id, n)
				model[id] = n
			}
			versions = append(versions, version{v, maps.Clone(model)})
		}
		for _, old := range versions {
			if old.v.len() != len(old.model) {
				t.Fatalf("length %d, want %d", old.v.len(), len(old.model))
			}
			want := uint32(0)
			for old.model[want] != nil {
				want++
			}
			if got := old.v.free(); got != want {
				t.Fatalf("lowest free %d, want %d", got, want)
			}
			ids := slices.Sorted(maps.Keys(old.model))
			i := 0
			for item := range old.v.all() {
				if item != old.model[ids[i]] || old.v.get(ids[i]) != item {
					t.Fatalf("item %d", ids[i])
				}
				i++
			}
			if i != len(ids) || old.v.get(1<<31) != nil {
				t.Fatalf("%d items, want %d", i, len(ids))
			}
		}
	})
	var full vector[int]
	for i := range uint32(2 * vectorChunk) {
		full = full.set(full.free(), new(int))
		if full.get(i) == nil {
			t.Fatalf("%d is free", i)
		}
	}
	for range full.all() {
		break
	}
	var pushed vector[int]
	for _, id := range []uint32{0, 5, 3 * vectorChunk, 3*vectorChunk + 1} {
		pushed.push(id, new(int))
	}
	if pushed.len() != 4 || pushed.free() != 1 || pushed.get(3*vectorChunk) == nil || pushed.get(vectorChunk) != nil {
		t.Errorf("pushed: %d items, lowest free %d", pushed.len(), pushed.free())
	}
}

// TestIndex compares with a map, and checks that no older version changes.
func TestIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := newIndex[int](maphash.MakeSeed())
		model := map[string]*int{}
		names := rapid.SampledFrom(slices.Collect(func(yield func(string) bool) {
			for i := range 200 {
				if !yield("name" + strconv.Itoa(i)) {
					return
				}
			}
		}))
		old, oldModel := x, maps.Clone(model)
		for i := range rapid.IntRange(1, 300).Draw(t, "steps") {
			name := names.Draw(t, "name")
			if rapid.IntRange(0, 2).Draw(t, "op") == 0 {
				x = x.remove(name)
				delete(model, name)
			} else {
				n := new(int)
				x = x.set(name, n)
				model[name] = n
			}
			if i == 100 {
				old, oldModel = x, maps.Clone(model)
			}
		}
		for i := range 200 {
			name := "name" + strconv.Itoa(i)
			if x.get(name) != model[name] || old.get(name) != oldModel[name] {
				t.Fatalf("%q is not what was set", name)
			}
		}
	})
}

// TestIndexCollisions: names with the very same hash share a chain.
func TestIndexCollisions(t *testing.T) {
	var root *indexNode[int]
	items := map[string]*int{}
	add := func(name string, hash uint64) {
		items[name] = new(int)
		root = root.set(&indexLeaf[int]{hash: hash, name: name, item: items[name]}, 0)
	}
	find := func(n *indexNode[int], hash uint64, name string) *int {
		for shift := 0; n != nil; shift += indexBits {
			bit := uint32(1) << (hash >> shift & 31)
			if n.mask&bit == 0 {
				return nil
			}
			slot := n.slots[bits.OnesCount32(n.mask&(bit-1))]
			for l := slot.leaf; l != nil; l = l.next {
				if l.hash == hash && l.name == name {
					return l.item
				}
			}
			n = slot.sub
		}
		return nil
	}
	const hash = 0xF000_0000_0000_0001
	add("a", hash)
	add("b", hash)
	add("c", hash)
	add("d", hash&^(1<<63)) // differs in the very last bits only
	add("b", hash)
	before := root
	for _, name := range []string{"a", "b", "c"} {
		if find(root, hash, name) != items[name] {
			t.Errorf("%q is lost", name)
		}
	}
	if find(root, hash&^(1<<63), "d") != items["d"] {
		t.Error("d is lost")
	}
	root = root.remove(hash, "x", 0)
	if root != before {
		t.Error("removing nothing made a copy")
	}
	root = root.remove(hash, "a", 0)
	if find(root, hash, "a") != nil || find(root, hash, "c") == nil || find(before, hash, "a") == nil {
		t.Error("removing a from the chain")
	}
	for _, name := range []string{"b", "c"} {
		root = root.remove(hash, name, 0)
	}
	root = root.remove(hash&^(1<<63), "d", 0)
	if root != nil {
		t.Error("an empty trie has nodes")
	}
}
