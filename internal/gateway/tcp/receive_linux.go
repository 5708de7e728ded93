package tcp

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/whippetmq/whippet/internal/broker"
)

// receiver reads frames. Released clients leave
// Nagle's algorithm on and write a frame in pieces: their kernel holds the last
// piece back until the ones before are acknowledged, ours holds the
// acknowledgement back for 40 ms because it hopes for data to send along. So
// before waiting in the middle of a frame the acknowledgement is sent at once.
type receiver struct {
	raw syscall.RawConn // of the socket; nil = it is none
	nc  net.Conn
	// direct says that frames come from the socket as they are, not through TLS.
	direct bool

	// Of the read under way; fields, and functions made once, so that a read allocates nothing.
	dst     []byte
	n       int
	err     error
	attempt func(fd uintptr) bool
	hurry   func(fd uintptr)

	// Of the scatter under way, beside n and err.
	expect  int
	ahead   *broker.Buffer
	begun   bool
	parts   [3][]byte
	scatter func(fd uintptr) bool
}

func (r *receiver) init(nc net.Conn) {
	r.nc = nc
	under := nc
	if t, ok := nc.(interface{ NetConn() net.Conn }); ok {
		under = t.NetConn()
	}
	t, ok := under.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return
	}
	r.raw, r.direct = raw, under == nc
	r.hurry = func(fd uintptr) {
		// An error would mean a slower client, nothing else.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1)
	}
	r.scatter = func(fd uintptr) bool {
		parts := r.parts[:2]
		if r.expect > 0 {
			r.ahead = broker.GetBuffer(r.expect)
			parts = r.parts[:3]
			parts[1], parts[2] = r.ahead.B, parts[1]
		}
		for {
			r.n, r.err = unix.Readv(int(fd), parts)
			if !errors.Is(r.err, unix.EINTR) {
				break
			}
		}
		if !errors.Is(r.err, unix.EAGAIN) {
			return true
		}
		if r.expect > 0 {
			// Who waits holds no memory.
			r.ahead.Release()
			r.ahead, parts[1] = nil, parts[2]
		}
		if r.begun {
			r.hurry(fd)
		}
		return false
	}
	r.attempt = func(fd uintptr) bool {
		for {
			r.n, r.err = unix.Read(int(fd), r.dst)
			switch {
			case errors.Is(r.err, unix.EINTR):
				continue
			case errors.Is(r.err, unix.EAGAIN):
				r.hurry(fd)
				return false
			}
			return true
		}
	}
}

// readAhead reads into head, then into memory for expect bytes, which it takes when
// there is something to read and returns, then into rest; expect 0 takes none.
// begun says that this is the middle of a frame.
func (r *receiver) readAhead(head []byte, expect int, rest []byte, begun bool) (n int, ahead *broker.Buffer, err error) {
	r.parts[0], r.parts[1] = head, rest
	r.expect, r.begun, r.n, r.err = expect, begun, 0, nil
	err = r.raw.Read(r.scatter)
	ahead = r.ahead
	r.ahead, r.parts = nil, [3][]byte{}
	switch {
	case err != nil:
	case r.err != nil:
		err = os.NewSyscallError("readv", r.err)
	case r.n == 0:
		err = io.EOF
	default:
		return r.n, ahead, nil
	}
	ahead.Release()
	return 0, nil, err
}

// read is a Read in the middle of a frame.
func (r *receiver) read(dst []byte) (int, error) {
	switch {
	case r.raw == nil || len(dst) == 0:
		return r.nc.Read(dst)
	case !r.direct:
		n, err := r.nc.Read(dst)
		if n < len(dst) && err == nil {
			_ = r.raw.Control(r.hurry)
		}
		return n, err
	}
	r.dst, r.n, r.err = dst, 0, nil
	err := r.raw.Read(r.attempt)
	r.dst = nil
	switch {
	case err != nil:
		return 0, err
	case r.err != nil:
		return 0, os.NewSyscallError("read", r.err)
	case r.n == 0:
		return 0, io.EOF
	}
	return r.n, nil
}
