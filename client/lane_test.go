package client

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// laneModel drives a laneCore against a model of a server, one random event at a
// time and with a clock of its own: frames and replies travel, links break,
// answers of every kind come, time passes, callers give up. The server remembers
// what it executed and fences a link after a refusal.
type laneModel struct {
	t    *testing.T
	rnd  *rand.Rand
	core laneCore
	now  time.Time

	link    *link
	ident   *identity
	frames  []*write // written, not executed; all of the current link
	answers []*write // executed or refused; the reply is under way
	fenced  bool

	log  []int
	done map[uint64]int // request id → what it appended

	writes []*modelWrite
	trace  []string
	lossy  bool
}

type modelWrite struct {
	write
	n     int
	err   error
	tolds int
	freed int
}

func (m *modelWrite) told(_ *write, o outcome) {
	m.err = o.err
	m.tolds++
}

func (m *modelWrite) released(*write) { m.freed++ }

func newLaneModel(t *testing.T, seed uint64) *laneModel {
	m := &laneModel{
		t: t, rnd: rand.New(rand.NewPCG(seed, 7)), now: time.Unix(1000, 0), ident: newIdentity(), done: map[uint64]int{}, lossy: true,
	}
	m.core.fences, m.core.window = true, 1+m.rnd.IntN(16)
	m.connect()
	return m
}

func (m *laneModel) connect() {
	m.link = &link{ident: m.ident, caps: capabilities{whippet: true, fence: true, maxInFlight: 16}}
	m.fenced = false
}

func (m *laneModel) say(format string, args ...any) {
	m.trace = append(m.trace, fmt.Sprintf(format, args...))
}

func (m *laneModel) fail(format string, args ...any) {
	m.t.Helper()
	for _, s := range m.trace[max(0, len(m.trace)-60):] {
		m.t.Log(s)
	}
	m.t.Fatalf(format, args...)
}

func (m *laneModel) apply(fx *effects) {
	for _, w := range fx.told {
		w.owner.told(w.write, w.outcome)
	}
	for _, w := range fx.released {
		w.owner.released(w)
	}
	if fx.renew != nil && fx.renew == m.link {
		m.cut()
	}
	seen := false
	for _, w := range m.core.list {
		if w.inFlight && seen && !m.core.drain {
			m.fail("the writes in flight are no prefix of the lane")
		}
		seen = seen || !w.inFlight
	}
}

// cut breaks the link: what was not executed is lost, what was executed may have
// been and its reply is lost.
func (m *laneModel) cut() {
	lost := append(slices.Clone(m.answers), m.frames...)
	written := len(m.answers) + m.rnd.IntN(len(m.frames)+1)
	m.say("cut with %d executed and %d on the way", len(m.answers), len(m.frames))
	m.answers, m.frames = nil, nil
	for i, w := range lost {
		var fx effects
		w.call.err = errNoReply
		w.wrote = wroteNothing
		if i < written {
			w.wrote = wroteAll
		}
		m.core.answered(w, m.now, &fx)
		m.apply(&fx)
	}
	m.connect()
}

// drive carries out what the core wants until it waits.
func (m *laneModel) drive() {
	for range 1000 {
		var fx effects
		m.core.expire(m.now, m.withdraw, &fx)
		s := m.core.next(m.now, m.link, &fx)
		if s.kind == stepSend {
			m.core.sending(s.write, m.link, m.now)
		}
		m.apply(&fx)
		switch s.kind {
		case stepIdle, stepWait:
			return
		case stepLift:
			m.say("lift")
			m.fenced = false
			m.core.lifted(m.link, true, m.now)
		case stepSend:
			w := s.write
			if w.id == 0 {
				w.id = m.ident.take()
			}
			m.say("write %d as request %d (ambiguous %v)", w.owner.(*modelWrite).n, w.id, w.ambiguous)
			m.frames = append(m.frames, w)
		}
	}
	m.fail("the lane spins")
}

// withdraw takes a frame back that the link has not written.
func (m *laneModel) withdraw(w *write) bool {
	i := slices.Index(m.frames, w)
	if i < 0 || i < len(m.frames)-1 || m.rnd.IntN(2) == 0 {
		return false
	}
	m.frames = m.frames[:i]
	m.say("withdraw %d", w.owner.(*modelWrite).n)
	return true
}

// execute has the server take the oldest frame.
func (m *laneModel) execute() {
	w := m.frames[0]
	m.frames = m.frames[1:]
	n := w.owner.(*modelWrite).n
	run := func() {
		if old, again := m.done[w.id]; again {
			if old != n {
				m.fail("request id %d used for %d and %d", w.id, old, n)
			}
			return
		}
		m.done[w.id] = n
		m.log = append(m.log, n)
	}
	code := wire.ErrorCode(0)
	switch k := m.rnd.IntN(20); {
	case m.fenced:
		code = wire.ErrTransientNotAccepted
	case !m.lossy || k < 13:
		run()
	case k == 13, k == 14:
		code = wire.ErrTransientNotAccepted
	case k == 15:
		code = wire.ErrTransientNotCommitted
		run()
	case k == 16:
		code = wire.ErrTransientNotCommitted
	case k == 17:
		code = wire.ErrUnauthenticated
	case k == 18:
		code = wire.ErrRequestAlreadyApplied
		run()
	default:
		code = wire.ErrPartitionNotFound
	}
	if code != 0 {
		m.fenced = true
	}
	m.say("server answers %d with %d", n, code)
	w.reply = wire.ReplyHeader{Operation: wire.OpSendMessages, Status: code}
	w.call.err, w.body, w.wrote = nil, nil, wroteAll
	m.answers = append(m.answers, w)
}

func (m *laneModel) event() {
	switch k := m.rnd.IntN(100); {
	case k < 25 && len(m.writes) < 60:
		w := &modelWrite{n: len(m.writes)}
		w.owner, w.name, w.op, w.start = w, "send", wire.OpSendMessages, m.now
		w.deadline = m.now.Add(time.Duration(1+m.rnd.IntN(60)) * time.Second)
		m.writes = append(m.writes, w)
		m.core.push(&w.write)
		m.say("push %d", w.n)
	case k < 60 && len(m.frames) > 0:
		m.execute()
	case k < 90 && len(m.answers) > 0:
		w := m.answers[0]
		m.answers = m.answers[1:]
		var fx effects
		m.core.answered(w, m.now, &fx)
		m.apply(&fx)
	case k < 93 && m.lossy:
		m.cut()
	case k < 95 && m.lossy && len(m.writes) > 0:
		w := m.writes[m.rnd.IntN(len(m.writes))]
		if !w.isTold {
			var fx effects
			w.err = m.core.cancel(&w.write, errNoReply, m.withdraw, &fx)
			w.tolds++
			m.say("cancel %d: %v", w.n, w.err)
			m.apply(&fx)
		}
	default:
		m.now = m.now.Add(time.Duration(m.rnd.IntN(3000)) * time.Millisecond)
	}
	m.drive()
}

// check: one outcome each, and outcomes that tell the truth about the log, which
// has every write at most once and in the order of the calls.
func (m *laneModel) check() {
	if !slices.IsSorted(m.log) || len(slices.Compact(slices.Clone(m.log))) != len(m.log) {
		m.fail("log %v", m.log)
	}
	for _, w := range m.writes {
		_, there := slices.BinarySearch(m.log, w.n)
		switch {
		case w.tolds != 1 || w.freed != 1:
			m.fail("write %d was told %d times and released %d times", w.n, w.tolds, w.freed)
		case w.err == nil && !there:
			m.fail("write %d was confirmed and is not in the log", w.n)
		case w.err != nil && there && !errors.Is(w.err, ErrOutcomeUnknown):
			m.fail("write %d is in the log, but: %v", w.n, w.err)
		}
	}
	if len(m.core.list) != 0 || m.core.inFlight != 0 {
		m.fail("the lane is not empty: %d, %d in flight", len(m.core.list), m.core.inFlight)
	}
}

func TestLaneModel(t *testing.T) {
	seeds := uint64(400)
	if testing.Short() {
		seeds = 50
	}
	for seed := range seeds {
		m := newLaneModel(t, seed)
		m.say("seed %d", seed)
		for range 300 {
			m.event()
		}
		m.lossy = false
		for range 100_000 {
			if len(m.core.list) == 0 {
				break
			}
			m.event()
		}
		m.check()
	}
}

// TestLaneWindow: several in flight only where the server keeps the order.
func TestLaneWindow(t *testing.T) {
	fenced := &link{caps: capabilities{whippet: true, fence: true, maxInFlight: 4}}
	for _, tt := range []struct {
		name string
		core laneCore
		link *link
		want int
	}{
		{"server's bound", laneCore{fences: true, window: 8}, fenced, 4},
		{"own bound", laneCore{fences: true, window: 2}, fenced, 2},
		{"never more than a quarter of what is remembered", laneCore{fences: true, window: 100}, &link{caps: capabilities{fence: true}}, 16},
		{"no fence", laneCore{fences: true, window: 8}, &link{}, 1},
		{"metadata and offsets", laneCore{window: 8}, fenced, 1},
	} {
		if got := tt.core.limit(tt.link); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}
