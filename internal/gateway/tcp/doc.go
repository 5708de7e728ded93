// Package tcp serves the binary protocol over TCP: it accepts connections, cuts
// the byte stream into frames, hands each request to the broker and writes the
// replies. It knows nothing of commands.
//
// # Goroutines
//
// One accepts; one janitor looks at all connections a few times a minute; each
// connection has a reader, which also runs the broker's Handle and writes the
// replies that Handle returns when nothing else waits to be written; and, while
// replies come from elsewhere, a writer. All have ended when Close returns.
//
// # Memory
//
// An idle connection holds a small read buffer and one goroutine. A body gets
// memory from size classes: up to firstStep at once, more only as bytes arrive,
// and never before the connection is signed in. What one connection may have in
// work is bounded in number and bytes, what all have in bodies being read by a
// budget, and what all have in work in bytes; at a bound the reader waits, and TCP
// holds the client back.
//
// # Invariants
//
//   - Every request that was read whole is answered by one frame, unless the
//     connection broke.
//   - Sink.Reply never blocks: shard goroutines call it.
//   - A frame that cannot be cut out of the stream (size below 256 or above the
//     limit) or breaks framing §1.2 ends the connection, and is counted.
package tcp
