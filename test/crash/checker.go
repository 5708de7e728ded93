package crash

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// message names a message of the load: the n-th that a producer handed over for a partition.
type message struct {
	producer, partition uint32
	seq                 uint64
}

const messageHeader = 16

// payload is the bytes of a message: its name and a filler that only this message has.
func (m message) payload(size int) []byte {
	b := make([]byte, messageHeader, messageHeader+size)
	binary.LittleEndian.PutUint32(b, m.producer)
	binary.LittleEndian.PutUint32(b[4:], m.partition)
	binary.LittleEndian.PutUint64(b[8:], m.seq)
	return m.fill(b, size)
}

func (m message) fill(b []byte, size int) []byte {
	x := m.seq*0x9e3779b97f4a7c15 + uint64(m.producer)<<32 + uint64(m.partition)
	for range size {
		x = x*6364136223846793005 + 1442695040888963407
		b = append(b, byte(x>>56))
	}
	return b
}

// parse reads the name and checks the filler.
func parse(payload []byte) (message, error) {
	if len(payload) < messageHeader {
		return message{}, fmt.Errorf("message of %d bytes", len(payload))
	}
	m := message{
		producer:  binary.LittleEndian.Uint32(payload),
		partition: binary.LittleEndian.Uint32(payload[4:]),
		seq:       binary.LittleEndian.Uint64(payload[8:]),
	}
	if !slices.Equal(m.payload(len(payload)-messageHeader), payload) {
		return m, fmt.Errorf("message %+v has other bytes than were sent", m)
	}
	return m, nil
}

// confirmed is what a producer was told of a message.
type confirmed struct {
	message
	offset uint64
	known  bool // the confirmation had an offset
}

// history is everything the clients of one topic saw.
type history struct {
	confirmed []confirmed
	unknown   []message            // the client gave up without knowing
	seen      []map[uint64]message // by partition: offset → message, from polls during the run
}

// maxReported bounds how many violations of a kind are listed.
const maxReported = 5

// check compares the history with the final content of the partitions, in order of offset. The result lists violated
// promises, nil when there are none.
func (h *history) check(partitions [][]message) error {
	var v violations
	at := map[message]uint64{} // where a message is
	for p, log := range partitions {
		last := map[uint32]uint64{} // newest seq of a producer
		for i, m := range log {
			offset := uint64(i)
			if m.partition != uint32(p) {
				v.add("misplaced", "%+v is in partition %d", m, p)
			}
			if first, twice := at[m]; twice {
				v.add("twice", "%+v is at %d and %d", m, first, offset)
				continue
			}
			at[m] = offset
			if l, ok := last[m.producer]; ok && m.seq < l {
				v.add("order", "%+v at %d comes after seq %d", m, offset, l)
			}
			last[m.producer] = m.seq
		}
	}
	ours := map[message]bool{}
	for _, c := range h.confirmed {
		ours[c.message] = true
		offset, ok := at[c.message]
		switch {
		case !ok:
			v.add("lost", "%+v was acknowledged at %d", c.message, c.offset)
		case c.known && offset != c.offset:
			v.add("moved", "%+v was acknowledged at %d and is at %d", c.message, c.offset, offset)
		}
	}
	for _, m := range h.unknown {
		ours[m] = true
	}
	for m, offset := range at {
		if !ours[m] {
			v.add("unasked", "%+v at %d was never confirmed nor left open", m, offset)
		}
	}
	for p, seen := range h.seen {
		for offset, m := range seen {
			switch {
			case p >= len(partitions) || offset >= uint64(len(partitions[p])):
				v.add("vanished", "%+v was read at %d of partition %d", m, offset, p)
			case partitions[p][offset] != m:
				v.add("changed", "offset %d of partition %d was %+v and is %+v", offset, p, m, partitions[p][offset])
			}
		}
	}
	return v.err()
}

type violations struct {
	kinds []string
	list  map[string][]error
	count map[string]int
}

func (v *violations) add(kind, format string, args ...any) {
	if v.list == nil {
		v.list, v.count = map[string][]error{}, map[string]int{}
	}
	if v.count[kind] == 0 {
		v.kinds = append(v.kinds, kind)
	}
	v.count[kind]++
	if len(v.list[kind]) < maxReported {
		v.list[kind] = append(v.list[kind], fmt.Errorf(format, args...))
	}
}

func (v *violations) err() error {
	var all []error
	for _, kind := range v.kinds {
		all = append(all, fmt.Errorf("%s (%d): %w", kind, v.count[kind], errors.Join(v.list[kind]...)))
	}
	return errors.Join(all...)
}
