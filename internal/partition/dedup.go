package partition

import (
	"math"
	"slices"

	"github.com/whippetmq/whippet/wire"
)

// Bounds of the dedup table (routing G2, decisions 3).
const (
	// RememberedIDs is how many request ids a row remembers exactly. All replicas must agree on it.
	RememberedIDs = 64
	// DefaultClients is how many (client, user) pairs a partition remembers by default.
	DefaultClients = 8192
	// MaxInFlight bounds the requests of one (client, user) pair that are proposed and not yet applied. Clients are
	// allowed 16 (routing D.14); more are refused as not admitted.
	MaxInFlight = 1024
	// maxOvershoot bounds how many new clients a full table takes on credit of rows that are old enough to go.
	maxOvershoot = 1024
)

// identity names who a request comes from. Sessions do not count: they change while a request is retried.
type identity struct {
	client wire.U128
	user   uint32
}

// outcome is what a remembered request did, packed into a word: the base offset of a send, or with the top bit set the
// error code of an offset write (0 = it succeeded).
type outcome uint64

const offsetWriteMark = outcome(1) << 63

func sendOutcome(base uint64) outcome          { return outcome(base) }
func writeOutcome(code wire.ErrorCode) outcome { return offsetWriteMark | outcome(code) }
func (o outcome) isWrite() bool                { return o&offsetWriteMark != 0 }
func (o outcome) base() uint64                 { return uint64(o) }
func (o outcome) code() wire.ErrorCode         { return wire.ErrorCode(uint32(o)) }
func (o outcome) valid() bool                  { return !o.isWrite() || uint64(o&^offsetWriteMark) <= math.MaxUint32 }

type remembered struct {
	request uint64
	outcome outcome
}

// dedupRow is what is known of one identity. Rows with applied state are linked in order of last use, which is the order
// of the log because entry times never decrease.
type dedupRow struct {
	id         identity
	prev, next *dedupRow // neighbours in order of use; nil for rows that only have requests in flight

	// seen holds the last window requests in commit order; once it is full it is a ring whose oldest is at head.
	// It grows as used: most rows of a busy server belong to clients that sent a few requests.
	seen  []remembered
	head  int
	floor uint64 // highest id ever dropped from seen; ids up to it that are not in seen are never executed
	top   uint64 // highest id ever remembered: an id above it is new without a search
	used  uint64 // entry time of the last use, µs
	kept  bool   // has applied state

	inflight []uint64 // ascending; admission state
}

func (r *dedupRow) find(request uint64) (outcome, bool) {
	if request > r.top {
		return 0, false
	}
	for i := range r.seen {
		if r.seen[i].request == request {
			return r.seen[i].outcome, true
		}
	}
	return 0, false
}

func (r *dedupRow) add(request uint64, o outcome, window int) {
	r.top = max(r.top, request)
	if len(r.seen) < window {
		if len(r.seen) == cap(r.seen) {
			// Doubling up to the bound, never beyond it.
			r.seen = slices.Grow(r.seen, min(max(1, len(r.seen)), window-len(r.seen)))
		}
		r.seen = append(r.seen, remembered{request, o})
		return
	}
	r.floor = max(r.floor, r.seen[r.head].request)
	r.seen[r.head] = remembered{request, o}
	r.head = (r.head + 1) % window
}

// at is the i-th oldest remembered request.
func (r *dedupRow) at(i int) remembered { return r.seen[(r.head+i)%len(r.seen)] }

// verdict is what the table says of a request that wants to be proposed.
type verdict uint8

const (
	admit     verdict = iota // new: it is now in flight
	duplicate                // done before: answer with its outcome
	unknown                  // in flight, or too old to tell: 57, never executed
	refuse                   // the table has no room for this client: 58
)

// dedupTable remembers recent requests per identity. The zero value is not usable; see newDedupTable.
type dedupTable struct {
	rows    map[identity]*dedupRow // nil until the first identity shows up: idle partitions stay small
	oldest  *dedupRow
	newest  *dedupRow
	kept    int    // rows with applied state
	window  int    // ids a row remembers: RememberedIDs, fewer in tests
	clients int    // bound of len(rows)
	idle    uint64 // µs after which an unused row may go
	flying  int    // requests in flight over all rows
}

func newDedupTable(clients int, idle uint64) dedupTable {
	return dedupTable{window: RememberedIDs, clients: clients, idle: idle}
}

// admit decides on a request on the primary; admit means it was put in flight. now is the entry time that the request
// would get.
func (t *dedupTable) admit(id identity, request, now uint64) (verdict, outcome) {
	r := t.rows[id]
	if r == nil {
		if !t.room(now) {
			return refuse, 0
		}
		if t.rows == nil {
			t.rows = make(map[identity]*dedupRow)
		}
		r = &dedupRow{id: id}
		t.rows[id] = r
	}
	if o, ok := r.find(request); ok {
		return duplicate, o
	}
	if request <= r.floor {
		return unknown, 0
	}
	n := len(r.inflight)
	if n == 0 || request > r.inflight[n-1] {
		if n >= MaxInFlight {
			return refuse, 0
		}
		r.inflight = append(r.inflight, request)
	} else {
		i, found := slices.BinarySearch(r.inflight, request)
		if found {
			return unknown, 0
		}
		if n >= MaxInFlight {
			return refuse, 0
		}
		r.inflight = slices.Insert(r.inflight, i, request)
	}
	t.flying++
	return admit, 0
}

// room tells whether one more identity fits: below the bound, or covered by rows that are old enough to be forgotten by
// the next tick.
func (t *dedupTable) room(now uint64) bool {
	over := len(t.rows) + 1 - t.clients
	if over <= 0 {
		return true
	}
	if over > maxOvershoot {
		return false
	}
	r := t.oldest
	for ; r != nil && over > 1; over-- {
		r = r.next
	}
	return r != nil && t.expired(r, now)
}

func (t *dedupTable) expired(r *dedupRow, now uint64) bool {
	return now >= t.idle && r.used <= now-t.idle
}

// undo takes a request out of flight, because it was not proposed after all or is applied now.
func (t *dedupTable) undo(id identity, request uint64) {
	if t.flying == 0 {
		return
	}
	if r := t.rows[id]; r != nil {
		t.land(r, request)
		if !r.kept && len(r.inflight) == 0 {
			delete(t.rows, id)
		}
	}
}

func (t *dedupTable) land(r *dedupRow, request uint64) {
	n := len(r.inflight)
	if n == 0 {
		return
	}
	// The oldest lands first in the normal case, the newest when admissions are undone.
	i, found := n-1, r.inflight[n-1] == request
	if !found {
		i, found = slices.BinarySearch(r.inflight, request)
	}
	if !found {
		return
	}
	r.inflight = slices.Delete(r.inflight, i, i+1)
	t.flying--
}

// ground forgets all requests in flight: leadership is gone, so this node no longer decides.
func (t *dedupTable) ground() {
	if t.flying == 0 {
		return
	}
	for id, r := range t.rows { // the order of the map reaches nothing
		r.inflight = r.inflight[:0]
		if !r.kept {
			delete(t.rows, id)
		}
	}
	t.flying = 0
}

// record remembers a committed request. at is its entry time.
func (t *dedupTable) record(id identity, request uint64, o outcome, at uint64) {
	r := t.rows[id]
	if r == nil {
		if t.rows == nil {
			t.rows = make(map[identity]*dedupRow)
		}
		r = &dedupRow{id: id}
		t.rows[id] = r
	}
	if t.flying > 0 {
		t.land(r, request)
	}
	r.add(request, o, t.window)
	if r.kept {
		r.used = max(r.used, at)
		if t.newest == r {
			return
		}
		t.unlink(r)
	} else {
		r.used, r.kept = at, true
		t.kept++
	}
	t.link(r)
}

func (t *dedupTable) link(r *dedupRow) {
	r.prev, r.next = t.newest, nil
	if t.newest != nil {
		t.newest.next = r
	} else {
		t.oldest = r
	}
	t.newest = r
}

func (t *dedupTable) unlink(r *dedupRow) {
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		t.oldest = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	} else {
		t.newest = r.prev
	}
	r.prev, r.next = nil, nil
}

// lookup finds a committed request.
func (t *dedupTable) lookup(id identity, request uint64) (outcome, bool) {
	if r := t.rows[id]; r != nil {
		return r.find(request)
	}
	return 0, false
}

// forget drops the applied state of a row that was not used after cutoff. A row that was used since the record was
// proposed stays: its newest request may be one whose answer was lost.
func (t *dedupTable) forget(id identity, cutoff uint64) {
	r := t.rows[id]
	if r == nil || !r.kept || r.used > cutoff {
		return
	}
	t.unlink(r)
	t.kept--
	if len(r.inflight) == 0 {
		delete(t.rows, id)
		if len(t.rows) == 0 {
			t.rows = nil // an emptied map keeps its memory
		}
		return
	}
	*r = dedupRow{id: id, inflight: r.inflight}
}

// idleRows appends at most limit identities whose rows may go, oldest first.
func (t *dedupTable) idleRows(dst []identity, now uint64, limit int) []identity {
	for r := t.oldest; r != nil && len(dst) < limit && t.expired(r, now); r = r.next {
		dst = append(dst, r.id)
	}
	return dst
}
