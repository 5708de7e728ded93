package metadata

import (
	"slices"

	"github.com/whippetmq/whippet/wire"
)

// partitionEntryLength is the size of a partition entry in a reply (commands §3.14).
const partitionEntryLength = 40

// appendFreshPartitions appends the entries of n partitions that were just created: one empty segment each (model.md §5).
func appendFreshPartitions(dst []byte, n uint32, createdAt uint64) []byte {
	for id := range n {
		dst = le.AppendUint32(dst, id)
		dst = le.AppendUint64(dst, createdAt)
		dst = le.AppendUint32(dst, 1)
		dst = append(dst, make([]byte, 24)...)
	}
	return dst
}

// topic finds a topic and checks a permission on it.
func (c *change) topic(target *topicTarget, rule Rule) (*Stream, *Topic, wire.ErrorCode) {
	s, t := c.catalog.Topic(target.stream, target.topic)
	switch {
	case s == nil:
		return nil, nil, wire.ErrStreamIdNotFound
	case t == nil:
		return nil, nil, wire.ErrTopicIdNotFound
	case !c.allows(rule, s.ID, t.ID):
		return nil, nil, wire.ErrUnauthorized
	}
	return s, t, 0
}

func (c *change) createTopic(o *createTopic, preferred *[256]uint32) wire.ErrorCode {
	s := c.catalog.Stream(o.stream)
	if s == nil {
		return wire.ErrStreamIdNotFound
	}
	switch {
	case !c.allows(RuleCreateTopic, s.ID, 0):
		return wire.ErrUnauthorized
	case s.topicNames.get(o.name) != nil:
		return wire.ErrTopicNameAlreadyExists
	case s.topics.len() >= maxTopicsPerStream:
		return wire.ErrTooManyTopics
	}
	t := &Topic{Stream: s.ID, ID: s.topics.free(), Name: o.name, CreatedAt: c.time, Created: c.index,
		Config: wire.TopicOptionsOf(o.options.explicit, o.options.derived), Explicit: o.options.explicit, Derived: o.options.derived,
		groupNames: newIndex[Group](c.catalog.streamNames.seed)}
	t.Partitions = place(nil, o.partitions, o.candidates, o.members, preferred, c.index, c.time)
	c.putStream(s.with(t))
	c.catalog.topicCount++
	c.catalog.partitionCount += len(t.Partitions)
	entry := t.Entry()
	c.payload = entry.Append(nil)
	c.partitions = o.partitions
	return 0
}

func (c *change) updateTopic(o *updateTopic) wire.ErrorCode {
	s, t, code := c.topic(&o.topicTarget, RuleManageTopic)
	if code != 0 {
		return code
	}
	if other := s.topicNames.get(o.name); other != nil && other.ID != t.ID {
		return wire.ErrTopicNameAlreadyExists
	}
	next := *t
	next.Name = o.name
	if code := o.patch.apply(&next); code != 0 {
		return code
	}
	c.putStream(s.with(&next))
	return 0
}

func (c *change) deleteTopic(o *deleteTopic, preferred *[256]uint32) wire.ErrorCode {
	s, t, code := c.topic(&o.topicTarget, RuleManageTopic)
	if code != 0 {
		return code
	}
	c.forgetTopic(t, preferred)
	c.putStream(s.without(t))
	return 0
}

// forgetTopic takes a topic that goes out of the counts.
func (c *change) forgetTopic(t *Topic, preferred *[256]uint32) {
	for i := range t.Partitions {
		preferred[t.Partitions[i].Preferred]--
	}
	c.catalog.topicCount--
	c.catalog.partitionCount -= len(t.Partitions)
	c.catalog.groupCount -= len(t.groups)
}

func (c *change) purgeTopic(o *purgeTopic) wire.ErrorCode {
	s, t, code := c.topic(&o.topicTarget, RuleManageTopic)
	if code != 0 {
		return code
	}
	c.putStream(s.with(t.purged(c.index)))
	return 0
}

// purged starts a new purge generation: offsets begin at 0 again, and no frontier of the old ones means anything.
func (t *Topic) purged(index uint64) *Topic {
	next := *t
	next.Purged = index
	next.Partitions = slices.Clone(t.Partitions)
	for i := range next.Partitions {
		next.Partitions[i].Frontier = 0
	}
	return &next
}

func (c *change) createPartitions(o *createPartitions, preferred *[256]uint32) wire.ErrorCode {
	s, t, code := c.topic(&o.topicTarget, RuleManageTopic)
	if code != 0 {
		return code
	}
	if len(t.Partitions)+int(o.count) > maxPartitionsPerTopic {
		return wire.ErrPartitionIdSpaceExhausted
	}
	next := *t
	next.Partitions = place(t.Partitions, o.count, o.candidates, o.members, preferred, c.index, c.time)
	c.putStream(s.with(&next))
	c.catalog.partitionCount += int(o.count)
	return 0
}

func (c *change) deletePartitions(o *deletePartitions, preferred *[256]uint32) wire.ErrorCode {
	s, t, code := c.topic(&o.topicTarget, RuleManageTopic)
	if code != 0 {
		return code
	}
	if int(o.count) > len(t.Partitions) {
		return wire.ErrInvalidPartitionsCount
	}
	keep := len(t.Partitions) - int(o.count)
	for i := keep; i < len(t.Partitions); i++ {
		preferred[t.Partitions[i].Preferred]--
	}
	next := *t
	// The capacity is cut with the length: the next append must not write where older catalogs still look.
	next.Partitions = t.Partitions[:keep:keep]
	c.putStream(s.with(&next))
	c.catalog.partitionCount -= int(o.count)
	return 0
}

func (c *change) truncatePartition(o *truncatePartition) wire.ErrorCode {
	s, t, code := c.topic(&o.topicTarget, RuleManageTopic)
	if code != 0 {
		return code
	}
	if uint64(o.partition) >= uint64(len(t.Partitions)) {
		return wire.ErrPartitionNotFound
	}
	if o.offset <= t.Partitions[o.partition].Frontier {
		return 0 // asked for before, or nothing to delete
	}
	next := *t
	next.Partitions = slices.Clone(t.Partitions)
	next.Partitions[o.partition].Frontier = o.offset
	c.putStream(s.with(&next))
	return 0
}

// setPreferred is refused for a partition that is gone or was made anew meanwhile, and for a node that does not hold it.
func (c *change) setPreferred(o *SetPreferred, preferred *[256]uint32) wire.ErrorCode {
	p, ok := c.catalog.Partition(o.Stream, o.Topic, o.Partition)
	switch {
	case !ok, p.Created != o.Created, !slices.Contains(p.Members, o.Replica):
		return wire.ErrResourceNotFound
	case p.Preferred == o.Replica:
		return 0
	}
	s := c.catalog.StreamByID(o.Stream)
	next := *s.TopicByID(o.Topic)
	next.Partitions = slices.Clone(next.Partitions)
	next.Partitions[o.Partition].Preferred = o.Replica
	preferred[p.Preferred]--
	preferred[o.Replica]++
	c.putStream(s.with(&next))
	return 0
}
