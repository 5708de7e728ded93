package metadata

import "github.com/whippetmq/whippet/wire"

// putStream adds or changes a stream.
func (c *change) putStream(s *Stream) {
	if old := c.catalog.streams.get(s.ID); old != nil && old.Name != s.Name {
		c.catalog.streamNames = c.catalog.streamNames.remove(old.Name)
	}
	c.catalog.streams = c.catalog.streams.set(s.ID, s)
	c.catalog.streamNames = c.catalog.streamNames.set(s.Name, s)
	c.changed = true
}

func (c *change) createStream(o *createStream) wire.ErrorCode {
	switch {
	case !c.allows(RuleCreateStream, 0, 0):
		return wire.ErrUnauthorized
	case c.catalog.streamNames.get(o.name) != nil:
		return wire.ErrStreamNameAlreadyExists
	case c.catalog.streams.len() >= maxStreams:
		return wire.ErrTooManyStreams
	}
	s := &Stream{ID: c.catalog.streams.free(), Name: o.name, CreatedAt: c.time, Created: c.index,
		topicNames: newIndex[Topic](c.catalog.streamNames.seed)}
	c.putStream(s)
	details := wire.StreamDetails{Stream: s.Entry()}
	c.payload = details.Append(nil)
	return 0
}

func (c *change) updateStream(o *updateStream) wire.ErrorCode {
	s := c.catalog.Stream(o.stream)
	if s == nil {
		return wire.ErrStreamIdNotFound
	}
	if !c.allows(RuleManageStream, s.ID, 0) {
		return wire.ErrUnauthorized
	}
	if other := c.catalog.streamNames.get(o.name); other != nil && other.ID != s.ID {
		return wire.ErrStreamNameAlreadyExists
	}
	next := *s
	next.Name = o.name
	c.putStream(&next)
	return 0
}

func (c *change) deleteStream(o *deleteStream, preferred *[256]uint32) wire.ErrorCode {
	s := c.catalog.Stream(o.stream)
	if s == nil {
		return wire.ErrStreamIdNotFound
	}
	if !c.allows(RuleManageStream, s.ID, 0) {
		return wire.ErrUnauthorized
	}
	for t := range s.topics.all() {
		c.forgetTopic(t, preferred)
	}
	c.catalog.streams = c.catalog.streams.set(s.ID, nil)
	c.catalog.streamNames = c.catalog.streamNames.remove(s.Name)
	c.changed = true
	return 0
}

func (c *change) purgeStream(o *purgeStream) wire.ErrorCode {
	s := c.catalog.Stream(o.stream)
	if s == nil {
		return wire.ErrStreamIdNotFound
	}
	if !c.allows(RuleManageStream, s.ID, 0) {
		return wire.ErrUnauthorized
	}
	for t := range s.topics.all() {
		s = s.with(t.purged(c.index))
	}
	c.putStream(s)
	return 0
}
