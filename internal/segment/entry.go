package segment

import "encoding/binary"

var le = binary.LittleEndian

// Kind tells what an entry is. The log interprets KindData, KindTerm and
// KindPurge; it stores the others as they are.
type Kind uint16

// The kinds of entries.
const (
	// KindData is a batch of messages.
	KindData Kind = 0
	// KindTerm is the empty entry with which a leader starts its term.
	KindTerm Kind = 1
	// KindConfChange is a change of the group's members.
	KindConfChange Kind = 2
	// KindCommands is a list of consumer offset commands.
	KindCommands Kind = 3
	// KindTrim is the lowest offset to keep.
	KindTrim Kind = 4
	// KindPurge starts a new purge generation: its body begins with the
	// generation as a u64. It is the last record of its generation; the next
	// one has offset 0 in a new directory.
	KindPurge Kind = 5
	// KindForget is a list of dedup rows that may go.
	KindForget Kind = 6
	// KindMetadata is a command of the metadata group.
	KindMetadata Kind = 16
)

// String is the name of the kind.
func (k Kind) String() string {
	switch k {
	case KindData:
		return "data"
	case KindTerm:
		return "term"
	case KindConfChange:
		return "conf-change"
	case KindCommands:
		return "commands"
	case KindTrim:
		return "trim"
	case KindPurge:
		return "purge"
	case KindForget:
		return "forget"
	case KindMetadata:
		return "metadata"
	default:
		return "unknown"
	}
}

// Entry is one entry of the group's log.
type Entry struct {
	// Index and Term are the entry's place in the raft log.
	Index, Term uint64
	// Data is a data batch (the wire batch with [PutOrigin] done and bytes
	// 88..255 of its header zero), a control entry as [AppendControl] makes it,
	// or empty, which is KindTerm.
	Data []byte
	// Mem is what Data is in, when that is to be used again. Place takes one
	// use of it over. Nil leaves Data to the garbage collector.
	Mem Memory
}

// Memory is memory with several users, who must all be done before it is used
// again. A log has a use of it as long as the entry is in the tail cache, and
// each result of a read one until it is released. What is handed out without an
// end, by Entries, or is cut off the log, or in memory when the log is closed,
// keeps its use: that memory is not used again.
type Memory interface {
	// Retain adds a use.
	Retain()
	// Release ends one.
	Release()
	// Size is the number of bytes that stay occupied.
	Size() int
}

// Layout of a batch header (docs/storage-format.md).
const (
	headerSize = 256

	offPartition     = 0
	offBaseOffset    = 8
	offBaseTimestamp = 16
	offOriginTime    = 24
	offBatchLength   = 32
	offChecksum      = 40
	offCount         = 48
	wireHeaderEnd    = 52 // everything behind is reserved on the wire

	offStampKind   = 52
	offClient      = 56
	offRequest     = 72
	offUser        = 80
	offFlags       = 84
	offTerm        = 88
	offIndex       = 96
	offChainBefore = 104
	offChainAfter  = 248

	// stampData is the kind 1 (data batch) with version 1 in the high half.
	stampData = 1 | 1<<16
)

// Layout of a frame header.
const (
	frameHeaderSize = 48

	offFrameDelta   = 24
	offFrameHeaders = 32
	offFramePayload = 36
)

// Layout of a control entry and of its record.
const (
	controlMarkerSize = 8
	controlHeaderSize = 64

	offControlLength      = 8
	offControlTerm        = 16
	offControlIndex       = 24
	offControlChainBefore = 32
	offControlBodySum     = 40
	offControlBodyLength  = 48
	offControlChainAfter  = 56

	controlVersion = 1
	// controlMagic is 0xFF 'C' 'T' 'L' as a little-endian number. No batch
	// begins with it, since a partition id is below 2^20.
	controlMagic = uint32(0xFF) | 'C'<<8 | 'T'<<16 | 'L'<<24
)

// AppendControl appends a control entry of the given kind to dst.
func AppendControl(dst []byte, kind Kind, body []byte) []byte {
	dst = le.AppendUint32(dst, controlMagic)
	dst = le.AppendUint16(dst, uint16(kind))
	dst = le.AppendUint16(dst, controlVersion)
	return append(dst, body...)
}

// ParseControl returns the kind and the body of a control entry; the body
// shares memory with data. Empty data is KindTerm. It reports false for a data
// batch and for what is neither.
func ParseControl(data []byte) (Kind, []byte, bool) {
	if len(data) == 0 {
		return KindTerm, nil, true
	}
	if len(data) < controlMarkerSize || le.Uint32(data) != controlMagic {
		return 0, nil, false
	}
	return Kind(le.Uint16(data[4:])), data[controlMarkerSize:], true
}

// IsData tells whether an entry is a data batch: a whole header, not the mark
// of a control entry, and a length that is its own.
func IsData(data []byte) bool {
	return len(data) >= headerSize && le.Uint32(data) != controlMagic && le.Uint64(data[offBatchLength:]) == uint64(len(data))
}

// KindOf returns the kind of an entry's data.
func KindOf(data []byte) Kind {
	if kind, _, ok := ParseControl(data); ok {
		return kind
	}
	return KindData
}

// BaseOffset returns the offset of the first message of a data batch.
func BaseOffset(batch []byte) uint64 { return le.Uint64(batch[offBaseOffset:]) }

// BaseTimestamp returns the append time of a data batch in microseconds.
func BaseTimestamp(batch []byte) uint64 { return le.Uint64(batch[offBaseTimestamp:]) }

// MessageCount returns the number of messages of a data batch.
func MessageCount(batch []byte) uint32 { return le.Uint32(batch[offCount:]) }

// Origin is the part of the stamp that the leader sets: who sent the batch.
type Origin struct {
	// ClientLo and ClientHi are the halves of the client id.
	ClientLo, ClientHi uint64
	// Request is the client's number of the request.
	Request uint64
	// User is the authenticated user.
	User uint32
	// Flags is for the caller.
	Flags uint32
}

// PutOrigin writes the origin stamp, with kind and version, into the reserved
// area of a batch header and zeroes the rest of that area.
func PutOrigin(header []byte, o Origin) {
	header = header[:headerSize]
	le.PutUint32(header[offStampKind:], stampData)
	le.PutUint64(header[offClient:], o.ClientLo)
	le.PutUint64(header[offClient+8:], o.ClientHi)
	le.PutUint64(header[offRequest:], o.Request)
	le.PutUint32(header[offUser:], o.User)
	le.PutUint32(header[offFlags:], o.Flags)
	clear(header[offTerm:])
}

// GetOrigin reads the origin stamp of a batch header.
func GetOrigin(header []byte) Origin {
	header = header[:headerSize]
	return Origin{
		ClientLo: le.Uint64(header[offClient:]),
		ClientHi: le.Uint64(header[offClient+8:]),
		Request:  le.Uint64(header[offRequest:]),
		User:     le.Uint32(header[offUser:]),
		Flags:    le.Uint32(header[offFlags:]),
	}
}
