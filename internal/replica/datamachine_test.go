package replica

import (
	"encoding/binary"
	"fmt"

	"github.com/zeebo/xxh3"

	"github.com/whippetmq/whippet/internal/segment"
)

// dataMachine is a listMachine whose entries are batches of one message, so that the log has offsets and is trimmed by
// them. It keeps the last messages, as retention would.
type dataMachine struct {
	*listMachine
	keepLast uint64
	log      *segment.Log
	base     uint64 // of the next admission
	applied  uint64 // next offset applied
}

// withData makes a group's machine one of messages. Segments take size bytes, and keep messages are kept.
func withData(size int64, keep uint64) func(*GroupConfig) {
	return func(gc *GroupConfig) {
		gc.SegmentBytes = size
		gc.Machine = &dataMachine{listMachine: gc.Machine.(*listMachine), keepLast: keep}
	}
}

func (m *dataMachine) Restore(log *segment.Log, checkpoint []byte, index uint64) error {
	m.log = log
	m.applied = 0
	if len(checkpoint) >= 8 {
		m.applied = binary.LittleEndian.Uint64(checkpoint)
		checkpoint = checkpoint[8:]
	}
	m.trim()
	return m.listMachine.Restore(log, checkpoint, index)
}

func (m *dataMachine) Checkpoint(dst []byte) []byte {
	return m.listMachine.Checkpoint(binary.LittleEndian.AppendUint64(dst, m.applied))
}

func (m *dataMachine) trim() {
	if m.applied > m.keepLast {
		m.log.Trim(m.applied - m.keepLast)
	}
}

func (m *dataMachine) Lead(term uint64, leading bool) {
	if leading {
		m.base = m.log.NextOffset()
		if m.base != m.applied {
			m.t.Errorf("leads with the next offset %d, applied %d", m.base, m.applied)
		}
	}
	m.listMachine.Lead(term, leading)
}

func (m *dataMachine) Admit(r Request) []byte {
	if !m.leads {
		m.t.Error("Admit while not leading")
	}
	c := r.(*command)
	m.pending++
	b := dataBatch(m.base, c.value, c.pad)
	m.base++
	return b
}

func (m *dataMachine) Rejected(rs []Request) {
	m.base -= uint64(len(rs))
	m.listMachine.Rejected(rs)
}

func (m *dataMachine) Apply(e segment.Entry, rs []Request) error {
	if !segment.IsData(e.Data) || segment.BaseOffset(e.Data) != m.applied {
		return fmt.Errorf("unexpected entry of kind %v, next offset %d", segment.KindOf(e.Data), m.applied)
	}
	m.applied++
	m.trim()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values = append(m.values, binary.LittleEndian.Uint64(e.Data[256+48:]))
	for _, r := range rs {
		m.pending--
		r.(*command).finish(nil)
	}
	return nil
}

// dataBatch is a batch of one message with a value, laid out and summed as the protocol says.
func dataBatch(offset, value uint64, pad int) []byte {
	b := make([]byte, 256+48+8+pad)
	le.PutUint64(b[8:], offset)
	le.PutUint64(b[16:], 1000+offset)
	le.PutUint64(b[32:], uint64(len(b)))
	le.PutUint32(b[48:], 1)
	f := b[256:]
	le.PutUint64(f[8:], value)
	le.PutUint32(f[36:], uint32(8+pad))
	le.PutUint64(f[48:], value)
	for i := range pad {
		f[56+i] = byte(value) + byte(i*i>>3)
	}
	le.PutUint64(f, xxh3.Hash(f[8:]))
	in := append([]byte(nil), b[:40]...)
	in = append(in, b[48:52]...)
	in = append(in, f[:8]...)
	le.PutUint64(b[40:], xxh3.Hash(in))
	segment.PutOrigin(b, segment.Origin{ClientLo: value})
	return b
}
