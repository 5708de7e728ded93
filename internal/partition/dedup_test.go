package partition

import (
	"slices"
	"testing"

	"github.com/whippetmq/whippet/wire"
)

const testIdle = uint64(600_000_000) // 10 min in µs

func client(n uint64) identity { return identity{wire.U128{Lo: n}, 7} }

// commit is what the life of an admitted request does to the table.
func commit(t *testing.T, d *dedupTable, id identity, request, base, at uint64) {
	t.Helper()
	if v, _ := d.admit(id, request, at); v != admit {
		t.Fatalf("request %d of %v: verdict %d, want admit", request, id.client, v)
	}
	d.record(id, request, sendOutcome(base), at)
}

func wantVerdict(t *testing.T, d *dedupTable, id identity, request, now uint64, want verdict) outcome {
	t.Helper()
	v, o := d.admit(id, request, now)
	if v != want {
		t.Fatalf("request %d of client %v: verdict %d, want %d", request, id.client, v, want)
	}
	if v == admit {
		d.undo(id, request)
	}
	return o
}

func TestDedupVerdicts(t *testing.T) {
	d := newDedupTable(DefaultClients, testIdle)
	a := client(1)
	for id := uint64(1); id <= 100; id++ {
		commit(t, &d, a, id, id*10, 1)
	}
	t.Run("remembered ids answer with their base offset", func(t *testing.T) {
		for id := uint64(37); id <= 100; id++ {
			if o := wantVerdict(t, &d, a, id, 1, duplicate); o.base() != id*10 || o.isWrite() {
				t.Fatalf("id %d: outcome %#x", id, uint64(o))
			}
		}
	})
	t.Run("ids up to the floor are never executed", func(t *testing.T) {
		for _, id := range []uint64{1, 2, 35, 36} {
			wantVerdict(t, &d, a, id, 1, unknown)
		}
	})
	t.Run("the next id is new", func(t *testing.T) { wantVerdict(t, &d, a, 101, 1, admit) })
	t.Run("a far id is new", func(t *testing.T) { wantVerdict(t, &d, a, 1<<62, 1, admit) })
	t.Run("another user is another row", func(t *testing.T) {
		wantVerdict(t, &d, identity{a.client, 8}, 50, 1, admit)
	})
	t.Run("another client is another row", func(t *testing.T) { wantVerdict(t, &d, client(2), 50, 1, admit) })
}

// With 16 ids in flight they may commit in any order; a gap below a committed id is new as long as the floor is below.
func TestDedupOutOfOrder(t *testing.T) {
	d := newDedupTable(DefaultClients, testIdle)
	a := client(1)
	for _, id := range []uint64{10, 30, 20} {
		commit(t, &d, a, id, id, 1)
	}
	wantVerdict(t, &d, a, 5, 1, admit)
	wantVerdict(t, &d, a, 25, 1, admit)
	wantVerdict(t, &d, a, 30, 1, duplicate)
	// 64 further ids push out 10, 30 and 20: the floor is the highest of the dropped ones, not the last.
	for id := uint64(100); id < 164; id++ {
		commit(t, &d, a, id, id, 1)
	}
	for _, id := range []uint64{5, 10, 20, 25, 30} {
		wantVerdict(t, &d, a, id, 1, unknown)
	}
	wantVerdict(t, &d, a, 31, 1, admit)
	wantVerdict(t, &d, a, 100, 1, duplicate)
}

func TestDedupInFlight(t *testing.T) {
	d := newDedupTable(DefaultClients, testIdle)
	a := client(1)
	for _, id := range []uint64{3, 9, 1, 5} {
		if v, _ := d.admit(a, id, 1); v != admit {
			t.Fatalf("id %d: verdict %d", id, v)
		}
	}
	for _, id := range []uint64{1, 3, 5, 9} {
		wantVerdict(t, &d, a, id, 1, unknown)
	}
	if d.kept != 0 {
		t.Fatalf("requests in flight made %d applied rows", d.kept)
	}
	d.undo(a, 9)
	wantVerdict(t, &d, a, 9, 1, admit)
	d.record(a, 3, sendOutcome(0), 1)
	wantVerdict(t, &d, a, 3, 1, duplicate)
	wantVerdict(t, &d, a, 1, 1, unknown)
	d.ground()
	wantVerdict(t, &d, a, 1, 1, admit)
	if d.flying != 0 {
		t.Fatalf("%d in flight after ground", d.flying)
	}

	b := client(2)
	if v, _ := d.admit(b, 1, 1); v != admit {
		t.Fatal("not admitted")
	}
	d.undo(b, 1)
	if _, ok := d.rows[b]; ok {
		t.Fatal("an undone request left its row behind")
	}
}

func TestDedupInFlightBound(t *testing.T) {
	d := newDedupTable(DefaultClients, testIdle)
	a := client(1)
	for id := uint64(MaxInFlight); id >= 1; id-- {
		if v, _ := d.admit(a, id*2, 1); v != admit {
			t.Fatalf("id %d: verdict %d", id*2, v)
		}
	}
	wantVerdict(t, &d, a, 3, 1, refuse)
	wantVerdict(t, &d, a, 1<<40, 1, refuse)
	wantVerdict(t, &d, a, 2, 1, unknown) // in flight is told from full
	wantVerdict(t, &d, client(2), 3, 1, admit)
}

func TestDedupFull(t *testing.T) {
	d := newDedupTable(4, testIdle)
	for n := uint64(1); n <= 4; n++ {
		commit(t, &d, client(n), 1, n, 1000*n)
	}
	t.Run("new clients are refused", func(t *testing.T) { wantVerdict(t, &d, client(5), 1, 5000, refuse) })
	t.Run("known clients go on", func(t *testing.T) {
		wantVerdict(t, &d, client(1), 2, 5000, admit)
		wantVerdict(t, &d, client(1), 1, 5000, duplicate)
	})
	t.Run("not before ten minutes", func(t *testing.T) {
		wantVerdict(t, &d, client(5), 1, 999+testIdle, refuse)
	})
	t.Run("one old row makes room for one", func(t *testing.T) {
		now := 1000 + testIdle
		if v, _ := d.admit(client(5), 1, now); v != admit {
			t.Fatalf("verdict %d", v)
		}
		wantVerdict(t, &d, client(6), 1, now, refuse)
		if ids := d.idleRows(nil, now, 10); !slices.Equal(ids, []identity{client(1)}) {
			t.Fatalf("idle rows %v", ids)
		}
		d.forget(client(1), now-testIdle)
		d.record(client(5), 1, sendOutcome(9), now)
		wantVerdict(t, &d, client(6), 1, now, refuse)
		wantVerdict(t, &d, client(1), 2, now, refuse) // a new client again
	})
}

// A send may commit between the proposal of a forget record and its apply: that row must survive, or a lost answer's
// replay would be executed twice.
func TestDedupForgetSparesUsedRows(t *testing.T) {
	d := newDedupTable(DefaultClients, testIdle)
	a, b := client(1), client(2)
	commit(t, &d, a, 1, 0, 1000)
	commit(t, &d, b, 1, 1, 1000)
	commit(t, &d, a, 2, 2, 2000)
	d.forget(a, 1000)
	d.forget(b, 1000)
	wantVerdict(t, &d, a, 2, 2000, duplicate)
	wantVerdict(t, &d, b, 1, 2000, admit)
	if d.kept != 1 || d.oldest != d.newest || d.oldest.id != a {
		t.Fatalf("kept %d, list %v", d.kept, d.oldest)
	}
}

func TestDedupForgetKeepsInFlight(t *testing.T) {
	d := newDedupTable(DefaultClients, testIdle)
	a := client(1)
	commit(t, &d, a, 1, 0, 1000)
	if v, _ := d.admit(a, 2, 2000); v != admit {
		t.Fatal("not admitted")
	}
	d.forget(a, 1000)
	wantVerdict(t, &d, a, 2, 2000, unknown)
	d.record(a, 2, sendOutcome(5), 2000)
	if o := wantVerdict(t, &d, a, 2, 2000, duplicate); o.base() != 5 {
		t.Fatalf("outcome %#x", uint64(o))
	}
}

func TestDedupOrderOfUse(t *testing.T) {
	d := newDedupTable(DefaultClients, testIdle)
	for i, n := range []uint64{1, 2, 3, 1, 2, 1} {
		commit(t, &d, client(n), uint64(i+1), 0, uint64(i+1))
	}
	var got []uint64
	for r := d.oldest; r != nil; r = r.next {
		got = append(got, r.id.client.Lo)
	}
	if !slices.Equal(got, []uint64{3, 2, 1}) {
		t.Fatalf("order of use %v", got)
	}
}

func TestDedupRowsGrowAsUsed(t *testing.T) {
	d := newDedupTable(DefaultClients, testIdle)
	for id := uint64(1); id <= 200; id++ {
		commit(t, &d, client(1), id, 0, 1)
		r := d.rows[client(1)]
		n := len(r.seen)
		if n > RememberedIDs || cap(r.seen) > RememberedIDs || (n > 1 && cap(r.seen) > 2*n) {
			t.Fatalf("after %d requests: %d remembered, room for %d", id, n, cap(r.seen))
		}
	}
}
