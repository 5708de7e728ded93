package client

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/whippetmq/whippet/wire"
)

// class says what a data link is for: acknowledgements of sends never queue behind
// the replies to polls.
type class uint8

const (
	classWrite class = iota // sends
	classRead               // polls and offsets
	classes
)

func (k class) String() string { return [...]string{"write", "read"}[k] }

// node is a node of the cluster. Its name is its identity: two clients, or one
// client at two times, may know it under different addresses.
type node struct {
	name    string
	address atomic.Pointer[string] // "host:port"; empty = it does not offer the transport
	slots   [classes]*slot
	seen    uint64 // the version of the roster that named it last; guarded by topology.mu
}

// topology is the table of nodes, by name. Routes name nodes that the roster does
// not know yet; those are kept until a few rosters later.
type topology struct {
	r *router

	mu      sync.Mutex
	version uint64
	byName  map[string]*node
	order   []*node // as in the roster
	leader  *node   // of the metadata, by the newest roster
}

// nodesKept is how many rosters in a row may leave out a node before it is
// forgotten.
const nodesKept = 8

// addressOf is where to dial a node; empty when it does not listen.
func addressOf(n *wire.Node) string {
	if n.IP == "" || n.TCP == 0 {
		return ""
	}
	return net.JoinHostPort(n.IP, strconv.Itoa(int(n.TCP)))
}

// set takes a roster in.
func (t *topology) set(roster *wire.Roster) {
	var moved []*node
	t.mu.Lock()
	t.version++
	t.order = t.order[:0]
	t.leader = nil
	for i := range roster.Nodes {
		n, changed := t.enter(&roster.Nodes[i])
		if changed {
			moved = append(moved, n)
		}
		n.seen = t.version
		t.order = append(t.order, n)
		if roster.Nodes[i].Role == wire.RoleLeader && roster.Nodes[i].Status == wire.StatusHealthy {
			t.leader = n
		}
	}
	for name, n := range t.byName {
		if n.seen+nodesKept < t.version {
			delete(t.byName, name)
			moved = append(moved, n)
		}
	}
	t.mu.Unlock()
	for _, n := range moved {
		t.r.leave(n)
	}
}

// note takes a node in that a route named, and gives it.
func (t *topology) note(w *wire.Node) *node {
	t.mu.Lock()
	n, changed := t.enter(w)
	unknown := n.seen != t.version
	n.seen = max(n.seen, t.version-1) // not of this roster, and not to be forgotten either
	t.mu.Unlock()
	if unknown {
		t.r.refresh()
	}
	if changed {
		t.r.leave(n)
	}
	return n
}

// enter finds or makes a node; changed: it was known under another address.
// t.mu is held.
func (t *topology) enter(w *wire.Node) (n *node, changed bool) {
	address := addressOf(w)
	n, ok := t.byName[w.Name]
	if !ok {
		n = &node{name: w.Name}
		for k := range n.slots {
			n.slots[k] = newSlot(t.r, n, class(k))
		}
		t.byName[w.Name] = n
	}
	old := n.address.Swap(&address)
	return n, old != nil && *old != address
}

// nodes lists the nodes of the roster, the leader first: the order of probing.
func (t *topology) nodes() []*node {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := slices.Clone(t.order)
	leader := t.leader
	slices.SortStableFunc(list, func(a, b *node) int { return cmp.Compare(rank(a, leader), rank(b, leader)) })
	return list
}

func rank(n, leader *node) int {
	if n == leader {
		return 0
	}
	return 1
}

// addresses lists where the nodes listen, in an order of chance, so that the
// clients of a node that died do not all go to the same other one.
func (t *topology) addresses() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []string
	for _, n := range t.order {
		if a := *n.address.Load(); a != "" {
			list = append(list, a)
		}
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// dialAddress is the node's address, or why there is none.
func (n *node) dialAddress() (string, error) {
	if a := n.address.Load(); a != nil && *a != "" {
		return *a, nil
	}
	return "", fmt.Errorf("node %q does not listen for this transport: %w", n.name, wire.ErrFeatureUnavailable)
}

// candidates is nodes when they are needed.
func (t *topology) candidates(needed bool) []*node {
	if !needed {
		return nil
	}
	return t.nodes()
}

// down reports whether a link to the node was lost or could not be made, and there
// is none since.
func (n *node) down() bool {
	for _, s := range n.slots {
		if s.down() {
			return true
		}
	}
	return false
}

// all lists every node that is known, those that left the roster included.
func (t *topology) all() []*node {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]*node, 0, len(t.byName))
	for _, n := range t.byName {
		list = append(list, n)
	}
	return list
}

// lostAt is when the node could not be reached, in ns; 0 = it could.
func (n *node) lostAt() int64 {
	at := int64(0)
	for _, s := range n.slots {
		at = max(at, s.lost.Load())
	}
	return at
}
