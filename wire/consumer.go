package wire

// ConsumerKind tells a single consumer from a group (commands §2.3).
type ConsumerKind uint8

// Kinds of consumers.
const (
	ConsumerSingle ConsumerKind = 1
	ConsumerGroup  ConsumerKind = 2
)

// Consumer is who polls or stores offsets.
type Consumer struct {
	Kind ConsumerKind
	ID   Identifier
}

// SingleConsumer makes a consumer that stands for itself.
func SingleConsumer(id Identifier) Consumer { return Consumer{Kind: ConsumerSingle, ID: id} }

// GroupConsumer makes the consumer of a group's member.
func GroupConsumer(group Identifier) Consumer { return Consumer{Kind: ConsumerGroup, ID: group} }

// OffsetKey is the number under which the offset of a single consumer is kept:
// a number as it is, a name as its XXH32. A group's key is the group's numeric
// id, which only the server knows when the group is named; ok is then false.
func (c Consumer) OffsetKey() (key uint32, ok bool) {
	if n, numeric := c.ID.Number(); numeric {
		return n, true
	}
	if c.Kind == ConsumerGroup {
		return 0, false
	}
	return xxh32String(c.ID.name), true
}

// Append encodes the consumer.
func (c Consumer) Append(dst []byte) []byte { return c.ID.Append(append(dst, byte(c.Kind))) }

func (r *reader) consumer() Consumer {
	off := r.off
	kind := ConsumerKind(r.u8())
	if r.fail == nil && kind != ConsumerSingle && kind != ConsumerGroup {
		r.unknown("consumer kind", off, byte(kind))
	}
	return Consumer{Kind: kind, ID: r.ident("consumer id")}
}

// OptionalPartition is a partition that may be left open (commands §2.4).
type OptionalPartition struct {
	ID    uint32
	Given bool
}

// SomePartition names a partition.
func SomePartition(id uint32) OptionalPartition { return OptionalPartition{ID: id, Given: true} }

// NoPartition leaves the partition open.
func NoPartition() OptionalPartition { return OptionalPartition{} }

// Append encodes the 5 bytes.
func (p OptionalPartition) Append(dst []byte) []byte {
	if !p.Given {
		return append(dst, 0, 0, 0, 0, 0)
	}
	return le.AppendUint32(append(dst, 1), p.ID)
}

func (r *reader) optionalPartition() OptionalPartition {
	given := r.u8() == 1
	id := r.u32()
	if !given {
		id = 0
	}
	return OptionalPartition{ID: id, Given: given}
}
