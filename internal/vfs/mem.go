package vfs

import (
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// sectorSize is the unit in which a crash keeps or loses what was not flushed.
// A sector is written whole or not at all, which is what disks promise.
const sectorSize = 512

const createFlags = os.O_CREATE

// Mem is a file system in memory that knows what would survive a crash.
//
// Every file keeps its flushed content and the list of changes since. Every
// directory keeps its flushed names and the list of changes since. A crash
// starts from what was flushed and applies a random part of the changes in
// order.
type Mem struct {
	mu       sync.Mutex
	root     *node
	seed     uint64
	capacity int64 // 0 = unlimited
	used     int64
	locks    map[string]bool
}

// NewMem returns an empty file system in memory. The seed is the default of
// CrashClone.
func NewMem(seed uint64) *Mem {
	return &Mem{root: newDir(), seed: seed, locks: map[string]bool{}}
}

var _ FS = (*Mem)(nil)

// SetCapacity limits the bytes of all files together; 0 lifts the limit. A
// write that does not fit is done in part and fails with ENOSPC.
func (m *Mem) SetCapacity(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = n
}

// Used returns the bytes of all files together.
func (m *Mem) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// CrashClone returns the file system as it may look after the machine lost its
// power now: what was flushed is there, and of the rest a part that the seed
// chooses, sector by sector and name by name. Everything in the clone counts
// as flushed. Locks are gone. The original is not changed.
func (m *Mem) CrashClone(seed uint64) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	rng := rand.New(rand.NewPCG(m.seed, seed))
	// One crash in four loses everything, one keeps everything, the others
	// something between: all three find different mistakes.
	c := crash{rng: rng, renames: map[*rename]bool{}, keep: [...]float64{0, 1, rng.Float64(), rng.Float64()}[rng.IntN(4)]}
	root := c.dir(m.root, map[*node]*node{})
	out := &Mem{root: root, seed: m.seed, capacity: m.capacity, locks: map[string]bool{}}
	out.used = root.bytes()
	return out
}

// KillClone returns the file system as it looks after the process was killed
// now: everything that was written is there, and what was not flushed can
// still be lost in a later crash. Locks are gone. The original is not changed.
func (m *Mem) KillClone() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	root := (&cloner{map[*node]*node{}, map[*rename]*rename{}}).clone(m.root)
	return &Mem{root: root, seed: m.seed, capacity: m.capacity, used: m.used, locks: map[string]bool{}}
}

// node is a file or a directory.
type node struct {
	// A directory: its names now, the flushed ones, and the changes between.
	children map[string]*node
	durable  map[string]*node
	dirOps   []dirOp

	// A file: its bytes now, the flushed ones, and the changes between.
	data    []byte
	flushed []byte
	fileOps []fileOp
}

// dirOp sets (child != nil) or removes a name. The two halves of a rename share
// a mark, because a crash keeps both or none.
type dirOp struct {
	name   string
	child  *node
	rename *rename
}

// rename marks a rename; it is flushed when one of its directories was.
type rename struct{ flushed bool }

// fileOp is a write of data at off, or a truncation to off when data is nil.
type fileOp struct {
	off  int64
	data []byte
}

func newDir() *node { return &node{children: map[string]*node{}, durable: map[string]*node{}} }

func (n *node) isDir() bool { return n.children != nil }

func (n *node) bytes() int64 {
	total := int64(len(n.data))
	for _, c := range n.children {
		total += c.bytes()
	}
	return total
}

func (n *node) set(name string, child *node) { n.apply(dirOp{name: name, child: child}) }

func (n *node) apply(op dirOp) {
	name, child := op.name, op.child
	if child == nil {
		delete(n.children, name)
	} else {
		n.children[name] = child
	}
	n.dirOps = append(n.dirOps, op)
}

func (n *node) syncDir() {
	n.durable = maps.Clone(n.children)
	for _, op := range n.dirOps {
		if op.rename != nil {
			op.rename.flushed = true
		}
	}
	n.dirOps = nil
}

func (n *node) syncFile() {
	for _, op := range n.fileOps {
		n.flushed = op.apply(n.flushed)
	}
	n.fileOps = nil
}

func (op fileOp) apply(b []byte) []byte {
	if op.data == nil {
		return resize(b, op.off)
	}
	if end := op.off + int64(len(op.data)); end > int64(len(b)) {
		b = resize(b, end)
	}
	copy(b[op.off:], op.data)
	return b
}

// resize sets a length; new bytes are zero, also where a longer content was
// before.
func resize(b []byte, size int64) []byte {
	if size <= int64(len(b)) {
		return b[:size]
	}
	old := len(b)
	b = slices.Grow(b, int(size)-old)[:size]
	clear(b[old:])
	return b
}

// cloner copies a tree in which a node can have several names.
type cloner struct {
	nodes   map[*node]*node
	renames map[*rename]*rename
}

func (k *cloner) clone(n *node) *node {
	if n == nil {
		return nil
	}
	if c := k.nodes[n]; c != nil {
		return c
	}
	c := &node{}
	k.nodes[n] = c
	if !n.isDir() {
		c.data, c.flushed = slices.Clone(n.data), slices.Clone(n.flushed)
		c.fileOps = slices.Clone(n.fileOps)
		return c
	}
	c.children, c.durable = map[string]*node{}, map[string]*node{}
	for name, child := range n.children {
		c.children[name] = k.clone(child)
	}
	for name, child := range n.durable {
		c.durable[name] = k.clone(child)
	}
	for _, op := range n.dirOps {
		if op.rename != nil && k.renames[op.rename] == nil {
			k.renames[op.rename] = &rename{op.rename.flushed}
		}
		c.dirOps = append(c.dirOps, dirOp{op.name, k.clone(op.child), k.renames[op.rename]})
	}
	return c
}

// crash chooses what survives.
type crash struct {
	rng     *rand.Rand
	keep    float64
	renames map[*rename]bool
}

// keeps tells whether a change of a directory survives.
func (c *crash) keeps(op dirOp) bool {
	if op.rename == nil {
		return c.coin()
	}
	keep, ok := c.renames[op.rename]
	if !ok {
		keep = op.rename.flushed || c.coin()
		c.renames[op.rename] = keep
	}
	return keep
}

func (c *crash) coin() bool { return c.rng.Float64() < c.keep }

func (c *crash) dir(n *node, seen map[*node]*node) *node {
	names := maps.Clone(n.durable)
	for _, op := range n.dirOps {
		if !c.keeps(op) {
			continue
		}
		if op.child == nil {
			delete(names, op.name)
		} else {
			names[op.name] = op.child
		}
	}
	out := newDir()
	seen[n] = out
	// Sorted, so that a seed always gives the same crash.
	for _, name := range slices.Sorted(maps.Keys(names)) {
		child := names[name]
		done := seen[child]
		switch {
		case done != nil: // two names of one file, in the middle of a rename
		case child.isDir():
			done = c.dir(child, seen)
		default:
			done = c.file(child)
			seen[child] = done
		}
		out.children[name] = done
	}
	out.durable = maps.Clone(out.children)
	return out
}

func (c *crash) file(n *node) *node {
	b := slices.Clone(n.flushed)
	for _, op := range n.fileOps {
		if op.data == nil {
			if c.coin() {
				b = resize(b, op.off)
			}
			continue
		}
		end := op.off + int64(len(op.data))
		// The size may reach the disk without the data: the hole reads as
		// zeros.
		if end > int64(len(b)) && c.rng.IntN(4) == 0 && c.coin() {
			b = resize(b, end)
		}
		for at := op.off; at < end; {
			next := min((at/sectorSize+1)*sectorSize, end)
			if c.coin() {
				b = fileOp{off: at, data: op.data[at-op.off : next-op.off]}.apply(b)
			}
			at = next
		}
	}
	return &node{data: b, flushed: slices.Clone(b)}
}

// split returns the elements of a path.
func split(name string) []string {
	name = strings.Trim(filepath.ToSlash(filepath.Clean(name)), "/")
	if name == "" || name == "." {
		return nil
	}
	return strings.Split(name, "/")
}

// find returns the node of a path; m.mu is held.
func (m *Mem) find(name string) *node {
	n := m.root
	for _, e := range split(name) {
		if n = n.children[e]; n == nil {
			return nil
		}
	}
	return n
}

// parent returns the directory of a path and its last element; m.mu is held.
func (m *Mem) parent(name string) (*node, string) {
	p := split(name)
	if len(p) == 0 {
		return nil, ""
	}
	n := m.root
	for _, e := range p[:len(p)-1] {
		if n = n.children[e]; n == nil {
			return nil, ""
		}
	}
	if !n.isDir() {
		return nil, ""
	}
	return n, p[len(p)-1]
}

func pathErr(op, name string, err error) error { return &os.PathError{Op: op, Path: name, Err: err} }

// OpenFile implements FS.
func (m *Mem) OpenFile(name string, flag int) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base := m.parent(name)
	if dir == nil {
		return nil, pathErr("open", name, syscall.ENOENT)
	}
	n := dir.children[base]
	switch {
	case n == nil && flag&os.O_CREATE == 0:
		return nil, pathErr("open", name, syscall.ENOENT)
	case n == nil:
		n = &node{}
		dir.set(base, n)
	case n.isDir():
		return nil, pathErr("open", name, syscall.EISDIR)
	case flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0:
		return nil, pathErr("open", name, syscall.EEXIST)
	case flag&os.O_TRUNC != 0:
		m.truncate(n, 0)
	}
	return &memFile{m: m, n: n, name: name, readOnly: flag&(os.O_RDWR|os.O_WRONLY) == 0}, nil
}

// Create implements FS.
func (m *Mem) Create(name string) (File, error) {
	return m.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.root
	for _, e := range split(dir) {
		next := n.children[e]
		if next == nil {
			next = newDir()
			n.set(e, next)
		} else if !next.isDir() {
			return pathErr("mkdir", dir, syscall.ENOTDIR)
		}
		n = next
	}
	return nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base := m.parent(name)
	if dir == nil || dir.children[base] == nil {
		return pathErr("remove", name, syscall.ENOENT)
	}
	n := dir.children[base]
	if len(n.children) > 0 {
		return pathErr("remove", name, syscall.ENOTEMPTY)
	}
	m.used -= n.bytes()
	dir.set(base, nil)
	return nil
}

// RemoveAll implements FS.
func (m *Mem) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base := m.parent(name)
	if dir == nil || dir.children[base] == nil {
		return nil
	}
	m.removeAll(dir, base)
	return nil
}

// removeAll removes from the leaves up, as the system call's users do, so that
// a crash can leave any part of it.
func (m *Mem) removeAll(dir *node, name string) {
	n := dir.children[name]
	for _, c := range slices.Sorted(maps.Keys(n.children)) {
		m.removeAll(n, c)
	}
	m.used -= int64(len(n.data))
	dir.set(name, nil)
}

// Rename implements FS.
func (m *Mem) Rename(oldname, newname string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, oldBase := m.parent(oldname)
	to, newBase := m.parent(newname)
	if from == nil || to == nil || from.children[oldBase] == nil {
		return pathErr("rename", oldname, syscall.ENOENT)
	}
	n := from.children[oldBase]
	if old := to.children[newBase]; old != nil && old != n {
		if old.isDir() != n.isDir() || len(old.children) > 0 {
			return pathErr("rename", newname, syscall.ENOTEMPTY)
		}
		m.used -= old.bytes()
	}
	mark := &rename{}
	to.apply(dirOp{newBase, n, mark})
	from.apply(dirOp{oldBase, nil, mark})
	return nil
}

// List implements FS.
func (m *Mem) List(dir string) ([]DirEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(dir)
	if n == nil {
		return nil, pathErr("list", dir, syscall.ENOENT)
	}
	if !n.isDir() {
		return nil, pathErr("list", dir, syscall.ENOTDIR)
	}
	var out []DirEntry
	for _, name := range slices.Sorted(maps.Keys(n.children)) {
		out = append(out, DirEntry{Name: name, Dir: n.children[name].isDir()})
	}
	return out, nil
}

// Stat implements FS.
func (m *Mem) Stat(name string) (FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(name)
	if n == nil {
		return FileInfo{}, pathErr("stat", name, syscall.ENOENT)
	}
	return FileInfo{Size: int64(len(n.data)), Dir: n.isDir()}, nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(dir)
	if n == nil || !n.isDir() {
		return pathErr("sync", dir, syscall.ENOENT)
	}
	n.syncDir()
	return nil
}

// Lock implements FS.
func (m *Mem) Lock(name string) (io.Closer, error) {
	name = filepath.Clean(name)
	f, err := m.OpenFile(name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[name] {
		return nil, lockedError(name)
	}
	m.locks[name] = true
	return &memLock{m: m, name: name}, nil
}

type memLock struct {
	m    *Mem
	name string
}

func (l *memLock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	delete(l.m.locks, l.name)
	return nil
}

// Free implements FS. Without a capacity there is always a TiB.
func (m *Mem) Free(string) (free, total uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.capacity == 0 {
		return 1 << 40, 1<<40 + uint64(m.used), nil
	}
	return uint64(max(0, m.capacity-m.used)), uint64(m.capacity), nil
}
