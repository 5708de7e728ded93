package wire

// RequestHeader is the header of a frame that a client sends (framing §1.2).
//
// Cluster, View and Replica are zero from released clients; a server echoes
// them. UserID is never trusted: the user is that of the connection.
type RequestHeader struct {
	Size            uint32 // header and body
	Cluster         U128
	View            uint32
	Kind            FrameKind // FrameRequest; Put writes it whatever the field says
	Replica         uint8
	Client          U128
	RequestChecksum U128 // BodyStamp of the body, or 0
	Timestamp       uint64
	Request         uint64
	Operation       Operation
	Session         uint64
	UserID          uint32
	Code            Code // only with OpNonReplicated, else 0
}

// Put writes the header to the first HeaderSize bytes of dst, all of them.
func (h *RequestHeader) Put(dst []byte) {
	dst = dst[:HeaderSize]
	clear(dst)
	PutU128(dst[offCluster:], h.Cluster)
	le.PutUint32(dst[offSize:], h.Size)
	le.PutUint32(dst[offView:], h.View)
	dst[offKind] = byte(FrameRequest)
	dst[offReplica] = h.Replica
	PutU128(dst[offReqClient:], h.Client)
	PutU128(dst[offReqChecksum:], h.RequestChecksum)
	le.PutUint64(dst[offReqTimestamp:], h.Timestamp)
	le.PutUint64(dst[offReqRequest:], h.Request)
	dst[offReqOperation] = byte(h.Operation)
	le.PutUint64(dst[offReqSession:], h.Session)
	le.PutUint32(dst[offReqUser:], h.UserID)
	if h.Operation == OpNonReplicated {
		le.PutUint32(dst[offReqCode:], uint32(h.Code))
	}
}

// Decode reads a header and checks every rule of framing §1.2. When it fails
// because a rule is broken (not because src is short) the fields are set all
// the same, so that a server can answer with the client's own id and number.
//
// Operations 64 to 127, known or not, give ErrInternalOperation: a server
// answers them with EvictInvalidRequestOperation (observed 10, 11).
func (h *RequestHeader) Decode(src []byte) error {
	if err := h.DecodeLoose(src); err != nil {
		return err
	}
	return h.Validate()
}

// DecodeLoose reads the fields without judging them. It fails only when src is
// shorter than a header.
func (h *RequestHeader) DecodeLoose(src []byte) error {
	if len(src) < HeaderSize {
		return eof("request header", 0, HeaderSize, len(src))
	}
	src = src[:HeaderSize]
	h.Cluster = GetU128(src[offCluster:])
	h.Size = le.Uint32(src[offSize:])
	h.View = le.Uint32(src[offView:])
	h.Kind = FrameKind(src[offKind])
	h.Replica = src[offReplica]
	h.Client = GetU128(src[offReqClient:])
	h.RequestChecksum = GetU128(src[offReqChecksum:])
	h.Timestamp = le.Uint64(src[offReqTimestamp:])
	h.Request = le.Uint64(src[offReqRequest:])
	h.Operation = Operation(src[offReqOperation])
	h.Session = le.Uint64(src[offReqSession:])
	h.UserID = le.Uint32(src[offReqUser:])
	h.Code = 0
	if h.Operation == OpNonReplicated {
		h.Code = Code(le.Uint32(src[offReqCode:]))
	}
	return nil
}

// Validate checks the rules of framing §1.2 on decoded fields.
func (h *RequestHeader) Validate() error {
	switch {
	case !h.Kind.Known():
		return badHeader(ErrInvalidBitPattern, "request command byte", offKind, int(h.Kind))
	case h.Operation.Internal():
		return badHeader(ErrInternalOperation, "request operation", offReqOperation, int(h.Operation))
	case h.Operation != OpReserved && !h.Operation.Known():
		return badHeader(ErrInvalidBitPattern, "request operation", offReqOperation, int(h.Operation))
	case h.Kind != FrameRequest:
		return badHeader(ErrInvalidFrameKind, "request command byte", offKind, int(h.Kind))
	case h.Size < HeaderSize:
		return badHeader(ErrInvalidSize, "request size", offSize, int(h.Size))
	case h.Client.IsZero():
		return badHeader(ErrInvalidField, "request client id", offReqClient, 0)
	case h.Operation == OpReserved:
		return badHeader(ErrInvalidField, "request operation", offReqOperation, 0)
	}
	switch h.Operation {
	case OpRegister:
		if h.Session != 0 {
			return badHeader(ErrInvalidField, "session of a register", offReqSession, 0)
		}
		if h.Request != 0 {
			return badHeader(ErrInvalidField, "request number of a register", offReqRequest, 0)
		}
	case OpNonReplicated:
	default:
		if h.Session == 0 {
			return badHeader(ErrInvalidField, "request session", offReqSession, 0)
		}
		if h.Request == 0 {
			return badHeader(ErrInvalidField, "request number", offReqRequest, 0)
		}
	}
	return nil
}

// Command is the command code of the request: the one that travels with
// OpNonReplicated, else the one that the operation stands for. OpRegister has
// two codes; CodeLoginRegister is reported for both (framing §1.7).
func (h *RequestHeader) Command() (Code, bool) {
	if h.Operation == OpNonReplicated {
		return h.Code, true
	}
	return CodeFor(h.Operation)
}

// Reply starts the header of an answer: the fields that echo the request are
// set; the caller sets Op, Commit, Status and what else it knows. Size is that
// of an empty body.
func (h *RequestHeader) Reply() ReplyHeader {
	return ReplyHeader{
		Size: HeaderSize, Cluster: h.Cluster, View: h.View, Replica: h.Replica,
		RequestChecksum: h.RequestChecksum, Client: h.Client, Timestamp: h.Timestamp,
		Request: h.Request, Operation: h.Operation,
	}
}

// VerifyBody checks the stamp of the body (framing §2): a mismatch of a nonzero
// stamp is ErrInvalidFormat.
func (h *RequestHeader) VerifyBody(body []byte) error {
	if !h.RequestChecksum.IsZero() && h.RequestChecksum != BodyStamp(body) {
		return ErrInvalidFormat
	}
	return nil
}

// SetCommand sets Operation, Code and RequestChecksum for a command with this
// encoded body, by the rules of framing §1.7 and §2: stamped are register,
// logout, metadata operations and delete segments.
func (h *RequestHeader) SetCommand(c Code, body []byte) {
	h.Operation = OperationFor(c)
	h.Code = 0
	h.RequestChecksum = U128{}
	if h.Operation == OpNonReplicated {
		h.Code = c
	}
	if h.Operation.Stamped() {
		h.RequestChecksum = BodyStamp(body)
	}
}

// AppendRequest appends a whole frame. The size is computed; h.Size is ignored.
func AppendRequest(dst []byte, h RequestHeader, body []byte) []byte {
	frame, start := BeginFrame(dst)
	h.Size = uint32(HeaderSize + len(body))
	h.Put(frame[start:])
	return append(frame, body...)
}

// BeginFrame appends room for a header and returns where it starts, so that a
// body can be encoded right behind it and FinishRequest or FinishReply can fill
// the header without a copy.
func BeginFrame(dst []byte) (frame []byte, start int) {
	start = len(dst)
	var zero [HeaderSize]byte
	return append(dst, zero[:]...), start
}

// FinishRequest fills the header of a frame that BeginFrame began: size from
// the length of frame, operation, code and stamp from the command.
func FinishRequest(frame []byte, start int, h RequestHeader, c Code) {
	h.Size = uint32(len(frame) - start)
	h.SetCommand(c, frame[start+HeaderSize:])
	h.Put(frame[start:])
}

// AppendCommand appends a whole frame for a request, encoding its body in place.
func AppendCommand(dst []byte, h RequestHeader, req Request) []byte {
	frame, start := BeginFrame(dst)
	frame = req.Append(frame)
	FinishRequest(frame, start, h, req.Code())
	return frame
}
