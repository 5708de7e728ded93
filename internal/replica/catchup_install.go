package replica

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"
	"go.etcd.io/raft/v3"

	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/internal/vfs"
)

// A complete copy takes the place of a group's files like this, and each step can be the last before a crash:
//
//  1. incoming-<index>/ is complete and flushed; "keep" in it names the files of the log that stay.
//  2. It is renamed to install/. From here on the copy is what the group has; before, the old files are.
//  3. Everything else in the directory is removed, but what "keep" names.
//  4. install/ is renamed to installed/. From here on nothing is removed any more.
//  5. What is in installed/ is moved up, then installed/ is removed.
//
// A start goes on where it was: with install/ at 3, with installed/ at 5. Without either, incoming-*/ are leftovers.
const (
	installName   = "install"
	installedName = "installed"
	keepName      = "keep"
	damagedName   = "damaged"
	keepMagic     = 0x01_00_50_45_45_4b_50_57 // "WPKEEP\0\1" read little-endian
	keepMax       = 64 << 20
)

// writeKeep writes the list of files that stay, durably: magic, XXH3-64 of what follows, and the names with a line end
// each.
func writeKeep(fs vfs.FS, dir string, names []string) error {
	var text []byte
	for _, n := range names {
		text = append(append(text, n...), '\n')
	}
	b := le.AppendUint64(le.AppendUint64(nil, keepMagic), xxh3.Hash(text))
	f, _, err := replaceFile(fs, dir, filepath.Join(dir, keepName), append(b, text...))
	if err != nil {
		return err
	}
	return f.Close()
}

func readKeep(fs vfs.FS, dir string) (map[string]bool, error) {
	path := filepath.Join(dir, keepName)
	b, err := vfs.ReadFile(fs, path, keepMax)
	if err != nil {
		return nil, err
	}
	if err := checkMagic(path, b, keepMagic); err != nil {
		return nil, err
	}
	if len(b) < 16 || le.Uint64(b[8:]) != xxh3.Hash(b[16:]) {
		return nil, &CorruptError{path, "checksum differs"}
	}
	keep := map[string]bool{}
	for _, n := range strings.Split(string(b[16:]), "\n") {
		if n != "" {
			keep[n] = true
			keep[strings.TrimSuffix(n, ".log")+".index"] = true
		}
	}
	return keep, nil
}

// finishInstall goes on with an installation that was begun; without one it does nothing.
func finishInstall(fs vfs.FS, dir string) error {
	install, installed := filepath.Join(dir, installName), filepath.Join(dir, installedName)
	if _, err := fs.Stat(install); err == nil {
		if err := clearForInstall(fs, dir, install); err != nil {
			return err
		}
		if err := fs.Rename(install, installed); err != nil {
			return err
		}
		if err := fs.SyncDir(dir); err != nil {
			return err
		}
	} else if !vfs.IsNotExist(err) {
		return err
	}
	if _, err := fs.Stat(installed); vfs.IsNotExist(err) {
		return nil
	} else if err != nil {
		return err
	}
	return moveUp(fs, dir, installed)
}

// clearForInstall removes what the copy replaces.
func clearForInstall(fs vfs.FS, dir, install string) error {
	keep, err := readKeep(fs, install)
	if err != nil {
		return err
	}
	tops, err := fs.List(dir)
	if err != nil {
		return err
	}
	for _, top := range tops {
		path := filepath.Join(dir, top.Name)
		switch {
		case top.Name == installName || top.Name == damagedName:
			continue
		case !top.Dir:
			if err := fs.Remove(path); err != nil {
				return err
			}
			continue
		}
		files, err := fs.List(path)
		if err != nil {
			return err
		}
		kept := false
		for _, f := range files {
			if keep[filepath.Join(top.Name, f.Name)] {
				kept = true
			} else if err := fs.RemoveAll(filepath.Join(path, f.Name)); err != nil {
				return err
			}
		}
		if kept {
			err = fs.SyncDir(path)
		} else {
			err = fs.RemoveAll(path)
		}
		if err != nil {
			return err
		}
	}
	return fs.SyncDir(dir)
}

// moveUp moves the content of a directory to its parent, and removes it.
func moveUp(fs vfs.FS, dir, from string) error {
	tops, err := fs.List(from)
	if err != nil {
		return err
	}
	for _, top := range tops {
		src, dst := filepath.Join(from, top.Name), filepath.Join(dir, top.Name)
		if !top.Dir {
			if top.Name == keepName {
				continue
			}
			if err := fs.Rename(src, dst); err != nil {
				return err
			}
			continue
		}
		if err := fs.MkdirAll(dst); err != nil {
			return err
		}
		if err := fs.SyncDir(dir); err != nil {
			return err
		}
		files, err := fs.List(src)
		if err != nil {
			return err
		}
		for _, f := range files {
			if err := fs.Rename(filepath.Join(src, f.Name), filepath.Join(dst, f.Name)); err != nil {
				return err
			}
		}
		if err := fs.SyncDir(dst); err != nil {
			return err
		}
	}
	if err := fs.SyncDir(dir); err != nil {
		return err
	}
	if err := fs.RemoveAll(from); err != nil {
		return err
	}
	return fs.SyncDir(dir)
}

// clearDir brings the group's directory into order before it is opened.
func (g *Group) clearDir() error {
	fs, dir := g.host.cfg.FS, g.cfg.Dir
	if err := finishInstall(fs, dir); err != nil {
		return fmt.Errorf("finish the installation of a copy: %w", err)
	}
	return removeIncoming(fs, dir)
}

// removeIncoming removes what copies have left that were not installed.
func removeIncoming(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	if vfs.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for copies that were not finished: %w", err)
	}
	for _, n := range names {
		if strings.HasPrefix(n.Name, incomingPrefix) {
			if err := fs.RemoveAll(filepath.Join(dir, n.Name)); err != nil {
				return fmt.Errorf("remove a copy that was not finished: %w", err)
			}
		}
	}
	return nil
}

// setAside makes room for a new copy when the group's files are damaged: they are moved to damaged/, and the group starts
// empty and suspect. A group without other voters, and any failure that is not damage, stays as it is: that is the error.
func (g *Group) setAside(cause error) (l loaded, err error) {
	var damage *segment.DamageError
	if !errors.As(cause, &damage) && !errors.Is(cause, errBadCheckpoint) || !slices.ContainsFunc(g.cfg.Voters, func(v uint64) bool { return v != g.host.cfg.NodeID }) {
		return l, cause
	}
	h := g.host
	h.cfg.Logger.Error("a replica's files are damaged, it is filled again from the others", "group", g.cfg.ID, "error", cause,
		"kept", filepath.Join(g.cfg.Dir, damagedName))
	// Suspect before the first file is gone.
	g.suspicion |= tailLost | logLost
	h.suspects.add(g.cfg.ID, g.suspicion)
	if err := h.suspects.save(); err != nil {
		return l, errors.Join(cause, err)
	}
	fs, to := h.cfg.FS, filepath.Join(g.cfg.Dir, damagedName)
	names, err := fs.List(g.cfg.Dir)
	if err == nil {
		err = fs.RemoveAll(to)
	}
	if err == nil {
		err = fs.MkdirAll(to)
	}
	for _, n := range names {
		if err == nil && n.Name != damagedName {
			err = fs.Rename(filepath.Join(g.cfg.Dir, n.Name), filepath.Join(to, n.Name))
		}
	}
	for _, d := range [...]string{to, g.cfg.Dir} {
		if err == nil {
			err = fs.SyncDir(d)
		}
	}
	if err != nil {
		return l, errors.Join(cause, err)
	}
	return g.load()
}

// tryInstall takes the group out of its shard when a copy is complete and nothing of the group is under way, and has the
// files replaced on another goroutine.
func (g *Group) tryInstall() {
	c := g.copy
	if c == nil || !c.complete || g.stopping != nil || g.shard.closing != nil || g.state != raft.StateFollower || !g.settled() {
		return
	}
	switch {
	case c.next != nil:
		m := c.next
		g.copy = nil
		g.snapArrived(m)
		g.shard.touch(g)
		return
	case g.has(c.man):
		// Another leader had what was missing.
		g.copy, g.fits = nil, c.m
		g.shard.touch(g)
		return
	case g.vote.term < c.man.term:
		return // its term is being stored
	}
	g.withdraw()
	g.drop(ErrOutcomeUnknown)
	g.refill = c
	g.copy = nil
	g.rn = nil
	g.leader.Store(0)
	g.tell()
	h := g.host
	run := func() {
		l, err := g.install(c)
		g.shard.inbox.post(item{g: g, ctl: &installed{g, c, l, err}})
	}
	if h.cfg.Manual {
		h.manual.put(run)
	} else {
		h.serving.Go(run)
	}
}

// install replaces the files and opens them. Whatever fails, what is there afterwards is whole, the old or the new.
func (g *Group) install(c *copyJob) (loaded, error) {
	fs, dir := g.host.cfg.FS, g.cfg.Dir
	if err := g.log.Close(); err != nil {
		g.host.cfg.Logger.Warn("closing the log that is replaced failed", "group", g.cfg.ID, "error", err)
	}
	err := fs.Rename(c.dir(), filepath.Join(dir, installName))
	if err == nil {
		err = fs.SyncDir(dir)
	}
	if err == nil {
		err = finishInstall(fs, dir)
	}
	if err != nil {
		return loaded{}, fmt.Errorf("install a copy: %w", err)
	}
	return g.load()
}

// installed brings the group back to its shard.
type installed struct {
	g   *Group
	c   *copyJob
	l   loaded
	err error
}

func (i *installed) run(s *shard) {
	i.g.refill = nil
	s.touch(i.g)
	i.g.guard(i.adopt)
}

func (i *installed) adopt(g *Group) {
	if i.err != nil {
		g.fence(i.err)
		return
	}
	if err := g.adopt(i.l); err != nil {
		_ = i.l.log.Close()
		g.fence(fmt.Errorf("adopt a copy: %w", err))
		return
	}
	g.news, g.unflushed, g.confDirty = false, false, false
	g.checkRole()
	g.tell()
	g.shard.log.Info("a replica was filled by copying", "group", g.cfg.ID, "index", i.c.man.index)
	if i.c.m.GetTerm() >= g.term.Load() {
		_ = g.rn.Step(i.c.m) // it has everything, which the answer says
	}
}
