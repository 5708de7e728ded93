package replica

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/internal/vfs"
)

// job is one MsgStorageAppend that could not be done at once. A group's jobs are done in order: the vote first (votes
// writer), then the entries (written here, or written and flushed by the log writer), then the responses are delivered.
type job struct {
	g        *Group
	m        *raftpb.Message
	solo     []segment.Entry // instead of m, see solo.go
	vote     vote
	needVote bool
	voting   bool // with the votes writer
	flush    bool // to be flushed before it counts
	write    *segment.Write
	err      error // outcome of the step on another goroutine
}

// storeNext does the storage work that raft asked for in this turn, as far as it can be done on this goroutine.
func (g *Group) storeNext() {
	m, solo := g.storing.m, g.storing.solo
	g.storing = storageWork{}
	if g.gone() {
		return
	}
	if solo != nil {
		g.storeSolo(solo)
		return
	}
	v := vote{m.GetTerm(), m.GetVote()}
	needVote := m.Term != nil && v != g.vote
	if needVote {
		g.vote = v
	}
	if len(m.Entries) == 0 && !needVote && (g.jobs.len() == 0 || len(m.Responses) == 0) {
		// Only the commit index moved, which is not stored: it is found again.
		g.deliver(m)
		return
	}
	flush := g.cfg.Persisted && len(m.Entries) > 0 || g.cfg.PersistControl && slices.ContainsFunc(m.Entries, func(e *raftpb.Entry) bool {
		return e.GetType() == raftpb.EntryNormal && isControl(e.Data)
	})
	var w *segment.Write
	if g.jobs.len() == 0 && !needVote && !flush {
		var err error
		if w, err = g.place(m); err != nil {
			g.fence(err)
			return
		}
		if err = g.do(w); err == nil {
			w.Release()
			g.deliver(m)
			return
		}
		if !isDiskFull(err) {
			g.fence(err)
			return
		}
		g.stall()
	}
	g.jobs.push(g.shard.newJob(job{g: g, m: m, vote: v, needVote: needVote, flush: flush, write: w}))
	g.pump()
}

// pump starts the jobs whose turn it is.
func (g *Group) pump() {
	s := g.shard
	for g.started < g.jobs.len() && !g.stalled && !g.gone() {
		j := *g.jobs.at(g.started)
		if j.voting {
			return
		}
		if j.needVote {
			j.voting = true
			s.votes = append(s.votes, j)
			return
		}
		if j.write == nil && (j.solo != nil || len(j.m.Entries) > 0) {
			w, err := g.placeJob(j)
			if err != nil {
				g.fence(err)
				return
			}
			j.write = w
		}
		if j.flush {
			g.started++
			s.writer.jobs.put(j)
			continue
		}
		if g.started > 0 {
			return // behind what is being flushed
		}
		if j.write != nil {
			if err := g.do(j.write); err != nil {
				if isDiskFull(err) {
					g.stall()
				} else {
					g.fence(err)
				}
				return
			}
		}
		g.complete(j)
	}
}

// complete ends the first job of the group.
func (g *Group) complete(j *job) {
	g.jobs.pop()
	if g.full.Load() {
		g.full.Store(false) // there was room
	}
	m, solo := j.m, j.solo
	if j.write != nil {
		j.write.Release()
	}
	g.shard.freeJob(j)
	if solo != nil {
		g.applySolo(solo)
	} else {
		g.deliver(m)
	}
}

// storageDone takes a job back from another goroutine.
func (s *shard) storageDone(j *job) {
	g := j.g
	err := j.err
	j.err = nil
	ofVote := j.voting
	if ofVote {
		j.voting = false
		j.needVote = err != nil
	} else {
		g.started--
	}
	s.touch(g)
	switch {
	case g.gone():
		return
	case err == nil && ofVote:
	case err == nil && !g.stalled:
		// The log writer gives a group's jobs back in order, so this is the first.
		s.finished = j
		g.guard((*Group).completeFinished)
	case g.stalled:
		// Behind the one that found no room: stays in the queue, to be done again with it.
	case isDiskFull(err):
		g.stall() // also the ballast's room was not enough
	default:
		g.fence(err)
		return
	}
	g.guard((*Group).pump)
}

func (g *Group) completeFinished() {
	j := g.shard.finished
	g.shard.finished = nil
	g.complete(j)
}

// place gives the entries their place in the log. Only then the log may hear of the commit index that came with them: it
// can be about entries that they replace.
func (g *Group) place(m *raftpb.Message) (*segment.Write, error) {
	s, es := g.shard, m.Entries
	s.placing = s.placing[:0]
	for _, e := range es {
		s.placing = append(s.placing, toLog(e))
	}
	w, err := g.placeEntries(s.placing)
	clear(s.placing)
	if err != nil {
		return nil, err
	}
	g.store.appended(es)
	if m.Commit != nil {
		g.log.Committed(min(m.GetCommit(), w.Last()))
	}
	return w, nil
}

func (g *Group) placeJob(j *job) (*segment.Write, error) {
	if j.solo != nil {
		return g.placeEntries(j.solo)
	}
	return g.place(j.m)
}

func (g *Group) placeEntries(es []segment.Entry) (*segment.Write, error) {
	w, err := g.log.Place(es)
	if err != nil {
		return nil, fmt.Errorf("place entries from index %d: %w", es[0].Index, err)
	}
	g.last.Store(w.Last())
	return w, nil
}

// do writes on this goroutine. When there is no room it is tried once more with the room of the ballast.
func (g *Group) do(w *segment.Write) error {
	err := w.Do()
	if isDiskFull(err) && g.shard.host.space.failed() {
		err = w.Do()
	}
	if err != nil {
		return fmt.Errorf("write entries from index %d: %w", w.First(), err)
	}
	return nil
}

// stall keeps the group's writes until there is room. Raft does not hear of them, so nothing of them is acknowledged, and
// new requests are refused before they reach raft.
func (g *Group) stall() {
	if g.stalled {
		return
	}
	g.stalled = true
	g.shard.stalled = append(g.shard.stalled, g)
	if !g.full.Swap(true) { // else it was tried again
		g.shard.log.Warn("a write waits for room on the disk", "group", g.cfg.ID)
		g.tell()
	}
}

// deliver gives the responses of finished storage work to whom they are for.
func (g *Group) deliver(m *raftpb.Message) {
	for _, r := range m.Responses {
		if r.GetTo() == g.host.cfg.NodeID {
			_ = g.rn.Step(r) // about this node's own write, cannot be refused
		} else {
			g.shard.post(g, r)
		}
	}
	g.shard.touch(g)
}

// isControl tells a control entry of the Machine.
func isControl(data []byte) bool { return len(data) > 0 && segment.KindOf(data) != segment.KindData }

// voting reports whether the votes writer has a job of the group.
func (g *Group) voting() bool {
	for i := range g.jobs.len() {
		if (*g.jobs.at(i)).voting {
			return true
		}
	}
	return false
}

func isDiskFull(err error) bool {
	return err != nil && (errors.Is(err, segment.ErrDiskFull) || vfs.IsDiskFull(err)) && !errors.Is(err, segment.ErrSyncFailed)
}

func (s *shard) newJob(v job) *job {
	if n := len(s.freeJobs); n > 0 {
		j := s.freeJobs[n-1]
		s.freeJobs = s.freeJobs[:n-1]
		*j = v
		return j
	}
	return &v
}

func (s *shard) freeJob(j *job) {
	*j = job{}
	if len(s.freeJobs) < 256 {
		s.freeJobs = append(s.freeJobs, j)
	}
}
