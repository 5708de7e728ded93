package wire

import "slices"

// GlobalPermissions apply to every stream and to the server (commands §2.9).
type GlobalPermissions struct {
	ManageServers, ReadServers bool
	ManageUsers, ReadUsers     bool
	ManageStreams, ReadStreams bool
	ManageTopics, ReadTopics   bool
	PollMessages, SendMessages bool
}

// TopicPermissions apply to one topic.
type TopicPermissions struct {
	TopicID                    uint32
	ManageTopic, ReadTopic     bool
	PollMessages, SendMessages bool
}

// StreamPermissions apply to one stream and its topics.
type StreamPermissions struct {
	StreamID                   uint32
	ManageStream, ReadStream   bool
	ManageTopics, ReadTopics   bool
	PollMessages, SendMessages bool
	Topics                     []TopicPermissions
}

// Permissions are all grants of a user. Encoding sorts streams and topics by id.
type Permissions struct {
	Global  GlobalPermissions
	Streams []StreamPermissions
}

// RootPermissions grants everything.
func RootPermissions() *Permissions {
	return &Permissions{Global: GlobalPermissions{true, true, true, true, true, true, true, true, true, true}}
}

// Stream finds the grants for a stream, or nil.
func (p *Permissions) Stream(id uint32) *StreamPermissions {
	for i := range p.Streams {
		if p.Streams[i].StreamID == id {
			return &p.Streams[i]
		}
	}
	return nil
}

// Topic finds the grants for a topic, or nil.
func (s *StreamPermissions) Topic(id uint32) *TopicPermissions {
	for i := range s.Topics {
		if s.Topics[i].TopicID == id {
			return &s.Topics[i]
		}
	}
	return nil
}

// Clone copies the grants with their lists.
func (p *Permissions) Clone() *Permissions {
	if p == nil {
		return nil
	}
	c := &Permissions{Global: p.Global, Streams: slices.Clone(p.Streams)}
	for i := range c.Streams {
		c.Streams[i].Topics = slices.Clone(c.Streams[i].Topics)
	}
	return c
}

func appendBools(dst []byte, vs ...bool) []byte {
	for _, v := range vs {
		dst = appendBool(dst, v)
	}
	return dst
}

// Append encodes the grants.
func (p *Permissions) Append(dst []byte) []byte {
	g := &p.Global
	dst = appendBools(dst, g.ManageServers, g.ReadServers, g.ManageUsers, g.ReadUsers, g.ManageStreams, g.ReadStreams,
		g.ManageTopics, g.ReadTopics, g.PollMessages, g.SendMessages, len(p.Streams) > 0)
	streams := p.Streams
	if cmp := func(a, b StreamPermissions) int { return order(a.StreamID, b.StreamID) }; !slices.IsSortedFunc(streams, cmp) {
		streams = slices.Clone(streams)
		slices.SortStableFunc(streams, cmp)
	}
	for i := range streams {
		s := &streams[i]
		dst = le.AppendUint32(dst, s.StreamID)
		dst = appendBools(dst, s.ManageStream, s.ReadStream, s.ManageTopics, s.ReadTopics, s.PollMessages, s.SendMessages,
			len(s.Topics) > 0)
		topics := s.Topics
		if cmp := func(a, b TopicPermissions) int { return order(a.TopicID, b.TopicID) }; !slices.IsSortedFunc(topics, cmp) {
			topics = slices.Clone(topics)
			slices.SortStableFunc(topics, cmp)
		}
		for j := range topics {
			t := &topics[j]
			dst = le.AppendUint32(dst, t.TopicID)
			dst = appendBools(dst, t.ManageTopic, t.ReadTopic, t.PollMessages, t.SendMessages, j+1 < len(topics))
		}
		dst = appendBool(dst, i+1 < len(streams))
	}
	return dst
}

func order(a, b uint32) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Decode reads the grants from the start of src and gives their length.
func (p *Permissions) Decode(src []byte) (n int, err error) {
	r := reader{b: src}
	p.decode(&r)
	return r.off, r.err()
}

func (p *Permissions) decode(r *reader) {
	g := GlobalPermissions{}
	for _, v := range []*bool{
		&g.ManageServers, &g.ReadServers, &g.ManageUsers, &g.ReadUsers, &g.ManageStreams,
		&g.ReadStreams, &g.ManageTopics, &g.ReadTopics, &g.PollMessages, &g.SendMessages,
	} {
		*v = r.bool()
	}
	p.Global, p.Streams = g, nil
	for more := r.bool(); more && r.fail == nil; more = r.bool() {
		s := StreamPermissions{StreamID: r.u32()}
		for _, v := range []*bool{&s.ManageStream, &s.ReadStream, &s.ManageTopics, &s.ReadTopics, &s.PollMessages, &s.SendMessages} {
			*v = r.bool()
		}
		for more := r.bool(); more && r.fail == nil; more = r.bool() {
			t := TopicPermissions{TopicID: r.u32()}
			for _, v := range []*bool{&t.ManageTopic, &t.ReadTopic, &t.PollMessages, &t.SendMessages} {
				*v = r.bool()
			}
			s.Topics = append(s.Topics, t)
		}
		p.Streams = append(p.Streams, s)
	}
}

// appendPermissions32 encodes the grants with their u32 byte length in front.
func appendPermissions32(dst []byte, p *Permissions) []byte { return appendSized(dst, p.Append) }

// permissions32 reads a u32 length and grants of exactly that length.
func (r *reader) permissions32() *Permissions {
	at := r.off
	n := r.u32()
	start := r.off
	p := new(Permissions)
	p.decode(r)
	if r.fail == nil && uint64(r.off-start) != uint64(n) {
		r.fail = invalid("permissions length mismatch: header says "+utoa(uint64(n))+", decoded "+utoa(uint64(r.off-start)), at)
	}
	if r.fail != nil {
		return nil
	}
	return p
}
