package metadata

import (
	"slices"
	"testing"

	"github.com/whippetmq/whippet/wire"
)

// TestMembers: every node holds a new partition, whatever decides who leads it first.
func TestMembers(t *testing.T) {
	for name, test := range map[string]struct {
		cfg       Config
		members   []uint8
		preferred []uint8
	}{
		"alone":  {Config{Replica: 3}, []uint8{3}, []uint8{3, 3, 3}},
		"spread": {Config{Replica: 1, Nodes: []uint8{2, 0, 1}}, []uint8{0, 1, 2}, []uint8{0, 1, 2}},
		"leader": {Config{Replica: 1, Nodes: []uint8{0, 1, 2}, Placement: LeaderPlacement}, []uint8{0, 1, 2}, []uint8{1, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			r, c := newRig(t, test.cfg)
			c.must(&wire.CreateStream{Name: "s"})
			c.must(&wire.CreateTopic{Stream: wire.ID(0), Name: "t", PartitionsCount: 2})
			c.must(&wire.CreatePartitions{Stream: wire.ID(0), Topic: wire.ID(0), PartitionsCount: 1})
			restored := New(test.cfg)
			if err := restored.Restore(nil, r.m.Checkpoint(nil), r.index); err != nil {
				t.Fatal(err)
			}
			for _, m := range []*Machine{r.m, restored} {
				_, topic := m.Catalog().Topic(wire.ID(0), wire.ID(0))
				for i, p := range topic.Partitions {
					if !slices.Equal(p.Members, test.members) || p.Preferred != test.preferred[i] {
						t.Errorf("partition %d: members %v, preferred %d", i, p.Members, p.Preferred)
					}
				}
			}
		})
	}
}

func TestSetPreferred(t *testing.T) {
	r, c := newRig(t, Config{Nodes: []uint8{0, 1, 2}})
	c.must(&wire.CreateStream{Name: "s"})
	c.must(&wire.CreateTopic{Stream: wire.ID(0), Name: "t", PartitionsCount: 3})
	made := r.index
	before := r.m.Catalog()
	set := func(p SetPreferred, want string) {
		t.Helper()
		check(t, r.do(&Command{Operation: OpSetPreferred, Body: p.Append(nil)}), want)
	}
	good := SetPreferred{Partition: 0, Created: made, Replica: 2}
	for name, change := range map[string]func(*SetPreferred){
		"no stream":           func(p *SetPreferred) { p.Stream = 1 },
		"no topic":            func(p *SetPreferred) { p.Topic = 1 },
		"no partition":        func(p *SetPreferred) { p.Partition = 3 },
		"another incarnation": func(p *SetPreferred) { p.Created-- },
		"not a member":        func(p *SetPreferred) { p.Replica = 3 },
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			change(&bad)
			set(bad, "committed 20")
		})
	}
	if r.m.Catalog() != before {
		t.Fatal("a refused change has an effect")
	}
	set(good, "")
	set(good, "") // again
	p, _ := r.m.Catalog().Partition(0, 0, 0)
	old, _ := before.Partition(0, 0, 0)
	if p.Preferred != 2 || old.Preferred != 0 {
		t.Fatalf("preferred %d, in the older catalog %d", p.Preferred, old.Preferred)
	}
	// The next partition goes where the fewest are now: node 0.
	c.must(&wire.CreatePartitions{Stream: wire.ID(0), Topic: wire.ID(0), PartitionsCount: 1})
	if p, _ := r.m.Catalog().Partition(0, 0, 3); p.Preferred != 0 {
		t.Fatalf("preferred %d", p.Preferred)
	}
	check(t, r.do(&Command{Operation: OpSetPreferred, Body: []byte{1}}), "status 3")
}
