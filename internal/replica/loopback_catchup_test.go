package replica_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/internal/vfs"
)

// newTrimmingRig is a rig whose logs keep the newest messages only.
func newTrimmingRig(t testing.TB, nodes int, tune func(*replica.Config)) *rig {
	r := makeRig(t, nodes, func(cfg *replica.Config) {
		cfg.CheckpointBytes = 256 << 10
		if replica.RaceEnabled {
			cfg.ElectionTicks = 30
		}
		if tune != nil {
			tune(cfg)
		}
	})
	r.machine = func(m *replica.ListMachine) replica.Machine { return replica.NewDataMachine(m, 200) }
	for _, n := range r.nodes {
		n.start()
	}
	r.create(5, 0, func(gc *replica.GroupConfig) { gc.SegmentBytes = 128 << 10 })
	return r
}

// sendTo sends values from the next one on through whoever leads, until each is known to be there.
func (r *rig) sendTo(id replica.GroupID, next *uint64, n, pad int) {
	r.t.Helper()
	for range n {
		*next++
		for {
			c := replica.NewCommand(*next)
			c.Pad(pad)
			l := r.leader(id)
			if err := l.group(id).Submit(r.t.Context(), c); err != nil {
				r.t.Fatal(err)
			}
			err := c.Wait(r.t)
			if err == nil {
				break
			}
			if errors.Is(err, replica.ErrOutcomeUnknown) {
				if list := r.leader(id).group(id).m.List(); len(list) > 0 && list[len(list)-1] == *next {
					break
				}
			}
		}
	}
}

func (r *rig) trimmed(id replica.GroupID, behind uint64) {
	r.t.Helper()
	replica.WaitFor(r.t, "the log to be trimmed", func() bool {
		return r.leader(id).group(id).Log().FirstIndex() > behind+1
	})
}

// TestLoopbackCatchUp fills a node that was away for long, over real connections.
func TestLoopbackCatchUp(t *testing.T) {
	for _, dies := range []bool{false, true} {
		t.Run(fmt.Sprintf("source dies %v", dies), func(t *testing.T) {
			r := newTrimmingRig(t, 3, nil)
			next := uint64(0)
			r.sendTo(5, &next, 20, 100)
			l := r.leader(5)
			away := r.others(l)[0]
			away.kill()
			r.sendTo(5, &next, 500, 8000)
			r.trimmed(5, 30)
			if dies {
				r.links[[2]uint64{away.id, l.id}].slow(time.Millisecond) // questions take long
				away.start()
				replica.WaitFor(t, "the copy to begin", func() bool {
					names, err := away.fs.List("/data/groups/5")
					if err != nil {
						return false
					}
					for _, n := range names {
						if strings.HasPrefix(n.Name, "incoming-") {
							return true
						}
					}
					return len(away.group(5).m.List()) > 100
				})
				l.kill()
			} else {
				away.start()
			}
			r.sendTo(5, &next, 5, 10)
			r.equal(5, replica.UpTo(next))
			if dies {
				l.start()
				r.equal(5, replica.UpTo(next))
			}
		})
	}
}

// TestLoopbackWiped empties a node's directory, then puts an old copy of another one back.
func TestLoopbackWiped(t *testing.T) {
	r := newTrimmingRig(t, 3, nil)
	next := uint64(0)
	r.sendTo(5, &next, 50, 1000)
	r.equal(5, replica.UpTo(next))
	l := r.leader(5)
	old := l.fs.(*vfs.Mem).KillClone()
	r.sendTo(5, &next, 300, 8000)
	wiped := r.others(l)[1]
	wiped.kill()
	wiped.fs = vfs.NewMem(1000)
	wiped.start()
	replica.WaitFor(t, "the end of the suspicion", func() bool { return !wiped.group(5).Suspect() })
	r.sendTo(5, &next, 5, 10)
	r.equal(5, replica.UpTo(next))

	l.kill()
	l.start()
	r.sendTo(5, &next, 5, 10)
	r.equal(5, replica.UpTo(next))
	l.kill()
	l.fs = old
	l.start()
	if got := l.h.Self(); got.Starts != 2 && got.Starts != 1 {
		t.Errorf("the old copy presents start %d", got.Starts)
	}
	r.sendTo(5, &next, 5, 10)
	r.equal(5, replica.UpTo(next))
	replica.WaitFor(t, "the end of the suspicion", func() bool { return !l.group(5).Suspect() })
	if !l.h.Self().Suspect {
		t.Error("the old copy does not say that its directory is a new one")
	}
}

// TestLoopbackSecondProcess starts another process under the id of a live node, on a directory of its own and on a copy.
func TestLoopbackSecondProcess(t *testing.T) {
	for _, copied := range []bool{false, true} {
		t.Run(fmt.Sprintf("copied directory %v", copied), func(t *testing.T) {
			r := newTrimmingRig(t, 3, nil)
			next := uint64(0)
			r.sendTo(5, &next, 20, 100)
			victim := r.others(r.leader(5))[0]
			for _, o := range r.others(victim) {
				replica.WaitFor(t, "all to be alive", func() bool { return o.h.Alive(victim.id) })
			}
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			fs := vfs.NewMem(2000)
			if copied {
				fs = victim.fs.(*vfs.Mem).KillClone()
			}
			twin := &node{rig: r, id: victim.id, address: listener.Addr().String(), fs: fs, dir: "/data", known: victim.known}
			_ = listener.Close()
			term := r.leader(5).group(5).Status().Term
			twin.start()
			defer twin.kill()
			self := twin.h.Self()
			r.sendTo(5, &next, 200, 100)
			r.equal(5, replica.UpTo(next))
			if st := twin.group(5).Status(); st.Leader != 0 || st.Commit > 30 {
				t.Errorf("the second process takes part: %+v", st)
			}
			if now := r.leader(5).group(5).Status().Term; now != term {
				t.Errorf("term %d became %d", term, now)
			}
			if now := twin.h.Self(); now != self {
				t.Errorf("refused for the live one, but %+v became %+v", self, now)
			}
		})
	}
}
