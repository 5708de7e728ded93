package metadata

import (
	"slices"

	"github.com/whippetmq/whippet/wire"
)

func (c *change) createGroup(o *createGroup) wire.ErrorCode {
	s, t, code := c.topic(&o.topicTarget, RuleReadTopic)
	if code != 0 {
		return code
	}
	if t.groupNames.get(o.name) != nil {
		return wire.ErrConsumerGroupNameAlreadyExists
	}
	g := &Group{ID: t.nextGroup, Name: o.name}
	next := *t
	next.nextGroup++
	next.groups = append(slices.Clip(t.groups), g) // ids only grow, so the list stays in order
	next.groupNames = t.groupNames.set(g.Name, g)
	c.putStream(s.with(&next))
	c.catalog.groupCount++
	details := wire.GroupDetails{Group: wire.Group{ID: g.ID, PartitionsCount: uint32(len(t.Partitions)), Name: g.Name}}
	c.payload = details.Append(nil)
	return 0
}

func (c *change) deleteGroup(o *deleteGroup) wire.ErrorCode {
	s, t, code := c.topic(&o.topicTarget, RuleReadTopic)
	if code != 0 {
		return code
	}
	g := t.Group(o.group)
	if g == nil {
		return wire.ErrConsumerGroupIdNotFound
	}
	next := *t
	next.groups = slices.DeleteFunc(slices.Clone(t.groups), func(x *Group) bool { return x == g })
	next.groupNames = t.groupNames.remove(g.Name)
	c.putStream(s.with(&next))
	c.catalog.groupCount--
	return 0
}
