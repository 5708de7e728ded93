package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/internal/cli/output"
	"github.com/whippetmq/whippet/internal/cli/units"
	"github.com/whippetmq/whippet/wire"
)

// topicCmd groups the commands about topics.
type topicCmd struct {
	Create topicCreateCmd `cmd:"" name:"create" aliases:"c" help:"Create a topic."`
	Delete topicDeleteCmd `cmd:"" name:"delete" aliases:"d" help:"Delete a topic with all it holds."`
	Update topicUpdateCmd `cmd:"" name:"update" aliases:"u" help:"Rename a topic and change its limits."`
	Get    topicGetCmd    `cmd:"" name:"get" aliases:"g" help:"Show a topic."`
	List   topicListCmd   `cmd:"" name:"list" aliases:"l" help:"List the topics of a stream."`
	Purge  topicPurgeCmd  `cmd:"" name:"purge" aliases:"p" help:"Delete all messages of a topic."`
}

// topicLimits are what create and update both take.
type topicLimits struct {
	Compression string   `arg:"" optional:"" name:"compression" default:"none" help:"none or gzip: a hint to clients, the server does not compress."`
	Expiry      []string `arg:"" optional:"" name:"expiry" help:"How long messages are kept; words are added up (1day 2h). unlimited, or server_default."`
	MaxSize     string   `name:"max-topic-size" short:"m" default:"server_default" placeholder:"SIZE" help:"Largest size, such as 15GB; unlimited, or server_default."`
}

func (l topicLimits) parse() (c wire.CompressionAlgorithm, expiry, size uint64, err error) {
	switch strings.ToLower(l.Compression) {
	case "none":
		c = wire.CompressionNone
	case "gzip":
		c = wire.CompressionGzip
	default:
		return 0, 0, 0, badUsage("compression %q is neither none nor gzip", l.Compression)
	}
	if expiry, err = units.ParseExpiry(l.Expiry); err != nil {
		return 0, 0, 0, badUsage("%v", err)
	}
	if size, err = units.ParseSizeLimit(l.MaxSize); err != nil {
		return 0, 0, 0, badUsage("--max-topic-size: %v", err)
	}
	return c, expiry, size, nil
}

type topicCreateCmd struct {
	streamArg        `embed:""`
	ID               *uint32 `name:"topic-id" short:"t" hidden:"" help:"Ignored: the server assigns ids."`
	Name             newName `arg:"" name:"name" help:"Name of the topic."`
	Partitions       uint32  `arg:"" name:"partitions" help:"Number of partitions, 0 to 1000."`
	topicLimits      `embed:""`
	Durability       string      `name:"durability" enum:"replicated,persisted,server_default" default:"server_default" help:"When a send is acknowledged: replicated (a majority has it) or persisted (flushed to disk)."`
	OffsetDurability string      `name:"consumer-offset-durability" enum:"replicated,persisted,server_default" default:"server_default" help:"The same for stored offsets."`
	Set              optionPairs `name:"set" sep:"none" placeholder:"KEY=VALUE" help:"Any other option of the topic (\"whippet options topic\" lists them); may be repeated."`
}

// Run creates the topic.
func (c *topicCreateCmd) Run(inv *invocation) error {
	compression, expiry, size, err := c.parse()
	if err != nil {
		return err
	}
	options, err := c.Set.options()
	if err != nil {
		return err
	}
	what := fmt.Sprintf("topic with name: %s, ID auto incremented, partitions count: %d, compression algorithm: %s, message expiry: %s, max topic size: %s in stream with ID: %s",
		c.Name, c.Partitions, compression, units.Expiry(expiry), units.SizeLimit(size), c.Stream)
	inv.out.Executing("create %s", what)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	t, err := conn.CreateTopic(inv.ctx, c.Stream.Identifier, client.TopicConfig{
		Name: string(c.Name), Partitions: c.Partitions, Options: c.options(options, compression, expiry, size),
	})
	if err != nil {
		return failed(err, "create topic %q in stream %s", c.Name, c.Stream)
	}
	inv.out.Done(viewTopicDetails(t), "T%s created", what[1:])
	return nil
}

// options adds what has a flag of its own to the options of --set.
func (c *topicCreateCmd) options(o wire.Options, compression wire.CompressionAlgorithm, expiry, size uint64) wire.Options {
	o = limitOptions(o, compression, expiry, size)
	for key, value := range map[string]string{
		wire.OptDurability: c.Durability, wire.OptConsumerOffsetDurability: c.OffsetDurability,
	} {
		if value != "server_default" {
			o = o.Set(key, wire.StringValue(value))
		}
	}
	return o
}

// limitOptions adds the limits that are not left to the server.
func limitOptions(o wire.Options, compression wire.CompressionAlgorithm, expiry, size uint64) wire.Options {
	o = o.Set(wire.OptCompression, wire.StringValue(compression.String()))
	if expiry != units.ServerDefault {
		o = o.Set(wire.OptMessageExpiry, wire.Uint64Value(expiry))
	}
	if size != units.ServerDefault {
		o = o.Set(wire.OptMaxTopicSize, wire.Uint64Value(size))
	}
	return o
}

type topicDeleteCmd struct {
	topicArgs `embed:""`
}

// Run deletes the topic.
func (c *topicDeleteCmd) Run(inv *invocation) error {
	inv.out.Executing("delete topic with ID: %s in stream with ID: %s", c.Topic, c.Stream)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	if err := conn.DeleteTopic(inv.ctx, c.Stream.Identifier, c.Topic.Identifier); err != nil {
		return failed(err, "delete %s", c.topicArgs)
	}
	inv.out.Done(deleted{Deleted: true, Stream: c.Stream.String(), Topic: c.Topic.String()},
		"Topic with ID: %s in stream with ID: %s deleted", c.Topic, c.Stream)
	return nil
}

type topicUpdateCmd struct {
	topicArgs   `embed:""`
	Name        newName `arg:"" name:"name" help:"New name."`
	topicLimits `embed:""`
}

// Run changes the topic; server_default keeps what is set.
func (c *topicUpdateCmd) Run(inv *invocation) error {
	compression, expiry, size, err := c.parse()
	if err != nil {
		return err
	}
	what := fmt.Sprintf("topic with ID: %s with new name: %s, updated compression algorithm: %s, message expiry: %s, max topic size: %s in stream with ID: %s",
		c.Topic, c.Name, compression, units.Expiry(expiry), units.SizeLimit(size), c.Stream)
	inv.out.Executing("update %s", what)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	err = conn.UpdateTopic(inv.ctx, c.Stream.Identifier, c.Topic.Identifier, string(c.Name), limitOptions(nil, compression, expiry, size))
	if err != nil {
		return failed(err, "update %s", c.topicArgs)
	}
	inv.out.Done(updated{Updated: true, Stream: c.Stream.String(), Topic: c.Topic.String(), Name: string(c.Name)}, "T%s updated", what[1:])
	return nil
}

type topicGetCmd struct {
	topicArgs `embed:""`
}

// Run shows the topic.
func (c *topicGetCmd) Run(inv *invocation) error {
	inv.out.Executing("get topic with ID: %s from stream with ID: %s", c.Topic, c.Stream)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	t, err := conn.Topic(inv.ctx, c.Stream.Identifier, c.Topic.Identifier)
	if errors.Is(err, client.ErrNotFound) {
		inv.out.NotFound("Topic with ID: %s in stream %s was not found", c.Topic, c.Stream)
		return nil
	}
	if err != nil {
		return failed(err, "get %s", c.topicArgs)
	}
	inv.out.Details("Property", "Value", [][]string{
		{"Topic id", strconv.FormatUint(uint64(t.ID), 10)},
		{"Created", units.TimeUTC(t.CreatedAt)},
		{"Topic name", t.Name},
		{"Topic size", units.Size(t.SizeBytes)},
		{"Compression", t.Compression.String()},
		{"Message expiry", expiryText(t.MessageExpiry)},
		{"Max topic size", units.SizeLimit(t.MaxTopicSize)},
		{"Topic message count", strconv.FormatUint(t.MessagesCount, 10)},
		{"Partitions count", strconv.FormatUint(uint64(t.PartitionsCount), 10)},
	}, viewTopicDetails(t))
	return nil
}

// expiryText writes a topic's expiry, where a reply's 0 means never.
func expiryText(us uint64) string {
	if us == 0 {
		us = units.Unlimited
	}
	return units.Expiry(us)
}

type topicListCmd struct {
	streamArg `embed:""`
	listMode  `embed:""`
}

// Run lists the topics.
func (c *topicListCmd) Run(inv *invocation) error {
	inv.out.Executing("list topics from stream with ID: %s in %s mode", c.Stream, c.Mode)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	topics, err := conn.Topics(inv.ctx, c.Stream.Identifier)
	if err != nil {
		return failed(err, "list the topics of stream %s", c.Stream)
	}
	views := make([]topicView, 0, len(topics))
	var rows [][]string
	for _, t := range topics {
		views = append(views, viewTopic(t))
		rows = append(rows, []string{
			strconv.FormatUint(uint64(t.ID), 10), units.TimeUTC(t.CreatedAt), t.Name, units.Size(t.SizeBytes),
			units.SizeLimit(t.MaxTopicSize), t.Compression.String(), expiryText(t.MessageExpiry),
			strconv.FormatUint(t.MessagesCount, 10), strconv.FormatUint(uint64(t.PartitionsCount), 10),
		})
	}
	inv.out.Sheet(output.Sheet{
		Header: []string{"ID", "Created", "Name", "Size (B)", "Max Topic Size (B)", "Compression", "Message Expiry (s)", "Messages Count", "Partitions Count"},
		Rows:   rows, Doc: views, List: c.list(),
	})
	return nil
}

type topicPurgeCmd struct {
	topicArgs `embed:""`
}

// Run empties the topic.
func (c *topicPurgeCmd) Run(inv *invocation) error {
	inv.out.Executing("purge topic with ID: %s in stream with ID: %s", c.Topic, c.Stream)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	if err := conn.PurgeTopic(inv.ctx, c.Stream.Identifier, c.Topic.Identifier); err != nil {
		return failed(err, "purge %s", c.topicArgs)
	}
	inv.out.Done(purged{Purged: true, Stream: c.Stream.String(), Topic: c.Topic.String()},
		"Topic with ID: %s in stream with ID: %s purged", c.Topic, c.Stream)
	return nil
}
