package client

import (
	"errors"
	"fmt"

	"github.com/whippetmq/whippet/wire"
)

// Errors of this package. Errors of the server are [wire.ErrorCode] values;
// both kinds are matched with errors.Is.
var (
	// ErrOutcomeUnknown: the request may or may not have been applied and the
	// client could not find out before the deadline. Sending it again may apply
	// it twice. See [OutcomeUnknownError].
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrNotAdmitted: the request was never applied and never will be. Sending
	// it again is safe.
	ErrNotAdmitted = errors.New("not admitted")
	// ErrNotFound: the stream, topic, group, user, client or offset does not
	// exist.
	ErrNotFound = errors.New("not found")
	// ErrClosed: the client, producer or consumer was closed.
	ErrClosed = errors.New("client closed")
	// ErrBlocked: an older write to the same partition has an unknown outcome
	// and the producer was told to wait for a decision, see [UnknownBlock].
	ErrBlocked = errors.New("partition blocked by a write of unknown outcome")
	// ErrMessageTooLarge: a message does not fit a batch of the producer or a
	// frame of the server.
	ErrMessageTooLarge = errors.New("message too large")
	// ErrAutoCommitLost: the reply to a poll with auto-commit was lost. The
	// stored offset may have moved past messages that nobody received.
	ErrAutoCommitLost = errors.New("reply to a poll with auto-commit was lost")
)

// OutcomeUnknownError says which write has an unknown outcome. It matches
// ErrOutcomeUnknown and its cause.
type OutcomeUnknownError struct {
	// Operation is what was asked, for example "SendMessages".
	Operation string
	// Client and Request are the identity it was written under.
	Client  wire.U128
	Request uint64
	// Cause is the last thing that was seen: a lost connection, 57, a deadline.
	Cause error
}

// Error describes the write.
func (e *OutcomeUnknownError) Error() string {
	return fmt.Sprintf("%s (request %d of client %s): outcome unknown: %v", e.Operation, e.Request, e.Client.Hex(), e.Cause)
}

// Unwrap gives ErrOutcomeUnknown and the cause.
func (e *OutcomeUnknownError) Unwrap() []error { return []error{ErrOutcomeUnknown, e.Cause} }

// notAdmitted wraps the reason why a request was given up without having been
// applied.
func notAdmitted(operation string, cause error) error {
	return fmt.Errorf("%s: %w: %w", operation, ErrNotAdmitted, cause)
}

// LinkError is a connection that was lost or could not be made.
type LinkError struct {
	Address string
	// Op is what failed: "dial", "sign in", "read", "write", "evicted", "timeout".
	Op  string
	Err error
}

// Error describes the failure.
func (e *LinkError) Error() string { return fmt.Sprintf("%s %s: %v", e.Op, e.Address, e.Err) }

// Unwrap gives the cause.
func (e *LinkError) Unwrap() error { return e.Err }
