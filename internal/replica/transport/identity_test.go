package transport

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/whippetmq/whippet/internal/replica"
)

// A node whose directory is not the newest hears of it, presents itself anew and
// is admitted then.
func TestOutdatedNodeComesBackAsAnother(t *testing.T) {
	var presented atomic.Pointer[Hello]
	presented.Store(&Hello{Directory: [16]byte{1}, StartCount: 1, Run: 5})
	told := make(chan [16]byte, 8)
	a, b := pair(t, func(c *Config) {
		c.Current = func() Hello { return *presented.Load() }
		c.Outdated = func(directory [16]byte) error {
			told <- directory
			presented.Store(&Hello{Directory: [16]byte{9}, StartCount: 1, Run: 5, Suspect: true})
			return nil
		}
	}, func(c *Config) {
		c.Admit = func(peer Hello) error {
			if !peer.Suspect {
				return fmt.Errorf("%w: not this one", replica.ErrOutdated)
			}
			return nil
		}
	})
	if d := receive(t, "word of it", told); d != [16]byte{1} {
		t.Fatalf("refused as %v", d)
	}
	if h := receive(t, "link", b.joined); h.Directory != [16]byte{9} || !h.Suspect || h.Run != 5 {
		t.Fatalf("%+v", h)
	}
	waitUp(t, a, 2)
	waitUp(t, b, 1)
	if !strings.Contains(b.log.String(), "not this one") {
		t.Error("the refusal is not logged")
	}
}

func TestRefusedForAnotherReason(t *testing.T) {
	outdated := make(chan struct{}, 8)
	a, b := pair(t, func(c *Config) { c.Outdated = func([16]byte) error { outdated <- struct{}{}; return nil } },
		func(c *Config) { c.Admit = func(Hello) error { return errors.New("no room to remember") } })
	eventually(t, "the reason in the log of who dials", func() bool { return strings.Contains(a.log.String(), "no room to remember") })
	if a.Up(2) || b.Up(1) || len(outdated) > 0 {
		t.Errorf("up %v %v, told %d times that it is outdated", a.Up(2), b.Up(1), len(outdated))
	}
}

// A second process under the id of a node that is connected and alive is refused
// and not told that it is outdated; when the first is not alive it takes its place.
func TestTwin(t *testing.T) {
	var alive atomic.Bool
	alive.Store(true)
	la, lb, lc := listen(t), listen(t), listen(t)
	addresses := []string{la.Addr().String(), lb.Addr().String()}
	own := func(run uint64) func(*Config) {
		return func(c *Config) {
			c.Current = func() Hello { return Hello{Directory: [16]byte{1}, StartCount: 1, Run: run} }
			c.Outdated = func([16]byte) error { t.Error("told that it is outdated"); return nil }
		}
	}
	b := start(t, 2, addresses, lb, func(c *Config) { c.Alive = func(uint64) bool { return alive.Load() } })
	first := start(t, 1, addresses, la, own(1))
	waitUp(t, first, 2)
	if h := receive(t, "link of the first", b.joined); h.Run != 1 {
		t.Fatal(h.Run)
	}
	second := start(t, 1, addresses, lc, own(2))
	eventually(t, "refusal of the second", func() bool { return strings.Contains(second.log.String(), "its own --replica-id") })
	if !first.Up(2) || second.Up(2) {
		t.Fatalf("first up %v, second up %v", first.Up(2), second.Up(2))
	}
	alive.Store(false)
	if h := receive(t, "link of the second", b.joined); h.Run != 2 {
		t.Fatal(h.Run)
	}
}
