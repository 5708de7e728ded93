package partition

import (
	"encoding/binary"
	"slices"

	"github.com/whippetmq/whippet/wire"
)

// The applied state in a checkpoint, little-endian. The encoding is canonical: equal states give equal bytes, and bytes
// that decode encode to themselves, so that replicas can be compared by hash.
//
//	[format:4 = 1][0:4][next offset:8][newest base timestamp:8][lowest offset kept:8][purge generation:8]
//	[keys:4]    then per key, ascending by (kind, key): [kind:1][0:3][key:4][offset:8]
//	[rows:4]    then per row, in order of last use:
//	            [client:16][user:4][remembered:4][floor:8][used:8] and per remembered request, oldest first:
//	            [request:8][outcome:8]    outcome = base offset, or 2^63 | error code of an offset write
const (
	checkpointFormat = 1
	checkpointFixed  = 40
	checkpointKey    = 16
	checkpointRow    = 40
	checkpointSeen   = 16
)

// state is what all replicas agree on.
type state struct {
	next       uint64 // offset of the next message
	stamp      uint64 // newest entry time, µs: of a batch or of offset writes
	keep       uint64 // lowest offset kept: the newest trim
	generation uint64 // of the newest purge
}

func appendCheckpoint(dst []byte, s state, offsets *offsetTable, dedup *dedupTable) []byte {
	dst = slices.Grow(dst, checkpointFixed+8+len(offsets.stored)*checkpointKey+dedup.kept*(checkpointRow+4*checkpointSeen))
	dst = binary.LittleEndian.AppendUint64(dst, checkpointFormat)
	dst = binary.LittleEndian.AppendUint64(dst, s.next)
	dst = binary.LittleEndian.AppendUint64(dst, s.stamp)
	dst = binary.LittleEndian.AppendUint64(dst, s.keep)
	dst = binary.LittleEndian.AppendUint64(dst, s.generation)

	keys := offsets.keys()
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(keys)))
	for _, k := range keys {
		dst = append(dst, byte(k.kind), 0, 0, 0)
		dst = binary.LittleEndian.AppendUint32(dst, k.key)
		dst = binary.LittleEndian.AppendUint64(dst, offsets.stored[k])
	}

	dst = binary.LittleEndian.AppendUint32(dst, uint32(dedup.kept))
	for r := dedup.oldest; r != nil; r = r.next {
		dst = wire.AppendU128(dst, r.id.client)
		dst = binary.LittleEndian.AppendUint32(dst, r.id.user)
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(r.seen)))
		dst = binary.LittleEndian.AppendUint64(dst, r.floor)
		dst = binary.LittleEndian.AppendUint64(dst, r.used)
		for i := range r.seen {
			e := r.at(i)
			dst = binary.LittleEndian.AppendUint64(dst, e.request)
			dst = binary.LittleEndian.AppendUint64(dst, uint64(e.outcome))
		}
	}
	return dst
}

// decodeCheckpoint fills empty tables. Counts are bounded by the bytes that are there before anything is allocated.
func decodeCheckpoint(b []byte, dedup *dedupTable) (state, map[offsetKey]uint64, error) {
	if len(b) < checkpointFixed+4 {
		return state{}, nil, corrupt("checkpoint of %d bytes", len(b))
	}
	if f := binary.LittleEndian.Uint64(b); f != checkpointFormat {
		return state{}, nil, corrupt("checkpoint format %d", f)
	}
	s := state{
		next:       binary.LittleEndian.Uint64(b[8:]),
		stamp:      binary.LittleEndian.Uint64(b[16:]),
		keep:       binary.LittleEndian.Uint64(b[24:]),
		generation: binary.LittleEndian.Uint64(b[32:]),
	}
	if s.keep > s.next {
		return state{}, nil, corrupt("trim to %d above next offset %d", s.keep, s.next)
	}
	b = b[checkpointFixed:]
	offsets, b, err := decodeKeys(b, s.next)
	if err != nil {
		return state{}, nil, err
	}
	if err := decodeRows(b, s, dedup); err != nil {
		return state{}, nil, err
	}
	return s, offsets, nil
}

func decodeKeys(b []byte, next uint64) (map[offsetKey]uint64, []byte, error) {
	n := binary.LittleEndian.Uint32(b)
	b = b[4:]
	if uint64(n)*checkpointKey > uint64(len(b)) {
		return nil, nil, corrupt("%d offsets in %d bytes", n, len(b))
	}
	if n == 0 {
		return nil, b, nil
	}
	stored := make(map[offsetKey]uint64, n)
	var last offsetKey
	for range n {
		k := offsetKey{wire.ConsumerKind(b[0]), binary.LittleEndian.Uint32(b[4:])}
		offset := binary.LittleEndian.Uint64(b[8:])
		switch {
		case !validKind(k.kind) || b[1]|b[2]|b[3] != 0:
			return nil, nil, corrupt("offset kind % x", b[:4])
		case len(stored) > 0 && last.compare(k) >= 0:
			return nil, nil, corrupt("offset keys out of order")
		case offset >= next:
			return nil, nil, corrupt("stored offset %d, next offset %d", offset, next)
		}
		stored[k] = offset
		last = k
		b = b[checkpointKey:]
	}
	return stored, b, nil
}

func decodeRows(b []byte, s state, dedup *dedupTable) error {
	if len(b) < 4 {
		return corrupt("checkpoint ends before its rows")
	}
	n := binary.LittleEndian.Uint32(b)
	b = b[4:]
	if uint64(n)*(checkpointRow+checkpointSeen) > uint64(len(b)) {
		return corrupt("%d rows in %d bytes", n, len(b))
	}
	if n > 0 {
		dedup.rows = make(map[identity]*dedupRow, n)
	}
	for range n {
		if len(b) < checkpointRow {
			return corrupt("row of %d bytes", len(b))
		}
		id := identity{wire.GetU128(b), binary.LittleEndian.Uint32(b[16:])}
		count := binary.LittleEndian.Uint32(b[20:])
		r := &dedupRow{
			id:    id,
			floor: binary.LittleEndian.Uint64(b[24:]),
			used:  binary.LittleEndian.Uint64(b[32:]),
			kept:  true,
		}
		b = b[checkpointRow:]
		switch {
		case count == 0 || int64(count) > int64(dedup.window) || uint64(count)*checkpointSeen > uint64(len(b)):
			return corrupt("row of %d requests in %d bytes", count, len(b))
		case dedup.rows[id] != nil:
			return corrupt("two rows of one client")
		case dedup.newest != nil && dedup.newest.used > r.used, r.used > s.stamp:
			return corrupt("rows out of order of use")
		}
		r.seen = make([]remembered, 0, count)
		r.top = r.floor
		for range count {
			e := remembered{binary.LittleEndian.Uint64(b), outcome(binary.LittleEndian.Uint64(b[8:]))}
			if e.request == 0 || !e.outcome.valid() {
				return corrupt("remembered request %d with outcome %#x", e.request, uint64(e.outcome))
			}
			r.seen = append(r.seen, e)
			r.top = max(r.top, e.request)
			b = b[checkpointSeen:]
		}
		dedup.rows[id] = r
		dedup.link(r)
		dedup.kept++
	}
	if len(b) != 0 {
		return corrupt("%d bytes after the checkpoint", len(b))
	}
	return nil
}
