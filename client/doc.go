// Package client is the Go SDK of Whippet. It speaks the Iggy 0.11.0 protocol,
// so it also works against a released 0.11.0 server; what is an extension of
// Whippet is used only after the server declared it (command 9000).
//
//	c, err := client.Connect(ctx, "iggy://iggy:iggy@127.0.0.1:8090")
//	if err != nil { ... }
//	defer c.Close()
//
// # Parts
//
//   - [Client]: one session with one server, every command as a method. In a
//     cluster sends, polls and offsets of a partition go to its primary over data
//     links of their own, and the session stays where it is; [Client.Warm] finds
//     the primaries and connects ahead of the first send.
//   - [Producer]: batches messages by partition and keeps several batches in
//     flight; order within a partition is that of the calls.
//   - [Consumer]: an iterator over messages of one or many partitions, alone or
//     as a member of a consumer group.
//   - [Hook]: small optional interfaces for metrics and tracing.
//
// # Invariants
//
//   - Nothing that a partition does moves the session, and no partition waits for
//     another one, wherever its primary is.
//   - One connection at a time carries a client id.
//   - One client id for the life of a session. A reconnection to a Whippet
//     server registers the same client id again and request ids never restart,
//     so a request whose answer was lost can be replayed without doubling it.
//   - A write whose outcome is not known is replayed only under the client id
//     and request id it was first written with. When that is impossible the
//     caller gets [ErrOutcomeUnknown]; the client never guesses.
//   - What was never admitted is sent again; that can double nothing.
//   - Writes to one partition are applied in the order of the calls, also when
//     some in the middle were refused.
//   - A poll with auto-commit is never replayed once its bytes left.
//   - Every operation ends by its deadline, with a result, a typed error,
//     [ErrNotAdmitted] or [ErrOutcomeUnknown].
//   - Every queue is bounded; at the bound the caller waits, honouring its
//     context.
//
// # Inside
//
// link.go is one connection under one identity: writer, reader, pending table.
// session.go keeps one link alive: sign-in, heartbeat, reconnection. lane.go is
// the pure state machine of the writes to one partition and lane_run.go the
// goroutine that drives it. classify.go decides what an answer means. router.go
// and the files it names take requests to the primaries of partitions. DESIGN.md
// has the state machines and the reasons.
package client
