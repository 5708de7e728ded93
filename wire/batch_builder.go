package wire

import "math"

// Message is a message to send.
type Message struct {
	ID              U128   // 0 = mint one
	OriginTimestamp uint64 // microseconds
	Payload         []byte // 1..MaxPayloadSize bytes
	Headers         Headers
	HeadersBytes    []byte // encoded headers, used as they are when Headers is empty
}

// BatchBuilder encodes messages into a batch, in a buffer that it reuses. The
// zero value is ready.
type BatchBuilder struct {
	buf      []byte
	start    int // where the batch starts in buf
	sums     FrameSums
	origins  []uint64
	min, max uint64 // origin timestamps
	rebased  bool   // min fell after frames were encoded: they must be encoded anew
}

// Reset empties the builder and keeps its buffer. The batch that the last Finish
// gave is void.
func (w *BatchBuilder) Reset() { w.ResetInto(w.buf[:0]) }

// ResetInto empties the builder and builds the next batch behind buf, which it
// takes over: so a frame header and the front of a send can stand in front of the
// batch in one buffer. See Buffer.
func (w *BatchBuilder) ResetInto(buf []byte) {
	w.start = len(buf)
	w.origins = w.origins[:0]
	w.sums.buf = w.sums.buf[:0]
	w.min, w.max, w.rebased = 0, 0, false
	var zero [BatchHeaderSize]byte
	w.buf = append(buf, zero[:]...)
}

// Len is the number of messages added.
func (w *BatchBuilder) Len() int { return len(w.origins) }

// Size is the size of the batch so far, header included.
func (w *BatchBuilder) Size() int {
	if w.buf == nil {
		return BatchHeaderSize
	}
	return len(w.buf) - w.start
}

// Buffer is the whole buffer: what ResetInto was given, then the batch.
func (w *BatchBuilder) Buffer() []byte { return w.buf }

// MessageSize is the size of the frame of a message.
func MessageSize(m *Message) int {
	n := MessageHeaderSize + len(m.Payload)
	if len(m.Headers) > 0 {
		return n + m.Headers.Size()
	}
	return n + len(m.HeadersBytes)
}

// CheckMessage checks the limits of a message (messages §2): an empty payload is
// ErrInvalidMessagePayloadLength, a payload too large ErrTooBigMessagePayload,
// headers too large ErrTooBigUserHeaders, a bad header ErrInvalidHeaderKey or
// ErrInvalidHeaderValue.
func CheckMessage(m *Message) error {
	switch {
	case len(m.Payload) == 0:
		return ErrInvalidMessagePayloadLength
	case len(m.Payload) > MaxPayloadSize:
		return ErrTooBigMessagePayload
	case len(m.Headers) > 0:
		return m.Headers.Validate()
	case len(m.HeadersBytes) > MaxHeadersSize:
		return ErrTooBigUserHeaders
	case len(m.HeadersBytes) > 0:
		return CheckHeaders(m.HeadersBytes)
	}
	return nil
}

// Add encodes a message. It fails without a trace for a message that breaks a
// limit (see CheckMessage), whose timestamp lies too far from the others
// (ErrInvalidMessageTimestampDelta) or that makes the batch too large
// (ErrTooManyMessages).
func (w *BatchBuilder) Add(m *Message) error {
	if w.buf == nil {
		w.Reset()
	}
	if err := CheckMessage(m); err != nil {
		return err
	}
	lo, hi := m.OriginTimestamp, m.OriginTimestamp
	n := len(w.origins)
	if n > 0 {
		lo, hi = min(lo, w.min), max(hi, w.max)
	}
	if hi-lo > math.MaxUint32 {
		return ErrInvalidMessageTimestampDelta
	}
	if uint64(w.Size())+uint64(MessageSize(m)) > math.MaxUint32-HeaderSize {
		return ErrTooManyMessages
	}
	if n > 0 && lo < w.min {
		w.rebased = true
	}
	w.min, w.max = lo, hi
	w.origins = append(w.origins, m.OriginTimestamp)

	id := m.ID
	if id.IsZero() {
		id = NewID()
	}
	at := len(w.buf)
	var header [MessageHeaderSize]byte
	w.buf = append(w.buf, header[:]...)
	w.buf = append(w.buf, m.Payload...)
	body := len(w.buf)
	if len(m.Headers) > 0 {
		w.buf = m.Headers.AppendSorted(w.buf)
	} else {
		w.buf = append(w.buf, m.HeadersBytes...)
	}
	f := w.buf[at:]
	PutU128(f[offMsgID:], id)
	le.PutUint32(f[offMsgDelta:], uint32(n))
	le.PutUint32(f[offMsgTime:], uint32(m.OriginTimestamp-w.min))
	le.PutUint32(f[offMsgHeaders:], uint32(len(w.buf)-body))
	le.PutUint32(f[offMsgPayload:], uint32(len(m.Payload)))
	if !w.rebased {
		le.PutUint64(f, frameChecksum(f))
	}
	return nil
}

// Finish writes header and checksums and gives the batch, which aliases the
// builder's buffer until it is reset. A batch without messages is
// ErrInvalidMessagesCount.
func (w *BatchBuilder) Finish() (Batch, error) {
	n := len(w.origins)
	if n == 0 {
		return nil, ErrInvalidMessagesCount
	}
	b := Batch(w.buf[w.start:])
	le.PutUint64(b[offBatchOrigin:], w.min)
	le.PutUint64(b[offBatchLength:], uint64(len(b)))
	le.PutUint32(b[offBatchCount:], uint32(n))
	w.sums.begin(n)
	k := walker{b, BatchHeaderSize}
	for i := range n {
		f := k.frame()
		if w.rebased {
			le.PutUint32(f[offMsgTime:], uint32(w.origins[i]-w.min))
			le.PutUint64(f, frameChecksum(f))
		}
		w.sums.add(i, le.Uint64(f))
	}
	w.rebased = false
	le.PutUint64(b[offBatchChecksum:], w.sums.hash(b))
	return b, nil
}

// BuildBatch encodes messages into a batch behind dst.
func BuildBatch(dst []byte, messages []Message) ([]byte, error) {
	var w BatchBuilder
	w.ResetInto(dst)
	for i := range messages {
		if err := w.Add(&messages[i]); err != nil {
			return dst, err
		}
	}
	if _, err := w.Finish(); err != nil {
		return dst, err
	}
	return w.Buffer(), nil
}
