package partition

import (
	"bytes"
	"errors"
	"testing"

	"github.com/whippetmq/whippet/wire"
)

// exampleCheckpoint is written out by hand from the layout in checkpoint.go.
const checkpointHex = "01000000 00000000 6400000000000000 0900000000000000 0a00000000000000 0200000000000000" +
	"02000000" +
	"01 000000 05000000 2a00000000000000" +
	"02 000000 00000000 6300000000000000" +
	"01000000" +
	"0700000000000000 0000000000000000 01000000 02000000 0300000000000000 0800000000000000" +
	"0400000000000000 3200000000000000" +
	"0500000000000000 cd0b000000000080" // an offset write that was refused with 3021

func TestCheckpointLayout(t *testing.T) {
	b := unhex(t, checkpointHex)
	d := newDedupTable(DefaultClients, testIdle)
	s, stored, err := decodeCheckpoint(b, &d)
	if err != nil {
		t.Fatal(err)
	}
	if s != (state{next: 100, stamp: 9, keep: 10, generation: 2}) {
		t.Errorf("state %+v", s)
	}
	if len(stored) != 2 || stored[offsetKey{wire.ConsumerSingle, 5}] != 42 || stored[offsetKey{wire.ConsumerGroup, 0}] != 99 {
		t.Errorf("offsets %v", stored)
	}
	id := identity{wire.U128{Lo: 7}, 1}
	if o := wantVerdict(t, &d, id, 4, 9, duplicate); o.base() != 50 {
		t.Errorf("outcome %#x", uint64(o))
	}
	if o := wantVerdict(t, &d, id, 5, 9, duplicate); !o.isWrite() || o.code() != wire.ErrConsumerOffsetNotFound {
		t.Errorf("outcome %#x", uint64(o))
	}
	wantVerdict(t, &d, id, 3, 9, unknown)
	wantVerdict(t, &d, id, 6, 9, admit)
	var offsets offsetTable
	offsets.reset(stored)
	if got := appendCheckpoint(nil, s, &offsets, &d); !bytes.Equal(got, b) {
		t.Errorf("encoded % x", got)
	}
}

func TestCheckpointRefused(t *testing.T) {
	ok := unhex(t, checkpointHex)
	mutate := func(i int, v byte) []byte {
		b := bytes.Clone(ok)
		b[i] = v
		return b
	}
	const keys, rows = 44, 44 + 32 + 4
	for name, b := range map[string][]byte{
		"empty":                nil,
		"format":               mutate(0, 2),
		"cut in keys":          ok[:keys+20],
		"cut before rows":      ok[:keys+33],
		"cut in row":           ok[:rows+30],
		"cut in requests":      ok[:len(ok)-1],
		"trailing":             append(bytes.Clone(ok), 0),
		"trim above end":       mutate(24, 101),
		"offset at next":       mutate(keys+8, 100),
		"offset kind":          mutate(keys, 3),
		"key order":            mutate(keys, 2), // (2, 5) before (2, 0)
		"reserved":             mutate(keys+1, 1),
		"too many keys":        mutate(43, 0xff),
		"too many rows":        mutate(rows-1, 0xff),
		"no requests":          mutate(rows+20, 0),
		"65 requests":          mutate(rows+20, 65),
		"used in the future":   mutate(rows+32, 10),
		"request 0":            mutate(rows+40, 0),
		"outcome out of range": mutate(rows+40+16+8+4, 1),
	} {
		d := newDedupTable(DefaultClients, testIdle)
		if _, _, err := decodeCheckpoint(b, &d); !errors.Is(err, ErrCorruptRecord) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzCheckpoint(f *testing.F) {
	f.Add(unhex(f, checkpointHex))
	f.Add(unhex(f, checkpointHex)[:44])
	f.Fuzz(func(t *testing.T, b []byte) {
		d := newDedupTable(DefaultClients, testIdle)
		s, stored, err := decodeCheckpoint(b, &d)
		if err != nil {
			return
		}
		var offsets offsetTable
		offsets.reset(stored)
		if got := appendCheckpoint(nil, s, &offsets, &d); !bytes.Equal(got, b) {
			t.Fatalf("% x\nencodes as\n% x", b, got)
		}
	})
}
