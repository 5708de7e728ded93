package client

import (
	"context"
	"fmt"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// TopicConfig describes a topic to be made.
type TopicConfig struct {
	Name       string
	Partitions uint32
	// Options are the topic's options (commands §2.8). Absent ones take the
	// server's defaults.
	Options wire.Options
}

// Ping asks for a sign of life and tells how long it took. It works without a
// session.
func (c *Client) Ping(ctx context.Context) (time.Duration, error) {
	start := time.Now()
	_, err := c.read(ctx, &wire.Ping{}, anySession)
	return time.Since(start), err
}

// Stats reads the server's statistics.
func (c *Client) Stats(ctx context.Context) (*wire.Stats, error) {
	return get(ctx, c, &wire.GetStats{}, new(wire.Stats))
}

// Snapshot reads an archive of diagnostic files, a ZIP.
func (c *Client) Snapshot(ctx context.Context, compression wire.SnapshotCompression, types ...wire.SnapshotType) ([]byte, error) {
	s, err := get(ctx, c, &wire.GetSnapshot{Compression: compression, Types: types}, new(wire.Snapshot))
	if err != nil {
		return nil, err
	}
	return s.ZIP, nil
}

// ClusterMetadata reads the roster of the cluster.
func (c *Client) ClusterMetadata(ctx context.Context) (*wire.Roster, error) {
	return get(ctx, c, &wire.GetClusterMetadata{}, new(wire.Roster))
}

// ClusterStatus reads the state of the nodes and, when groups is set, of every
// replicated group. Whippet servers only.
func (c *Client) ClusterStatus(ctx context.Context, groups bool) (*wire.ClusterStatusReply, error) {
	req := &wire.ClusterStatus{}
	if groups {
		req.Flags = wire.ClusterStatusGroups
	}
	return get(ctx, c, req, new(wire.ClusterStatusReply))
}

// TransferLeader moves the primary of a group. Whippet servers only.
func (c *Client) TransferLeader(ctx context.Context, req wire.TransferLeader) (*wire.TransferLeaderReply, error) {
	return get(ctx, c, &req, new(wire.TransferLeaderReply))
}

// DescribeOptions reads the catalog of options of topics, streams or users.
func (c *Client) DescribeOptions(ctx context.Context, scope wire.OptionScope) (*wire.OptionCatalog, error) {
	return get(ctx, c, &wire.DescribeOptions{Scope: scope}, new(wire.OptionCatalog))
}

// Me reads the server's view of this connection.
func (c *Client) Me(ctx context.Context) (*wire.ClientDetails, error) {
	return get(ctx, c, &wire.GetMe{}, new(wire.ClientDetails))
}

// Client reads the server's view of a connection; ErrNotFound when there is none.
func (c *Client) Client(ctx context.Context, id uint32) (*wire.ClientDetails, error) {
	return find(ctx, c, &wire.GetClient{ClientID: id}, new(wire.ClientDetails))
}

// Clients lists the connections of the node.
func (c *Client) Clients(ctx context.Context) ([]wire.Client, error) {
	r, err := get(ctx, c, &wire.GetClients{}, new(wire.Clients))
	if err != nil {
		return nil, err
	}
	return r.Clients, nil
}

// Stream reads a stream with its topics; ErrNotFound when there is none.
func (c *Client) Stream(ctx context.Context, stream wire.Identifier) (*wire.StreamDetails, error) {
	return find(ctx, c, &wire.GetStream{Stream: stream}, new(wire.StreamDetails))
}

// Streams lists the streams.
func (c *Client) Streams(ctx context.Context) ([]wire.Stream, error) {
	r, err := get(ctx, c, &wire.GetStreams{}, new(wire.Streams))
	if err != nil {
		return nil, err
	}
	return r.Streams, nil
}

// CreateStream makes a stream.
func (c *Client) CreateStream(ctx context.Context, name string) (*wire.StreamDetails, error) {
	return change(ctx, c, &wire.CreateStream{Name: name}, new(wire.StreamDetails))
}

// UpdateStream renames a stream.
func (c *Client) UpdateStream(ctx context.Context, stream wire.Identifier, name string) error {
	return c.metadata(ctx, &wire.UpdateStream{Stream: stream, Name: name})
}

// DeleteStream removes a stream with its topics.
func (c *Client) DeleteStream(ctx context.Context, stream wire.Identifier) error {
	return c.metadata(ctx, &wire.DeleteStream{Stream: stream})
}

// PurgeStream removes all messages of a stream.
func (c *Client) PurgeStream(ctx context.Context, stream wire.Identifier) error {
	return c.metadata(ctx, &wire.PurgeStream{Stream: stream})
}

// Topic reads a topic with its partitions; ErrNotFound when there is none.
func (c *Client) Topic(ctx context.Context, stream, topic wire.Identifier) (*wire.TopicDetails, error) {
	return find(ctx, c, &wire.GetTopic{Stream: stream, Topic: topic}, new(wire.TopicDetails))
}

// Topics lists the topics of a stream.
func (c *Client) Topics(ctx context.Context, stream wire.Identifier) ([]wire.Topic, error) {
	r, err := get(ctx, c, &wire.GetTopics{Stream: stream}, new(wire.Topics))
	if err != nil {
		return nil, err
	}
	return r.Topics, nil
}

// CreateTopic makes a topic.
func (c *Client) CreateTopic(ctx context.Context, stream wire.Identifier, t TopicConfig) (*wire.TopicDetails, error) {
	req := &wire.CreateTopic{Stream: stream, Name: t.Name, PartitionsCount: t.Partitions, Options: t.Options}
	return change(ctx, c, req, new(wire.TopicDetails))
}

// UpdateTopic renames a topic and changes the options that are given.
func (c *Client) UpdateTopic(ctx context.Context, stream, topic wire.Identifier, name string, options wire.Options) error {
	return c.metadata(ctx, &wire.UpdateTopic{Stream: stream, Topic: topic, Name: name, Options: options})
}

// DeleteTopic removes a topic with its messages.
func (c *Client) DeleteTopic(ctx context.Context, stream, topic wire.Identifier) error {
	return c.metadata(ctx, &wire.DeleteTopic{Stream: stream, Topic: topic})
}

// PurgeTopic removes the messages and stored offsets of a topic.
func (c *Client) PurgeTopic(ctx context.Context, stream, topic wire.Identifier) error {
	return c.metadata(ctx, &wire.PurgeTopic{Stream: stream, Topic: topic})
}

// CreatePartitions adds partitions to a topic.
func (c *Client) CreatePartitions(ctx context.Context, stream, topic wire.Identifier, count uint32) error {
	return c.metadata(ctx, &wire.CreatePartitions{Stream: stream, Topic: topic, PartitionsCount: count})
}

// DeletePartitions removes the partitions with the highest ids.
func (c *Client) DeletePartitions(ctx context.Context, stream, topic wire.Identifier, count uint32) error {
	return c.metadata(ctx, &wire.DeletePartitions{Stream: stream, Topic: topic, PartitionsCount: count})
}

// DeleteSegments removes the oldest sealed segments of a partition.
func (c *Client) DeleteSegments(ctx context.Context, stream, topic wire.Identifier, partition, count uint32) error {
	return c.metadata(ctx, &wire.DeleteSegments{Stream: stream, Topic: topic, PartitionID: partition, SegmentsCount: count})
}

// FlushUnsavedBuffer asks the server to flush a partition to disk. Servers
// answer ErrFeatureUnavailable (commands §3.11).
func (c *Client) FlushUnsavedBuffer(ctx context.Context, stream, topic wire.Identifier, partition uint32, fsync bool) error {
	_, err := c.read(ctx, &wire.FlushUnsavedBuffer{Stream: stream, Topic: topic, PartitionID: partition, Fsync: fsync}, needSession)
	return err
}

// User reads a user; ErrNotFound when there is none.
func (c *Client) User(ctx context.Context, user wire.Identifier) (*wire.UserDetails, error) {
	return find(ctx, c, &wire.GetUser{User: user}, new(wire.UserDetails))
}

// Users lists the users.
func (c *Client) Users(ctx context.Context) ([]wire.User, error) {
	r, err := get(ctx, c, &wire.GetUsers{}, new(wire.Users))
	if err != nil {
		return nil, err
	}
	return r.Users, nil
}

// CreateUser makes a user.
func (c *Client) CreateUser(ctx context.Context, user wire.CreateUser) (*wire.UserDetails, error) {
	return change(ctx, c, &user, new(wire.UserDetails))
}

// UpdateUser renames a user or changes its status; nil leaves a field alone.
func (c *Client) UpdateUser(ctx context.Context, user wire.Identifier, name *string, status *wire.UserStatus) error {
	return c.metadata(ctx, &wire.UpdateUser{User: user, Username: name, Status: status})
}

// DeleteUser removes a user.
func (c *Client) DeleteUser(ctx context.Context, user wire.Identifier) error {
	return c.metadata(ctx, &wire.DeleteUser{User: user})
}

// UpdatePermissions replaces a user's permissions; nil removes them.
func (c *Client) UpdatePermissions(ctx context.Context, user wire.Identifier, p *wire.Permissions) error {
	return c.metadata(ctx, &wire.UpdatePermissions{User: user, Permissions: p})
}

// ChangePassword sets a user's password. A change of the own password is
// remembered for reconnections.
func (c *Client) ChangePassword(ctx context.Context, user wire.Identifier, current, next string) error {
	err := c.metadata(ctx, &wire.ChangePassword{User: user, CurrentPassword: current, NewPassword: next})
	if err == nil {
		c.session.rememberPassword(user, next)
	}
	return err
}

// Tokens lists the caller's personal access tokens, without their secrets.
func (c *Client) Tokens(ctx context.Context) ([]wire.Token, error) {
	r, err := get(ctx, c, &wire.GetPersonalAccessTokens{}, new(wire.Tokens))
	if err != nil {
		return nil, err
	}
	return r.Tokens, nil
}

// CreateToken makes a personal access token and gives its secret. expiry 0 =
// never.
func (c *Client) CreateToken(ctx context.Context, name string, expiry time.Duration) (string, error) {
	req := &wire.CreatePersonalAccessToken{Name: name, Expiry: uint64(max(expiry, 0).Microseconds())}
	r, err := change(ctx, c, req, new(wire.RawToken))
	if err != nil {
		return "", err
	}
	return r.Token, nil
}

// DeleteToken removes a personal access token.
func (c *Client) DeleteToken(ctx context.Context, name string) error {
	return c.metadata(ctx, &wire.DeletePersonalAccessToken{Name: name})
}

// ConsumerGroup reads a consumer group; ErrNotFound when there is none.
func (c *Client) ConsumerGroup(ctx context.Context, stream, topic, group wire.Identifier) (*wire.GroupDetails, error) {
	return find(ctx, c, &wire.GetConsumerGroup{Stream: stream, Topic: topic, Group: group}, new(wire.GroupDetails))
}

// ConsumerGroups lists the consumer groups of a topic.
func (c *Client) ConsumerGroups(ctx context.Context, stream, topic wire.Identifier) ([]wire.Group, error) {
	r, err := get(ctx, c, &wire.GetConsumerGroups{Stream: stream, Topic: topic}, new(wire.Groups))
	if err != nil {
		return nil, err
	}
	return r.Groups, nil
}

// CreateConsumerGroup makes a consumer group.
func (c *Client) CreateConsumerGroup(ctx context.Context, stream, topic wire.Identifier, name string) (*wire.GroupDetails, error) {
	return change(ctx, c, &wire.CreateConsumerGroup{Stream: stream, Topic: topic, Name: name}, new(wire.GroupDetails))
}

// DeleteConsumerGroup removes a consumer group.
func (c *Client) DeleteConsumerGroup(ctx context.Context, stream, topic, group wire.Identifier) error {
	return c.metadata(ctx, &wire.DeleteConsumerGroup{Stream: stream, Topic: topic, Group: group})
}

// JoinConsumerGroup makes this session a member. [Consumer] does it by itself.
func (c *Client) JoinConsumerGroup(ctx context.Context, stream, topic, group wire.Identifier) error {
	return c.metadata(ctx, &wire.JoinConsumerGroup{Stream: stream, Topic: topic, Group: group})
}

// LeaveConsumerGroup ends this session's membership.
func (c *Client) LeaveConsumerGroup(ctx context.Context, stream, topic, group wire.Identifier) error {
	return c.metadata(ctx, &wire.LeaveConsumerGroup{Stream: stream, Topic: topic, Group: group})
}

// SyncConsumerGroup reads the partitions assigned to this session; ErrNotFound
// when it is not a member.
func (c *Client) SyncConsumerGroup(ctx context.Context, stream, topic, group wire.Identifier) (*wire.GroupAssignment, error) {
	return find(ctx, c, &wire.SyncConsumerGroup{Stream: stream, Topic: topic, Group: group}, new(wire.GroupAssignment))
}

// ConsumerOffset reads a stored offset; ErrNotFound when there is none.
func (c *Client) ConsumerOffset(ctx context.Context, consumer wire.Consumer, stream, topic wire.Identifier, partition uint32) (*wire.OffsetReply, error) {
	req := &wire.GetConsumerOffset{Consumer: consumer, Stream: stream, Topic: topic, Partition: wire.SomePartition(partition)}
	if !c.router.on.Load() {
		return find(ctx, c, req, new(wire.OffsetReply))
	}
	got, err := c.readPrimary(ctx, c.partition(ctx, stream, topic, partition), readMode{code: req.Code(), body: req.Append(nil)})
	if err != nil {
		return nil, err
	}
	return found(req, got.payload, new(wire.OffsetReply))
}

// StoreConsumerOffset stores an offset: that of the last message handled.
func (c *Client) StoreConsumerOffset(ctx context.Context, consumer wire.Consumer, stream, topic wire.Identifier, partition uint32, offset uint64) error {
	err := c.progress(ctx, consumer, stream, topic, partition, &wire.StoreConsumerOffset{
		Consumer: consumer, Stream: stream, Topic: topic, Partition: wire.SomePartition(partition), Offset: offset, Ack: wire.AckQuorum,
	})
	return err
}

// DeleteConsumerOffset removes a stored offset.
func (c *Client) DeleteConsumerOffset(ctx context.Context, consumer wire.Consumer, stream, topic wire.Identifier, partition uint32) error {
	err := c.progress(ctx, consumer, stream, topic, partition, &wire.DeleteConsumerOffset{
		Consumer: consumer, Stream: stream, Topic: topic, Partition: wire.SomePartition(partition), Ack: wire.AckQuorum,
	})
	return err
}

// progress does an offset write in the order of the consumer's other ones. It
// belongs to the topic that there is now: when its outcome is unknown it is not
// sent again to one that took the place of that.
func (c *Client) progress(ctx context.Context, consumer wire.Consumer, stream, topic wire.Identifier, partition uint32, req wire.Request) error {
	key := progressKey(consumer, stream, topic, partition)
	if info, err := c.topics.get(ctx, stream, topic); err == nil {
		key.stream, key.topic, key.created = info.stream, info.topic, info.created
	}
	_, _, err := c.writeAs(ctx, key, stream, topic, req)
	return err
}

// get does a read whose payload must decode.
func get[R wire.Reply](ctx context.Context, c *Client, req wire.Request, into R) (R, error) {
	var none R
	payload, err := c.read(ctx, req, needSession)
	if err != nil {
		return none, err
	}
	return decode(req, payload, into)
}

// find does a read whose empty payload means "not there" (commands §4).
func find[R wire.Reply](ctx context.Context, c *Client, req wire.Request, into R) (R, error) {
	var none R
	payload, err := c.read(ctx, req, needSession)
	if err != nil {
		return none, err
	}
	return found(req, payload, into)
}

func found[R wire.Reply](req wire.Request, payload []byte, into R) (R, error) {
	var none R
	if len(payload) == 0 {
		return none, fmt.Errorf("%v: %w", req.Code(), ErrNotFound)
	}
	return decode(req, payload, into)
}

// change does a metadata operation with a payload. When an earlier attempt was
// applied and its reply is gone, the error is wire.ErrRequestAlreadyApplied.
func change[R wire.Reply](ctx context.Context, c *Client, req wire.Request, into R) (R, error) {
	var none R
	payload, applied, err := c.write(ctx, laneKey{kind: laneMetadata}, req)
	if err != nil {
		return none, err
	}
	if applied { // done, but what the reply said is gone: the caller has to look
		return none, fmt.Errorf("%v: %w", req.Code(), wire.ErrRequestAlreadyApplied)
	}
	return decode(req, payload, into)
}

// metadata does a metadata operation without a payload.
func (c *Client) metadata(ctx context.Context, req wire.Request) error {
	_, _, err := c.write(ctx, laneKey{kind: laneMetadata}, req)
	return err
}

func decode[R wire.Reply](req wire.Request, payload []byte, into R) (R, error) {
	if err := into.Decode(payload); err != nil {
		var none R
		return none, fmt.Errorf("%v: reply: %w: %w", req.Code(), wire.ErrInvalidFormat, err)
	}
	return into, nil
}
