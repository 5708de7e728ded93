// Package metadata is the state machine of the metadata group: streams, topics and partitions with their placement, users and their
// permissions, personal access tokens, consumer groups, and the table of sessions with the replies that a repeated request gets again.
//
// # Parts
//
//   - [Validate] checks a client's request before anything is proposed; [Command] is a validated request on its way into the log and
//     [Result] its outcome.
//   - entry.go is the format of a log entry. It is ours and does not follow the wire: what a client sent is translated at admission,
//     where also everything is resolved that may differ between nodes (time, defaults, candidates of placement).
//   - [Machine] applies entries. Its apply files are grouped by subject; each operation is one function of (state, operation).
//   - [Catalog] is the immutable picture of the applied state that everybody else reads, without a lock. The session table changes
//     with every request and has its own lock.
//   - snapshot.go is the checkpoint: the whole state, versioned, equal bytes for equal states.
//
// # Invariants
//
//   - Applying is deterministic: no clock, no randomness, no iteration over a map, no I/O. Two machines that applied the same entries
//     have equal checkpoints, and a checkpoint plus the entries behind it equals all entries.
//   - What [Validate] accepts can be applied. Bytes that are no entry give a [CorruptError], change nothing and fence the group.
//   - A refusal that depends on the state is decided when the entry is applied, and is committed with it: a repeated request gets
//     the same refusal. What depends on the request alone, or needs no order, is refused before the log.
//   - A request is executed at most once: by client id and request number (framing §5.1).
//   - A Catalog never changes once it is published, nor does anything reached through it.
package metadata
