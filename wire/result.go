package wire

import "github.com/zeebo/xxh3"

// AppendResultOK appends the result section of a success (framing §1.8).
func AppendResultOK(dst []byte) []byte { return le.AppendUint32(dst, 0) }

// AppendResultError appends the result section of a rejection, 12 bytes.
func AppendResultError(dst []byte, code ErrorCode) []byte {
	dst = le.AppendUint32(dst, 1)
	dst = le.AppendUint32(dst, 0)
	return le.AppendUint32(dst, uint32(code))
}

// SplitResult reads the result section in front of a framed reply's payload.
// A rejection comes back as its ErrorCode; a section that does not hold what it
// announces is a *DecodeError of kind ErrMalformedResult, never a success.
func SplitResult(body []byte) (payload []byte, err error) {
	if len(body) < 4 {
		return nil, &DecodeError{Kind: ErrMalformedResult, What: "result count", Need: 4, Have: len(body)}
	}
	if le.Uint32(body) == 0 {
		return body[4:], nil
	}
	if len(body) < 12 {
		return nil, &DecodeError{Kind: ErrMalformedResult, What: "result entry", Offset: 4, Need: 8, Have: len(body) - 4}
	}
	code := ErrorCode(le.Uint32(body[8:]))
	if code == 0 {
		return nil, &DecodeError{Kind: ErrMalformedResult, What: "result code 0", Offset: 8}
	}
	return nil, code
}

// BodyStamp is the request_checksum of a body: XXH3-64, seed 0, zero-extended
// (framing §2). The stamp of an empty body is not 0.
func BodyStamp(body []byte) U128 { return U128{Lo: xxh3.Hash(body)} }
