package segment

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/whippetmq/whippet/internal/vfs"
)

// Dump prints the checkpoints and segment headers of a log directory and one
// line per record, and marks damage with DAMAGE. Behind a damaged record it
// looks for the next valid one and goes on there. It only reads, and works
// beside a running server (whose last record may then show as cut short).
func Dump(w io.Writer, fs vfs.FS, dir string) error {
	out := bufio.NewWriter(w)
	checkpoints, err := listCheckpoints(fs, dir)
	if err != nil {
		return err
	}
	for _, index := range checkpoints {
		fmt.Fprintf(out, "checkpoint %s\n", CheckpointName(index))
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
		if before, err = dumpSegment(out, fs, dir, f, before); err != nil {
			return err
		}
	}
	if len(files) == 0 {
		fmt.Fprintf(out, "no segments in %s\n", dir)
	}
	return out.Flush()
}

// dumpSegment prints one file. It returns the state behind it, or nil when
// that is not known.
func dumpSegment(out io.Writer, fs vfs.FS, dir string, f *found, before *state) (*state, error) {
	name, err := filepath.Rel(dir, f.path+logSuffix)
	if err != nil {
		name = f.path + logSuffix
	}
	fmt.Fprintf(out, "segment %s bytes=%d", name, f.size)
	if f.reason != "" {
		fmt.Fprintf(out, " DAMAGE: %s\n", f.reason)
		return nil, nil
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
	fmt.Fprintf(out, " group=%d generation=%d first=%d term-before=%d offset=%d chain=%016x\n",
		le.Uint64(h[8:]), f.start.gen, f.start.index+1, f.start.term, f.start.offset, f.start.chain)
	if before != nil {
		want := *before
		if want.gen != f.start.gen {
			want.offset = 0
		}
		if want.index != f.start.index || want.chain != f.start.chain || want.term != f.start.term || want.offset != f.start.offset {
			fmt.Fprintf(out, "  DAMAGE: does not continue the segment before, which ends with index %d offset %d chain %016x\n",
				want.index, want.offset, want.chain)
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
			fmt.Fprintf(out, "  %d DAMAGE: %s\n", at.pos, broken.reason)
			next, rec, err := nextRecord(file, at.pos+1, f.size)
			if err != nil {
				return nil, err
			}
			if next < 0 {
				fmt.Fprintf(out, "  %d no valid record in the remaining %d bytes\n", at.pos, f.size-at.pos)
				return nil, nil
			}
			at.pos, at.index = next, rec.index-1
			sc = &scanner{f: file, st: at, end: f.size, lost: true}
			continue
		}
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(out, "  %d index=%d term=%d %s bytes=%d", r.pos, r.index, r.term, r.kind, r.length)
		if r.data() {
			o := GetOrigin(b)
			fmt.Fprintf(out, " offset=%d count=%d time=%d client=%016x%016x request=%d user=%d flags=%d",
				r.offset, r.count, r.ts, o.ClientHi, o.ClientLo, o.Request, o.User, o.Flags)
		}
		if r.kind == KindPurge {
			fmt.Fprintf(out, " generation=%d", r.generation)
		}
		fmt.Fprintf(out, " chain=%016x", r.after)
		if reason := verifyBody(b, &r, &scratch); reason != "" {
			fmt.Fprintf(out, " DAMAGE: %s", reason)
		}
		fmt.Fprintln(out)
	}
}

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
