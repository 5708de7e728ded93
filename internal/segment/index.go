package segment

import (
	"errors"
	"io"
	"os"
	"sort"

	"github.com/zeebo/xxh3"

	"github.com/whippetmq/whippet/internal/vfs"
)

const (
	// indexEntrySize is the size of an entry of the sparse index.
	indexEntrySize = 32
	// trailerSize is the size of the two entries that end the index of a
	// sealed segment.
	trailerSize = 2 * indexEntrySize
	// indexBytes and indexRecords are how much log one entry stands for.
	indexBytes   = 64 << 10
	indexRecords = 1000
	// indexBatch is how many new entries are written to the file at once.
	indexBatch = 8
	// maxIndexFile bounds what is read: a segment of less than 4 GiB with an
	// entry per 64 KiB or 1,000 records of 64 bytes.
	maxIndexFile = 4 << 20

	flagDurable = 1 << 31 // in the position: the log before it was flushed
	flagTrailer = 1       // in the flags
)

// indexEntry is one entry of the sparse index: where a record begins and the
// state before it, relative to the start of the segment.
type indexEntry struct {
	offset, index uint32 // relative to the segment's first offset and index
	pos, ctrl     uint32
	ts            uint64 // highest base timestamp up to and with the record
}

// state returns the state before the entry's record. Term and chain are not
// known; the record itself has them.
func (e indexEntry) state(start state) state {
	return state{
		index: start.index + uint64(e.index), offset: start.offset + uint64(e.offset), gen: start.gen,
		ts: e.ts, pos: int64(e.pos), ctrl: int64(e.ctrl),
	}
}

func entryOf(start, before state, ts uint64) indexEntry {
	return indexEntry{
		offset: uint32(before.offset - start.offset), index: uint32(before.index - start.index),
		pos: uint32(before.pos), ctrl: uint32(before.ctrl), ts: max(ts, before.ts),
	}
}

// indexKey ties the entries to one segment: the checksum of its header, which
// covers group, indexes, chain and generation.
func indexKey(group uint64, start state) uint64 {
	var h [segmentHeaderSize]byte
	putSegmentHeader(h[:], group, start)
	return le.Uint64(h[56:])
}

func checkEntry(key uint64, b []byte) uint32 {
	var in [indexEntrySize + 4]byte
	copy(in[:], b[:28])
	le.PutUint64(in[28:], key)
	return uint32(xxh3.Hash(in[:]))
}

func appendIndexEntry(dst []byte, key uint64, e indexEntry, flags uint32, durable bool) []byte {
	at := len(dst)
	pos := e.pos
	if durable {
		pos |= flagDurable
	}
	dst = le.AppendUint32(dst, e.offset)
	dst = le.AppendUint32(dst, e.index)
	dst = le.AppendUint32(dst, pos)
	dst = le.AppendUint32(dst, e.ctrl)
	dst = le.AppendUint64(dst, e.ts)
	dst = le.AppendUint32(dst, flags)
	return le.AppendUint32(dst, checkEntry(key, dst[at:]))
}

func parseIndexEntry(b []byte, key uint64) (e indexEntry, flags uint32, durable, ok bool) {
	if le.Uint32(b[28:]) != checkEntry(key, b) {
		return e, 0, false, false
	}
	pos := le.Uint32(b[8:])
	return indexEntry{
		offset: le.Uint32(b), index: le.Uint32(b[4:]), pos: pos &^ flagDurable, ctrl: le.Uint32(b[12:]), ts: le.Uint64(b[16:]),
	}, le.Uint32(b[24:]), pos&flagDurable != 0, true
}

// appendTrailer appends the end of a sealed segment's index: the state behind
// its last record.
func appendTrailer(dst []byte, key uint64, start, end state, durable bool) []byte {
	dst = appendIndexEntry(dst, key, indexEntry{
		offset: uint32(end.offset - start.offset), index: uint32(end.index - start.index),
		pos: uint32(end.pos), ctrl: uint32(end.ctrl), ts: end.ts,
	}, flagTrailer, durable)
	at := len(dst)
	dst = le.AppendUint64(dst, end.chain)
	dst = le.AppendUint64(dst, end.term)
	dst = le.AppendUint64(dst, end.gen)
	dst = le.AppendUint32(dst, flagTrailer)
	return le.AppendUint32(dst, checkEntry(key, dst[at:]))
}

func parseTrailer(b []byte, key uint64, start state) (end state, durable, ok bool) {
	e, flags, durable, ok := parseIndexEntry(b, key)
	second := b[indexEntrySize:]
	if !ok || flags != flagTrailer || le.Uint32(second[28:]) != checkEntry(key, second) {
		return end, false, false
	}
	end = e.state(start)
	end.chain, end.term, end.gen = le.Uint64(second), le.Uint64(second[8:]), le.Uint64(second[16:])
	return end, durable, true
}

// loadedIndex is what an index file holds.
type loadedIndex struct {
	entries []indexEntry
	// durable is the highest raft index that a durable entry vouches for.
	durable uint64
	// torn tells that the file is missing or has bytes that are no entry.
	torn bool
}

// decodeIndex returns the valid beginning of an index file: entries that are
// whole and go upwards, up to a file size.
func decodeIndex(b []byte, key uint64, start state, size int64) loadedIndex {
	var out loadedIndex
	last := indexEntry{}
	for len(b) >= indexEntrySize {
		e, flags, durable, ok := parseIndexEntry(b, key)
		if !ok {
			out.torn = true
			return out
		}
		if flags == flagTrailer {
			if len(b) >= trailerSize {
				if end, durable, ok := parseTrailer(b, key, start); ok && durable {
					out.durable = max(out.durable, end.index)
				}
			}
			return out
		}
		first := len(out.entries) == 0
		if durable {
			out.durable = max(out.durable, start.index+uint64(e.index))
		}
		if first && (e.pos != segmentHeaderSize || e.index != 0 || e.offset != 0) ||
			!first && (e.pos <= last.pos || e.index <= last.index || e.offset < last.offset) || int64(e.pos) > size {
			out.torn = true
			return out
		}
		out.entries = append(out.entries, e)
		last, b = e, b[indexEntrySize:]
	}
	out.torn = out.torn || len(b) > 0
	return out
}

// readIndex reads an index file as far as it is valid.
func readIndex(fs vfs.FS, name string, key uint64, start state, size int64) (loadedIndex, error) {
	b, err := vfs.ReadFile(fs, name, maxIndexFile)
	if vfs.IsNotExist(err) {
		return loadedIndex{torn: true}, nil
	}
	if err != nil {
		return loadedIndex{}, err
	}
	return decodeIndex(b, key, start, size), nil
}

// readTrailer reads only the end of the index of a sealed segment.
func readTrailer(fs vfs.FS, name string, key uint64, start state) (end state, durable, ok bool, err error) {
	f, err := fs.OpenFile(name, os.O_RDONLY)
	if vfs.IsNotExist(err) {
		return end, false, false, nil
	}
	if err != nil {
		return end, false, false, err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	size, err := f.Size()
	if err != nil || size < trailerSize || size%indexEntrySize != 0 {
		return end, false, false, err
	}
	var b [trailerSize]byte
	if _, err := f.ReadAt(b[:], size-trailerSize); err != nil && !errors.Is(err, io.EOF) {
		return end, false, false, err
	}
	end, durable, ok = parseTrailer(b[:], key, start)
	return end, durable, ok, nil
}

// writeIndex replaces an index file. It is a hint that is checked when it is
// used, so it needs no flush.
func writeIndex(fs vfs.FS, name string, key uint64, start state, entries []indexEntry, end *state) error {
	b := make([]byte, 0, len(entries)*indexEntrySize+trailerSize)
	for _, e := range entries {
		b = appendIndexEntry(b, key, e, 0, false)
	}
	if end != nil {
		b = appendTrailer(b, key, start, *end, false)
	}
	f, err := fs.Create(name)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// byIndex returns the last entry at or before a relative raft index, -1 when
// there is none.
func byIndex(entries []indexEntry, rel uint64) int {
	return sort.Search(len(entries), func(i int) bool { return uint64(entries[i].index) > rel }) - 1
}

// byOffset returns the last entry at or before a relative offset.
func byOffset(entries []indexEntry, rel uint64) int {
	return sort.Search(len(entries), func(i int) bool { return uint64(entries[i].offset) > rel }) - 1
}

// byTime returns the last entry whose record and all before it are older than
// ts.
func byTime(entries []indexEntry, ts uint64) int {
	return sort.Search(len(entries), func(i int) bool { return entries[i].ts >= ts }) - 1
}

// indexer decides which records get an entry, while records are appended or
// walked.
type indexer struct {
	next  int64 // position from which on a record gets an entry
	since int   // records since the last entry
}

// add returns the entry for the record that begins at before, if it gets one.
func (x *indexer) add(start, before state, ts uint64) (indexEntry, bool) {
	if before.pos != segmentHeaderSize && before.pos < x.next && x.since < indexRecords {
		x.since++
		return indexEntry{}, false
	}
	x.next, x.since = before.pos+indexBytes, 1
	return entryOf(start, before, ts), true
}

// resume continues behind the last of some entries.
func (x *indexer) resume(entries []indexEntry, start state, at state) {
	*x = indexer{}
	if n := len(entries); n > 0 {
		e := entries[n-1]
		x.next = int64(e.pos) + indexBytes
		x.since = int(at.index - start.index - uint64(e.index))
	}
}
