package wire

// Request is the body of a command. Every request type of this package
// implements it on its pointer.
type Request interface {
	// Code is the command that the body belongs to.
	Code() Code
	// Append encodes the body behind dst. It never fails; see Validate.
	Append(dst []byte) []byte
	// Decode reads a body. Bytes behind the last field are ignored, except
	// where the last field is an options block or a batch.
	Decode(src []byte) error
}

// Reply is the payload of an answer: the body without header and without the
// result section. Every reply type of this package implements it on its pointer.
type Reply interface {
	// Append encodes the payload behind dst.
	Append(dst []byte) []byte
	// Decode reads a payload.
	Decode(src []byte) error
}

// Validate reports whether a request can travel: whether its encoding decodes.
// It costs an encoding and a decoding; sends check their limits in the
// BatchBuilder instead.
func Validate(req Request) error {
	fresh, ok := NewRequest(req.Code())
	if !ok {
		return ErrInvalidCommand
	}
	return fresh.Decode(req.Append(nil))
}
