package wire

// ReplyHeader is the header of a frame that answers a request (framing §1.3).
type ReplyHeader struct {
	Size            uint32 // header and body
	Cluster         U128
	View            uint32
	Kind            FrameKind // FrameReply; Put writes it whatever the field says
	Replica         uint8
	RequestChecksum U128 // echo of the request
	Context         U128 // 0
	Client          U128 // echo of the request
	Op              uint64
	Commit          uint64 // metadata commit position; clients keep the highest (framing §6.1)
	Timestamp       uint64
	Request         uint64 // echo of the request
	Operation       Operation
	Status          ErrorCode // 0, or why the request was refused before it was committed
}

// Put writes the header to the first HeaderSize bytes of dst, all of them.
func (h *ReplyHeader) Put(dst []byte) {
	dst = dst[:HeaderSize]
	clear(dst)
	PutU128(dst[offCluster:], h.Cluster)
	le.PutUint32(dst[offSize:], h.Size)
	le.PutUint32(dst[offView:], h.View)
	dst[offKind] = byte(FrameReply)
	dst[offReplica] = h.Replica
	PutU128(dst[offRepChecksum:], h.RequestChecksum)
	PutU128(dst[offRepContext:], h.Context)
	PutU128(dst[offRepClient:], h.Client)
	le.PutUint64(dst[offRepOp:], h.Op)
	le.PutUint64(dst[offRepCommit:], h.Commit)
	le.PutUint64(dst[offRepTimestamp:], h.Timestamp)
	le.PutUint64(dst[offRepRequest:], h.Request)
	dst[offRepOperation] = byte(h.Operation)
	le.PutUint32(dst[offRepStatus:], uint32(h.Status))
}

// Decode reads a header as a released client does: it checks the size, the
// frame kind and that the operation is known, nothing else.
func (h *ReplyHeader) Decode(src []byte) error {
	if len(src) < HeaderSize {
		return eof("reply header", 0, HeaderSize, len(src))
	}
	src = src[:HeaderSize]
	h.Cluster = GetU128(src[offCluster:])
	h.Size = le.Uint32(src[offSize:])
	h.View = le.Uint32(src[offView:])
	h.Kind = FrameKind(src[offKind])
	h.Replica = src[offReplica]
	h.RequestChecksum = GetU128(src[offRepChecksum:])
	h.Context = GetU128(src[offRepContext:])
	h.Client = GetU128(src[offRepClient:])
	h.Op = le.Uint64(src[offRepOp:])
	h.Commit = le.Uint64(src[offRepCommit:])
	h.Timestamp = le.Uint64(src[offRepTimestamp:])
	h.Request = le.Uint64(src[offRepRequest:])
	h.Operation = Operation(src[offRepOperation])
	h.Status = ErrorCode(le.Uint32(src[offRepStatus:]))
	switch {
	case !h.Kind.Known():
		return badHeader(ErrInvalidBitPattern, "reply command byte", offKind, int(h.Kind))
	case h.Kind != FrameReply:
		return badHeader(ErrInvalidFrameKind, "reply command byte", offKind, int(h.Kind))
	case !h.Operation.Known():
		return badHeader(ErrInvalidBitPattern, "reply operation", offRepOperation, int(h.Operation))
	case h.Size < HeaderSize:
		return badHeader(ErrInvalidSize, "reply size", offSize, int(h.Size))
	}
	return nil
}

// Payload gives the payload of a reply with this body, or the error that the
// reply carries: a nonzero status, or the first entry of the result section of
// a framed operation (framing §1.8). The operation of the reply decides.
func (h *ReplyHeader) Payload(body []byte) ([]byte, error) {
	if h.Status != 0 {
		return nil, h.Status
	}
	if !h.Operation.Framed() || h.Operation == OpRegister && len(body) == 0 {
		return body, nil
	}
	return SplitResult(body)
}

// AppendReply appends a whole frame. The size is computed; h.Size is ignored.
// The body must hold the result section when the operation is framed.
func AppendReply(dst []byte, h ReplyHeader, body []byte) []byte {
	frame, start := BeginFrame(dst)
	h.Size = uint32(HeaderSize + len(body))
	h.Put(frame[start:])
	return append(frame, body...)
}

// AppendStatus appends a refusal: the code in the status field, no body.
func AppendStatus(dst []byte, h ReplyHeader, code ErrorCode) []byte {
	h.Status = code
	return AppendReply(dst, h, nil)
}

// AppendSuccess appends a whole successful reply, encoding the payload in place
// and putting the result section in front where the operation has one. A nil
// payload is an empty one.
func AppendSuccess(dst []byte, h ReplyHeader, payload Reply) []byte {
	frame, start := BeginFrame(dst)
	if h.Operation.Framed() {
		frame = AppendResultOK(frame)
	}
	if payload != nil {
		frame = payload.Append(frame)
	}
	h.Status = 0
	FinishReply(frame, start, h)
	return frame
}

// AppendRejection appends a refusal where the operation wants it: in the result
// section of a framed operation, else in the status field (framing §1.8).
// A denial that belongs in the status whatever the operation (permission,
// validation, routing of partition operations) goes through AppendStatus.
func AppendRejection(dst []byte, h ReplyHeader, code ErrorCode) []byte {
	if !h.Operation.Framed() {
		return AppendStatus(dst, h, code)
	}
	frame, start := BeginFrame(dst)
	frame = AppendResultError(frame, code)
	h.Status = 0
	FinishReply(frame, start, h)
	return frame
}

// FinishReply fills the header of a frame that BeginFrame began; the size comes
// from the length of frame.
func FinishReply(frame []byte, start int, h ReplyHeader) {
	h.Size = uint32(len(frame) - start)
	h.Put(frame[start:])
}
