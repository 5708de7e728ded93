package replica

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/whippetmq/whippet/internal/vfs"
)

// ErrOutdated says that a node presents a directory that is not the newest that was seen of it: it was emptied, or an
// older copy was put back. The node must hear of it (Host.Outdated) and may come back as suspect.
var ErrOutdated = errors.New("replica: the node's directory is not the newest that was seen of it")

// peers.meta holds the newest identity that was seen of every other node. It is replaced as a whole.
//
//	 0  8  magic "WPPEER\0\1" (last byte = format version)
//	 8  4  number of nodes
//	12  4  zero
//	16  n  40 each: node (8), directory (16), starts (8), run (8); ascending by node
//	..  8  XXH3-64 of everything before
const (
	peersName   = "peers.meta"
	peersMagic  = 0x01_00_52_45_45_50_50_57 // "WPPEER\0\1" read little-endian
	peersHeader = 16
	peersRecord = 40
	peersMax    = 1 << 20
)

// peers remembers the other nodes durably.
type peers struct {
	fs   vfs.FS
	dir  string
	path string

	mu    sync.Mutex
	known map[uint64]Peer
}

func openPeers(cfg *Config) (*peers, error) {
	p := &peers{fs: cfg.FS, dir: cfg.Dir, path: filepath.Join(cfg.Dir, peersName), known: map[uint64]Peer{}}
	b, err := vfs.ReadFile(p.fs, p.path, peersMax)
	switch {
	case vfs.IsNotExist(err):
		return p, nil
	case err != nil:
		return nil, fmt.Errorf("replica: read %s: %w", peersName, err)
	}
	p.known, err = decodePeers(p.path, b)
	return p, err
}

func encodePeers(known map[uint64]Peer) []byte {
	b := make([]byte, peersHeader, peersHeader+peersRecord*len(known)+8)
	le.PutUint64(b, peersMagic)
	le.PutUint32(b[8:], uint32(len(known)))
	for _, node := range slices.Sorted(maps.Keys(known)) {
		k := known[node]
		b = le.AppendUint64(b, node)
		b = append(b, k.Directory[:]...)
		b = le.AppendUint64(b, k.Starts)
		b = le.AppendUint64(b, k.Run)
	}
	return le.AppendUint64(b, xxh3.Hash(b))
}

func decodePeers(path string, b []byte) (map[uint64]Peer, error) {
	if err := checkMagic(path, b, peersMagic); err != nil {
		return nil, err
	}
	switch {
	case len(b) < peersHeader+8:
		return nil, &CorruptError{path, fmt.Sprintf("%d bytes", len(b))}
	case le.Uint64(b[len(b)-8:]) != xxh3.Hash(b[:len(b)-8]):
		return nil, &CorruptError{path, "checksum differs"}
	case uint64(len(b)) != peersHeader+8+peersRecord*uint64(le.Uint32(b[8:])):
		return nil, &CorruptError{path, "length does not fit the number of nodes"}
	}
	known := map[uint64]Peer{}
	for r := b[peersHeader : len(b)-8]; len(r) > 0; r = r[peersRecord:] {
		k := Peer{Node: le.Uint64(r), Directory: [16]byte(r[8:]), Starts: le.Uint64(r[24:]), Run: le.Uint64(r[32:])}
		known[k.Node] = k
	}
	return known, nil
}

// admit checks a node against what is remembered of it, and remembers it durably.
func (p *peers) admit(id Peer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, seen := p.known[id.Node]
	switch {
	case !seen:
	case id.Directory != before.Directory:
		if !id.Suspect {
			return fmt.Errorf("%w: node %d has the directory %x, known is %x", ErrOutdated, id.Node, id.Directory, before.Directory)
		}
	case id.Starts < before.Starts:
		return fmt.Errorf("%w: node %d presents start %d of its directory, start %d was seen", ErrOutdated, id.Node, id.Starts, before.Starts)
	case id.Starts == before.Starts && id.Run != before.Run:
		return fmt.Errorf("%w: node %d presents start %d of its directory, which another process has already made", ErrOutdated, id.Node, id.Starts)
	case id.Starts == before.Starts:
		return nil
	}
	known := maps.Clone(p.known)
	known[id.Node] = Peer{Node: id.Node, Directory: id.Directory, Starts: id.Starts, Run: id.Run}
	f, _, err := replaceFile(p.fs, p.dir, p.path, encodePeers(known))
	if err != nil {
		return fmt.Errorf("replica: write %s: %w", peersName, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("replica: write %s: %w", peersName, err)
	}
	p.known = known
	return nil
}

// AdmitPeer decides whether a node that presents itself (either side may have dialled) is the one that is known under its
// id, and remembers it durably. It is called in every hello, before any message of that node is looked at; any error
// refuses the connection. The node that is refused with ErrOutdated must hear of that. Any goroutine.
func (h *Host) AdmitPeer(p Peer) error {
	if p.Node == 0 || p.Node == h.cfg.NodeID {
		return fmt.Errorf("replica: node id %d of a peer", p.Node)
	}
	return h.peers.admit(p)
}

// Self is what this node says of itself in every hello. It changes when the node learns that it is outdated, and when it
// is not suspect any more. Any goroutine.
func (h *Host) Self() Peer {
	h.identityMu.Lock()
	id := h.identity
	h.identityMu.Unlock()
	return Peer{Node: h.cfg.NodeID, Directory: id.Directory, Starts: id.Starts, Run: id.Run, Suspect: h.suspects.any(), Shards: h.cfg.Shards}
}
