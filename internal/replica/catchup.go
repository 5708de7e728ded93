package replica

import (
	"fmt"
	"sync"
	"time"

	"github.com/zeebo/xxh3"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/whippetmq/whippet/internal/segment"
)

// A replica that needs more of the log than is kept is filled by copying files (engine §6). This file is the leader's
// part: it offers a checkpoint and the log up to it. The offer is raft's snapshot; it holds no data, only a manifest. As
// long as it stands the segments are pinned, and the checkpoint is in memory for those who copy.

// offer is what a leader offers to be copied.
type offer struct {
	man        *manifest
	snap       *raftpb.Snapshot
	body       []byte // of the checkpoint
	unpin      func()
	made, used time.Duration // Clock.Mono
}

// transfers bounds and publishes the offers of a node.
type transfers struct {
	mu     sync.Mutex
	free   int
	offers map[GroupID]*offer // what ServeBulk may hand out
}

func (t *transfers) acquire() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free <= 0 {
		return false
	}
	t.free--
	return true
}

func (t *transfers) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
}

func (t *transfers) publish(id GroupID, o *offer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o == nil {
		delete(t.offers, id)
	} else {
		t.offers[id] = o
	}
}

// checkpoint is the body of the checkpoint that a group offers, nil when it does not offer that one.
func (t *transfers) checkpoint(id GroupID, index uint64) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.offers[id]; o != nil && o.man.index == index {
		return o.body
	}
	return nil
}

// snapshot is raft's Storage.Snapshot.
func (g *Group) snapshot() (*raftpb.Snapshot, error) {
	if o := g.offer; o != nil {
		if o.man.index+1 >= g.log.FirstIndex() {
			return o.snap, nil
		}
		g.withdraw()
	}
	g.prepare()
	return nil, raft.ErrSnapshotTemporarilyUnavailable
}

// prepare has an offer made, on another goroutine. Raft asks again with every heartbeat.
func (g *Group) prepare() {
	if g.offering || g.keeping || g.stopping != nil || g.shard.closing != nil {
		return
	}
	// What has been applied since the checkpoint is sent as entries afterwards: little enough, or a new one is made.
	if g.checkpoint == 0 || g.log.Appended()-g.appended >= uint64(g.host.cfg.CheckpointBytes) {
		if g.keep(true); g.keeping {
			return
		}
	}
	if g.checkpoint == 0 || !g.host.transfers.acquire() {
		return
	}
	g.offering = true
	g.toKeeper(keeperTask{g: g, offer: &offer{unpin: g.log.Pin()}})
}

// read loads the newest checkpoint. It runs on the keeper, which also writes them.
func (o *offer) read(g *Group) error {
	index, body, err := segment.LoadCheckpoint(g.host.cfg.FS, g.cfg.Dir, uint64(g.cfg.ID))
	if err != nil {
		return fmt.Errorf("read the checkpoint to be copied: %w", err)
	}
	o.body = body
	o.man = &manifest{group: g.cfg.ID, index: index, body: int64(len(body)), sum: xxh3.Hash(body)}
	return nil
}

// offered takes the offer back on the shard.
func (g *Group) offered(o *offer, err error) {
	g.offering = false
	if err == nil && (g.gone() || g.state != raft.StateLeader) {
		err = ErrNotLeader
	}
	if err == nil {
		err = g.finishOffer(o)
	}
	if err != nil {
		o.unpin()
		g.host.transfers.release()
		g.shard.log.Warn("a replica cannot be offered for copying", "group", g.cfg.ID, "error", err)
		return
	}
	o.made = g.host.cfg.Clock.Mono()
	o.used = o.made
	g.offer = o
	g.host.transfers.publish(g.cfg.ID, o)
}

// finishOffer fills in what only the shard may read.
func (g *Group) finishOffer(o *offer) error {
	term, conf, _, err := decodeCheckpoint(o.body)
	if err != nil {
		return err
	}
	o.man.term = term
	if o.man.pieces, err = g.log.Pieces(o.man.index); err != nil {
		return err
	}
	o.snap = &raftpb.Snapshot{
		Data:     o.man.encode(),
		Metadata: &raftpb.SnapshotMetadata{Index: &o.man.index, Term: &term, ConfState: conf},
	}
	return nil
}

// snapSent notes who was sent an offer.
func (g *Group) snapSent(to uint64) {
	if g.filling == nil {
		g.filling = map[uint64]time.Duration{}
	}
	g.filling[to] = g.host.cfg.Clock.Mono()
}

// copyNews is what a replica says of its copy.
func (g *Group) copyNews(from uint64, s side) {
	if _, there := g.filling[from]; !there {
		return
	}
	if s.kind == sideCopying {
		g.filling[from] = g.host.cfg.Clock.Mono()
	} else {
		g.copyFailed(from)
	}
}

// copyFailed lets raft ask the replica again for what it has, and send a snapshot again when that is needed.
func (g *Group) copyFailed(node uint64) {
	delete(g.filling, node)
	if g.rn != nil && g.state == raft.StateLeader {
		g.rn.ReportSnapshot(node, raft.SnapshotFailure)
		g.shard.touch(g)
	}
}

// copySilence is how long a leader waits for a word of a replica that copies.
func (g *Group) copySilence() time.Duration {
	return 5 * time.Duration(g.host.cfg.ElectionTicks) * g.host.cfg.Tick
}

// tickFilling looks after the replicas that copy, and withdraws the offer when nobody needs it any more or at its deadline.
// A copy that is not done then goes on with the next offer: what it has stays good.
func (g *Group) tickFilling() {
	if g.offer == nil && len(g.filling) == 0 {
		return
	}
	if g.state != raft.StateLeader || g.rn == nil {
		g.withdraw()
		g.filling = nil
		return
	}
	now := g.host.cfg.Clock.Mono()
	expired := g.offer != nil && now-g.offer.made >= g.host.cfg.TransferDeadline
	if len(g.filling) > 0 {
		needs := map[uint64]bool{}
		g.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
			needs[id] = pr.State == tracker.StateSnapshot
		})
		for node, heard := range g.filling {
			if !needs[node] {
				delete(g.filling, node)
			} else if expired || now-heard >= g.copySilence() {
				g.copyFailed(node)
			}
		}
	}
	// A moment longer than it is needed: who failed asks again at once.
	linger := time.Duration(g.host.cfg.ElectionTicks) * g.host.cfg.Tick
	if g.offer != nil && (expired || len(g.filling) == 0 && now-g.offer.used >= linger) {
		g.withdraw()
	} else if len(g.filling) > 0 && g.offer != nil {
		g.offer.used = now
	}
}

// withdraw ends the offer.
func (g *Group) withdraw() {
	if o := g.offer; o != nil {
		g.offer = nil
		g.host.transfers.publish(g.cfg.ID, nil)
		o.unpin()
		g.host.transfers.release()
	}
}
