package replica

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/whippetmq/whippet/internal/segment"
)

// Raft's library trusts its peers and its storage: it panics on what cannot be. This file keeps away from it what a peer
// can send and what it would panic on, or misunderstand:
//
//   - types that only this node's own code may step (MsgProp would bypass the Machine; MsgTransferLeader, MsgReadIndex and
//     MsgForgetLeader with a term panic in a follower; a MsgReadIndex without an entry panics in a leader);
//   - term 0, which raft takes for a message of its own, and terms near the end of the range;
//   - appends whose entries are not consecutive, go back in term or cannot be applied;
//   - a commit index behind the end of the log ("tocommit is out of range"), which is the sign of a lost tail;
//   - acknowledgements of entries that this node does not have;
//   - snapshots, which are stepped only when their files are in place.
//
// What still panics breaks an invariant of this replica: Group.guard fences the group.

// maxTerm bounds terms: one step per nanosecond would take a century to get there.
const maxTerm = 1 << 62

// admissible reports whether a message of a peer is one that raft may be given at all. It looks at nothing but the message.
func admissible(m *raftpb.Message) bool {
	term := m.GetTerm()
	if term >= maxTerm || m.GetIndex() >= maxTerm || m.GetCommit() >= maxTerm || m.GetRejectHint() >= maxTerm {
		return false
	}
	switch m.GetType() {
	case raftpb.MsgReadIndex:
		return term == 0 && len(m.Entries) == 1
	case raftpb.MsgReadIndexResp:
		return term != 0 && len(m.Entries) == 1
	case raftpb.MsgAppResp, raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp,
		raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp, raftpb.MsgTimeoutNow:
		return term != 0 && len(m.Entries) == 0 && m.Snapshot == nil
	case raftpb.MsgApp:
		return term != 0 && m.Snapshot == nil && consecutive(m)
	case raftpb.MsgSnap:
		meta := m.GetSnapshot().GetMetadata()
		return term != 0 && len(m.Entries) == 0 && meta.GetIndex() != 0 && meta.GetIndex() < maxTerm &&
			meta.GetTerm() != 0 && meta.GetTerm() <= term && meta.GetConfState() != nil
	}
	return false
}

// consecutive reports whether the entries of an append can follow each other in a log.
func consecutive(m *raftpb.Message) bool {
	index, term := m.GetIndex(), m.GetLogTerm()
	for _, e := range m.Entries {
		index++
		if e.GetIndex() != index || e.GetTerm() < max(term, 1) || e.GetTerm() > m.GetTerm() {
			return false
		}
		term = e.GetTerm()
		switch e.GetType() {
		case raftpb.EntryNormal:
			if _, _, control := segment.ParseControl(e.Data); !control && !segment.IsData(e.Data) {
				return false
			}
		case raftpb.EntryConfChangeV2:
			if proto.Unmarshal(e.GetData(), &raftpb.ConfChangeV2{}) != nil {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// step gives a message of a peer to raft, or to whom else it is for.
func (g *Group) step(m *raftpb.Message) {
	if side, ok := sideOf(m); ok {
		g.stepSide(side, m)
		return
	}
	if g.suspicion != 0 && !g.suspectStep(m) {
		return
	}
	switch m.GetType() {
	case raftpb.MsgVote, raftpb.MsgPreVote:
		if !g.mayVote(m) {
			return
		}
		g.heardCandidate(m)
	case raftpb.MsgTimeoutNow:
		if g.host.leaving.Load() {
			return
		}
	case raftpb.MsgSnap:
		g.snapArrived(m)
		return
	case raftpb.MsgHeartbeat:
		if last := g.raftLast; m.GetCommit() > last && m.GetTerm() >= g.term.Load() {
			// The leader only says so when this replica has acknowledged that far.
			g.doubt(tailLost, "the leader knows of entries that this replica does not have any more")
			m = &raftpb.Message{Type: m.Type, To: m.To, From: m.From, Term: m.Term, Commit: &last, Context: m.Context}
			if !g.suspectStep(m) {
				return
			}
		}
	case raftpb.MsgAppResp:
		if g.state == raft.StateLeader && !m.GetReject() && m.GetTerm() == g.term.Load() && m.GetIndex() > g.lastIndex() {
			return
		}
	}
	// An error means that raft has no use for it (an unknown sender, a dropped proposal).
	_ = g.rn.Step(m)
}

// lastIndex is the end of raft's log, which may be ahead of the file.
func (g *Group) lastIndex() uint64 { return max(g.raftLast, g.log.LastIndex()) }

// outgoing reports whether a message may leave this node.
func (g *Group) outgoing(m *raftpb.Message) bool {
	if m.GetTo() == nobody {
		return false
	}
	if m.GetType() == raftpb.MsgSnap {
		g.snapSent(m.GetTo())
	}
	return g.suspicion == 0 || g.suspectSends(m)
}
