package segment

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/whippetmq/whippet/internal/vfs"
)

// DumpItem is one thing that [Dump] finds: a *[DumpCheckpoint], *[DumpSegment],
// *[DumpRecord] or *[DumpDamage]. Its String is a line of text; encoded as JSON
// it is an object whose type says what it is.
type DumpItem interface {
	String() string
	// Damaged reports whether the item is, or has, damage.
	Damaged() bool
}

// DumpCheckpoint is a checkpoint file.
type DumpCheckpoint struct {
	Type string `json:"type"` // "checkpoint"
	File string `json:"file"`
}

// DumpSegment is a segment file. Behind its name and size all is from its
// header, and missing when that is damaged.
type DumpSegment struct {
	Type   string `json:"type"` // "segment"
	File   string `json:"file"`
	Bytes  int64  `json:"bytes"`
	Damage string `json:"damage,omitempty"`
	*DumpHeader
}

// DumpHeader is what a segment's header says.
type DumpHeader struct {
	Group      uint64 `json:"group"`
	Generation uint64 `json:"generation"`
	First      uint64 `json:"first_index"`
	TermBefore uint64 `json:"term_before"`
	Offset     uint64 `json:"offset"`
	Chain      string `json:"chain"` // hexadecimal
}

// DumpRecord is a record.
type DumpRecord struct {
	Type     string `json:"type"` // "record"
	Position int64  `json:"position"`
	Index    uint64 `json:"index"`
	Term     uint64 `json:"term"`
	Kind     string `json:"kind"`
	Bytes    int64  `json:"bytes"`
	*DumpData
	Generation *uint64 `json:"generation,omitempty"` // of a purge
	Chain      string  `json:"chain"`                // behind the record, hexadecimal
	Damage     string  `json:"damage,omitempty"`     // of its body
}

// DumpData is what only data records have.
type DumpData struct {
	Offset    uint64 `json:"offset"`
	Count     uint32 `json:"count"`
	Timestamp uint64 `json:"timestamp"` // microseconds since 1970
	Client    string `json:"client_id"` // hexadecimal
	Request   uint64 `json:"request"`
	User      uint32 `json:"user_id"`
	Flags     uint32 `json:"flags"`
}

// DumpDamage is a place in the segment before it where no valid record is.
type DumpDamage struct {
	Type     string `json:"type"` // "damage"
	Position int64  `json:"position"`
	Damage   string `json:"damage"`
}

// Damaged is false: a checkpoint's content is not looked at.
func (c *DumpCheckpoint) Damaged() bool { return false }

// Damaged reports whether the header is damaged.
func (s *DumpSegment) Damaged() bool { return s.Damage != "" }

// Damaged reports whether the body is damaged.
func (r *DumpRecord) Damaged() bool { return r.Damage != "" }

// Damaged is true.
func (d *DumpDamage) Damaged() bool { return true }

func (c *DumpCheckpoint) String() string { return "checkpoint " + c.File }

func (s *DumpSegment) String() string {
	if s.DumpHeader == nil {
		return fmt.Sprintf("segment %s bytes=%d DAMAGE: %s", s.File, s.Bytes, s.Damage)
	}
	return fmt.Sprintf("segment %s bytes=%d group=%d generation=%d first=%d term-before=%d offset=%d chain=%s",
		s.File, s.Bytes, s.Group, s.Generation, s.First, s.TermBefore, s.Offset, s.Chain)
}

func (r *DumpRecord) String() string {
	b := fmt.Appendf(nil, "  %d index=%d term=%d %s bytes=%d", r.Position, r.Index, r.Term, r.Kind, r.Bytes)
	if d := r.DumpData; d != nil {
		b = fmt.Appendf(b, " offset=%d count=%d time=%d client=%s request=%d user=%d flags=%d",
			d.Offset, d.Count, d.Timestamp, d.Client, d.Request, d.User, d.Flags)
	}
	if r.Generation != nil {
		b = fmt.Appendf(b, " generation=%d", *r.Generation)
	}
	b = fmt.Appendf(b, " chain=%s", r.Chain)
	if r.Damage != "" {
		b = fmt.Appendf(b, " DAMAGE: %s", r.Damage)
	}
	return string(b)
}

func (d *DumpDamage) String() string { return fmt.Sprintf("  %d DAMAGE: %s", d.Position, d.Damage) }

// Dump visits the checkpoints, segment headers and records of a log directory,
// and its damage. Behind a damaged record it looks for the next valid one and
// goes on there. It only reads, and works beside a running server (whose last
// record may then show as cut short). It ends with the first error of visit.
func Dump(fs vfs.FS, dir string, visit func(DumpItem) error) error {
	checkpoints, err := listCheckpoints(fs, dir)
	if err != nil {
		return err
	}
	for _, index := range checkpoints {
		if err := visit(&DumpCheckpoint{"checkpoint", CheckpointName(index)}); err != nil {
			return err
		}
	}
	files, err := listSegments(fs, dir)
	if err != nil {
		return err
	}
	var before *state
	for _, f := range files {
		if err := f.readHeader(fs, anyGroup); err != nil {
			return err
		}
		if before, err = dumpSegment(fs, dir, f, before, visit); err != nil {
			return err
		}
	}
	return nil
}

// dumpSegment visits one file. It returns the state behind it, or nil when
// that is not known.
func dumpSegment(fs vfs.FS, dir string, f *found, before *state, visit func(DumpItem) error) (*state, error) {
	name, err := filepath.Rel(dir, f.path+logSuffix)
	if err != nil {
		name = f.path + logSuffix
	}
	segment := &DumpSegment{Type: "segment", File: name, Bytes: f.size, Damage: f.reason}
	if f.reason != "" {
		return nil, visit(segment)
	}
	file, err := fs.OpenFile(f.path+logSuffix, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	var h [segmentHeaderSize]byte
	if _, err := file.ReadAt(h[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	segment.DumpHeader = &DumpHeader{
		Group: le.Uint64(h[8:]), Generation: f.start.gen, First: f.start.index + 1, TermBefore: f.start.term,
		Offset: f.start.offset, Chain: hex64(f.start.chain),
	}
	if err := visit(segment); err != nil {
		return nil, err
	}
	if before != nil {
		want := *before
		if want.gen != f.start.gen {
			want.offset = 0
		}
		if want.index != f.start.index || want.chain != f.start.chain || want.term != f.start.term || want.offset != f.start.offset {
			if err := visit(&DumpDamage{"damage", 0, fmt.Sprintf("does not continue the segment before, which ends with index %d offset %d chain %016x",
				want.index, want.offset, want.chain)}); err != nil {
				return nil, err
			}
		}
	}
	sc := &scanner{f: file, st: f.start, linked: true, end: f.size}
	var scratch []byte
	for {
		at := sc.st
		r, b, err := sc.next()
		if errors.Is(err, io.EOF) {
			end := sc.st
			return &end, nil
		}
		var broken *breakError
		if errors.As(err, &broken) {
			next, rec, err := nextRecord(file, at.pos+1, f.size)
			if err != nil {
				return nil, err
			}
			damage := &DumpDamage{"damage", at.pos, broken.reason}
			if next < 0 {
				damage.Damage += fmt.Sprintf("; no valid record in the remaining %d bytes", f.size-at.pos)
				return nil, visit(damage)
			}
			if err := visit(damage); err != nil {
				return nil, err
			}
			at.pos, at.index = next, rec.index-1
			sc = &scanner{f: file, st: at, end: f.size, lost: true}
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := visit(dumpRecord(&r, b, verifyBody(b, &r, &scratch))); err != nil {
			return nil, err
		}
	}
}

func dumpRecord(r *record, b []byte, damage string) *DumpRecord {
	out := &DumpRecord{
		Type: "record", Position: r.pos, Index: r.index, Term: r.term, Kind: r.kind.String(), Bytes: r.length,
		Chain: hex64(r.after), Damage: damage,
	}
	if r.data() {
		o := GetOrigin(b)
		out.DumpData = &DumpData{
			Offset: r.offset, Count: r.count, Timestamp: r.ts, Client: hex64(o.ClientHi) + hex64(o.ClientLo),
			Request: o.Request, User: o.User, Flags: o.Flags,
		}
	}
	if r.kind == KindPurge {
		out.Generation = &r.generation
	}
	return out
}

func hex64(v uint64) string { return fmt.Sprintf("%016x", v) }

// nextRecord finds the next valid record header at or behind a position, -1
// when there is none.
func nextRecord(f vfs.File, pos, size int64) (int64, record, error) {
	buf := make([]byte, readChunk+headerSize)
	for ; pos < size; pos += readChunk {
		n, err := f.ReadAt(buf, pos)
		if err != nil && !errors.Is(err, io.EOF) {
			return -1, record{}, err
		}
		for i := range min(n, readChunk) {
			b := buf[i:n]
			switch {
			case len(b) >= controlHeaderSize && isControl(b):
			case len(b) >= headerSize && le.Uint32(b[offStampKind:]) == stampData:
			default:
				continue
			}
			if r, reason := parseRecord(b); reason == "" {
				return pos + int64(i), r, nil
			}
		}
	}
	return -1, record{}, nil
}
