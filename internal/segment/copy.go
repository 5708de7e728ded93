package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/whippetmq/whippet/internal/vfs"
)

// Piece is one file of a copy of a log: a segment, or the beginning of the
// last one. Before and Chain tie its content: the chain covers the headers of
// the records, and they cover the bodies. Equal pieces have equal bytes on all
// replicas.
type Piece struct {
	// Generation is the purge generation, BaseOffset the offset with which the
	// file begins. Repeated tells that the segment before begins with the same.
	Generation, BaseOffset uint64
	Repeated               bool
	// First and Last are the indexes of its records; Last is First-1 when it
	// has none.
	First, Last uint64
	// Term is the term of the entry before the first one.
	Term uint64
	// Before and Chain are the chain values at its start and at its end.
	Before, Chain uint64
	// Length is the number of bytes, with the file's header.
	Length int64
}

// PieceHeaderBytes is the least length of a piece: that of its file's header.
const PieceHeaderBytes = segmentHeaderSize

// Name is the path of the piece's file below the directory of the log.
func (p *Piece) Name() string {
	return filepath.Join(p.Dir(), segmentName(p.BaseOffset, p.First, p.Repeated)+logSuffix)
}

// Dir is the directory of the piece's file below the directory of the log.
func (p *Piece) Dir() string { return strconv.FormatUint(p.Generation, 10) }

// IndexName is the path of the sparse index that belongs to Name.
func (p *Piece) IndexName() string {
	return filepath.Join(p.Dir(), segmentName(p.BaseOffset, p.First, p.Repeated)+indexSuffix)
}

// Header is the header of the piece's file.
func (p *Piece) Header(group uint64) []byte {
	b := make([]byte, segmentHeaderSize)
	putSegmentHeader(b, group, p.start())
	return b
}

func (p *Piece) start() state {
	return state{index: p.First - 1, term: p.Term, offset: p.BaseOffset, chain: p.Before, gen: p.Generation, pos: segmentHeaderSize}
}

// Pieces describes what a copy of the log up to an index, which has to be
// applied, consists of, oldest first. What only waits to be deleted is left
// out. It may read a part of a file. Owner.
func (l *Log) Pieces(index uint64) ([]Piece, error) {
	if err := l.Err(); err != nil {
		return nil, err
	}
	if index > l.applied {
		return nil, fmt.Errorf("%w: index %d, applied %d", ErrOutOfRange, index, l.applied)
	}
	end, err := l.stateBehind(index)
	if err != nil {
		return nil, err
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	var out []Piece
	for i, s := range l.segs {
		if s.start.index > index || s.start.index == index && len(out) > 0 {
			break
		}
		st := s.end
		if st.index > index || i == len(l.segs)-1 {
			st = end
			if s.start.index == index {
				st = s.start
			}
		}
		last := st.index == index
		if !last && l.droppable(s, index) && len(out) == 0 {
			continue
		}
		out = append(out, Piece{
			Generation: s.start.gen, BaseOffset: s.start.offset, Repeated: l.repeated(s),
			First: s.firstIndex(), Last: st.index, Term: s.start.term, Before: s.start.chain, Chain: st.chain, Length: st.pos,
		})
		if last {
			break
		}
	}
	return out, nil
}

// droppable tells whether a sealed segment has nothing that a reader could
// want once a checkpoint at an index is there; l.mu is held.
func (l *Log) droppable(s *seg, index uint64) bool {
	return s.end.index <= index && (s.start.gen < l.readGen || s.end.offset <= l.trim || s.end.offset == s.start.offset)
}

// repeated tells whether the segment's name has its first index.
func (l *Log) repeated(s *seg) bool {
	return filepath.Base(s.path) != segmentName(s.start.offset, s.firstIndex(), false)
}

// PieceError says that a file is not the piece that it should be.
type PieceError struct {
	File     string
	Position int64
	Reason   string
}

// Error implements error.
func (e *PieceError) Error() string {
	return fmt.Sprintf("copied segment %s is not what it should be: at byte %d: %s", e.File, e.Position, e.Reason)
}

// VerifyPiece reads the piece's file below dir as far as the piece goes and
// checks every byte of it: header, records, bodies and the chain. What does not
// fit is a *PieceError. stop is asked now and then and ends the work with its
// error; nil = never.
func VerifyPiece(fs vfs.FS, dir string, group uint64, p Piece, stop func() error) error {
	name := filepath.Join(dir, p.Name())
	bad := func(pos int64, format string, args ...any) error {
		return &PieceError{name, pos, fmt.Sprintf(format, args...)}
	}
	f, err := fs.OpenFile(name, os.O_RDONLY)
	if vfs.IsNotExist(err) {
		return bad(0, "it is missing")
	}
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	size, err := f.Size()
	if err != nil {
		return err
	}
	if size < p.Length || p.Length < segmentHeaderSize {
		return bad(size, "%d bytes instead of %d", size, p.Length)
	}
	header := make([]byte, segmentHeaderSize)
	if _, err := f.ReadAt(header, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !bytes.Equal(header, p.Header(group)) {
		return bad(0, "another header")
	}
	sc := &scanner{f: f, st: p.start(), linked: true, end: p.Length}
	var scratch []byte
	next := int64(0)
	for {
		if stop != nil && sc.st.pos >= next {
			if err := stop(); err != nil {
				return err
			}
			next = sc.st.pos + readChunk
		}
		r, body, err := sc.next()
		var broken *breakError
		switch {
		case errors.Is(err, io.EOF):
			if sc.st.index != p.Last || sc.st.chain != p.Chain {
				return bad(sc.st.pos, "it ends with index %d and chain %x instead of %d and %x", sc.st.index, sc.st.chain, p.Last, p.Chain)
			}
			return nil
		case errors.As(err, &broken):
			return bad(broken.pos, "%s", broken.reason)
		case err != nil:
			return err
		}
		if reason := verifyBody(body, &r, &scratch); reason != "" {
			return bad(r.pos, "%s", reason)
		}
	}
}

// ReadCheckpoint returns the body of the checkpoint at an index in dir,
// ErrNoCheckpoint when it is missing or not valid.
func ReadCheckpoint(fs vfs.FS, dir string, group, index uint64) ([]byte, error) {
	body, ok, err := readCheckpoint(fs, filepath.Join(dir, CheckpointName(index)), group, index)
	if vfs.IsNotExist(err) || err == nil && !ok {
		return nil, ErrNoCheckpoint
	}
	return body, err
}
