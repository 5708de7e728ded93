package replica

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/whippetmq/whippet/internal/clock"
	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/internal/vfs"
)

// command is a request of the test machine: it appends a value to the machine's list.
type command struct {
	value    uint64
	fold     bool // kept for Fold
	answer   bool // answered by Admit
	pad      int
	vital    bool
	proposed int
	outcomes int
	err      error
	index    uint64 // position in the list, when applied
	done     chan *command
	after    func(*command)
}

func newCommand(value uint64) *command { return &command{value: value, done: make(chan *command, 1)} }

func (c *command) Size() int { return 64 + c.pad }

func (c *command) Vital() bool { return c.vital }

func (c *command) Proposed() { c.proposed++ }

func (c *command) Fail(err error) { c.finish(err) }

func (c *command) finish(err error) {
	c.err = err
	c.outcomes++
	if c.after != nil {
		c.after(c)
		return
	}
	c.done <- c
}

func (c *command) wait(t testing.TB) error {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(20 * time.Second):
		t.Fatalf("no outcome of %d", c.value)
	}
	if c.outcomes != 1 {
		t.Fatalf("%d outcomes of %d", c.outcomes, c.value)
	}
	return c.err
}

// listMachine is a Machine whose state is the list of values, with the counters that the tests look at. Data: control
// entries of the metadata kind, whose body is a list of values.
type listMachine struct {
	t testing.TB

	mu       sync.Mutex // values, for tests that look from outside
	values   []uint64
	base     uint64 // how many values came from the checkpoint
	pending  int    // admitted and not yet applied
	kept     []*command
	folded   []Request
	leads    bool
	leadings int
	ticks    int
	rejected int
	failAt   uint64 // value at which Apply fails
	panicAt  uint64
	tickData func() [][]byte
	applied  func(value uint64)
}

func (m *listMachine) Restore(_ *segment.Log, checkpoint []byte, _ uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values = nil
	for ; len(checkpoint) >= 8; checkpoint = checkpoint[8:] {
		m.values = append(m.values, binary.LittleEndian.Uint64(checkpoint))
	}
	m.base = uint64(len(m.values))
	return nil
}

func (m *listMachine) Checkpoint(dst []byte) []byte {
	for _, v := range m.values {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	return dst
}

func (m *listMachine) encode(pad int, values ...uint64) []byte {
	body := make([]byte, 0, 8*len(values)+4+pad)
	body = binary.LittleEndian.AppendUint32(body, uint32(len(values)))
	for _, v := range values {
		body = binary.LittleEndian.AppendUint64(body, v)
	}
	body = append(body, make([]byte, pad)...)
	return segment.AppendControl(nil, segment.KindMetadata, body)
}

func (m *listMachine) Admit(r Request) []byte {
	if !m.leads {
		m.t.Error("Admit while not leading")
	}
	c := r.(*command)
	switch {
	case c.answer:
		c.finish(nil)
		return nil
	case c.fold:
		m.kept = append(m.kept, c)
		return nil
	}
	m.pending++
	return m.encode(c.pad, c.value)
}

func (m *listMachine) Fold() ([]byte, []Request) {
	if len(m.kept) == 0 {
		return nil, nil
	}
	m.folded = m.folded[:0]
	var values []uint64
	for _, c := range m.kept {
		values = append(values, c.value)
		m.folded = append(m.folded, c)
	}
	m.pending += len(m.kept)
	m.kept = m.kept[:0]
	return m.encode(0, values...), m.folded
}

func (m *listMachine) Rejected(rs []Request) {
	m.rejected += len(rs)
	m.pending -= len(rs)
}

func (m *listMachine) Apply(e segment.Entry, rs []Request) error {
	kind, body, ok := segment.ParseControl(e.Data)
	if !ok || kind != segment.KindMetadata {
		return fmt.Errorf("unexpected entry of kind %v", kind)
	}
	n := int(binary.LittleEndian.Uint32(body))
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range n {
		v := binary.LittleEndian.Uint64(body[4+8*i:])
		if m.failAt != 0 && v == m.failAt {
			return errors.New("this value cannot be applied")
		}
		if m.panicAt != 0 && v == m.panicAt {
			panic("this value breaks the machine")
		}
		m.values = append(m.values, v)
		if m.applied != nil {
			m.applied(v)
		}
	}
	if rs != nil && len(rs) != n {
		m.t.Errorf("entry of %d values applied with %d requests", n, len(rs))
	}
	for i, r := range rs {
		c := r.(*command)
		if want := binary.LittleEndian.Uint64(body[4+8*i:]); c.value != want {
			m.t.Errorf("request %d completed by entry of %d", c.value, want)
		}
		if c.proposed != 1 {
			m.t.Errorf("Proposed called %d times before the outcome", c.proposed)
		}
		m.pending--
		c.index = uint64(len(m.values) - len(rs) + i)
		c.finish(nil)
	}
	return nil
}

func (m *listMachine) Lead(_ uint64, leading bool) {
	if leading == m.leads {
		m.t.Errorf("Lead(%v) twice", leading)
	}
	m.leads = leading
	m.leadings++
	for _, c := range m.kept {
		c.finish(ErrNotAdmitted)
	}
	m.kept = m.kept[:0]
	m.pending = 0
}

func (m *listMachine) Tick(uint64) [][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ticks++
	if m.tickData != nil {
		return m.tickData()
	}
	return nil
}

func (m *listMachine) list() []uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.values)
}

const testBoot = "boot-1"

func testConfig(fs vfs.FS) Config {
	return Config{
		FS: fs, Dir: "/data/node", NodeID: 1, ClusterID: [16]byte{1}, BootID: testBoot, Clock: clock.System(nil),
		Shards: 2, Tick: 5 * time.Millisecond, BallastBytes: -1, ReserveBytes: -1,
	}
}

func openHost(t testing.TB, cfg Config) *Host {
	t.Helper()
	h, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { closeHost(t, h) })
	return h
}

// closeHost closes a host that may be closed already.
func closeHost(t testing.TB, h *Host) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := h.Close(ctx); err != nil && !errors.Is(err, ErrStopped) {
		t.Logf("close: %v", err)
	}
}

func groupConfig(id GroupID, m Machine) GroupConfig {
	return GroupConfig{ID: id, Dir: fmt.Sprintf("/data/groups/%d", uint64(id)), Voters: []uint64{1}, Machine: m}
}

func startGroup(t testing.TB, h *Host, cfg GroupConfig) *Group {
	t.Helper()
	g, err := h.StartGroup(t.Context(), cfg)
	if err != nil {
		t.Fatalf("start group: %v", err)
	}
	waitReady(t, g)
	return g
}

func waitReady(t testing.TB, g *Group) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := g.WaitReady(ctx); err != nil {
		t.Fatalf("wait for a leader: %v", err)
	}
}

func submit(t testing.TB, g *Group, value uint64) *command {
	t.Helper()
	c := newCommand(value)
	if err := g.Submit(t.Context(), c); err != nil {
		t.Fatalf("submit %d: %v", value, err)
	}
	return c
}

func upTo(n uint64) []uint64 {
	vs := make([]uint64, n)
	for i := range vs {
		vs[i] = uint64(i) + 1
	}
	return vs
}
