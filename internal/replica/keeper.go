package replica

import (
	"errors"
	"time"

	"github.com/whippetmq/whippet/internal/segment"
)

// flushEvery is the longest time that what a group wrote without a flush stays unflushed while the group is active; when
// it becomes idle it is flushed at once.
const flushEvery = 30 * time.Second

// keeper does for all groups what takes long and can wait: checkpoints, background flushes, deletion of segments. A group
// has at most one task there.
type keeper struct {
	host  *Host
	tasks *backlog[keeperTask]
}

// keeperTask is, in this order: a flush, a checkpoint when state is not nil, a deletion when removal is not nil, the
// reading of a checkpoint to be copied when offer is not nil.
type keeperTask struct {
	g        *Group
	index    uint64
	state    []byte
	flush    bool
	appended uint64
	removal  *segment.Removal
	offer    *offer
}

func newKeeper(h *Host) *keeper { return &keeper{host: h, tasks: newBacklog[keeperTask]()} }

func (k *keeper) run(tasks []keeperTask) {
	for _, t := range tasks {
		err := t.do()
		t.g.shard.inbox.post(item{g: t.g, ctl: &keeperDone{t, err}})
	}
}

func (t *keeperTask) do() error {
	if t.flush {
		if err := t.g.log.Sync(); err != nil {
			return err
		}
	}
	if t.state != nil {
		h := t.g.host
		if err := segment.WriteCheckpoint(h.cfg.FS, t.g.cfg.Dir, uint64(t.g.cfg.ID), t.index, t.state); err != nil {
			return err
		}
	}
	if t.removal != nil {
		return t.removal.Do()
	}
	if t.offer != nil {
		return t.offer.read(t.g)
	}
	return nil
}

// keeperDone brings the outcome of a task back.
type keeperDone struct {
	task keeperTask
	err  error
}

func (c *keeperDone) run(s *shard) {
	g, t := c.task.g, &c.task
	g.keeping = false
	s.touch(g)
	switch {
	case t.offer != nil:
		err := c.err
		g.guard(func(g *Group) { g.offered(t.offer, err) })
	case g.gone():
	case errors.Is(c.err, segment.ErrSyncFailed):
		g.fence(c.err)
	case c.err != nil:
		// Nothing is lost: the log is longer than it could be, and it is tried again with the next occasion.
		s.log.Warn("housekeeping of a group failed", "group", g.cfg.ID, "error", c.err)
		g.confDirty = g.confDirty || t.state != nil
		g.news, g.unflushed = true, true
	default:
		if t.flush {
			g.flushed = t.appended
		}
		if t.state != nil {
			g.checkpoint = t.index
			g.log.Checkpointed(t.index)
			g.reap()
		}
	}
}

// keep writes a checkpoint when one is due: a segment was sealed, enough was written, or the configuration changed.
func (g *Group) keep(force bool) {
	applied := g.applied.Load()
	if g.keeping || applied == g.checkpoint {
		return
	}
	appended, sealed := g.log.Appended(), g.log.LastSealed()
	if !force && !g.confDirty && appended-g.appended < uint64(g.host.cfg.CheckpointBytes) && (sealed == g.sealed || sealed > applied) {
		return
	}
	state, err := g.checkpointState()
	if err != nil {
		g.fence(err)
		return
	}
	g.confDirty, g.news, g.unflushed = false, false, false
	g.appended, g.sealed = appended, sealed
	g.toKeeper(keeperTask{g: g, index: applied, state: state, flush: true, appended: appended})
}

// checkpointState is the body of a checkpoint of the applied state.
func (g *Group) checkpointState() ([]byte, error) {
	term, err := g.store.Term(g.applied.Load())
	if err != nil {
		return nil, err
	}
	state, err := appendCheckpoint(nil, term, g.conf)
	if err != nil {
		return nil, err
	}
	return g.machine.Checkpoint(state), nil
}

// reap deletes the segments that nobody needs any more.
func (g *Group) reap() {
	if g.keeping {
		return
	}
	if r := g.log.Reap(); r != nil {
		g.toKeeper(keeperTask{g: g, removal: r})
	}
}

// housekeep is the part of the machine tick that every active group has, and every group once when it becomes idle.
func (g *Group) housekeep(idle bool) {
	if g.gone() || g.stopping != nil || g.shard.closing != nil {
		return
	}
	g.reap()
	if g.cfg.Persisted || g.keeping {
		return
	}
	now := g.shard.lastTick
	if appended := g.log.Appended(); g.unflushed && appended != g.flushed && (idle || now-g.flushedAt >= flushEvery) {
		g.flushedAt, g.unflushed = now, false
		g.toKeeper(keeperTask{g: g, flush: true, appended: appended})
	}
}

func (g *Group) toKeeper(t keeperTask) {
	g.keeping = true
	g.host.keeper.tasks.put(t)
}
