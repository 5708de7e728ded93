// Package broker turns requests into replies: it signs clients in, authorises,
// resolves names, routes to the metadata group or to a partition's group, and
// builds the answer. It knows nothing of sockets and nothing of raft.
//
// A gateway gives each connection to Connect and calls Handle for each request.
// Reads and sign-in are answered by Handle itself; sends, offset writes and
// metadata writes are handed to their group and answered through the
// connection's Sink when they are committed.
//
// # Invariants
//
//   - Every request gets exactly one answer, a reply or an eviction.
//   - A body has one owner: Handle takes it over and releases it at once, or when
//     the log has its own copy.
//   - Nothing that runs on a group's goroutine (Copied, Done, Released) waits: it
//     takes a lane's mutex, then the sink's, and neither is held over anything
//     that waits.
//   - The replies to the sends of one connection to one partition come in the
//     order of the requests, refusals included.
//   - The identity of a request is that bound to its connection; the header's is
//     not looked at (observed 7).
//   - 58 is answered only for what never entered a log.
package broker
