package cli

import (
	"errors"
	"strconv"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/internal/cli/output"
	"github.com/whippetmq/whippet/internal/cli/units"
)

// streamCmd groups the commands about streams.
type streamCmd struct {
	Create streamCreateCmd `cmd:"" name:"create" aliases:"c" help:"Create a stream."`
	Delete streamDeleteCmd `cmd:"" name:"delete" aliases:"d" help:"Delete a stream with all it holds."`
	Update streamUpdateCmd `cmd:"" name:"update" aliases:"u" help:"Rename a stream."`
	Get    streamGetCmd    `cmd:"" name:"get" aliases:"g" help:"Show a stream."`
	List   streamListCmd   `cmd:"" name:"list" aliases:"l" help:"List all streams."`
	Purge  streamPurgeCmd  `cmd:"" name:"purge" aliases:"p" help:"Delete all messages of a stream."`
}

type streamCreateCmd struct {
	ID   *uint32 `name:"stream-id" short:"s" hidden:"" help:"Ignored: the server assigns ids."`
	Name newName `arg:"" name:"name" help:"Name of the stream."`
}

// Run creates the stream.
func (c *streamCreateCmd) Run(inv *invocation) error {
	inv.out.Executing("create stream with name: %s and ID auto incremented", c.Name)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	s, err := conn.CreateStream(inv.ctx, string(c.Name))
	if err != nil {
		return failed(err, "create stream %q", c.Name)
	}
	inv.out.Done(viewStreamDetails(s), "Stream with name: %s and ID auto incremented created", c.Name)
	return nil
}

type streamDeleteCmd struct {
	streamArg `embed:""`
}

// Run deletes the stream.
func (c *streamDeleteCmd) Run(inv *invocation) error {
	inv.out.Executing("delete stream with ID: %s", c.Stream)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	if err := conn.DeleteStream(inv.ctx, c.Stream.Identifier); err != nil {
		return failed(err, "delete stream %s", c.Stream)
	}
	inv.out.Done(deleted{Deleted: true, Stream: c.Stream.String()}, "Stream with ID: %s deleted", c.Stream)
	return nil
}

type streamUpdateCmd struct {
	streamArg `embed:""`
	Name      newName `arg:"" name:"name" help:"New name."`
}

// Run renames the stream.
func (c *streamUpdateCmd) Run(inv *invocation) error {
	inv.out.Executing("update stream with ID: %s and name: %s", c.Stream, c.Name)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	if err := conn.UpdateStream(inv.ctx, c.Stream.Identifier, string(c.Name)); err != nil {
		return failed(err, "update stream %s", c.Stream)
	}
	inv.out.Done(updated{Updated: true, Stream: c.Stream.String(), Name: string(c.Name)}, "Stream with ID: %s updated name: %s", c.Stream, c.Name)
	return nil
}

type streamGetCmd struct {
	streamArg `embed:""`
}

// Run shows the stream.
func (c *streamGetCmd) Run(inv *invocation) error {
	inv.out.Executing("get stream with ID: %s", c.Stream)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	s, err := conn.Stream(inv.ctx, c.Stream.Identifier)
	if errors.Is(err, client.ErrNotFound) {
		inv.out.NotFound("Stream with ID: %s was not found", c.Stream)
		return nil
	}
	if err != nil {
		return failed(err, "get stream %s", c.Stream)
	}
	inv.out.Details("Property", "Value", [][]string{
		{"Stream ID", strconv.FormatUint(uint64(s.ID), 10)},
		{"Created", units.TimeUTC(s.CreatedAt)},
		{"Stream name", s.Name},
		{"Stream size", units.Size(s.SizeBytes)},
		{"Stream message count", strconv.FormatUint(s.MessagesCount, 10)},
		{"Stream topics count", strconv.FormatUint(uint64(s.TopicsCount), 10)},
	}, viewStreamDetails(s))
	return nil
}

type streamListCmd struct {
	listMode `embed:""`
}

// Run lists the streams.
func (c *streamListCmd) Run(inv *invocation) error {
	inv.out.Executing("list streams in %s mode", c.Mode)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	streams, err := conn.Streams(inv.ctx)
	if err != nil {
		return failed(err, "list streams")
	}
	views := make([]streamView, 0, len(streams))
	var rows [][]string
	for _, s := range streams {
		views = append(views, viewStream(s))
		rows = append(rows, []string{
			strconv.FormatUint(uint64(s.ID), 10), units.TimeUTC(s.CreatedAt), s.Name, units.Size(s.SizeBytes),
			strconv.FormatUint(s.MessagesCount, 10), strconv.FormatUint(uint64(s.TopicsCount), 10),
		})
	}
	inv.out.Sheet(output.Sheet{
		Header: []string{"ID", "Created", "Name", "Size (B)", "Messages", "Topics"},
		Rows:   rows, Doc: views, List: c.list(), None: "No streams found!",
	})
	return nil
}

type streamPurgeCmd struct {
	streamArg `embed:""`
}

// Run empties the stream.
func (c *streamPurgeCmd) Run(inv *invocation) error {
	inv.out.Executing("purge stream with ID: %s", c.Stream)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	if err := conn.PurgeStream(inv.ctx, c.Stream.Identifier); err != nil {
		return failed(err, "purge stream %s", c.Stream)
	}
	inv.out.Done(purged{Purged: true, Stream: c.Stream.String()}, "Stream with ID: %s purged", c.Stream)
	return nil
}
