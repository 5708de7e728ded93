// Package transport is the peer link: it carries raft messages, control frames and forwarded requests between the nodes of
// a cluster, over TCP.
//
// Each node dials each of its peers; what a node has to say to a peer leaves on the link that it dialled, so that order holds
// and a lost link is known to the side that lost something by it. Only answers to calls come back on the same link.
//
// # Hello
//
// A link starts with a hello in both directions (fixed size, bounded in time). It names the cluster, the node, its
// directory, how often it was started, and the version of the link's format, and it carries a nonce. Then each side proves
// with HMAC-SHA-256 over both hellos that it knows the cluster's secret. Whoever fails is refused with a reason and logged;
// nothing that a stranger sends is looked at before.
//
// # Frames
//
//	[len u32][kind u8][flags u8][shard u16][group u64] body of len bytes, little-endian
//
// A raft message has a fixed layout (codec.go); data of entries travels from raft's own memory without a copy, and arrives
// in one allocation per frame, of which the entries are parts.
//
// # Bounds
//
// At most Config.QueueBytes wait for a peer. Above it, append messages are dropped and the host is told (raft sends them
// again); control frames are never dropped; calls are refused as not sent.
package transport
