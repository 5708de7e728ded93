package replica

import (
	"bytes"
	"slices"

	"go.etcd.io/raft/v3"

	"github.com/whippetmq/whippet/internal/segment"
)

// A group whose only voter is this node needs raft to become leader, in order and in a term of its own, and for nothing
// else: what is written is committed, nobody can take the leadership away, nobody has to be told. From its first own entry
// on such a group does without: the shard numbers the entries, writes them, and applies them. That saves most of the small
// objects of a raft turn and all of the raft node's memory. On disk there is no difference, so that a restart, or leaving
// this state for a change of the configuration, is the ordinary recovery: a raft node is made from the log, and campaigns.

// goSolo lets a sole voter go on without its raft node when nothing is under way in it.
func (g *Group) goSolo() {
	if !g.admits || g.change != nil || g.state != raft.StateLeader || !g.solo.Load() || g.jobs.len() > 0 || g.waiters.len() > 0 || g.gone() {
		return
	}
	last := g.log.LastIndex()
	if g.applied.Load() != last || g.rn.HasReady() || slices.ContainsFunc(g.shard.writes, func(w storageWork) bool { return w.g == g }) {
		return
	}
	g.rn = nil
	g.store.recent = nil
	g.soloLast = last
}

// leaveSolo makes a raft node again, which campaigns: what was written is committed by its first entry. The Machine sees a
// loss of the leadership and a new term.
func (g *Group) leaveSolo() error {
	if g.rn != nil {
		return nil
	}
	g.state = raft.StateFollower
	g.leader.Store(0)
	g.checkRole()
	if err := g.newRaft(g.applied.Load()); err != nil {
		return err
	}
	g.shard.touch(g)
	return g.rn.Campaign()
}

// advanceSolo is advance without raft.
func (g *Group) advanceSolo() {
	// Nobody is left that could have anything to say.
	clear(g.msgs)
	g.msgs = g.msgs[:0]
	if g.change != nil {
		g.proposeChange() // held back until the requests before it are done
		if g.rn != nil || g.gone() {
			return
		}
	}
	if len(g.in) > 0 && g.change == nil {
		g.propose(nil)
	}
	if g.stopping != nil && g.idle(false) {
		g.finish()
	}
}

// proposeSolo gives the entries of a turn, which are in shard.entries, their indexes and hands them to the second half of
// the turn.
func (g *Group) proposeSolo(props []waiter) {
	s := g.shard
	var es []segment.Entry
	if n := len(s.solos); n > 0 {
		es = s.solos[n-1]
		s.solos = s.solos[:n-1]
	}
	for i := range props {
		g.soloLast++
		e := segment.Entry{Index: g.soloLast, Term: g.leadTerm, Data: s.entries[i].Data}
		if giver, ok := props[i].one.(Giver); ok {
			e.Mem = giver.Give()
		}
		if e.Mem == nil {
			e.Data = bytes.Clone(e.Data)
		}
		es = append(es, e)
		props[i].index, props[i].term = g.soloLast, g.leadTerm
		g.proposed(&props[i])
	}
	s.writes = append(s.writes, storageWork{g: g, solo: es})
}

// storeSolo is storeNext for the entries of a sole voter.
func (g *Group) storeSolo(es []segment.Entry) {
	flush := g.cfg.Persisted || g.cfg.PersistControl && slices.ContainsFunc(es, func(e segment.Entry) bool { return isControl(e.Data) })
	var w *segment.Write
	if g.jobs.len() == 0 && !flush {
		var err error
		if w, err = g.placeEntries(es); err != nil {
			g.fence(err)
			return
		}
		if err = g.do(w); err == nil {
			w.Release()
			g.applySolo(es)
			return
		}
		if !isDiskFull(err) {
			g.fence(err)
			return
		}
		g.stall()
	}
	g.jobs.push(g.shard.newJob(job{g: g, solo: es, flush: flush, write: w}))
	g.pump()
}

// applySolo applies what is written: it is committed by that.
func (g *Group) applySolo(es []segment.Entry) {
	index := es[len(es)-1].Index
	g.commit.Store(index)
	for _, e := range es {
		if !g.applyEntry(e) {
			return
		}
	}
	clear(es)
	if cap(es) <= 1024 && len(g.shard.solos) < 64 {
		g.shard.solos = append(g.shard.solos, es[:0])
	}
	g.appliedTo(index)
}
