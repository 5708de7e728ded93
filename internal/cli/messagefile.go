package cli

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/whippetmq/whippet/wire"
)

// Binary message files are messages back to back, each as a 64-byte header, its payload and its user headers. The
// header is the reference's older one:
//
//	0 checksum u64, 8 id u128, 24 offset u64, 32 timestamp u64, 40 origin timestamp u64,
//	48 length of the user headers u32, 52 length of the payload u32, 56 reserved u64 (zero)
const fileHeaderSize = 64

// appendMessageFile appends one polled message in the form of a file.
func appendMessageFile(dst []byte, m wire.MessageView) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint64(dst, m.Checksum)
	dst = wire.AppendU128(dst, m.ID)
	dst = le.AppendUint64(dst, m.Offset)
	dst = le.AppendUint64(dst, m.Timestamp)
	dst = le.AppendUint64(dst, m.OriginTimestamp)
	dst = le.AppendUint32(dst, uint32(len(m.HeadersBytes)))
	dst = le.AppendUint32(dst, uint32(len(m.Payload)))
	dst = le.AppendUint64(dst, 0)
	dst = append(dst, m.Payload...)
	return append(dst, m.HeadersBytes...)
}

// readMessageFile reads the next message of a file, or io.EOF at its end. Id, origin time, payload and headers are
// kept; offset and timestamp belong to where the message came from.
func readMessageFile(r io.Reader) (m wire.Message, size int, err error) {
	var h [fileHeaderSize]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return m, 0, io.EOF
		}
		return m, 0, fmt.Errorf("a message header is cut short: %w", err)
	}
	le := binary.LittleEndian
	headers, payload := le.Uint32(h[48:]), le.Uint32(h[52:])
	switch {
	case le.Uint64(h[56:]) != 0:
		return m, 0, errors.New("this is no file of messages: reserved bytes are not zero")
	case payload == 0 || payload > wire.MaxPayloadSize:
		return m, 0, fmt.Errorf("this is no file of messages: a payload of %d bytes", payload)
	case headers > wire.MaxHeadersSize:
		return m, 0, fmt.Errorf("this is no file of messages: headers of %d bytes", headers)
	}
	body := make([]byte, payload+headers)
	if _, err := io.ReadFull(r, body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // the end of the file is no end of the messages here
		}
		return m, 0, fmt.Errorf("a message is cut short: %w", err)
	}
	m.ID = wire.GetU128(h[8:])
	m.OriginTimestamp = le.Uint64(h[40:])
	m.Payload = body[:payload:payload]
	if headers > 0 {
		m.HeadersBytes = body[payload:]
		if err := wire.CheckHeaders(m.HeadersBytes); err != nil {
			return m, 0, fmt.Errorf("the headers of a message: %w", err)
		}
	}
	return m, fileHeaderSize + len(body), nil
}
