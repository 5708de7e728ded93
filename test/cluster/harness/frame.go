package harness

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/whippetmq/whippet/wire"
)

// Direction of bytes through a proxy.
type Direction uint8

// Directions: what the dialling side says, and what comes back.
const (
	ToServer Direction = iota
	ToClient
)

// String names the direction.
func (d Direction) String() string {
	if d == ToServer {
		return "->"
	}
	return "<-"
}

// Protocol is what a proxy understands of the bytes that pass.
type Protocol uint8

// Protocols.
const (
	// Bytes: nothing; rules do not apply.
	Bytes Protocol = iota
	// ClientProtocol: frames of 256-byte headers.
	ClientProtocol
	// PeerProtocol: the link between nodes.
	PeerProtocol
)

// Frame is a frame on its way through a proxy, as a rule sees it.
type Frame struct {
	Conn uint64 // number of the connection at its proxy, from 1
	Dir  Direction
	Size int // header and body

	// Of client links. Code is the command of a request; of a reply, that of the request which it answers, where the proxy
	// saw it. Kind tells requests, replies and evictions apart.
	Kind      wire.FrameKind
	Client    wire.U128
	Request   uint64
	Session   uint64
	Operation wire.Operation
	Code      wire.Code
	Status    wire.ErrorCode // of replies

	// Of peer links: kind of the frame, group it belongs to, and, of a raft message, its type.
	PeerKind uint8
	Group    uint64
	RaftType uint8

	// Prefix is the start of the frame, header included. It is valid only while the rule looks at it.
	Prefix []byte

	partition int64 // that a send names, or none
	eviction  wire.EvictionReason
}

// none: a send that names no partition, or a frame that is no send.
const none = -1

// Kinds of frames between nodes, and the raft messages that rules ask for.
const (
	PeerRaft    uint8 = 1
	PeerControl uint8 = 2
	PeerCall    uint8 = 3
	PeerAnswer  uint8 = 4

	RaftAppend         uint8 = 3
	RaftAppendResponse uint8 = 4
)

// String describes the frame for a log.
func (f *Frame) String() string {
	switch {
	case f.PeerKind != 0:
		return fmt.Sprintf("conn %d %s peer frame kind %d group %x type %d, %d bytes", f.Conn, f.Dir, f.PeerKind, f.Group, f.RaftType, f.Size)
	case f.Kind == wire.FrameEviction:
		return fmt.Sprintf("conn %d %s eviction %s", f.Conn, f.Dir, f.eviction)
	case f.Dir == ToServer:
		to := ""
		if p, ok := f.Partition(); ok {
			to = fmt.Sprintf(" partition %d", p)
		}
		return fmt.Sprintf("conn %d -> %s%s request %d client %s, %d bytes", f.Conn, f.Code, to, f.Request, f.Client, f.Size)
	}
	return fmt.Sprintf("conn %d <- %s request %d status %d, %d bytes", f.Conn, f.Code, f.Request, f.Status, f.Size)
}

// Partition is the partition that a send names.
func (f *Frame) Partition() (uint32, bool) { return uint32(f.partition), f.partition != none }

// sendPartition reads the partition from the start of a send's body.
func sendPartition(b []byte) int64 {
	if len(b) < 4 {
		return none
	}
	b = b[4:]
	for range 2 { // stream and topic
		var id wire.Identifier
		n, err := id.Decode(b)
		if err != nil {
			return none
		}
		b = b[n:]
	}
	if len(b) < 6 || wire.PartitioningKind(b[0]) != wire.PartitioningPartitionID {
		return none
	}
	return int64(binary.LittleEndian.Uint32(b[2:]))
}

// prefixSize is how much of a frame a rule may look at.
const prefixSize = wire.HeaderSize + 1024

// framer reads the frames of one direction of a connection.
type framer interface {
	// next reads the start of the next frame into buf, whose capacity is prefixSize, and tells how much of the frame
	// follows. ok = false: what was read is no frame, and everything from here on is bytes.
	next(r io.Reader, buf []byte) (f Frame, prefix []byte, rest int, ok bool, err error)
}

// clientFrames reads frames of client links. codes is shared by the two directions of a connection.
type clientFrames struct {
	dir   Direction
	codes *pendingCodes
}

func (c *clientFrames) next(r io.Reader, buf []byte) (f Frame, prefix []byte, rest int, ok bool, err error) {
	head := buf[:wire.HeaderSize]
	n, err := io.ReadFull(r, head)
	if err != nil {
		return f, head[:n], 0, false, err
	}
	size, err := wire.FrameSize(head)
	if err != nil {
		return f, head, 0, false, nil //nolint:nilerr // garbage passes as it is
	}
	body := int(size) - wire.HeaderSize
	seen := min(body, prefixSize-wire.HeaderSize)
	prefix = buf[:wire.HeaderSize+seen]
	if n, err := io.ReadFull(r, prefix[wire.HeaderSize:]); err != nil {
		return f, prefix[:wire.HeaderSize+n], 0, false, err
	}
	f = Frame{Dir: c.dir, Size: int(size), Kind: wire.KindOf(head), Prefix: prefix, partition: none}
	switch f.Kind {
	case wire.FrameRequest:
		var h wire.RequestHeader
		if h.DecodeLoose(head) == nil {
			f.Client, f.Request, f.Session, f.Operation = h.Client, h.Request, h.Session, h.Operation
			f.Code, _ = h.Command()
			c.codes.put(f.Request, f.Code)
		}
		if f.Operation == wire.OpSendMessages {
			f.partition = sendPartition(prefix[wire.HeaderSize:])
		}
	case wire.FrameEviction:
		f.eviction = wire.EvictionReason(head[wire.HeaderSize-1])
	case wire.FrameReply:
		var h wire.ReplyHeader
		_ = h.Decode(head) // the fields are set even when a rule of the header is broken
		f.Client, f.Request, f.Operation, f.Status = h.Client, h.Request, h.Operation, h.Status
		f.Code = c.codes.take(f.Request, f.Operation)
	}
	return f, prefix, body - seen, true, nil
}

// The fixed parts in front of the frames of a peer link: hello and proof of the dialling side; verdict, hello, proof and
// verdict of the accepting side.
const (
	peerHello     = 104
	peerProof     = 32
	peerVerdict   = 2
	peerPurpose   = 6 // offset of the purpose in a hello
	peerLink      = 1 // the purpose of a link with frames
	peerHeader    = 16
	peerDialHello = peerHello + peerProof
	peerAnswer    = peerVerdict + peerHello + peerProof + peerVerdict
)

// peerFrames reads frames between nodes.
type peerFrames struct {
	dir     Direction
	greeted bool
}

func (p *peerFrames) next(r io.Reader, buf []byte) (f Frame, prefix []byte, rest int, ok bool, err error) {
	if !p.greeted {
		return p.hello(r, buf)
	}
	head := buf[:peerHeader]
	n, err := io.ReadFull(r, head)
	if err != nil {
		return f, head[:n], 0, false, err
	}
	body := int(binary.LittleEndian.Uint32(head))
	seen := min(body, prefixSize-peerHeader)
	prefix = buf[:peerHeader+seen]
	if n, err := io.ReadFull(r, prefix[peerHeader:]); err != nil {
		return f, prefix[:peerHeader+n], 0, false, err
	}
	f = Frame{Dir: p.dir, partition: none, Size: peerHeader + body, PeerKind: head[4], Group: binary.LittleEndian.Uint64(head[8:]), Prefix: prefix}
	if f.PeerKind == PeerRaft && seen > 0 {
		f.RaftType = prefix[peerHeader]
	}
	return f, prefix, body - seen, true, nil
}

// hello passes the handshake as one frame of no kind. A refusal, or another purpose than a link, ends the framing.
func (p *peerFrames) hello(r io.Reader, buf []byte) (f Frame, prefix []byte, rest int, ok bool, err error) {
	p.greeted = true
	size, at := peerDialHello, peerPurpose
	if p.dir == ToClient {
		size, at = peerAnswer, peerVerdict+peerPurpose
	}
	// In pieces: the other side speaks only when it has read the one before.
	prefix = buf[:0]
	f = Frame{Dir: p.dir, partition: none}
	n, err := io.ReadAtLeast(r, buf[:size], at+1)
	prefix = buf[:n]
	if err != nil {
		return f, prefix, 0, false, err
	}
	if p.dir == ToClient && prefix[0] != 0 || prefix[at] != peerLink {
		return f, prefix, 0, false, nil
	}
	f.Size, f.Prefix = size, prefix
	return f, prefix, size - n, true, nil
}

// pendingCodes remembers which command a request that is not replicated was, for its reply.
type pendingCodes struct {
	mu    sync.Mutex
	codes map[uint64]wire.Code
}

// maxPendingCodes bounds what is remembered; requests above it have replies without a code.
const maxPendingCodes = 8192

func newPendingCodes() *pendingCodes { return &pendingCodes{codes: map[uint64]wire.Code{}} }

func (p *pendingCodes) put(request uint64, code wire.Code) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.codes) < maxPendingCodes {
		p.codes[request] = code
	}
}

func (p *pendingCodes) take(request uint64, op wire.Operation) wire.Code {
	p.mu.Lock()
	defer p.mu.Unlock()
	code, seen := p.codes[request]
	delete(p.codes, request)
	if !seen {
		code, _ = wire.CodeFor(op)
	}
	return code
}
