package broker

import (
	"sync"

	"github.com/whippetmq/whippet/internal/partition"
	"github.com/whippetmq/whippet/wire"
)

// replyInline is the room for a header and a small body inside a Reply: every
// reply without a list in it.
const replyInline = wire.HeaderSize + 128

// unasked is the cost of a frame that answers no request.
const unasked = -1

// Reply is one frame to be written: a Reply or an Eviction. Whoever writes it
// calls Release afterwards, also when the write failed.
type Reply struct {
	frame  []byte // header and body, or the body's beginning
	tail   []byte // the rest of the body, in memory of its own
	poll   partition.PollResult
	polled bool
	cost   int // what the request counted against the bounds of its connection
	// What a poll reply holds of the room for such, and whose; nil = nothing.
	charged *conn
	charge  int64
	inline  [replyInline]byte
}

var replies = sync.Pool{New: func() any { return new(Reply) }} //nolint:gochecknoglobals // a free list

func newReply() *Reply {
	r := replies.Get().(*Reply)
	r.frame = r.inline[:wire.HeaderSize]
	r.cost = 0
	return r
}

// Size is the number of bytes of the frame.
func (r *Reply) Size() int {
	n := len(r.frame) + len(r.tail)
	if r.polled {
		n += r.poll.Bytes
	}
	return n
}

// Segments appends the frame's parts, in order, to dst. They are valid until Release.
func (r *Reply) Segments(dst [][]byte) [][]byte {
	dst = append(dst, r.frame)
	if len(r.tail) > 0 {
		dst = append(dst, r.tail)
	}
	if r.polled {
		dst = append(dst, r.poll.Records()...)
	}
	return dst
}

// Cost is what the request that this answers counted against the bounds of its
// connection: the size of its frame.
func (r *Reply) Cost() int { return max(0, r.cost) }

// Unasked reports whether the frame answers no request: an eviction that the
// server sends by itself.
func (r *Reply) Unasked() bool { return r.cost == unasked }

// Release gives the reply and what it borrows back.
func (r *Reply) Release() {
	if r.polled {
		r.poll.Release()
		r.polled = false
	}
	r.frame, r.tail = nil, nil
	if c := r.charged; c != nil {
		r.charged = nil
		c.b.polls.give(&c.polled, r.charge)
	}
	replies.Put(r)
}

// passOn leaves the room that the reply takes in the books of poll replies to whoever has a copy of it now: until the
// function that it gives is called. nil = there is none.
func (r *Reply) passOn() func() {
	c, n := r.charged, r.charge
	if c == nil {
		return nil
	}
	r.charged = nil
	return func() { c.b.polls.give(&c.polled, n) }
}

// finish writes the header; the body is what was appended to frame.
func (r *Reply) finish(h *wire.ReplyHeader) *Reply {
	h.Size = uint32(r.Size())
	h.Put(r.frame)
	return r
}

// eviction makes the frame that ends a session or refuses a login. client must not be zero.
func eviction(client wire.U128, reason wire.EvictionReason) *Reply {
	r := newReply()
	h := wire.EvictionHeader{Client: client, Reason: reason}
	if reason == wire.EvictIncompatibleProtocol {
		h.VersionMax, h.VersionMin = wire.CurrentVersion, wire.MinVersion
	}
	h.Put(r.frame)
	return r
}

// Echo is the answer to a request with the given body, for handlers that are
// not a Broker: stand-ins of tests, and gateways that answer by themselves.
func Echo(h *wire.RequestHeader, body []byte) *Reply {
	r := newReply()
	r.cost = int(h.Size)
	r.frame = append(r.frame, body...)
	rh := h.Reply()
	return r.finish(&rh)
}
