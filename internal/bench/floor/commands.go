package floor

import (
	"errors"
	"net"
	"strconv"

	"github.com/whippetmq/whippet/wire"
)

// handleOther answers what a client asks around its sends and polls: sign-in, the roster, capabilities, and just
// enough metadata to make a topic and look it up.
func (c *conn) handleOther(h *wire.RequestHeader, code wire.Code, body []byte) error {
	reply := h.Reply()
	reply.Commit = 1
	payload, err := c.answer(code, h, body)
	var refused wire.ErrorCode
	switch {
	case err == nil:
		c.out = wire.AppendSuccess(c.out, reply, payload)
	case errors.As(err, &refused):
		c.out = wire.AppendRejection(c.out, reply, refused)
	default:
		return err
	}
	return nil
}

func (c *conn) answer(code wire.Code, h *wire.RequestHeader, body []byte) (wire.Reply, error) {
	switch code {
	case wire.CodePing, wire.CodeLogoutUser:
		return nil, nil
	case wire.CodeLoginRegister:
		c.session = c.s.sessions.Add(1)
		return &wire.LoginReply{Session: c.session, ProtocolVersion: wire.CurrentVersion, ServerVersion: "floor"}, nil
	case wire.CodeGetClusterMetadata:
		return &wire.Roster{Name: "single-node", Nodes: []wire.Node{c.s.node()}}, nil
	case wire.CodeCapabilities:
		return &wire.CapabilitiesReply{
			Version: wire.ExtensionVersion, Flags: wire.CanFence | wire.CanForward | wire.CanRouteBySendRight,
			MaxInFlight: 16, RememberedIDs: 64, MaxFrame: wire.DefaultMaxFrame, NodeName: "floor",
		}, nil
	case wire.CodeGetPollRouting, wire.CodeGetConsumerOffsetRouting:
		return &wire.Route{Session: wire.Attachment{ClientID: h.Client, Session: c.session, Watermark: 1}, Primary: c.s.node()}, nil
	case wire.CodeCreateStream:
		return c.createStream(body)
	case wire.CodeCreateTopic:
		return c.createTopic(body)
	case wire.CodeGetStream:
		return c.getStream(body)
	case wire.CodeGetTopic:
		return c.getTopic(body)
	}
	return nil, wire.ErrFeatureUnavailable
}

func (s *Server) node() wire.Node {
	host, port, err := net.SplitHostPort(s.Address())
	n, perr := strconv.ParseUint(port, 10, 16)
	if err != nil || perr != nil {
		return wire.Node{Name: "floor"}
	}
	return wire.Node{Name: "floor", IP: host, TCP: uint16(n)}
}

func (c *conn) createStream(body []byte) (wire.Reply, error) {
	var req wire.CreateStream
	if err := req.Decode(body); err != nil {
		return nil, wire.ErrInvalidCommand
	}
	st, err := c.s.store.createStream(req.Name)
	if err != nil {
		return nil, err
	}
	return viewStream(st), nil
}

func (c *conn) createTopic(body []byte) (wire.Reply, error) {
	var req wire.CreateTopic
	if err := req.Decode(body); err != nil {
		return nil, wire.ErrInvalidCommand
	}
	st, ok := c.s.store.stream(req.Stream)
	if !ok {
		return nil, wire.ErrStreamIdNotFound
	}
	t, err := c.s.store.createTopic(st, req.Name, req.PartitionsCount, req.Options)
	if err != nil {
		return nil, err
	}
	return viewTopic(t), nil
}

func (c *conn) getStream(body []byte) (wire.Reply, error) {
	var req wire.GetStream
	if err := req.Decode(body); err != nil {
		return nil, wire.ErrInvalidCommand
	}
	st, ok := c.s.store.stream(req.Stream)
	if !ok {
		return nil, nil
	}
	return viewStream(st), nil
}

func (c *conn) getTopic(body []byte) (wire.Reply, error) {
	var req wire.GetTopic
	if err := req.Decode(body); err != nil {
		return nil, wire.ErrInvalidCommand
	}
	_, t, ok := c.s.store.topic(req.Stream, req.Topic)
	if !ok {
		return nil, nil
	}
	return viewTopic(t), nil
}

func viewStream(st *stream) *wire.StreamDetails {
	return &wire.StreamDetails{Stream: wire.Stream{ID: st.id, Name: st.name}}
}

func viewTopic(t *topic) *wire.TopicDetails {
	v := &wire.TopicDetails{Topic: wire.Topic{
		ID: t.id, Name: t.name, MessageExpiry: wire.Never, MaxTopicSize: wire.Unlimited, Compression: wire.CompressionNone,
		PartitionsCount: uint32(len(t.partitions)), Options: t.options,
	}}
	for i := range t.partitions {
		v.Partitions = append(v.Partitions, wire.Partition{ID: uint32(i), SegmentsCount: 1})
	}
	return v
}
