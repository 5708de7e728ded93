package harness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/wire"
)

// Watch counts what a client tells its hooks.
type Watch struct {
	mu sync.Mutex
	s  Seen
}

// Seen is a copy of the counters.
type Seen struct {
	Moves    map[string]int // of the session, by cause
	Dials    map[string]int // that succeeded, by role
	Failures map[string]int // dials that failed, by role
	Closes   map[string]int // of links, by role
	Reasons  map[string]int // of these, as text
	Refusals map[uint32]int // of partition writes, by code
	Sends    map[string]int // by outcome
	Paths    map[string]int // of sends
}

// NewWatch starts at zero.
func NewWatch() *Watch {
	return &Watch{s: Seen{
		Moves: map[string]int{}, Dials: map[string]int{}, Failures: map[string]int{}, Closes: map[string]int{}, Reasons: map[string]int{},
		Refusals: map[uint32]int{}, Sends: map[string]int{}, Paths: map[string]int{},
	}}
}

var (
	_ client.HookSessionMove = (*Watch)(nil)
	_ client.HookLinkDial    = (*Watch)(nil)
	_ client.HookLinkClose   = (*Watch)(nil)
	_ client.HookRefusal     = (*Watch)(nil)
	_ client.HookSend        = (*Watch)(nil)
)

// OnSessionMove implements client.HookSessionMove.
func (w *Watch) OnSessionMove(cause string) { w.add(func(s *Seen) { s.Moves[cause]++ }) }

// OnLinkDial implements client.HookLinkDial.
func (w *Watch) OnLinkDial(_, role string, _ time.Duration, err error) {
	w.add(func(s *Seen) {
		if err != nil {
			s.Failures[role]++
			return
		}
		s.Dials[role]++
	})
}

// OnLinkClose implements client.HookLinkClose.
func (w *Watch) OnLinkClose(_, role string, err error) {
	w.add(func(s *Seen) {
		s.Closes[role]++
		if len(s.Reasons) < maxReasons {
			s.Reasons[fmt.Sprintf("%s: %v", role, err)]++
		}
	})
}

// maxReasons bounds the texts that a watch keeps.
const maxReasons = 30

// OnRefusal implements client.HookRefusal.
func (w *Watch) OnRefusal(_ string, code uint32) { w.add(func(s *Seen) { s.Refusals[code]++ }) }

// OnSend implements client.HookSend.
func (w *Watch) OnSend(outcome, path string, _, _ int, _ time.Duration) {
	w.add(func(s *Seen) {
		s.Sends[outcome]++
		s.Paths[path]++
	})
}

func (w *Watch) add(f func(*Seen)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.s)
}

// Seen so far.
func (w *Watch) Seen() Seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Seen{
		Moves: maps.Clone(w.s.Moves), Dials: maps.Clone(w.s.Dials), Failures: maps.Clone(w.s.Failures), Closes: maps.Clone(w.s.Closes), Reasons: maps.Clone(w.s.Reasons),
		Refusals: maps.Clone(w.s.Refusals), Sends: maps.Clone(w.s.Sends), Paths: maps.Clone(w.s.Paths),
	}
}

// Total of a counter.
func Total[K comparable](m map[K]int) int {
	n := 0
	for _, v := range m {
		n += v
	}
	return n
}

// ConnectTo connects a client whose first address is the given node's; the other nodes follow.
func (c *Cluster) ConnectTo(ctx context.Context, node int, opts ...client.Option) (*client.Client, error) {
	var addrs []string
	for i := range c.nodes {
		addrs = append(addrs, c.nodes[(node+i)%len(c.nodes)].Addr())
	}
	o := client.Options{Addresses: addrs, Username: Username, Password: Password}
	for _, f := range opts {
		f(&o)
	}
	cl, err := client.New(o)
	if err != nil {
		return nil, err
	}
	if err := cl.Connect(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to %s: %w", c.nodes[node].Name, err), cl.Close())
	}
	return cl, nil
}

// Client is ConnectTo for a test, with a watch; it is closed when the test ends.
func (c *Cluster) Client(t testing.TB, node int, opts ...client.Option) (*client.Client, *Watch) {
	t.Helper()
	w := NewWatch()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	cl, err := c.ConnectTo(ctx, node, append(opts, client.WithHooks(w))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cl.Close(); err != nil {
			t.Errorf("close the client: %v", err)
		}
	})
	return cl, w
}

// Warm has a client resolve and dial everything that sends to a topic need.
func Warm(t testing.TB, c *client.Client, stream, topic wire.Identifier) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	if err := c.Warm(ctx, stream, topic); err != nil {
		t.Fatalf("warm up %s/%s: %v", stream, topic, err)
	}
}
