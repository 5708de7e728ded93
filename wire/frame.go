package wire

// HeaderSize is the size of every frame header (framing §1).
const HeaderSize = 256

// Limits of a whole frame, header included (framing §9).
const (
	// DefaultMaxFrame is the largest frame a server accepts unless configured.
	DefaultMaxFrame = 64 << 20
	// MaxFrame is the largest value that can be configured.
	MaxFrame = 256 << 20
)

// FrameKind is the command byte of a header (framing §1.5).
type FrameKind uint8

// Frame kinds. Only FrameRequest, FrameReply and FrameEviction travel between
// client and server; the others are taken by the reference's replicas.
const (
	FrameReserved              FrameKind = 0
	FramePing                  FrameKind = 1
	FramePong                  FrameKind = 2
	FramePingClient            FrameKind = 3
	FramePongClient            FrameKind = 4
	FrameRequest               FrameKind = 5
	FramePrepare               FrameKind = 6
	FramePrepareOk             FrameKind = 7
	FrameReply                 FrameKind = 8
	FrameCommit                FrameKind = 9
	FrameStartViewChange       FrameKind = 10
	FrameDoViewChange          FrameKind = 11
	FrameStartView             FrameKind = 12
	FrameEviction              FrameKind = 13
	FrameReplicaHello          FrameKind = 14
	FrameReplicaChallenge      FrameKind = 15
	FrameReplicaFinish         FrameKind = 16
	FrameRequestStartView      FrameKind = 17
	FrameRequestPrepares       FrameKind = 18
	FrameRepairPrepare         FrameKind = 19
	FrameRepairDone            FrameKind = 20
	FrameRangeEvicted          FrameKind = 21
	FrameRequestStateTransfer  FrameKind = 22
	FrameStateTransferTarget   FrameKind = 23
	FrameRequestStateChunk     FrameKind = 24
	FrameStateChunk            FrameKind = 25
	FrameForwardRegister       FrameKind = 26
	FrameForwardRegisterResult FrameKind = 27
	FrameForwardLogout         FrameKind = 28
	FrameForwardLogoutResult   FrameKind = 29
)

// Known reports whether k is one of the protocol's values.
func (k FrameKind) Known() bool { return k <= FrameForwardLogoutResult }

// String names the kinds of the client wire.
func (k FrameKind) String() string {
	switch k {
	case FrameRequest:
		return "Request"
	case FrameReply:
		return "Reply"
	case FrameEviction:
		return "Eviction"
	}
	return "FrameKind(" + utoa(uint64(k)) + ")"
}

// Offsets of the header fields (framing §1.1 to §1.4).
const (
	offCluster       = 32
	offSize          = 48
	offView          = 52
	offRelease       = 56
	offKind          = 60
	offReplica       = 61
	offReservedFrame = 62

	offReqClient    = 128
	offReqChecksum  = 144
	offReqTimestamp = 160
	offReqRequest   = 168
	offReqOperation = 176
	offReqSession   = 184
	offReqUser      = 192
	offReqCode      = 196

	offRepChecksum  = 128
	offRepContext   = 144
	offRepClient    = 160
	offRepOp        = 176
	offRepCommit    = 184
	offRepTimestamp = 192
	offRepRequest   = 200
	offRepOperation = 208
	offRepStatus    = 216

	offEvClient   = 128
	offEvMax      = 144
	offEvMin      = 148
	offEvReserved = 152
	offEvReason   = 255
)

// FrameSize reads the size field of a header of which at least the first 52
// bytes are present. It refuses a size below HeaderSize.
func FrameSize(header []byte) (uint32, error) {
	if len(header) < offSize+4 {
		return 0, eof("frame header", 0, HeaderSize, len(header))
	}
	size := le.Uint32(header[offSize:])
	if size < HeaderSize {
		return size, &DecodeError{Kind: ErrInvalidSize, What: "frame size below the header", Offset: offSize, Have: int(size)}
	}
	return size, nil
}

// KindOf reads the frame kind of a whole header.
func KindOf(header []byte) FrameKind { return FrameKind(header[offKind]) }
