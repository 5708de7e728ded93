package harness

import (
	"fmt"
	"net"
	"os"
)

// Ports are taken below the range from which the kernel picks ports for outgoing connections: a node that is down for a
// while must find its port free when it comes back.
const (
	portsFrom  = 12000
	portsTo    = 32000
	portsBlock = 64 // of a cluster
)

// ports is a block of ports that no other harness on this machine uses: its first port is held by a listener.
type ports struct {
	guard net.Listener
	base  int
}

// reservePorts takes a block.
func reservePorts() (*ports, error) {
	blocks := (portsTo - portsFrom) / portsBlock
	start := os.Getpid() * 7
	for i := range blocks {
		base := portsFrom + (start+i)%blocks*portsBlock
		guard, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base))
		if err != nil {
			continue
		}
		if free(base) {
			return &ports{guard: guard, base: base}, nil
		}
		_ = guard.Close() // it was only a look
	}
	return nil, fmt.Errorf("no block of %d free ports between %d and %d", portsBlock, portsFrom, portsTo)
}

// free reports whether somebody outside of the harness uses a port of the block.
func free(base int) bool {
	for p := base + 1; p < base+portsBlock; p++ {
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", p))
		if err != nil {
			return false
		}
		_ = l.Close() // it was only a look
	}
	return true
}

// client is the port of a node for clients, peer the one for other nodes.
func (p *ports) client(node int) int { return p.base + 1 + node }
func (p *ports) peer(node int) int   { return p.base + portsBlock/2 + node }

func (p *ports) close() { _ = p.guard.Close() } // nothing is lost by it
