package replica

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// ChangeKind is what a Change does.
type ChangeKind uint8

// The changes of a group's members.
const (
	AddVoter   ChangeKind = iota + 1 // also promotes a learner
	AddLearner                       // gets the log, has no vote; also demotes a voter
	Remove
)

// Change is one change of a group's members. Only one at a time may be under way.
type Change struct {
	Kind ChangeKind
	Node uint64
}

// Change proposes a change of the members and waits until it is applied here. ErrNotLeader when this node does not lead,
// ErrBusy when another change is under way, ErrOutcomeUnknown when the leadership was lost meanwhile. The group must have
// been started on a node that is added, with the same initial voters, before it gets a vote.
func (g *Group) Change(ctx context.Context, c Change) error {
	var kind raftpb.ConfChangeType
	switch c.Kind {
	case AddVoter:
		kind = raftpb.ConfChangeAddNode
	case AddLearner:
		kind = raftpb.ConfChangeAddLearnerNode
	case Remove:
		kind = raftpb.ConfChangeRemoveNode
	default:
		return fmt.Errorf("replica: group %s: unknown change of members %d", g.cfg.ID, c.Kind)
	}
	if c.Node == 0 {
		return fmt.Errorf("replica: group %s: change of node 0", g.cfg.ID)
	}
	data, err := proto.Marshal(&raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{{Type: kind.Enum(), NodeId: &c.Node}}})
	if err != nil {
		return fmt.Errorf("replica: group %s: %w", g.cfg.ID, err)
	}
	w := &changeWait{g: g, data: data, done: make(chan error, 1)}
	if !g.shard.inbox.post(item{g: g, ctl: w}) {
		return ErrStopped
	}
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("replica: group %s: change members: %w", g.cfg.ID, ctx.Err())
	}
}

// changeWait is a caller of Change.
type changeWait struct {
	g       *Group
	data    []byte
	done    chan error // capacity 1
	stepped bool
	index   uint64 // of its entry, 0 = not known
}

func (w *changeWait) run(s *shard) {
	g := w.g
	switch {
	case g.gone() || !g.admits || g.stopping != nil || s.closing != nil:
		w.done <- ErrNotLeader
	case g.change != nil || g.transfer.done != nil:
		w.done <- ErrBusy
	case g.stalled:
		w.done <- ErrDiskFull
	default:
		g.wake()
		g.change = w
		s.touch(g)
	}
}

// proposeChange gives the change to raft, as soon as this node leads with a raft node.
func (g *Group) proposeChange() {
	w := g.change
	if w == nil || w.stepped {
		return
	}
	if g.rn == nil {
		if g.jobs.len() > 0 || g.waiters.len() > 0 {
			return // tried again when they are done
		}
		if err := g.leaveSolo(); err != nil {
			g.fence(err)
			return
		}
	}
	if !g.admits {
		return
	}
	w.stepped = true
	err := g.rn.Step(&raftpb.Message{
		Type: raftpb.MsgProp.Enum(), From: &g.host.cfg.NodeID,
		Entries: []*raftpb.Entry{{Type: raftpb.EntryConfChangeV2.Enum(), Data: w.data}},
	})
	if err != nil {
		g.changeEnded(errors.Join(ErrNotAdmitted, err))
	}
}

// bindChange finds the entry of the change that was just stepped. Raft puts an empty one in its place when it cannot be
// done now.
func (g *Group) bindChange(es []*raftpb.Entry) {
	w := g.change
	if w == nil || !w.stepped || w.index != 0 {
		return
	}
	for _, e := range es {
		if e.GetTerm() != g.leadTerm {
			continue
		}
		if e.GetType() == raftpb.EntryConfChangeV2 {
			w.index = e.GetIndex()
			return
		}
		if len(e.Data) == 0 {
			g.changeEnded(ErrBusy)
			return
		}
	}
}

func (g *Group) changeEnded(err error) {
	if g.change == nil {
		return
	}
	g.change.done <- err
	g.change = nil
}
