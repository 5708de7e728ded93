package client

import (
	"errors"

	"github.com/whippetmq/whippet/wire"
)

// reaction is what an answer means for the request it answers.
type reaction uint8

const (
	// reactFatal: the request failed; sending it again changes nothing.
	reactFatal reaction = iota
	// reactRetry: never admitted (58); send it again here, at once and then with
	// a growing pause. In a cluster the route is refreshed first.
	reactRetry
	// reactUnknown: may have been applied (57 and everything that a client raises
	// after the frame left); only a replay under the same identity is safe.
	reactUnknown
	// reactRefresh: the target was not found. Refresh what is known of the topic
	// and its route and try once more, then give up.
	reactRefresh
	// reactReconnect: never admitted, because the session or the connection is
	// gone; sign in again, then send it again.
	reactReconnect
	// reactApplied: applied earlier, the reply is gone (59).
	reactApplied
)

func (r reaction) String() string {
	return [...]string{"fatal", "retry here", "outcome unknown", "refresh route", "reconnect", "applied"}[r]
}

// classify says what a code in a complete reply means. It is the one place where
// codes are judged; the table test covers every code of the protocol.
//
// Not found (20, 1009, 1010, 2010, 2011, 3007) is reactRefresh because a node
// that lags behind the metadata answers it for a topic that was created a moment
// ago (routing D.6); whoever asked for the thing itself treats it as fatal.
func classify(code wire.ErrorCode) reaction {
	switch code {
	case wire.ErrTransientNotAccepted:
		return reactRetry
	case wire.ErrTransientNotCommitted:
		return reactUnknown
	case wire.ErrRequestAlreadyApplied:
		return reactApplied
	case wire.ErrResourceNotFound, wire.ErrStreamIdNotFound, wire.ErrStreamNameNotFound,
		wire.ErrTopicIdNotFound, wire.ErrTopicNameNotFound, wire.ErrPartitionNotFound:
		return reactRefresh
	case wire.ErrUnauthenticated, wire.ErrStaleClient, wire.ErrNotConnected, wire.ErrCannotEstablishConnection:
		return reactReconnect
	case wire.ErrDisconnected, wire.ErrTcpError, wire.ErrQuicError, wire.ErrConnectionClosed,
		wire.ErrEmptyResponse, wire.ErrWebSocketReceiveError, wire.ErrWebSocketSendError:
		// Raised by clients for a connection that broke; should one arrive in a
		// reply, nothing is known about the request.
		return reactUnknown
	}
	return reactFatal
}

// isNotFound reports whether err says that something does not exist.
func isNotFound(err error) bool {
	for _, code := range [...]wire.ErrorCode{
		wire.ErrResourceNotFound, wire.ErrStreamIdNotFound, wire.ErrStreamNameNotFound, wire.ErrTopicIdNotFound,
		wire.ErrTopicNameNotFound, wire.ErrPartitionNotFound, wire.ErrConsumerGroupIdNotFound,
		wire.ErrConsumerGroupNameNotFound, wire.ErrConsumerOffsetNotFound, wire.ErrClientNotFound,
	} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// rejectsLogin reports whether the sign-in failed for good: signing in again
// with the same credentials fails again.
func rejectsLogin(err error) bool {
	for _, code := range [...]wire.ErrorCode{
		wire.ErrInvalidCredentials, wire.ErrInvalidUsername, wire.ErrInvalidPassword,
		wire.ErrInvalidPersonalAccessToken, wire.ErrPersonalAccessTokenExpired,
		wire.ErrIncompatibleProtocolVersion, wire.ErrInvalidFormat, wire.ErrInvalidCommand,
		wire.ErrInvalidTlsDomain, wire.ErrInvalidTlsCertificate, wire.ErrInvalidTlsCertificatePath,
	} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}
