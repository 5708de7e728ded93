package wire

// StrategyKind says where a poll starts (commands §2.6).
type StrategyKind uint8

// Kinds of polling strategies.
const (
	StrategyOffset    StrategyKind = 1
	StrategyTimestamp StrategyKind = 2
	StrategyFirst     StrategyKind = 3
	StrategyLast      StrategyKind = 4
	StrategyNext      StrategyKind = 5
)

// PollingStrategy is where a poll starts.
type PollingStrategy struct {
	Kind  StrategyKind
	Value uint64 // offset, or microseconds; 0 with the other kinds
}

// FromOffset starts at an offset.
func FromOffset(offset uint64) PollingStrategy { return PollingStrategy{StrategyOffset, offset} }

// FromTimestamp starts at the first batch appended at or after the time, in
// microseconds.
func FromTimestamp(us uint64) PollingStrategy { return PollingStrategy{StrategyTimestamp, us} }

// FromFirst starts at the oldest message.
func FromFirst() PollingStrategy { return PollingStrategy{Kind: StrategyFirst} }

// FromLast gives the last messages, as many as are asked for.
func FromLast() PollingStrategy { return PollingStrategy{Kind: StrategyLast} }

// FromNext starts behind the stored offset of the consumer.
func FromNext() PollingStrategy { return PollingStrategy{Kind: StrategyNext} }

// Append encodes the 9 bytes.
func (s PollingStrategy) Append(dst []byte) []byte {
	return le.AppendUint64(append(dst, byte(s.Kind)), s.Value)
}

func (r *reader) strategy() PollingStrategy {
	off := r.off
	kind := StrategyKind(r.u8())
	if r.fail == nil && (kind < StrategyOffset || kind > StrategyNext) {
		r.unknown("polling strategy", off, byte(kind))
	}
	return PollingStrategy{Kind: kind, Value: r.u64()}
}
