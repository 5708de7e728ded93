package client

import (
	"sync/atomic"

	"github.com/whippetmq/whippet/wire"
)

// Partitioner chooses the partition of a message. Methods may be called
// concurrently.
type Partitioner interface {
	// Partition gives a partition of 0 to count-1.
	Partition(m *Message, count uint32) uint32
}

// batchObserver is implemented by partitioners that move on with every batch.
type batchObserver interface {
	// batchClosed is called when a batch for the partition was closed.
	batchClosed(partition uint32)
}

// BalancedPartitioner takes the partitions in turn, one batch each: everything goes to one
// partition until its batch is closed.
func BalancedPartitioner() Partitioner { return BalancedFrom(0) }

// BalancedFrom is BalancedPartitioner with the first turn given, modulo the number of
// partitions: programs that send little and are started often begin at a random one.
func BalancedFrom(turn uint32) Partitioner {
	b := new(balanced)
	b.current.Store(turn)
	return b
}

type balanced struct{ current atomic.Uint32 }

func (b *balanced) Partition(_ *Message, count uint32) uint32 { return b.current.Load() % count }

func (b *balanced) batchClosed(partition uint32) {
	for {
		// The cursor runs on beyond count; it is taken modulo count when it is read.
		c := b.current.Load()
		if b.current.CompareAndSwap(c, c+1) {
			return
		}
	}
}

// KeyPartitioner maps a message's Key to XXH32(key) modulo the number of
// partitions, like every client of the protocol. Messages without a key are
// balanced. It is the default.
func KeyPartitioner() Partitioner { return new(byKey) }

type byKey struct{ balanced }

func (k *byKey) Partition(m *Message, count uint32) uint32 {
	if len(m.Key) > 0 {
		return wire.KeyPartition(m.Key, count)
	}
	return k.balanced.Partition(m, count)
}

// FixedPartition sends everything to one partition.
func FixedPartition(partition uint32) Partitioner { return fixed(partition) }

type fixed uint32

func (f fixed) Partition(*Message, uint32) uint32 { return uint32(f) }
