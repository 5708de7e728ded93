package wire

// GetConsumerOffset asks for a stored offset (120, commands §3.12). Answer:
// OffsetReply, or an empty payload when nothing is stored.
type GetConsumerOffset struct {
	Consumer      Consumer
	Stream, Topic Identifier
	Partition     OptionalPartition
}

// Code is CodeGetConsumerOffset.
func (*GetConsumerOffset) Code() Code { return CodeGetConsumerOffset }

// Append encodes the body.
func (g *GetConsumerOffset) Append(dst []byte) []byte {
	return g.Partition.Append(g.Topic.Append(g.Stream.Append(g.Consumer.Append(dst))))
}

// Decode reads the body.
func (g *GetConsumerOffset) Decode(src []byte) error {
	r := reader{b: src}
	g.decode(&r)
	return r.err()
}

func (g *GetConsumerOffset) decode(r *reader) {
	*g = GetConsumerOffset{
		Consumer: r.consumer(), Stream: r.ident("stream id"), Topic: r.ident("topic id"), Partition: r.optionalPartition(),
	}
}

// AppendRoutingKey appends the bytes that a route is cached by: everything up to
// and including the partition (framing §6.4).
func (g *GetConsumerOffset) AppendRoutingKey(dst []byte) []byte { return g.Append(dst) }

// GetConsumerOffsetRouting asks for the primary that serves the offset (123).
// Answer: Route.
type GetConsumerOffsetRouting struct {
	GetConsumerOffset
}

// Code is CodeGetConsumerOffsetRouting.
func (*GetConsumerOffsetRouting) Code() Code { return CodeGetConsumerOffsetRouting }

// Ack is when an offset write is answered.
type Ack uint8

// Acknowledgements. AckNone is a local fast path of partitions with one replica.
const (
	AckNone   Ack = 0
	AckQuorum Ack = 1
)

func (r *reader) ack() Ack {
	at := r.off
	a := Ack(r.u8())
	if r.fail == nil && a > AckQuorum {
		r.unknown("ack level", at, byte(a))
	}
	return a
}

// StoreConsumerOffset stores an offset (121). Answer: Empty, framed.
type StoreConsumerOffset struct {
	Consumer      Consumer
	Stream, Topic Identifier
	Partition     OptionalPartition
	Offset        uint64
	Ack           Ack
}

// Code is CodeStoreConsumerOffset.
func (*StoreConsumerOffset) Code() Code { return CodeStoreConsumerOffset }

// Target is the part of the body that names consumer and partition.
func (s *StoreConsumerOffset) Target() GetConsumerOffset {
	return GetConsumerOffset{s.Consumer, s.Stream, s.Topic, s.Partition}
}

// Append encodes the body.
func (s *StoreConsumerOffset) Append(dst []byte) []byte {
	t := s.Target()
	return append(le.AppendUint64(t.Append(dst), s.Offset), byte(s.Ack))
}

// Decode reads the body.
func (s *StoreConsumerOffset) Decode(src []byte) error {
	r := reader{b: src}
	var t GetConsumerOffset
	t.decode(&r)
	*s = StoreConsumerOffset{t.Consumer, t.Stream, t.Topic, t.Partition, r.u64(), r.ack()}
	return r.err()
}

// DeleteConsumerOffset removes a stored offset (122). Answer: Empty, framed.
type DeleteConsumerOffset struct {
	Consumer      Consumer
	Stream, Topic Identifier
	Partition     OptionalPartition
	Ack           Ack
}

// Code is CodeDeleteConsumerOffset.
func (*DeleteConsumerOffset) Code() Code { return CodeDeleteConsumerOffset }

// Target is the part of the body that names consumer and partition.
func (d *DeleteConsumerOffset) Target() GetConsumerOffset {
	return GetConsumerOffset{d.Consumer, d.Stream, d.Topic, d.Partition}
}

// Append encodes the body.
func (d *DeleteConsumerOffset) Append(dst []byte) []byte {
	t := d.Target()
	return append(t.Append(dst), byte(d.Ack))
}

// Decode reads the body.
func (d *DeleteConsumerOffset) Decode(src []byte) error {
	r := reader{b: src}
	var t GetConsumerOffset
	t.decode(&r)
	*d = DeleteConsumerOffset{t.Consumer, t.Stream, t.Topic, t.Partition, r.ack()}
	return r.err()
}

// OffsetReply answers GetConsumerOffset.
type OffsetReply struct {
	PartitionID   uint32
	CurrentOffset uint64 // of the partition's last committed message
	StoredOffset  uint64
}

// Append encodes the payload.
func (o *OffsetReply) Append(dst []byte) []byte {
	dst = le.AppendUint32(dst, o.PartitionID)
	dst = le.AppendUint64(dst, o.CurrentOffset)
	return le.AppendUint64(dst, o.StoredOffset)
}

// Decode reads the payload.
func (o *OffsetReply) Decode(src []byte) error {
	r := reader{b: src}
	*o = OffsetReply{PartitionID: r.u32(), CurrentOffset: r.u64(), StoredOffset: r.u64()}
	return r.err()
}
