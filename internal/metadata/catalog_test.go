package metadata

import (
	"fmt"
	"sync"
	"testing"

	"github.com/whippetmq/whippet/wire"
)

func TestLookups(t *testing.T) {
	r, c := newRig(t, Config{})
	c.must(&wire.CreateStream{Name: "0"})
	c.must(&wire.CreateStream{Name: "b"})
	c.must(&wire.CreateTopic{Stream: wire.Name("b"), Name: "t", PartitionsCount: 2})
	cat := r.m.Catalog()
	if s := cat.Stream(wire.Name("b")); s == nil || s.ID != 1 || cat.Stream(wire.ID(1)) != s || cat.StreamByID(1) != s {
		t.Errorf("stream %+v", s)
	}
	if cat.Stream(wire.Name("1")) != nil || cat.Stream(wire.ID(2)) != nil || cat.Stream(wire.Name("")).ID != 0 {
		t.Error("a number is not a name")
	}
	s, tp := cat.Topic(wire.Name("b"), wire.Name("x"))
	if s == nil || tp != nil {
		t.Error("a missing topic of a stream that exists")
	}
	if s, tp := cat.Topic(wire.Name("x"), wire.Name("t")); s != nil || tp != nil {
		t.Error("a missing stream")
	}
	s, tp = cat.Topic(wire.ID(1), wire.ID(0))
	if tp == nil || tp.Stream != 1 || s.TopicByID(0) != tp || s.Topic(wire.Name("t")) != tp || s.TopicCount() != 1 {
		t.Errorf("topic %+v", tp)
	}
	if _, ok := cat.Partition(1, 0, 1); !ok {
		t.Error("partition 1 is missing")
	}
	for _, id := range [][3]uint32{{1, 0, 2}, {1, 1, 0}, {2, 0, 0}, {1, 0, 1 << 31}} {
		if _, ok := cat.Partition(id[0], id[1], id[2]); ok {
			t.Errorf("partition %v exists", id)
		}
	}
	c.must(&wire.UpdateStream{Stream: wire.ID(1), Name: "c"})
	c.must(&wire.UpdateTopic{Stream: wire.ID(1), Topic: wire.ID(0), Name: "u"})
	now := r.m.Catalog()
	if now.Stream(wire.Name("b")) != nil || now.Stream(wire.Name("c")).Topic(wire.Name("u")) == nil || now.Stream(wire.Name("c")).Topic(wire.Name("t")) != nil {
		t.Error("renaming")
	}
	if cat.Stream(wire.Name("b")) == nil || cat.Stream(wire.Name("c")) != nil || cat.Index() >= now.Index() {
		t.Error("the older catalog changed")
	}
	n := 0
	for range now.Streams() {
		n++
	}
	for range now.Partitions() {
		n++
		break
	}
	for range now.Users() {
		n++
	}
	for range now.StreamByID(1).Topics() {
		n++
	}
	if n != 5 || now.UserCount() != 1 || now.User(wire.Name("iggy")) != now.UserByID(0) || now.User(wire.ID(0)) != now.UserByName("iggy") {
		t.Errorf("walked %d", n)
	}
}

func TestSubscribe(t *testing.T) {
	r, c := newRig(t, Config{})
	var seen []uint64
	r.m.Subscribe(func(cat *Catalog) {
		if r.m.Catalog() != cat {
			t.Error("a subscriber was told before the catalog was there")
		}
		seen = append(seen, cat.Index())
	})
	c.must(&wire.CreateStream{Name: "a"})
	first := r.index
	check(t, c.do(&wire.CreateStream{Name: "a"}), "committed 1012")
	r.login(9, RootUser)
	c.must(&wire.DeleteStream{Stream: wire.ID(0)})
	if fmt.Sprint(seen) != fmt.Sprint([]uint64{first, r.index}) {
		t.Errorf("told of %v", seen)
	}
}

// TestReadersDuringChanges is for the race detector: nothing reachable from a published catalog may be written.
func TestReadersDuringChanges(t *testing.T) {
	r, c := newRig(t, Config{Nodes: []uint8{0, 1, 2}})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				cat := r.m.Catalog()
				n := 0
				for s := range cat.Streams() {
					if cat.Stream(wire.Name(s.Name)) != s {
						t.Error("id and name disagree")
					}
					for tp := range s.Topics() {
						for _, p := range tp.Partitions {
							n += int(p.CreatedAt&1) + int(p.Frontier&1)
						}
						for _, o := range tp.Explicit {
							n += len(o.Value.Data)
						}
					}
				}
				r.m.Session(wire.U128{Lo: 1})
				r.m.SessionEpoch()
				_ = r.m.Sessions()
				cat.Allows(0, RuleSend, 0, 0)
			}
		})
	}
	c.must(&wire.CreateStream{Name: "s"})
	c.must(&wire.CreateTopic{Stream: wire.ID(0), Name: "t", PartitionsCount: 3})
	at := target(wire.ID(0), wire.ID(0))
	for i := range 60 {
		c.must(&wire.CreatePartitions{Stream: wire.ID(0), Topic: wire.ID(0), PartitionsCount: 5})
		check(t, c.later(wire.OpTruncatePartition, &truncatePartition{at, 1, uint64(i + 1)}), "")
		c.must(&wire.DeletePartitions{Stream: wire.ID(0), Topic: wire.ID(0), PartitionsCount: 4})
		c.must(&wire.UpdateTopic{Stream: wire.ID(0), Topic: wire.ID(0), Name: fmt.Sprint("t", i), Options: opt("message_expiry", i+1)})
		c.must(&wire.CreateStream{Name: fmt.Sprint("x", i)})
		check(t, c.later(wire.OpPurgeTopic, &purgeTopic{at}), "")
		r.login(uint64(100+i), RootUser)
	}
	close(stop)
	wg.Wait()
}

func TestLookupsDoNotAllocate(t *testing.T) {
	r, c := newRig(t, Config{})
	for i := range 50 {
		c.must(&wire.CreateStream{Name: fmt.Sprint("stream-", i)})
	}
	c.must(&wire.CreateTopic{Stream: wire.Name("stream-7"), Name: "topic", PartitionsCount: 8})
	check(t, c.later(wire.OpCreateUser, &createUser{name: "bob", hash: "x", active: true,
		permissions: &permissions{streams: []streamPermissions{{id: 7, topics: []topicPermissions{{id: 0, flags: topicSend}}}}}}), "")
	stream, topic := wire.Name("stream-7"), wire.Name("topic")
	client := wire.U128{Lo: 1}
	if n := testing.AllocsPerRun(100, func() {
		cat := r.m.Catalog()
		s, tp := cat.Topic(stream, topic)
		p, ok := tp.Partition(3)
		_, known := cat.Partition(s.ID, tp.ID, p.ID)
		_, bound := r.m.Session(client)
		if !ok || !known || !bound || !cat.Allows(1, RuleSend, s.ID, tp.ID) || cat.UserByName("iggy") == nil || p.Group() == 0 {
			t.Error("not found")
		}
	}); n != 0 {
		t.Errorf("%v allocations per look-up", n)
	}
}

func TestPlacement(t *testing.T) {
	preferred := func(r *rig, topic string) (ids []uint8) {
		_, tp := r.m.Catalog().Topic(wire.ID(0), wire.Name(topic))
		for _, p := range tp.Partitions {
			ids = append(ids, p.Preferred)
		}
		return ids
	}
	r, c := newRig(t, Config{Replica: 1, Nodes: []uint8{2, 0, 1, 0}})
	c.must(&wire.CreateStream{Name: "s"})
	create := func(name string, n uint32) {
		c.must(&wire.CreateTopic{Stream: wire.ID(0), Name: name, PartitionsCount: n})
	}
	create("a", 4) // 0 1 2 0
	create("b", 2) // of all, 0 has two already
	create("c", 1)
	create("d", 3)
	for name, want := range map[string]string{"a": "[0 1 2 0]", "b": "[1 2]", "c": "[0]", "d": "[1 2 0]"} {
		if got := fmt.Sprint(preferred(r, name)); got != want {
			t.Errorf("topic %s: %s, want %s", name, got, want)
		}
	}
	c.must(&wire.DeletePartitions{Stream: wire.ID(0), Topic: wire.Name("a"), PartitionsCount: 1})
	c.must(&wire.CreatePartitions{Stream: wire.ID(0), Topic: wire.Name("b"), PartitionsCount: 4})
	if got := fmt.Sprint(preferred(r, "b")); got != "[1 2 0 1 2 0]" {
		t.Errorf("topic b: %s", got)
	}
	c.must(&wire.DeleteTopic{Stream: wire.ID(0), Topic: wire.Name("d")})
	c.must(&wire.DeleteStream{Stream: wire.ID(0)})
	if r.m.preferred != [256]uint32{} {
		t.Errorf("counts are left: %v", r.m.preferred[:4])
	}

	r, c = newRig(t, Config{Replica: 2, Nodes: []uint8{0, 1, 2}, Placement: LeaderPlacement})
	c.must(&wire.CreateStream{Name: "s"})
	c.must(&wire.CreateTopic{Stream: wire.ID(0), Name: "a", PartitionsCount: 3})
	if got := fmt.Sprint(preferred(r, "a")); got != "[2 2 2]" {
		t.Errorf("leader placement: %s", got)
	}
}

func BenchmarkCreatePartitions(b *testing.B) {
	body := (&wire.CreatePartitions{Stream: wire.ID(0), Topic: wire.ID(0), PartitionsCount: 1000}).Append(nil)
	del := (&wire.DeletePartitions{Stream: wire.ID(0), Topic: wire.ID(0), PartitionsCount: 1000}).Append(nil)
	r, c := newRig(b, Config{Nodes: []uint8{0, 1, 2}})
	c.must(&wire.CreateStream{Name: "s"})
	c.must(&wire.CreateTopic{Stream: wire.ID(0), Name: "t", PartitionsCount: 1})
	b.ReportAllocs()
	for b.Loop() {
		check(b, r.do(c.command(wire.OpCreatePartitions, body)), "")
		check(b, r.do(c.command(wire.OpDeletePartitions, del)), "")
		r.log = r.log[:0]
	}
}

// BenchmarkCreateTopic adds a topic to a stream of 1,000 among 1,000 streams, and removes it again.
func BenchmarkCreateTopic(b *testing.B) {
	r, c := newRig(b, Config{})
	for i := range 1000 {
		c.must(&wire.CreateStream{Name: fmt.Sprint("s", i)})
		c.must(&wire.CreateTopic{Stream: wire.ID(0), Name: fmt.Sprint("t", i), PartitionsCount: 1})
	}
	body := (&wire.CreateTopic{Stream: wire.ID(0), Name: "new", PartitionsCount: 1}).Append(nil)
	del := (&wire.DeleteTopic{Stream: wire.ID(0), Topic: wire.Name("new")}).Append(nil)
	b.ReportAllocs()
	for b.Loop() {
		check(b, r.do(c.command(wire.OpCreateTopic, body)), "")
		check(b, r.do(c.command(wire.OpDeleteTopic, del)), "")
		r.log = r.log[:0]
	}
}

func BenchmarkLookup(b *testing.B) {
	r, c := newRig(b, Config{})
	for i := range 1000 {
		c.must(&wire.CreateStream{Name: fmt.Sprint("s", i)})
	}
	c.must(&wire.CreateTopic{Stream: wire.ID(500), Name: "t", PartitionsCount: 1})
	stream, topic := wire.Name("s500"), wire.Name("t")
	b.ReportAllocs()
	for b.Loop() {
		if _, t := r.m.Catalog().Topic(stream, topic); t == nil {
			b.Fatal("not found")
		}
	}
}
