package replica

import (
	"context"

	"github.com/whippetmq/whippet/internal/segment"
)

// Group is one group on this node. Its methods may be called from any goroutine.
type Group struct{}

// ID is the group's id.
func (g *Group) ID() GroupID { return 0 }

// Submit hands a request over; it waits for room in the inbox, as long as ctx allows. An error means that the request was
// not taken and will get no outcome: ErrStopped, ErrTooLarge, *FencedError, or the context's.
func (g *Group) Submit(ctx context.Context, r Request) error { return ErrStopped }

// Status is a snapshot of the group's state.
func (g *Group) Status() Status { return Status{} }

// Err is why the group is fenced, a *FencedError, else nil.
func (g *Group) Err() error { return nil }

// WaitApplied waits until the entry at index is applied here.
func (g *Group) WaitApplied(ctx context.Context, index uint64) error { return ErrStopped }

// WaitReady waits until there is a leader and, when it is this node, it admits requests.
func (g *Group) WaitReady(ctx context.Context) error { return ErrStopped }

// ReadBarrier returns nil when this node leads the group, has proof of it from the time of the call or later, and has
// applied what was committed then. Otherwise ErrNotLeader.
func (g *Group) ReadBarrier(ctx context.Context) error { return ErrStopped }

// TransferLeader hands leadership to another voter and waits until it has it or the attempt failed. Requests that arrive
// meanwhile are held; when this node does not lead any more they fail with ErrNotAdmitted.
func (g *Group) TransferLeader(ctx context.Context, to uint64) error { return ErrStopped }

// Progress is what this node, as the leader, knows of the replicas; nil when it does not lead.
func (g *Group) Progress(ctx context.Context) ([]Progress, error) { return nil, ErrStopped }

// Log is the group's log, for reading.
func (g *Group) Log() *segment.Log { return nil }
