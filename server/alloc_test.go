package server

import (
	"encoding/binary"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/whippetmq/whippet/wire"
)

// Offsets of the request number in request headers (framing §1.2).
const requestNumberAt = 168

// mallocs counts the heap allocations of the whole process per call of f: the
// server's, since f itself allocates nothing.
func mallocs(n int, f func()) float64 {
	for range 64 {
		f()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n {
		f()
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(n)
}

// perBatch is what a send may allocate in the whole process (engine §12, target
// 11): the memory of the batch, as long as the tail cache still grows, and what the
// shard and the file need.
const perBatch = 6

// tailCache is more than the tail cache of a shard holds: from then on the memory of
// batches is used again.
const tailCache = 40 << 20

// ours counts the objects that the gateway and the broker have allocated so far.
func ours() int64 {
	runtime.GC()
	runtime.GC() // the profile is of the last completed cycle
	n, _ := runtime.MemProfile(nil, true)
	records := make([]runtime.MemProfileRecord, n+200)
	n, _ = runtime.MemProfile(records, true)
	var total int64
	for _, rec := range records[:n] {
		mine, raft := false, false
		for frames := runtime.CallersFrames(rec.Stack()); ; {
			f, more := frames.Next()
			mine = mine || strings.Contains(f.Function, "internal/gateway/tcp.") || strings.Contains(f.Function, "internal/broker.")
			raft = raft || strings.Contains(f.Function, "internal/replica.")
			if !more {
				break
			}
		}
		if mine && !raft {
			total += rec.AllocObjects
		}
	}
	return total
}

// Gateway and broker allocate nothing per send, poll and ping, measured from the
// socket and back; the whole node at most perBatch objects.
func TestAllocationsPerBatch(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	rate := runtime.MemProfileRate
	runtime.MemProfileRate = 1
	defer func() { runtime.MemProfileRate = rate }()
	s := start(t, nil)
	r := login(t, s)
	stream, topic := r.topic(1)
	payloads := make([]string, 100)
	for i := range payloads {
		payloads[i] = string(make([]byte, 100))
	}
	frame := r.frame(&wire.SendMessages{Stream: stream, Topic: topic, Partitioning: wire.PartitionID(0), Batch: batch(t, payloads...)})
	number := r.request
	reply := make([]byte, 1<<20)
	exchange := func(size int) {
		if _, err := r.nc.Write(frame); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(r.nc, reply[:size]); err != nil {
			t.Fatal(err)
		}
	}
	send := func() {
		binary.LittleEndian.PutUint64(frame[requestNumberAt:], number)
		number++
		exchange(wire.HeaderSize + 24)
	}
	got := mallocs(tailCache/len(frame), send)
	t.Logf("send, while the tail cache grows: %.2f allocations per batch of %d bytes", got, len(frame))
	if got > perBatch {
		t.Errorf("a send allocates %.1f objects", got)
	}
	before := ours()
	got = mallocs(2000, send)
	t.Logf("send: %.2f allocations per batch of %d bytes", got, len(frame))
	if got > perBatch {
		t.Errorf("a send allocates %.1f objects", got)
	}
	// A collection empties the free lists, so a few objects are made again.
	if n := ours() - before; n > 100 {
		t.Errorf("gateway and broker allocated %d objects in 2,000 sends", n)
	}
	if c := wire.ErrorCode(binary.LittleEndian.Uint32(reply[216:])); c != 0 {
		t.Fatal(c)
	}

	frame = r.frame(pollRequest(stream, topic, 0, 10, 1000))
	if _, err := r.nc.Write(frame); err != nil {
		t.Fatal(err)
	}
	size := len(r.read().body) + wire.HeaderSize
	got = mallocs(2000, func() { exchange(size) })
	t.Logf("poll: %.2f allocations per reply of %d bytes", got, size)
	if got > 0.5 {
		t.Errorf("a poll allocates %.1f objects", got)
	}

	frame = r.frame(&wire.Ping{})
	got = mallocs(2000, func() { exchange(wire.HeaderSize) })
	t.Logf("ping: %.2f allocations", got)
	if got > 0.5 {
		t.Errorf("a ping allocates %.1f objects", got)
	}
}

// With many sends in flight a turn of the log serves many batches.
func TestAllocationsPipelined(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s := start(t, nil)
	r := login(t, s)
	stream, topic := r.topic(1)
	one := r.frame(&wire.SendMessages{Stream: stream, Topic: topic, Partitioning: wire.PartitionID(0), Batch: batch(t, string(make([]byte, 10_000)))})
	const depth = 64
	var frames []byte
	for range depth {
		frames = append(frames, one...)
	}
	number := r.request
	reply := make([]byte, depth*(wire.HeaderSize+24))
	got := mallocs(500, func() {
		for i := range depth {
			binary.LittleEndian.PutUint64(frames[i*len(one)+requestNumberAt:], number)
			number++
		}
		if _, err := r.nc.Write(frames); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(r.nc, reply); err != nil {
			t.Fatal(err)
		}
	}) / depth
	t.Logf("%.2f allocations per batch", got)
	if got > perBatch {
		t.Errorf("a send allocates %.1f objects", got)
	}
}
