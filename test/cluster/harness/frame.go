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

// What a proxy must know of the handshake of a peer link. The size of the hellos is not among it: the dialling side says
// its hello and waits; the accepting side answers with verdict, hello and proof; the dialling side sends its proof and
// waits; the accepting side answers with a verdict. So what came before the first answer was the hello.
const (
	peerProof   = 32
	peerVerdict = 2
	peerPurpose = 6 // offset of the purpose in a hello
	peerLink    = 1 // the purpose of a link with frames
	peerHeader  = 16
)

// greeting is what the two directions of a peer link know of its handshake.
type greeting struct {
	mu       sync.Mutex
	hello    int // bytes of the dialling side's hello so far
	answered bool
	link     bool
}

// peerFrames reads frames between nodes.
type peerFrames struct {
	dir     Direction
	shared  *greeting
	proof   int // bytes of it so far
	greeted bool
}

func (p *peerFrames) next(r io.Reader, buf []byte) (f Frame, prefix []byte, rest int, ok bool, err error) {
	if !p.greeted {
		if p.dir == ToServer {
			return p.dialled(r, buf)
		}
		return p.accepted(r, buf)
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

// dialled passes hello and proof of the dialling side, in the pieces in which they come.
func (p *peerFrames) dialled(r io.Reader, buf []byte) (f Frame, prefix []byte, rest int, ok bool, err error) {
	g := p.shared
	g.mu.Lock()
	first := g.hello == 0
	g.mu.Unlock()
	least := 1
	if first {
		least = peerPurpose + 1
	}
	n, err := io.ReadAtLeast(r, buf, least)
	prefix = buf[:n]
	f = Frame{Dir: p.dir, partition: none, Size: n, Prefix: prefix}
	if err != nil {
		return f, prefix, 0, false, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.answered {
		if first {
			g.link = prefix[peerPurpose] == peerLink
		}
		g.hello += n
		return f, prefix, 0, true, nil
	}
	p.proof += n
	p.greeted = p.proof >= peerProof
	return f, prefix, 0, g.link, nil
}

// accepted passes the first verdict, which may be a refusal, then the rest of the handshake.
func (p *peerFrames) accepted(r io.Reader, buf []byte) (f Frame, prefix []byte, rest int, ok bool, err error) {
	g := p.shared
	g.mu.Lock()
	answered := g.answered
	g.mu.Unlock()
	f = Frame{Dir: p.dir, partition: none, Size: peerVerdict}
	if !answered {
		n, err := io.ReadFull(r, buf[:peerVerdict])
		f.Prefix = buf[:n]
		if err != nil {
			return f, f.Prefix, 0, false, err
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.answered = true
		return f, f.Prefix, 0, buf[0] == 0 && g.link, nil
	}
	g.mu.Lock()
	f.Size = g.hello + peerProof + peerVerdict
	g.mu.Unlock()
	p.greeted = true
	n, err := io.ReadAtLeast(r, buf[:f.Size], 1)
	f.Prefix = buf[:n]
	return f, f.Prefix, f.Size - n, err == nil, err
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
