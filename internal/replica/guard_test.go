package replica

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/whippetmq/whippet/internal/clock"
	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/internal/vfs"
)

// discard is a transport to nowhere.
type discard struct{}

func (discard) Send(uint64, []Message) {}

// rig is one replica of three, whose peers are the test.
type rig struct {
	t     *testing.T
	h     *Host
	g     *Group
	m     *listMachine
	clock *clock.Manual
}

func newRig(t *testing.T, fs vfs.FS) *rig {
	t.Helper()
	r := &rig{t: t, clock: clock.NewManual(1), m: &listMachine{t: t}}
	cfg := testConfig(fs)
	cfg.Manual, cfg.Clock, cfg.Transport, cfg.Tick = true, r.clock, discard{}, 100*time.Millisecond
	r.h = openHost(t, cfg)
	gc := groupConfig(5, r.m)
	gc.Voters = []uint64{1, 2, 3}
	var err error
	if r.g, err = r.h.StartGroup(t.Context(), gc); err != nil {
		t.Fatal(err)
	}
	turns(r.h)
	return r
}

func (r *rig) step(m *raftpb.Message) {
	self := uint64(1)
	m.To = &self
	r.h.Step(m.GetFrom(), []Message{{5, m}})
	turns(r.h)
}

func (r *rig) tick(n int) {
	for range n {
		r.clock.Advance(100 * time.Millisecond)
		turns(r.h)
	}
}

func ptr[T any](v T) *T { return &v }

// append makes entries from index+1 on, of the given terms.
func appendOf(from, term, index, logTerm, commit uint64, terms ...uint64) *raftpb.Message {
	m := &raftpb.Message{Type: raftpb.MsgApp.Enum(), From: &from, Term: &term, Index: &index, LogTerm: &logTerm, Commit: &commit}
	for i, tm := range terms {
		lm := listMachine{}
		m.Entries = append(m.Entries, &raftpb.Entry{Index: ptr(index + uint64(i) + 1), Term: ptr(tm), Data: lm.encode(0, uint64(i))})
	}
	return m
}

// lead makes the rig the leader of its group.
func (r *rig) lead() {
	r.t.Helper()
	for range 60 {
		r.tick(1)
		term := r.g.Status().Term
		for _, kind := range []raftpb.MessageType{raftpb.MsgPreVoteResp, raftpb.MsgVoteResp} {
			at := term
			if kind == raftpb.MsgPreVoteResp {
				at++
			}
			r.step(&raftpb.Message{Type: kind.Enum(), From: ptr(uint64(2)), Term: &at})
		}
		if st := r.g.Status(); st.Role == Leader {
			r.step(&raftpb.Message{Type: raftpb.MsgAppResp.Enum(), From: ptr(uint64(2)), Term: ptr(st.Term), Index: ptr(st.LastIndex)})
			return
		}
	}
	r.t.Fatal("it does not lead")
}

// TestPanicsOfRaft gives a replica what raft's library panics on.
func TestPanicsOfRaft(t *testing.T) {
	two := ptr(uint64(2))
	for _, tt := range []struct {
		name  string
		leads bool
		send  []*raftpb.Message
		after func(t *testing.T, r *rig)
	}{
		{name: "tocommit is out of range", send: []*raftpb.Message{
			appendOf(2, 3, 0, 0, 0, 1, 2, 3), {Type: raftpb.MsgHeartbeat.Enum(), From: two, Term: ptr(uint64(3)), Commit: ptr(uint64(50))},
		}, after: func(t *testing.T, r *rig) {
			if st := r.g.Status(); st.Commit != 3 || !r.g.Suspect() {
				t.Errorf("%+v, suspect %v", st, r.g.Suspect())
			}
		}},
		{name: "read request without entry", leads: true, send: []*raftpb.Message{{Type: raftpb.MsgReadIndex.Enum(), From: two}}},
		{name: "read request with a term", send: []*raftpb.Message{
			appendOf(2, 3, 0, 0, 0, 3),
			{Type: raftpb.MsgReadIndex.Enum(), From: two, Term: ptr(uint64(3)), Entries: []*raftpb.Entry{{}}},
		}},
		{name: "transfer with a term", send: []*raftpb.Message{
			appendOf(2, 3, 0, 0, 0, 3), {Type: raftpb.MsgTransferLeader.Enum(), From: two, Term: ptr(uint64(3))},
		}},
		{name: "proposal", leads: true, send: []*raftpb.Message{
			{Type: raftpb.MsgProp.Enum(), From: two}, {Type: raftpb.MsgProp.Enum(), From: two, Entries: []*raftpb.Entry{{Data: []byte("x")}}},
		}},
		{name: "entries that do not follow", send: []*raftpb.Message{
			func() *raftpb.Message {
				m := appendOf(2, 3, 0, 0, 0, 3, 3)
				m.Entries[1].Index = ptr(uint64(7))
				return m
			}(),
		}},
		{name: "entries of a later term", send: []*raftpb.Message{appendOf(2, 3, 0, 0, 0, 4)}},
		{name: "change of members that cannot be read", send: []*raftpb.Message{
			func() *raftpb.Message {
				m := appendOf(2, 3, 0, 0, 1, 3)
				m.Entries[0].Type, m.Entries[0].Data = raftpb.EntryConfChangeV2.Enum(), []byte{0xff, 0xff}
				return m
			}(),
		}},
		{name: "term 0", send: []*raftpb.Message{appendOf(2, 3, 0, 0, 0, 3), {Type: raftpb.MsgApp.Enum(), From: two}, {Type: raftpb.MsgSnap.Enum(), From: two}}},
		{name: "last term", send: []*raftpb.Message{{Type: raftpb.MsgHeartbeat.Enum(), From: two, Term: ptr(uint64(math.MaxUint64))}}},
		{name: "acknowledged what is not there", leads: true, send: []*raftpb.Message{
			{Type: raftpb.MsgAppResp.Enum(), From: two, Term: ptr(uint64(1)), Index: ptr(uint64(1) << 40)},
		}},
		{name: "snapshot without anything", send: []*raftpb.Message{
			{Type: raftpb.MsgSnap.Enum(), From: two, Term: ptr(uint64(3)), Snapshot: &raftpb.Snapshot{}},
		}},
		{name: "snapshot without a manifest", send: []*raftpb.Message{
			{Type: raftpb.MsgSnap.Enum(), From: two, Term: ptr(uint64(3)), Snapshot: &raftpb.Snapshot{
				Data:     []byte("what"),
				Metadata: &raftpb.SnapshotMetadata{Index: ptr(uint64(9)), Term: ptr(uint64(2)), ConfState: &raftpb.ConfState{Voters: []uint64{1, 2, 3}}},
			}},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, vfs.NewMem(1))
			if tt.leads {
				r.lead()
			}
			for _, m := range tt.send {
				r.step(m)
			}
			r.tick(3)
			if err := r.g.Err(); err != nil {
				t.Errorf("fenced: %v", err)
			}
			if tt.after != nil {
				tt.after(t, r)
			}
		})
	}
}

// TestImpossibleChange commits a change of members that cannot be: the group is fenced, the process goes on.
func TestImpossibleChange(t *testing.T) {
	r := newRig(t, vfs.NewMem(1))
	m := appendOf(2, 3, 0, 0, 1, 3)
	var all []*raftpb.ConfChangeSingle
	for id := range uint64(4) {
		all = append(all, &raftpb.ConfChangeSingle{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: ptr(id)})
	}
	data, err := proto.Marshal(&raftpb.ConfChangeV2{Changes: all})
	if err != nil {
		t.Fatal(err)
	}
	m.Entries[0].Type, m.Entries[0].Data = raftpb.EntryConfChangeV2.Enum(), data
	r.step(m)
	r.tick(2)
	if r.g.Err() == nil || r.g.Status().Role != Fenced {
		t.Errorf("%+v: %v", r.g.Status(), r.g.Err())
	}
	r.step(appendOf(2, 3, 1, 3, 1, 3)) // into the void
}

// TestConflictWithCommitted is what cannot be: a leader that contradicts what is committed. Nothing of that changes.
func TestConflictWithCommitted(t *testing.T) {
	r := newRig(t, vfs.NewMem(1))
	r.step(appendOf(2, 3, 0, 0, 3, 1, 2, 3))
	if st := r.g.Status(); st.Applied != 3 {
		t.Fatalf("%+v", st)
	}
	r.step(appendOf(3, 4, 1, 1, 0, 4, 4))
	r.tick(2)
	if last, commit := r.g.Log().LastIndex(), r.g.Status().Commit; last != 3 || commit != 3 {
		t.Errorf("the log ends at %d, committed %d", last, commit)
	}
}

// FuzzStep sends a replica whatever a peer could send, in any order, between ticks and requests. The process never
// panics, what was committed stays, and the replica either goes on or is fenced.
func FuzzStep(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19})
	f.Add([]byte(strings.Repeat("\x03\x02\x05\x01\x01\x00\x03\x01\x02", 20)))
	for seed := byte(1); seed < 30; seed++ {
		b := make([]byte, 600)
		x := uint32(seed) * 2654435761
		for i := range b {
			x = x*1664525 + 1013904223
			b[i] = byte(x >> 24)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 3000 {
			return
		}
		fuzzSteps(t, b)
	})
}

func fuzzSteps(t *testing.T, b []byte) {
	next := func() uint64 {
		if len(b) == 0 {
			return 0
		}
		v := b[0]
		b = b[1:]
		return uint64(v)
	}
	number := func() uint64 {
		switch v := next(); {
		case v < 200:
			return v % 12
		case v < 220:
			return math.MaxUint64 - v%4
		case v < 240:
			return 1 << (v % 64)
		default:
			return v
		}
	}
	r := newRig(t, vfs.NewMem(1))
	r.m.t = quiet{t}
	if next()%2 == 1 {
		r.lead()
	}
	var committed []uint64 // terms
	for len(b) > 0 && r.g.Err() == nil {
		switch op := next(); {
		case op < 20:
			r.tick(int(op%4) * 4)
		case op < 40:
			_ = r.g.TrySubmit(newCommand(op)) // its outcome is of no interest
			turns(r.h)
		case op < 44:
			r.h.Lost(2)
			r.h.Connected(Peer{Node: 2, Shards: 2, Starts: op})
			turns(r.h)
		case op < 46:
			r.h.shards[r.g.shard.number].inbox.post(item{ctl: controlFunc(func(*shard) { r.g.guard(func(g *Group) { g.doubt(suspicion(1+op%7), "fuzzing") }) })})
			turns(r.h)
		default:
			r.step(r.fuzzMessage(next, number))
		}
		commit := min(r.g.Status().Applied, r.g.log.LastIndex())
		for i := uint64(1); i <= commit; i++ {
			term, err := r.g.log.Term(i)
			if err != nil {
				continue
			}
			if i <= uint64(len(committed)) {
				if committed[i-1] != term {
					t.Fatalf("committed index %d was of term %d and is of term %d", i, committed[i-1], term)
				}
			} else if i == uint64(len(committed))+1 {
				committed = append(committed, term)
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = r.h.Close(ctx)
}

func (r *rig) fuzzMessage(next, number func() uint64) *raftpb.Message {
	// Mostly near the truth, since what is far from it does not get far.
	near := func(v uint64) *uint64 {
		switch x := next(); {
		case x < 120:
			return &v
		case x < 200:
			return ptr(max(v+x%9, 4) - 4)
		default:
			return ptr(number())
		}
	}
	st := r.g.Status()
	last, _ := r.g.log.Term(st.LastIndex)
	m := &raftpb.Message{
		Type: raftpb.MessageType(next() % 26).Enum(), From: ptr(2 + next()%3), Term: near(max(st.Term, 1)), LogTerm: near(last), Index: near(st.LastIndex),
		Commit: near(st.LastIndex), RejectHint: near(st.LastIndex), Vote: ptr(number()), Reject: ptr(next()%3 == 0),
	}
	if next()%2 == 0 {
		m.Type = []*raftpb.MessageType{raftpb.MsgApp.Enum(), raftpb.MsgHeartbeat.Enum(), raftpb.MsgAppResp.Enum(), raftpb.MsgVoteResp.Enum(),
			raftpb.MsgVote.Enum(), raftpb.MsgSnap.Enum()}[next()%6]
	}
	lm := listMachine{}
	for i := range next() % 4 {
		e := &raftpb.Entry{Index: ptr(m.GetIndex() + i + 1), Term: ptr(m.GetTerm()), Data: lm.encode(int(next()), i)}
		switch next() % 16 {
		case 0:
			e.Type = raftpb.EntryType(next() % 4).Enum()
		case 1:
			e.Index = ptr(number())
		case 2:
			e.Term = ptr(number())
		case 3:
			e.Data = []byte(fmt.Sprint("garbage", next()))
		case 4:
			e.Data = nil
		case 5:
			e.Type = raftpb.EntryConfChangeV2.Enum()
			e.Data, _ = proto.Marshal(&raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{{Type: raftpb.ConfChangeType(next() % 4).Enum(), NodeId: ptr(number())}}})
		}
		m.Entries = append(m.Entries, e)
	}
	switch next() % 4 {
	case 0:
		c := append([]byte(sideMagic), byte(next()%10), byte(next()), 0, 0)
		m.Context = le.AppendUint64(c, number())
	case 1:
		m.Context = []byte("CampaignTransfer")
	}
	if m.GetType() == raftpb.MsgSnap || next()%16 == 0 {
		index, term := *near(st.LastIndex), *near(last)
		man := manifest{group: 5, index: index, term: term, pieces: []segment.Piece{{First: 1, Last: index, Length: 64 + int64(next())}}}
		m.Snapshot = &raftpb.Snapshot{Data: man.encode(), Metadata: &raftpb.SnapshotMetadata{Index: &index, Term: &term}}
		if next()%4 != 0 {
			m.Snapshot.Metadata.ConfState = &raftpb.ConfState{Voters: []uint64{1, 2, 3}}
		}
		if next()%4 == 0 {
			m.Snapshot.Data = m.Snapshot.Data[:next()%uint64(len(m.Snapshot.Data))]
		}
	}
	return m
}

// quiet is a testing.TB that takes no offence: what the machine complains of is what hostile peers can do.
type quiet struct{ testing.TB }

func (quiet) Error(...any)          {}
func (quiet) Errorf(string, ...any) {}

func FuzzManifest(f *testing.F) {
	man := manifest{group: 5, index: 10, term: 2, body: 100, sum: 7, pieces: []segment.Piece{
		{First: 1, Last: 4, Length: 1000, Chain: 5}, {BaseOffset: 3, First: 5, Last: 10, Before: 5, Length: 2000, Term: 1, Repeated: true},
	}}
	f.Add(man.encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeManifest(b)
		if err != nil {
			return
		}
		if got := m.encode(); string(got) != string(b) {
			t.Errorf("%x became %x", b, got)
		}
	})
}

func TestFilesOfSuspicionAndPeers(t *testing.T) {
	table := suspectTable{all: votesLost, bound: 9, groups: map[GroupID]suspicion{5: 0, MetadataGroup: tailLost}}
	got, err := decodeSuspects("x", table.encode())
	if err != nil || got.all != table.all || got.bound != 9 || len(got.groups) != 2 || got.of(5) != 0 || got.of(MetadataGroup) != tailLost ||
		got.of(9<<20|3) != votesLost || got.of(10<<20) != 0 {
		t.Errorf("%+v: %v", got, err)
	}
	known := map[uint64]Peer{2: {Node: 2, Directory: [16]byte{1}, Starts: 3, Run: 4}, 9: {Node: 9}}
	back, err := decodePeers("x", encodePeers(known))
	if err != nil || len(back) != 2 || back[2] != known[2] || back[9] != known[9] {
		t.Errorf("%+v: %v", back, err)
	}
	for _, whole := range [][]byte{table.encode(), encodePeers(known)} {
		for at := range whole {
			bad := append([]byte(nil), whole...)
			bad[at] ^= 4
			if _, err := decodeSuspects("x", bad); err == nil {
				t.Errorf("suspects with byte %d changed are accepted", at)
			}
			if _, err := decodePeers("x", bad[:at]); err == nil {
				t.Errorf("peers cut at %d are accepted", at)
			}
		}
	}
}

// TestAdmitPeer is the memory that a node has of the others.
func TestAdmitPeer(t *testing.T) {
	fs := vfs.NewMem(1)
	h := openHost(t, testConfig(fs))
	a, b := [16]byte{1}, [16]byte{2}
	for _, tt := range []struct {
		name string
		p    Peer
		ok   bool
	}{
		{"first contact", Peer{Node: 2, Directory: a, Starts: 4, Run: 1}, true},
		{"again", Peer{Node: 2, Directory: a, Starts: 4, Run: 1}, true},
		{"another process with the same start", Peer{Node: 2, Directory: a, Starts: 4, Run: 2}, false},
		{"restart", Peer{Node: 2, Directory: a, Starts: 5, Run: 3}, true},
		{"older start", Peer{Node: 2, Directory: a, Starts: 4, Run: 1}, false},
		{"older start that knows that it is suspect", Peer{Node: 2, Directory: a, Starts: 3, Run: 9, Suspect: true}, false},
		{"new directory", Peer{Node: 2, Directory: b, Starts: 1, Run: 5}, false},
		{"new directory that knows", Peer{Node: 2, Directory: b, Starts: 1, Run: 5, Suspect: true}, true},
		{"the same, sound again", Peer{Node: 2, Directory: b, Starts: 2, Run: 6}, true},
		{"the directory before", Peer{Node: 2, Directory: a, Starts: 6, Run: 7}, false},
		{"no node", Peer{Directory: a}, false},
		{"this node", Peer{Node: 1, Directory: a}, false},
	} {
		if err := h.AdmitPeer(tt.p); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	closeHost(t, h)
	h = openHost(t, testConfig(fs))
	if err := h.AdmitPeer(Peer{Node: 2, Directory: a, Starts: 9}); err == nil {
		t.Error("forgotten over a restart")
	}
}
