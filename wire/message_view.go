package wire

import (
	"iter"

	"github.com/zeebo/xxh3"
)

// MessageView is a message inside a batch. Its slices alias the batch.
type MessageView struct {
	Offset          uint64 // base offset + offset delta
	Timestamp       uint64 // of the append, the same for the whole batch
	OriginTimestamp uint64 // of the producer
	ID              U128
	Checksum        uint64
	Payload         []byte
	HeadersBytes    []byte // encoded user headers, may be empty
}

// Headers decodes the user headers; their data aliases the batch.
func (m *MessageView) Headers() (Headers, error) {
	if len(m.HeadersBytes) == 0 {
		return nil, nil
	}
	var h Headers
	err := h.Decode(m.HeadersBytes)
	return h, err
}

// Messages walks the messages without allocating. It stops at a frame that does
// not fit; ParseBatch with CheckFrames, or PolledMessages.Decode, rule that out.
func (b Batch) Messages() iter.Seq[MessageView] {
	return func(yield func(MessageView) bool) {
		w := b.walk()
		for {
			m, ok := w.next()
			if !ok || !yield(m) {
				return
			}
		}
	}
}

type messageWalker struct {
	walker
	base, time, origin uint64
	left               uint32
}

func (b Batch) walk() messageWalker {
	if len(b) < BatchHeaderSize {
		return messageWalker{}
	}
	return messageWalker{
		walker: walker{b, BatchHeaderSize},
		base:   b.BaseOffset(), time: b.BaseTimestamp(), origin: b.OriginTimestamp(), left: b.Count(),
	}
}

func (w *messageWalker) next() (m MessageView, ok bool) {
	if w.left == 0 {
		return m, false
	}
	f := w.frame()
	if f == nil {
		return m, false
	}
	w.left--
	payload := MessageHeaderSize + int(le.Uint32(f[offMsgPayload:]))
	return MessageView{
		Offset:          w.base + uint64(le.Uint32(f[offMsgDelta:])),
		Timestamp:       w.time,
		OriginTimestamp: w.origin + uint64(le.Uint32(f[offMsgTime:])),
		ID:              GetU128(f[offMsgID:]),
		Checksum:        le.Uint64(f),
		Payload:         f[MessageHeaderSize:payload:payload],
		HeadersBytes:    f[payload:],
	}, true
}

func frameChecksum(frame []byte) uint64 { return xxh3.Hash(frame[offMsgID:]) }
