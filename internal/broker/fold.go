package broker

import (
	"context"
	"sync"

	"github.com/whippetmq/whippet/internal/cluster"
	"github.com/whippetmq/whippet/wire"
)

// readFold has the reads of a partition that want its primary's commit index
// share a question: those that come while one is on its way wait for the next,
// since what was acknowledged before they came may be missing in its answer.
type readFold struct {
	mu     sync.Mutex
	asking bool
	next   []chan uint64 // waiting for the next question; 0 = no answer
}

// join waits for an answer to a question that is asked from now on.
func (f *readFold) join(ctx context.Context, b *Broker, part *Partition) (uint64, bool) {
	answer := make(chan uint64, 1)
	f.mu.Lock()
	f.next = append(f.next, answer)
	ask := !f.asking
	f.asking = true
	f.mu.Unlock()
	if ask {
		f.ask(b, part)
	}
	select {
	case index := <-answer:
		return index, index != 0
	case <-ctx.Done():
		return 0, false
	}
}

// ask puts the question of all that wait.
func (f *readFold) ask(b *Broker, part *Partition) {
	f.mu.Lock()
	asked := f.next
	f.next = nil
	if len(asked) == 0 {
		f.asking = false
		f.mu.Unlock()
		return
	}
	f.mu.Unlock()
	answered := func(index uint64) {
		for _, a := range asked {
			a <- index
		}
		f.ask(b, part)
	}
	leader := part.group.Status().Leader
	switch {
	case leader == 0 || !b.cfg.Peers.Up(leader):
		answered(0)
	case leader == b.self():
		answered(part.group.Status().Commit)
	default:
		r := &cluster.Request{Wait: followWait, Operation: wire.OpNonReplicated, Code: cluster.CodeCommitted, Position: part.created, Group: part.Group}
		b.cfg.Peers.Call(leader, r, func(reply *cluster.Reply, err error) {
			if err != nil || reply.Status != 0 {
				answered(0)
				return
			}
			answered(reply.Commit)
		})
	}
}
