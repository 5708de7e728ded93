package wire

// ErrorCode is an error of the protocol as it travels: a bare number (errors).
// It implements error; errors.Is compares by number. Zero is not an error.
type ErrorCode uint32

// Class is what a client may do after an error (errors, "Retriability").
type Class uint8

// Classes of errors.
const (
	// ClassTerminal: the request failed and sending it again changes nothing.
	ClassTerminal Class = iota
	// ClassOutcomeUnknown: 57. It may or may not have been applied; only a replay
	// of the same frame under the same identity is safe.
	ClassOutcomeUnknown
	// ClassNotAdmitted: 58. It was never admitted and may be sent again anywhere.
	ClassNotAdmitted
	// ClassSessionLost: the transport or the session is gone; connect and sign
	// in again, then see NothingWritten.
	ClassSessionLost
	// ClassApplied: 59. It was applied earlier and its reply is gone.
	ClassApplied
)

// String names the class.
func (c Class) String() string {
	switch c {
	case ClassTerminal:
		return "terminal"
	case ClassOutcomeUnknown:
		return "outcome unknown"
	case ClassNotAdmitted:
		return "not admitted"
	case ClassSessionLost:
		return "session lost"
	case ClassApplied:
		return "applied"
	}
	return "Class(" + utoa(uint64(c)) + ")"
}

func (c ErrorCode) row() *errorRow {
	lo, hi := 0, len(errorTable)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if errorTable[mid].code < c {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(errorTable) && errorTable[lo].code == c {
		return &errorTable[lo]
	}
	return nil
}

// Known reports whether the code is in the table. A client surfaces an unknown
// code as ErrError; see Surface.
func (c ErrorCode) Known() bool { return c.row() != nil }

// Surface is the code itself, or ErrError for one that is not in the table.
func (c ErrorCode) Surface() ErrorCode {
	if c.Known() {
		return c
	}
	return ErrError
}

// Name is the name in the protocol's table, for example "StreamIdNotFound".
func (c ErrorCode) Name() string {
	if r := c.row(); r != nil {
		return r.name
	}
	return "Unknown"
}

// Snake is the name that the JSON plane uses, for example "stream_id_not_found".
func (c ErrorCode) Snake() string {
	if r := c.row(); r != nil {
		return r.snake
	}
	return "unknown"
}

// Class says what a client may do. Unknown codes are terminal.
func (c ErrorCode) Class() Class {
	if r := c.row(); r != nil {
		return r.class
	}
	return ClassTerminal
}

// NothingWritten reports whether the error proves that the request was not
// applied although the session is lost or it was refused: 9, 40, 58, 61
// (framing §5.3).
func (c ErrorCode) NothingWritten() bool {
	switch c {
	case ErrCannotEstablishConnection, ErrUnauthenticated, ErrNotConnected, ErrTransientNotAccepted:
		return true
	}
	return false
}

// Error gives the text and the code.
func (c ErrorCode) Error() string {
	return c.Text() + " (" + c.Name() + ", code " + utoa(uint64(c)) + ")"
}

// Text is a sentence for people, without the code. Codes that no user of this
// protocol can meet get their name, taken apart into words.
func (c ErrorCode) Text() string {
	if s := errorText(c); s != "" {
		return s
	}
	r := c.row()
	if r == nil {
		return "unknown error"
	}
	b := []byte(r.snake)
	for i := range b {
		if b[i] == '_' {
			b[i] = ' '
		}
	}
	return string(b)
}
