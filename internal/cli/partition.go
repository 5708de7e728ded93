package cli

import "github.com/whippetmq/whippet/wire"

// maxSegments is the largest number of segments that the command line takes at once.
const maxSegments = 100_000

// partitionCmd groups the commands about partitions.
type partitionCmd struct {
	Create partitionCreateCmd `cmd:"" name:"create" aliases:"c" help:"Add partitions to a topic."`
	Delete partitionDeleteCmd `cmd:"" name:"delete" aliases:"d" help:"Delete the partitions with the highest ids."`

	MovePrimary movePrimaryCmd `cmd:"" name:"move-primary" help:"Move a partition's primary to another node, for good."`
}

type partitionCreateCmd struct {
	topicArgs `embed:""`
	Count     uint32 `arg:"" name:"count" help:"How many, 1 to 1000 at once."`
}

type partitionsView struct {
	Created bool   `json:"created"`
	Stream  string `json:"stream"`
	Topic   string `json:"topic"`
	Count   uint32 `json:"partitions_count"`
}

// Run adds partitions.
func (c *partitionCreateCmd) Run(inv *invocation) error {
	if err := checkCount(c.Count, wire.MaxPartitionsPerRequest); err != nil {
		return err
	}
	n := plural(c.Count, "partition")
	inv.out.Executing("create %s for topic with ID: %s and stream with ID: %s", n, c.Topic, c.Stream)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	if err := conn.CreatePartitions(inv.ctx, c.Stream.Identifier, c.Topic.Identifier, c.Count); err != nil {
		return failed(err, "create %s for %s", n, c.topicArgs)
	}
	inv.out.Done(partitionsView{true, c.Stream.String(), c.Topic.String(), c.Count},
		"Created %s for topic with ID: %s and stream with ID: %s", n, c.Topic, c.Stream)
	return nil
}

type partitionDeleteCmd struct {
	topicArgs `embed:""`
	Count     uint32 `arg:"" name:"count" help:"How many, 1 to 1000 at once."`
}

// Run deletes partitions.
func (c *partitionDeleteCmd) Run(inv *invocation) error {
	if err := checkCount(c.Count, wire.MaxPartitionsPerRequest); err != nil {
		return err
	}
	n := plural(c.Count, "partition")
	inv.out.Executing("delete %s for topic with ID: %s and stream with ID: %s", n, c.Topic, c.Stream)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	if err := conn.DeletePartitions(inv.ctx, c.Stream.Identifier, c.Topic.Identifier, c.Count); err != nil {
		return failed(err, "delete %s of %s", n, c.topicArgs)
	}
	inv.out.Done(deleted{Deleted: true, Stream: c.Stream.String(), Topic: c.Topic.String(), Partitions: c.Count},
		"Deleted %s for topic with ID: %s and stream with ID: %s", n, c.Topic, c.Stream)
	return nil
}

// segmentCmd groups the commands about segments.
type segmentCmd struct {
	Delete segmentDeleteCmd `cmd:"" name:"delete" aliases:"d" help:"Delete the oldest sealed segments of a partition."`
}

type segmentDeleteCmd struct {
	topicArgs `embed:""`
	Partition uint32 `arg:"" name:"partition" help:"Id of the partition."`
	Count     uint32 `arg:"" name:"count" help:"How many segments at most, 1 to 100000."`
}

// Run deletes segments.
func (c *segmentDeleteCmd) Run(inv *invocation) error {
	if err := checkCount(c.Count, maxSegments); err != nil {
		return err
	}
	n := plural(c.Count, "segment")
	inv.out.Executing("delete %s for topic with ID: %s, stream with ID: %s and partition with ID: %d", n, c.Topic, c.Stream, c.Partition)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	if err := conn.DeleteSegments(inv.ctx, c.Stream.Identifier, c.Topic.Identifier, c.Partition, c.Count); err != nil {
		return failed(err, "delete %s of partition %d, %s", n, c.Partition, c.topicArgs)
	}
	inv.out.Done(deleted{Deleted: true, Stream: c.Stream.String(), Topic: c.Topic.String(), Partition: &c.Partition, Segments: c.Count},
		"Deleted %s for topic with ID: %s, stream with ID: %s and partition with ID: %d", n, c.Topic, c.Stream, c.Partition)
	return nil
}

func checkCount(n, most uint32) error {
	if n < 1 || n > most {
		return badUsage("COUNT is %d: it must be 1 to %d", n, most)
	}
	return nil
}
