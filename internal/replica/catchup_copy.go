package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zeebo/xxh3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/internal/vfs"
)

// This file is the copying side: a replica that was sent a snapshot fetches what its manifest names into a directory of
// its own, while the group goes on with what it has. What was fetched is good for any manifest that names the same
// segment, so a copy that was broken off is continued, with another source and with another manifest too.

const (
	incomingPrefix = "incoming-"
	// copyPatience is how long a copy goes on without any progress.
	copyPatience = 30 * time.Second
	copyPauseMin = 20 * time.Millisecond
	copyPauseMax = time.Second
)

// copyJob fills a group from other replicas.
type copyJob struct {
	g      *Group
	man    *manifest
	conf   *raftpb.ConfState
	leader uint64
	cancel context.CancelFunc

	// Of the shard.
	m        *raftpb.Message // the snapshot, newest
	next     *raftpb.Message // another one that came meanwhile
	complete bool
	told     int // ticks since the leader heard of it

	// Of the copy's goroutine.
	verified map[string]uint64 // chain behind the pieces that were checked, by name
	keep     []string          // pieces that are in place already
	distrust map[uint64]bool   // sources that gave something wrong
	conns    map[uint64]net.Conn
	moved    time.Time // last progress
}

// snapArrived takes raft's snapshot message. When the log has what it stands for, raft is told at once; else it is copied
// first.
func (g *Group) snapArrived(m *raftpb.Message) {
	if m.GetTerm() < g.term.Load() {
		return
	}
	snap := m.GetSnapshot()
	man, err := decodeManifest(snap.GetData())
	meta := snap.GetMetadata()
	if err == nil && (man.group != g.cfg.ID || man.index != meta.GetIndex() || man.term != meta.GetTerm()) {
		err = fmt.Errorf("%w: it is not of this snapshot", errManifest)
	}
	if err != nil {
		g.shard.log.Warn("a snapshot of a node is ignored", "group", g.cfg.ID, "node", m.GetFrom(), "error", err)
		return
	}
	conf := meta.GetConfState()
	if !slices.Contains(conf.Voters, g.host.cfg.NodeID) && !slices.Contains(conf.Learners, g.host.cfg.NodeID) {
		return
	}
	// The sender leads this term, which raft must know, and have stored, before the files of that term are in place.
	_ = g.rn.Step(&raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: m.From, To: m.To, Term: m.Term})
	if g.has(man) {
		g.fits = m
		return
	}
	if c := g.copy; c != nil {
		if c.man.index == man.index && c.man.term == man.term {
			c.m, c.leader = m, m.GetFrom()
			return
		}
		c.next = m
		if !c.complete {
			c.cancel()
		}
		return
	}
	g.startCopy(m, man)
}

// settled reports whether nothing of the group is under way between raft, its log and the keeper.
func (g *Group) settled() bool {
	return !g.gone() && g.rn != nil && !g.keeping && !g.offering && g.jobs.len() == 0 && !g.rn.HasReady() &&
		!slices.ContainsFunc(g.shard.writes, func(w storageWork) bool { return w.g == g })
}

// tryFit tells raft of a snapshot that the log has already: it only moves the commit index. What is written must be what
// raft knows of, else raft would take it for one that replaces the log.
func (g *Group) tryFit() {
	m := g.fits
	if m == nil || !g.settled() {
		return
	}
	g.fits = nil
	if man, err := decodeManifest(m.GetSnapshot().GetData()); err == nil && g.has(man) {
		_ = g.rn.Step(m)
		g.shard.touch(g)
	}
}

// has reports whether the log has the entry at the manifest's index.
func (g *Group) has(man *manifest) bool {
	term, err := g.store.Term(man.index)
	return err == nil && term == man.term && man.index <= g.log.LastIndex()
}

func (g *Group) startCopy(m *raftpb.Message, man *manifest) {
	if g.stopping != nil || g.shard.closing != nil {
		return
	}
	ctx, cancel := context.WithCancel(g.host.life)
	c := &copyJob{
		g: g, man: man, conf: m.GetSnapshot().GetMetadata().GetConfState(), leader: m.GetFrom(), m: m, cancel: cancel,
		verified: map[string]uint64{}, distrust: map[uint64]bool{}, conns: map[uint64]net.Conn{},
	}
	g.copy = c
	g.shard.log.Info("a replica is filled by copying", "group", g.cfg.ID, "index", man.index, "segments", len(man.pieces), "leader", c.leader)
	h := g.host
	order := append([]uint64{c.leader}, slices.DeleteFunc(slices.Clone(c.conf.Voters), func(v uint64) bool {
		return v == c.leader || v == h.cfg.NodeID
	})...)
	unpin := g.log.Pin() // what is reused in place
	run := func() {
		defer cancel()
		defer unpin()
		err := c.run(ctx, order)
		g.shard.inbox.post(item{g: g, ctl: &copyEnded{c, err}})
	}
	if h.cfg.Manual {
		h.manual.put(run)
	} else {
		h.serving.Go(run)
	}
}

// copyEnded brings the outcome of a copy back.
type copyEnded struct {
	c   *copyJob
	err error
}

func (e *copyEnded) run(s *shard) {
	g, c := e.c.g, e.c
	s.touch(g)
	switch {
	case g.gone() || g.stopping != nil || s.closing != nil:
		g.copy = nil
	case c.next != nil:
		m := c.next
		g.copy = nil
		g.guard(func(g *Group) { g.snapArrived(m) })
	case e.err != nil:
		s.log.Warn("a copy has failed", "group", g.cfg.ID, "index", c.man.index, "error", e.err)
		g.copy = nil
		if local := (*localError)(nil); errors.As(e.err, &local) {
			return // it would fail again at once; the leader comes back to it when it has heard nothing for a while
		}
		g.sideSend(c.leader, side{sideCopyEnded, 0, c.man.index}, g.term.Load(), 0, 0)
	default:
		c.complete = true
	}
}

// copying reports whether something of the group runs outside its shard; when the group is to end, it is broken off.
func (g *Group) copying() bool {
	if c := g.copy; c != nil && !c.complete {
		c.cancel()
		return true
	}
	return g.refill != nil
}

// endCatchup ends the group's part in copying, on either side.
func (g *Group) endCatchup() {
	g.withdraw()
	if g.copy != nil {
		g.copy.cancel()
	}
}

// tickCopy tells the leader that the copy goes on.
func (g *Group) tickCopy() {
	c := g.copy
	if c == nil {
		return
	}
	c.told++
	if c.told >= max(1, g.host.cfg.ElectionTicks/2) {
		c.told = 0
		g.sideSend(c.leader, side{sideCopying, 0, c.man.index}, g.term.Load(), 0, 0)
	}
	g.shard.touch(g) // it may be time to install it
}

// run copies everything and makes it durable.
func (c *copyJob) run(ctx context.Context, order []uint64) error {
	h := c.g.host
	if err := h.copySlots.acquire(ctx); err != nil {
		return err
	}
	defer h.copySlots.release()
	defer func() {
		for _, conn := range c.conns {
			_ = conn.Close()
		}
	}()
	fs, dir := h.cfg.FS, c.dir()
	if err := c.prepare(fs, dir); err != nil {
		return fmt.Errorf("prepare %s: %w", dir, err)
	}
	c.moved = time.Now()
	if err := c.retry(ctx, order, c.fetchCheckpoint); err != nil {
		return err
	}
	for i := range c.man.pieces {
		p := &c.man.pieces[i]
		reused, err := c.reuse(ctx, p)
		if err != nil {
			return err
		}
		if reused {
			continue
		}
		if err := c.retry(ctx, order, func(ctx context.Context, from uint64) error { return c.fetchPiece(ctx, from, p) }); err != nil {
			return err
		}
	}
	return c.seal(fs, dir)
}

func (c *copyJob) dir() string {
	return filepath.Join(c.g.cfg.Dir, incomingPrefix+strconv.FormatUint(c.man.index, 10))
}

// prepare makes the directory, from what an earlier copy has left.
func (c *copyJob) prepare(fs vfs.FS, dir string) error {
	names, err := fs.List(c.g.cfg.Dir)
	if err != nil && !vfs.IsNotExist(err) {
		return err
	}
	for _, n := range names {
		if !strings.HasPrefix(n.Name, incomingPrefix) || n.Name == filepath.Base(dir) {
			continue
		}
		old := filepath.Join(c.g.cfg.Dir, n.Name)
		if _, err := fs.Stat(dir); vfs.IsNotExist(err) {
			if err := fs.Rename(old, dir); err != nil {
				return err
			}
			continue
		}
		if err := fs.RemoveAll(old); err != nil {
			return err
		}
	}
	if _, err := vfs.MakeDirs(fs, dir); err != nil {
		return err
	}
	// Whatever the manifest does not name goes.
	want := map[string]bool{}
	for i := range c.man.pieces {
		want[c.man.pieces[i].Name()] = true
	}
	tops, err := fs.List(dir)
	if err != nil {
		return err
	}
	for _, top := range tops {
		if !top.Dir {
			if top.Name != segment.CheckpointName(c.man.index) {
				if err := fs.Remove(filepath.Join(dir, top.Name)); err != nil {
					return err
				}
			}
			continue
		}
		files, err := fs.List(filepath.Join(dir, top.Name))
		if err != nil {
			return err
		}
		for _, f := range files {
			if name := filepath.Join(top.Name, f.Name); !want[name] {
				if err := fs.Remove(filepath.Join(dir, name)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// retry tries the sources in their order, again and again as long as something moves.
func (c *copyJob) retry(ctx context.Context, order []uint64, get func(ctx context.Context, from uint64) error) error {
	pause := copyPauseMin
	for {
		var errs []error
		for _, from := range order {
			if c.distrust[from] && len(c.distrust) < len(order) {
				continue
			}
			err := get(ctx, from)
			if err == nil {
				return nil
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if local := (*localError)(nil); errors.As(err, &local) {
				return err
			}
			c.hangUp(from)
			errs = append(errs, fmt.Errorf("from node %d: %w", from, err))
		}
		clear(c.distrust)
		if c.g.host.cfg.Manual || time.Since(c.moved) >= copyPatience {
			return errors.Join(errs...)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		pause = min(2*pause, copyPauseMax)
	}
}

// localError is a failure of this node, which no other source can help.
type localError struct{ error }

func (e *localError) Unwrap() error { return e.error }

func (c *copyJob) dial(ctx context.Context, to uint64) (net.Conn, error) {
	if conn := c.conns[to]; conn != nil {
		return conn, nil
	}
	bulk := c.g.host.cfg.Bulk
	if bulk == nil {
		return nil, errors.New("replica: no connections for copying are configured")
	}
	conn, err := bulk.DialBulk(ctx, to)
	if err != nil {
		return nil, err
	}
	c.conns[to] = conn
	return conn, nil
}

func (c *copyJob) hangUp(from uint64) {
	if conn := c.conns[from]; conn != nil {
		_ = conn.Close()
		delete(c.conns, from)
	}
}

// fetch asks a source, and cuts the connection when ctx ends.
func (c *copyJob) fetch(ctx context.Context, from uint64, q question, take func([]byte) error) error {
	conn, err := c.dial(ctx, from)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	return fetch(ctx, conn, q, take)
}

// fetchCheckpoint copies the checkpoint. Only who made the manifest has it.
func (c *copyJob) fetchCheckpoint(ctx context.Context, from uint64) error {
	fs, dir, id := c.g.host.cfg.FS, c.dir(), uint64(c.g.cfg.ID)
	if body, err := segment.ReadCheckpoint(fs, dir, id, c.man.index); err == nil && xxh3.Hash(body) == c.man.sum {
		return nil
	}
	var body []byte
	q := question{what: bulkCheckpoint, group: c.g.cfg.ID, index: c.man.index, to: c.man.body}
	err := c.fetch(ctx, from, q, func(chunk []byte) error {
		c.moved = time.Now()
		body = append(body, chunk...)
		return nil
	})
	if err != nil {
		return err
	}
	if xxh3.Hash(body) != c.man.sum {
		c.distrust[from] = true
		return errors.New("replica: the copied checkpoint is not the one of the manifest")
	}
	if _, _, _, err := decodeCheckpoint(body); err != nil {
		return err
	}
	if err := segment.WriteCheckpoint(fs, dir, id, c.man.index, body); err != nil {
		return &localError{err}
	}
	return nil
}

// reuse looks whether a segment of the replica's own log is the one that is wanted; then it stays where it is.
func (c *copyJob) reuse(ctx context.Context, p *segment.Piece) (bool, error) {
	fs, dir := c.g.host.cfg.FS, c.g.cfg.Dir
	name := filepath.Join(dir, p.Name())
	info, err := fs.Stat(name)
	if err != nil || info.Size != p.Length {
		return false, nil // also when it cannot be looked at: it is copied then
	}
	if err := segment.VerifyPiece(fs, dir, uint64(c.g.cfg.ID), *p, ctx.Err); err != nil {
		return false, ctx.Err()
	}
	if err := syncFile(fs, name); err != nil {
		return false, &localError{err}
	}
	c.keep = append(c.keep, p.Name())
	c.moved = time.Now()
	// A copy of it from an earlier try is not needed.
	if err := fs.Remove(filepath.Join(c.dir(), p.Name())); err != nil && !vfs.IsNotExist(err) {
		return false, &localError{err}
	}
	return true, nil
}

// fetchPiece copies one segment, or what is missing of it.
func (c *copyJob) fetchPiece(ctx context.Context, from uint64, p *segment.Piece) error {
	fs, dir := c.g.host.cfg.FS, c.dir()
	if c.verified[p.Name()] == p.Chain && p.Chain != 0 {
		return nil
	}
	name := filepath.Join(dir, p.Name())
	if _, err := vfs.MakeDirs(fs, filepath.Dir(name)); err != nil {
		return &localError{err}
	}
	f, err := fs.OpenFile(name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return &localError{err}
	}
	err = c.fill(ctx, from, p, f)
	if err == nil {
		if serr := f.Sync(); serr != nil {
			err = &localError{serr}
		}
	}
	if cerr := f.Close(); err == nil && cerr != nil {
		err = &localError{cerr}
	}
	if err != nil {
		return err
	}
	err = segment.VerifyPiece(fs, dir, uint64(c.g.cfg.ID), *p, ctx.Err)
	var bad *segment.PieceError
	switch {
	case errors.As(err, &bad):
		c.distrust[from] = true
		c.g.host.cfg.Logger.Warn("a copied segment is wrong and is copied again", "group", c.g.cfg.ID, "node", from, "error", err)
		if rerr := fs.Remove(name); rerr != nil {
			return &localError{rerr}
		}
		return err
	case err != nil && ctx.Err() == nil:
		return &localError{err}
	case err != nil:
		return err
	}
	c.verified[p.Name()] = p.Chain
	c.moved = time.Now()
	return nil
}

// fill continues a file from where it ends.
func (c *copyJob) fill(ctx context.Context, from uint64, p *segment.Piece, f vfs.File) error {
	have, err := f.Size()
	if err != nil {
		return &localError{err}
	}
	if have > 0 {
		header := make([]byte, segment.PieceHeaderBytes)
		n, err := f.ReadAt(header, 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return &localError{err}
		}
		if !bytes.Equal(header[:n], p.Header(uint64(c.g.cfg.ID))[:n]) {
			have = 0 // of another history
		}
	}
	if size, _ := f.Size(); size != min(have, p.Length) {
		have = min(have, p.Length)
		if err := f.Truncate(have); err != nil {
			return &localError{err}
		}
	}
	if have == p.Length {
		return nil
	}
	return c.fetch(ctx, from, pieceQuestion(c.g.cfg.ID, p, have), func(chunk []byte) error {
		if !c.g.host.space.admit(int64(len(chunk))) {
			return &localError{ErrDiskFull} // the room that is left is for what is acknowledged
		}
		if _, err := f.WriteAt(chunk, have); err != nil {
			return &localError{err}
		}
		have += int64(len(chunk))
		c.moved = time.Now()
		return nil
	})
}

// seal makes the directory durable and complete.
func (c *copyJob) seal(fs vfs.FS, dir string) error {
	if err := writeKeep(fs, dir, c.keep); err != nil {
		return err
	}
	tops, err := fs.List(dir)
	if err != nil {
		return err
	}
	for _, top := range tops {
		if top.Dir {
			if err := fs.SyncDir(filepath.Join(dir, top.Name)); err != nil {
				return err
			}
		}
	}
	for _, d := range [...]string{dir, c.g.cfg.Dir} {
		if err := fs.SyncDir(d); err != nil {
			return err
		}
	}
	return nil
}

func syncFile(fs vfs.FS, name string) error {
	f, err := fs.OpenFile(name, os.O_RDWR)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = fs.SyncDir(filepath.Dir(name))
	}
	return err
}
