package cli

import (
	"errors"
	"strconv"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/wire"
)

// consumerOffsetCmd groups the commands about stored offsets.
type consumerOffsetCmd struct {
	Get    offsetGetCmd    `cmd:"" name:"get" aliases:"g" help:"Show the stored offset of a consumer."`
	Set    offsetSetCmd    `cmd:"" name:"set" aliases:"s" help:"Store an offset for a consumer."`
	Delete offsetDeleteCmd `cmd:"" name:"delete" aliases:"d" help:"Forget the stored offset of a consumer."`
}

// offsetArgs name a consumer and a partition.
type offsetArgs struct {
	Consumer  ident `arg:"" name:"consumer" help:"Id or name of the consumer or group."`
	topicArgs `embed:""`
	Partition uint32 `arg:"" name:"partition" help:"Id of the partition."`
	Kind      string `name:"kind" short:"k" enum:"consumer,c,consumer-group,cg" default:"consumer" help:"consumer (c) or consumer-group (cg)."`
}

func (a offsetArgs) consumer() wire.Consumer {
	if a.group() {
		return wire.GroupConsumer(a.Consumer.Identifier)
	}
	return wire.SingleConsumer(a.Consumer.Identifier)
}

func (a offsetArgs) group() bool { return a.Kind == "consumer-group" || a.Kind == "cg" }

func (a offsetArgs) kind() string {
	if a.group() {
		return "consumer group"
	}
	return "consumer"
}

type offsetGetCmd struct {
	offsetArgs `embed:""`
}

// Run shows the stored offset.
func (c *offsetGetCmd) Run(inv *invocation) error {
	inv.out.Executing("get consumer offset for %s with ID: %s for stream with ID: %s and topic with ID: %s and partition with ID: %d",
		c.kind(), c.Consumer, c.Stream, c.Topic, c.Partition)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	o, err := conn.ConsumerOffset(inv.ctx, c.consumer(), c.Stream.Identifier, c.Topic.Identifier, c.Partition)
	if errors.Is(err, client.ErrNotFound) {
		inv.out.NotFound("Consumer offset for %s with ID: %s for stream with ID: %s and topic with ID: %s and partition with ID: %d was not found",
			c.kind(), c.Consumer, c.Stream, c.Topic, c.Partition)
		return nil
	}
	if err != nil {
		return failed(err, "get the offset of %s %s on partition %d, %s", c.kind(), c.Consumer, c.Partition, c.topicArgs)
	}
	inv.out.Details("Property", "Value", [][]string{
		{"Consumer ID", c.Consumer.String()},
		{"Stream ID", c.Stream.String()},
		{"Topic ID", c.Topic.String()},
		{"Partition ID", strconv.FormatUint(uint64(c.Partition), 10)},
		{"Current offset", strconv.FormatUint(o.CurrentOffset, 10)},
		{"Stored offset", strconv.FormatUint(o.StoredOffset, 10)},
	}, offsetView{Partition: o.PartitionID, CurrentOffset: o.CurrentOffset, StoredOffset: o.StoredOffset})
	return nil
}

type storedOffsetView struct {
	Stored    bool   `json:"stored"`
	Consumer  string `json:"consumer"`
	Kind      string `json:"kind"`
	Stream    string `json:"stream"`
	Topic     string `json:"topic"`
	Partition uint32 `json:"partition_id"`
	Offset    uint64 `json:"offset"`
}

type offsetSetCmd struct {
	offsetArgs `embed:""`
	Offset     uint64 `arg:"" name:"offset" help:"Offset of the last message that was processed."`
}

// Run stores an offset.
func (c *offsetSetCmd) Run(inv *invocation) error {
	inv.out.Executing("set consumer offset for %s with ID: %s for stream with ID: %s and topic with ID: %s and partition with ID: %d to %d",
		c.kind(), c.Consumer, c.Stream, c.Topic, c.Partition, c.Offset)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	if err := conn.StoreConsumerOffset(inv.ctx, c.consumer(), c.Stream.Identifier, c.Topic.Identifier, c.Partition, c.Offset); err != nil {
		return failed(err, "set the offset of %s %s on partition %d, %s", c.kind(), c.Consumer, c.Partition, c.topicArgs)
	}
	inv.out.Done(storedOffsetView{true, c.Consumer.String(), c.kind(), c.Stream.String(), c.Topic.String(), c.Partition, c.Offset},
		"Consumer offset for %s with ID: %s for stream with ID: %s and topic with ID: %s and partition with ID: %d set to %d",
		c.kind(), c.Consumer, c.Stream, c.Topic, c.Partition, c.Offset)
	return nil
}

type offsetDeleteCmd struct {
	offsetArgs `embed:""`
}

// Run forgets the offset.
func (c *offsetDeleteCmd) Run(inv *invocation) error {
	inv.out.Executing("delete consumer offset for %s with ID: %s for stream with ID: %s and topic with ID: %s and partition with ID: %d",
		c.kind(), c.Consumer, c.Stream, c.Topic, c.Partition)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	if err := conn.DeleteConsumerOffset(inv.ctx, c.consumer(), c.Stream.Identifier, c.Topic.Identifier, c.Partition); err != nil {
		return failed(err, "delete the offset of %s %s on partition %d, %s", c.kind(), c.Consumer, c.Partition, c.topicArgs)
	}
	inv.out.Done(deleted{Deleted: true, Stream: c.Stream.String(), Topic: c.Topic.String(), Name: c.Consumer.String(), Partition: &c.Partition},
		"Consumer offset for %s with ID: %s for stream with ID: %s and topic with ID: %s and partition with ID: %d deleted",
		c.kind(), c.Consumer, c.Stream, c.Topic, c.Partition)
	return nil
}
