package harness

import (
	"encoding/binary"
	"fmt"

	"github.com/zeebo/xxh3"

	"github.com/whippetmq/whippet/wire"
)

// A payload of the checker says who sent it and as which message, and carries a checksum, so that a message that was
// altered, or that nobody sent, is told from its bytes alone:
//
//	magic u32, producer u32, partition u32, filler length u32, sequence u64, filler, XXH3 u64
//
// The message id is (producer << 32 | partition, sequence), so that ids are checked too.
const (
	payloadMagic = 0x57504854
	payloadMin   = 32
)

// Key names a message: the sequence counts the messages of a producer to a partition, from 0, in the order of the calls.
type Key struct {
	Producer, Partition uint32
	Sequence            uint64
}

// String names the message.
func (k Key) String() string {
	return fmt.Sprintf("message %d of producer %d to partition %d", k.Sequence, k.Producer, k.Partition)
}

// id is the message id.
func (k Key) id() wire.U128 {
	return wire.U128{Hi: uint64(k.Producer)<<32 | uint64(k.Partition), Lo: k.Sequence + 1}
}

// message makes the message with a payload of about size bytes.
func (k Key) message(size int) wire.Message {
	filler := max(0, size-payloadMin)
	b := make([]byte, 0, payloadMin+filler+8)
	b = binary.LittleEndian.AppendUint32(b, payloadMagic)
	b = binary.LittleEndian.AppendUint32(b, k.Producer)
	b = binary.LittleEndian.AppendUint32(b, k.Partition)
	b = binary.LittleEndian.AppendUint32(b, uint32(filler))
	b = binary.LittleEndian.AppendUint64(b, k.Sequence)
	end := len(b) + filler
	for x := k.Sequence*0x9e3779b97f4a7c15 + uint64(k.Producer) + 1; len(b) < end; {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	b = b[:end]
	b = binary.LittleEndian.AppendUint64(b, xxh3.Hash(b))
	return wire.Message{ID: k.id(), Payload: b}
}

// readPayload tells which message a payload is.
func readPayload(id wire.U128, b []byte) (Key, error) {
	if len(b) < payloadMin || binary.LittleEndian.Uint32(b) != payloadMagic {
		return Key{}, fmt.Errorf("%d bytes that no producer of the checker sends", len(b))
	}
	k := Key{Producer: binary.LittleEndian.Uint32(b[4:]), Partition: binary.LittleEndian.Uint32(b[8:]), Sequence: binary.LittleEndian.Uint64(b[16:])}
	if int(binary.LittleEndian.Uint32(b[12:])) != len(b)-payloadMin {
		return k, fmt.Errorf("%s has another length: %d bytes", k, len(b))
	}
	if xxh3.Hash(b[:len(b)-8]) != binary.LittleEndian.Uint64(b[len(b)-8:]) {
		return k, fmt.Errorf("%s was altered: its checksum does not fit", k)
	}
	if id != k.id() {
		return k, fmt.Errorf("%s has another message id: %s", k, id)
	}
	return k, nil
}
