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

// suspicion says what a replica may have lost of what it told others.
type suspicion uint8

const (
	// tailLost: the log may lack entries that were acknowledged.
	tailLost suspicion = 1 << iota
	// votesLost: terms and votes may be gone too. Not even an answer to a leader is safe then, since it may be a leader
	// that this replica once voted out.
	votesLost
	// logLost: what was flushed is gone too.
	logLost
)

// suspects.meta says which groups of the node are suspect (engine §7). It is replaced as a whole; a node that never had
// reason for suspicion has none.
//
//	 0  8  magic "WPSUSP\0\1" (last byte = format version)
//	 8  1  suspicion of all groups that are not listed
//	 9  7  zero
//	16  8  groups that were created above this index of the metadata are not meant by it; 0 = no such bound yet
//	24  4  number of groups
//	28  4  zero
//	32  n  16 each: group, suspicion (1), zero (7); ascending
//	..  8  XXH3-64 of everything before
const (
	suspectsName   = "suspects.meta"
	suspectsMagic  = 0x01_00_50_53_55_53_50_57 // "WPSUSP\0\1" read little-endian
	suspectsHeader = 32
	suspectsRecord = 16
	suspectsMax    = 64 << 20
)

// suspectTable is what suspects.meta holds.
type suspectTable struct {
	all    suspicion
	bound  uint64
	groups map[GroupID]suspicion
}

func (t *suspectTable) of(id GroupID) suspicion {
	if s, there := t.groups[id]; there {
		return s
	}
	if t.bound != 0 && id != MetadataGroup && id.Created() > t.bound {
		return 0
	}
	return t.all
}

func (t *suspectTable) encode() []byte {
	b := make([]byte, suspectsHeader, suspectsHeader+suspectsRecord*len(t.groups)+8)
	le.PutUint64(b, suspectsMagic)
	b[8] = byte(t.all)
	le.PutUint64(b[16:], t.bound)
	le.PutUint32(b[24:], uint32(len(t.groups)))
	for _, id := range slices.Sorted(maps.Keys(t.groups)) {
		b = le.AppendUint64(b, uint64(id))
		b = append(b, byte(t.groups[id]), 0, 0, 0, 0, 0, 0, 0)
	}
	return le.AppendUint64(b, xxh3.Hash(b))
}

func decodeSuspects(path string, b []byte) (suspectTable, error) {
	t := suspectTable{groups: map[GroupID]suspicion{}}
	if err := checkMagic(path, b, suspectsMagic); err != nil {
		return t, err
	}
	switch {
	case len(b) < suspectsHeader+8:
		return t, &CorruptError{path, fmt.Sprintf("%d bytes", len(b))}
	case le.Uint64(b[len(b)-8:]) != xxh3.Hash(b[:len(b)-8]):
		return t, &CorruptError{path, "checksum differs"}
	case uint64(len(b)) != suspectsHeader+8+suspectsRecord*uint64(le.Uint32(b[24:])):
		return t, &CorruptError{path, "length does not fit the number of groups"}
	}
	t.all, t.bound = suspicion(b[8]), le.Uint64(b[16:])
	for r := b[suspectsHeader : len(b)-8]; len(r) > 0; r = r[suspectsRecord:] {
		t.groups[GroupID(le.Uint64(r))] = suspicion(r[8])
	}
	return t, nil
}

// suspects keeps the table of the node durably. Suspicion counts at once; its end only when it is durable.
type suspects struct {
	fs    vfs.FS
	dir   string
	path  string
	notes *backlog[suspectNote]

	saving sync.Mutex // one writer of the file at a time

	mu    sync.Mutex
	table suspectTable
	there bool // the file is
}

// suspectNote asks for a group to be sound from now on, of what it knew to be suspect for; or (g = nil) only for the table
// to be written.
type suspectNote struct {
	g     *Group
	known suspicion
}

// outdated reports whether something came up after the note was made.
func (n *suspectNote) outdated(now suspicion) bool { return now&^n.known != 0 }

// errNewSuspicion: something came up after a group asked to be sound.
var errNewSuspicion = errors.New("there is a new reason for suspicion")

// openSuspects reads the table. found are the groups that took part in votes here: after a start that may follow a loss
// of power the ends of their logs are in doubt.
func openSuspects(cfg *Config, unclean bool, found []GroupID) (*suspects, error) {
	s := &suspects{
		fs: cfg.FS, dir: cfg.Dir, path: filepath.Join(cfg.Dir, suspectsName), notes: newBacklog[suspectNote](),
		table: suspectTable{groups: map[GroupID]suspicion{}},
	}
	b, err := vfs.ReadFile(s.fs, s.path, suspectsMax)
	switch {
	case vfs.IsNotExist(err):
	case err != nil:
		return nil, fmt.Errorf("replica: read %s: %w", suspectsName, err)
	default:
		if s.table, err = decodeSuspects(s.path, b); err != nil {
			return nil, err
		}
		s.there = true
	}
	if !unclean || len(found) == 0 {
		return s, nil
	}
	for _, id := range found {
		s.table.groups[id] = s.table.of(id) | tailLost
	}
	return s, s.save()
}

func (s *suspects) of(id GroupID) suspicion {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.of(id)
}

// any reports whether this node's word is in doubt, which it says in its hello: some group is suspect, or the node knows
// that its directory is not the one that the others remember.
func (s *suspects) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.table.all != 0 {
		return true
	}
	for _, x := range s.table.groups {
		if x != 0 {
			return true
		}
	}
	return false
}

// add raises the suspicion of a group in memory.
func (s *suspects) add(id GroupID, more suspicion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.groups[id] = s.table.of(id) | more
}

// addAll raises it for all groups that exist or will be found.
func (s *suspects) addAll(more suspicion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.all |= more
	s.table.bound = 0
	clear(s.table.groups)
}

// limit says that the metadata was as long as this when the node came to know it again: groups that were created later
// cannot have been lost.
func (s *suspects) limit(index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.table.all != 0 && s.table.bound == 0 {
		s.table.bound = index
	}
}

// forget drops what is known of a deleted group, and reports whether there was anything: then the table is to be written, else
// the next start finds a suspicion that no group is left to clear.
func (s *suspects) forget(id GroupID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, there := s.table.groups[id]
	delete(s.table.groups, id)
	return there
}

// groupsOf lists the groups with an entry.
func (s *suspects) groupsOf() []GroupID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.table.groups))
}

// save writes the table durably.
func (s *suspects) save() error {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	empty := s.table.all == 0 && len(s.table.groups) == 0
	if empty && !s.there {
		s.mu.Unlock()
		return nil
	}
	b := s.table.encode()
	s.there = true
	s.mu.Unlock()
	f, _, err := replaceFile(s.fs, s.dir, s.path, b)
	if err != nil {
		return fmt.Errorf("replica: write %s: %w", suspectsName, err)
	}
	return f.Close()
}

// run makes groups sound; each hears of it when it is durable.
func (s *suspects) run(notes []suspectNote) {
	before := make([]suspicion, len(notes))
	s.mu.Lock()
	for i, n := range notes {
		if n.g == nil {
			continue
		}
		before[i] = s.table.of(n.g.cfg.ID)
		if n.outdated(before[i]) {
			continue
		}
		delete(s.table.groups, n.g.cfg.ID)
		if s.table.of(n.g.cfg.ID) != 0 {
			s.table.groups[n.g.cfg.ID] = 0
		}
	}
	s.mu.Unlock()
	err := s.save()
	if err != nil {
		s.mu.Lock()
		for i, n := range notes {
			if n.g != nil {
				s.table.groups[n.g.cfg.ID] = s.table.of(n.g.cfg.ID) | before[i]
			}
		}
		s.mu.Unlock()
	}
	for i, n := range notes {
		if n.g == nil {
			continue
		}
		result := err
		if n.outdated(before[i]) {
			result = errNewSuspicion
		}
		n.g.shard.inbox.post(item{g: n.g, ctl: &soundControl{n.g, result}})
	}
}

// groupsOf lists the groups with a vote.
func (l *votesLog) groupsOf() []GroupID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.table))
}
