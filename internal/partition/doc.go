// Package partition is the state machine of one partition on one node: it numbers and stamps batches on the primary,
// remembers which requests were done, and keeps the offsets of consumers. It knows neither sockets nor consensus; it is
// driven by internal/replica (replica.Machine) and reads the log of internal/segment.
//
// Two kinds of state live here and are never mixed:
//
//   - Applied state is a function of the committed log alone: the next offset, the newest timestamp, consumer offsets,
//     dedup rows, the trim and purge positions. It is equal on every replica that has applied the same index, and that is
//     all a checkpoint holds. Apply uses no clock, no randomness and no map order.
//   - Admission state exists only while this node leads: the next offset to give, the newest timestamp given, requests
//     in flight, offset writes waiting for Fold. It starts at Lead(true) from the applied state, which then holds all
//     that is older, and is thrown away at Lead(false).
//
// Invariants, each with a test that tries to break it:
//
//   - Offsets are dense: the base offset of every applied batch is the state's next offset; anything else is an
//     InvariantError and the replica must stop.
//   - One identity (client id, user id, request id) takes effect at most once as long as its row exists; a row goes only
//     through a committed forget record.
//   - Base timestamps never decrease.
//   - A stored offset never lies above the newest committed offset.
//   - Rows, keys, requests in flight and folded writes are bounded.
//
// Concurrency: methods of replica.Machine run on the shard's goroutine, one at a time. Poll, Offset, CurrentOffset and
// Stats may be called from any goroutine; they read atomics and an offset table behind a read lock that no I/O is done
// under.
package partition
