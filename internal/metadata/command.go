package metadata

import (
	"errors"
	"fmt"

	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/wire"
)

// Operations of the metadata log that no client and no reply ever names. They stand beside the protocol's own, whose values end at
// 162 (framing §1.6).
const (
	// OpBootstrap makes the root user and the ticket key; body: [Bootstrap.Append]. Only the first one has an effect.
	OpBootstrap wire.Operation = 192
	// OpNodeStarted records a start of a node; body: [NodeStart.Append].
	OpNodeStarted wire.Operation = 193
	// OpSetPreferred changes the preferred primary of a partition; body: [SetPreferred.Append].
	OpSetPreferred wire.Operation = 194
)

// LogoutAtDisconnect is the request number under which a server logs out the session of a connection that closed (framing §4.7).
const LogoutAtDisconnect = ^uint64(0)

// StatusError is a refusal that travels in the status field of the reply header, with an empty body (framing §1.8).
type StatusError struct {
	Code wire.ErrorCode
	// Cause says more, for logs; may be nil.
	Cause error
}

// Error describes the refusal.
func (e *StatusError) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("%v: %v", e.Code, e.Cause)
	}
	return e.Code.Error()
}

// Unwrap gives the error code and the cause.
func (e *StatusError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Code}
	}
	return []error{e.Code, e.Cause}
}

// EvictionError is a refusal that travels as an eviction frame: the session is over, or the login failed for good (framing §4.5).
type EvictionError struct {
	Reason wire.EvictionReason
}

// Error describes the refusal.
func (e *EvictionError) Error() string { return "evicted: " + e.Reason.String() }

// Result is the outcome of a [Command].
type Result struct {
	// Err is nil for a success, else one of:
	//   - a bare [wire.ErrorCode]: the rejection of the result section. It is committed and repeated for a repeated request, except 57
	//     (an earlier request of the client is in flight, or the outcome is unknown), 58 (never entered the log) and 59;
	//   - a [*StatusError]: belongs into the status field; nothing was executed;
	//   - a [*EvictionError]: belongs into an eviction frame; nothing was executed;
	//   - anything else that wraps [replica.ErrNotAdmitted], [replica.ErrOutcomeUnknown] or [replica.ErrDiskFull].
	//
	// [Result.Code] gives the code of the first, second and last kind.
	Err error
	// Payload is the encoded reply behind the result section. Several results may share it: it must not be changed.
	Payload []byte
	// Index is the log index of the operation, 0 when it was not executed. It is both op and commit of the reply (framing §1.3).
	Index uint64
	// Timestamp is the time of the log entry, microseconds since 1970.
	Timestamp uint64
	// ReplyOperation is what the reply header carries: the command's own operation, but CreateTopicWithAssignments (64) for
	// CreateTopic and CreatePartitionsWithAssignments (65) for CreatePartitions. Released clients take either; 64 and 65 are what
	// released servers answer (framing §1.6).
	ReplyOperation wire.Operation
	// Session is the session number that a Register gave.
	Session uint64
	// User is the user of that session.
	User uint32
}

// Code is the error code of Err, 0 for a success and for an eviction.
func (r *Result) Code() wire.ErrorCode {
	var code wire.ErrorCode
	switch {
	case r.Err == nil:
		return 0
	case errors.As(r.Err, &code):
		return code
	case errors.Is(r.Err, replica.ErrNotAdmitted):
		return wire.ErrTransientNotAccepted
	case errors.Is(r.Err, replica.ErrDiskFull):
		return wire.ErrCannotWriteToFile
	case errors.As(r.Err, new(*EvictionError)):
		return 0
	}
	return wire.ErrTransientNotCommitted
}

// Secret is what an operation on credentials carries beside its body. A server computes it before it proposes, because hashing is
// slow and random, and because no plain password or token may reach the log (security.md §2).
type Secret struct {
	// Hash is the PHC string of a new password (CreateUser, ChangePassword) or the hash of a new token's text
	// (CreatePersonalAccessToken).
	Hash string
	// Verified says that the current password of a ChangePassword was right for the user whose credential revision is Revision.
	Verified bool
	// Revision is the credential revision that was read before the check: of the user who signs in (Register) or whose password
	// changes. The operation is refused when it has changed meanwhile.
	Revision uint64
}

// Command is one operation for the metadata log: a [replica.Request]. Its fields are set before it is submitted and not changed after.
//
// A client's command is in Operation's own encoding, as it came, and must have passed [Validate]. A Register has no body: the
// credentials were checked before, User is the user they belong to and Secret.Revision their revision.
type Command struct {
	// Client, Session and Request are the identity as bound to the connection. Client is zero for commands of the server itself
	// ([OpBootstrap], [OpNodeStarted], [OpSetPreferred]), which are not remembered.
	Client  wire.U128
	Session uint64
	Request uint64
	// Stamp is the request_checksum of the header, 0 = none.
	Stamp wire.U128
	// User is who signs in (Register). For everything else the user of the session counts.
	User uint32
	// Node is the replica id of the node that the client is connected to.
	Node uint8
	// Operation is what to do.
	Operation wire.Operation
	// Body is read until Proposed or Done is called.
	Body   []byte
	Secret Secret
	// Now is the node's time, microseconds since 1970; the entry's time is this or that of the entry before it, whichever is later.
	Now uint64
	// Done gets the outcome, exactly once, on the goroutine that runs the group: it must not block. It may be nil.
	Done func(Result)
	// Released, when not nil, is called once when Body may be used for something else: before Done.
	Released func()

	released bool
}

var (
	_ replica.Request = (*Command)(nil)
	_ replica.Vital   = (*Command)(nil)
)

// Size is the number of bytes the command holds.
func (c *Command) Size() int { return len(c.Body) + entryHeader + len(c.Secret.Hash) }

// Vital reports whether the command is taken while the disk is full: what begins and ends sessions, so that messages can be polled,
// and what makes room or takes something away.
func (c *Command) Vital() bool {
	switch c.Operation {
	case wire.OpRegister, wire.OpLogout, OpNodeStarted,
		wire.OpJoinConsumerGroup, wire.OpLeaveConsumerGroup,
		wire.OpDeleteStream, wire.OpDeleteTopic, wire.OpDeletePartitions, wire.OpDeleteSegments, wire.OpDeleteConsumerGroup,
		wire.OpPurgeStream, wire.OpPurgeTopic,
		wire.OpDeleteUser, wire.OpDeletePersonalAccessToken:
		return true
	}
	return false
}

// Proposed is called when the log has its own copy of the entry.
func (c *Command) Proposed() {
	if c.released {
		return
	}
	c.released = true
	if c.Released != nil {
		c.Released()
	}
}

// Fail is the outcome of a command that was never applied here.
func (c *Command) Fail(err error) {
	c.done(Result{Err: err, ReplyOperation: replyOperation(c.Operation)})
}

func (c *Command) done(res Result) {
	c.Proposed()
	if c.Done != nil {
		c.Done(res)
	}
}

// replyOperation is the operation of the reply to an operation.
func replyOperation(op wire.Operation) wire.Operation {
	switch op {
	case wire.OpCreateTopic:
		return wire.OpCreateTopicWithAssignments
	case wire.OpCreatePartitions:
		return wire.OpCreatePartitionsWithAssignments
	}
	return op
}
