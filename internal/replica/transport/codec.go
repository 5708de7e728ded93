package transport

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/whippetmq/whippet/internal/replica"
)

const (
	frameHeader   = 16
	messageFields = 64 // fixed part of a raft message's body
	entryFields   = 16 // per entry: len u32, type u8, 3 zero, term u64

	// ownPiece is the size from which an entry's data is written from where it is instead of being copied.
	ownPiece = 2 << 10
)

// frameKind tells what a frame's body is.
type frameKind uint8

const (
	frameRaft    frameKind = 1
	frameControl frameKind = 2 // flags = kind of the control frame
	frameCall    frameKind = 3 // group = call id
	frameAnswer  frameKind = 4 // group = call id, flags = 1 when the call was not taken
)

// Flags of a raft message's body.
const (
	flagReject   = 1 << 0
	flagSnapshot = 1 << 1
	flagContext  = 1 << 2 // a context is present, which may be empty
)

var errFrame = errors.New("malformed frame")

type header struct {
	length uint32
	kind   frameKind
	flags  uint8
	shard  uint16
	group  uint64
}

// transient reports whether nothing refers to the body after the frame was looked at: that of a raft message without
// context and entries, and that of a small control frame.
func (h header) transient() bool {
	return h.kind == frameRaft && h.length == messageFields || h.kind == frameControl && h.length <= 64<<10
}

func (h header) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, h.length)
	dst = append(dst, byte(h.kind), h.flags)
	dst = binary.LittleEndian.AppendUint16(dst, h.shard)
	return binary.LittleEndian.AppendUint64(dst, h.group)
}

func decodeHeader(src []byte) header {
	return header{
		length: binary.LittleEndian.Uint32(src),
		kind:   frameKind(src[4]),
		flags:  src[5],
		shard:  binary.LittleEndian.Uint16(src[6:]),
		group:  binary.LittleEndian.Uint64(src[8:]),
	}
}

// appendMessage queues a raft message of a group.
func (q *queue) appendMessage(group replica.GroupID, m *raftpb.Message) error {
	var snapshot []byte
	var flags byte
	if m.GetReject() {
		flags |= flagReject
	}
	if m.Context != nil {
		flags |= flagContext
	}
	if m.Snapshot != nil {
		data, err := proto.Marshal(m.Snapshot)
		if err != nil {
			return fmt.Errorf("transport: encode snapshot: %w", err)
		}
		snapshot = data
		flags |= flagSnapshot
	}
	size := messageFields + len(m.Context)
	if snapshot != nil {
		size += 4 + len(snapshot)
	}
	for _, e := range m.Entries {
		size += entryFields + len(e.Data)
	}
	b := q.room(frameHeader + messageFields)
	b = header{length: uint32(size), kind: frameRaft, group: uint64(group)}.append(b)
	b = append(b, byte(m.GetType()), flags, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.Entries)))
	b = binary.LittleEndian.AppendUint64(b, m.GetTerm())
	b = binary.LittleEndian.AppendUint64(b, m.GetLogTerm())
	b = binary.LittleEndian.AppendUint64(b, m.GetIndex())
	b = binary.LittleEndian.AppendUint64(b, m.GetCommit())
	b = binary.LittleEndian.AppendUint64(b, m.GetRejectHint())
	b = binary.LittleEndian.AppendUint64(b, m.GetVote())
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.Context)))
	b = append(b, 0, 0, 0, 0)
	q.take(b)
	q.piece(m.Context)
	if snapshot != nil {
		q.take(binary.LittleEndian.AppendUint32(q.room(4), uint32(len(snapshot))))
		q.piece(snapshot)
	}
	for _, e := range m.Entries {
		b := q.room(entryFields)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(e.Data)))
		b = append(b, byte(e.GetType()), 0, 0, 0)
		b = binary.LittleEndian.AppendUint64(b, e.GetTerm())
		q.take(b)
		q.piece(e.Data)
	}
	return nil
}

// messageSlab is what one message needs, in one allocation.
type messageSlab struct {
	message                                            raftpb.Message
	kind                                               raftpb.MessageType
	reject                                             bool
	from, to, term, logTerm, index, commit, hint, vote uint64
}

// decodeMessage reads a raft message's body. Entries are parts of body, which must not change afterwards.
func decodeMessage(body []byte, from, to uint64) (*raftpb.Message, error) {
	if len(body) < messageFields {
		return nil, fmt.Errorf("%w: raft message of %d bytes", errFrame, len(body))
	}
	if _, known := raftpb.MessageType_name[int32(body[0])]; !known {
		return nil, fmt.Errorf("%w: raft message type %d", errFrame, body[0])
	}
	flags := body[1]
	count := binary.LittleEndian.Uint32(body[4:])
	contextLength := uint64(binary.LittleEndian.Uint32(body[56:]))
	s := &messageSlab{
		kind: raftpb.MessageType(body[0]), from: from, to: to, reject: flags&flagReject != 0,
		term:    binary.LittleEndian.Uint64(body[8:]),
		logTerm: binary.LittleEndian.Uint64(body[16:]),
		index:   binary.LittleEndian.Uint64(body[24:]),
		commit:  binary.LittleEndian.Uint64(body[32:]),
		hint:    binary.LittleEndian.Uint64(body[40:]),
		vote:    binary.LittleEndian.Uint64(body[48:]),
	}
	m := &s.message
	m.Type, m.From, m.To, m.Term, m.LogTerm, m.Index = &s.kind, &s.from, &s.to, &s.term, &s.logTerm, &s.index
	m.Commit, m.RejectHint, m.Vote, m.Reject = &s.commit, &s.hint, &s.vote, &s.reject
	rest := body[messageFields:]
	if uint64(len(rest)) < contextLength {
		return nil, fmt.Errorf("%w: context of %d bytes", errFrame, contextLength)
	}
	if flags&flagContext != 0 {
		m.Context = rest[:contextLength:contextLength]
	}
	rest = rest[contextLength:]
	if flags&flagSnapshot != 0 {
		if len(rest) < 4 {
			return nil, fmt.Errorf("%w: snapshot", errFrame)
		}
		length := uint64(binary.LittleEndian.Uint32(rest))
		rest = rest[4:]
		if uint64(len(rest)) < length {
			return nil, fmt.Errorf("%w: snapshot of %d bytes", errFrame, length)
		}
		m.Snapshot = &raftpb.Snapshot{}
		if err := proto.Unmarshal(rest[:length], m.Snapshot); err != nil {
			return nil, fmt.Errorf("%w: snapshot: %w", errFrame, err)
		}
		rest = rest[length:]
	}
	if uint64(count) > uint64(len(rest))/entryFields {
		return nil, fmt.Errorf("%w: %d entries in %d bytes", errFrame, count, len(rest))
	}
	if count > 0 {
		if err := decodeEntries(m, rest, int(count)); err != nil {
			return nil, err
		}
		return m, nil
	}
	if len(rest) != 0 {
		return nil, fmt.Errorf("%w: %d bytes behind a raft message", errFrame, len(rest))
	}
	return m, nil
}

// entrySlab is what one entry needs, so that a frame's entries cost one allocation.
type entrySlab struct {
	entry     raftpb.Entry
	kind      raftpb.EntryType
	term, idx uint64
}

func decodeEntries(m *raftpb.Message, rest []byte, count int) error {
	slab := make([]entrySlab, count)
	m.Entries = make([]*raftpb.Entry, count)
	for i := range slab {
		if len(rest) < entryFields {
			return fmt.Errorf("%w: entry %d of %d", errFrame, i, count)
		}
		length := uint64(binary.LittleEndian.Uint32(rest))
		kind := raftpb.EntryType(rest[4])
		if _, known := raftpb.EntryType_name[int32(kind)]; !known {
			return fmt.Errorf("%w: entry type %d", errFrame, kind)
		}
		s := &slab[i]
		s.kind, s.term, s.idx = kind, binary.LittleEndian.Uint64(rest[8:]), m.GetIndex()+1+uint64(i)
		rest = rest[entryFields:]
		if uint64(len(rest)) < length {
			return fmt.Errorf("%w: entry of %d bytes", errFrame, length)
		}
		s.entry.Type, s.entry.Term, s.entry.Index = &s.kind, &s.term, &s.idx
		if length > 0 {
			s.entry.Data = rest[:length:length]
		}
		m.Entries[i] = &s.entry
		rest = rest[length:]
	}
	if len(rest) != 0 {
		return fmt.Errorf("%w: %d bytes behind the entries", errFrame, len(rest))
	}
	return nil
}
