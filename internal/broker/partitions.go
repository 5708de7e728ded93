package broker

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/whippetmq/whippet/internal/clock"
	"github.com/whippetmq/whippet/internal/cluster"
	"github.com/whippetmq/whippet/internal/loglimit"
	"github.com/whippetmq/whippet/internal/metadata"
	"github.com/whippetmq/whippet/internal/partition"
	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/internal/vfs"
	"github.com/whippetmq/whippet/wire"
)

// PartitionsConfig configures Partitions. Everything without a word on zero must be set.
type PartitionsConfig struct {
	Host     *replica.Host
	Metadata *metadata.Machine
	FS       vfs.FS
	Dir      string // data directory of the node
	Clock    clock.Clock
	Logger   *slog.Logger
	Node     uint64 // node id
	// Alive reports whether a node answers; nil on a node of its own.
	Alive func(node uint64) bool

	Clients    int // dedup rows of a partition; 0 = the default
	OffsetKeys int // stored offsets per kind; 0 = the default
	Workers    int // starts and stops at a time; 0 = 8
}

// StreamsDir is the directory with the logs of partitions, in the data directory.
const StreamsDir = "streams"

const (
	topicsDir     = "topics"
	partitionsDir = "partitions"
	// retryStart is the pause before a partition that could not start is tried again.
	retryStart = 5 * time.Second
)

// Partitions runs the groups of the partitions that the catalog names: it starts
// what is missing, stops what is gone and deletes its files. One goroutine
// compares, a few start and stop; Close waits for all of them.
type Partitions struct {
	cfg    PartitionsConfig
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	wake   chan struct{}   // capacity 1
	slots  chan struct{}   // one per worker
	failed *loglimit.Limit // to start
	dirs   sync.Mutex      // directories above those of partitions are made or removed

	mu    sync.RWMutex
	parts map[replica.GroupID]*Partition
	swept bool // leftovers of earlier runs were deleted
}

// Partition is one partition on this node.
type Partition struct {
	Stream, Topic, ID uint32
	Group             replica.GroupID
	created           uint64

	ready chan struct{} // closed when started or given up
	// Set before ready is closed, and not changed after.
	group   *replica.Group
	machine *partition.Replica
	err     error
	retryAt time.Time

	fold readFold // of reads that ask the primary elsewhere
}

// Failures to start that are logged within a period: they come for thousands of
// partitions alike, and again with each attempt.
const (
	failureLines  = 10
	failurePeriod = time.Minute
)

// NewPartitions starts the goroutine; the first comparison happens at once.
func NewPartitions(cfg PartitionsConfig) *Partitions {
	if cfg.Workers <= 0 {
		cfg.Workers = 8
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Partitions{cfg: cfg, failed: loglimit.New(failureLines, failurePeriod), wake: make(chan struct{}, 1), slots: make(chan struct{}, cfg.Workers), parts: map[replica.GroupID]*Partition{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	cfg.Metadata.Subscribe(func(*metadata.Catalog) { p.nudge() })
	p.nudge()
	p.wg.Add(1)
	go p.run()
	return p
}

// Close stops comparing and waits for starts and stops under way. The groups go
// on until the host is closed.
func (p *Partitions) Close() {
	p.cancel()
	p.wg.Wait()
}

func (p *Partitions) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// get finds a partition of the catalog; one that has not been noticed yet is
// entered, to be started.
func (p *Partitions) get(t *metadata.Topic, mp metadata.Partition) *Partition {
	id := mp.Group()
	p.mu.RLock()
	part := p.parts[id]
	p.mu.RUnlock()
	if part != nil {
		return part
	}
	p.mu.Lock()
	if part = p.parts[id]; part == nil {
		part = p.enter(t, mp)
	}
	p.mu.Unlock()
	return part
}

// enter adds a partition and has it started. The mutex is held.
func (p *Partitions) enter(t *metadata.Topic, mp metadata.Partition) *Partition {
	part := &Partition{Stream: t.Stream, Topic: t.ID, ID: mp.ID, Group: mp.Group(), created: mp.Created, ready: make(chan struct{})}
	p.parts[part.Group] = part
	cfg := t.Config
	p.spawn(func() { p.start(part, cfg, mp) })
	return part
}

// find is the partition of a group that runs here or is being started; nil when there is none.
func (p *Partitions) find(id replica.GroupID) *Partition {
	p.mu.RLock()
	part := p.parts[id]
	p.mu.RUnlock()
	if part != nil || id == replica.MetadataGroup {
		return part
	}
	// The catalog may name it, and the comparison has not come to it yet.
	cat := p.cfg.Metadata.Catalog()
	for t, mp := range cat.Partitions() {
		if mp.Group() == id {
			return p.get(t, mp)
		}
	}
	return nil
}

// spawn runs f on a worker; false when closing.
func (p *Partitions) spawn(f func()) bool {
	if p.ctx.Err() != nil {
		return false
	}
	p.wg.Add(1)
	go func() {
		defer p.wg.Done()
		select {
		case p.slots <- struct{}{}:
			defer func() { <-p.slots }()
			f()
		case <-p.ctx.Done():
		}
	}()
	return true
}

func (p *Partitions) run() {
	defer p.wg.Done()
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.wake:
		case <-retry.C:
		}
		// Before the bootstrap the catalog says nothing of what is on the disk.
		cat := p.cfg.Metadata.Catalog()
		if !cat.Bootstrapped() {
			continue
		}
		retry.Stop()
		if p.compare(cat) {
			retry.Reset(retryStart)
		}
	}
}

// compare starts and stops groups as the catalog has it. True asks for another
// look: a partition could not be started.
func (p *Partitions) compare(cat *metadata.Catalog) (failed bool) {
	wanted := make(map[replica.GroupID]struct{}, cat.PartitionCount())
	var gone []*Partition
	now := time.Now()
	p.mu.Lock()
	for t, mp := range cat.Partitions() {
		id := mp.Group()
		wanted[id] = struct{}{}
		part := p.parts[id]
		if part != nil && part.failed() {
			if now.Before(part.retryAt) {
				failed = true
				continue
			}
			part = nil
		}
		if part == nil {
			p.enter(t, mp)
		}
	}
	for id, part := range p.parts {
		// A newer catalog than ours may have made it.
		if _, ok := wanted[id]; !ok && part.created <= cat.Index() {
			delete(p.parts, id)
			gone = append(gone, part)
		}
	}
	sweep := !p.swept
	p.swept = true
	p.mu.Unlock()
	for _, part := range gone {
		p.spawn(func() { p.stop(part) })
	}
	if sweep {
		p.spawn(func() { p.sweep(wanted, cat.Index()) })
	}
	return failed
}

// failed reports whether a start was given up.
func (part *Partition) failed() bool {
	select {
	case <-part.ready:
		return part.err != nil
	default:
		return false
	}
}

// running gives the group when it has started.
func (part *Partition) running() bool {
	select {
	case <-part.ready:
		return part.err == nil
	default:
		return false
	}
}

// wait waits until the partition is running.
func (part *Partition) wait(ctx context.Context, limit time.Duration) bool {
	if part.running() {
		return true
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-part.ready:
		return part.err == nil
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

// Machine is the partition's state machine; nil while it is not running.
func (part *Partition) Machine() *partition.Replica {
	if !part.running() {
		return nil
	}
	return part.machine
}

// dir of a partition, relative to the node's.
func (part *Partition) dir() string {
	return path.Join(StreamsDir, strconv.FormatUint(uint64(part.Stream), 10), topicsDir, strconv.FormatUint(uint64(part.Topic), 10),
		partitionsDir, fmt.Sprintf("%d-%d", part.ID, part.created))
}

func (p *Partitions) start(part *Partition, cfg wire.TopicOptions, mp metadata.Partition) {
	defer close(part.ready)
	machine := partition.New(partition.Config{
		Stream: part.Stream, Topic: part.Topic, Partition: part.ID, Clock: p.cfg.Clock,
		Clients: p.cfg.Clients, OffsetKeys: p.cfg.OffsetKeys,
	})
	dir := path.Join(p.cfg.Dir, part.dir())
	err := p.makeDir(dir)
	var g *replica.Group
	if err == nil {
		g, err = p.cfg.Host.StartGroup(p.ctx, replica.GroupConfig{
			ID: part.Group, Dir: dir, Voters: voters(mp.Members), SegmentBytes: int64(cfg.SegmentSize),
			Persisted:      cfg.Durability == wire.DurabilityPersisted,
			PersistControl: cfg.ConsumerOffsetDurability == wire.DurabilityPersisted,
			Preferred:      p.first(mp) == p.cfg.Node, Machine: machine,
		})
	}
	if err == nil && len(mp.Members) == 1 {
		// With others a group may go without a leader for long, and what is asked of it then waits or is refused.
		ctx, cancel := context.WithTimeout(p.ctx, 10*time.Second)
		err = g.WaitReady(ctx)
		cancel()
	}
	part.group, part.machine, part.err = g, machine, err
	if err == nil {
		return
	}
	part.retryAt = time.Now().Add(retryStart)
	if p.ctx.Err() != nil {
		return
	}
	p.failed.Log(p.cfg.Logger.Error, "partition could not be started", "stream", part.Stream, "topic", part.Topic, "partition", part.ID, "error", err)
	if g != nil {
		// It runs and has no leader: the next attempt begins anew.
		if err := p.cfg.Host.StopGroup(p.ctx, part.Group, false); err != nil {
			p.cfg.Logger.Warn("partition could not be stopped", "stream", part.Stream, "topic", part.Topic, "partition", part.ID, "error", err)
		}
	}
	p.nudge()
}

// first is the node that is to lead a partition that nobody has led yet: the
// preferred one, or when that is not alive the next of its members that is, so
// that the partition need not wait for an election.
func (p *Partitions) first(mp metadata.Partition) uint64 {
	preferred := cluster.NodeID(mp.Preferred)
	if p.cfg.Alive == nil {
		return preferred
	}
	at := max(0, slices.Index(mp.Members, mp.Preferred))
	for i := range mp.Members {
		if id := cluster.NodeID(mp.Members[(at+i)%len(mp.Members)]); id == p.cfg.Node || p.cfg.Alive(id) {
			return id
		}
	}
	return preferred
}

// voters are the node ids of a partition's members.
func voters(members []uint8) []uint64 {
	ids := make([]uint64, len(members))
	for i, m := range members {
		ids[i] = cluster.NodeID(m)
	}
	return ids
}

// stop ends a deleted partition and deletes its files.
func (p *Partitions) stop(part *Partition) {
	select {
	case <-part.ready:
	case <-p.ctx.Done():
		return
	}
	var err error
	if part.err == nil {
		err = p.cfg.Host.StopGroup(p.ctx, part.Group, true)
	}
	if err == nil {
		err = p.remove(path.Join(p.cfg.Dir, part.dir()))
	}
	if err == nil {
		p.cfg.Host.Forget(part.Group) // of one that could not start the host has heard nothing yet
	}
	if err != nil && p.ctx.Err() == nil {
		// What is left goes at the next start.
		p.cfg.Logger.Warn("files of a deleted partition could not be removed", "stream", part.Stream, "topic", part.Topic, "partition", part.ID, "error", err)
	}
}

// remove deletes a partition's directory and those above it that are empty now.
func (p *Partitions) remove(dir string) error {
	if err := p.cfg.FS.RemoveAll(dir); err != nil && !vfs.IsNotExist(err) {
		return err
	}
	p.dirs.Lock()
	defer p.dirs.Unlock()
	top := path.Join(p.cfg.Dir, StreamsDir)
	for up := path.Dir(dir); up != top && strings.HasPrefix(up, top); up = path.Dir(up) {
		entries, err := p.cfg.FS.List(up)
		if err != nil || len(entries) > 0 || p.cfg.FS.Remove(up) != nil {
			break
		}
	}
	return nil
}

// makeDir makes the directory of a partition. Ids of streams and topics are used
// again, so the ones above it may be going at the same moment, with the partition
// that was in them before.
func (p *Partitions) makeDir(dir string) error {
	p.dirs.Lock()
	defer p.dirs.Unlock()
	_, err := vfs.MakeDirs(p.cfg.FS, dir)
	return err
}

// sweep deletes the directories of partitions that were deleted while nobody
// could remove their files. A catalog says nothing of what was made after it: a
// node that starts in a cluster has an old one until it hears from the others.
// Such directories are looked at again with the next catalog.
//
// The host forgets the votes and the suspicion of these groups. It also forgets
// groups without a directory: a crash can come between the removal of the files
// and what the host writes of it, and a suspicion that nobody can clear would
// have the node pass for suspect for good.
func (p *Partitions) sweep(wanted map[replica.GroupID]struct{}, known uint64) {
	younger := false
	defer func() {
		if younger {
			p.mu.Lock()
			p.swept = false
			p.mu.Unlock()
		}
	}()
	used := func(group replica.GroupID) bool {
		p.mu.RLock()
		_, known := p.parts[group]
		p.mu.RUnlock()
		_, ok := wanted[group]
		// One that runs is being deleted at this moment, by its own stop.
		return ok || known || p.cfg.Host.Group(group) != nil
	}
	failed := map[replica.GroupID]struct{}{}
	root := path.Join(p.cfg.Dir, StreamsDir)
	for _, s := range p.list(root) {
		for _, t := range p.list(path.Join(root, s, topicsDir)) {
			parts := path.Join(root, s, topicsDir, t, partitionsDir)
			for _, name := range p.list(parts) {
				id, created, ok := strings.Cut(name, "-")
				n, err1 := strconv.ParseUint(id, 10, 32)
				at, err2 := strconv.ParseUint(created, 10, 64)
				if !ok || err1 != nil || err2 != nil {
					continue // not ours
				}
				if at > known {
					younger = true
					continue
				}
				group := replica.PartitionGroup(at, uint32(n))
				if used(group) {
					continue
				}
				if err := p.remove(path.Join(parts, name)); err != nil {
					p.cfg.Logger.Warn("leftover of a deleted partition could not be removed", "dir", path.Join(parts, name), "error", err)
					failed[group] = struct{}{}
					continue
				}
				p.cfg.Logger.Info("leftover of a deleted partition removed", "dir", path.Join(parts, name))
			}
		}
	}
	for _, group := range p.cfg.Host.Remembered() {
		if _, there := failed[group]; there || group == replica.MetadataGroup || group.Created() > known || used(group) {
			continue
		}
		p.cfg.Host.Forget(group)
	}
}

// list names the directories in dir; none when it cannot be read.
func (p *Partitions) list(dir string) []string {
	entries, err := p.cfg.FS.List(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if e.Dir {
			out = append(out, e.Name)
		}
	}
	return out
}

// each walks the running partitions, in no order.
func (p *Partitions) each(f func(*Partition)) {
	p.mu.RLock()
	list := make([]*Partition, 0, len(p.parts))
	for _, part := range p.parts {
		list = append(list, part)
	}
	p.mu.RUnlock()
	for _, part := range list {
		if part.running() {
			f(part)
		}
	}
}
