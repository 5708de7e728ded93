package transport

import (
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/whippetmq/whippet/internal/loglimit"
)

// maxStrangers bounds the connections that have not proven to be a node's, each
// of which takes a descriptor for as long as a handshake may take. A further one
// ends the oldest, so that whoever keeps them all does not keep nodes out.
const maxStrangers = 512

// strangers are the incoming connections before their proof, oldest first.
type strangers struct {
	mu    sync.Mutex
	conns []net.Conn
}

func (s *strangers) enter(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) == maxStrangers {
		_ = s.conns[0].Close() // its handshake ends on that
		s.conns = slices.Delete(s.conns, 0, 1)
	}
	s.conns = append(s.conns, conn)
}

func (s *strangers) leave(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.conns, conn); i >= 0 {
		s.conns = slices.Delete(s.conns, i, i+1)
	}
}

// Refusals of one reason that are logged within a period; the others are counted.
const (
	refusalLines  = 10
	refusalPeriod = 10 * time.Second
)

// refusals keep whoever connects again and again from filling the log, each
// reason by itself.
type refusals struct {
	mu     sync.Mutex
	limits map[Reason]*loglimit.Limit
}

// of is the limit of a refusal's reason.
func (r *refusals) of(err error) *loglimit.Limit {
	var reason Reason // 0 = the connection ended by itself
	var refused *RefusedError
	if errors.As(err, &refused) {
		reason = refused.Reason
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.limits[reason]
	if l == nil {
		if r.limits == nil {
			r.limits = map[Reason]*loglimit.Limit{}
		}
		l = loglimit.New(refusalLines, refusalPeriod)
		r.limits[reason] = l
	}
	return l
}
