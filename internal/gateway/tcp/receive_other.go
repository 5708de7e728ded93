//go:build !linux

package tcp

import (
	"net"

	"github.com/whippetmq/whippet/internal/broker"
)

// receiver reads frames.
type receiver struct {
	nc     net.Conn
	direct bool // never: the system has no call that reads into several places and does not wait
}

func (r *receiver) init(nc net.Conn) { r.nc = nc }

func (r *receiver) read(dst []byte) (int, error) { return r.nc.Read(dst) }

func (r *receiver) readAhead(head []byte, _ int, _ []byte, _ bool) (int, *broker.Buffer, error) {
	n, err := r.nc.Read(head)
	return n, nil, err
}
