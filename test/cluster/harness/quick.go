package harness

import (
	"net"
	"syscall"
)

// quick acknowledges what it read at once. Released clients write a frame in two pieces under Nagle's algorithm; a proxy
// that waits for more before it acknowledges the first, as the kernel does by default, makes every such frame 40 ms slower.
type quick struct {
	*net.TCPConn
	raw syscall.RawConn
}

// Read implements io.Reader.
func (q *quick) Read(b []byte) (int, error) {
	n, err := q.TCPConn.Read(b)
	if n == 0 || err != nil {
		return n, err
	}
	if q.raw == nil {
		if q.raw, err = q.SyscallConn(); err != nil {
			return n, nil //nolint:nilerr // only slower; the next read tells what is wrong
		}
	}
	_ = q.raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 1) // only slower without it
	})
	return n, nil
}
