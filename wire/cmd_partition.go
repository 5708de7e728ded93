package wire

// Limits of streams, topics and partitions (messages §2).
const (
	MaxPartitionsPerRequest = 1000
	MaxStreams              = 1 << 20
	MaxTopicsPerStream      = 1 << 12
	MaxPartitionsPerTopic   = 1_000_000
)

// MetadataGroup is the packed name of the metadata group.
const MetadataGroup uint64 = 1 << 63

// PackPartition gives the packed name of a partition: stream << 32 | topic << 20
// | partition (messages §2).
func PackPartition(stream, topic, partition uint32) uint64 {
	return uint64(stream)<<32 | uint64(topic)<<20 | uint64(partition)
}

// UnpackPartition takes a packed name apart.
func UnpackPartition(g uint64) (stream, topic, partition uint32) {
	return uint32(g >> 32), uint32(g >> 20 & 0xfff), uint32(g & 0xfffff)
}

// CreatePartitions adds partitions to a topic (402, commands §3.15). Answer: Empty.
type CreatePartitions struct {
	Stream, Topic   Identifier
	PartitionsCount uint32 // 1..1000
}

// Code is CodeCreatePartitions.
func (*CreatePartitions) Code() Code { return CodeCreatePartitions }

// Append encodes the body.
func (c *CreatePartitions) Append(dst []byte) []byte {
	return le.AppendUint32(c.Topic.Append(c.Stream.Append(dst)), c.PartitionsCount)
}

// Decode reads the body.
func (c *CreatePartitions) Decode(src []byte) error {
	r := reader{b: src}
	*c = CreatePartitions{Stream: r.ident("stream id"), Topic: r.ident("topic id"), PartitionsCount: r.u32()}
	return r.err()
}

// DeletePartitions removes the partitions with the highest ids (403). Answer: Empty.
type DeletePartitions struct {
	Stream, Topic   Identifier
	PartitionsCount uint32 // 1..1000
}

// Code is CodeDeletePartitions.
func (*DeletePartitions) Code() Code { return CodeDeletePartitions }

// Append encodes the body.
func (c *DeletePartitions) Append(dst []byte) []byte {
	return le.AppendUint32(c.Topic.Append(c.Stream.Append(dst)), c.PartitionsCount)
}

// Decode reads the body.
func (c *DeletePartitions) Decode(src []byte) error {
	r := reader{b: src}
	*c = DeletePartitions{Stream: r.ident("stream id"), Topic: r.ident("topic id"), PartitionsCount: r.u32()}
	return r.err()
}

// DeleteSegments removes the oldest sealed segments of a partition (503).
// Answer: Empty; the reply of our server carries OpTruncatePartition.
type DeleteSegments struct {
	Stream, Topic Identifier
	PartitionID   uint32
	SegmentsCount uint32
}

// Code is CodeDeleteSegments.
func (*DeleteSegments) Code() Code { return CodeDeleteSegments }

// Append encodes the body.
func (c *DeleteSegments) Append(dst []byte) []byte {
	dst = le.AppendUint32(c.Topic.Append(c.Stream.Append(dst)), c.PartitionID)
	return le.AppendUint32(dst, c.SegmentsCount)
}

// Decode reads the body.
func (c *DeleteSegments) Decode(src []byte) error {
	r := reader{b: src}
	*c = DeleteSegments{Stream: r.ident("stream id"), Topic: r.ident("topic id"), PartitionID: r.u32(), SegmentsCount: r.u32()}
	return r.err()
}
