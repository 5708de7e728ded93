package wire

import "fmt"

// EvictionReason is why a server ends a session or refuses a login
// (errors, "Mapping of eviction reasons"; framing §4.5).
type EvictionReason uint8

// Eviction reasons.
const (
	EvictNoSession               EvictionReason = 1
	EvictClientReleaseTooLow     EvictionReason = 2
	EvictClientReleaseTooHigh    EvictionReason = 3
	EvictInvalidRequestOperation EvictionReason = 4
	EvictInvalidRequestBody      EvictionReason = 5
	EvictInvalidRequestBodySize  EvictionReason = 6
	EvictSessionTooLow           EvictionReason = 7
	EvictSessionReleaseMismatch  EvictionReason = 8
	EvictInvalidCredentials      EvictionReason = 9
	EvictInvalidToken            EvictionReason = 10
	EvictUserInactive            EvictionReason = 11
	EvictSessionError            EvictionReason = 12
	EvictStaleClient             EvictionReason = 13
	EvictIncompatibleProtocol    EvictionReason = 14
	EvictMalformedLogin          EvictionReason = 15
)

var evictionNames = [...]string{
	"Reserved", "NoSession", "ClientReleaseTooLow", "ClientReleaseTooHigh", "InvalidRequestOperation",
	"InvalidRequestBody", "InvalidRequestBodySize", "SessionTooLow", "SessionReleaseMismatch",
	"InvalidCredentials", "InvalidToken", "UserInactive", "SessionError", "StaleClient",
	"IncompatibleProtocol", "MalformedLogin",
}

// String names the reason.
func (r EvictionReason) String() string {
	if int(r) < len(evictionNames) {
		return evictionNames[r]
	}
	return "EvictionReason(" + utoa(uint64(r)) + ")"
}

// Err is the error that a client raises for the reason. client is its own
// version, lo and hi the window that the server accepts; the three matter only
// for EvictIncompatibleProtocol, which gives an *IncompatibleVersionError.
func (r EvictionReason) Err(client, lo, hi Version) error {
	switch r {
	case 0, EvictClientReleaseTooLow, EvictClientReleaseTooHigh, EvictInvalidRequestOperation,
		EvictInvalidRequestBody, EvictInvalidRequestBodySize:
		return ErrInvalidCommand
	case EvictInvalidCredentials:
		return ErrInvalidCredentials
	case EvictInvalidToken:
		return ErrInvalidPersonalAccessToken
	case EvictStaleClient:
		return ErrStaleClient
	case EvictIncompatibleProtocol:
		if lo < 1 || lo > hi {
			return ErrUnauthenticated
		}
		return &IncompatibleVersionError{Client: client, Min: lo, Max: hi}
	case EvictMalformedLogin:
		return ErrInvalidFormat
	case EvictNoSession, EvictSessionTooLow, EvictSessionReleaseMismatch, EvictUserInactive, EvictSessionError:
		return ErrUnauthenticated
	}
	return ErrUnauthenticated
}

// IncompatibleVersionError is the error of EvictIncompatibleProtocol. It matches
// ErrIncompatibleProtocolVersion.
type IncompatibleVersionError struct {
	Client, Min, Max Version
}

// Error says what was offered and what is accepted.
func (e *IncompatibleVersionError) Error() string {
	return fmt.Sprintf("protocol version %s is not accepted by the server, which speaks %s to %s", e.Client, e.Min, e.Max)
}

// Unwrap gives the error code.
func (e *IncompatibleVersionError) Unwrap() error { return ErrIncompatibleProtocolVersion }

// EvictionHeader is a whole eviction frame; it has no body (framing §1.4).
type EvictionHeader struct {
	Size       uint32 // HeaderSize
	Cluster    U128
	View       uint32
	Kind       FrameKind // FrameEviction; Put writes it whatever the field says
	Replica    uint8
	Client     U128
	VersionMax Version // only with EvictIncompatibleProtocol
	VersionMin Version // only with EvictIncompatibleProtocol
	Reason     EvictionReason
}

// Put writes the frame to the first HeaderSize bytes of dst, all of them.
func (h *EvictionHeader) Put(dst []byte) {
	dst = dst[:HeaderSize]
	clear(dst)
	PutU128(dst[offCluster:], h.Cluster)
	le.PutUint32(dst[offSize:], HeaderSize)
	le.PutUint32(dst[offView:], h.View)
	dst[offKind] = byte(FrameEviction)
	dst[offReplica] = h.Replica
	PutU128(dst[offEvClient:], h.Client)
	le.PutUint32(dst[offEvMax:], uint32(h.VersionMax))
	le.PutUint32(dst[offEvMin:], uint32(h.VersionMin))
	dst[offEvReason] = byte(h.Reason)
}

// DecodeLoose reads the fields without judging them, as released clients do.
func (h *EvictionHeader) DecodeLoose(src []byte) error {
	if len(src) < HeaderSize {
		return eof("eviction header", 0, HeaderSize, len(src))
	}
	src = src[:HeaderSize]
	h.Cluster = GetU128(src[offCluster:])
	h.Size = le.Uint32(src[offSize:])
	h.View = le.Uint32(src[offView:])
	h.Kind = FrameKind(src[offKind])
	h.Replica = src[offReplica]
	h.Client = GetU128(src[offEvClient:])
	h.VersionMax = Version(le.Uint32(src[offEvMax:]))
	h.VersionMin = Version(le.Uint32(src[offEvMin:]))
	h.Reason = EvictionReason(src[offEvReason])
	return nil
}

// Decode reads a frame and checks every rule of framing §1.4. The fields are
// set also when a rule is broken.
func (h *EvictionHeader) Decode(src []byte) error {
	if err := h.DecodeLoose(src); err != nil {
		return err
	}
	windowed := h.Reason == EvictIncompatibleProtocol
	switch {
	case !h.Kind.Known():
		return badHeader(ErrInvalidBitPattern, "eviction command byte", offKind, int(h.Kind))
	case h.Reason > EvictMalformedLogin:
		return badHeader(ErrInvalidBitPattern, "eviction reason", offEvReason, int(h.Reason))
	case h.Kind != FrameEviction:
		return badHeader(ErrInvalidFrameKind, "eviction command byte", offKind, int(h.Kind))
	case h.Size != HeaderSize:
		return badHeader(ErrInvalidSize, "eviction size", offSize, int(h.Size))
	case h.Reason == 0:
		return badHeader(ErrInvalidField, "eviction reason", offEvReason, 0)
	case h.Client.IsZero():
		return badHeader(ErrInvalidField, "eviction client id", offEvClient, 0)
	case !allZero(src[offReservedFrame:offEvClient]):
		return badHeader(ErrInvalidField, "eviction reserved_frame", offReservedFrame, 0)
	case !allZero(src[offEvReserved:offEvReason]):
		return badHeader(ErrInvalidField, "eviction reserved", offEvReserved, 0)
	case !windowed && h.VersionMax|h.VersionMin != 0:
		return badHeader(ErrInvalidField, "eviction version window", offEvMax, 0)
	case windowed && (h.VersionMin < 1 || h.VersionMin > h.VersionMax):
		return badHeader(ErrInvalidField, "eviction version window", offEvMax, 0)
	}
	return nil
}

// Err is the error that a client of this version raises.
func (h *EvictionHeader) Err(client Version) error {
	return h.Reason.Err(client, h.VersionMin, h.VersionMax)
}

// AppendEviction appends a whole eviction frame.
func AppendEviction(dst []byte, h EvictionHeader) []byte {
	frame, start := BeginFrame(dst)
	h.Put(frame[start:])
	return frame
}
