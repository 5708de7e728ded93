package cli

// messageCmd groups the commands about messages.
type messageCmd struct {
	Send  messageSendCmd  `cmd:"" name:"send" aliases:"s" help:"Send messages from the command line, standard input or a file."`
	Poll  messagePollCmd  `cmd:"" name:"poll" aliases:"p" help:"Read messages of a partition."`
	Flush messageFlushCmd `cmd:"" name:"flush" aliases:"f" help:"Ask the server to write a partition to disk."`
}

type messageFlushCmd struct {
	topicArgs `embed:""`
	Partition uint32 `arg:"" name:"partition" help:"Id of the partition."`
	Fsync     bool   `name:"fsync" short:"f" help:"Also flush it to the disk."`
}

// Run asks for the flush; servers answer that they do not offer it.
func (c *messageFlushCmd) Run(inv *invocation) error {
	inv.out.Executing("flush messages from topic with ID: %s and stream with ID: %s (partition with ID: %d)", c.Topic, c.Stream, c.Partition)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	if err := conn.FlushUnsavedBuffer(inv.ctx, c.Stream.Identifier, c.Topic.Identifier, c.Partition, c.Fsync); err != nil {
		return failed(err, "flush partition %d of %s", c.Partition, c.topicArgs)
	}
	inv.out.Done(map[string]any{"flushed": true}, "Messages of partition %d of %s flushed", c.Partition, c.topicArgs)
	return nil
}
