package client

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// TestCommands calls every command: the request that arrives is the one that was
// meant, the reply that comes back is decoded, and a refusal surfaces.
func TestCommands(t *testing.T) {
	group := wire.Name("g")
	one := wire.SingleConsumer(wire.ID(1))
	name, status := "new", wire.UserInactive
	perms := &wire.Permissions{Global: wire.GlobalPermissions{ReadServers: true}}
	options := wire.Options{}.Set("message_expiry", wire.Uint64Value(5))
	tests := []struct {
		name  string
		call  func(context.Context, *Client) (any, error)
		want  wire.Request
		reply wire.Reply
		got   any
	}{
		{"stats", func(ctx context.Context, c *Client) (any, error) { return c.Stats(ctx) }, &wire.GetStats{}, &wire.Stats{Hostname: "h"}, &wire.Stats{Hostname: "h"}},
		{"snapshot", func(ctx context.Context, c *Client) (any, error) {
			return c.Snapshot(ctx, wire.SnapshotDeflated, wire.SnapshotAll)
		}, &wire.GetSnapshot{Compression: wire.SnapshotDeflated, Types: []wire.SnapshotType{wire.SnapshotAll}}, &wire.Snapshot{ZIP: []byte("zip")}, []byte("zip")},
		{"roster", func(ctx context.Context, c *Client) (any, error) { return c.ClusterMetadata(ctx) }, &wire.GetClusterMetadata{}, &wire.Roster{Name: "c", Nodes: []wire.Node{{Name: "n"}}}, &wire.Roster{Name: "c", Nodes: []wire.Node{{Name: "n"}}}},
		{"cluster status", func(ctx context.Context, c *Client) (any, error) { return c.ClusterStatus(ctx, true) }, &wire.ClusterStatus{Flags: 1}, &wire.ClusterStatusReply{Nodes: []wire.NodeState{{Name: "n"}}}, nil},
		{"transfer", func(ctx context.Context, c *Client) (any, error) {
			return c.TransferLeader(ctx, wire.TransferLeader{Kind: wire.TransferPartition, Stream: stream, Topic: topic, Partition: 3, Target: "n2"})
		}, &wire.TransferLeader{Kind: wire.TransferPartition, Stream: stream, Topic: topic, Partition: 3, Target: "n2"}, &wire.TransferLeaderReply{Term: 2, Node: "n2"}, &wire.TransferLeaderReply{Term: 2, Node: "n2"}},
		{"options", func(ctx context.Context, c *Client) (any, error) { return c.DescribeOptions(ctx, wire.ScopeTopic) }, &wire.DescribeOptions{Scope: wire.ScopeTopic}, &wire.OptionCatalog{}, nil},
		{"me", func(ctx context.Context, c *Client) (any, error) { return c.Me(ctx) }, &wire.GetMe{}, &wire.ClientDetails{Client: wire.Client{ID: 4}}, &wire.ClientDetails{Client: wire.Client{ID: 4}}},
		{"client", func(ctx context.Context, c *Client) (any, error) { return c.Client(ctx, 4) }, &wire.GetClient{ClientID: 4}, &wire.ClientDetails{Client: wire.Client{ID: 4}}, &wire.ClientDetails{Client: wire.Client{ID: 4}}},
		{"clients", func(ctx context.Context, c *Client) (any, error) { return c.Clients(ctx) }, &wire.GetClients{}, &wire.Clients{Clients: []wire.Client{{ID: 4}}}, []wire.Client{{ID: 4}}},
		{"stream", func(ctx context.Context, c *Client) (any, error) { return c.Stream(ctx, stream) }, &wire.GetStream{Stream: stream}, &wire.StreamDetails{Stream: wire.Stream{Name: "s"}}, nil},
		{"streams", func(ctx context.Context, c *Client) (any, error) { return c.Streams(ctx) }, &wire.GetStreams{}, &wire.Streams{}, nil},
		{"create stream", func(ctx context.Context, c *Client) (any, error) { return c.CreateStream(ctx, "s") }, &wire.CreateStream{Name: "s"}, &wire.StreamDetails{Stream: wire.Stream{Name: "s"}}, nil},
		{"update stream", func(ctx context.Context, c *Client) (any, error) { return nil, c.UpdateStream(ctx, stream, "n") }, &wire.UpdateStream{Stream: stream, Name: "n"}, nil, nil},
		{"delete stream", func(ctx context.Context, c *Client) (any, error) { return nil, c.DeleteStream(ctx, stream) }, &wire.DeleteStream{Stream: stream}, nil, nil},
		{"purge stream", func(ctx context.Context, c *Client) (any, error) { return nil, c.PurgeStream(ctx, stream) }, &wire.PurgeStream{Stream: stream}, nil, nil},
		{"topic", func(ctx context.Context, c *Client) (any, error) { return c.Topic(ctx, stream, topic) }, &wire.GetTopic{Stream: stream, Topic: topic}, &wire.TopicDetails{Topic: wire.Topic{Name: "t", Compression: 1}}, nil},
		{"topics", func(ctx context.Context, c *Client) (any, error) { return c.Topics(ctx, stream) }, &wire.GetTopics{Stream: stream}, &wire.Topics{}, nil},
		{"create topic", func(ctx context.Context, c *Client) (any, error) {
			return c.CreateTopic(ctx, stream, TopicConfig{Name: "t", Partitions: 3, Options: options})
		}, &wire.CreateTopic{Stream: stream, PartitionsCount: 3, Name: "t", Options: options}, &wire.TopicDetails{Topic: wire.Topic{Name: "t", Compression: 1}}, nil},
		{"update topic", func(ctx context.Context, c *Client) (any, error) {
			return nil, c.UpdateTopic(ctx, stream, topic, "n", options)
		}, &wire.UpdateTopic{Stream: stream, Topic: topic, Name: "n", Options: options}, nil, nil},
		{"delete topic", func(ctx context.Context, c *Client) (any, error) { return nil, c.DeleteTopic(ctx, stream, topic) }, &wire.DeleteTopic{Stream: stream, Topic: topic}, nil, nil},
		{"purge topic", func(ctx context.Context, c *Client) (any, error) { return nil, c.PurgeTopic(ctx, stream, topic) }, &wire.PurgeTopic{Stream: stream, Topic: topic}, nil, nil},
		{"create partitions", func(ctx context.Context, c *Client) (any, error) {
			return nil, c.CreatePartitions(ctx, stream, topic, 3)
		}, &wire.CreatePartitions{Stream: stream, Topic: topic, PartitionsCount: 3}, nil, nil},
		{"delete partitions", func(ctx context.Context, c *Client) (any, error) {
			return nil, c.DeletePartitions(ctx, stream, topic, 3)
		}, &wire.DeletePartitions{Stream: stream, Topic: topic, PartitionsCount: 3}, nil, nil},
		{"delete segments", func(ctx context.Context, c *Client) (any, error) {
			return nil, c.DeleteSegments(ctx, stream, topic, 1, 2)
		}, &wire.DeleteSegments{Stream: stream, Topic: topic, PartitionID: 1, SegmentsCount: 2}, nil, nil},
		{"flush", func(ctx context.Context, c *Client) (any, error) {
			return nil, c.FlushUnsavedBuffer(ctx, stream, topic, 1, true)
		}, &wire.FlushUnsavedBuffer{Stream: stream, Topic: topic, PartitionID: 1, Fsync: true}, nil, nil},
		{"user", func(ctx context.Context, c *Client) (any, error) { return c.User(ctx, wire.ID(1)) }, &wire.GetUser{User: wire.ID(1)}, &wire.UserDetails{User: wire.User{Username: "u"}}, nil},
		{"users", func(ctx context.Context, c *Client) (any, error) { return c.Users(ctx) }, &wire.GetUsers{}, &wire.Users{}, nil},
		{"create user", func(ctx context.Context, c *Client) (any, error) {
			return c.CreateUser(ctx, wire.CreateUser{Username: "u", Password: "p", Status: wire.UserActive, Permissions: perms})
		}, &wire.CreateUser{Username: "u", Password: "p", Status: wire.UserActive, Permissions: perms}, &wire.UserDetails{User: wire.User{Username: "u"}}, nil},
		{"update user", func(ctx context.Context, c *Client) (any, error) {
			return nil, c.UpdateUser(ctx, wire.ID(1), &name, &status)
		}, &wire.UpdateUser{User: wire.ID(1), Username: &name, Status: &status}, nil, nil},
		{"delete user", func(ctx context.Context, c *Client) (any, error) { return nil, c.DeleteUser(ctx, wire.ID(1)) }, &wire.DeleteUser{User: wire.ID(1)}, nil, nil},
		{"permissions", func(ctx context.Context, c *Client) (any, error) {
			return nil, c.UpdatePermissions(ctx, wire.ID(1), perms)
		}, &wire.UpdatePermissions{User: wire.ID(1), Permissions: perms}, nil, nil},
		{"password", func(ctx context.Context, c *Client) (any, error) {
			return nil, c.ChangePassword(ctx, wire.Name("iggy"), "iggy", "other")
		}, &wire.ChangePassword{User: wire.Name("iggy"), CurrentPassword: "iggy", NewPassword: "other"}, nil, nil},
		{"tokens", func(ctx context.Context, c *Client) (any, error) { return c.Tokens(ctx) }, &wire.GetPersonalAccessTokens{}, &wire.Tokens{Tokens: []wire.Token{{Name: "a"}}}, []wire.Token{{Name: "a"}}},
		{"create token", func(ctx context.Context, c *Client) (any, error) { return c.CreateToken(ctx, "a", time.Second) }, &wire.CreatePersonalAccessToken{Name: "a", Expiry: 1_000_000}, &wire.RawToken{Token: "secret"}, "secret"},
		{"delete token", func(ctx context.Context, c *Client) (any, error) { return nil, c.DeleteToken(ctx, "a") }, &wire.DeletePersonalAccessToken{Name: "a"}, nil, nil},
		{"group", func(ctx context.Context, c *Client) (any, error) { return c.ConsumerGroup(ctx, stream, topic, group) }, &wire.GetConsumerGroup{Stream: stream, Topic: topic, Group: group}, &wire.GroupDetails{Group: wire.Group{Name: "g"}}, nil},
		{"groups", func(ctx context.Context, c *Client) (any, error) { return c.ConsumerGroups(ctx, stream, topic) }, &wire.GetConsumerGroups{Stream: stream, Topic: topic}, &wire.Groups{}, nil},
		{"create group", func(ctx context.Context, c *Client) (any, error) {
			return c.CreateConsumerGroup(ctx, stream, topic, "g")
		}, &wire.CreateConsumerGroup{Stream: stream, Topic: topic, Name: "g"}, &wire.GroupDetails{Group: wire.Group{Name: "g"}}, nil},
		{"delete group", func(ctx context.Context, c *Client) (any, error) {
			return nil, c.DeleteConsumerGroup(ctx, stream, topic, group)
		}, &wire.DeleteConsumerGroup{Stream: stream, Topic: topic, Group: group}, nil, nil},
		{"join", func(ctx context.Context, c *Client) (any, error) {
			return nil, c.JoinConsumerGroup(ctx, stream, topic, group)
		}, &wire.JoinConsumerGroup{Stream: stream, Topic: topic, Group: group}, nil, nil},
		{"leave", func(ctx context.Context, c *Client) (any, error) {
			return nil, c.LeaveConsumerGroup(ctx, stream, topic, group)
		}, &wire.LeaveConsumerGroup{Stream: stream, Topic: topic, Group: group}, nil, nil},
		{"sync", func(ctx context.Context, c *Client) (any, error) {
			return c.SyncConsumerGroup(ctx, stream, topic, group)
		}, &wire.SyncConsumerGroup{Stream: stream, Topic: topic, Group: group}, &wire.GroupAssignment{Generation: 3, Partitions: []uint32{1}}, &wire.GroupAssignment{Generation: 3, Partitions: []uint32{1}}},
		{"get offset", func(ctx context.Context, c *Client) (any, error) {
			return c.ConsumerOffset(ctx, one, stream, topic, 2)
		}, &wire.GetConsumerOffset{Consumer: one, Stream: stream, Topic: topic, Partition: wire.SomePartition(2)}, &wire.OffsetReply{PartitionID: 2, CurrentOffset: 9, StoredOffset: 8}, &wire.OffsetReply{PartitionID: 2, CurrentOffset: 9, StoredOffset: 8}},
		{"store offset", func(ctx context.Context, c *Client) (any, error) {
			return nil, c.StoreConsumerOffset(ctx, one, stream, topic, 2, 8)
		}, &wire.StoreConsumerOffset{Consumer: one, Stream: stream, Topic: topic, Partition: wire.SomePartition(2), Offset: 8, Ack: wire.AckQuorum}, nil, nil},
		{"delete offset", func(ctx context.Context, c *Client) (any, error) {
			return nil, c.DeleteConsumerOffset(ctx, one, stream, topic, 2)
		}, &wire.DeleteConsumerOffset{Consumer: one, Stream: stream, Topic: topic, Partition: wire.SomePartition(2), Ack: wire.AckQuorum}, nil, nil},
	}
	s := newFake(t, 1)
	c := s.connect(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx := within(t, 5*time.Second)
			code := tt.want.Code()
			var arrived []byte
			s.on(func(r *fakeRequest) verdict {
				if r.command != code {
					return verdict{}
				}
				arrived = r.body
				return verdict{kind: say, reply: tt.reply}
			})
			got, err := tt.call(ctx, c)
			if err != nil {
				t.Fatal(err)
			}
			sent, _ := wire.NewRequest(code)
			if err := sent.Decode(arrived); err != nil {
				t.Fatal(err)
			}
			if string(sent.Append(nil)) != string(tt.want.Append(nil)) {
				t.Fatalf("sent %+v, want %+v", sent, tt.want)
			}
			if tt.got != nil && !reflect.DeepEqual(got, tt.got) {
				t.Fatalf("got %+v, want %+v", got, tt.got)
			}
			s.on(func(r *fakeRequest) verdict {
				if r.command == code {
					return verdict{kind: refuse, code: wire.ErrFeatureUnavailable}
				}
				return verdict{}
			})
			if _, err := tt.call(ctx, c); !errors.Is(err, wire.ErrFeatureUnavailable) {
				t.Fatalf("refused: got %v", err)
			}
		})
	}
	t.Run("the new password is used", func(t *testing.T) {
		passwords := make(chan string, 10)
		s.on(func(r *fakeRequest) verdict {
			var l wire.LoginRegister
			if r.Operation == wire.OpRegister && l.Decode(r.body) == nil {
				passwords <- l.Password
			}
			return verdict{}
		})
		s.kill()
		if p := <-passwords; p != "other" {
			t.Fatalf("signed in with %q", p)
		}
	})
}
