// Package segment is the log of one group on disk: the segment files of a
// partition (or of the metadata group), which are at the same time its raft
// log. docs/storage-format.md has the byte tables and the crash arguments.
//
// # Life of a record
//
// The owner of a [Log] gives new entries to [Log.Place]. That assigns their
// file positions, extends the chain of checksums and makes the entries readable
// from memory; it does no I/O (except to look up the place of a cut). The
// [Write] that it returns is then written by [Write.Do] and, where the
// promise is a flushed one, made durable by [Write.Sync] or, for many logs at
// once, by [Flush]. Do and Sync may run on another goroutine than Place, but the
// writes of one log must be done in the order in which they were placed.
//
// # Invariants
//
//   - Replicas hold identical bytes for identical indexes, in files with
//     identical names and boundaries: everything that decides about the layout
//     is in the records.
//   - An entry is in memory until it is written and applied. Entries in memory
//     are always a suffix of the log.
//   - Entries at or below the committed index are never cut.
//   - What does not match its checksums is never handed out.
//   - A durable index entry is only written for a position that was flushed,
//     and is removed durably before the log is cut below it.
//
// # Ownership
//
// One goroutine (the shard of the group) owns a Log and calls what is marked
// "owner". Everything else may be called from any goroutine. l.mu guards the
// structure and is never held across I/O.
//
// Entry.Data is kept by the log until it is evicted from the tail cache, and is
// handed out to readers: nobody may change it after Place, or reuse it other than
// by [Memory].
package segment
