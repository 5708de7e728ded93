package cli

import (
	"errors"
	"strconv"
	"strings"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/internal/cli/output"
)

// consumerGroupCmd groups the commands about consumer groups.
type consumerGroupCmd struct {
	Create groupCreateCmd `cmd:"" name:"create" aliases:"c" help:"Create a consumer group."`
	Delete groupDeleteCmd `cmd:"" name:"delete" aliases:"d" help:"Delete a consumer group."`
	Get    groupGetCmd    `cmd:"" name:"get" aliases:"g" help:"Show a consumer group and its members."`
	List   groupListCmd   `cmd:"" name:"list" aliases:"l" help:"List the consumer groups of a topic."`
}

type groupCreateCmd struct {
	topicArgs `embed:""`
	ID        *uint32 `name:"group-id" short:"g" hidden:"" help:"Ignored: the server assigns ids."`
	Name      newName `arg:"" name:"name" help:"Name of the group."`
}

// Run creates the group.
func (c *groupCreateCmd) Run(inv *invocation) error {
	inv.out.Executing("create consumer group with name: %s and ID auto incremented for topic with ID: %s and stream with ID: %s", c.Name, c.Topic, c.Stream)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	g, err := conn.CreateConsumerGroup(inv.ctx, c.Stream.Identifier, c.Topic.Identifier, string(c.Name))
	if err != nil {
		return failed(err, "create consumer group %q for %s", c.Name, c.topicArgs)
	}
	inv.out.Done(viewGroupDetails(g), "Consumer group with name: %s and ID auto incremented created for topic with ID: %s and stream with ID: %s", c.Name, c.Topic, c.Stream)
	return nil
}

type groupDeleteCmd struct {
	topicArgs `embed:""`
	Group     ident `arg:"" name:"group" help:"Id or name of the group."`
}

// Run deletes the group.
func (c *groupDeleteCmd) Run(inv *invocation) error {
	inv.out.Executing("delete consumer group with ID: %s for topic with ID: %s and stream with ID: %s", c.Group, c.Topic, c.Stream)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	if err := conn.DeleteConsumerGroup(inv.ctx, c.Stream.Identifier, c.Topic.Identifier, c.Group.Identifier); err != nil {
		return failed(err, "delete consumer group %s of %s", c.Group, c.topicArgs)
	}
	inv.out.Done(deleted{Deleted: true, Stream: c.Stream.String(), Topic: c.Topic.String(), Group: c.Group.String()},
		"Consumer group with ID: %s deleted for topic with ID: %s and stream with ID: %s", c.Group, c.Topic, c.Stream)
	return nil
}

type groupGetCmd struct {
	topicArgs `embed:""`
	Group     ident `arg:"" name:"group" help:"Id or name of the group."`
}

// Run shows the group.
func (c *groupGetCmd) Run(inv *invocation) error {
	inv.out.Executing("get consumer group with ID: %s for topic with ID: %s and stream with ID: %s", c.Group, c.Topic, c.Stream)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	g, err := conn.ConsumerGroup(inv.ctx, c.Stream.Identifier, c.Topic.Identifier, c.Group.Identifier)
	if errors.Is(err, client.ErrNotFound) {
		inv.out.NotFound("Consumer group with ID: %s was not found", c.Group)
		return nil
	}
	if err != nil {
		return failed(err, "get consumer group %s of %s", c.Group, c.topicArgs)
	}
	rows := [][]string{
		{"Consumer group id", strconv.FormatUint(uint64(g.ID), 10)},
		{"Consumer group name", g.Name},
		{"Partitions count", strconv.FormatUint(uint64(g.PartitionsCount), 10)},
		{"Members count", strconv.Itoa(len(g.Members))},
	}
	if len(g.Members) > 0 {
		members := make([][]string, 0, len(g.Members))
		for _, m := range g.Members {
			ids := make([]string, len(m.Partitions))
			for i, p := range m.Partitions {
				ids[i] = strconv.FormatUint(uint64(p), 10)
			}
			members = append(members, []string{strconv.FormatUint(uint64(m.ID), 10), strconv.Itoa(len(ids)), "[" + strings.Join(ids, ", ") + "]"})
		}
		rows = append(rows, []string{"Members", output.Nested([]string{"Member id", "Partitions count", "Partitions"}, members)})
	}
	inv.out.Details("Property", "Value", rows, viewGroupDetails(g))
	return nil
}

type groupListCmd struct {
	topicArgs `embed:""`
	listMode  `embed:""`
}

// Run lists the groups.
func (c *groupListCmd) Run(inv *invocation) error {
	inv.out.Executing("list consumer groups for stream with ID: %s and topic with ID: %s in %s mode", c.Stream, c.Topic, c.Mode)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	groups, err := conn.ConsumerGroups(inv.ctx, c.Stream.Identifier, c.Topic.Identifier)
	if err != nil {
		return failed(err, "list the consumer groups of %s", c.topicArgs)
	}
	views := make([]groupView, 0, len(groups))
	var rows [][]string
	for _, g := range groups {
		views = append(views, viewGroup(g))
		rows = append(rows, []string{
			strconv.FormatUint(uint64(g.ID), 10), g.Name, strconv.FormatUint(uint64(g.PartitionsCount), 10),
			strconv.FormatUint(uint64(g.MembersCount), 10),
		})
	}
	inv.out.Sheet(output.Sheet{Header: []string{"ID", "Name", "Partitions Count", "Members Count"}, Rows: rows, Doc: views, List: c.list()})
	return nil
}
