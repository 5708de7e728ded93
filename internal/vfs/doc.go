// Package vfs is the file system as the storage code sees it: a narrow
// interface with three implementations.
//
//   - [OS] is the real one: positional vectored writes, data syncs, directory
//     syncs, locks.
//   - [NewMem] keeps everything in memory and keeps what was flushed apart
//     from what was only written, so that a test can crash the machine
//     ([Mem.CrashClone]) or kill the process ([Mem.KillClone]) at any point.
//   - [NewFaulty] puts a hook in front of every operation of another one, for
//     full disks, I/O errors, slow disks and for choosing the point of a crash.
//
// Invariants that callers may rely on:
//
//   - Data is durable after a successful Datasync or Sync of its file, and a
//     name (created, renamed or removed) after a successful SyncDir of its
//     directory. Nothing else makes anything durable.
//   - A failed Datasync or Sync leaves the file's durable state unknown; it
//     must not be retried as if nothing had happened.
//   - Methods of a File may be called concurrently, except Close, which must
//     come last.
package vfs
