package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// Credentials of the root user of every cluster of the harness.
const (
	Username = "iggy"
	Password = "iggy"
)

// ErrEvicted says that the server ended the session of a connection.
var ErrEvicted = errors.New("evicted")

// maxReply bounds what a reply may announce.
const maxReply = wire.MaxFrame

// Raw speaks the protocol frame by frame, with nothing that hides or repairs: no reconnection, no routing, no replay. It
// is what a server's behaviour is tested with. One goroutine at a time, except Close.
type Raw struct {
	Address string
	// Client and Session are the identity of the next request; Login sets Session. Next is the id that the next partition
	// or metadata request gets.
	Client  wire.U128
	Session uint64
	Next    uint64

	conn  net.Conn
	reads uint64 // ids of requests that are not replicated, counted from 2^63
}

// Answer is what came back for a request.
type Answer struct {
	Header wire.ReplyHeader
	// Body as it came, result section included.
	Body []byte
	// Eviction is set when the frame was an eviction; then Header and Body are empty.
	Eviction wire.EvictionReason
}

// Payload is the body without the result section, or the error that the answer carries: a wire.ErrorCode, or one that
// matches ErrEvicted.
func (a *Answer) Payload() ([]byte, error) {
	if a.Eviction != 0 {
		return nil, fmt.Errorf("%w: %s", ErrEvicted, a.Eviction)
	}
	return a.Header.Payload(a.Body)
}

// DialRaw connects under a new client id, without signing in.
func DialRaw(ctx context.Context, address string) (*Raw, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &Raw{Address: address, Client: wire.NewID(), Next: 1, reads: 1 << 63, conn: conn}, nil
}

// LoginRaw connects and signs in as the root user.
func LoginRaw(ctx context.Context, address string) (*Raw, error) {
	r, err := DialRaw(ctx, address)
	if err != nil {
		return nil, err
	}
	if err := r.Login(ctx, Username, Password); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Close ends the connection.
func (r *Raw) Close() { _ = r.conn.Close() } // what is lost by it was to be lost

// Login registers the connection's client id.
func (r *Raw) Login(ctx context.Context, username, password string) error {
	var reply wire.LoginReply
	err := r.Call(ctx, &wire.LoginRegister{
		Version:  wire.ClientVersion{Protocol: wire.CurrentVersion, SDKName: "harness", SDKVersion: "1"},
		Username: username, Password: password,
	}, &reply)
	if err != nil {
		return err
	}
	r.Session = reply.Session
	return nil
}

// Header of the next request for a command.
func (r *Raw) Header(code wire.Code) wire.RequestHeader {
	h := wire.RequestHeader{Client: r.Client, Session: r.Session}
	switch wire.OperationFor(code) {
	case wire.OpRegister:
		h.Session = 0
	case wire.OpNonReplicated:
		h.Request = r.reads
		r.reads++
	default:
		h.Request = r.Next
		r.Next++
	}
	return h
}

// Frame encodes a request under the next id.
func (r *Raw) Frame(req wire.Request) []byte {
	return wire.AppendCommand(nil, r.Header(req.Code()), req)
}

// Write sends bytes as they are.
func (r *Raw) Write(ctx context.Context, b []byte) error {
	if err := r.conn.SetWriteDeadline(deadline(ctx)); err != nil {
		return err
	}
	_, err := r.conn.Write(b)
	return err
}

// Read takes the next frame from the server.
func (r *Raw) Read(ctx context.Context) (*Answer, error) {
	if err := r.conn.SetReadDeadline(deadline(ctx)); err != nil {
		return nil, err
	}
	var head [wire.HeaderSize]byte
	if _, err := io.ReadFull(r.conn, head[:]); err != nil {
		return nil, err
	}
	a := &Answer{}
	if wire.KindOf(head[:]) == wire.FrameEviction {
		var e wire.EvictionHeader
		if err := e.Decode(head[:]); err != nil {
			return nil, err
		}
		a.Eviction = e.Reason
		return a, nil
	}
	if err := a.Header.Decode(head[:]); err != nil {
		return nil, err
	}
	if a.Header.Size > maxReply {
		return nil, fmt.Errorf("a reply of %d bytes", a.Header.Size)
	}
	a.Body = make([]byte, a.Header.Size-wire.HeaderSize)
	_, err := io.ReadFull(r.conn, a.Body)
	return a, err
}

// Exchange sends a frame and reads one answer, which must be to that frame.
func (r *Raw) Exchange(ctx context.Context, frame []byte) (*Answer, error) {
	var h wire.RequestHeader
	if err := h.DecodeLoose(frame); err != nil {
		return nil, err
	}
	if err := r.Write(ctx, frame); err != nil {
		return nil, err
	}
	a, err := r.Read(ctx)
	if err != nil {
		return nil, err
	}
	// Not the operation: creations of topics and partitions are answered under that which carries the assignments.
	if a.Eviction == 0 && (a.Header.Request != h.Request || a.Header.Client != h.Client) {
		return nil, fmt.Errorf("the answer is to request %d of client %s, asked was %d of %s", a.Header.Request, a.Header.Client, h.Request, h.Client)
	}
	return a, nil
}

// Call sends a request and decodes the payload of its answer. into may be nil.
func (r *Raw) Call(ctx context.Context, req wire.Request, into wire.Reply) error {
	a, err := r.Exchange(ctx, r.Frame(req))
	if err != nil {
		return fmt.Errorf("%s at %s: %w", req.Code(), r.Address, err)
	}
	payload, err := a.Payload()
	if err != nil {
		return fmt.Errorf("%s at %s: %w", req.Code(), r.Address, err)
	}
	if into == nil {
		return nil
	}
	if err := into.Decode(payload); err != nil {
		return fmt.Errorf("%s at %s: decode the reply: %w", req.Code(), r.Address, err)
	}
	return nil
}

// deadline of an operation: that of the context, at most Patience away. A context that is cancelled without a deadline is
// noticed when that bound ends; the harness gives every context a deadline.
func deadline(ctx context.Context) time.Time {
	d := time.Now().Add(Patience)
	if c, ok := ctx.Deadline(); ok && c.Before(d) {
		return c
	}
	return d
}

// SendRequest builds the send of some payloads to a partition.
func SendRequest(stream, topic wire.Identifier, partition uint32, messages ...wire.Message) (*wire.SendMessages, error) {
	batch, err := wire.BuildBatch(nil, messages)
	if err != nil {
		return nil, err
	}
	return &wire.SendMessages{Stream: stream, Topic: topic, Partitioning: wire.PartitionID(partition), Batch: batch}, nil
}
