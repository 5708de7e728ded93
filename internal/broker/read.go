package broker

import (
	"github.com/whippetmq/whippet/internal/metadata"
	"github.com/whippetmq/whippet/internal/partition"
	"github.com/whippetmq/whippet/wire"
)

// handler answers one NonReplicated command on a bound connection.
type handler func(c *conn, h *wire.RequestHeader, bound *binding, body []byte) *Reply

// command is a row of the table of what this node answers by itself.
type command struct {
	run handler
	// anyPosition commands do not wait for the connection's metadata position (framing §6.1).
	anyPosition bool
}

// read answers a NonReplicated request.
func (c *conn) read(h *wire.RequestHeader, bound *binding, body *Buffer) *Reply {
	defer body.Release()
	cmd := lookup(h.Code)
	if cmd.run == nil {
		return c.unsupported(h)
	}
	if !cmd.anyPosition && !c.caughtUp(c.watermark.Load()) {
		return c.deny(h, wire.ErrTransientNotAccepted)
	}
	return cmd.run(c, h, bound, body.Bytes())
}

// unsupported answers what is not in the table.
func (c *conn) unsupported(h *wire.RequestHeader) *Reply {
	info, known := h.Code.Info()
	switch {
	case known && info.Legacy:
		return c.evict(h, wire.EvictMalformedLogin)
	case known:
		// Not offered, or a replicated command that came as a read (framing §1.7).
		return c.deny(h, wire.ErrFeatureUnavailable)
	}
	return c.deny(h, wire.ErrInvalidCommand)
}

// lookup is the command table: one row and one handler per command.
func lookup(code wire.Code) command {
	switch code {
	case wire.CodePing:
		return command{(*conn).ping, true}
	case wire.CodeGetStats:
		return command{(*conn).getStats, false}
	case wire.CodeGetClusterMetadata:
		return command{(*conn).getRoster, true}
	case wire.CodeDescribeOptions:
		return command{(*conn).describeOptions, true}
	case wire.CodeAttachConsumerSession:
		return command{(*conn).attach, false}
	case wire.CodeGetMe:
		return command{(*conn).getMe, false}
	case wire.CodeGetClient:
		return command{(*conn).getClient, false}
	case wire.CodeGetClients:
		return command{(*conn).getClients, false}
	case wire.CodePollMessages:
		return command{func(c *conn, h *wire.RequestHeader, b *binding, body []byte) *Reply { return c.poll(h, b, body, false) }, true}
	case wire.CodePollMessagesOnPrimary:
		return command{func(c *conn, h *wire.RequestHeader, b *binding, body []byte) *Reply { return c.poll(h, b, body, true) }, false}
	case wire.CodeGetPollRouting, wire.CodeGetConsumerOffsetRouting:
		return command{(*conn).route, false}
	case wire.CodeGetConsumerOffset:
		return command{(*conn).readOffset, true}
	case wire.CodeGetStream:
		return command{(*conn).getStream, false}
	case wire.CodeGetStreams:
		return command{(*conn).getStreams, false}
	case wire.CodeGetTopic:
		return command{(*conn).getTopic, false}
	case wire.CodeGetTopics:
		return command{(*conn).getTopics, false}
	case wire.CodeCapabilities:
		return command{(*conn).capabilities, true}
	case wire.CodeTicket:
		return command{(*conn).ticket, false}
	case wire.CodeTransferLeader:
		return command{(*conn).transferLeader, false}
	case wire.CodeClusterStatus:
		return command{(*conn).clusterStatus, false}
	}
	return command{}
}

func (c *conn) ping(h *wire.RequestHeader, _ *binding, _ []byte) *Reply { return c.answer(h, nil) }

func (c *conn) getRoster(h *wire.RequestHeader, _ *binding, _ []byte) *Reply {
	roster := c.b.cfg.Roster(c.peer.Address.Addr())
	return c.answer(h, &roster)
}

func (c *conn) describeOptions(h *wire.RequestHeader, _ *binding, body []byte) *Reply {
	var m wire.DescribeOptions
	if m.Decode(body) != nil {
		return c.deny(h, wire.ErrInvalidCommand)
	}
	var catalog wire.OptionCatalog
	if m.Scope == wire.ScopeTopic {
		catalog = wire.TopicCatalog(wire.DefaultTopicOptions())
	}
	return c.answer(h, &catalog)
}

// details describes a connection, with its groups when asked.
func (c *conn) details(cat *metadata.Catalog, groups bool) wire.ClientDetails {
	d := wire.ClientDetails{Client: wire.Client{
		ID: c.id, UserID: wire.NoUser, Transport: wire.Transport(c.peer.Transport), Address: c.peer.Address.String(),
	}}
	bound := c.bound.Load()
	if bound == nil {
		return d
	}
	d.UserID = bound.user
	for m := range memberships(cat, bound.client) {
		d.ConsumerGroupsCount++
		if groups {
			d.Groups = append(d.Groups, m)
		}
	}
	return d
}

func (c *conn) getMe(h *wire.RequestHeader, _ *binding, _ []byte) *Reply {
	d := c.details(c.b.cfg.Metadata.Catalog(), true)
	return c.answer(h, &d)
}

func (c *conn) getClient(h *wire.RequestHeader, bound *binding, body []byte) *Reply {
	var m wire.GetClient
	if m.Decode(body) != nil {
		return c.deny(h, wire.ErrInvalidCommand)
	}
	cat := c.b.cfg.Metadata.Catalog()
	if !cat.Allows(bound.user, metadata.RuleReadServers, 0, 0) {
		return c.deny(h, wire.ErrUnauthorized)
	}
	c.b.mu.RLock()
	other := c.b.conns[m.ClientID]
	c.b.mu.RUnlock()
	if other == nil {
		return c.answer(h, nil)
	}
	d := other.details(cat, true)
	return c.answer(h, &d)
}

func (c *conn) getClients(h *wire.RequestHeader, bound *binding, _ []byte) *Reply {
	cat := c.b.cfg.Metadata.Catalog()
	if !cat.Allows(bound.user, metadata.RuleReadServers, 0, 0) {
		return c.deny(h, wire.ErrUnauthorized)
	}
	var list wire.Clients
	for _, other := range c.b.connections() {
		list.Clients = append(list.Clients, other.details(cat, false).Client)
	}
	return c.answer(h, &list)
}

// figures of a partition; a partition that is not running has one empty segment.
func (b *Broker) figures(t *metadata.Topic, mp metadata.Partition) partition.Stats {
	if m := b.cfg.Partitions.get(t, mp).Machine(); m != nil {
		return m.Stats()
	}
	return partition.Stats{Segments: 1}
}

// topic describes a topic and, when asked, its partitions.
func (b *Broker) topic(t *metadata.Topic, partitions bool) wire.TopicDetails {
	d := wire.TopicDetails{Topic: wire.Topic{
		ID: t.ID, CreatedAt: t.CreatedAt, PartitionsCount: uint32(len(t.Partitions)), MessageExpiry: t.Config.MessageExpiry,
		Compression: t.Config.Compression, MaxTopicSize: t.Config.MaxTopicSize, Name: t.Name, Options: t.Explicit, Derived: t.Derived,
	}}
	for _, mp := range t.Partitions {
		st := b.figures(t, mp)
		d.SizeBytes += st.Bytes
		d.MessagesCount += st.Messages
		if partitions {
			d.Partitions = append(d.Partitions, wire.Partition{
				ID: mp.ID, CreatedAt: mp.CreatedAt, SegmentsCount: st.Segments, CurrentOffset: st.CurrentOffset, SizeBytes: st.Bytes, MessagesCount: st.Messages,
			})
		}
	}
	return d
}

// stream describes a stream and, when asked, its topics.
func (b *Broker) stream(s *metadata.Stream, topics bool) wire.StreamDetails {
	d := wire.StreamDetails{Stream: wire.Stream{ID: s.ID, CreatedAt: s.CreatedAt, TopicsCount: uint32(s.TopicCount()), Name: s.Name}}
	for t := range s.Topics() {
		td := b.topic(t, false)
		d.SizeBytes += td.SizeBytes
		d.MessagesCount += td.MessagesCount
		if topics {
			d.Topics = append(d.Topics, td.Topic)
		}
	}
	return d
}

func (c *conn) getStream(h *wire.RequestHeader, bound *binding, body []byte) *Reply {
	var m wire.GetStream
	if m.Decode(body) != nil {
		return c.deny(h, wire.ErrInvalidCommand)
	}
	cat := c.b.cfg.Metadata.Catalog()
	s := cat.Stream(m.Stream)
	switch {
	case s == nil:
		return c.answer(h, nil)
	case !cat.Allows(bound.user, metadata.RuleReadStream, s.ID, 0):
		return c.deny(h, wire.ErrUnauthorized)
	}
	d := c.b.stream(s, true)
	return c.answer(h, &d)
}

func (c *conn) getStreams(h *wire.RequestHeader, bound *binding, _ []byte) *Reply {
	cat := c.b.cfg.Metadata.Catalog()
	if !cat.Allows(bound.user, metadata.RuleReadStreams, 0, 0) {
		return c.deny(h, wire.ErrUnauthorized)
	}
	var list wire.Streams
	for s := range cat.Streams() {
		list.Streams = append(list.Streams, c.b.stream(s, false).Stream)
	}
	return c.answer(h, &list)
}

func (c *conn) getTopic(h *wire.RequestHeader, bound *binding, body []byte) *Reply {
	var m wire.GetTopic
	if m.Decode(body) != nil {
		return c.deny(h, wire.ErrInvalidCommand)
	}
	cat := c.b.cfg.Metadata.Catalog()
	_, t := cat.Topic(m.Stream, m.Topic)
	switch {
	case t == nil:
		return c.answer(h, nil)
	case !cat.Allows(bound.user, metadata.RuleReadTopic, t.Stream, t.ID):
		return c.deny(h, wire.ErrUnauthorized)
	}
	d := c.b.topic(t, true)
	return c.answer(h, &d)
}

func (c *conn) getTopics(h *wire.RequestHeader, bound *binding, body []byte) *Reply {
	var m wire.GetTopics
	if m.Decode(body) != nil {
		return c.deny(h, wire.ErrInvalidCommand)
	}
	cat := c.b.cfg.Metadata.Catalog()
	s := cat.Stream(m.Stream)
	var list wire.Topics
	switch {
	case s == nil:
		return c.answer(h, &list)
	case !cat.Allows(bound.user, metadata.RuleReadTopics, s.ID, 0):
		return c.deny(h, wire.ErrUnauthorized)
	}
	for t := range s.Topics() {
		list.Topics = append(list.Topics, c.b.topic(t, false).Topic)
	}
	return c.answer(h, &list)
}

func (c *conn) getStats(h *wire.RequestHeader, bound *binding, _ []byte) *Reply {
	if !c.b.cfg.Metadata.Catalog().Allows(bound.user, metadata.RuleReadServers, 0, 0) {
		return c.deny(h, wire.ErrUnauthorized)
	}
	st := c.b.Stats()
	return c.answer(h, &st)
}
