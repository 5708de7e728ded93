package metadata

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/whippetmq/whippet/wire"
)

// The table of security.md §4, by the names of the flags: what grants a rule at each scope.
var ruleTable = map[Rule][3]string{
	RuleReadServers:   {"manage_servers read_servers", "", ""},
	RuleManageServers: {"manage_servers", "", ""},
	RuleReadUsers:     {"manage_users read_users", "", ""},
	RuleManageUsers:   {"manage_users", "", ""},
	RuleReadStreams:   {"manage_streams read_streams", "", ""},
	RuleReadStream:    {"manage_streams read_streams", "manage_stream read_stream", ""},
	RuleCreateStream:  {"manage_streams", "", ""},
	RuleManageStream:  {"manage_streams", "manage_stream", ""},
	RuleReadTopics:    {"read_streams manage_streams read_topics manage_topics", "manage_stream read_stream manage_topics read_topics", ""},
	RuleReadTopic: {"read_streams manage_streams read_topics manage_topics", "manage_stream read_stream manage_topics read_topics",
		"manage_topic read_topic"},
	RuleCreateTopic: {"manage_streams manage_topics", "manage_stream manage_topics", ""},
	RuleManageTopic: {"manage_streams manage_topics", "manage_stream manage_topics", "manage_topic"},
	RulePoll: {"poll_messages read_topics manage_topics read_streams manage_streams",
		"poll_messages manage_stream read_stream manage_topics read_topics", "manage_topic read_topic poll_messages"},
	RuleSend: {"send_messages manage_streams manage_topics", "send_messages manage_stream manage_topics", "manage_topic send_messages"},
	RulePollRouting: {"send_messages poll_messages read_topics manage_topics read_streams manage_streams",
		"send_messages poll_messages manage_stream read_stream manage_topics read_topics", "manage_topic read_topic poll_messages send_messages"},
}

// one makes permissions with a single flag: at the server, on stream 5, or on topic 6 of stream 5.
func one(scope int, flag string) *wire.Permissions {
	p := &wire.Permissions{}
	topic := wire.TopicPermissions{TopicID: 6}
	stream := wire.StreamPermissions{StreamID: 5}
	flags := [3]map[string]*bool{
		{"manage_servers": &p.Global.ManageServers, "read_servers": &p.Global.ReadServers, "manage_users": &p.Global.ManageUsers,
			"read_users": &p.Global.ReadUsers, "manage_streams": &p.Global.ManageStreams, "read_streams": &p.Global.ReadStreams,
			"manage_topics": &p.Global.ManageTopics, "read_topics": &p.Global.ReadTopics, "poll_messages": &p.Global.PollMessages,
			"send_messages": &p.Global.SendMessages},
		{"manage_stream": &stream.ManageStream, "read_stream": &stream.ReadStream, "manage_topics": &stream.ManageTopics,
			"read_topics": &stream.ReadTopics, "poll_messages": &stream.PollMessages, "send_messages": &stream.SendMessages},
		{"manage_topic": &topic.ManageTopic, "read_topic": &topic.ReadTopic, "poll_messages": &topic.PollMessages,
			"send_messages": &topic.SendMessages},
	}
	*flags[scope][flag] = true
	if scope == 2 {
		stream.Topics = []wire.TopicPermissions{topic}
	}
	if scope > 0 {
		p.Streams = []wire.StreamPermissions{stream}
	}
	return p
}

var flagNames = [3][]string{
	{"manage_servers", "read_servers", "manage_users", "read_users", "manage_streams", "read_streams", "manage_topics", "read_topics",
		"poll_messages", "send_messages"},
	{"manage_stream", "read_stream", "manage_topics", "read_topics", "poll_messages", "send_messages"},
	{"manage_topic", "read_topic", "poll_messages", "send_messages"},
}

// TestRules tries every flag alone against every rule, on its own stream and topic and on others.
func TestRules(t *testing.T) {
	if len(ruleTable) != int(ruleCount) {
		t.Fatalf("%d rules in the table, %d exist", len(ruleTable), ruleCount)
	}
	for rule, row := range ruleTable {
		for scope, flags := range flagNames {
			for _, flag := range flags {
				p := packPermissions(one(scope, flag))
				granted := slices.Contains(strings.Fields(row[scope]), flag)
				for _, at := range []struct {
					stream, topic uint32
					within        bool
				}{{5, 6, true}, {4, 6, scope == 0}, {5, 7, scope < 2}, {6, 5, scope == 0}} {
					if got, want := p.allow(rule, at.stream, at.topic), granted && at.within; got != want {
						t.Errorf("rule %d, flag %s at scope %d, stream %d topic %d: %v, want %v", rule, flag, scope, at.stream, at.topic, got, want)
					}
				}
			}
		}
	}
	var nobody *permissions
	if nobody.allow(RuleSend, 5, 6) || packPermissions(wire.RootPermissions()).allow(ruleCount, 5, 6) {
		t.Error("allowed without a grant or a rule")
	}
}

func TestUnion(t *testing.T) {
	// A flag that is missing at a narrower scope takes nothing away.
	p := packPermissions(&wire.Permissions{Global: wire.GlobalPermissions{SendMessages: true},
		Streams: []wire.StreamPermissions{{StreamID: 5, PollMessages: true, Topics: []wire.TopicPermissions{{TopicID: 6}}}}})
	if !p.allow(RuleSend, 5, 6) || !p.allow(RulePoll, 5, 6) || p.allow(RulePoll, 4, 6) {
		t.Error("the union of the scopes is not what is granted")
	}
}

func TestAllows(t *testing.T) {
	r, root := newRig(t, Config{})
	check(t, root.later(wire.OpCreateUser, &createUser{name: "bob", hash: "x", active: true,
		permissions: packPermissions(one(1, "send_messages"))}), "")
	c := r.m.Catalog()
	for rule := range ruleCount {
		if !c.Allows(RootUser, rule, 1, 1) {
			t.Errorf("root may not do what rule %d stands for", rule)
		}
		if c.Allows(7, rule, 5, 6) || c.Allows(NoUser, rule, 5, 6) {
			t.Errorf("a user that does not exist may do what rule %d stands for", rule)
		}
	}
	if !c.Allows(1, RuleSend, 5, 0) || c.Allows(1, RuleSend, 0, 0) || c.Allows(1, RulePoll, 5, 0) {
		t.Error("bob's grants")
	}
	if got := c.UserByID(1).Permissions(); fmt.Sprint(got) != fmt.Sprint(one(1, "send_messages")) {
		t.Errorf("permissions %+v", got)
	}
	// The rights of a user that is created between two requests of a session count for the second one.
	bob := r.login(2, 1)
	check(t, bob.do(&wire.CreateStream{Name: "a"}), "committed 41")
	check(t, root.later(wire.OpUpdatePermissions, &updatePermissions{wire.ID(1), packPermissions(one(0, "manage_streams"))}), "")
	check(t, bob.do(&wire.CreateStream{Name: "a"}), "")
}

func TestPermissionsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &permissions{global: rapid.Uint16Range(0, globalFlags).Draw(t, "global")}
		for id := range rapid.Uint32Range(0, 4).Draw(t, "streams") {
			s := streamPermissions{id: id * 3, flags: rapid.Uint8Range(0, streamFlags).Draw(t, "stream")}
			for k := range rapid.Uint32Range(0, 3).Draw(t, "topics") {
				s.topics = append(s.topics, topicPermissions{id: k * 2, flags: rapid.Uint8Range(0, topicFlags).Draw(t, "topic")})
			}
			p.streams = append(p.streams, s)
		}
		text := fmt.Sprint(*p)
		if got := packPermissions(p.wire()); fmt.Sprint(*got) != text {
			t.Fatalf("over the wire: %v, want %v", *got, text)
		}
		r := &reader{b: appendPermissions(nil, p)}
		if got := r.permissions(); !r.ok() || fmt.Sprint(*got) != text {
			t.Fatalf("over the log: %v, want %v", got, text)
		}
	})
	// What a client sends unsorted or twice: the last one counts.
	p := packPermissions(&wire.Permissions{Streams: []wire.StreamPermissions{{StreamID: 2, ReadStream: true}, {StreamID: 1}, {StreamID: 2, SendMessages: true}}})
	if len(p.streams) != 2 || p.streams[0].id != 1 || p.streams[1].flags != streamSend {
		t.Errorf("packed %+v", p.streams)
	}
	if packPermissions(nil) != nil || (*permissions)(nil).wire() != nil {
		t.Error("no record of permissions is not an empty one")
	}
}
