package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/whippetmq/whippet/internal/segment"
)

// Limits of raft's own (engine §5, pitfalls 5 to 7). MaxInflightBytes must not be below MaxSizePerMsg.
const (
	maxSizePerMsg    = 1 << 20
	maxInflightMsgs  = 256
	maxInflightBytes = 64 << 20
	maxApplyBytes    = 4 << 20
)

// closeParallel is how many groups are checkpointed at a time by Close.
const closeParallel = 16

// maxTermsReplayed is how many entries without content may stand behind the checkpoint of an orderly stop.
const maxTermsReplayed = 64

// Host is the replica side of one node.
type Host struct {
	cfg       Config
	identity  Identity
	meta      nodeMeta
	lock      io.Closer
	space     *space
	handles   *segment.Handles
	writeback *segment.Writeback // nil in a manual host
	shards    []*shard           // the first is the metadata's
	votes     *votesWriter
	keeper    *keeper
	peers     *peers
	suspects  *suspects

	identityMu sync.Mutex // guards identity and meta once the shards run

	// Copying, see catchup.go: what runs outside the shards ends with life and is waited for by serving.
	transfers transfers
	copySlots slots // replicas being filled
	bulkSlots slots // questions being answered
	serving   sync.WaitGroup
	life      context.Context //nolint:containedctx // of the host
	die       context.CancelFunc
	manual    *backlog[func()] // instead of goroutines in a manual host

	stop    chan struct{}  // ends writers, votes writer and keeper, after the shards
	workers sync.WaitGroup // of these

	mu     sync.RWMutex
	groups map[GroupID]*Group // nil value: being started
	closed bool

	others
}

// Open locks the directory, records the start in node.meta, reads the votes and starts the shards. A directory of another
// node or cluster is an *IdentityError, one that another process uses is ErrLocked.
func Open(ctx context.Context, cfg Config) (h *Host, err error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h = &Host{cfg: cfg, stop: make(chan struct{}), groups: map[GroupID]*Group{}}
	lock, err := lockDir(&h.cfg)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = lock.Close()
		}
	}()
	h.lock = lock
	if err = roomToStart(&h.cfg); err != nil {
		return nil, err
	}
	if h.meta, h.identity, err = startNodeMeta(&h.cfg); err != nil {
		return nil, err
	}
	votes, err := openVotes(h.cfg.FS, h.cfg.Dir)
	if err != nil {
		return nil, err
	}
	if h.peers, err = openPeers(&h.cfg); err != nil {
		return nil, err
	}
	if h.suspects, err = openSuspects(&h.cfg, h.identity.Unclean, votes.groupsOf()); err != nil {
		return nil, err
	}
	h.transfers = transfers{free: h.cfg.Transfers, offers: map[GroupID]*offer{}}
	h.copySlots, h.bulkSlots = make(slots, h.cfg.Transfers), make(slots, h.cfg.Transfers)
	h.life, h.die = context.WithCancel(context.WithoutCancel(ctx))
	h.manual = newBacklog[func()]()
	h.openOthers()
	h.space = openSpace(&h.cfg)
	h.handles = segment.NewHandles(h.cfg.MaxOpenFiles, h.cfg.IndexBytes)
	h.votes = newVotesWriter(votes, h.space)
	h.keeper = newKeeper(h)
	for i := range h.cfg.Shards + 1 {
		h.shards = append(h.shards, newShard(h, i))
	}
	if !h.cfg.Manual {
		h.writeback = segment.NewWriteback()
		h.start()
	}
	return h, nil
}

// start runs the goroutines. Close ends them.
func (h *Host) start() {
	for _, s := range h.shards {
		go s.loop()
		h.workers.Go(func() { s.writer.jobs.work(h.stop, s.writer.run) })
	}
	h.workers.Go(func() { h.writeback.Run(h.stop) })
	h.workers.Go(func() { h.votes.turns.work(h.stop, h.votes.run) })
	h.workers.Go(func() { h.keeper.tasks.work(h.stop, h.keeper.run) })
	h.workers.Go(func() { h.suspects.notes.work(h.stop, h.suspects.run) })
}

// Identity is what the directory says of itself.
func (h *Host) Identity() Identity {
	h.identityMu.Lock()
	defer h.identityMu.Unlock()
	return h.identity
}

// Group returns a running group, nil when there is none.
func (h *Host) Group(id GroupID) *Group {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.groups[id]
}

// StartGroup recovers the group's log and checkpoint, restores its Machine on the caller's goroutine and lets the group
// join its shard. It does not wait for a leader (see Group.WaitReady). Damage is a *FencedError: the group does not run,
// its files stay as they are.
func (h *Host) StartGroup(ctx context.Context, cfg GroupConfig) (*Group, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil, ErrStopped
	}
	if _, there := h.groups[cfg.ID]; there {
		h.mu.Unlock()
		return nil, fmt.Errorf("%w: %s", ErrGroupExists, cfg.ID)
	}
	h.groups[cfg.ID] = nil
	h.mu.Unlock()

	g, err := h.recover(cfg)

	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil && h.closed {
		_ = g.log.Close()
		err = ErrStopped
	}
	if err != nil {
		delete(h.groups, cfg.ID)
		return nil, err
	}
	h.groups[cfg.ID] = g
	// Under the lock, so that the group is in its shard's inbox before Close is.
	g.shard.inbox.post(item{g: g, ctl: &joinControl{g}})
	return g, nil
}

// recover makes the group from what its directory holds.
func (h *Host) recover(cfg GroupConfig) (g *Group, err error) {
	cfg.Voters = slices.Clone(cfg.Voters)
	g = &Group{host: h, shard: h.shardOf(cfg.ID), cfg: cfg, machine: cfg.Machine}
	g.suspicion = h.suspects.of(cfg.ID)
	if err := g.clearDir(); err != nil {
		return nil, &FencedError{cfg.ID, err}
	}
	l, err := g.load()
	if err != nil {
		if l, err = g.setAside(err); err != nil {
			return nil, &FencedError{cfg.ID, err}
		}
	}
	defer func() {
		if p := recover(); p != nil { // raft, on state that cannot be
			err = &FencedError{cfg.ID, fmt.Errorf("restore: %v", p)}
		}
		if err != nil {
			_ = l.log.Close()
		}
	}()
	if err := g.adopt(l); err != nil {
		return nil, &FencedError{cfg.ID, fmt.Errorf("restore: %w", err)}
	}
	return g, nil
}

// loaded is what the directory of a group holds.
type loaded struct {
	log         *segment.Log
	index, term uint64 // of the checkpoint
	conf        *raftpb.ConfState
	state       []byte // nil = there is no checkpoint
	lastTerm    uint64 // of the last entry
}

// load reads the newest checkpoint and opens the log. It changes nothing in the group, and may run on any goroutine.
func (g *Group) load() (l loaded, err error) {
	h, cfg := g.host, &g.cfg
	l.conf = &raftpb.ConfState{Voters: cfg.Voters}
	index, body, err := segment.LoadCheckpoint(h.cfg.FS, cfg.Dir, uint64(cfg.ID))
	if err != nil && !errors.Is(err, segment.ErrNoCheckpoint) {
		return l, fmt.Errorf("load checkpoint: %w", err)
	}
	if body != nil {
		l.index = index
		if l.term, l.conf, l.state, err = decodeCheckpoint(body); err != nil {
			return l, fmt.Errorf("load checkpoint %s: %w", filepath.Join(cfg.Dir, segment.CheckpointName(index)), err)
		}
	}
	log, found, err := segment.Open(h.cfg.FS, cfg.Dir, segment.Options{
		Group:        uint64(cfg.ID),
		SegmentBytes: cfg.SegmentBytes,
		ControlBytes: cfg.ControlBytes,
		Cache:        g.shard.cache,
		Handles:      h.handles,
		Writeback:    h.writeback,
		SameBoot:     !h.identity.Unclean,
		SyncOnOpen:   cfg.Persisted || cfg.PersistControl,
	}, l.index)
	if err != nil {
		return l, fmt.Errorf("open log: %w", err)
	}
	defer func() {
		if err != nil {
			_ = log.Close()
		}
	}()
	l.log = log
	if found.Torn != "" {
		h.cfg.Logger.Info("cut a torn end off a log", "group", cfg.ID, "file", found.Torn, "bytes", found.TornBytes)
	}
	last := log.LastIndex()
	if l.index > last {
		return l, fmt.Errorf("open log: %w: the log ends at index %d, before its checkpoint at %d", errBadCheckpoint, last, l.index)
	}
	if l.lastTerm, err = log.Term(last); err != nil {
		return l, fmt.Errorf("open log: %w", err)
	}
	return l, nil
}

// adopt lets the group go on from what was loaded: on the caller's goroutine before it joins its shard, later on the
// shard's.
func (g *Group) adopt(l loaded) error {
	if err := g.machine.Restore(l.log, l.state, l.index); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	g.log = l.log
	g.readable.Store(l.log)
	g.conf = l.conf
	g.store = storage{g: g}
	g.confChanged()
	g.vote = g.host.votes.log.get(g.cfg.ID)
	if g.vote.term < max(l.lastTerm, l.term) {
		// A sole voter: nobody else can have voted. Else votes were lost, and this replica must not give any. The term is
		// written with the next vote, at the latest when the replica is not suspect any more.
		if !g.solo.Load() && g.suspicion&votesLost == 0 {
			if err := g.lostVotes(max(l.lastTerm, l.term)); err != nil {
				return err
			}
		}
		g.vote = vote{term: max(l.lastTerm, l.term)}
	}
	commit := max(l.index, l.log.FirstIndex()-1)
	start := g.vote
	if err := g.newRaft(commit); err != nil {
		return err
	}
	g.term.Store(start.term)
	g.commit.Store(commit)
	g.applied.Store(commit)
	g.last.Store(l.log.LastIndex())
	g.checkpoint = l.index
	g.sealed = l.log.LastSealed()
	g.appended, g.flushed = 0, 0
	return nil
}

// newRaft makes the raft node of the group from its log, vote and configuration.
func (g *Group) newRaft(commit uint64) (err error) {
	start := g.vote
	g.store.conf = g.conf
	g.store.start = &raftpb.HardState{Term: &start.term, Vote: &start.vote, Commit: &commit}
	cfg := &g.host.cfg
	g.rn, err = raft.NewRawNode(&raft.Config{
		ID:                        cfg.NodeID,
		ElectionTick:              cfg.ElectionTicks,
		HeartbeatTick:             1,
		Storage:                   &g.store,
		Applied:                   commit,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             maxSizePerMsg,
		MaxCommittedSizePerReady:  maxApplyBytes,
		MaxUncommittedEntriesSize: uint64(cfg.MaxUncommittedBytes),
		MaxInflightMsgs:           maxInflightMsgs,
		MaxInflightBytes:          maxInflightBytes,
		CheckQuorum:               true,
		PreVote:                   true,
		Logger:                    &raftLogger{g.shard.log, g.cfg.ID},
		DisableProposalForwarding: true,
		StepDownOnRemoval:         true,
	})
	g.store.start, g.store.conf = nil, nil
	g.raftLast = g.log.LastIndex()
	return err
}

// shardOf spreads the groups; the metadata has a shard of its own, so that a slow partition never delays a session.
func (h *Host) shardOf(id GroupID) *shard {
	return h.shards[shardIndex(id, h.cfg.Shards)]
}

// shardHash mixes the bits of a group id (the finaliser of splitmix64).
func shardHash(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// StopGroup ends a group: what is submitted fails, what is being written is finished. With deleteFiles its directory and
// its vote are removed, else its state is checkpointed. The group is gone whatever is returned, except when ctx ends
// before it has left its shard.
func (h *Host) StopGroup(ctx context.Context, id GroupID, deleteFiles bool) error {
	h.mu.RLock()
	g := h.groups[id]
	closed := h.closed
	h.mu.RUnlock()
	if closed {
		return ErrStopped
	}
	if g == nil {
		return fmt.Errorf("%w: %s", ErrUnknownGroup, id)
	}
	g.shard.inbox.closeGroup(g)
	c := &stopControl{g: g, done: make(chan struct{})}
	if !g.shard.inbox.post(item{g: g, ctl: c}) {
		return ErrStopped
	}
	if h.cfg.Manual {
		for h.Turn() { //nolint:revive // turns until it is done
		}
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		return fmt.Errorf("replica: stop group %s: %w", id, ctx.Err())
	}
	h.mu.Lock()
	mine := h.groups[id] == g
	if mine {
		h.groups[id] = nil // reserved until its files are closed
	}
	h.mu.Unlock()
	if !mine {
		return fmt.Errorf("%w: %s", ErrUnknownGroup, id) // another caller was first
	}
	defer func() {
		h.mu.Lock()
		delete(h.groups, id)
		h.mu.Unlock()
	}()
	if !deleteFiles {
		return g.end()
	}
	err := g.log.Close()
	if rerr := h.cfg.FS.RemoveAll(g.cfg.Dir); rerr != nil {
		return fmt.Errorf("replica: delete group %s: %w", id, rerr)
	}
	h.Forget(id)
	if err != nil && g.Err() == nil {
		h.cfg.Logger.Warn("closing the log of a deleted group failed", "group", id, "error", err)
	}
	return nil
}

// Forget drops what the node keeps of a group that was deleted while it did not run here: its vote and its suspicion. The
// group must not run, and its files must be gone. Any goroutine.
func (h *Host) Forget(id GroupID) {
	h.votes.log.forget(id)
	if h.suspects.forget(id) {
		h.suspects.notes.put(suspectNote{})
	}
}

// Remembered lists the groups of which the node keeps a vote or a suspicion, whether they run or not. Any goroutine.
func (h *Host) Remembered() []GroupID {
	ids := append(h.votes.log.groupsOf(), h.suspects.groupsOf()...)
	slices.Sort(ids)
	return slices.Compact(ids)
}

// end checkpoints and closes a group that has left its shard.
func (g *Group) end() (err error) {
	defer func() {
		if cerr := g.log.Close(); err == nil && g.fenced.Load() == nil {
			err = cerr
		}
		if err != nil {
			err = fmt.Errorf("replica: stop group %s: %w", g.cfg.ID, err)
		}
	}()
	if g.fenced.Load() != nil {
		return nil
	}
	if g.log.Appended() != g.flushed {
		if err := g.log.Sync(); err != nil {
			return err
		}
	}
	// A few entries that only began a term are replayed faster than a checkpoint is written.
	if index := g.applied.Load(); index != g.checkpoint && (g.news || index-g.checkpoint > maxTermsReplayed) {
		state, err := g.checkpointState()
		if err != nil {
			return err
		}
		if err := segment.WriteCheckpoint(g.host.cfg.FS, g.cfg.Dir, uint64(g.cfg.ID), index, state); err != nil {
			return err
		}
	}
	return nil
}

// Step takes messages that a peer sent. Those of unknown groups, and those above the inbox's bound, are dropped.
func (h *Host) Step(from uint64, messages []Message) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, m := range messages {
		g := h.groups[m.Group]
		if g == nil || m.Raft.GetFrom() != from || m.Raft.GetTo() != h.cfg.NodeID || !admissible(m.Raft) {
			continue
		}
		size := int64(64)
		for _, e := range m.Raft.Entries {
			size += int64(len(e.Data)) + 32
		}
		if m.Raft.Snapshot != nil {
			size += int64(len(m.Raft.Snapshot.Data))
		}
		g.shard.inbox.step(g, m.Raft, size)
	}
}

// Turn does what there is to do in a manual host, on the caller's goroutine; it reports whether that was anything.
func (h *Host) Turn() bool {
	did := false
	for _, s := range h.shards {
		did = s.turn() || did
		did = drain(s.writer.jobs, s.writer.run) || did
	}
	did = drain(h.votes.turns, h.votes.run) || did
	did = drain(h.suspects.notes, h.suspects.run) || did
	did = drain(h.manual, func(fs []func()) {
		for _, f := range fs {
			f()
		}
	}) || did
	return drain(h.keeper.tasks, h.keeper.run) || did
}

func drain[T any](b *backlog[T], round func([]T)) bool {
	items := b.take(nil)
	if len(items) > 0 {
		round(items)
	}
	return len(items) > 0
}

// Close stops all groups, checkpoints them and leaves the mark of an orderly stop. When ctx ends it gives up what is
// still being written and returns the context's error; the mark is left out then, and the next start recovers.
func (h *Host) Close(ctx context.Context) error {
	h.leave(ctx)
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return ErrStopped
	}
	h.closed = true
	h.mu.Unlock()
	h.die()

	var errs []error
	force := make(chan struct{})
	for _, s := range h.shards {
		s.inbox.stop()
		s.inbox.post(item{ctl: &closeControl{force}})
	}
	if h.cfg.Manual {
		h.closeManual()
	} else {
		forced := false
		for _, s := range h.shards {
			select {
			case <-s.done:
			case <-ctx.Done():
				if !forced {
					forced = true
					close(force)
					errs = append(errs, ctx.Err())
				}
				<-s.done
			}
		}
	}
	h.serving.Wait()
	close(h.stop)
	h.workers.Wait()
	errs = append(errs, h.endGroups()...)
	if err := h.handles.Close(); err != nil {
		errs = append(errs, err)
	}
	if err := h.votes.log.close(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		h.identityMu.Lock()
		h.meta.clean = true
		h.identityMu.Unlock()
		if err := h.meta.save(&h.cfg); err != nil {
			errs = append(errs, err)
		}
	}
	if err := h.lock.Close(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (h *Host) closeManual() {
	left := slices.Clone(h.shards)
	for len(left) > 0 {
		did := h.Turn()
		left = slices.DeleteFunc(left, (*shard).ended)
		if !did && len(left) > 0 {
			// Nothing moves any more: what is left waits for something that a turn cannot give.
			for _, s := range left {
				for _, g := range s.groups {
					g.guard((*Group).leave)
				}
				s.inbox.end()
			}
			return
		}
	}
}

// endGroups checkpoints and closes what is left, several at a time.
func (h *Host) endGroups() []error {
	h.mu.Lock()
	groups := make([]*Group, 0, len(h.groups))
	for _, g := range h.groups {
		if g != nil {
			groups = append(groups, g)
		}
	}
	h.mu.Unlock()
	slices.SortFunc(groups, func(a, b *Group) int { return compareGroup(a, b.cfg.ID) })
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
		next int
	)
	for range min(closeParallel, len(groups)) {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= len(groups) {
					return
				}
				if err := groups[i].end(); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return errs
}
