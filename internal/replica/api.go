package replica

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/whippetmq/whippet/internal/segment"
)

// GroupID names a group on links and on disk. It is never used again: a partition's is the metadata index of the entry
// that created it << 20 | partition.
type GroupID uint64

// MetadataGroup is the group that all nodes are members of.
const MetadataGroup GroupID = 1 << 63

// PartitionGroup is the id of a partition's group.
func PartitionGroup(createdIndex uint64, partition uint32) GroupID {
	return GroupID(createdIndex<<20 | uint64(partition)&(1<<20-1))
}

// Created is the metadata index of the entry that made the partition of the group.
func (id GroupID) Created() uint64 { return uint64(id) >> 20 }

func (id GroupID) String() string {
	if id == MetadataGroup {
		return "metadata"
	}
	return fmt.Sprintf("%d/%d", id.Created(), uint64(id)&(1<<20-1))
}

// Request is one thing to be proposed. Its outcome is told once: by the Machine, or by Fail.
type Request interface {
	// Size is the number of bytes the request holds while it waits, for the bounds of the inbox. It must not change.
	Size() int
	// Proposed says that the request's bytes were copied into the log's memory: buffers it borrowed may be reused. Called
	// on the shard goroutine, before the outcome; not called for a request that raft refused or the Machine answered in
	// Admit.
	Proposed()
	// Fail is the outcome without apply: ErrNotAdmitted, ErrOutcomeUnknown, ErrDiskFull, or an error that wraps one of
	// them. Called on the shard goroutine, must not block.
	Fail(err error)
}

// Giver is a Request that can give its memory away. A group that would have to copy the data of the request's entry asks
// it first, before Proposed.
type Giver interface {
	// Give returns what the data that Admit returned for the request is in, with one use of it, which is the log's from now
	// on; nil when it cannot be given. Nobody may change the data any more.
	Give() segment.Memory
}

// Vital is a Request that may be needed most when the disk is full, such as one that makes room: it is admitted when
// others are refused with ErrDiskFull, with the room of the reserve and of the ballast.
type Vital interface {
	// Vital reports whether the request is of that kind. It must be small, and must not change.
	Vital() bool
}

// Machine is a deterministic state machine. All methods are called on the group's shard goroutine, never concurrently,
// except that Restore is called by StartGroup before the group joins its shard.
type Machine interface {
	// Restore sets the state to the given checkpoint (nil = empty), which holds everything up to index. The log is open
	// for reading. Later entries follow through Apply.
	Restore(log *segment.Log, checkpoint []byte, index uint64) error

	// Checkpoint appends the applied state to dst.
	Checkpoint(dst []byte) []byte

	// Admit decides on the leader, in the order of submission: it returns the data of the entry to propose (the request's
	// own buffer stamped in place, or bytes built for it), which stay unchanged until Proposed or Rejected. nil = the
	// Machine answered the request itself (duplicate, refusal) or keeps it for Fold.
	Admit(r Request) (data []byte)

	// Fold is called after the last Admit of a turn of the loop: what was kept, as one entry, with its requests in the
	// order of admission. Both slices stay unchanged until the next call of Fold.
	Fold() (data []byte, rs []Request)

	// Rejected undoes Admit of rs (newest first): raft took none of them. The host then calls Fail(ErrNotAdmitted) for
	// each of them.
	Rejected(rs []Request)

	// Apply applies a committed entry: data entries and control entries of the Machine. rs are the local requests that
	// proposed it (one for an admitted entry, several for a folded one, nil otherwise), which the Machine completes; the
	// slice is valid during the call, e.Data as long as it is referenced. An error means a broken invariant: the group is
	// fenced and the host completes rs with ErrOutcomeUnknown.
	Apply(e segment.Entry, rs []Request) error

	// Lead tells that this node leads the group and that everything older is applied (admission starts here), or that it
	// does not lead any more. Calls alternate, beginning with true.
	Lead(term uint64, leading bool)

	// Tick is for housekeeping: about every 100 ms while the group is active, every few seconds while it is idle; only
	// while leading. now is the node time in µs. What it returns is proposed, one entry each; the slices stay unchanged
	// until the next call of Tick.
	Tick(now uint64) (data [][]byte)
}

// Role is what a group's replica on this node is at the moment.
type Role uint8

// Roles of a replica.
const (
	Follower Role = iota
	Candidate
	Leader
	Fenced  // stopped itself, see Group.Err
	Stopped // StopGroup or Close
)

func (r Role) String() string {
	switch r {
	case Follower:
		return "follower"
	case Candidate:
		return "candidate"
	case Leader:
		return "leader"
	case Fenced:
		return "fenced"
	case Stopped:
		return "stopped"
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}

// Status is a snapshot of a group's state. The fields are read one after the other, without a lock.
type Status struct {
	Role      Role
	Term      uint64
	Leader    uint64 // node id, 0 = unknown
	Commit    uint64
	Applied   uint64
	LastIndex uint64 // newest index in the log of this node, written or being written
	Ready     bool   // leads, and its own term's first entry is applied: requests are admitted
	DiskFull  bool   // a write waits for space
}

// Progress is what a leader knows of one replica of its group.
type Progress struct {
	Node    uint64
	Match   uint64 // newest index known to be in that replica's log
	Next    uint64 // next index to send
	Active  bool   // heard of within the last election timeout
	Learner bool
	Suspect bool   // it has no vote, so it cannot lead
	State   string // probe, replicate, snapshot
}

// Message is one raft message of a group between two nodes. It is shared with raft's own memory: nobody may change it.
type Message struct {
	Group GroupID
	Raft  *raftpb.Message
}

// Transport carries messages to the other nodes.
type Transport interface {
	// Send queues the messages of one turn for a node. It must not block; it may drop messages, and tells the host of it
	// by Host.Unreachable. It keeps no reference to the slice, only to the messages in it. Called on shard goroutines,
	// concurrently for different shards.
	Send(to uint64, messages []Message)
}
