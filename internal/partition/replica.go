package partition

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/internal/clock"
	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/wire"
)

// Defaults of Config.
const (
	// DefaultForgetAfter is how long the requests of an unused client are remembered at least (routing G2).
	DefaultForgetAfter = 10 * time.Minute
	// DefaultFolded bounds the offset writes of one loop turn, which go into one entry.
	DefaultFolded = 1 << 16
)

// maxOffset bounds offsets, so that they fit the outcome of a remembered request.
const maxOffset = math.MaxInt64

// Config describes one partition. Zero limits take the defaults.
type Config struct {
	Stream, Topic, Partition uint32 // numeric ids; Partition is stamped into batches
	Clock                    clock.Clock

	Clients     int           // remembered (client, user) pairs; DefaultClients
	OffsetKeys  int           // stored offsets per kind; DefaultOffsetKeys
	ForgetAfter time.Duration // DefaultForgetAfter
	Folded      int           // offset writes per turn; DefaultFolded

	window int // ids a dedup row remembers; RememberedIDs except in tests
}

// InvariantError says that a committed entry does not continue the state. The replica must stop: it applies nothing more
// and keeps its files for whoever repairs it.
type InvariantError struct {
	Stream, Topic, Partition uint32
	Index, Term              uint64 // of the entry
	What                     string
	Err                      error // may be nil
}

func (e *InvariantError) Error() string {
	s := fmt.Sprintf("partition %d/%d/%d: entry %d of term %d: %s", e.Stream, e.Topic, e.Partition, e.Index, e.Term, e.What)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *InvariantError) Unwrap() error { return e.Err }

// StatusOf is the protocol's status of a request's Err: 0 for nil, the code itself where Err is one, 58 where the request
// never entered the log, 4010 where the disk is full, else 57.
func StatusOf(err error) wire.ErrorCode {
	var code wire.ErrorCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return code
	case errors.Is(err, replica.ErrDiskFull):
		return wire.ErrCannotAppendMessage
	case errors.Is(err, replica.ErrNotAdmitted), errors.Is(err, replica.ErrNotLeader):
		return wire.ErrTransientNotAccepted
	default:
		return wire.ErrTransientNotCommitted
	}
}

// Replica is the state machine of one partition on one node (replica.Machine). See the package's doc for who may call what.
type Replica struct {
	cfg    Config
	forget uint64 // Config.ForgetAfter in µs
	log    atomic.Pointer[segment.Log]

	// What other goroutines see of the applied state.
	next       atomic.Uint64 // offset of the next message = first offset that a poll must not see
	keep       atomic.Uint64 // lowest offset kept by trims
	generation atomic.Uint64 // stored after next, read before it: see Poll

	offsets offsetTable

	// Everything below belongs to the shard's goroutine.

	state state // applied
	dedup dedupTable

	leading   bool
	fenced    bool
	admitNext uint64 // offset that the next batch gets
	admitTime uint64 // newest entry time given
	writing   int    // offset writes in flight or kept for Fold: while there are any, the applied offsets do not decide
	purging   bool   // a purge is in flight
	forgotAt  uint64 // entry time of the last forget record that this primary proposed
	crowded   bool   // a client was admitted on credit of rows that are to be forgotten

	fold folder
	tick ticker
}

var _ replica.Machine = (*Replica)(nil)

// New returns an empty partition; Restore gives it its log.
func New(cfg Config) *Replica {
	if cfg.Clients <= 0 {
		cfg.Clients = DefaultClients
	}
	if cfg.OffsetKeys <= 0 {
		cfg.OffsetKeys = DefaultOffsetKeys
	}
	if cfg.ForgetAfter <= 0 {
		cfg.ForgetAfter = DefaultForgetAfter
	}
	if cfg.Folded <= 0 {
		cfg.Folded = DefaultFolded
	}
	if cfg.window <= 0 {
		cfg.window = RememberedIDs
	}
	p := &Replica{cfg: cfg, forget: uint64(cfg.ForgetAfter.Microseconds())}
	p.dedup = p.emptyTable()
	return p
}

func (p *Replica) emptyTable() dedupTable {
	t := newDedupTable(p.cfg.Clients, p.forget)
	t.window = p.cfg.window
	return t
}

// Restore starts from a checkpoint (nil = none was ever written) of the state at index; entries behind it follow through
// Apply.
func (p *Replica) Restore(log *segment.Log, checkpoint []byte, index uint64) error {
	dedup := p.emptyTable()
	var s state
	var stored map[offsetKey]uint64
	if checkpoint != nil {
		var err error
		if s, stored, err = decodeCheckpoint(checkpoint, &dedup); err != nil {
			return fmt.Errorf("restore partition %d/%d/%d at index %d: %w", p.cfg.Stream, p.cfg.Topic, p.cfg.Partition, index, err)
		}
	}
	p.log.Store(log)
	if log != nil {
		log.Trim(s.keep)
	}
	p.state, p.dedup = s, dedup
	p.offsets.reset(stored)
	p.stopLeading()
	p.fenced = false
	p.publish()
	return nil
}

// Checkpoint appends the applied state to dst.
func (p *Replica) Checkpoint(dst []byte) []byte {
	return appendCheckpoint(dst, p.state, &p.offsets, &p.dedup)
}

func (p *Replica) publish() {
	p.keep.Store(p.state.keep)
	p.next.Store(p.state.next)
	p.generation.Store(p.state.generation)
}

// Lead starts or ends admission on this node.
func (p *Replica) Lead(_ uint64, leading bool) {
	p.stopLeading()
	if !leading || p.fenced {
		return
	}
	// Everything older is applied, so the log and the state end at the same offset. If they do not, numbering would tear
	// the partition apart: nothing is admitted, and the next Apply reports it.
	p.admitNext = p.state.next
	if log := p.log.Load(); log != nil && log.NextOffset() != p.admitNext {
		p.fenced = true
		return
	}
	p.leading = true
	p.admitTime = p.state.stamp
}

// stopLeading throws the admission state away. Requests in flight have their waiters in the host, which ends them.
func (p *Replica) stopLeading() {
	p.leading = false
	p.dedup.ground()
	p.writing = 0
	p.purging = false
	p.crowded = false
	p.forgotAt = 0
	for _, w := range p.fold.drop() {
		w.Fail(replica.ErrNotAdmitted) // was never proposed
	}
}

// entryTime is the time that an entry proposed now gets: never below that of an older one, whichever node gave it.
func (p *Replica) entryTime() uint64 { return max(p.cfg.Clock.Now(), p.admitTime) }

// Admit decides on a request on the primary (engine §3). It returns the batch to propose, or nil when the request is
// answered or kept for Fold.
func (p *Replica) Admit(r replica.Request) []byte {
	switch r := r.(type) {
	case *Send:
		return p.admitSend(r)
	case *OffsetWrite:
		p.admitWrite(r)
	case *Cut:
		return p.admitCut(r)
	default:
		r.Fail(replica.ErrNotAdmitted)
	}
	return nil
}

func (p *Replica) admitSend(s *Send) []byte {
	if !p.leading || s.Fence != nil && s.Fence.Load() {
		s.Fail(replica.ErrNotAdmitted)
		return nil
	}
	if !segment.IsData(s.Batch) {
		s.Fail(wire.ErrInvalidCommand)
		return nil
	}
	s.count = segment.MessageCount(s.Batch)
	if s.count == 0 || uint64(s.count) > maxOffset-p.admitNext {
		s.Fail(wire.ErrInvalidCommand)
		return nil
	}
	now := p.entryTime()
	if s.Request != 0 {
		switch v, o := p.decide(identity{s.Client, s.User}, s.Request, now); v {
		case admit:
		case duplicate:
			s.Duplicate = true
			if o.isWrite() {
				s.NoPosition = true
			} else {
				s.BaseOffset = o.base()
			}
			s.finish()
			return nil
		case unknown:
			s.Fail(wire.ErrTransientNotCommitted)
			return nil
		case refuse:
			s.Fail(replica.ErrNotAdmitted)
			return nil
		}
	}
	// Nothing may come between stamp and proposal, so that offsets have no holes.
	s.BaseOffset = p.admitNext
	s.Timestamp = now
	if s.summed {
		s.Batch.StampFrom(&s.sums, p.cfg.Partition, s.BaseOffset, now)
	} else {
		s.Batch.Stamp(p.cfg.Partition, s.BaseOffset, now)
	}
	segment.PutOrigin(s.Batch, segment.Origin{
		ClientLo: s.Client.Lo, ClientHi: s.Client.Hi, Request: s.Request, User: s.User,
	})
	p.admitNext += uint64(s.count)
	p.admitTime = now
	return s.Batch
}

func (p *Replica) decide(id identity, request, now uint64) (verdict, outcome) {
	v, o := p.dedup.admit(id, request, now)
	if v == admit && len(p.dedup.rows) > p.dedup.clients {
		p.crowded = true
	}
	return v, o
}

// Rejected undoes the admission of requests that were not proposed after all, newest first (engine §10, trap 1).
func (p *Replica) Rejected(rs []replica.Request) {
	if !p.leading {
		return
	}
	for _, r := range rs {
		switch r := r.(type) {
		case *Send:
			p.admitNext -= uint64(r.count)
			if r.Request != 0 {
				p.dedup.undo(identity{r.Client, r.User}, r.Request)
			}
		case *OffsetWrite:
			p.writing--
			if r.Request != 0 {
				p.dedup.undo(identity{r.Client, r.User}, r.Request)
			}
		case *Cut:
			if r.Kind == PurgeAll {
				p.admitNext, p.purging = r.before, false
			}
		}
	}
}
