package partition

import (
	"testing"

	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/wire"
)

func store(key uint32, offset uint64) *OffsetWrite {
	return &OffsetWrite{Op: StoreOffset, Kind: wire.ConsumerSingle, Key: key, Offset: offset}
}
func raise(key uint32, offset uint64) *OffsetWrite {
	return &OffsetWrite{Op: RaiseOffset, Kind: wire.ConsumerSingle, Key: key, Offset: offset}
}
func remove(key uint32) *OffsetWrite {
	return &OffsetWrite{Op: DeleteOffset, Kind: wire.ConsumerSingle, Key: key}
}
func by(w *OffsetWrite, n, request uint64) *OffsetWrite {
	w.Client, w.User, w.Request = wire.U128{Lo: n}, 7, request
	return w
}

func (r *rig) stored(key uint32) int64 {
	if o, ok := r.p.Offset(wire.ConsumerSingle, key); ok {
		return int64(o)
	}
	return -1
}

func TestOffsetWrites(t *testing.T) {
	const none = int64(-1)
	type step struct {
		w      *OffsetWrite
		status wire.ErrorCode
		stored int64
	}
	for _, c := range []struct {
		name  string
		empty bool
		steps []step
	}{
		{"store forward and back", false, []step{{store(1, 5), 0, 5}, {store(1, 9), 0, 9}, {store(1, 0), 0, 0}}},
		{"store above the current offset", false, []step{{store(1, 10), 4100, none}, {store(1, 1<<63), 4100, none}}},
		{"store on an empty partition", true, []step{{store(1, 0), 4100, none}, {store(1, 1), 4100, none}}},
		{"raise on an empty partition", true, []step{{raise(1, 0), 4100, none}}},
		{"raise never goes back", false, []step{{raise(1, 5), 0, 5}, {raise(1, 3), 0, 5}, {raise(1, 5), 0, 5}, {raise(1, 6), 0, 6}}},
		{"a store may go back behind a raise", false, []step{{raise(1, 5), 0, 5}, {store(1, 3), 0, 3}, {raise(1, 4), 0, 4}}},
		{"delete", false, []step{{remove(1), 3021, none}, {store(1, 5), 0, 5}, {remove(1), 0, none}, {remove(1), 3021, none}}},
		{"replayed store", false, []step{{by(store(1, 5), 4, 1), 0, 5}, {store(1, 8), 0, 8}, {by(store(1, 5), 4, 1), 0, 8}}},
		{"replayed delete", false, []step{{store(1, 5), 0, 5}, {by(remove(1), 4, 1), 0, none}, {by(remove(1), 4, 1), 0, none}}},
		{"another kind is another key", false, []step{{store(1, 5), 0, 5}, {&OffsetWrite{Op: DeleteOffset, Kind: wire.ConsumerGroup, Key: 1}, 3021, 5}}},
		{"no such kind", false, []step{{&OffsetWrite{Kind: 3, Key: 1}, 3, none}}},
		{"no such operation", false, []step{{&OffsetWrite{Op: 3, Kind: wire.ConsumerSingle, Key: 1}, 3, none}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Config{})
			if !c.empty {
				r.send(client(1), 1, 10)
			}
			for i, s := range c.steps {
				r.write(s.w)
				if StatusOf(s.w.Err) != s.status || r.stored(1) != s.stored {
					t.Errorf("step %d: status %d, stored %d; want %d, %d", i, StatusOf(s.w.Err), r.stored(1), s.status, s.stored)
				}
			}
		})
	}
}

// The same rules inside one turn: the folded entry must give what one entry per write would.
func TestFoldedTurn(t *testing.T) {
	for _, c := range []struct {
		name     string
		ws       []*OffsetWrite
		statuses []wire.ErrorCode
		stored   int64
		commands int
	}{
		{"newest store wins", []*OffsetWrite{store(1, 5), store(1, 7), store(1, 6)}, []wire.ErrorCode{0, 0, 0}, 6, 1},
		{"raises keep the highest", []*OffsetWrite{raise(1, 5), raise(1, 7), raise(1, 6)}, []wire.ErrorCode{0, 0, 0}, 7, 1},
		{"raise behind store", []*OffsetWrite{store(1, 8), raise(1, 6)}, []wire.ErrorCode{0, 0}, 8, 1},
		{"store behind raise", []*OffsetWrite{raise(1, 8), store(1, 6)}, []wire.ErrorCode{0, 0}, 6, 1},
		{"delete stands alone", []*OffsetWrite{store(1, 5), remove(1), remove(1), store(1, 4)}, []wire.ErrorCode{0, 0, 3021, 0}, 4, 4},
		{"identities stay visible", []*OffsetWrite{by(store(1, 5), 4, 1), by(store(1, 6), 4, 2), store(1, 3), by(store(1, 7), 5, 1)}, []wire.ErrorCode{0, 0, 0, 0}, 7, 4},
		{"no merge across an identity", []*OffsetWrite{store(1, 5), by(remove(1), 4, 1), store(1, 6)}, []wire.ErrorCode{0, 0, 0}, 6, 3},
		{"the same identity twice", []*OffsetWrite{by(store(1, 5), 4, 1), by(store(1, 6), 4, 1)}, []wire.ErrorCode{0, 57}, 5, 1},
		{"other keys in between merge", []*OffsetWrite{store(1, 5), store(2, 1), store(1, 6), store(2, 2)}, []wire.ErrorCode{0, 0, 0, 0}, 6, 2},
		{"too high among good ones", []*OffsetWrite{store(1, 5), store(1, 10), store(1, 6)}, []wire.ErrorCode{0, 4100, 0}, 6, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Config{})
			r.send(client(1), 1, 10)
			r.write(c.ws...)
			for i, w := range c.ws {
				if StatusOf(w.Err) != c.statuses[i] {
					t.Errorf("write %d: status %d, want %d", i, StatusOf(w.Err), c.statuses[i])
				}
			}
			if r.stored(1) != c.stored || len(r.p.fold.commands) != c.commands {
				t.Errorf("stored %d with %d commands, want %d with %d", r.stored(1), len(r.p.fold.commands), c.stored, c.commands)
			}
			for n := uint64(4); n <= 5; n++ {
				for _, w := range c.ws {
					if w.Request != 0 && w.Client.Lo == n && w.Err == nil {
						if _, ok := r.p.dedup.lookup(client(n), w.Request); !ok {
							t.Errorf("request %d of client %d is not remembered", w.Request, n)
						}
					}
				}
			}
		})
	}
}

func TestOffsetKeysAreBounded(t *testing.T) {
	r := newRig(t, Config{OffsetKeys: 3})
	r.send(client(1), 1, 10)
	for key := range uint32(3) {
		r.write(store(key, 1))
	}
	alone := store(9, 1)
	r.write(alone)
	folded, known := store(9, 1), store(1, 2)
	r.write(known, folded) // the second is decided at apply
	group := &OffsetWrite{Kind: wire.ConsumerGroup, Key: 9, Offset: 1}
	auto := raise(8, 1)
	r.write(group)
	r.write(auto)
	for name, c := range map[string]struct {
		w    *OffsetWrite
		want wire.ErrorCode
	}{"alone": {alone, 3024}, "folded": {folded, 3024}, "known key": {known, 0}, "other kind": {group, 0}, "auto-commit": {auto, 3024}} {
		if got := StatusOf(c.w.Err); got != c.want {
			t.Errorf("%s: status %d, want %d", name, got, c.want)
		}
	}
	r.write(remove(0))
	again := store(9, 1)
	r.write(again)
	if again.Err != nil {
		t.Errorf("after a delete: %v", again.Err)
	}
}

// A store and the delete behind it may both be in flight: the delete must see the store.
func TestDeleteBehindStoreInFlight(t *testing.T) {
	r := newRig(t, Config{})
	r.send(client(1), 1, 10)
	s, d := store(1, 5), remove(1)
	r.p.Admit(s)
	first, rs1 := r.p.Fold()
	e1 := append([]byte(nil), first...)
	w1 := append(rs1[:0:0], rs1...)
	r.p.Admit(d)
	second, rs2 := r.p.Fold()
	if second == nil {
		t.Fatalf("the delete was answered before the store was applied: %v", d.Err)
	}
	e2 := append([]byte(nil), second...)
	w2 := append(rs2[:0:0], rs2...)
	r.apply(e1, w1...)
	r.apply(e2, w2...)
	if s.Err != nil || d.Err != nil || r.stored(1) != -1 || r.p.writing != 0 {
		t.Errorf("store %v, delete %v, stored %d, writing %d", s.Err, d.Err, r.stored(1), r.p.writing)
	}
}

func TestRaiseToWhatIsStoredCostsNoEntry(t *testing.T) {
	r := newRig(t, Config{})
	r.send(client(1), 1, 10)
	r.write(raise(1, 5))
	before := r.index
	r.write(raise(1, 5), raise(1, 4))
	if r.index != before {
		t.Error("an entry was written")
	}
}

func TestFoldIsBounded(t *testing.T) {
	r := newRig(t, Config{Folded: 2})
	r.send(client(1), 1, 10)
	ws := []*OffsetWrite{store(1, 1), store(2, 1), store(3, 1)}
	r.write(ws...)
	if ws[0].Err != nil || ws[1].Err != nil || StatusOf(ws[2].Err) != 58 {
		t.Errorf("%v %v %v", ws[0].Err, ws[1].Err, ws[2].Err)
	}
}

func TestLargeTurnGivesItsMemoryBack(t *testing.T) {
	r := newRig(t, Config{})
	r.send(client(1), 1, 10)
	ws := make([]*OffsetWrite, 4*foldedKept)
	for i := range ws {
		ws[i] = raise(1, uint64(i%10))
	}
	r.write(ws...)
	r.write(raise(2, 1))
	if n := cap(r.p.fold.requests); n > foldedKept {
		t.Errorf("room for %d requests is kept", n)
	}
	if n := cap(r.p.fold.kept); n > foldedKept {
		t.Errorf("room for %d writes is kept", n)
	}
}

func TestKeptWritesFailWithLeadership(t *testing.T) {
	r := newRig(t, Config{})
	r.send(client(1), 1, 10)
	w := by(store(1, 5), 4, 1)
	done := 0
	w.Done = func(*OffsetWrite) { done++ }
	r.p.Admit(w)
	r.p.Lead(1, false)
	if done != 1 || StatusOf(w.Err) != 58 {
		t.Errorf("done %d, %v", done, w.Err)
	}
	if data, rs := r.p.Fold(); data != nil || rs != nil {
		t.Error("something is left to fold")
	}
	r.p.Lead(2, true)
	w2 := by(store(1, 5), 4, 1)
	r.write(w2)
	if w2.Err != nil || w2.Duplicate {
		t.Errorf("%+v", w2)
	}
}

// A send and an offset write cannot share an id with a correct client; a wrong one gets an answer that harms nobody.
func TestOneIDForSendAndWrite(t *testing.T) {
	r := newRig(t, Config{})
	r.send(client(4), 1, 10)
	r.write(by(store(1, 5), 4, 2))
	if s := r.send(client(4), 2, 1); s.Err != nil || !s.Duplicate || !s.NoPosition {
		t.Errorf("%+v", s)
	}
	w := by(store(1, 6), 4, 1)
	r.write(w)
	if w.Err != nil || !w.Duplicate || r.stored(1) != 5 {
		t.Errorf("%+v, stored %d", w, r.stored(1))
	}
}

// An error at apply is part of what is remembered.
func TestRefusedWriteIsRemembered(t *testing.T) {
	r := newRig(t, Config{})
	r.send(client(1), 1, 10)
	w := by(remove(1), 4, 1)
	r.write(store(2, 1), w) // another write in flight: decided at apply
	if StatusOf(w.Err) != 3021 {
		t.Fatal(w.Err)
	}
	r.write(store(1, 5))
	again := by(remove(1), 4, 1)
	r.write(again)
	if StatusOf(again.Err) != 3021 || !again.Duplicate || r.stored(1) != 5 {
		t.Errorf("%+v, stored %d", again, r.stored(1))
	}
}

func TestCommandsApplyIsAllOrNothing(t *testing.T) {
	r := newRig(t, Config{})
	r.send(client(1), 1, 10)
	body := appendCommands(nil, 5, []command{{op: opStore, target: offsetKey{wire.ConsumerSingle, 1}, offset: 3}})
	body = append(body, 0) // trailing byte
	if err := r.p.Apply(segment.Entry{Index: 9, Data: segment.AppendControl(nil, segment.KindCommands, body)}, nil); err == nil {
		t.Fatal("applied")
	}
	if r.stored(1) != -1 {
		t.Error("half of the entry was applied")
	}
}
