package replica

import "context"

// Host is the replica side of one node.
type Host struct{}

// Open locks the directory, records the start in node.meta, reads the votes and starts the shards.
func Open(ctx context.Context, cfg Config) (*Host, error) { return nil, ErrStopped }

// Identity is what the directory says of itself.
func (h *Host) Identity() Identity { return Identity{} }

// StartGroup recovers the group's log and checkpoint, restores its Machine on the caller's goroutine and lets the group
// join its shard. It does not wait for a leader (see Group.WaitReady). Damage is a *FencedError.
func (h *Host) StartGroup(ctx context.Context, cfg GroupConfig) (*Group, error) { return nil, ErrStopped }

// StopGroup ends a group: what is submitted fails, what is being written is finished. With deleteFiles its directory and
// its vote are removed, else its state is checkpointed.
func (h *Host) StopGroup(ctx context.Context, id GroupID, deleteFiles bool) error { return ErrStopped }

// Group returns a running group, nil when there is none.
func (h *Host) Group(id GroupID) *Group { return nil }

// Step takes messages that a peer sent. Those of unknown groups, and those above the inbox's bound, are dropped.
func (h *Host) Step(from uint64, messages []Message) {}

// Unreachable says that messages to a node were dropped, for all groups.
func (h *Host) Unreachable(node uint64) {}

// Close stops all groups, checkpoints them and leaves the mark of an orderly stop.
func (h *Host) Close(ctx context.Context) error { return nil }
