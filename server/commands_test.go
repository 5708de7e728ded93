package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whippetmq/whippet/wire"
)

func TestStreamsAndTopics(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	r := login(t, s)
	var sd wire.StreamDetails
	a := r.must(&wire.CreateStream{Name: "orders"}, &sd)
	if sd.ID != 0 || sd.Name != "orders" || sd.CreatedAt == 0 || sd.TopicsCount != 0 || a.h.Op == 0 || a.h.Op != a.h.Commit || a.h.Timestamp != sd.CreatedAt {
		t.Fatalf("%+v %+v", sd, a.h)
	}
	var td wire.TopicDetails
	a = r.must(&wire.CreateTopic{Stream: wire.Name("orders"), PartitionsCount: 2, Name: "eu"}, &td)
	if a.h.Operation != wire.OpCreateTopicWithAssignments || td.ID != 0 || len(td.Partitions) != 2 || td.Partitions[1].SegmentsCount != 1 || td.Compression != wire.CompressionNone {
		t.Fatalf("%+v %+v", td, a.h)
	}
	r.want(&wire.CreateStream{Name: "orders"}, wire.ErrStreamNameAlreadyExists)
	r.want(&wire.CreateTopic{Stream: wire.ID(0), Name: "eu"}, wire.ErrTopicNameAlreadyExists)
	r.want(&wire.CreateTopic{Stream: wire.ID(9), Name: "x"}, wire.ErrStreamIdNotFound)
	r.want(&wire.CreateTopic{Stream: wire.ID(0), Name: "x", PartitionsCount: 1001}, wire.ErrTooManyPartitions)
	r.want(&wire.CreateTopic{Stream: wire.ID(0), Name: "x", Options: wire.Options{{Key: "nonsense", Value: wire.StringValue("1")}}}, wire.ErrUnsupportedOptionKey)
	r.want(&wire.CreateTopic{Stream: wire.ID(0), Name: "x", Options: wire.Options{{Key: wire.OptDurability, Value: wire.StringValue("maybe")}}}, wire.ErrInvalidOptionValue)
	r.want(&wire.UpdateStream{Stream: wire.ID(9), Name: "y"}, wire.ErrStreamIdNotFound)
	r.want(&wire.DeleteStream{Stream: wire.Name("none")}, wire.ErrStreamIdNotFound)
	r.want(&wire.DeleteTopic{Stream: wire.ID(0), Topic: wire.ID(7)}, wire.ErrTopicIdNotFound)
	r.want(&wire.CreatePartitions{Stream: wire.ID(0), Topic: wire.ID(0), PartitionsCount: 0}, wire.ErrTooManyPartitions)
	r.want(&wire.DeletePartitions{Stream: wire.ID(0), Topic: wire.ID(0), PartitionsCount: 3}, wire.ErrInvalidPartitionsCount)

	r.must(&wire.UpdateStream{Stream: wire.ID(0), Name: "orders2"}, nil)
	r.must(&wire.UpdateTopic{Stream: wire.ID(0), Topic: wire.ID(0), Name: "us", Options: wire.Options{{Key: wire.OptCompression, Value: wire.StringValue("gzip")}}}, nil)
	a = r.must(&wire.CreatePartitions{Stream: wire.ID(0), Topic: wire.ID(0), PartitionsCount: 3}, nil)
	if a.h.Operation != wire.OpCreatePartitionsWithAssignments {
		t.Errorf("reply operation %v", a.h.Operation)
	}
	r.must(&wire.DeletePartitions{Stream: wire.ID(0), Topic: wire.ID(0), PartitionsCount: 1}, nil)
	r.must(&wire.GetTopic{Stream: wire.Name("orders2"), Topic: wire.Name("us")}, &td)
	if len(td.Partitions) != 4 || td.Compression != wire.CompressionGzip || td.PartitionsCount != 4 {
		t.Fatalf("%+v", td)
	}
	if a := r.do(&wire.GetTopic{Stream: wire.ID(0), Topic: wire.ID(5)}); a.code() != 0 || len(a.body) != 0 {
		t.Errorf("missing topic: %+v", a)
	}
	if a := r.do(&wire.GetStream{Stream: wire.Name("orders")}); a.code() != 0 || len(a.body) != 0 {
		t.Errorf("missing stream: %+v", a)
	}
	var topics wire.Topics
	if a := r.must(&wire.GetTopics{Stream: wire.ID(42)}, &topics); len(topics.Topics) != 0 || len(a.body) != 4 {
		t.Errorf("topics of a missing stream: %+v", a)
	}
	// Figures follow the messages and add up.
	for i := range 4 {
		r.send(wire.ID(0), wire.ID(0), wire.PartitionID(uint32(i)), "abc", "def")
	}
	r.must(&wire.GetTopic{Stream: wire.ID(0), Topic: wire.ID(0)}, &td)
	r.must(&wire.GetStream{Stream: wire.ID(0)}, &sd)
	r.must(&wire.GetTopics{Stream: wire.ID(0)}, &topics)
	var streams wire.Streams
	r.must(&wire.GetStreams{}, &streams)
	var st wire.Stats
	r.must(&wire.GetStats{}, &st)
	size := uint64(4 * len(batch(t, "abc", "def")))
	if td.MessagesCount != 8 || sd.MessagesCount != 8 || topics.Topics[0].MessagesCount != 8 || streams.Streams[0].MessagesCount != 8 || st.MessagesCount != 8 ||
		td.SizeBytes != size || sd.SizeBytes != size || st.MessagesSizeBytes != size || td.Partitions[0].CurrentOffset != 1 || td.Partitions[0].MessagesCount != 2 {
		t.Fatalf("figures: %+v %+v %+v, size %d", td, sd, st, size)
	}
	r.must(&wire.DeleteTopic{Stream: wire.ID(0), Topic: wire.ID(0)}, nil)
	r.must(&wire.GetStats{}, &st)
	if st.MessagesCount != 0 || st.TopicsCount != 0 || st.PartitionsCount != 0 {
		t.Fatalf("after deletion: %+v", st)
	}
	r.must(&wire.DeleteStream{Stream: wire.ID(0)}, nil)
	// The files go by themselves.
	eventually(t, func() bool {
		entries, err := s.fs.List(s.cfg.Path + "/streams")
		return err != nil || len(entries) == 0
	})
}

func TestNodeCommands(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	r := login(t, s)
	var st wire.Stats
	r.must(&wire.GetStats{}, &st)
	if st.ProcessID == 0 || st.MemoryUsage == 0 || st.TotalMemory == 0 || st.ThreadsCount == 0 || st.TotalDiskSpace == 0 || st.ClientsCount != 1 || st.ServerSemver == 0 || st.StartTime == 0 || st.Hostname == "" || st.KernelVersion == "" {
		t.Errorf("stats: %+v", st)
	}
	var roster wire.Roster
	r.must(&wire.GetClusterMetadata{}, &roster)
	n := roster.Nodes[0]
	if roster.Name != "single-node" || len(roster.Nodes) != 1 || n.Name != "iggy-node" || n.Role != wire.RoleLeader || n.IP != "127.0.0.1" || fmt.Sprintf("127.0.0.1:%d", n.TCP) != s.Addr().String() || n.QUIC != 0 {
		t.Errorf("roster: %+v", roster)
	}
	var oc wire.OptionCatalog
	r.must(&wire.DescribeOptions{Scope: wire.ScopeTopic}, &oc)
	if len(oc.Entries) != 9 || oc.Entries[0].Key != wire.OptCompression {
		t.Errorf("options: %+v", oc)
	}
	r.must(&wire.DescribeOptions{Scope: wire.ScopeUser}, &oc)
	if len(oc.Entries) != 0 {
		t.Errorf("options: %+v", oc)
	}
	for _, body := range [][]byte{nil, {0}, {4}} {
		if a := r.bare(r.nonReplicated(13), body); a.h.Status != wire.ErrInvalidCommand {
			t.Errorf("scope %v: %v", body, a.h.Status)
		}
	}
	var me, other wire.ClientDetails
	r.must(&wire.GetMe{}, &me)
	if me.UserID != 0 || me.Transport != wire.TransportTCP || me.Address != r.nc.LocalAddr().String() {
		t.Errorf("me: %+v", me)
	}
	dial(t, s).must(&wire.Ping{}, nil)
	var list wire.Clients
	r.must(&wire.GetClients{}, &list)
	if len(list.Clients) != 2 || list.Clients[0].ID != me.ID || list.Clients[1].UserID != wire.NoUser {
		t.Errorf("clients: %+v", list)
	}
	r.must(&wire.GetClient{ClientID: list.Clients[1].ID}, &other)
	if other.UserID != wire.NoUser || other.ID != list.Clients[1].ID {
		t.Errorf("client: %+v", other)
	}
	if a := r.do(&wire.GetClient{ClientID: 4711}); a.code() != 0 || len(a.body) != 0 {
		t.Errorf("missing client: %+v", a)
	}
	var caps wire.CapabilitiesReply
	r.must(&wire.Capabilities{Version: 1}, &caps)
	if caps.Flags&wire.CanFence == 0 || caps.MaxFrame != 64<<20 || caps.MaxInFlight == 0 || caps.NodeName != "iggy-node" || caps.ClusterID.IsZero() {
		t.Errorf("capabilities: %+v", caps)
	}
	stream, topic := r.topic(1)
	r.send(stream, topic, wire.PartitionID(0), "a")
	var cs wire.ClusterStatusReply
	r.must(&wire.ClusterStatus{Flags: wire.ClusterStatusGroups}, &cs)
	if len(cs.Nodes) != 1 || cs.Nodes[0].StartCounter != 1 || cs.Nodes[0].Role != wire.RoleLeader || len(cs.Groups) != 1 || cs.Groups[0].Primary != 0 || cs.Groups[0].Term == 0 {
		t.Errorf("status: %+v", cs)
	}
}

func TestSends(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	r := login(t, s)
	stream, topic := r.topic(3)
	empty := wire.Name("empty")
	r.must(&wire.CreateTopic{Stream: stream, PartitionsCount: 0, Name: "empty"}, nil)

	t.Run("key", func(t *testing.T) {
		for key, want := range map[string]uint32{"order-1": 2, "user-123": 1} {
			p, err := wire.MessagesKey([]byte(key))
			if err != nil {
				t.Fatal(err)
			}
			if c := r.send(stream, topic, p, "x"); c.PartitionID != want {
				t.Errorf("%s: partition %d, want %d", key, c.PartitionID, want)
			}
		}
	})
	t.Run("balanced", func(t *testing.T) {
		seen := map[uint32]int{}
		for range 9 {
			seen[r.send(stream, topic, wire.Balanced(), "x").PartitionID]++
		}
		if seen[0] != 3 || seen[1] != 3 || seen[2] != 3 {
			t.Errorf("spread: %v", seen)
		}
		// The same request names the same partition again.
		frame := r.frame(&wire.SendMessages{Stream: stream, Topic: topic, Partitioning: wire.Balanced(), Batch: batch(t, "y")})
		r.write(frame)
		first := r.read()
		r.write(frame)
		second := r.read()
		if string(first.body) != string(second.body) || len(first.body) != 24 || second.code() != 0 {
			t.Errorf("%x\n%x", first.body, second.body)
		}
	})
	t.Run("refusals", func(t *testing.T) {
		good := batch(t, "hello", "world")
		change := func(f func(wire.Batch)) wire.Batch {
			b := slices.Clone(good)
			f(b)
			return b
		}
		send := func(s, to wire.Identifier, p wire.Partitioning, b wire.Batch) []byte {
			return (&wire.SendMessages{Stream: s, Topic: to, Partitioning: p, Batch: b}).Append(nil)
		}
		ok := send(stream, topic, wire.PartitionID(0), good)
		prefix := len(ok) - len(good)
		tests := []struct {
			name string
			body []byte
			code wire.ErrorCode
		}{
			{"empty", nil, wire.ErrInvalidCommand},
			{"no batch", ok[:prefix], wire.ErrInvalidCommand},
			{"one byte short", ok[:len(ok)-1], wire.ErrInvalidCommand},
			{"one byte more", append(slices.Clone(ok), 0), wire.ErrInvalidCommand},
			{"two batches", append(slices.Clone(ok), good...), wire.ErrInvalidCommand},
			{"count differs", func() []byte { b := slices.Clone(ok); b[prefix-4]++; return b }(), wire.ErrInvalidCommand},
			{"metadata length beyond", func() []byte { b := slices.Clone(ok); b[3] = 0xff; return b }(), wire.ErrInvalidCommand},
			{"metadata length short", func() []byte { b := slices.Clone(ok); b[0]--; return b }(), wire.ErrInvalidCommand},
			{"reserved byte", send(stream, topic, wire.PartitionID(0), change(func(b wire.Batch) { b[100] = 1 })), wire.ErrInvalidCommand},
			{"batch checksum", send(stream, topic, wire.PartitionID(0), change(func(b wire.Batch) { b[40]++ })), wire.ErrInvalidBatchChecksum},
			{"message checksum", send(stream, topic, wire.PartitionID(0), change(func(b wire.Batch) { b[len(b)-1]++ })), wire.ErrInvalidMessageChecksum},
			{"missing stream", send(wire.ID(99), topic, wire.PartitionID(0), good), wire.ErrResourceNotFound},
			{"missing topic", send(stream, wire.Name("none"), wire.PartitionID(0), good), wire.ErrResourceNotFound},
			{"missing partition", send(stream, topic, wire.PartitionID(3), good), wire.ErrResourceNotFound},
			{"no partitions, balanced", send(stream, empty, wire.Balanced(), good), wire.ErrResourceNotFound},
			{"no partitions, named", send(stream, empty, wire.PartitionID(0), good), wire.ErrResourceNotFound},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				a := r.bare(hOp(r.header(wire.CodeSendMessages), wire.OpSendMessages), tt.body)
				if a.h.Status != tt.code || len(a.body) != 0 || a.h.Operation != wire.OpSendMessages {
					t.Fatalf("%v, want %v", a.h.Status, tt.code)
				}
			})
		}
		if got, _ := r.poll(pollRequest(stream, topic, 0, 0, 1000)); slices.Contains(got, "hello") {
			t.Error("a refused batch was stored")
		}
	})
	t.Run("duplicate over a reconnect under the same client id", func(t *testing.T) {
		frame := r.frame(&wire.SendMessages{Stream: stream, Topic: topic, Partitioning: wire.PartitionID(1), Batch: batch(t, "dup")})
		r.write(frame)
		first := r.read()
		again := dial(t, s)
		again.client = r.client
		again.login("iggy", "iggy")
		again.write(frame)
		second := again.read()
		if first.code() != 0 || string(first.body) != string(second.body) {
			t.Fatalf("%x\n%x %v", first.body, second.body, second.code())
		}
		*r = *again
		r.request = 1000
	})
}

func TestPipelinedSendsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	r := login(t, s)
	stream, topic := r.topic(2)
	const n = 600
	var out []byte
	var numbers []uint64
	for i := range n {
		p := wire.PartitionID(uint32(i % 2))
		req := &wire.SendMessages{Stream: stream, Topic: topic, Partitioning: p, Batch: batch(t, fmt.Sprint(i))}
		if i%50 == 7 {
			req.Batch[41]++ // refused, and still answered in its turn
		}
		f := r.frame(req)
		numbers = append(numbers, r.request)
		out = append(out, f...)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := r.nc.Write(out); err != nil {
			t.Error(err)
		}
	}()
	last := map[uint32]uint64{}
	for range n {
		a := r.read()
		i := slices.Index(numbers, a.h.Request)
		p := uint32(i % 2)
		if want := wire.ErrorCode(0); a.h.Request <= last[p] || i%50 != 7 && a.code() != want || i%50 == 7 && a.code() != wire.ErrInvalidBatchChecksum {
			t.Fatalf("request %d after %d of partition %d: %v", a.h.Request, last[p], p, a.code())
		}
		last[p] = a.h.Request
	}
	<-done
	for p := range uint32(2) {
		got, _ := r.poll(pollRequest(stream, topic, p, 0, n))
		prev := -1
		for _, m := range got {
			var v int
			if _, err := fmt.Sscan(m, &v); err != nil || v <= prev {
				t.Fatalf("partition %d: %d after %d", p, v, prev)
			}
			prev = v
		}
		if want := n / 2; len(got) < want-12 {
			t.Fatalf("%d of %d messages", len(got), want)
		}
	}
}

// On a connection that declared the fence nothing overtakes a refused send
// (routing G11), until the route is asked for again.
func TestFence(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	r := login(t, s)
	stream, topic := r.topic(2)
	r.must(&wire.Capabilities{Version: 1, Flags: wire.WantFence}, &wire.CapabilitiesReply{})
	bad := batch(t, "bad")
	bad[40]++
	good := func(p uint32) *wire.SendMessages {
		return &wire.SendMessages{Stream: stream, Topic: topic, Partitioning: wire.PartitionID(p), Batch: batch(t, "good")}
	}
	out := r.frame(&wire.SendMessages{Stream: stream, Topic: topic, Partitioning: wire.PartitionID(0), Batch: bad})
	for range 5 {
		out = append(out, r.frame(good(0))...)
	}
	r.write(out)
	if a := r.read(); a.code() != wire.ErrInvalidBatchChecksum {
		t.Fatal(a.code())
	}
	for range 5 {
		if a := r.read(); a.code() != wire.ErrTransientNotAccepted {
			t.Fatal(a.code())
		}
	}
	r.must(good(1), nil) // other partitions are not affected
	r.want(good(0), wire.ErrTransientNotAccepted)
	route := &wire.GetPollRouting{PollMessages: *pollRequest(stream, topic, 0, 0, 1)}
	r.want(route, wire.ErrInvalidCommand) // auto-commit is asked for
	route.AutoCommit = true
	var rt wire.Route
	r.must(route, &rt)
	if rt.Primary.Name != "iggy-node" || rt.Session.ClientID != r.client || rt.Session.Session != r.session || rt.Session.Watermark < r.session {
		t.Fatalf("%+v", rt)
	}
	var c wire.SendConfirmations
	r.must(good(0), &c)
	if c.Confirmations[0].BaseOffset != 0 {
		t.Fatalf("%+v: something overtook", c)
	}
}

func TestPolls(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	r := login(t, s)
	stream, topic := r.topic(2)
	for i := range 10 {
		r.send(stream, topic, wire.PartitionID(0), fmt.Sprintf("%d-a", i), fmt.Sprintf("%d-b", i))
	}
	req := func(kind wire.StrategyKind, value uint64, count uint32) *wire.PollMessages {
		q := pollRequest(stream, topic, 0, value, count)
		q.Strategy.Kind = kind
		return q
	}
	for _, tt := range []struct {
		name        string
		q           *wire.PollMessages
		first, last string
		n           int
	}{
		{"offset", req(wire.StrategyOffset, 3, 4), "1-b", "3-a", 4},
		{"first", req(wire.StrategyFirst, 0, 3), "0-a", "1-a", 3},
		{"last", req(wire.StrategyLast, 0, 3), "8-b", "9-b", 3},
		{"last of all", req(wire.StrategyLast, 0, 1000), "0-a", "9-b", 20},
		{"next without an offset", req(wire.StrategyNext, 0, 2), "0-a", "0-b", 2},
		{"timestamp", req(wire.StrategyTimestamp, 0, 1), "0-a", "0-a", 1},
		{"timestamp to come", req(wire.StrategyTimestamp, 1<<62, 1), "", "", 0},
		{"all", req(wire.StrategyOffset, 0, 1<<32-1), "0-a", "9-b", 20},
		{"behind the end", req(wire.StrategyOffset, 20, 5), "", "", 0},
		{"far behind the end", req(wire.StrategyOffset, 1<<63, 5), "", "", 0},
		{"none wanted", req(wire.StrategyOffset, 0, 0), "", "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, pm := r.poll(tt.q)
			if len(got) != tt.n || tt.n > 0 && (got[0] != tt.first || got[tt.n-1] != tt.last) || pm.CurrentOffset != 19 || pm.PartitionID != 0 {
				t.Fatalf("%q %d", got, pm.CurrentOffset)
			}
		})
	}
	q := pollRequest(stream, topic, 0, 0, 1)
	for name, tt := range map[string]struct {
		change func(*wire.PollMessages)
		code   wire.ErrorCode
	}{
		"stream":          {func(q *wire.PollMessages) { q.Stream = wire.ID(9) }, wire.ErrStreamIdNotFound},
		"topic":           {func(q *wire.PollMessages) { q.Topic = wire.ID(9) }, wire.ErrTopicIdNotFound},
		"partition":       {func(q *wire.PollMessages) { q.Partition.ID = 9 }, wire.ErrPartitionNotFound},
		"group, no which": {func(q *wire.PollMessages) { q.Consumer.Kind = wire.ConsumerGroup; q.Partition = wire.NoPartition() }, wire.ErrInvalidIdentifier},
	} {
		c := *q
		tt.change(&c)
		if a := r.do(&c); a.h.Status != tt.code || len(a.body) != 0 {
			t.Errorf("%s: %v", name, a.h.Status)
		}
	}
	if a := r.bare(r.nonReplicated(100), q.Append(nil)[:20]); a.h.Status != wire.ErrInvalidCommand {
		t.Errorf("cut short: %v", a.h.Status)
	}
	// A group that the caller is no member of: sync again.
	g := *q
	g.Consumer.Kind = wire.ConsumerGroup
	if _, pm := r.poll(&g); pm.PartitionID != wire.PollResync || pm.Count != 0 || pm.CurrentOffset != 0 {
		t.Errorf("group: %+v", pm)
	}
	// Without a partition it is the first one.
	q.Partition = wire.NoPartition()
	if got, _ := r.poll(q); len(got) != 1 {
		t.Errorf("%q", got)
	}
	if _, pm := r.poll(pollRequest(stream, topic, 1, 0, 10)); pm.PartitionID != 1 || pm.CurrentOffset != 0 || pm.Count != 0 {
		t.Errorf("empty partition: %+v", pm)
	}
}

func TestOffsets(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	r := login(t, s)
	stream, topic := r.topic(2)
	for range 10 {
		r.send(stream, topic, wire.PartitionID(0), "x")
	}
	cons := wire.SingleConsumer(wire.Name("me"))
	get := &wire.GetConsumerOffset{Consumer: cons, Stream: stream, Topic: topic, Partition: wire.SomePartition(0)}
	store := func(p wire.OptionalPartition, offset uint64) *wire.StoreConsumerOffset {
		return &wire.StoreConsumerOffset{Consumer: cons, Stream: stream, Topic: topic, Partition: p, Offset: offset, Ack: wire.AckQuorum}
	}
	remove := &wire.DeleteConsumerOffset{Consumer: cons, Stream: stream, Topic: topic, Partition: wire.SomePartition(0), Ack: wire.AckQuorum}
	none := func() {
		t.Helper()
		if a := r.do(get); a.code() != 0 || len(a.body) != 0 {
			t.Fatalf("stored: %+v", a)
		}
	}
	is := func(want uint64) {
		t.Helper()
		var o wire.OffsetReply
		r.must(get, &o)
		if o.StoredOffset != want || o.CurrentOffset != 9 || o.PartitionID != 0 {
			t.Fatalf("%+v, want %d", o, want)
		}
	}
	none()
	r.want(remove, wire.ErrConsumerOffsetNotFound)
	a := r.must(store(wire.SomePartition(0), 5), nil)
	if string(a.body) != "\x00\x00\x00\x00" || a.h.Operation != wire.OpStoreConsumerOffset {
		t.Fatalf("%+v", a)
	}
	is(5)
	r.must(store(wire.SomePartition(0), 3), nil) // an explicit store may go back
	is(3)
	r.want(store(wire.SomePartition(0), 10), wire.ErrInvalidOffset)
	r.want(store(wire.SomePartition(1), 0), wire.ErrInvalidOffset) // empty partition
	r.want(store(wire.NoPartition(), 0), wire.ErrInvalidIdentifier)
	r.want(store(wire.SomePartition(7), 0), wire.ErrResourceNotFound)
	is(3)
	for _, tt := range []struct {
		q    wire.Request
		code wire.ErrorCode
	}{
		{&wire.GetConsumerOffset{Consumer: cons, Stream: wire.ID(9), Topic: topic, Partition: wire.SomePartition(0)}, 0},
		{&wire.GetConsumerOffset{Consumer: cons, Stream: stream, Topic: wire.ID(9), Partition: wire.SomePartition(0)}, 0},
		{&wire.GetConsumerOffset{Consumer: cons, Stream: stream, Topic: topic, Partition: wire.SomePartition(9)}, wire.ErrPartitionNotFound},
		{&wire.GetConsumerOffset{Consumer: wire.GroupConsumer(wire.ID(1)), Stream: stream, Topic: topic, Partition: wire.SomePartition(0)}, 0},
		{&wire.StoreConsumerOffset{Consumer: wire.GroupConsumer(wire.ID(1)), Stream: stream, Topic: topic, Partition: wire.SomePartition(0), Ack: 1}, wire.ErrConsumerGroupPartitionNotOwned},
		{&wire.DeleteConsumerOffset{Consumer: cons, Stream: wire.ID(9), Topic: topic, Partition: wire.SomePartition(0), Ack: 1}, wire.ErrResourceNotFound},
	} {
		if a := r.do(tt.q); a.h.Status != tt.code || len(a.body) != 0 {
			t.Errorf("%s: %v, want %v", tt.q.Code(), a.h.Status, tt.code)
		}
	}
	// Auto-commit stores the last message that was returned, and never goes back.
	q := pollRequest(stream, topic, 0, 6, 2)
	q.Consumer, q.AutoCommit = cons, true
	r.poll(q)
	is(7)
	q.Strategy.Value = 0
	r.poll(q)
	is(7)
	q.Strategy.Kind = wire.StrategyNext
	if got, pm := r.poll(q); len(got) != 2 || pm.Messages() == nil {
		t.Fatal(got)
	}
	is(9)
	if got, _ := r.poll(q); len(got) != 0 {
		t.Fatal(got)
	}
	is(9)
	// The same write sent again is one write.
	frame := r.frame(store(wire.SomePartition(0), 2))
	r.write(frame)
	if a := r.read(); a.code() != 0 {
		t.Fatal(a.code())
	}
	r.must(store(wire.SomePartition(0), 8), nil)
	r.write(frame)
	if a := r.read(); a.code() != 0 {
		t.Fatal(a.code())
	}
	is(8)
	r.must(remove, nil)
	none()
}

func TestAttachAndPollOnPrimary(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	r := login(t, s)
	stream, topic := r.topic(1)
	r.send(stream, topic, wire.PartitionID(0), "a")
	link := login(t, s)
	q := &wire.PollMessagesOnPrimary{PollMessages: *pollRequest(stream, topic, 0, 0, 10)}
	link.want(q, wire.ErrUnauthenticated)
	link.want(&wire.AttachConsumerSession{Attachment: wire.Attachment{ClientID: wire.NewID(), Session: r.session}}, wire.ErrStaleClient)
	link.want(&wire.AttachConsumerSession{Attachment: wire.Attachment{ClientID: r.client, Session: r.session - 1}}, wire.ErrStaleClient)
	link.want(&wire.AttachConsumerSession{Attachment: wire.Attachment{ClientID: r.client, Session: r.session, Watermark: 1 << 40}}, wire.ErrTransientNotAccepted)
	link.must(&wire.AttachConsumerSession{Attachment: wire.Attachment{ClientID: r.client, Session: r.session}}, nil)
	if got, _ := link.poll(q); len(got) != 1 {
		t.Fatal(got)
	}
	var rt wire.Route
	link.must(&wire.GetConsumerOffsetRouting{GetConsumerOffset: wire.GetConsumerOffset{Consumer: q.Consumer, Stream: stream, Topic: topic, Partition: wire.SomePartition(0)}}, &rt)
	if rt.Session.ClientID != link.client {
		t.Fatalf("%+v", rt)
	}
	r.must(&wire.LogoutUser{}, nil)
	link.want(q, wire.ErrStaleClient)
}

// hOp gives a header another operation.
func hOp(h wire.RequestHeader, op wire.Operation) wire.RequestHeader {
	h.Operation = op
	return h
}

// A poll is cut at the frame limit, with whole messages and at least one.
func TestPollIsCutAtTheFrameLimit(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *Config) { c.Bus.MaxMessage = 64 << 10 })
	r := login(t, s)
	stream, topic := r.topic(1)
	payload := strings.Repeat("x", 20<<10)
	for range 8 {
		r.send(stream, topic, wire.PartitionID(0), payload)
	}
	for from := uint64(0); from < 8; {
		a := r.must(pollRequest(stream, topic, 0, from, 1<<32-1), nil)
		var pm wire.PolledMessages
		if err := pm.Decode(a.body); err != nil || pm.Count == 0 || a.h.Size > 64<<10 {
			t.Fatalf("%v, %d messages, %d bytes", err, pm.Count, a.h.Size)
		}
		from += uint64(pm.Count)
	}
}

func TestSendRightAfterCreation(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	r := login(t, s)
	began := time.Now()
	stream, topic := r.topic(50)
	var out []byte
	for p := range uint32(50) {
		out = append(out, r.frame(&wire.SendMessages{Stream: stream, Topic: topic, Partitioning: wire.PartitionID(p), Batch: batch(t, "a")})...)
	}
	r.write(out)
	for range 50 {
		if a := r.read(); a.code() != 0 {
			t.Fatalf("%v after %v", a.code(), time.Since(began))
		}
	}
}
