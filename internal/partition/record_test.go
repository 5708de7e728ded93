package partition

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/whippetmq/whippet/wire"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func readCommands(body []byte) (at uint64, cs []command, err error) {
	r, err := openCommands(body)
	if err != nil {
		return 0, nil, err
	}
	for c, ok := r.next(); ok; c, ok = r.next() {
		cs = append(cs, c)
	}
	return r.at, cs, r.err
}

// The bytes are written out by hand from the layout in record.go.
const commandsHex = "1027000000000000 03000000" + // entry time 10000, 3 commands
	"01 01 00 00 05000000 2a00000000000000" + // store consumer 5 := 42
	"02 02 01 00 06000000 0000000000000000 0102000000000000 0300000000000000 09000000 0b00000000000000" + // delete group 6
	"03 01 00 00 ffffffff ffffffffffffff7f" // raise

func TestCommandsLayout(t *testing.T) {
	want := []command{
		{op: opStore, target: offsetKey{wire.ConsumerSingle, 5}, offset: 42},
		{op: opDelete, target: offsetKey{wire.ConsumerGroup, 6}, from: identity{wire.U128{Lo: 0x201, Hi: 3}, 9}, request: 11},
		{op: opRaise, target: offsetKey{wire.ConsumerSingle, 1<<32 - 1}, offset: 1<<63 - 1},
	}
	at, got, err := readCommands(unhex(t, commandsHex))
	if err != nil || at != 10000 || len(got) != len(want) {
		t.Fatalf("at %d, %v, %v", at, got, err)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("command %d: %+v, want %+v", i, got[i], want[i])
		}
	}
	if b := appendCommands(nil, at, got); !bytes.Equal(b, unhex(t, commandsHex)) {
		t.Errorf("encoded % x", b)
	}
}

func TestCommandsRefused(t *testing.T) {
	ok := unhex(t, commandsHex)
	mutate := func(i int, v byte) []byte {
		b := bytes.Clone(ok)
		b[i] = v
		return b
	}
	for name, body := range map[string][]byte{
		"empty":              nil,
		"short header":       ok[:11],
		"cut":                ok[:len(ok)-1],
		"cut identity":       ok[:12+16+16+20],
		"trailing":           append(bytes.Clone(ok), 0),
		"count too high":     mutate(8, 4),
		"count too low":      mutate(8, 2),
		"count huge":         mutate(11, 0xff),
		"operation 0":        mutate(12, 0),
		"operation 4":        mutate(12, 4),
		"kind 0":             mutate(13, 0),
		"kind 3":             mutate(13, 3),
		"flags 2":            mutate(14, 2),
		"reserved":           mutate(15, 1),
		"identity request 0": mutate(12+16+16+20, 0),
	} {
		if _, _, err := readCommands(body); !errors.Is(err, ErrCorruptRecord) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestForgetLayout(t *testing.T) {
	b := unhex(t, "e803000000000000 02000000 0100000000000000 0200000000000000 03000000 ffffffffffffffff ffffffffffffffff 00000000")
	cutoff, ids, err := decodeForget(b)
	if err != nil || cutoff != 1000 || len(ids) != 2 || ids[0] != (identity{wire.U128{Lo: 1, Hi: 2}, 3}) {
		t.Fatalf("%d %v %v", cutoff, ids, err)
	}
	if got := appendForget(nil, cutoff, ids); !bytes.Equal(got, b) {
		t.Errorf("encoded % x", got)
	}
	for _, bad := range [][]byte{nil, b[:11], b[:len(b)-1], append(bytes.Clone(b), 0)} {
		if _, _, err := decodeForget(bad); !errors.Is(err, ErrCorruptRecord) {
			t.Errorf("%d bytes: %v", len(bad), err)
		}
	}
}

func TestTrimAndPurgeLayout(t *testing.T) {
	b := unhex(t, "0a00000000000000")
	if v, err := decodeTrim(b); err != nil || v != 10 || !bytes.Equal(appendTrim(nil, 10), b) {
		t.Errorf("trim %d %v", v, err)
	}
	if v, err := decodePurge(b); err != nil || v != 10 || !bytes.Equal(appendPurge(nil, 10), b) {
		t.Errorf("purge %d %v", v, err)
	}
	for _, bad := range [][]byte{nil, b[:7], append(bytes.Clone(b), 0)} {
		if _, err := decodeTrim(bad); !errors.Is(err, ErrCorruptRecord) {
			t.Errorf("trim of %d bytes: %v", len(bad), err)
		}
		if _, err := decodePurge(bad); !errors.Is(err, ErrCorruptRecord) {
			t.Errorf("purge of %d bytes: %v", len(bad), err)
		}
	}
}

func FuzzCommands(f *testing.F) {
	f.Add(unhex(f, commandsHex))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		at, cs, err := readCommands(body)
		if err != nil {
			return
		}
		if got := appendCommands(nil, at, cs); !bytes.Equal(got, body) {
			t.Fatalf("% x\nencodes as\n% x", body, got)
		}
	})
}

func FuzzForget(f *testing.F) {
	f.Add(appendForget(nil, 5, []identity{client(1), client(2)}))
	f.Fuzz(func(t *testing.T, body []byte) {
		cutoff, ids, err := decodeForget(body)
		if err != nil {
			return
		}
		if got := appendForget(nil, cutoff, ids); !bytes.Equal(got, body) {
			t.Fatalf("% x\nencodes as\n% x", body, got)
		}
	})
}
