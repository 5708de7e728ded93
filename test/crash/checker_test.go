package crash

import (
	"strings"
	"testing"
)

func TestPayload(t *testing.T) {
	m := message{3, 1, 77}
	for _, size := range []int{0, 1, 500} {
		b := m.payload(size)
		if got, err := parse(b); err != nil || got != m {
			t.Errorf("%+v, %v", got, err)
		}
		if size > 0 {
			b[len(b)-1] ^= 1
			if _, err := parse(b); err == nil {
				t.Error("changed bytes pass")
			}
		}
	}
	if _, err := parse([]byte("short")); err == nil {
		t.Error("a short message passes")
	}
}

// A checker that cannot fail proves nothing: each promise broken once.
func TestCheckerFindsViolations(t *testing.T) {
	m := func(producer uint32, seq uint64) message { return message{producer, 0, seq} }
	good := func() (*history, [][]message) {
		log := []message{m(1, 1), m(2, 1), m(1, 2), m(1, 3), m(2, 2)}
		h := &history{
			confirmed: []confirmed{
				{m(1, 1), 0, true}, {m(2, 1), 1, true}, {m(1, 2), 2, true}, {m(2, 2), 0, false},
			},
			unknown: []message{m(1, 3), m(1, 9)}, // one of them is there
			seen:    []map[uint64]message{{0: m(1, 1), 3: m(1, 3)}},
		}
		return h, [][]message{log}
	}
	if h, logs := good(); h.check(logs) != nil {
		t.Fatal(h.check(logs))
	}
	for kind, spoil := range map[string]func(h *history, logs [][]message){
		"lost":      func(h *history, _ [][]message) { h.confirmed = append(h.confirmed, confirmed{message: m(3, 1)}) },
		"moved":     func(h *history, _ [][]message) { h.confirmed[0].offset = 1 },
		"twice":     func(_ *history, logs [][]message) { logs[0] = append(logs[0], m(2, 1)) },
		"order":     func(_ *history, logs [][]message) { logs[0][2], logs[0][3] = logs[0][3], logs[0][2] },
		"unasked":   func(_ *history, logs [][]message) { logs[0] = append(logs[0], m(4, 1)) },
		"misplaced": func(_ *history, logs [][]message) { logs[0] = append(logs[0], message{4, 2, 1}) },
		"vanished":  func(h *history, _ [][]message) { h.seen[0][5] = m(9, 9) },
		"changed":   func(h *history, _ [][]message) { h.seen[0][0] = m(2, 1) },
	} {
		h, logs := good()
		spoil(h, logs)
		if err := h.check(logs); err == nil || !strings.Contains(err.Error(), kind+" (") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
