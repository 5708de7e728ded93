package broker

import (
	"net/netip"

	"github.com/whippetmq/whippet/wire"
)

// Transport of a connection, as the client list names it (commands §3.17).
type Transport uint8

// Transports.
const (
	TCP       Transport = 1
	QUIC      Transport = 2
	HTTP      Transport = 3
	WebSocket Transport = 4
)

// Peer describes a new connection.
type Peer struct {
	Transport Transport
	Address   netip.AddrPort
}

// Sink takes the replies that do not come from Handle itself. Reply is called
// from any goroutine, must not block, and takes the frame over. Close asks the
// gateway to end the connection; it must not block either.
//
// Hold is called by Handle only. Hold(true) says that Handle will return without
// waiting for anything: until then replies may be held back, so that the
// goroutine that called Handle writes them, which saves waking another one.
// Hold(false) takes it back.
type Sink interface {
	Reply(r *Reply)
	Close()
	Hold(on bool)
}

// Handler is what a gateway hands connections to. Broker implements it.
type Handler interface {
	Connect(p Peer, s Sink) Conn
}

// Conn is one client connection as seen by its gateway. Handle and Close are
// called from one goroutine at a time.
type Conn interface {
	// Handle takes one request. h was decoded and obeys framing §1.2, or is an
	// internal operation; it is only read during the call. The body is taken
	// over; nil stands for an empty one. A reply that is ready at once is
	// returned; nil means that it comes through the Sink, exactly once.
	//
	// Handle may wait: for the password hash of a login, for a commit, or for
	// room in a partition's queue. That holds this connection back, and only it.
	Handle(h *wire.RequestHeader, body *Buffer) *Reply
	// Bound tells whether the connection is signed in. Before that only a
	// register needs its body.
	Bound() bool
	// Refuse makes the answer to a request whose body was not read, because the
	// connection is not bound (framing §4.4) or the register is too large.
	Refuse(h *wire.RequestHeader) *Reply
	// Close ends the connection's session. Requests that were taken over are
	// still answered into the Sink, which drops them.
	Close()
}
