package server

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/whippetmq/whippet/wire"
)

// TestLostMetadata: a node whose metadata is gone does not start as a new one, which would take the logs of old partitions
// for its own.
func TestLostMetadata(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startIn(t, dir)
	r := login(t, s)
	stream, topic := r.topic(1)
	r.send(stream, topic, wire.PartitionID(0), "old")
	stop(t, s)
	metadata, kept := filepath.Join(dir, metadataDir), filepath.Join(dir, "kept")
	if err := os.Rename(metadata, kept); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s, err := tryStart(t, func(c *Config) { c.Path = dir })
		if err == nil {
			stop(t, s)
			t.Fatal("started")
		}
		if !strings.Contains(err.Error(), metadata) || !strings.Contains(err.Error(), "is missing") {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(metadata); err != nil { // empty at most
		t.Fatal(err)
	}
	if err := os.Rename(kept, metadata); err != nil {
		t.Fatal(err)
	}
	s = startIn(t, dir)
	if got, _ := login(t, s).poll(pollRequest(stream, topic, 0, 0, 10)); len(got) != 1 {
		t.Fatal(got)
	}
	stop(t, s)
}

// TestDamageIsNeverServed changes one byte of a partition's log at a time, between two runs of the node: a poll gives what
// was sent or an error, never something else, and never nothing as if there were nothing.
func TestDamageIsNeverServed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startIn(t, dir)
	r := login(t, s)
	stream, topic := r.topic(1)
	var sent []string
	for i := range 4 {
		one, two := strings.Repeat(fmt.Sprint(i), 40), strings.Repeat(fmt.Sprint("x", i), 50)
		r.send(stream, topic, wire.PartitionID(0), one, two)
		sent = append(sent, one, two)
	}
	stop(t, s)
	files, err := filepath.Glob(filepath.Join(dir, "streams/*/topics/*/partitions/*/*/*.log"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	step := 97
	if testing.Short() {
		step = 997
	}
	refused := 0
	for at := 0; at < len(whole); at += step {
		damaged := bytes.Clone(whole)
		damaged[at] ^= 0x10
		if err := os.WriteFile(files[0], damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		s = startIn(t, dir)
		q := login(t, s)
		var got []string
		for len(got) < len(sent) {
			a := q.do(pollRequest(stream, topic, 0, uint64(len(got)), 100))
			if code := a.code(); code != 0 {
				if code != wire.ErrCannotReadMessage {
					t.Fatalf("byte %d: %v, want code 4011", at, code)
				}
				refused++
				break
			}
			payload, err := a.payload()
			if err != nil {
				t.Fatal(err)
			}
			var p wire.PolledMessages
			if err := p.Decode(payload); err != nil {
				t.Fatalf("byte %d: %v", at, err)
			}
			if p.Count == 0 {
				t.Fatalf("byte %d: %d of %d messages, and then nothing", at, len(got), len(sent))
			}
			for m := range p.Messages() {
				got = append(got, string(m.Payload))
			}
		}
		if !slices.Equal(got, sent[:len(got)]) {
			t.Fatalf("byte %d: %q, sent was %q", at, got, sent)
		}
		stop(t, s)
	}
	if refused == 0 {
		t.Error("no damage was noticed")
	}
}
