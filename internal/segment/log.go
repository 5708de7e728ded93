package segment

import (
	"errors"

	"github.com/whippetmq/whippet/internal/vfs"
)

var errTodo = errors.New("not yet")

// Options are the settings of a log.
type Options struct {
	// Group is the id of the group, which every segment header carries.
	Group uint64
	// SegmentBytes is how many data bytes a segment takes before the next one
	// begins; the batch that reaches it is written whole. Zero is 1 GiB.
	SegmentBytes int64
	// ControlBytes is the same for control records. Zero is 64 MiB.
	ControlBytes int64
	// PurgeGeneration is the generation in which a new, empty log starts.
	PurgeGeneration uint64
	// Cache is the tail cache, shared by the logs of a shard. Nil makes one
	// of the default size for this log alone.
	Cache *Cache
	// Handles holds the open files, shared by the logs of a node. Nil makes
	// one for this log alone.
	Handles *Handles
	// Validate makes Read verify all checksums of what it reads from a file.
	Validate bool
	// Preallocate reserves the space of a segment when it is made.
	Preallocate bool
	// SameBoot says that the machine has not gone down since the log was last
	// written (or was shut down in an orderly way): everything that was
	// written is in the files and only the last write may be torn. Without it
	// whatever was not flushed may be missing, and all bodies behind the
	// verified index are checked.
	SameBoot bool
	// SyncOnOpen makes Open flush what an earlier process wrote and may not
	// have flushed. Groups whose acknowledgement promises a flush need it,
	// because after Open the entries count as stored.
	SyncOnOpen bool
}

// Recovery tells what Open found.
type Recovery struct {
	// FirstIndex and LastIndex are the range of the log.
	FirstIndex, LastIndex uint64
	// Torn is the file in which a torn end was cut off, empty when none was.
	Torn string
	// TornBytes is how much was cut off there.
	TornBytes int64
	// Removed lists later files that went with a torn end.
	Removed []string
	// Rebuilt counts sparse indexes that were missing or unusable.
	Rebuilt int
	// Walked is how many bytes of records were looked at.
	Walked int64
}

// Position is the state of the log between two entries. It is all that is
// needed to continue a log behind an entry, and is equal on all replicas.
type Position struct {
	// Index and Term are of the last entry before.
	Index, Term uint64
	// NextOffset is the offset of the next message.
	NextOffset uint64
	// Chain is the chain value.
	Chain uint64
	// Timestamp is the base timestamp of the last data batch before.
	Timestamp uint64
	// Generation is the purge generation.
	Generation uint64
}

// Info describes one segment.
type Info struct {
	// File is the path of the segment.
	File string
	// Generation is the purge generation.
	Generation uint64
	// BaseOffset is the offset of the first message, NextOffset the one after
	// the last; they are equal when there is no data.
	BaseOffset, NextOffset uint64
	// FirstIndex and LastIndex are the raft indexes; LastIndex is
	// FirstIndex-1 in an empty segment.
	FirstIndex, LastIndex uint64
	// LastTimestamp is the base timestamp of the last batch up to its end.
	LastTimestamp uint64
	// DataBytes counts the data records, FileBytes the whole file.
	DataBytes, FileBytes int64
	// Sealed tells that nothing is appended to it any more.
	Sealed bool
}

// Log is the log of one group. See the package comment for who may call what.
type Log struct{}

// Open opens the log in dir, which is made by the first write when it is
// missing. The index verified is the highest one that a durable checkpoint
// covers (0 without one): entries up to it must be there and whole, and count
// as committed and applied. Damage is a *DamageError, and changes nothing on
// the disk. The caller holds the lock of the node's directory.
func Open(fs vfs.FS, dir string, o Options, verified uint64) (*Log, Recovery, error) {
	return nil, Recovery{}, errTodo
}

// Close writes what is left of the sparse index and closes the files. It does
// not flush. Owner.
func (l *Log) Close() error { return errTodo }

// FirstIndex is the index of the first entry; LastIndex+1 when the log is empty.
func (l *Log) FirstIndex() uint64 { return 0 }

// LastIndex is the index of the last entry placed.
func (l *Log) LastIndex() uint64 { return 0 }

// Term returns the term of an entry from FirstIndex-1 to LastIndex, from
// memory. Others are ErrTrimmed or ErrOutOfRange.
func (l *Log) Term(i uint64) (uint64, error) { return 0, errTodo }

// NextOffset is the offset of the next message at the end of the log.
func (l *Log) NextOffset() uint64 { return 0 }

// FirstOffset is the lowest offset that Read can serve; it equals the next
// offset when there is no message.
func (l *Log) FirstOffset() uint64 { return 0 }

// LastTimestamp is the base timestamp of the last data batch placed.
func (l *Log) LastTimestamp() uint64 { return 0 }

// Size is the number of bytes of data records that Read can serve.
func (l *Log) Size() int64 { return 0 }

// SegmentCount counts segments with data plus the active one.
func (l *Log) SegmentCount() int { return 0 }

// Segments describes the segments, oldest first, those of an older purge
// generation that still has to be deleted included. The last one is active.
func (l *Log) Segments() []Info { return nil }

// Appended is the number of bytes placed since Open, for the caller's decision
// when to write a checkpoint.
func (l *Log) Appended() uint64 { return 0 }

// LastSealed is the last index of the newest sealed segment, 0 without one.
func (l *Log) LastSealed() uint64 { return 0 }

// PositionAt returns the state behind an entry, from FirstIndex-1 to
// LastIndex. Owner.
func (l *Log) PositionAt(index uint64) (Position, error) { return Position{}, errTodo }

// Reset deletes all entries and lets the log continue behind the given
// position, durably. It is for a replica that got a checkpoint without the log
// before it. Owner.
func (l *Log) Reset(p Position) error { return errTodo }

// Place puts entries into the log: consecutive indexes, the first at most one
// behind the end. Entries from the first index on that are there already are
// cut. Data batches must have the offsets that follow. On an error nothing has
// changed. The log keeps Entry.Data. Owner.
func (l *Log) Place(entries []Entry) (*Write, error) { return nil, errTodo }

// Undo takes a write that failed, and all later ones, out of the log. Their
// entries may then be placed again. None of them may be in Do, and all are
// released. Owner.
func (l *Log) Undo(w *Write) error { return errTodo }

// Committed raises the index below which nothing is cut. Owner.
func (l *Log) Committed(index uint64) {}

// Applied raises the index up to which entries may leave the memory, and shows
// a purge to readers once it is reached. It implies Committed. Owner.
func (l *Log) Applied(index uint64) {}

// Checkpointed says that a checkpoint at index is durable. Segments behind it
// may then be deleted by Reap. Owner.
func (l *Log) Checkpointed(index uint64) {}

// Trim raises the lowest offset to keep: whole sealed segments below it may be
// deleted by Reap once a checkpoint covers them. Owner.
func (l *Log) Trim(offset uint64) {}

// Reap takes the segments that may go out of the log: those below the trimmed
// offset, those of an older purge generation and those without data, as far as
// a checkpoint covers them and no pin holds them. The caller runs the
// result's Do, on any goroutine. Nil when there is nothing to do. Owner.
func (l *Log) Reap() *Removal { return nil }

// Removal deletes files that left the log.
type Removal struct{}

// Do deletes the files, oldest first.
func (r *Removal) Do() error { return errTodo }

// Pin keeps all present segments from being deleted until the result is
// called.
func (l *Log) Pin() (unpin func()) { return nil }

// Sync makes everything durable that was written before the call. An error is
// ErrSyncFailed and final.
func (l *Log) Sync() error { return errTodo }

// Err is the error that made the log unusable, nil when it is fine.
func (l *Log) Err() error { return nil }

// Entries returns the entries lo..hi-1, at least one and else no more than
// maxBytes of data. Their Data is what was placed and must not be changed.
// Damage is a *DamageError. Owner.
func (l *Log) Entries(lo, hi uint64, maxBytes int) ([]Entry, error) { return nil, errTodo }

// Write is a part of the log that has its place but is not yet written.
type Write struct{}

// First and Last are the indexes of the entries of the write.
func (w *Write) First() uint64 { return 0 }

// Last is the index of the last entry of the write.
func (w *Write) Last() uint64 { return 0 }

// Bytes is the number of bytes that Do writes.
func (w *Write) Bytes() int64 { return 0 }

// Do cuts and writes the files. After an error the write may be done again or
// undone with Log.Undo; later writes of the log are refused until then.
func (w *Write) Do() error { return errTodo }

// Sync makes this and all earlier writes of the log durable.
func (w *Write) Sync() error { return errTodo }

// Err is the outcome of the last Do, Sync or Flush.
func (w *Write) Err() error { return errTodo }

// Release gives the write's memory back for reuse. The write must not be used
// afterwards.
func (w *Write) Release() {}

// Flush is one flush round: it does all writes, in order, then flushes every
// file that they touched once, at most parallel files at a time. Each write's
// outcome is its Err; the result is the first of them.
func Flush(ws []*Write, parallel int) error { return errTodo }

// Read fills dst with the messages from offset from on: at most maxCount
// messages and about maxBytes bytes (at least one message), none at or behind
// limit. Reading below FirstOffset starts there. Nothing to read is an empty
// result, not an error. Damage is a *DamageError. dst must be released before
// its next use.
func (l *Log) Read(dst *ReadBuffer, from uint64, maxCount uint32, maxBytes int, limit uint64) error {
	return errTodo
}

// OffsetAtTime returns the offset of the first message of the first batch
// whose base timestamp is at least ts, and false when there is none.
func (l *Log) OffsetAtTime(ts uint64) (uint64, bool, error) { return 0, false, errTodo }

// ReadBuffer is the result of Read, to be reused: records as a consumer sees
// them, in pieces of memory for one vectored write.
type ReadBuffer struct {
	// First and Last are the offsets of the first and the last message.
	First, Last uint64
	// Count is the number of messages, 0 when there were none.
	Count uint32
	// Bytes is the length of all records.
	Bytes int
}

// Records returns the records' bytes. They are valid until Release, and must
// not be changed.
func (b *ReadBuffer) Records() [][]byte { return nil }

// Release gives the memory back. The buffer is empty then and may be used
// again.
func (b *ReadBuffer) Release() {}

// Cache is the tail cache: the newest entries of many logs in memory.
type Cache struct{}

// NewCache returns a cache with a limit in bytes. Entries that are not yet
// written and applied stay even above it.
func NewCache(limit int64) *Cache { return &Cache{} }

// CacheStats are counters of a cache.
type CacheStats struct {
	// Bytes is the memory in use, Limit the limit.
	Bytes, Limit int64
	// Hits and Misses count reads served from memory and from a file;
	// EntryMisses counts reads of the owner (Entries) that went to a file.
	Hits, Misses, EntryMisses uint64
}

// Stats returns the counters.
func (c *Cache) Stats() CacheStats { return CacheStats{} }

// Handles holds open segment files and the sparse indexes of sealed segments,
// both up to a limit, and closes the least recently used ones.
type Handles struct{}

// NewHandles returns an empty set. A file that has unflushed bytes stays open
// even above the limit, so that no write error is lost.
func NewHandles(maxFiles int, indexBytes int64) *Handles { return &Handles{} }

// Close closes all files that are not in use.
func (h *Handles) Close() error { return errTodo }
