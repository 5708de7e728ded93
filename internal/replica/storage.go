package replica

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/whippetmq/whippet/internal/segment"
)

// storage is what raft reads of a group's log (raft.Storage). Shard goroutine only.
type storage struct {
	g     *Group
	start *raftpb.HardState
	conf  *raftpb.ConfState

	// recent are the entries that were handed to the log and are not applied yet, as raft made them: raft reads each of
	// them once more to have it applied, and gets the same memory. Chunks are in order, without a gap.
	recent []chunk
}

// chunk is a run of entries from one Ready. Raft never changes the slice.
type chunk struct {
	first   uint64
	entries []*raftpb.Entry
}

// InitialState implements raft.Storage.
func (s *storage) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	return s.start, s.conf, nil
}

// FirstIndex implements raft.Storage.
func (s *storage) FirstIndex() (uint64, error) { return s.g.log.FirstIndex(), nil }

// LastIndex implements raft.Storage.
func (s *storage) LastIndex() (uint64, error) { return s.g.log.LastIndex(), nil }

// Term implements raft.Storage.
func (s *storage) Term(i uint64) (uint64, error) {
	term, err := s.g.log.Term(i)
	switch {
	case errors.Is(err, segment.ErrTrimmed):
		return 0, raft.ErrCompacted
	case errors.Is(err, segment.ErrOutOfRange):
		return 0, raft.ErrUnavailable
	}
	return term, err
}

// Snapshot implements raft.Storage.
func (s *storage) Snapshot() (*raftpb.Snapshot, error) { return s.g.snapshot() }

// Entries implements raft.Storage.
func (s *storage) Entries(lo, hi, maxBytes uint64) ([]*raftpb.Entry, error) {
	if es := s.fromRecent(lo, hi); es != nil {
		return limitBytes(es, maxBytes), nil
	}
	limit := int(min(maxBytes, 1<<30))
	found, err := s.g.log.Entries(lo, hi, limit)
	switch {
	case errors.Is(err, segment.ErrTrimmed):
		return nil, raft.ErrCompacted
	case errors.Is(err, segment.ErrOutOfRange):
		return nil, raft.ErrUnavailable
	case err != nil:
		return nil, fmt.Errorf("replica: group %s: read entries %d to %d: %w", s.g.cfg.ID, lo, hi, err)
	}
	// Two slabs instead of three allocations an entry.
	entries := make([]raftpb.Entry, len(found))
	numbers := make([]uint64, 2*len(found))
	es := make([]*raftpb.Entry, len(found))
	for i := range found {
		e := &entries[i]
		numbers[2*i], numbers[2*i+1] = found[i].Term, found[i].Index
		e.Term, e.Index = &numbers[2*i], &numbers[2*i+1]
		if kind, body, ok := segment.ParseControl(found[i].Data); ok && kind == segment.KindConfChange {
			e.Type, e.Data = raftpb.EntryConfChangeV2.Enum(), body
		} else {
			e.Data = found[i].Data
		}
		es[i] = e
	}
	return es, nil
}

// fromRecent returns the entries lo..hi-1 when all of them are there, nil otherwise. Within one chunk, which is the case
// of a group that keeps up, nothing is copied.
func (s *storage) fromRecent(lo, hi uint64) []*raftpb.Entry {
	if len(s.recent) == 0 || lo < s.recent[0].first {
		return nil
	}
	var joined []*raftpb.Entry
	for _, c := range s.recent {
		end := c.first + uint64(len(c.entries))
		if end <= lo {
			continue
		}
		part := c.entries[lo-c.first : min(hi, end)-c.first]
		if joined == nil && hi <= end {
			return part[:len(part):len(part)]
		}
		if joined == nil {
			joined = make([]*raftpb.Entry, 0, hi-lo)
		}
		joined = append(joined, part...)
		lo = end
		if lo >= hi {
			return joined
		}
	}
	return nil
}

// limitBytes cuts the slice at maxBytes of encoded entries, but leaves one.
func limitBytes(es []*raftpb.Entry, maxBytes uint64) []*raftpb.Entry {
	var size uint64
	for i, e := range es {
		size += uint64(len(e.Data)) + 32 // more than the encoded form's overhead
		if size > maxBytes && i > 0 {
			return es[:i:i]
		}
	}
	return es
}

// appended says that the entries were placed in the log.
func (s *storage) appended(es []*raftpb.Entry) {
	first := es[0].GetIndex()
	for n := len(s.recent); n > 0; n-- {
		c := &s.recent[n-1]
		if c.first+uint64(len(c.entries)) <= first {
			break
		}
		if c.first < first {
			c.entries = c.entries[:first-c.first]
			break
		}
		*c = chunk{}
		s.recent = s.recent[:n-1]
	}
	s.recent = append(s.recent, chunk{first, es})
}

// applied lets go of the entries up to index.
func (s *storage) applied(index uint64) {
	n := 0
	for n < len(s.recent) && s.recent[n].first+uint64(len(s.recent[n].entries))-1 <= index {
		n++
	}
	if n == 0 {
		return
	}
	rest := copy(s.recent, s.recent[n:])
	clear(s.recent[rest:])
	s.recent = s.recent[:rest]
}

// toLog is the entry as the log stores it.
func toLog(e *raftpb.Entry) segment.Entry {
	data := e.GetData()
	if e.GetType() != raftpb.EntryNormal {
		data = segment.AppendControl(nil, segment.KindConfChange, data)
	}
	return segment.Entry{Index: e.GetIndex(), Term: e.GetTerm(), Data: data}
}

// The applied state of a checkpoint is framed by what the host itself needs:
//
//	0  1  version (1)
//	1  8  term of the entry at the checkpoint's index
//	9  4  length of the configuration
//	13 n  configuration, raft's ConfState
//	.. m  the Machine's state
const checkpointVersion = 1

var errBadCheckpoint = errors.New("damaged checkpoint")

func appendCheckpoint(dst []byte, term uint64, conf *raftpb.ConfState) ([]byte, error) {
	c, err := proto.MarshalOptions{Deterministic: true}.Marshal(conf)
	if err != nil {
		return dst, err
	}
	dst = append(dst, checkpointVersion)
	dst = le.AppendUint64(dst, term)
	dst = le.AppendUint32(dst, uint32(len(c)))
	return append(dst, c...), nil
}

func decodeCheckpoint(b []byte) (term uint64, conf *raftpb.ConfState, state []byte, err error) {
	if len(b) > 0 && b[0] != checkpointVersion {
		// The checksum of the file was right: this is no damage.
		return 0, nil, nil, &segment.VersionError{File: "the state in a checkpoint", Version: b[0], Known: checkpointVersion}
	}
	if len(b) < 13 {
		return 0, nil, nil, fmt.Errorf("%w: unknown form", errBadCheckpoint)
	}
	term = le.Uint64(b[1:])
	n := le.Uint32(b[9:])
	if uint64(n) > uint64(len(b)-13) {
		return 0, nil, nil, fmt.Errorf("%w: too short for its configuration", errBadCheckpoint)
	}
	conf = &raftpb.ConfState{}
	if err := proto.Unmarshal(b[13:13+n], conf); err != nil {
		return 0, nil, nil, fmt.Errorf("%w: configuration: %w", errBadCheckpoint, err)
	}
	return term, conf, b[13+n:], nil
}
