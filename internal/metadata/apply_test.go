package metadata

import (
	"reflect"
	"strings"
	"testing"

	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/wire"
)

func opt(pairs ...any) wire.Options {
	var o wire.Options
	for i := 0; i < len(pairs); i += 2 {
		switch v := pairs[i+1].(type) {
		case string:
			o = o.Set(pairs[i].(string), wire.StringValue(v))
		case int:
			o = o.Set(pairs[i].(string), wire.Uint64Value(uint64(v)))
		}
	}
	return o
}

// TestOutcomes has a row for each answer of commands.md §3.13 to §3.15 and §5, and says on which of the two ways it travels.
func TestOutcomes(t *testing.T) {
	a, b, none := wire.Name("a"), wire.ID(0), wire.Name("none")
	for _, tc := range []struct {
		name string
		prep func(*client) // by root; stream "a" (0) with topic "t" (0) of 2 partitions exists
		as   uint32        // user, RootUser or one without permissions
		req  wire.Request
		want string
	}{
		{name: "create stream", req: &wire.CreateStream{Name: "b"}},
		{name: "create stream, no right", as: 1, req: &wire.CreateStream{Name: "b"}, want: "committed 41"},
		{name: "create stream, name taken", req: &wire.CreateStream{Name: "a"}, want: "committed 1012"},
		{name: "create stream, other case", req: &wire.CreateStream{Name: "A"}},
		{name: "create stream, no name", req: &wire.CreateStream{}, want: "status 3"},
		{name: "create stream, option", req: &wire.CreateStream{Name: "b", Options: opt("durability", "persisted")}, want: "status 4041"},
		{name: "update stream", req: &wire.UpdateStream{Stream: a, Name: "z"}},
		{name: "update stream, own name", req: &wire.UpdateStream{Stream: b, Name: "a"}},
		{name: "update stream, missing", req: &wire.UpdateStream{Stream: none, Name: "z"}, want: "committed 1009"},
		{name: "update stream, missing number", req: &wire.UpdateStream{Stream: wire.ID(7), Name: "z"}, want: "committed 1009"},
		{name: "update stream, number as name", req: &wire.UpdateStream{Stream: wire.Name("0"), Name: "z"}, want: "committed 1009"},
		{name: "update stream, missing, no right", as: 1, req: &wire.UpdateStream{Stream: none, Name: "z"}, want: "committed 1009"},
		{name: "update stream, no right", as: 1, req: &wire.UpdateStream{Stream: a, Name: "z"}, want: "committed 41"},
		{name: "update stream, name taken", prep: func(c *client) { c.must(&wire.CreateStream{Name: "b"}) },
			req: &wire.UpdateStream{Stream: a, Name: "b"}, want: "committed 1012"},
		{name: "update stream, option", req: &wire.UpdateStream{Stream: a, Name: "z", Options: opt("x", "y")}, want: "status 4041"},
		{name: "delete stream", req: &wire.DeleteStream{Stream: a}},
		{name: "delete stream, missing", req: &wire.DeleteStream{Stream: none}, want: "committed 1009"},
		{name: "delete stream, no right", as: 1, req: &wire.DeleteStream{Stream: a}, want: "committed 41"},
		{name: "purge stream", req: &wire.PurgeStream{Stream: a}, want: "status 5"},

		{name: "create topic", req: &wire.CreateTopic{Stream: a, Name: "u", PartitionsCount: 3}},
		{name: "create topic, no partitions", req: &wire.CreateTopic{Stream: a, Name: "u"}},
		{name: "create topic, most partitions", req: &wire.CreateTopic{Stream: a, Name: "u", PartitionsCount: 1000}},
		{name: "create topic, too many partitions", req: &wire.CreateTopic{Stream: a, Name: "u", PartitionsCount: 1001}, want: "status 2015"},
		{name: "create topic, missing stream", req: &wire.CreateTopic{Stream: none, Name: "u"}, want: "committed 1009"},
		{name: "create topic, name taken", req: &wire.CreateTopic{Stream: a, Name: "t"}, want: "committed 2013"},
		{name: "create topic, no right", as: 1, req: &wire.CreateTopic{Stream: a, Name: "u"}, want: "committed 41"},
		{name: "create topic, all options", req: &wire.CreateTopic{Stream: a, Name: "u", PartitionsCount: 1, Options: opt(
			"compression_algorithm", "GZIP", "message_expiry", "7 days", "max_topic_size", "2 GiB", "segment_size", 1<<20, "durability", "Persisted",
			"consumer_offset_durability", "persisted", "messages_required_to_save", "9", "size_of_messages_required_to_save", 4096,
			"preallocate_segments", "true")}},
		{name: "create topic, unknown option", req: &wire.CreateTopic{Stream: a, Name: "u", Options: opt("enforce_fsync", "true")}, want: "status 4041"},
		{name: "create topic, bad compression", req: &wire.CreateTopic{Stream: a, Name: "u", Options: opt("compression_algorithm", "zip")}, want: "status 4042"},
		{name: "create topic, bad segment size", req: &wire.CreateTopic{Stream: a, Name: "u", Options: opt("segment_size", 1<<20+1)}, want: "status 4042"},
		{name: "create topic, small segment", req: &wire.CreateTopic{Stream: a, Name: "u", Options: opt("segment_size", 1<<19)}, want: "status 4042"},
		{name: "create topic, too much to preallocate", req: &wire.CreateTopic{Stream: a, Name: "u", PartitionsCount: 65,
			Options: opt("preallocate_segments", "true")}, want: "status 4042"},
		{name: "create topic, smaller than a segment", req: &wire.CreateTopic{Stream: a, Name: "u", Options: opt("max_topic_size", 1<<20)}, want: "status 1019"},
		{name: "create topic, as large as a segment", req: &wire.CreateTopic{Stream: a, Name: "u",
			Options: opt("max_topic_size", 1<<20, "segment_size", 1<<20)}},
		{name: "create topic, huge block", req: &wire.CreateTopic{Stream: a, Name: "u", Options: manyOptions(1025)}, want: "status 4043"},
		{name: "update topic", req: &wire.UpdateTopic{Stream: a, Topic: b, Name: "z", Options: opt("message_expiry", "1 h")}},
		{name: "update topic, own name", req: &wire.UpdateTopic{Stream: a, Topic: b, Name: "t"}},
		{name: "update topic, missing stream", req: &wire.UpdateTopic{Stream: none, Topic: b, Name: "z"}, want: "committed 1009"},
		{name: "update topic, missing", req: &wire.UpdateTopic{Stream: a, Topic: none, Name: "z"}, want: "committed 2010"},
		{name: "update topic, missing, no right", as: 1, req: &wire.UpdateTopic{Stream: a, Topic: none, Name: "z"}, want: "committed 2010"},
		{name: "update topic, no right", as: 1, req: &wire.UpdateTopic{Stream: a, Topic: b, Name: "z"}, want: "committed 41"},
		{name: "update topic, name taken", prep: func(c *client) { c.must(&wire.CreateTopic{Stream: a, Name: "u"}) },
			req: &wire.UpdateTopic{Stream: a, Topic: b, Name: "u"}, want: "committed 2013"},
		{name: "update topic, segment size", req: &wire.UpdateTopic{Stream: a, Topic: b, Name: "t", Options: opt("segment_size", 1<<20)}, want: "status 4041"},
		{name: "update topic, unknown option", req: &wire.UpdateTopic{Stream: a, Topic: b, Name: "t", Options: opt("what", 1)}, want: "status 4041"},
		{name: "update topic, bad value", req: &wire.UpdateTopic{Stream: a, Topic: b, Name: "t", Options: opt("message_expiry", "soon")}, want: "status 4042"},
		{name: "update topic, below any segment", req: &wire.UpdateTopic{Stream: a, Topic: b, Name: "t", Options: opt("max_topic_size", 1000)}, want: "status 1019"},
		{name: "update topic, below its segments", req: &wire.UpdateTopic{Stream: a, Topic: b, Name: "t", Options: opt("max_topic_size", 1<<29)}, want: "status 1019"},
		{name: "update topic, size", req: &wire.UpdateTopic{Stream: a, Topic: b, Name: "t", Options: opt("max_topic_size", 1<<30)}},
		{name: "delete topic", req: &wire.DeleteTopic{Stream: a, Topic: b}},
		{name: "delete topic, missing stream", req: &wire.DeleteTopic{Stream: none, Topic: b}, want: "committed 1009"},
		{name: "delete topic, missing", req: &wire.DeleteTopic{Stream: a, Topic: none}, want: "committed 2010"},
		{name: "delete topic, no right", as: 1, req: &wire.DeleteTopic{Stream: a, Topic: b}, want: "committed 41"},
		{name: "purge topic", req: &wire.PurgeTopic{Stream: a, Topic: b}, want: "status 5"},

		{name: "create partitions", req: &wire.CreatePartitions{Stream: a, Topic: b, PartitionsCount: 1000}},
		{name: "create no partitions", req: &wire.CreatePartitions{Stream: a, Topic: b}, want: "status 2015"},
		{name: "create too many partitions", req: &wire.CreatePartitions{Stream: a, Topic: b, PartitionsCount: 1001}, want: "status 2015"},
		{name: "create partitions, missing stream", req: &wire.CreatePartitions{Stream: none, Topic: b, PartitionsCount: 1}, want: "committed 1009"},
		{name: "create partitions, missing topic", req: &wire.CreatePartitions{Stream: a, Topic: none, PartitionsCount: 1}, want: "committed 2010"},
		{name: "create partitions, no right", as: 1, req: &wire.CreatePartitions{Stream: a, Topic: b, PartitionsCount: 1}, want: "committed 41"},
		{name: "delete partitions", req: &wire.DeletePartitions{Stream: a, Topic: b, PartitionsCount: 2}},
		{name: "delete no partitions", req: &wire.DeletePartitions{Stream: a, Topic: b}, want: "status 2015"},
		{name: "delete too many partitions", req: &wire.DeletePartitions{Stream: a, Topic: b, PartitionsCount: 1001}, want: "status 2015"},
		{name: "delete more than exist", req: &wire.DeletePartitions{Stream: a, Topic: b, PartitionsCount: 3}, want: "committed 2019"},
		{name: "delete partitions, missing topic", req: &wire.DeletePartitions{Stream: a, Topic: none, PartitionsCount: 1}, want: "committed 2010"},
		{name: "delete partitions, no right", as: 1, req: &wire.DeletePartitions{Stream: a, Topic: b, PartitionsCount: 1}, want: "committed 41"},

		{name: "delete segments", req: &wire.DeleteSegments{Stream: a, Topic: b, SegmentsCount: 1}, want: "status 5"},
		{name: "create user", req: &wire.CreateUser{Username: "bob", Password: "secret"}, want: "status 5"},
		{name: "create user, option", req: &wire.CreateUser{Username: "bob", Password: "secret", Options: opt("x", "y")}, want: "status 4041"},
		{name: "update user", req: &wire.UpdateUser{User: wire.ID(1)}, want: "status 5"},
		{name: "delete user", req: &wire.DeleteUser{User: wire.ID(1)}, want: "status 5"},
		{name: "update permissions", req: &wire.UpdatePermissions{User: wire.ID(1)}, want: "status 5"},
		{name: "change password", req: &wire.ChangePassword{User: wire.ID(1)}, want: "status 5"},
		{name: "create token", req: &wire.CreatePersonalAccessToken{Name: "x"}, want: "status 5"},
		{name: "delete token", req: &wire.DeletePersonalAccessToken{Name: "x"}, want: "status 5"},
		{name: "create group", req: &wire.CreateConsumerGroup{Stream: a, Topic: b, Name: "g"}, want: "status 5"},
		{name: "delete group", req: &wire.DeleteConsumerGroup{Stream: a, Topic: b, Group: b}, want: "status 5"},
		{name: "join group", req: &wire.JoinConsumerGroup{Stream: a, Topic: b, Group: b}, want: "status 5"},
		{name: "leave group", req: &wire.LeaveConsumerGroup{Stream: a, Topic: b, Group: b}, want: "status 5"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, root := newRig(t, Config{})
			root.must(&wire.CreateStream{Name: "a"})
			root.must(&wire.CreateTopic{Stream: a, Name: "t", PartitionsCount: 2})
			check(t, root.later(wire.OpCreateUser, &createUser{name: "nobody", hash: "x", active: true}), "")
			if tc.prep != nil {
				tc.prep(root)
			}
			c := root
			if tc.as != RootUser {
				c = r.login(2, tc.as)
			}
			before := r.m.Catalog()
			session, _ := r.m.Session(c.id)
			res := c.do(tc.req)
			check(t, res, tc.want)
			if committed := strings.HasPrefix(tc.want, "committed"); tc.want != "" && r.m.Catalog() != before {
				t.Error("a refused operation changed the catalog")
			} else if (committed || tc.want == "") != (res.Index != 0) {
				t.Errorf("log index %d with outcome %q", res.Index, tc.want)
			}
			if res.Index != 0 && (res.Index != r.index || res.Timestamp != r.now) {
				t.Errorf("index %d and time %d, want %d and %d", res.Index, res.Timestamp, r.index, r.now)
			}
			if tc.want != "" && res.Payload != nil {
				t.Error("a refusal with a payload")
			}
			if s, _ := r.m.Session(c.id); (res.Index != 0) != (s.Watermark > session.Watermark) {
				t.Errorf("watermark went from %d to %d with outcome %q", session.Watermark, s.Watermark, tc.want)
			}
		})
	}
}

func manyOptions(n int) wire.Options {
	var o wire.Options
	for i := range n {
		o = append(o, wire.Option{Key: "k" + strings.Repeat("x", i%200) + string(rune('a'+i/200)), Value: wire.Uint8Value(1)})
	}
	return o
}

func TestReplies(t *testing.T) {
	r, c := newRig(t, Config{Replica: 3})
	res := c.must(&wire.CreateStream{Name: "orders"})
	var stream wire.StreamDetails
	if err := stream.Decode(res.Payload); err != nil {
		t.Fatal(err)
	}
	if stream.ID != 0 || stream.Name != "orders" || stream.CreatedAt != r.now || stream.TopicsCount != 0 || res.ReplyOperation != wire.OpCreateStream {
		t.Errorf("stream %+v, operation %v", stream, res.ReplyOperation)
	}

	res = c.must(&wire.CreateTopic{Stream: wire.Name("orders"), Name: "new", PartitionsCount: 3,
		Options: opt("durability", "persisted", "message_expiry", 0)})
	var topic wire.TopicDetails
	if err := topic.Decode(res.Payload); err != nil {
		t.Fatal(err)
	}
	if res.ReplyOperation != wire.OpCreateTopicWithAssignments {
		t.Errorf("reply operation %v", res.ReplyOperation)
	}
	if topic.ID != 0 || topic.Name != "new" || topic.CreatedAt != r.now || len(topic.Partitions) != 3 || topic.MessageExpiry != wire.Never ||
		topic.MaxTopicSize != wire.Unlimited || topic.Compression != wire.CompressionNone {
		t.Errorf("topic %+v", topic)
	}
	if len(topic.Options) != 1 || len(topic.Derived) != 8 {
		t.Errorf("options %v, derived %v", topic.Options, topic.Derived)
	}
	for i, p := range topic.Partitions {
		if p != (wire.Partition{ID: uint32(i), CreatedAt: r.now, SegmentsCount: 1}) {
			t.Errorf("partition %+v", p)
		}
	}
	if got := topic.Append(nil); string(got) != string(res.Payload) {
		t.Error("the payload is not what the codec writes")
	}

	res = c.must(&wire.CreatePartitions{Stream: wire.ID(0), Topic: wire.ID(0), PartitionsCount: 2})
	if res.ReplyOperation != wire.OpCreatePartitionsWithAssignments || len(res.Payload) != 0 {
		t.Errorf("operation %v, payload %x", res.ReplyOperation, res.Payload)
	}
	_, got := r.m.Catalog().Topic(wire.ID(0), wire.ID(0))
	if len(got.Partitions) != 5 || !reflect.DeepEqual(got.Partitions[4], Partition{ID: 4, CreatedAt: r.now, Created: r.index, Preferred: 3, Members: []uint8{3}}) {
		t.Errorf("partitions %+v", got.Partitions)
	}
	if got.Partitions[4].Group() != replica.PartitionGroup(r.index, 4) {
		t.Errorf("group %v", got.Partitions[4].Group())
	}
}

func TestIDsAreTheLowestFree(t *testing.T) {
	r, c := newRig(t, Config{})
	for _, name := range []string{"a", "b", "c", "d"} {
		c.must(&wire.CreateStream{Name: name})
		c.must(&wire.CreateTopic{Stream: wire.ID(0), Name: name})
	}
	for _, name := range []string{"c", "b"} {
		c.must(&wire.DeleteStream{Stream: wire.Name(name)})
		c.must(&wire.DeleteTopic{Stream: wire.ID(0), Topic: wire.Name(name)})
	}
	for i, want := range []uint32{1, 2, 4} {
		name := string(rune('x' + i))
		c.must(&wire.CreateStream{Name: name})
		c.must(&wire.CreateTopic{Stream: wire.ID(0), Name: name})
		cat := r.m.Catalog()
		if s := cat.Stream(wire.Name(name)); s.ID != want || cat.StreamByID(want) != s {
			t.Errorf("stream %q has id %d, want %d", name, s.ID, want)
		}
		if _, tp := cat.Topic(wire.ID(0), wire.Name(name)); tp.ID != want {
			t.Errorf("topic %q has id %d, want %d", name, tp.ID, want)
		}
	}
}

func TestPartitionsAreDeletedFromTheTop(t *testing.T) {
	r, c := newRig(t, Config{})
	c.must(&wire.CreateStream{Name: "s"})
	c.must(&wire.CreateTopic{Stream: wire.ID(0), Name: "t", PartitionsCount: 4})
	old := r.m.Catalog()
	c.must(&wire.DeletePartitions{Stream: wire.ID(0), Topic: wire.ID(0), PartitionsCount: 2})
	mid := r.m.Catalog()
	c.must(&wire.CreatePartitions{Stream: wire.ID(0), Topic: wire.ID(0), PartitionsCount: 3})
	groups := func(cat *Catalog) (ids []replica.GroupID) {
		for _, p := range cat.Partitions() {
			ids = append(ids, p.Group())
		}
		return ids
	}
	was, now := groups(old), groups(r.m.Catalog())
	if len(was) != 4 || len(groups(mid)) != 2 || len(now) != 5 || mid.PartitionCount() != 2 {
		t.Fatalf("%d, %d, %d partitions", len(was), len(groups(mid)), len(now))
	}
	if was[1] != now[1] || was[2] == now[2] || was[3] == now[3] {
		t.Errorf("groups %v became %v: the kept ones must stay, the new ones must be new", was, now)
	}
}

func TestLimits(t *testing.T) {
	r, c := newRig(t, Config{})
	c.must(&wire.CreateStream{Name: "s"})
	c.must(&wire.CreateTopic{Stream: wire.ID(0), Name: "t"})
	// Full lists are put into the state by hand: a million entries would take long.
	full := *r.m.current
	s := *full.streams.get(0)
	tp := *s.topics.get(0)
	tp.Partitions = make([]Partition, maxPartitionsPerTopic-1)
	s.topics = s.topics.set(0, &tp)
	s.topics.count = maxTopicsPerStream
	full.streams = full.streams.set(0, &s)
	full.streams.count = maxStreams
	r.m.publish(&full)

	check(t, c.do(&wire.CreateStream{Name: "x"}), "committed 1020")
	check(t, c.do(&wire.CreateTopic{Stream: wire.ID(0), Name: "x"}), "committed 2021")
	check(t, c.do(&wire.CreatePartitions{Stream: wire.ID(0), Topic: wire.ID(0), PartitionsCount: 2}), "committed 3013")
	check(t, c.do(&wire.CreatePartitions{Stream: wire.ID(0), Topic: wire.ID(0), PartitionsCount: 1}), "")
}

func TestOptionsOfATopic(t *testing.T) {
	r, c := newRig(t, Config{})
	at := func() *Topic { _, tp := r.m.Catalog().Topic(wire.ID(0), wire.ID(0)); return tp }
	keys := func(o wire.Options) string {
		var names []string
		for _, e := range o {
			names = append(names, e.Key)
		}
		return strings.Join(names, " ")
	}
	c.must(&wire.CreateStream{Name: "s"})
	c.must(&wire.CreateTopic{Stream: wire.ID(0), Name: "t", Options: opt("segment_size", "1 MiB", "durability", "PERSISTED", "max_topic_size", 0)})
	if got := keys(at().Explicit); got != "durability segment_size" {
		t.Errorf("explicit: %s", got)
	}
	if v, _ := at().Explicit.Get("segment_size"); v.Kind != wire.KindUint64 || at().Config.SegmentSize != 1<<20 {
		t.Errorf("segment size kept as %v, %d bytes", v.Kind, at().Config.SegmentSize)
	}
	before := at()
	c.must(&wire.UpdateTopic{Stream: wire.ID(0), Topic: wire.ID(0), Name: "t", Options: opt("max_topic_size", "2 MiB", "message_expiry", "1 s")})
	if got := keys(at().Explicit); got != "durability max_topic_size message_expiry segment_size" {
		t.Errorf("explicit after the update: %s", got)
	}
	if v, _ := at().Explicit.Get("max_topic_size"); v.Kind != wire.KindString || at().Config.MaxTopicSize != 2<<20 || at().Config.MessageExpiry != 1_000_000 {
		t.Errorf("an update keeps the kind that was sent, got %v; config %+v", v.Kind, at().Config)
	}
	if keys(before.Explicit) != "durability segment_size" || len(before.Derived) != 7 {
		t.Error("the topic before the update changed")
	}
	check(t, c.do(&wire.UpdateTopic{Stream: wire.ID(0), Topic: wire.ID(0), Name: "t", Options: opt("max_topic_size", 1<<20)}), "")
	check(t, c.do(&wire.UpdateTopic{Stream: wire.ID(0), Topic: wire.ID(0), Name: "t", Options: opt("max_topic_size", 0, "message_expiry", "server_default")}), "")
	if got := keys(at().Explicit); got != "durability segment_size" || len(at().Derived) != 7 || at().Config.MaxTopicSize != wire.Unlimited ||
		at().Config.MessageExpiry != wire.Never {
		t.Errorf("back to the defaults: explicit %s, config %+v", got, at().Config)
	}
	if at().Config.Durability != wire.DurabilityPersisted {
		t.Error("durability was lost")
	}
}

func TestTimeNeverGoesBack(t *testing.T) {
	r, c := newRig(t, Config{})
	c.must(&wire.CreateStream{Name: "a"})
	first := r.m.Catalog().StreamByID(0).CreatedAt
	r.now -= 500
	res := c.must(&wire.CreateStream{Name: "b"})
	if got := r.m.Catalog().StreamByID(1).CreatedAt; got != first || res.Timestamp != first {
		t.Errorf("created at %d and answered %d, want %d", got, res.Timestamp, first)
	}
}
