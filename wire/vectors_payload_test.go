package wire

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	t0     = 1_700_000_000_000_000
	anHour = 3_600_000_000
)

var vectorClient = U128{Lo: 0x0706050403020100, Hi: 0x0f0e0d0c0b0a0908}

func vectorGlobal() GlobalPermissions {
	return GlobalPermissions{ManageServers: true, ManageUsers: true, ManageStreams: true, ManageTopics: true, PollMessages: true}
}

func vectorPermissions() *Permissions {
	return &Permissions{
		Global: vectorGlobal(),
		Streams: []StreamPermissions{
			{
				StreamID: 1, ManageStream: true, ReadStream: true, ReadTopics: true, PollMessages: true,
				Topics: []TopicPermissions{
					{TopicID: 10, ManageTopic: true, PollMessages: true},
					{TopicID: 11, ReadTopic: true, SendMessages: true},
				},
			},
			{StreamID: 2, ReadStream: true, SendMessages: true},
		},
	}
}

func optionsTwo() Options {
	return Options{{OptMessageExpiry, Uint64Value(anHour)}, {OptSegmentSize, Uint64Value(128 << 20)}}
}

func headersThree() Headers {
	return Headers{Header("k1", StringValue("v1")), Header("n", Uint64Value(42)), Header("b", BoolValue(true))}
}

func ptr[T any](v T) *T { return &v }

// vectorBatchOne is the batch of send_messages_one.
func vectorBatchOne(t testing.TB) Batch {
	b, err := BuildBatch(nil, []Message{{ID: U128{Lo: 1}, OriginTimestamp: t0, Payload: []byte("hello")}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// vectorBatchThree is the batch of send_messages_three_with_headers. Its headers
// are not in canonical order, so they are given encoded.
func vectorBatchThree(t testing.TB) Batch {
	b, err := BuildBatch(nil, []Message{
		{
			ID: U128{Lo: 0x99aabbccddeeff00, Hi: 0x1122334455667788}, OriginTimestamp: t0 + 100,
			Payload: []byte("first"), HeadersBytes: headersThree().Append(nil),
		},
		{ID: U128{Lo: 2}, OriginTimestamp: t0, Payload: []byte("second payload")},
		{ID: U128{Lo: 3}, OriginTimestamp: t0 + 500, Payload: []byte{0, 1, 2, 3, 255}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func vectorRequests(t testing.TB) map[string]Request {
	one, topic := ID(1), Name("topic-1")
	v := ClientVersion{Protocol: 11264, SDKName: "rust-sdk", SDKVersion: "0.11.0"}
	single := SingleConsumer(ID(1))
	groupPoll := PollMessages{
		Consumer: GroupConsumer(Name("group-1")), Stream: one, Topic: topic, Partition: SomePartition(2),
		Strategy: FromNext(), Count: 100, AutoCommit: true,
	}
	getOffset := GetConsumerOffset{Consumer: single, Stream: one, Topic: ID(2), Partition: SomePartition(3)}
	return map[string]Request{
		"ping":                         &Ping{},
		"get_stats":                    &GetStats{},
		"get_snapshot":                 &GetSnapshot{SnapshotDeflated, []SnapshotType{1, 3, 100}},
		"get_cluster_metadata":         &GetClusterMetadata{},
		"describe_options_topic":       &DescribeOptions{ScopeTopic},
		"describe_options_stream":      &DescribeOptions{ScopeStream},
		"describe_options_user":        &DescribeOptions{ScopeUser},
		"attach_consumer_session":      &AttachConsumerSession{Attachment{vectorClient, 42, 99}},
		"get_me":                       &GetMe{},
		"get_client":                   &GetClient{5},
		"get_clients":                  &GetClients{},
		"get_user":                     &GetUser{Name("alice")},
		"get_users":                    &GetUsers{},
		"create_user_no_permissions":   &CreateUser{Username: "alice", Password: "secret", Status: UserActive},
		"create_user_with_permissions": &CreateUser{Username: "alice", Password: "secret", Status: UserActive, Permissions: vectorPermissions()},
		"delete_user":                  &DeleteUser{ID(3)},
		"update_user_both":             &UpdateUser{User: ID(3), Username: ptr("bob"), Status: ptr(UserInactive)},
		"update_user_neither":          &UpdateUser{User: ID(3)},
		"update_permissions_set":       &UpdatePermissions{ID(3), &Permissions{Global: vectorGlobal()}},
		"update_permissions_clear":     &UpdatePermissions{ID(3), nil},
		"change_password":              &ChangePassword{ID(3), "old", "newpass"},
		"login_user_legacy":            &LoginUser{"iggy", "iggy", "0.11.0", ""},
		"logout_user":                  &LogoutUser{},
		"login_register":               &LoginRegister{v, "iggy", "iggy", ""},
		"login_register_with_context":  &LoginRegister{v, "iggy", "iggy", "ctx"},
		"login_register_with_pat":      &LoginRegisterWithPat{v, "tok-0123456789", ""},
		"get_personal_access_tokens":   &GetPersonalAccessTokens{},
		"create_personal_access_token": &CreatePersonalAccessToken{"pat-1", anHour},

		"create_personal_access_token_never":      &CreatePersonalAccessToken{"pat-1", Never},
		"delete_personal_access_token":            &DeletePersonalAccessToken{"pat-1"},
		"login_with_personal_access_token_legacy": &LoginWithPersonalAccessToken{"tok-0123456789"},

		"poll_messages_offset": &PollMessages{single, one, topic, SomePartition(0), FromOffset(0), 10, false},

		"poll_messages_no_partition":          &PollMessages{single, one, topic, NoPartition(), FromOffset(0), 10, false},
		"poll_messages_group_next_autocommit": &groupPoll,
		"get_poll_routing":                    &GetPollRouting{groupPoll},
		"poll_messages_on_primary":            &PollMessagesOnPrimary{groupPoll},
		"send_messages_one":                   &SendMessages{one, topic, PartitionID(0), vectorBatchOne(t)},
		"send_messages_three_with_headers":    &SendMessages{one, topic, PartitionID(3), vectorBatchThree(t)},
		"flush_unsaved_buffer":                &FlushUnsavedBuffer{one, ID(2), 3, true},
		"get_consumer_offset":                 &getOffset,
		"get_consumer_offset_no_partition":    &GetConsumerOffset{single, one, ID(2), NoPartition()},
		"get_consumer_offset_routing":         &GetConsumerOffsetRouting{getOffset},
		"store_consumer_offset_quorum":        &StoreConsumerOffset{single, one, ID(2), SomePartition(3), 123, AckQuorum},
		"store_consumer_offset_noack":         &StoreConsumerOffset{single, one, ID(2), SomePartition(3), 123, AckNone},
		"delete_consumer_offset":              &DeleteConsumerOffset{GroupConsumer(Name("group-1")), one, ID(2), SomePartition(3), AckQuorum},

		"get_stream":              &GetStream{Name("stream-1")},
		"get_streams":             &GetStreams{},
		"create_stream":           &CreateStream{Name: "stream-1"},
		"delete_stream":           &DeleteStream{one},
		"update_stream":           &UpdateStream{Stream: one, Name: "renamed"},
		"purge_stream":            &PurgeStream{one},
		"get_topic":               &GetTopic{one, topic},
		"get_topics":              &GetTopics{one},
		"create_topic_no_options": &CreateTopic{Stream: one, PartitionsCount: 3, Name: "topic-1"},
		"create_topic_all_options": &CreateTopic{Stream: one, PartitionsCount: 3, Name: "topic-1", Options: Options{
			{OptCompression, StringValue("none")},
			{OptConsumerOffsetDurability, StringValue("persisted")},
			{OptDurability, StringValue("replicated")},
			{OptMaxTopicSize, Uint64Value(10 << 30)},
			{OptMessageExpiry, Uint64Value(anHour)},
			{OptMessagesRequiredToSave, Uint32Value(1000)},
			{OptPreallocateSegments, BoolValue(false)},
			{OptSegmentSize, Uint64Value(128 << 20)},
			{OptSizeRequiredToSave, Uint64Value(1 << 20)},
		}},
		"delete_topic":          &DeleteTopic{one, ID(2)},
		"update_topic":          &UpdateTopic{one, ID(2), "renamed", Options{{OptMessageExpiry, Uint64Value(60_000_000)}}},
		"purge_topic":           &PurgeTopic{one, ID(2)},
		"create_partitions":     &CreatePartitions{one, ID(2), 4},
		"delete_partitions":     &DeletePartitions{one, ID(2), 4},
		"delete_segments":       &DeleteSegments{one, ID(2), 3, 5},
		"get_consumer_group":    &GetConsumerGroup{one, ID(2), Name("group-1")},
		"get_consumer_groups":   &GetConsumerGroups{one, ID(2)},
		"create_consumer_group": &CreateConsumerGroup{one, ID(2), "group-1"},
		"delete_consumer_group": &DeleteConsumerGroup{one, ID(2), Name("group-1")},
		"join_consumer_group":   &JoinConsumerGroup{one, ID(2), Name("group-1")},
		"leave_consumer_group":  &LeaveConsumerGroup{one, ID(2), Name("group-1")},
		"sync_consumer_group":   &SyncConsumerGroup{one, ID(2), Name("group-1")},
	}
}

func TestVectorRequests(t *testing.T) {
	want := vectorRequests(t)
	seen := map[Code]bool{}
	for _, v := range loadVectors(t, "requests.json") {
		t.Run(v.Name, func(t *testing.T) {
			b := v.bytes(t)
			w, ok := want[v.Name]
			if !ok {
				t.Fatal("no expected value")
			}
			seen[v.Code] = true
			if w.Code() != v.Code {
				t.Errorf("code %d, want %d", w.Code(), v.Code)
			}
			if got := w.Append(nil); !bytes.Equal(got, b) {
				t.Errorf("encoded\n%x\nwant\n%x", got, b)
			}
			got, ok := NewRequest(v.Code)
			if !ok {
				t.Fatalf("NewRequest(%d) knows nothing", v.Code)
			}
			if err := got.Decode(b); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(w, got); d != "" {
				t.Errorf("decoded (-want +got)\n%s", d)
			}
			if err := Validate(w); err != nil {
				t.Errorf("Validate: %v", err)
			}
		})
	}
	for _, c := range Commands() {
		if !seen[c.Code] && !c.Code.Extension() {
			t.Errorf("no request vector for %v", c.Code)
		}
	}
}

func vectorTopic(id uint32, name string, partitions uint32) Topic {
	tp := Topic{
		ID: id, CreatedAt: t0 + 1, PartitionsCount: partitions, MessageExpiry: anHour, Compression: CompressionNone,
		MaxTopicSize: Unlimited, SizeBytes: 500, MessagesCount: 5, Name: name,
	}
	if id == 2 {
		tp.Options = optionsTwo()
		tp.Derived = Options{{OptDurability, StringValue("replicated")}}
	}
	return tp
}

// notFound marks a vector whose empty payload means that there is nothing.
type notFound struct{ Reply }

func vectorReplies(t testing.TB) map[string]Reply {
	me := Client{ID: 5, UserID: 0, Transport: TransportTCP, Address: "127.0.0.1:55555", ConsumerGroupsCount: 2}
	details := &ClientDetails{me, []Membership{{1, 2, 3}, {4, 5, 6}}}
	alice := User{ID: 3, CreatedAt: t0, Status: UserActive, Username: "alice"}
	login := &LoginReply{1, 42, 11264, "0.11.0"}
	node := func(i uint16, ip string, role NodeRole, status NodeStatus) Node {
		return Node{"node-" + utoa(uint64(i)), ip, 8090 + 100*i, 8091 + 100*i, 8092 + 100*i, 8093 + 100*i, role, status}
	}
	route := &Route{Attachment{vectorClient, 42, 99}, node(2, "127.0.0.1", RoleLeader, StatusHealthy)}
	s1 := Stream{ID: 1, CreatedAt: t0, TopicsCount: 2, SizeBytes: 1000, MessagesCount: 10, Name: "stream-1"}
	topicDetails := &TopicDetails{vectorTopic(2, "topic-1", 1), []Partition{{0, t0 + 2, 1, 9, 500, 10}}}
	first, second := vectorBatchOne(t), vectorBatchThree(t)
	first.Stamp(0, 0, t0+1_000_000)
	second.Stamp(0, 1, t0+2_000_000)
	polled := &PolledMessages{0, 3, 4, append(append([]byte{}, first...), second...)}
	m := map[string]Reply{
		"get_stats": &Stats{
			ProcessID: 1234, CPUUsage: 1.5, TotalCPUUsage: 2.25, MemoryUsage: 100, TotalMemory: 200, AvailableMemory: 300,
			RunTime: 400, StartTime: 500, ReadBytes: 600, WrittenBytes: 700, MessagesSizeBytes: 800, StreamsCount: 1,
			TopicsCount: 2, PartitionsCount: 3, SegmentsCount: 4, MessagesCount: 5, ClientsCount: 6, ConsumerGroupsCount: 7,
			Hostname: "host", OSName: "Linux", OSVersion: "6.1", KernelVersion: "6.1.0", ServerVersion: "0.11.0",
			ServerSemver: 11000, CacheMetrics: []CacheMetric{{1, 2, 3, 10, 20, 0.5}},
			ThreadsCount: 8, FreeDiskSpace: 9, TotalDiskSpace: 10,
		},
		"get_snapshot": &Snapshot{[]byte("PK\x05\x06")},
		"get_cluster_metadata": &Roster{"cluster", []Node{
			node(0, "127.0.0.1", RoleLeader, StatusHealthy),
			node(1, "127.0.0.1", RoleFollower, StatusHealthy),
			node(2, "::1", RoleFollower, StatusUnreachable),
		}},
		"describe_options": &OptionCatalog{[]OptionSpec{
			{OptSegmentSize, KindUint64, Uint64Value(1 << 30).Data, "Segment size"},
			{"x", KindString, nil, ""},
		}},
		"get_me":     details,
		"get_client": details,
		"get_clients": &Clients{[]Client{
			me, {ID: 6, UserID: NoUser, Transport: TransportWebSocket, Address: "[::1]:1"},
		}},
		"get_user_no_permissions":   &UserDetails{alice, nil},
		"get_user_with_permissions": &UserDetails{alice, vectorPermissions()},
		"get_users": &Users{[]User{
			alice, {ID: 4, CreatedAt: t0, Status: UserInactive, Username: "bob"},
		}},
		"create_user":                  &UserDetails{alice, nil},
		"login_register":               login,
		"login_register_with_pat":      login,
		"get_personal_access_tokens":   &Tokens{[]Token{{"pat-1", t0 + anHour}, {"pat-2", 0}}},
		"create_personal_access_token": &RawToken{"tok-0123456789"},

		"poll_messages_two_records":     polled,
		"poll_messages_empty":           &PolledMessages{PartitionID: 2},
		"poll_messages_resync_sentinel": &PolledMessages{PartitionID: PollResync},
		"poll_messages_on_primary":      polled,
		"send_messages":                 &SendConfirmations{[]SendConfirmation{{1, 2, 3, 42}}},

		"send_messages_zero_confirmations": &SendConfirmations{},
		"get_poll_routing":                 route,
		"get_consumer_offset_routing":      route,
		"get_consumer_offset":              &OffsetReply{3, 100, 50},
		"get_stream":                       &StreamDetails{s1, []Topic{vectorTopic(2, "topic-1", 1), vectorTopic(3, "topic-2", 0)}},
		"get_streams": &Streams{[]Stream{
			s1, {ID: 7, CreatedAt: t0, SizeBytes: 1000, MessagesCount: 10, Name: "s7"},
		}},
		"create_stream":                     &StreamDetails{Stream: Stream{ID: 1, CreatedAt: t0, Name: "stream-1"}},
		"get_topic":                         topicDetails,
		"create_topic":                      topicDetails,
		"get_topics":                        &Topics{[]Topic{vectorTopic(2, "topic-1", 1), vectorTopic(3, "topic-2", 0)}},
		"get_consumer_group":                &GroupDetails{Group{1, 3, 2, "group-1"}, []Member{{5, []uint32{0, 2}}, {6, []uint32{1}}}},
		"get_consumer_groups":               &Groups{[]Group{{1, 3, 2, "group-1"}, {2, 3, 0, "g2"}}},
		"create_consumer_group":             &GroupDetails{Group: Group{1, 3, 0, "group-1"}},
		"sync_consumer_group":               &GroupAssignment{8, []uint32{0, 2}},
		"sync_consumer_group_no_partitions": &GroupAssignment{Generation: 9},

		"get_client_not_found":           notFound{&ClientDetails{}},
		"get_user_not_found":             notFound{&UserDetails{}},
		"get_stream_not_found":           notFound{&StreamDetails{}},
		"get_topic_not_found":            notFound{&TopicDetails{}},
		"get_consumer_group_not_found":   notFound{&GroupDetails{}},
		"get_consumer_offset_none":       notFound{&OffsetReply{}},
		"sync_consumer_group_not_member": notFound{&GroupAssignment{}},
		"send_messages_duplicate":        notFound{&SendConfirmations{}},
	}
	for _, name := range []string{
		"ping", "attach_consumer_session", "flush_unsaved_buffer", "delete_user", "update_user", "update_permissions",
		"change_password", "logout_user", "delete_personal_access_token", "store_consumer_offset", "delete_consumer_offset",
		"delete_stream", "update_stream", "purge_stream", "delete_topic", "update_topic", "purge_topic", "create_partitions",
		"delete_partitions", "delete_segments", "delete_consumer_group", "join_consumer_group", "leave_consumer_group",
	} {
		m[name] = &Empty{}
	}
	return m
}

func TestVectorResponses(t *testing.T) {
	want := vectorReplies(t)
	seen := map[Code]bool{}
	for _, v := range loadVectors(t, "responses.json") {
		t.Run(v.Name, func(t *testing.T) {
			b := v.bytes(t)
			w, ok := want[v.Name]
			if !ok {
				t.Fatal("no expected value")
			}
			seen[v.Code] = true
			if nf, ok := w.(notFound); ok {
				found, err := DecodeOptional(b, nf.Reply)
				if found || err != nil {
					t.Errorf("found %v, error %v", found, err)
				}
				return
			}
			if got := w.Append(nil); !bytes.Equal(got, b) {
				t.Errorf("encoded\n%x\nwant\n%x", got, b)
			}
			got := freshReply(w)
			if err := got.Decode(b); err != nil {
				t.Fatal(err)
			}
			if p, ok := got.(*PolledMessages); ok && len(p.Records) == 0 {
				p.Records = nil
			}
			if s, ok := got.(*SendConfirmations); ok && len(s.Confirmations) == 0 {
				s.Confirmations = nil
			}
			if d := cmp.Diff(w, got); d != "" {
				t.Errorf("decoded (-want +got)\n%s", d)
			}
		})
	}
	for _, c := range Commands() {
		if !seen[c.Code] && !c.Code.Extension() && !c.Legacy {
			t.Errorf("no response vector for %v", c.Code)
		}
	}
}

// newReplies makes one of every reply type.
var newReplies = []func() Reply{
	func() Reply { return new(Empty) }, func() Reply { return new(Stats) }, func() Reply { return new(Snapshot) },
	func() Reply { return new(Roster) }, func() Reply { return new(OptionCatalog) }, func() Reply { return new(Route) },
	func() Reply { return new(ClientDetails) }, func() Reply { return new(Clients) }, func() Reply { return new(UserDetails) },
	func() Reply { return new(Users) }, func() Reply { return new(LoginReply) }, func() Reply { return new(Tokens) },
	func() Reply { return new(RawToken) }, func() Reply { return new(PolledMessages) }, func() Reply { return new(SendConfirmations) },
	func() Reply { return new(OffsetReply) }, func() Reply { return new(StreamDetails) }, func() Reply { return new(Streams) },
	func() Reply { return new(TopicDetails) }, func() Reply { return new(Topics) }, func() Reply { return new(GroupDetails) },
	func() Reply { return new(Groups) }, func() Reply { return new(GroupAssignment) }, func() Reply { return new(CapabilitiesReply) },
	func() Reply { return new(TicketReply) }, func() Reply { return new(TransferLeaderReply) }, func() Reply { return new(ClusterStatusReply) },
}

// freshReply makes an empty reply of the same type.
func freshReply(like Reply) Reply {
	for _, f := range newReplies {
		r := f()
		if sameType(r, like) {
			return r
		}
	}
	panic("reply type missing from newReplies")
}

func TestVectorPolledMessages(t *testing.T) {
	var p PolledMessages
	if err := p.Decode(vectorBytes(t, "responses.json", "poll_messages_two_records")); err != nil {
		t.Fatal(err)
	}
	type row struct {
		Offset, Timestamp, Origin uint64
		ID                        U128
		Payload                   string
	}
	want := []row{
		{0, t0 + 1_000_000, t0, U128{Lo: 1}, "hello"},
		{1, t0 + 2_000_000, t0 + 100, U128{Lo: 0x99aabbccddeeff00, Hi: 0x1122334455667788}, "first"},
		{2, t0 + 2_000_000, t0, U128{Lo: 2}, "second payload"},
		{3, t0 + 2_000_000, t0 + 500, U128{Lo: 3}, "\x00\x01\x02\x03\xff"},
	}
	var got []row
	for m := range p.Messages() {
		got = append(got, row{m.Offset, m.Timestamp, m.OriginTimestamp, m.ID, string(m.Payload)})
		h, err := m.Headers()
		if err != nil {
			t.Fatal(err)
		}
		if m.Offset == 1 {
			if d := cmp.Diff(headersThree(), h); d != "" {
				t.Error(d)
			}
		} else if len(h) != 0 {
			t.Errorf("headers %v", h)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	batches := 0
	for b := range p.Batches() {
		batches++
		if err := b.Verify(); err != nil {
			t.Errorf("batch %d: %v", batches, err)
		}
	}
	if batches != 2 {
		t.Errorf("%d batches", batches)
	}
	// Announcing another number of messages is refused.
	bad := p.Append(nil)
	bad[12]++
	if err := p.Decode(bad); err == nil {
		t.Error("wrong count accepted")
	}
}
