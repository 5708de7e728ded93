package replica

import (
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"

	"github.com/whippetmq/whippet/internal/segment"
)

// manifest says what a copy of a replica consists of: the checkpoint at an index, and the log up to it. It is the data of
// raft's snapshot message.
//
//	 0  8  magic "WPMANI\0\1" (last byte = format version)
//	 8  8  group
//	16  8  index of the checkpoint
//	24  8  term of the entry there
//	32  8  length of the checkpoint's body
//	40  8  XXH3-64 of it
//	48  4  number of segments
//	52  4  zero
//	56  n  72 each: purge generation, base offset, first index, last index, term before, chain before, chain behind,
//	       length, flags (1 = the name has the first index); the last one ends at the index of the checkpoint
//	..  8  XXH3-64 of everything before
//
// The chain values stand for the content: the chain is made of XXH3-64 over all headers, and the headers have the
// checksums of the bodies. So a manifest is made without reading the log, and a copy is checked byte by byte.
type manifest struct {
	group       GroupID
	index, term uint64
	body        int64  // length of the checkpoint's body
	sum         uint64 // its XXH3-64
	pieces      []segment.Piece
}

const (
	manifestMagic  = 0x01_00_49_4e_41_4d_50_57 // "WPMANI\0\1" read little-endian
	manifestHeader = 56
	manifestPiece  = 72
	// maxPieces bounds a manifest: with segments of the usual size it stands for a petabyte.
	maxPieces = 1 << 20
	// maxPieceBytes bounds a segment, whose positions have 31 bits.
	maxPieceBytes = 1 << 32
	// maxCheckpoint bounds the body of a checkpoint.
	maxCheckpoint = 1 << 30
)

func (m *manifest) encode() []byte {
	b := make([]byte, manifestHeader, manifestHeader+manifestPiece*len(m.pieces)+8)
	le.PutUint64(b, manifestMagic)
	le.PutUint64(b[8:], uint64(m.group))
	le.PutUint64(b[16:], m.index)
	le.PutUint64(b[24:], m.term)
	le.PutUint64(b[32:], uint64(m.body))
	le.PutUint64(b[40:], m.sum)
	le.PutUint32(b[48:], uint32(len(m.pieces)))
	for i := range m.pieces {
		p := &m.pieces[i]
		flags := uint64(0)
		if p.Repeated {
			flags = 1
		}
		for _, v := range [...]uint64{p.Generation, p.BaseOffset, p.First, p.Last, p.Term, p.Before, p.Chain, uint64(p.Length), flags} {
			b = le.AppendUint64(b, v)
		}
	}
	return le.AppendUint64(b, xxh3.Hash(b))
}

var errManifest = errors.New("malformed manifest")

func decodeManifest(b []byte) (*manifest, error) {
	bad := func(format string, args ...any) (*manifest, error) {
		return nil, fmt.Errorf("%w: %s", errManifest, fmt.Sprintf(format, args...))
	}
	switch {
	case len(b) < manifestHeader+8:
		return bad("%d bytes", len(b))
	case le.Uint64(b) != manifestMagic:
		return bad("unknown format")
	case le.Uint64(b[len(b)-8:]) != xxh3.Hash(b[:len(b)-8]):
		return bad("checksum differs")
	}
	n := le.Uint32(b[48:])
	if n == 0 || n > maxPieces || uint64(len(b)) != manifestHeader+8+manifestPiece*uint64(n) {
		return bad("%d segments in %d bytes", n, len(b))
	}
	m := &manifest{
		group: GroupID(le.Uint64(b[8:])), index: le.Uint64(b[16:]), term: le.Uint64(b[24:]),
		body: int64(le.Uint64(b[32:])), sum: le.Uint64(b[40:]),
	}
	if m.index == 0 || m.index >= maxTerm || m.body < 0 || m.body > maxCheckpoint {
		return bad("index %d, checkpoint of %d bytes", m.index, m.body)
	}
	at := manifestHeader
	next := func() uint64 {
		v := le.Uint64(b[at:])
		at += 8
		return v
	}
	for i := range int(n) {
		p := segment.Piece{
			Generation: next(), BaseOffset: next(), First: next(), Last: next(), Term: next(),
			Before: next(), Chain: next(), Length: int64(next()), Repeated: next() == 1,
		}
		switch {
		case p.First == 0 || p.First > m.index+1 || p.Last < p.First-1 || p.Last > m.index:
			return bad("segment %d has the indexes %d to %d", i, p.First, p.Last)
		case p.Length < segment.PieceHeaderBytes || p.Length > maxPieceBytes:
			return bad("segment %d has %d bytes", i, p.Length)
		case i > 0 && (p.First != m.pieces[i-1].Last+1 || p.Before != m.pieces[i-1].Chain || p.Generation < m.pieces[i-1].Generation):
			return bad("segment %d does not follow the one before", i)
		}
		m.pieces = append(m.pieces, p)
	}
	if last := m.pieces[n-1].Last; last != m.index {
		return bad("the log ends at index %d, the checkpoint at %d", last, m.index)
	}
	return m, nil
}
