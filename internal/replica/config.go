package replica

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"time"

	"github.com/whippetmq/whippet/internal/clock"
	"github.com/whippetmq/whippet/internal/vfs"
)

// Config is the configuration of a Host. Fields without a word on zero must be set.
type Config struct {
	FS        vfs.FS
	Dir       string   // the node's directory: node.meta, votes.log, the lock, the ballast
	NodeID    uint64   // replica id + 1
	ClusterID [16]byte // of the cluster's name
	BootID    string   // of the running kernel; empty = read from the system
	Clock     clock.Clock
	Rand      io.Reader    // for the directory id; nil = crypto/rand
	Logger    *slog.Logger // nil = nothing is logged
	Transport Transport    // nil = no other nodes
	Bulk      Bulk         // nil = the Transport, if it is one; else replicas cannot be filled by copying

	Shards        int           // of partitions, besides the one of the metadata; 0 = GOMAXPROCS
	Tick          time.Duration // 0 = 100 ms
	ElectionTicks int           // election timeout in ticks; 0 = 10
	CacheBytes    int64         // tail cache per shard; 0 = 128 MiB over all, between 16 and 32 MiB for each

	// MaxOpenFiles bounds the open segment files of the node. A file with bytes that were not flushed is open: with more
	// such files at a time each one more costs a flush. 0 = 1024.
	MaxOpenFiles int
	// IndexBytes bounds the sparse indexes of sealed segments in memory. 0 = 64 MiB.
	IndexBytes int64

	// MaxEntryBytes bounds the data of one entry. 0 = 64 MiB + 256.
	MaxEntryBytes int
	// MaxGroupBytes bounds the requests of one group that are submitted and have no outcome yet. Above it Submit waits; a
	// single larger request is let in when there is no other. 0 = 32 MiB.
	MaxGroupBytes int64
	// MaxShardBytes bounds the same for all groups of a shard. 0 = 256 MiB.
	MaxShardBytes int64
	// MaxShardRequests bounds their number. 0 = 65536.
	MaxShardRequests int
	// MaxUncommittedBytes is raft's bound of a leader's entries that are not committed, above which it refuses proposals;
	// with MaxGroupBytes below it, only entries that nobody waits for any more can reach it. 0 = 64 MiB.
	MaxUncommittedBytes int64
	// MaxPeerBytes bounds the messages of other nodes that wait in a shard's inbox; more are dropped, which raft allows.
	// 0 = 64 MiB.
	MaxPeerBytes int64

	// BallastBytes is what a file in Dir keeps occupied, to be given back when the disk is full, so that what is in
	// raft's hands and what keeps a group alive can still be written. 0 = 64 MiB, but never more than an eighth of the
	// disk; negative = none.
	BallastBytes int64
	// ReserveBytes is the free space below which requests are refused with ErrDiskFull. 0 = 16 MiB, but never more than
	// a 32nd of the disk; negative = none.
	ReserveBytes int64

	// CheckpointBytes is the log between two checkpoints of a group. 0 = 64 MiB.
	CheckpointBytes int64

	// Transfers bounds the groups that this node offers for copying at a time, the ones that it fills, and the questions
	// that it answers. 0 = 8.
	Transfers int
	// TransferDeadline is how long an offer keeps the log from being deleted; a copy that is not done then goes on with a
	// new offer. 0 = 10 min.
	TransferDeadline time.Duration

	// Manual starts no goroutines: whoever opened the host calls Host.Turn until it reports false. For simulations, in
	// which nothing may wait for another goroutine.
	Manual bool
}

func (c *Config) setDefaults() error {
	switch {
	case c.FS == nil:
		return errors.New("replica: no file system")
	case c.Dir == "":
		return errors.New("replica: no directory")
	case c.NodeID == 0:
		return errors.New("replica: node id 0")
	case c.Clock == nil:
		return errors.New("replica: no clock")
	case c.Shards < 0:
		return fmt.Errorf("replica: %d shards", c.Shards)
	}
	setDefault(&c.Shards, runtime.GOMAXPROCS(0))
	setDefault(&c.Tick, 100*time.Millisecond)
	setDefault(&c.ElectionTicks, 10)
	setDefault(&c.CacheBytes, min(max(128<<20/int64(c.Shards), 16<<20), 32<<20))
	setDefault(&c.MaxOpenFiles, 1024)
	setDefault(&c.IndexBytes, 64<<20)
	setDefault(&c.MaxEntryBytes, 64<<20+256)
	setDefault(&c.MaxGroupBytes, 32<<20)
	setDefault(&c.MaxShardBytes, 256<<20)
	setDefault(&c.MaxShardRequests, 1<<16)
	setDefault(&c.MaxUncommittedBytes, 64<<20)
	setDefault(&c.MaxPeerBytes, 64<<20)
	setDefault(&c.CheckpointBytes, 64<<20)
	setDefault(&c.Transfers, 8)
	setDefault(&c.TransferDeadline, 10*time.Minute)
	if c.Bulk == nil {
		c.Bulk, _ = c.Transport.(Bulk)
	}
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.ElectionTicks < 2 {
		return fmt.Errorf("replica: election timeout of %d ticks, at least 2 are needed", c.ElectionTicks)
	}
	return nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// GroupConfig is the configuration of one group on this node.
type GroupConfig struct {
	ID             GroupID
	Dir            string   // the group's own directory
	Voters         []uint64 // node ids; counts only when the group is new here, then what the log says
	SegmentBytes   int64    // size at which a segment is sealed; 0 = the log's default
	ControlBytes   int64    // the same for control records; 0 = the log's default
	Persisted      bool     // every append is flushed before it is acknowledged
	PersistControl bool     // appends that carry control entries of the Machine (consumer offsets) are
	Preferred      bool     // this node is the preferred leader
	Machine        Machine
}

func (c *GroupConfig) validate() error {
	switch {
	case c.Dir == "":
		return fmt.Errorf("replica: group %s: no directory", c.ID)
	case c.Machine == nil:
		return fmt.Errorf("replica: group %s: no machine", c.ID)
	case len(c.Voters) == 0:
		return fmt.Errorf("replica: group %s: no voters", c.ID)
	}
	for _, v := range c.Voters {
		if v == 0 {
			return fmt.Errorf("replica: group %s: node id 0 among the voters", c.ID)
		}
	}
	return nil
}
