package cli

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/whippetmq/whippet/wire"
)

// grant is one permission: its name, its short name, and where it is kept.
type grant[T any] struct {
	name, short string
	field       func(*T) *bool
}

func globalGrants() []grant[wire.GlobalPermissions] {
	type G = wire.GlobalPermissions
	return []grant[G]{
		{"manage_servers", "m_srv", func(g *G) *bool { return &g.ManageServers }},
		{"read_servers", "r_srv", func(g *G) *bool { return &g.ReadServers }},
		{"manage_users", "m_usr", func(g *G) *bool { return &g.ManageUsers }},
		{"read_users", "r_usr", func(g *G) *bool { return &g.ReadUsers }},
		{"manage_streams", "m_str", func(g *G) *bool { return &g.ManageStreams }},
		{"read_streams", "r_str", func(g *G) *bool { return &g.ReadStreams }},
		{"manage_topics", "m_top", func(g *G) *bool { return &g.ManageTopics }},
		{"read_topics", "r_top", func(g *G) *bool { return &g.ReadTopics }},
		{"poll_messages", "p_msg", func(g *G) *bool { return &g.PollMessages }},
		{"send_messages", "s_msg", func(g *G) *bool { return &g.SendMessages }},
	}
}

func streamGrants() []grant[wire.StreamPermissions] {
	type S = wire.StreamPermissions
	return []grant[S]{
		{"manage_stream", "m_str", func(s *S) *bool { return &s.ManageStream }},
		{"read_stream", "r_str", func(s *S) *bool { return &s.ReadStream }},
		{"manage_topics", "m_top", func(s *S) *bool { return &s.ManageTopics }},
		{"read_topics", "r_top", func(s *S) *bool { return &s.ReadTopics }},
		{"poll_messages", "p_msg", func(s *S) *bool { return &s.PollMessages }},
		{"send_messages", "s_msg", func(s *S) *bool { return &s.SendMessages }},
	}
}

func topicGrants() []grant[wire.TopicPermissions] {
	type T = wire.TopicPermissions
	return []grant[T]{
		{"manage_topic", "m_top", func(t *T) *bool { return &t.ManageTopic }},
		{"read_topic", "r_top", func(t *T) *bool { return &t.ReadTopic }},
		{"poll_messages", "p_msg", func(t *T) *bool { return &t.PollMessages }},
		{"send_messages", "s_msg", func(t *T) *bool { return &t.SendMessages }},
	}
}

// setGrants sets the permissions of a comma list; unknown names are collected in the error.
func setGrants[T any](into *T, grants []grant[T], list string) error {
	var unknown []string
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		found := false
		for _, g := range grants {
			if name == g.name || name == g.short {
				*g.field(into) = true
				found = true
			}
		}
		if !found {
			unknown = append(unknown, strconv.Quote(name))
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	known := make([]string, len(grants))
	for i, g := range grants {
		known[i] = g.name + " (" + g.short + ")"
	}
	return badUsage("unknown permission %s; known are %s", strings.Join(unknown, ", "), strings.Join(known, ", "))
}

// parsePermissions reads the global list and the stream rules ("ID[:perms][#TOPIC_ID[:perms]]..."); nil when there is
// neither.
func parsePermissions(global string, streams []string) (*wire.Permissions, error) {
	if global == "" && len(streams) == 0 {
		return nil, nil
	}
	p := &wire.Permissions{}
	if global != "" {
		if err := setGrants(&p.Global, globalGrants(), global); err != nil {
			return nil, err
		}
	}
	for _, rule := range streams {
		parts := strings.Split(rule, "#")
		var s wire.StreamPermissions
		id, err := ruleHead(parts[0], "stream", func(list string) error { return setGrants(&s, streamGrants(), list) })
		if err != nil {
			return nil, err
		}
		s.StreamID = id
		if p.Stream(id) != nil {
			return nil, badUsage("stream %d has two rules: put its topics into one", id)
		}
		for _, part := range parts[1:] {
			var t wire.TopicPermissions
			id, err := ruleHead(part, "topic", func(list string) error { return setGrants(&t, topicGrants(), list) })
			if err != nil {
				return nil, err
			}
			t.TopicID = id
			if s.Topic(id) != nil {
				return nil, badUsage("topic %d of stream %d has two rules", id, s.StreamID)
			}
			s.Topics = append(s.Topics, t)
		}
		p.Streams = append(p.Streams, s)
	}
	return p, nil
}

func ruleHead(text, what string, set func(string) error) (uint32, error) {
	number, list, given := strings.Cut(text, ":")
	id, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return 0, badUsage("%s rule %q does not start with the %s's id", what, text, what)
	}
	if given {
		return uint32(id), set(list)
	}
	return uint32(id), nil
}

// grantMap lists all permissions of one scope with their values, for JSON.
func grantMap[T any](v *T, grants []grant[T]) map[string]any {
	m := make(map[string]any, len(grants))
	for _, g := range grants {
		m[g.name] = *g.field(v)
	}
	return m
}

func grantRows[T any](prefix string, v *T, grants []grant[T]) [][]string {
	rows := make([][]string, len(grants))
	for i, g := range grants {
		rows[i] = []string{prefix + g.name, strconv.FormatBool(*g.field(v))}
	}
	return rows
}

// viewPermissions is the document of a user's permissions, null without any.
func viewPermissions(p *wire.Permissions) any {
	if p == nil {
		return nil
	}
	streams := map[string]any{}
	for i := range p.Streams {
		s := &p.Streams[i]
		m := grantMap(s, streamGrants())
		topics := map[string]any{}
		for j := range s.Topics {
			topics[strconv.FormatUint(uint64(s.Topics[j].TopicID), 10)] = grantMap(&s.Topics[j], topicGrants())
		}
		m["topics"] = topics
		streams[strconv.FormatUint(uint64(s.StreamID), 10)] = m
	}
	return map[string]any{"global": grantMap(&p.Global, globalGrants()), "streams": streams}
}

// permissionRows are the rows of a user's details.
func permissionRows(p *wire.Permissions, nested func(header []string, rows [][]string) string) [][]string {
	if p == nil {
		return nil
	}
	header := []string{"Permission", "Value"}
	rows := [][]string{{"Global", nested(header, grantRows("", &p.Global, globalGrants()))}}
	streams := append([]wire.StreamPermissions(nil), p.Streams...)
	sort.Slice(streams, func(i, j int) bool { return streams[i].StreamID < streams[j].StreamID })
	for i := range streams {
		s := &streams[i]
		inner := grantRows("", s, streamGrants())
		for j := range s.Topics {
			t := &s.Topics[j]
			inner = append(inner, grantRows(fmt.Sprintf("topic %d: ", t.TopicID), t, topicGrants())...)
		}
		rows = append(rows, []string{fmt.Sprintf("Stream: %d", s.StreamID), nested(header, inner)})
	}
	return rows
}
