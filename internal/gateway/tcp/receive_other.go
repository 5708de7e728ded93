//go:build !linux

package tcp

import "net"

// receiver reads the rest of a frame that has begun.
type receiver struct{ nc net.Conn }

func (r *receiver) init(nc net.Conn) { r.nc = nc }

func (r *receiver) read(dst []byte) (int, error) { return r.nc.Read(dst) }
