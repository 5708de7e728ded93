package replica

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/whippetmq/whippet/internal/vfs"
)

// Files that every data directory of a node has: what the node is, and the lock of the process that uses it.
const (
	NodeMetaName = "node.meta"
	LockName     = "lock"
)

const bootIDPath = "/proc/sys/kernel/random/boot_id"

// Identity is what a data directory says of itself. Other nodes remember it: another Directory, or a Starts that went
// down, means that what this node once acknowledged may be gone.
type Identity struct {
	Directory [16]byte // minted when the directory was made
	Starts    uint64   // number of starts, this one included
	// Run is random and new for every process: two processes can present the same start of copies of one directory.
	Run uint64
	// Unclean says that the machine went down since the last orderly stop, or that this cannot be ruled out: what
	// `replicated` groups had not flushed may be missing.
	Unclean bool
}

// startNodeMeta reads or makes node.meta, refuses a foreign directory, and records this start durably.
func startNodeMeta(cfg *Config) (nodeMeta, Identity, error) {
	path := filepath.Join(cfg.Dir, NodeMetaName)
	boot := cfg.BootID
	if boot == "" {
		// Without a boot id every stop without the mark counts as unclean.
		if b, err := os.ReadFile(bootIDPath); err == nil {
			boot = strings.TrimSpace(string(b))
		}
	}
	if len(boot) > maxBootID {
		boot = boot[:maxBootID]
	}
	b, err := vfs.ReadFile(cfg.FS, path, 4096)
	var m nodeMeta
	var unclean bool
	switch {
	case vfs.IsNotExist(err):
		if _, err := cfg.FS.Stat(filepath.Join(cfg.Dir, votesName)); err == nil {
			return m, Identity{}, &CorruptError{path, "missing, but " + votesName + " is there"}
		} else if !vfs.IsNotExist(err) {
			return m, Identity{}, fmt.Errorf("replica: %w", err)
		}
		m.cluster, m.node = cfg.ClusterID, cfg.NodeID
		if _, err := io.ReadFull(cfg.Rand, m.directory[:]); err != nil {
			return m, Identity{}, fmt.Errorf("replica: mint a directory id: %w", err)
		}
	case err != nil:
		return m, Identity{}, fmt.Errorf("replica: read %s: %w", NodeMetaName, err)
	default:
		if m, err = decodeNodeMeta(path, b); err != nil {
			return m, Identity{}, err
		}
		if m.cluster != cfg.ClusterID {
			return m, Identity{}, &IdentityError{"cluster", cfg.Dir, hex.EncodeToString(m.cluster[:]), hex.EncodeToString(cfg.ClusterID[:])}
		}
		if m.node != cfg.NodeID {
			return m, Identity{}, &IdentityError{"node", cfg.Dir, strconv.FormatUint(m.node, 10), strconv.FormatUint(cfg.NodeID, 10)}
		}
		unclean = !m.clean && (m.boot != boot || boot == "")
	}
	m.starts++
	m.boot, m.clean = boot, false
	if err := m.save(cfg); err != nil {
		return m, Identity{}, err
	}
	var run [8]byte
	if _, err := io.ReadFull(cfg.Rand, run[:]); err != nil {
		return m, Identity{}, fmt.Errorf("replica: mint the id of this run: %w", err)
	}
	return m, Identity{Directory: m.directory, Starts: m.starts, Run: le.Uint64(run[:]) | 1, Unclean: unclean}, nil
}

func (m *nodeMeta) save(cfg *Config) error {
	f, _, err := replaceFile(cfg.FS, cfg.Dir, filepath.Join(cfg.Dir, NodeMetaName), m.encode())
	if err != nil {
		return fmt.Errorf("replica: write %s: %w", NodeMetaName, err)
	}
	return f.Close()
}

// lockDir makes the directory and takes its lock.
func lockDir(cfg *Config) (io.Closer, error) {
	changed, err := vfs.MakeDirs(cfg.FS, cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("replica: make %s: %w", cfg.Dir, err)
	}
	for _, dir := range changed {
		if err := cfg.FS.SyncDir(dir); err != nil {
			return nil, fmt.Errorf("replica: make %s: %w", cfg.Dir, err)
		}
	}
	lock, err := cfg.FS.Lock(filepath.Join(cfg.Dir, LockName))
	if locked := (*vfs.LockedError)(nil); errors.As(err, &locked) {
		return nil, fmt.Errorf("%w: %w", ErrLocked, err)
	}
	if err != nil {
		return nil, fmt.Errorf("replica: lock %s: %w", cfg.Dir, err)
	}
	return lock, nil
}
