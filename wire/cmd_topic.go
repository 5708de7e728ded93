package wire

// GetTopic asks for a topic (300). Answer: TopicDetails, or an empty payload.
type GetTopic struct {
	Stream, Topic Identifier
}

// Code is CodeGetTopic.
func (*GetTopic) Code() Code { return CodeGetTopic }

// Append encodes the body.
func (c *GetTopic) Append(dst []byte) []byte { return c.Topic.Append(c.Stream.Append(dst)) }

// Decode reads the body.
func (c *GetTopic) Decode(src []byte) error {
	r := reader{b: src}
	*c = GetTopic{Stream: r.ident("stream id"), Topic: r.ident("topic id")}
	return r.err()
}

// GetTopics asks for the topics of a stream (301). Answer: Topics.
type GetTopics struct {
	Stream Identifier
}

// Code is CodeGetTopics.
func (*GetTopics) Code() Code { return CodeGetTopics }

// Append encodes the body.
func (c *GetTopics) Append(dst []byte) []byte { return c.Stream.Append(dst) }

// Decode reads the body.
func (c *GetTopics) Decode(src []byte) error {
	r := reader{b: src}
	*c = GetTopics{Stream: r.ident("stream id")}
	return r.err()
}

// DeleteTopic removes a topic (303). Answer: Empty.
type DeleteTopic struct {
	Stream, Topic Identifier
}

// Code is CodeDeleteTopic.
func (*DeleteTopic) Code() Code { return CodeDeleteTopic }

// Append encodes the body.
func (c *DeleteTopic) Append(dst []byte) []byte { return c.Topic.Append(c.Stream.Append(dst)) }

// Decode reads the body.
func (c *DeleteTopic) Decode(src []byte) error {
	r := reader{b: src}
	*c = DeleteTopic{Stream: r.ident("stream id"), Topic: r.ident("topic id")}
	return r.err()
}

// PurgeTopic removes the messages and stored offsets of a topic (305). Answer: Empty.
type PurgeTopic struct {
	Stream, Topic Identifier
}

// Code is CodePurgeTopic.
func (*PurgeTopic) Code() Code { return CodePurgeTopic }

// Append encodes the body.
func (c *PurgeTopic) Append(dst []byte) []byte { return c.Topic.Append(c.Stream.Append(dst)) }

// Decode reads the body.
func (c *PurgeTopic) Decode(src []byte) error {
	r := reader{b: src}
	*c = PurgeTopic{Stream: r.ident("stream id"), Topic: r.ident("topic id")}
	return r.err()
}

// CreateTopic adds a topic (302, commands §3.14). Answer: TopicDetails.
type CreateTopic struct {
	Stream          Identifier
	PartitionsCount uint32
	Name            string
	Options         Options
}

// Code is CodeCreateTopic.
func (*CreateTopic) Code() Code { return CodeCreateTopic }

// Append encodes the body.
func (c *CreateTopic) Append(dst []byte) []byte {
	dst = le.AppendUint32(c.Stream.Append(dst), c.PartitionsCount)
	return c.Options.Append(appendName(dst, c.Name))
}

// Decode reads the body.
func (c *CreateTopic) Decode(src []byte) error {
	r := reader{b: src}
	*c = CreateTopic{Stream: r.ident("stream id"), PartitionsCount: r.u32(), Name: r.name("topic name"), Options: r.optionsRest()}
	return r.err()
}

// UpdateTopic renames a topic and changes the options that are given (304).
// Answer: Empty.
type UpdateTopic struct {
	Stream, Topic Identifier
	Name          string
	Options       Options
}

// Code is CodeUpdateTopic.
func (*UpdateTopic) Code() Code { return CodeUpdateTopic }

// Append encodes the body.
func (c *UpdateTopic) Append(dst []byte) []byte {
	return c.Options.Append(appendName(c.Topic.Append(c.Stream.Append(dst)), c.Name))
}

// Decode reads the body.
func (c *UpdateTopic) Decode(src []byte) error {
	r := reader{b: src}
	*c = UpdateTopic{Stream: r.ident("stream id"), Topic: r.ident("topic id"), Name: r.name("topic name"), Options: r.optionsRest()}
	return r.err()
}

// CompressionAlgorithm is a topic's hint to clients; the server never compresses.
type CompressionAlgorithm uint8

// Compression algorithms. Released clients refuse any other value.
const (
	CompressionNone CompressionAlgorithm = 1
	CompressionGzip CompressionAlgorithm = 2
)

// String is the value of the option.
func (c CompressionAlgorithm) String() string {
	switch c {
	case CompressionNone:
		return "none"
	case CompressionGzip:
		return "gzip"
	}
	return "compression(" + utoa(uint64(c)) + ")"
}

// Topic is a topic header.
type Topic struct {
	ID              uint32
	CreatedAt       uint64 // microseconds
	PartitionsCount uint32
	MessageExpiry   uint64 // microseconds; Never = never, and so reads 0
	Compression     CompressionAlgorithm
	MaxTopicSize    uint64 // bytes; Unlimited = unlimited
	SizeBytes       uint64
	MessagesCount   uint64
	Name            string
	Options         Options // set by the user
	Derived         Options // filled in by the server
}

// topicMinSize is the size of a topic with a name of one byte and no options.
const topicMinSize = 59

// Append encodes the header.
func (t *Topic) Append(dst []byte) []byte {
	dst = le.AppendUint32(dst, t.ID)
	dst = le.AppendUint64(dst, t.CreatedAt)
	dst = le.AppendUint32(dst, t.PartitionsCount)
	dst = le.AppendUint64(dst, t.MessageExpiry)
	dst = append(dst, byte(t.Compression))
	dst = le.AppendUint64(dst, t.MaxTopicSize)
	dst = le.AppendUint64(dst, t.SizeBytes)
	dst = le.AppendUint64(dst, t.MessagesCount)
	return t.Derived.append32(t.Options.append32(appendName(dst, t.Name)))
}

func (t *Topic) decode(r *reader) {
	at := r.off
	*t = Topic{
		ID: r.u32(), CreatedAt: r.u64(), PartitionsCount: r.u32(), MessageExpiry: r.u64(),
		Compression: CompressionAlgorithm(r.u8()), MaxTopicSize: r.u64(), SizeBytes: r.u64(), MessagesCount: r.u64(),
		Name: r.name("topic name"), Options: r.options32(), Derived: r.options32(),
	}
	if r.fail == nil && t.Compression != CompressionNone && t.Compression != CompressionGzip {
		r.unknown("compression algorithm", at+24, byte(t.Compression))
	}
}

// topics reads n topic headers.
func (r *reader) topics(n uint32) []Topic {
	if r.fail != nil || n == 0 {
		return nil
	}
	out := make([]Topic, 0, min(int64(n), int64(r.left()/topicMinSize)))
	for range n {
		var t Topic
		t.decode(r)
		if r.fail != nil {
			return nil
		}
		out = append(out, t)
	}
	return out
}

// Partition is a partition entry.
type Partition struct {
	ID            uint32
	CreatedAt     uint64 // microseconds
	SegmentsCount uint32
	CurrentOffset uint64 // of the last committed message
	SizeBytes     uint64
	MessagesCount uint64
}

// partitionSize is the size of a partition entry.
const partitionSize = 40

// TopicDetails answers GetTopic and CreateTopic. Encoding writes the number of
// Partitions as PartitionsCount.
type TopicDetails struct {
	Topic
	Partitions []Partition
}

// Append encodes the payload.
func (t *TopicDetails) Append(dst []byte) []byte {
	e := t.Topic
	e.PartitionsCount = uint32(len(t.Partitions))
	dst = e.Append(dst)
	for i := range t.Partitions {
		p := &t.Partitions[i]
		dst = le.AppendUint32(dst, p.ID)
		dst = le.AppendUint64(dst, p.CreatedAt)
		dst = le.AppendUint32(dst, p.SegmentsCount)
		dst = le.AppendUint64(dst, p.CurrentOffset)
		dst = le.AppendUint64(dst, p.SizeBytes)
		dst = le.AppendUint64(dst, p.MessagesCount)
	}
	return dst
}

// Decode reads the payload.
func (t *TopicDetails) Decode(src []byte) error {
	r := reader{b: src}
	*t = TopicDetails{}
	t.decode(&r)
	n := t.PartitionsCount
	if r.fail == nil && uint64(n)*partitionSize > uint64(r.left()) {
		return eof("partitions", r.off, int(uint64(n)*partitionSize), r.left())
	}
	if r.fail == nil && n > 0 {
		t.Partitions = make([]Partition, n)
		for i := range t.Partitions {
			t.Partitions[i] = Partition{
				ID: r.u32(), CreatedAt: r.u64(), SegmentsCount: r.u32(),
				CurrentOffset: r.u64(), SizeBytes: r.u64(), MessagesCount: r.u64(),
			}
		}
	}
	return r.err()
}

// Topics answers GetTopics; the only list with a count in front.
type Topics struct {
	Topics []Topic
}

// Append encodes the payload.
func (t *Topics) Append(dst []byte) []byte {
	dst = le.AppendUint32(dst, uint32(len(t.Topics)))
	for i := range t.Topics {
		dst = t.Topics[i].Append(dst)
	}
	return dst
}

// Decode reads the payload. An empty payload is an empty list.
func (t *Topics) Decode(src []byte) error {
	t.Topics = nil
	if len(src) == 0 {
		return nil
	}
	r := reader{b: src}
	t.Topics = r.topics(r.u32())
	return r.err()
}
