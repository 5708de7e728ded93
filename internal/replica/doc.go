// Package replica runs replicated groups: every partition and the metadata are one group each. A group is a raft group on
// go.etcd.io/raft/v3 whose log is the partition's own segment log; this package knows nothing of what an entry means, the
// group's Machine does. Raft's words stay inside this package.
//
// # Threads
//
// A Host is the replica side of one node. It has a shard of its own for the metadata group and Config.Shards shards for
// the partitions. One goroutine at a time runs all groups of the shard: it takes the whole inbox, steps messages and
// proposals of the groups that have any, handles what raft wants done, writes, applies, and gives the shard up. It is the
// shard's loop, or a submitter that found the shard idle (Group.SubmitHere). Everything a group owns (its raft node, its
// waiters, its Machine's admission state) belongs to whoever runs the shard; other goroutines post to the inbox or read
// the atomics behind Group.Status. Besides the shards there are a log writer per shard (for groups that
// flush before they acknowledge), one writer of terms and votes, and one keeper (checkpoints, background flushes). All of
// them are started by Open and have ended when Close returns.
//
// # A turn
//
// A turn takes the inbox, and then alternates between two halves until nothing is left: every group that has work steps
// its messages, admits its requests, makes one proposal of them and collects what raft wants done; then the messages to
// other nodes leave, and the writes are done, while the followers do theirs. The end of a write is stepped into raft and
// makes the next round. Votes of all groups of a turn go to the votes writer together.
//
// A group whose only voter is this node uses raft to become leader and for nothing else, see solo.go.
//
// Turns read no clock but Config.Clock, write only through Config.FS and send only through Config.Transport, and with
// Config.Manual there is no goroutine: a simulation calls Host.Turn.
//
// # Other nodes
//
// Messages of groups go through Config.Transport, and what arrives is given to Host.Step. A Transport that is also a
// Controls carries frames between shards: all heartbeats of a tick in one, which is a ping too (beats.go). Their answers
// are promises of which leases are made, so that a read at the leader costs nothing (lease.go). Groups without work sleep,
// and live on the pings of their nodes (sleep.go). What happens when a node is silent, comes back or says goodbye is in
// links.go, who becomes leader then in failover.go, and how leadership is handed on in handover.go.
//
// A replica that needs more of the log than is kept is filled by copying a checkpoint and segments (catchup.go: the offer,
// catchup_copy.go: the copy, catchup_install.go: how it takes the place of the files). One that may have lost what it
// acknowledged is suspect and has no vote until it has everything again (suspect.go); nodes remember each other's directories
// for that (suspect_peers.go). What raft's library must not be given by a peer is kept away from it in guard.go.
//
// # Invariants
//
//   - A request's outcome is told exactly once: by the Machine (Admit that answers, Apply) or by Request.Fail.
//   - ErrNotAdmitted and ErrDiskFull mean that the request never entered the log. ErrOutcomeUnknown means that it may
//     have been.
//   - A waiter is bound to (index, term) of the entry that carries its request. An entry of another term at that index
//     never completes it.
//   - Nothing is acknowledged before the write (and for persisted groups the flush) that raft waits for is done; a write
//     that failed for want of space is repeated, never skipped, so the log on disk is always a prefix of raft's.
//   - After a failed flush nothing is known of the file: the group is fenced, other groups go on.
//   - Terms and votes are flushed before anything that depends on them leaves the node.
//   - While a replica is bound by a promise to its leader it grants no vote to anybody else, and asks for none, unless the
//     leader tells it to. A leader that may have told it to has no lease.
//   - A leader sleeps only when every replica sleeps or says otherwise in its next answer.
//   - A group without work is touched by nobody: no tick, no timer, no goroutine of its own.
//   - A suspect replica gives no vote, except that all voters were asked and the longest log is chosen; suspicion ends only
//     durably. Files are replaced by a copy only as a whole, and raft hears of a snapshot only when its files are in place.
package replica
