package wire

// PartitioningKind says how the partition of a send is chosen (commands §2.5).
type PartitioningKind uint8

// Kinds of partitioning.
const (
	PartitioningBalanced    PartitioningKind = 1
	PartitioningPartitionID PartitioningKind = 2
	PartitioningMessagesKey PartitioningKind = 3
)

// Partitioning chooses the partition of a send. The zero value is not valid.
type Partitioning struct {
	Kind PartitioningKind
	ID   uint32 // with PartitioningPartitionID
	Key  []byte // with PartitioningMessagesKey, 1..255 bytes; a decoded key aliases its input
}

// Balanced lets client or server choose round robin.
func Balanced() Partitioning { return Partitioning{Kind: PartitioningBalanced} }

// PartitionID names the partition.
func PartitionID(id uint32) Partitioning {
	return Partitioning{Kind: PartitioningPartitionID, ID: id}
}

// MessagesKey chooses by the hash of a key of 1..255 bytes; other lengths are
// ErrInvalidCommand (messages §2). The key is kept, not copied.
func MessagesKey(key []byte) (Partitioning, error) {
	if len(key) == 0 || len(key) > maxName {
		return Partitioning{}, ErrInvalidCommand
	}
	return Partitioning{Kind: PartitioningMessagesKey, Key: key}, nil
}

// KeyPartition is the partition that a key maps to among count: XXH32 of the
// key, modulo (messages §4.2). count must not be 0.
func KeyPartition(key []byte, count uint32) uint32 { return XXH32(key) % count }

// Resolve gives the partition among count, and false when count is 0 or the
// kind is not valid. next supplies the round-robin cursor of PartitioningBalanced
// and may be nil for the other kinds; its result is taken modulo count. A named
// partition is given as it is, even when it is not below count.
func (p Partitioning) Resolve(count uint32, next func() uint32) (uint32, bool) {
	switch p.Kind {
	case PartitioningPartitionID:
		return p.ID, true
	case PartitioningMessagesKey:
		if count == 0 || len(p.Key) == 0 {
			return 0, false
		}
		return KeyPartition(p.Key, count), true
	case PartitioningBalanced:
		if count == 0 || next == nil {
			return 0, false
		}
		return next() % count, true
	}
	return 0, false
}

// Append encodes the partitioning.
func (p Partitioning) Append(dst []byte) []byte {
	switch p.Kind {
	case PartitioningPartitionID:
		return le.AppendUint32(append(dst, byte(p.Kind), 4), p.ID)
	case PartitioningMessagesKey:
		if len(p.Key) > maxName {
			return append(dst, byte(p.Kind), 0)
		}
		return append(append(dst, byte(p.Kind), byte(len(p.Key))), p.Key...)
	default:
		return append(dst, byte(p.Kind), 0)
	}
}

func (r *reader) partitioning() Partitioning {
	start := r.off
	kind := PartitioningKind(r.u8())
	if r.fail == nil && (kind < PartitioningBalanced || kind > PartitioningMessagesKey) {
		r.unknown("partitioning kind", start, byte(kind))
	}
	n := int(r.u8())
	if r.fail != nil {
		return Partitioning{}
	}
	p := Partitioning{Kind: kind}
	switch kind {
	case PartitioningBalanced:
		if n != 0 {
			r.fail = invalid("balanced partitioning must have length 0, got "+utoa(uint64(n)), start+1)
		}
	case PartitioningPartitionID:
		if n != 4 {
			r.fail = invalid("partition_id partitioning must have length 4, got "+utoa(uint64(n)), start+1)
		}
		p.ID = r.u32()
	case PartitioningMessagesKey:
		if n == 0 {
			r.fail = invalid("messages_key partitioning cannot have empty key", start+1)
		}
		p.Key = r.take("messages key", n)
	}
	return p
}
