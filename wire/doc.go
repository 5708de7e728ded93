// Package wire is the codec of the Iggy 0.11.0 binary protocol and of the
// Whippet extension commands: frames, replies, evictions, checksums,
// primitives, message batches and every command, encoded and decoded.
//
// # Where things are
//
//   - frame.go, frame_request.go, frame_reply.go, frame_eviction.go, result.go:
//     the 256-byte headers and the result section.
//   - operation.go, code.go, command_table.go: the one table that ties command
//     codes, operations, authorisation and replication together.
//   - errorcode.go, errorcode_table.go, errorcode_text.go, decode_error.go: the
//     protocol's error codes and the decoder's own errors.
//   - identifier.go, consumer.go, partitioning.go, strategy.go, u128.go,
//     xxh32.go, version.go, permissions.go, headers.go, options.go,
//     topic_options.go, units.go: primitives.
//   - batch.go, batch_verify.go, batch_slice.go, batch_builder.go,
//     message_view.go: message batches.
//   - cmd_*.go: requests and replies by subject.
//
// # Invariants
//
//   - No I/O, no logging, no goroutines, no clock. The only randomness is
//     [NewID].
//   - A decoder never panics and never allocates more than a small multiple of
//     the bytes it was given: every count is bounded by the remaining bytes.
//   - Decoding failures are [*DecodeError] (match with errors.Is against the
//     [DecodeKind] constants) or an [ErrorCode]; [StatusOf] turns either into
//     the code that goes on the wire.
//   - Encoders append to the caller's slice and never fail. A text that does not
//     fit its length byte is written with length 0, which every decoder of a
//     name refuses: it is never cut silently. [Validate] tells beforehand.
//   - Decoders copy the text they keep, with these exceptions, which borrow from
//     their input and are valid only as long as it is unchanged: [SendMessages],
//     [PollMessages], [GetPollRouting], [PollMessagesOnPrimary],
//     [PolledMessages], [Batch] and everything reached through it, [Headers]
//     values, and [Snapshot]. Use [Identifier.Clone] to keep a borrowed name.
//   - Sending, polling, verifying and stamping do not allocate; tests pin this.
//   - A reply is decoded by the command that was asked, never by its bytes: an
//     empty payload has four meanings (commands §4).
//
// Section numbers in comments ("framing §1.2") refer to the protocol reference
// of this project.
package wire
