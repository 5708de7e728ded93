package wire

import (
	"errors"
	"fmt"
)

// DecodeKind says what is wrong with bytes that do not decode. The constants
// are sentinels: errors.Is(err, wire.ErrUnexpectedEOF).
type DecodeKind uint8

// Kinds of decode errors. ErrInvalidUTF8 is a kind of broken input; the
// protocol's own code 81 is ErrInvalidUtf8.
const (
	// ErrUnexpectedEOF: the input ends before a field does.
	ErrUnexpectedEOF DecodeKind = iota + 1
	// ErrInvalidUTF8: a text is not UTF-8.
	ErrInvalidUTF8
	// ErrUnknownDiscriminant: a kind or enum byte has no meaning.
	ErrUnknownDiscriminant
	// ErrValidation: a length, count or reserved-byte rule is broken.
	ErrValidation
	// ErrInvalidBitPattern: an enum byte of a header is unknown.
	ErrInvalidBitPattern
	// ErrInvalidField: a header field breaks a rule.
	ErrInvalidField
	// ErrInvalidFrameKind: the frame is not of the kind asked for.
	ErrInvalidFrameKind
	// ErrInvalidSize: the size field of a header is impossible.
	ErrInvalidSize
	// ErrMalformedResult: a result section does not hold what it announces.
	ErrMalformedResult
	// ErrInternalOperation: a client sent an operation of 64 to 127.
	ErrInternalOperation
)

// Error names the kind.
func (k DecodeKind) Error() string {
	switch k {
	case ErrUnexpectedEOF:
		return "unexpected end of input"
	case ErrInvalidUTF8:
		return "invalid utf-8"
	case ErrUnknownDiscriminant:
		return "unknown discriminant"
	case ErrValidation:
		return "validation failed"
	case ErrInvalidBitPattern:
		return "invalid bit pattern"
	case ErrInvalidField:
		return "invalid header field"
	case ErrInvalidFrameKind:
		return "unexpected frame kind"
	case ErrInvalidSize:
		return "invalid frame size"
	case ErrMalformedResult:
		return "malformed result section"
	case ErrInternalOperation:
		return "internal operation"
	}
	return "decode error"
}

// DecodeError says where and why bytes did not decode. It matches its Kind and
// its error code with errors.Is.
type DecodeError struct {
	Kind   DecodeKind
	What   string // the field, or the rule that is broken
	Offset int    // where the field starts, from the start of the decoded bytes
	Need   int    // bytes needed, or the value that was expected
	Have   int    // bytes there, or the value that was found
	Status ErrorCode
}

// Error describes the failure.
func (e *DecodeError) Error() string {
	switch e.Kind {
	case ErrUnexpectedEOF, ErrMalformedResult:
		return fmt.Sprintf("%v at offset %d: %s needs %d bytes, have %d", e.Kind, e.Offset, e.What, e.Need, e.Have)
	case ErrUnknownDiscriminant, ErrInvalidBitPattern, ErrInternalOperation, ErrInvalidFrameKind, ErrInvalidSize:
		return fmt.Sprintf("%v at offset %d: %s = %d", e.Kind, e.Offset, e.What, e.Have)
	default:
		return fmt.Sprintf("%v at offset %d: %s", e.Kind, e.Offset, e.What)
	}
}

// Is matches the kind and the error code.
func (e *DecodeError) Is(target error) bool {
	switch t := target.(type) {
	case DecodeKind:
		return t == e.Kind
	case ErrorCode:
		return t == e.Code()
	}
	return false
}

// Code is the error code that a server answers: ErrInvalidCommand unless the
// rule has a code of its own (commands, "General decode rules").
func (e *DecodeError) Code() ErrorCode {
	if e.Status != 0 {
		return e.Status
	}
	return ErrInvalidCommand
}

// StatusOf gives the error code of any error: 0 for nil, the code for an
// ErrorCode anywhere in the chain, that of a *DecodeError, else ErrError.
func StatusOf(err error) ErrorCode {
	if err == nil {
		return 0
	}
	var c ErrorCode
	if errors.As(err, &c) {
		return c
	}
	var d *DecodeError
	if errors.As(err, &d) {
		return d.Code()
	}
	return ErrError
}

func eof(what string, off, need, have int) error {
	return &DecodeError{Kind: ErrUnexpectedEOF, What: what, Offset: off, Need: need, Have: have}
}

func invalid(what string, off int) error {
	return &DecodeError{Kind: ErrValidation, What: what, Offset: off}
}

func badHeader(kind DecodeKind, what string, off, have int) error {
	return &DecodeError{Kind: kind, What: what, Offset: off, Have: have}
}
