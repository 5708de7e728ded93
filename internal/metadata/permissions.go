package metadata

import (
	"slices"

	"github.com/whippetmq/whippet/wire"
)

// Rule is a row of the table of permissions (security.md §4): what a command needs.
type Rule uint8

// Rules. The comment names the commands.
const (
	// RuleReadServers: GetStats, GetClients, GetClient, GetSnapshot.
	RuleReadServers Rule = iota
	// RuleManageServers: cluster administration (extensions.md, 9002).
	RuleManageServers
	// RuleReadUsers: GetUsers, GetUser of another user.
	RuleReadUsers
	// RuleManageUsers: CreateUser, UpdateUser, DeleteUser, UpdatePermissions, ChangePassword of another user.
	RuleManageUsers
	// RuleReadStreams: GetStreams.
	RuleReadStreams
	// RuleReadStream: GetStream.
	RuleReadStream
	// RuleCreateStream: CreateStream.
	RuleCreateStream
	// RuleManageStream: UpdateStream, DeleteStream, PurgeStream.
	RuleManageStream
	// RuleReadTopics: GetTopics.
	RuleReadTopics
	// RuleReadTopic: GetTopic and the consumer group commands 600 to 605.
	RuleReadTopic
	// RuleCreateTopic: CreateTopic.
	RuleCreateTopic
	// RuleManageTopic: UpdateTopic, DeleteTopic, PurgeTopic, CreatePartitions, DeletePartitions, DeleteSegments.
	RuleManageTopic
	// RulePoll: PollMessages, PollMessagesOnPrimary, consumer offsets, their routing.
	RulePoll
	// RuleSend: SendMessages.
	RuleSend
	// RulePollRouting: GetPollRouting, which senders may ask too (routing.md D.3).
	RulePollRouting

	ruleCount
)

// Global flags, in the order of the wire (commands §2.9).
const (
	globalManageServers uint16 = 1 << iota
	globalReadServers
	globalManageUsers
	globalReadUsers
	globalManageStreams
	globalReadStreams
	globalManageTopics
	globalReadTopics
	globalPoll
	globalSend

	globalFlags = globalSend<<1 - 1
)

// Flags of one stream.
const (
	streamManage uint8 = 1 << iota
	streamRead
	streamManageTopics
	streamReadTopics
	streamPoll
	streamSend

	streamFlags = streamSend<<1 - 1
)

// Flags of one topic.
const (
	topicManage uint8 = 1 << iota
	topicRead
	topicPoll
	topicSend

	topicFlags = topicSend<<1 - 1
)

// grants says which flags satisfy a rule; any one of them is enough.
type grants struct {
	global uint16
	stream uint8
	topic  uint8
}

const (
	readTopicsGlobal = globalManageStreams | globalReadStreams | globalManageTopics | globalReadTopics
	readTopicsStream = streamManage | streamRead | streamManageTopics | streamReadTopics
	sendGlobal       = globalSend | globalManageStreams | globalManageTopics
	sendStream       = streamSend | streamManage | streamManageTopics
	sendTopic        = topicManage | topicSend
	pollGlobal       = globalPoll | readTopicsGlobal
	pollStream       = streamPoll | readTopicsStream
	pollTopic        = topicPoll | topicManage | topicRead
)

var ruleGrants = [ruleCount]grants{
	RuleReadServers:   {global: globalManageServers | globalReadServers},
	RuleManageServers: {global: globalManageServers},
	RuleReadUsers:     {global: globalManageUsers | globalReadUsers},
	RuleManageUsers:   {global: globalManageUsers},
	RuleReadStreams:   {global: globalManageStreams | globalReadStreams},
	RuleReadStream:    {global: globalManageStreams | globalReadStreams, stream: streamManage | streamRead},
	RuleCreateStream:  {global: globalManageStreams},
	RuleManageStream:  {global: globalManageStreams, stream: streamManage},
	RuleReadTopics:    {global: readTopicsGlobal, stream: readTopicsStream},
	RuleReadTopic:     {global: readTopicsGlobal, stream: readTopicsStream, topic: topicManage | topicRead},
	RuleCreateTopic:   {global: globalManageStreams | globalManageTopics, stream: streamManage | streamManageTopics},
	RuleManageTopic: {global: globalManageStreams | globalManageTopics, stream: streamManage | streamManageTopics,
		topic: topicManage},
	RulePoll:        {global: pollGlobal, stream: pollStream, topic: pollTopic},
	RuleSend:        {global: sendGlobal, stream: sendStream, topic: sendTopic},
	RulePollRouting: {global: pollGlobal | sendGlobal, stream: pollStream | sendStream, topic: pollTopic | sendTopic},
}

// permissions of a user: flags as bits, streams and topics sorted by id. Immutable.
type permissions struct {
	global  uint16
	streams []streamPermissions
}

type streamPermissions struct {
	id     uint32
	flags  uint8
	topics []topicPermissions
}

type topicPermissions struct {
	id    uint32
	flags uint8
}

// allow decides by union: a flag that is missing at a narrower scope never takes away what a wider one gives.
func (p *permissions) allow(rule Rule, stream, topic uint32) bool {
	if p == nil || rule >= ruleCount {
		return false
	}
	need := &ruleGrants[rule]
	if p.global&need.global != 0 {
		return true
	}
	if need.stream|need.topic == 0 {
		return false
	}
	at, ok := slices.BinarySearchFunc(p.streams, stream, func(s streamPermissions, id uint32) int { return compareID(s.id, id) })
	if !ok {
		return false
	}
	s := &p.streams[at]
	if s.flags&need.stream != 0 {
		return true
	}
	if need.topic == 0 {
		return false
	}
	at, ok = slices.BinarySearchFunc(s.topics, topic, func(t topicPermissions, id uint32) int { return compareID(t.id, id) })
	return ok && s.topics[at].flags&need.topic != 0
}

func compareID(a, b uint32) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// appendPermissions writes: flag present, global u16, count u32, per stream id u32, flags u8, count u32, per topic id u32, flags u8.
func appendPermissions(dst []byte, p *permissions) []byte {
	if p == nil {
		return append(dst, 0)
	}
	dst = le.AppendUint16(append(dst, 1), p.global)
	dst = le.AppendUint32(dst, uint32(len(p.streams)))
	for _, s := range p.streams {
		dst = append(le.AppendUint32(dst, s.id), s.flags)
		dst = le.AppendUint32(dst, uint32(len(s.topics)))
		for _, t := range s.topics {
			dst = append(le.AppendUint32(dst, t.id), t.flags)
		}
	}
	return dst
}

func (r *reader) permissions() *permissions {
	if !r.flag() {
		return nil
	}
	p := &permissions{}
	if b := r.take(2); b != nil {
		p.global = le.Uint16(b)
	}
	if p.global > globalFlags {
		r.fail("global permissions %#x", p.global)
	}
	for i, n := 0, r.count(9); i < n && r.ok(); i++ {
		s := streamPermissions{id: r.u32(), flags: r.u8()}
		if s.flags > streamFlags || i > 0 && s.id <= p.streams[i-1].id {
			r.fail("permissions of stream %d", s.id)
		}
		for k, m := 0, r.count(5); k < m && r.ok(); k++ {
			t := topicPermissions{id: r.u32(), flags: r.u8()}
			if t.flags > topicFlags || k > 0 && t.id <= s.topics[k-1].id {
				r.fail("permissions of topic %d", t.id)
			}
			s.topics = append(s.topics, t)
		}
		p.streams = append(p.streams, s)
	}
	if !r.ok() {
		return nil
	}
	return p
}

func bit[T uint8 | uint16](v bool, flag T) T {
	if v {
		return flag
	}
	return 0
}

// packPermissions sorts what a client sent. A stream or topic that is named twice counts as the last one says.
func packPermissions(p *wire.Permissions) *permissions {
	if p == nil {
		return nil
	}
	g := &p.Global
	out := &permissions{global: bit(g.ManageServers, globalManageServers) | bit(g.ReadServers, globalReadServers) |
		bit(g.ManageUsers, globalManageUsers) | bit(g.ReadUsers, globalReadUsers) |
		bit(g.ManageStreams, globalManageStreams) | bit(g.ReadStreams, globalReadStreams) |
		bit(g.ManageTopics, globalManageTopics) | bit(g.ReadTopics, globalReadTopics) |
		bit(g.PollMessages, globalPoll) | bit(g.SendMessages, globalSend)}
	for i := range p.Streams {
		s := &p.Streams[i]
		packed := streamPermissions{id: s.StreamID, flags: bit(s.ManageStream, streamManage) | bit(s.ReadStream, streamRead) |
			bit(s.ManageTopics, streamManageTopics) | bit(s.ReadTopics, streamReadTopics) |
			bit(s.PollMessages, streamPoll) | bit(s.SendMessages, streamSend)}
		for k := range s.Topics {
			t := &s.Topics[k]
			packed.topics = append(packed.topics, topicPermissions{id: t.TopicID, flags: bit(t.ManageTopic, topicManage) |
				bit(t.ReadTopic, topicRead) | bit(t.PollMessages, topicPoll) | bit(t.SendMessages, topicSend)})
		}
		packed.topics = lastOfEach(packed.topics, func(t topicPermissions) uint32 { return t.id })
		out.streams = append(out.streams, packed)
	}
	out.streams = lastOfEach(out.streams, func(s streamPermissions) uint32 { return s.id })
	return out
}

// lastOfEach sorts by id and keeps the last of those with the same one.
func lastOfEach[T any](list []T, id func(T) uint32) []T {
	slices.SortStableFunc(list, func(a, b T) int { return compareID(id(a), id(b)) })
	kept := list[:0]
	for i := range list {
		if i+1 == len(list) || id(list[i]) != id(list[i+1]) {
			kept = append(kept, list[i])
		}
	}
	return kept
}

func (p *permissions) wire() *wire.Permissions {
	if p == nil {
		return nil
	}
	has := func(flag uint16) bool { return p.global&flag != 0 }
	out := &wire.Permissions{Global: wire.GlobalPermissions{
		ManageServers: has(globalManageServers), ReadServers: has(globalReadServers),
		ManageUsers: has(globalManageUsers), ReadUsers: has(globalReadUsers),
		ManageStreams: has(globalManageStreams), ReadStreams: has(globalReadStreams),
		ManageTopics: has(globalManageTopics), ReadTopics: has(globalReadTopics),
		PollMessages: has(globalPoll), SendMessages: has(globalSend),
	}}
	for _, s := range p.streams {
		has := func(flag uint8) bool { return s.flags&flag != 0 }
		stream := wire.StreamPermissions{StreamID: s.id,
			ManageStream: has(streamManage), ReadStream: has(streamRead),
			ManageTopics: has(streamManageTopics), ReadTopics: has(streamReadTopics),
			PollMessages: has(streamPoll), SendMessages: has(streamSend)}
		for _, t := range s.topics {
			has := func(flag uint8) bool { return t.flags&flag != 0 }
			stream.Topics = append(stream.Topics, wire.TopicPermissions{TopicID: t.id,
				ManageTopic: has(topicManage), ReadTopic: has(topicRead),
				PollMessages: has(topicPoll), SendMessages: has(topicSend)})
		}
		out.Streams = append(out.Streams, stream)
	}
	return out
}
