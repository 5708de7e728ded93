package partition

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/whippetmq/whippet/internal/clock"
	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/wire"
)

// The model: three replicas of one partition behind a host that does what internal/replica promises to a Machine, and
// nothing more. Commits reach the leader first; followers lag. Leaders change with uncommitted entries that survive or
// not; replicas restart from a checkpoint of any age. The oracle keeps every committed request in lists and maps of its
// own, one request at a time, with none of the structures of the code under test.

const (
	modelClients = 5
	modelKeys    = 3
	modelWindow  = 4
	modelIdle    = 10 * time.Minute
)

// attempt is one submission, kept as it was meant: the objects of the code under test are pooled and forget.
type attempt struct {
	mark    uint64 // unique, carried in the batch
	send    bool
	from    identity
	request uint64
	count   int
	op      WriteOp
	target  offsetKey
	offset  uint64
	cut     *Cut

	// What the machine or host answered.
	answers   int
	err       error
	base      uint64
	duplicate bool
	noPos     bool
	index     uint64
	copied    int
}

type entry struct {
	term   uint64
	data   []byte
	ops    []*attempt        // what it carries, in order
	rs     []replica.Request // waiters of the leader that proposed it; nil once that leadership ended
	forget []identity
	cutoff uint64
	at     uint64 // entry time
}

// oracle is the naive state after a prefix of the log.
type oracle struct {
	next, time, keep, generation uint64
	offsets                      map[offsetKey]uint64
	rows                         map[identity]*oracleRow
}

type oracleRow struct {
	done []remembered // all of them, oldest first
	used uint64
}

func newOracle() *oracle {
	return &oracle{offsets: map[offsetKey]uint64{}, rows: map[identity]*oracleRow{}}
}

func (o *oracle) find(id identity, request uint64) (out outcome, found, old bool) {
	r := o.rows[id]
	if r == nil {
		return 0, false, false
	}
	for i, d := range r.done {
		if d.request != request {
			continue
		}
		if len(r.done)-i <= modelWindow {
			return d.outcome, true, false
		}
	}
	for i := 0; i < len(r.done)-modelWindow; i++ {
		if r.done[i].request >= request {
			return 0, false, true
		}
	}
	return 0, false, false
}

func (o *oracle) remember(id identity, request uint64, out outcome) {
	r := o.rows[id]
	if r == nil {
		r = &oracleRow{}
		o.rows[id] = r
	}
	r.done = append(r.done, remembered{request, out})
	r.used = o.time
}

// keysOf counts stored keys of a kind.
func (o *oracle) keysOf(kind wire.ConsumerKind) int {
	n := 0
	for k := range o.offsets {
		if k.kind == kind {
			n++
		}
	}
	return n
}

// write executes one offset write and returns its result.
func (o *oracle) write(a *attempt, dry bool) wire.ErrorCode {
	stored, ok := o.offsets[a.target]
	switch {
	case a.op == DeleteOffset && !ok:
		return 3021
	case a.op == DeleteOffset:
		if !dry {
			delete(o.offsets, a.target)
		}
		return 0
	case a.offset >= o.next:
		return 4100
	case !ok && o.keysOf(a.target.kind) >= modelKeys:
		return 3024
	case a.op == RaiseOffset && ok && stored >= a.offset:
		return 0
	}
	if !dry {
		o.offsets[a.target] = a.offset
	}
	return 0
}

type world struct {
	clock    *clock.Manual
	replicas [3]*Replica
	applied  [3]int // entries applied by each replica
	leader   int    // -1 = none
	term     uint64
	log      []*entry
	commit   int
	oracle   *oracle // state after log[:commit]
	// What the machine should believe to be in flight: identities proposed or kept under this leadership, not yet applied.
	flying map[string]bool

	attempts  []*attempt
	marks     uint64
	states    map[int][]byte // checkpoint after a number of applied entries, from whichever replica got there first
	lastStamp uint64
}

func flightKey(id identity, request uint64) string { return fmt.Sprint(id, request) }

func newWorld(t *rapid.T) *world {
	w := &world{
		clock: clock.NewManual(5_000_000_000), leader: -1, term: 1, oracle: newOracle(),
		flying: map[string]bool{}, states: map[int][]byte{},
	}
	for i := range w.replicas {
		w.replicas[i] = w.fresh(t, nil, 0)
	}
	return w
}

func (w *world) fresh(t *rapid.T, checkpoint []byte, index int) *Replica {
	p := New(Config{Partition: 9, Clock: w.clock, Clients: modelClients, OffsetKeys: modelKeys, ForgetAfter: modelIdle, Folded: 20, window: modelWindow})
	if err := p.Restore(nil, checkpoint, uint64(index)); err != nil {
		t.Fatalf("restore at %d: %v", index, err)
	}
	return p
}

// applyOne brings a replica one entry forward.
func (w *world) applyOne(t *rapid.T, i int) {
	e := w.log[w.applied[i]]
	index := uint64(w.applied[i] + 1)
	var rs []replica.Request
	if i == w.leader && e.term == w.term {
		rs = e.rs
	}
	if err := w.replicas[i].Apply(segment.Entry{Index: index, Term: e.term, Data: e.data}, rs); err != nil {
		t.Fatalf("replica %d: %v", i, err)
	}
	w.applied[i]++
	got := w.replicas[i].Checkpoint(nil)
	if want, ok := w.states[w.applied[i]]; !ok {
		w.states[w.applied[i]] = got
	} else if !bytes.Equal(want, got) {
		t.Fatalf("replica %d differs after entry %d:\n% x\n% x", i, index, want, got)
	}
}

// commitOne commits the next entry and runs it through the oracle, then through the leader.
func (w *world) commitOne(t *rapid.T) {
	e := w.log[w.commit]
	w.commit++
	o := w.oracle
	o.time = max(o.time, e.at)
	want := map[*attempt]func() string{} // checks that need the machine's answer
	for _, a := range e.ops {
		if a.request != 0 {
			delete(w.flying, flightKey(a.from, a.request))
			// All requests since the row was made count, not only the remembered ones. An id below the floor is fine
			// here: it was admitted before those that pushed the floor up were applied.
			if r := o.rows[a.from]; r != nil && slices.ContainsFunc(r.done, func(d remembered) bool { return d.request == a.request }) {
				t.Fatalf("entry %d executes request %d of %v again", w.commit, a.request, a.from)
			}
		}
		switch {
		case a.send:
			base := o.next
			if got := segment.BaseOffset(e.data); got != base {
				t.Fatalf("entry %d has base offset %d, want %d", w.commit, got, base)
			}
			if ts := segment.BaseTimestamp(e.data); ts < w.lastStamp {
				t.Fatalf("entry %d: timestamp %d after %d", w.commit, ts, w.lastStamp)
			} else {
				w.lastStamp = ts
			}
			o.next += uint64(a.count)
			if a.request != 0 {
				o.remember(a.from, a.request, sendOutcome(base))
			}
			want[a] = func() string {
				if a.err != nil || a.base != base || a.duplicate || a.index != uint64(w.commit) {
					return fmt.Sprintf("base %d", base)
				}
				return ""
			}
		case a.cut != nil && a.cut.Kind == PurgeAll:
			o.next, o.keep, o.generation = 0, 0, a.cut.Value
			o.offsets = map[offsetKey]uint64{}
			want[a] = func() string { return "" }
		case a.cut != nil:
			if a.cut.Value <= o.next {
				o.keep = max(o.keep, a.cut.Value)
			}
			want[a] = func() string { return "" }
		default:
			code := o.write(a, false)
			if a.request != 0 {
				o.remember(a.from, a.request, writeOutcome(code))
			}
			want[a] = func() string {
				if StatusOf(a.err) != code || a.duplicate || a.index != uint64(w.commit) {
					return fmt.Sprintf("status %d", code)
				}
				return ""
			}
		}
	}
	for _, id := range e.forget {
		if r := o.rows[id]; r != nil && r.used <= e.cutoff {
			delete(o.rows, id)
		}
	}
	if w.leader < 0 {
		return
	}
	waiting := e.rs != nil && e.term == w.term
	w.applyOne(t, w.leader)
	if waiting {
		for _, a := range e.ops {
			if a.answers != 1 {
				t.Fatalf("attempt %d was answered %d times when its entry was applied", a.mark, a.answers)
			}
			if msg := want[a](); msg != "" {
				t.Fatalf("attempt %+v, want %s at index %d", *a, msg, w.commit)
			}
		}
	}
	w.check(t)
}

// check compares the leader's visible state with the oracle's.
func (w *world) check(t *rapid.T) {
	p, o := w.replicas[w.leader], w.oracle
	s := p.Stats()
	if s.NextOffset != o.next || s.FirstOffset != o.keep || s.Messages != o.next-o.keep || s.Generation != o.generation {
		t.Fatalf("stats %+v, want next %d, first %d, generation %d", s, o.next, o.keep, o.generation)
	}
	if p.CurrentOffset() != o.next-min(o.next, 1) {
		t.Fatalf("current offset %d, next %d", p.CurrentOffset(), o.next)
	}
	for _, kind := range []wire.ConsumerKind{wire.ConsumerSingle, wire.ConsumerGroup} {
		for key := range uint32(modelKeys + 2) {
			got, gok := p.Offset(kind, key)
			want, wok := o.offsets[offsetKey{kind, key}]
			if got != want || gok != wok {
				t.Fatalf("offset %d/%d: %d %v, want %d %v", kind, key, got, gok, want, wok)
			}
		}
	}
}

func (w *world) now() uint64 { return w.clock.Now() }

// expect is the oracle's opinion of a request with an identity.
func (w *world) expect(a *attempt) (verdict, outcome) {
	o := w.oracle
	known := o.rows[a.from] != nil
	for k := range w.flying {
		if len(k) > 0 && k[:len(fmt.Sprint(a.from))] == fmt.Sprint(a.from) {
			known = true
		}
	}
	if !known {
		clients := map[string]bool{}
		for id := range o.rows {
			clients[fmt.Sprint(id)] = true
		}
		for k := range w.flying {
			clients[k[:len(fmt.Sprint(a.from))]] = true
		}
		over := len(clients) + 1 - modelClients
		old := 0
		for _, r := range o.rows {
			if r.used+uint64(modelIdle.Microseconds()) <= max(w.now(), w.replicas[w.leader].admitTime) {
				old++
			}
		}
		if over > old {
			return refuse, 0
		}
	}
	out, found, old := o.find(a.from, a.request)
	switch {
	case found:
		return duplicate, out
	case old, w.flying[flightKey(a.from, a.request)]:
		return unknown, 0
	}
	return admit, 0
}

func (w *world) draw(t *rapid.T) *attempt {
	w.marks++
	a := &attempt{mark: w.marks}
	a.from = identity{wire.U128{Lo: rapid.Uint64Range(1, 8).Draw(t, "client")}, 1}
	if rapid.IntRange(0, 4).Draw(t, "identity") > 0 {
		// Mostly around the newest ids of the client, sometimes far back.
		top := uint64(1)
		if r := w.oracle.rows[a.from]; r != nil {
			for _, d := range r.done {
				top = max(top, d.request)
			}
		}
		low := uint64(1)
		if top > 6 && rapid.IntRange(0, 9).Draw(t, "far") > 0 {
			low = top - 5
		}
		a.request = rapid.Uint64Range(low, top+4).Draw(t, "request")
	}
	switch kind := rapid.IntRange(0, 9).Draw(t, "kind"); {
	case kind < 5:
		a.send = true
		a.count = rapid.IntRange(1, 4).Draw(t, "count")
	case kind == 9 && rapid.IntRange(0, 9).Draw(t, "rare") == 0:
		a.request = 0
		a.cut = &Cut{Kind: CutKind(rapid.IntRange(0, 1).Draw(t, "cut"))}
		if a.cut.Kind == PurgeAll {
			a.cut.Value = w.oracle.generation + 1
		} else {
			a.cut.Value = rapid.Uint64Range(0, w.oracle.next+1).Draw(t, "keep")
		}
	default:
		a.op = WriteOp(rapid.IntRange(0, 2).Draw(t, "op"))
		a.target = offsetKey{wire.ConsumerSingle, 0}
		if rapid.Bool().Draw(t, "other key") {
			a.target = offsetKey{wire.ConsumerKind(rapid.IntRange(1, 2).Draw(t, "consumer")), rapid.Uint32Range(0, modelKeys).Draw(t, "key")}
		}
		a.offset = rapid.Uint64Range(0, w.oracle.next+1).Draw(t, "offset")
	}
	w.attempts = append(w.attempts, a)
	return a
}

// turn runs one loop turn of the leader: some requests, folded, then accepted or refused by consensus as a whole.
func (w *world) turn(t *rapid.T) {
	if w.leader < 0 || len(w.log)-w.commit > 30 {
		t.Skip("no leader, or enough in flight")
	}
	p := w.replicas[w.leader]
	type proposal struct {
		data []byte
		rs   []replica.Request
		ops  []*attempt
	}
	var proposals []proposal
	var admitted []replica.Request
	byRequest := map[replica.Request]*attempt{}
	purging := slices.ContainsFunc(w.log[w.commit:], func(e *entry) bool {
		return len(e.ops) > 0 && e.ops[0].cut != nil && e.ops[0].cut.Kind == PurgeAll
	})
	writes := w.writesInFlight()
	for range rapid.IntRange(1, 6).Draw(t, "requests") {
		a := w.draw(t)
		if a.cut != nil && a.cut.Kind == PurgeAll {
			if purging {
				continue
			}
			purging = true
		}
		want, out := admit, outcome(0)
		if a.request != 0 {
			want, out = w.expect(a)
		}
		r := a.make()
		byRequest[r] = a
		data := p.Admit(r)
		// Expectations of what is answered at once.
		switch {
		case want == duplicate:
			a.mustAnswer(t, data)
			switch {
			case !a.duplicate:
				t.Fatalf("attempt %+v is a duplicate of %#x", *a, uint64(out))
			case a.send && out.isWrite():
				if a.err != nil || !a.noPos {
					t.Fatalf("attempt %+v", *a)
				}
			case a.send:
				if a.err != nil || a.base != out.base() {
					t.Fatalf("attempt %+v, first run had base %d", *a, out.base())
				}
			case out.isWrite() && StatusOf(a.err) != out.code():
				t.Fatalf("attempt %+v, first run had code %d", *a, out.code())
			}
			continue
		case want == unknown:
			a.mustAnswer(t, data)
			if StatusOf(a.err) != 57 {
				t.Fatalf("attempt %+v should be refused with 57", *a)
			}
			continue
		case want == refuse:
			a.mustAnswer(t, data)
			if StatusOf(a.err) != 58 {
				t.Fatalf("attempt %+v should be refused with 58", *a)
			}
			continue
		case data != nil:
			if a.answers != 0 {
				t.Fatalf("attempt %+v is proposed and answered", *a)
			}
			if a.send && markOf(data) != a.mark {
				t.Fatalf("attempt %+v returned another batch", *a)
			}
			proposals = append(proposals, proposal{data, []replica.Request{r}, []*attempt{a}})
			admitted = append(admitted, r)
		case a.send:
			t.Fatalf("attempt %+v was not admitted", *a)
		case a.answers == 0: // kept for Fold
			if code := w.oracle.write(a, true); writes == 0 && code != 0 {
				t.Fatalf("attempt %+v is proposed although code %d is known", *a, code)
			}
			writes++
		default: // answered from the applied state
			if a.cut != nil {
				continue
			}
			code := w.oracle.write(a, true)
			if StatusOf(a.err) == 58 {
				continue // the turn's bound
			}
			if StatusOf(a.err) != code || (writes > 0 && code != 4100) || (code == 0 && a.op != RaiseOffset) {
				t.Fatalf("attempt %+v answered at once with %d others in flight, want code %d", *a, writes, code)
			}
			continue
		}
		if a.request != 0 {
			w.flying[flightKey(a.from, a.request)] = true
		}
	}
	if data, rs := p.Fold(); data != nil {
		pr := proposal{data: data, rs: slices.Clone(rs)}
		for _, r := range rs {
			pr.ops = append(pr.ops, byRequest[r])
		}
		proposals = append(proposals, pr)
		admitted = append(admitted, rs...)
	}
	if rapid.IntRange(0, 5).Draw(t, "refused") == 0 {
		slices.Reverse(admitted) // newest first
		p.Rejected(admitted)
		for _, r := range admitted {
			a := byRequest[r]
			delete(w.flying, flightKey(a.from, a.request))
			r.Fail(replica.ErrNotAdmitted)
			if a.answers != 1 {
				t.Fatalf("attempt %+v was answered %d times", *a, a.answers)
			}
		}
		return
	}
	for _, pr := range proposals {
		e := &entry{term: w.term, data: bytes.Clone(pr.data), rs: pr.rs, ops: pr.ops, at: w.entryTime(pr.data)}
		w.log = append(w.log, e)
		for _, r := range pr.rs {
			r.Proposed()
		}
		clear(pr.data[:min(len(pr.data), 64)]) // the buffer is somebody else's now
	}
}

func (w *world) writesInFlight() int {
	n := 0
	for _, e := range w.log[w.commit:] {
		for _, a := range e.ops {
			if !a.send && a.cut == nil {
				n++
			}
		}
	}
	return n
}

func (w *world) entryTime(data []byte) uint64 {
	kind, body, control := segment.ParseControl(data)
	if !control {
		return segment.BaseTimestamp(data)
	}
	if kind == segment.KindCommands {
		return le64(body)
	}
	return 0
}

func le64(b []byte) uint64 {
	var v uint64
	for i := range 8 {
		v |= uint64(b[i]) << (8 * i)
	}
	return v
}

func (a *attempt) mustAnswer(t *rapid.T, data []byte) {
	if data != nil || a.answers != 1 {
		t.Fatalf("attempt %+v: proposed %v, answered %d times", *a, data != nil, a.answers)
	}
}

// make builds the request object of an attempt.
func (a *attempt) make() replica.Request {
	switch {
	case a.send:
		return &Send{
			Client: a.from.client, User: a.from.user, Request: a.request,
			Batch:  rawBatch(a.count, a.mark, []byte("payload")),
			Copied: func(*Send) { a.copied++ },
			Done: func(s *Send) {
				a.answers++
				if a.copied != 1 {
					a.answers += 100
				}
				a.err, a.base, a.duplicate, a.noPos, a.index = s.Err, s.BaseOffset, s.Duplicate, s.NoPosition, s.Index
			},
		}
	case a.cut != nil:
		a.cut.Done = func(c *Cut) { a.answers++; a.err, a.index = c.Err, c.Index }
		return a.cut
	default:
		return &OffsetWrite{
			Client: a.from.client, User: a.from.user, Request: a.request,
			Op: a.op, Kind: a.target.kind, Key: a.target.key, Offset: a.offset,
			Done: func(o *OffsetWrite) {
				a.answers++
				a.err, a.duplicate, a.index = o.Err, o.Duplicate, o.Index
			},
		}
	}
}

// tick runs the leader's housekeeping.
func (w *world) tick(t *rapid.T) {
	if w.leader < 0 {
		t.Skip("no leader")
	}
	for _, data := range w.replicas[w.leader].Tick(w.now()) {
		kind, body, _ := segment.ParseControl(data)
		cutoff, ids, err := decodeForget(body)
		if kind != segment.KindForget || err != nil || len(ids) == 0 {
			t.Fatalf("tick proposes kind %d: %v", kind, err)
		}
		for _, id := range ids {
			r := w.oracle.rows[id]
			if r == nil || r.used+uint64(modelIdle.Microseconds()) > max(w.now(), w.replicas[w.leader].admitTime) {
				t.Fatalf("row %v may not go: %+v", id, r)
			}
		}
		w.log = append(w.log, &entry{term: w.term, data: bytes.Clone(data), forget: ids, cutoff: cutoff})
	}
}

// step down: the leader is gone, its waiters get 57, and some of its uncommitted entries are lost.
func (w *world) stepDown(t *rapid.T) {
	if w.leader < 0 {
		t.Skip("no leader")
	}
	w.replicas[w.leader].Lead(w.term, false)
	w.leader = -1
	for _, e := range w.log[w.commit:] {
		for _, r := range e.rs {
			r.Fail(replica.ErrOutcomeUnknown)
		}
		e.rs = nil
	}
	left := rapid.IntRange(w.commit, len(w.log)).Draw(t, "log left")
	w.log = w.log[:left]
	clear(w.flying)
}

// elect makes a replica the leader: what is left in the log commits, it applies all of it, and only then it leads.
func (w *world) elect(t *rapid.T) {
	if w.leader >= 0 {
		t.Skip("there is a leader")
	}
	for w.commit < len(w.log) {
		w.commitOne(t)
	}
	i := rapid.IntRange(0, 2).Draw(t, "leader")
	w.term++
	for w.applied[i] < w.commit {
		w.applyOne(t, i)
	}
	w.leader = i
	w.replicas[i].Lead(w.term, true)
	w.check(t)
}

func (w *world) commitSome(t *rapid.T) {
	if w.leader < 0 || w.commit == len(w.log) {
		t.Skip("nothing to commit")
	}
	for range rapid.IntRange(1, len(w.log)-w.commit).Draw(t, "entries") {
		w.commitOne(t)
	}
}

func (w *world) follow(t *rapid.T) {
	i := rapid.IntRange(0, 2).Draw(t, "follower")
	if i == w.leader || w.applied[i] == w.commit {
		t.Skip("nothing to apply")
	}
	for range rapid.IntRange(1, w.commit-w.applied[i]).Draw(t, "entries") {
		w.applyOne(t, i)
	}
}

// restart replaces a follower by a new one that starts from a checkpoint of any age.
func (w *world) restart(t *rapid.T) {
	i := rapid.IntRange(0, 2).Draw(t, "follower")
	if i == w.leader {
		t.Skip("it leads")
	}
	at := rapid.IntRange(0, w.applied[i]).Draw(t, "checkpoint")
	w.replicas[i] = w.fresh(t, w.states[at], at) // at 0 there is none
	w.applied[i] = at
	if at > 0 {
		if got := w.replicas[i].Checkpoint(nil); !bytes.Equal(got, w.states[at]) {
			t.Fatalf("checkpoint of entry %d changed by restoring it", at)
		}
	}
}

func (w *world) time(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "back") == 0 {
		w.clock.Jump(-time.Duration(rapid.IntRange(1, 120).Draw(t, "seconds")) * time.Second)
		return
	}
	w.clock.Advance(time.Duration(rapid.IntRange(1, 700).Draw(t, "seconds")) * time.Second)
}

func TestModel(t *testing.T) {
	rounds := 20 // of rapid's 100 histories
	if testing.Short() {
		rounds = 1
	}
	for range rounds {
		rapid.Check(t, modelHistory)
	}
}

func modelHistory(t *rapid.T) {
	w := newWorld(t)
	w.elect(t)
	t.Repeat(map[string]func(*rapid.T){
		"turn":     w.turn,
		"turn 2":   w.turn,
		"turn 3":   w.turn,
		"commit":   w.commitSome,
		"commit 2": w.commitSome,
		"tick":     w.tick,
		"stepdown": w.stepDown,
		"elect":    w.elect,
		"elect 2":  w.elect,
		"follow":   w.follow,
		"restart":  w.restart,
		"time":     w.time,
	})
	w.finish(t)
}

// finish lets everything settle and checks the promises on the whole history.
func (w *world) finish(t *rapid.T) {
	if w.leader < 0 {
		w.elect(t)
	}
	for w.commit < len(w.log) {
		w.commitOne(t)
	}
	for i := range w.replicas {
		for w.applied[i] < w.commit {
			w.applyOne(t, i)
		}
	}
	// Equal state on a replica that never led, and on one restored from the final checkpoint.
	w.restartAll(t)

	inLog := map[uint64]int{}
	for _, e := range w.log {
		for _, a := range e.ops {
			inLog[a.mark]++
		}
	}
	for _, a := range w.attempts {
		if a.answers > 1 {
			t.Fatalf("attempt %+v was answered %d times", *a, a.answers)
		}
		executed := inLog[a.mark]
		switch {
		case executed > 1:
			t.Fatalf("attempt %+v is %d times in the log", *a, executed)
		case a.answers == 0:
			// Skipped by the test (a second purge).
		case errors.Is(a.err, replica.ErrNotAdmitted) && executed != 0:
			t.Fatalf("attempt %+v was answered 58 and is in the log", *a)
		case a.send && a.err == nil && !a.duplicate && executed != 1:
			t.Fatalf("attempt %+v was acknowledged and is not in the log", *a)
		case a.duplicate && executed != 0:
			t.Fatalf("attempt %+v was absorbed and is in the log", *a)
		}
	}
}

func (w *world) restartAll(t *rapid.T) {
	final := w.states[w.commit]
	if w.commit == 0 {
		return
	}
	for at := 0; at <= w.commit; at += max(1, w.commit/5) {
		p := w.fresh(t, w.states[at], at)
		for k := at; k < w.commit; k++ {
			if err := p.Apply(segment.Entry{Index: uint64(k + 1), Term: w.log[k].term, Data: w.log[k].data}, nil); err != nil {
				t.Fatalf("replay from %d: %v", at, err)
			}
		}
		if got := p.Checkpoint(nil); !bytes.Equal(got, final) {
			t.Fatalf("replay from the checkpoint of entry %d gives another state", at)
		}
	}
}
