package wire

import (
	"slices"
	"strconv"
	"strings"
)

// Keys of the topic catalog (commands §2.8).
const (
	OptCompression              = "compression_algorithm"
	OptMessageExpiry            = "message_expiry"
	OptMaxTopicSize             = "max_topic_size"
	OptSegmentSize              = "segment_size"
	OptDurability               = "durability"
	OptConsumerOffsetDurability = "consumer_offset_durability"
	OptMessagesRequiredToSave   = "messages_required_to_save"
	OptSizeRequiredToSave       = "size_of_messages_required_to_save"
	OptPreallocateSegments      = "preallocate_segments"
)

// Bounds of topic options.
const (
	MinSegmentSize            = 1 << 20
	MaxSegmentSize            = 1 << 30
	SegmentSizeMultiple       = 512
	MaxMessagesRequiredToSave = 16_777_216
	MaxSizeRequiredToSave     = 1 << 30
	MaxPreallocation          = 64 << 30
)

// Durability is when a write counts.
type Durability uint8

// Durabilities.
const (
	// DurabilityReplicated: when a quorum has it in memory.
	DurabilityReplicated Durability = iota
	// DurabilityPersisted: when a quorum has it on disk.
	DurabilityPersisted
)

// String is the value of the option.
func (d Durability) String() string {
	if d == DurabilityPersisted {
		return "persisted"
	}
	return "replicated"
}

// TopicOptions are the resolved settings of a topic.
type TopicOptions struct {
	Compression              CompressionAlgorithm
	MessageExpiry            uint64 // microseconds, Never = never
	MaxTopicSize             uint64 // bytes, Unlimited = unlimited
	SegmentSize              uint64
	Durability               Durability
	ConsumerOffsetDurability Durability
	MessagesRequiredToSave   uint32
	SizeRequiredToSave       uint64
	PreallocateSegments      bool
}

// DefaultTopicOptions are the defaults of the protocol's catalog.
func DefaultTopicOptions() TopicOptions {
	return TopicOptions{
		Compression:            CompressionNone,
		MessageExpiry:          Never,
		MaxTopicSize:           Unlimited,
		SegmentSize:            1 << 30,
		MessagesRequiredToSave: 1024,
		SizeRequiredToSave:     1 << 20,
	}
}

// topicOption is a row of the catalog. parse gives the canonical value, or an
// empty one for "as if absent"; it reports a bad value with false.
type topicOption struct {
	key         string
	kind        Kind
	updatable   bool
	description string
	parse       func(v Value) (Value, bool)
	get         func(t *TopicOptions) Value
	set         func(t *TopicOptions, v Value) // v is canonical
}

// topicCatalog is in the order of the protocol's table and never written.
var topicCatalog = [...]topicOption{
	{
		key: OptCompression, kind: KindString, updatable: true,
		description: "Compression that clients use for payloads: none or gzip",
		parse:       parseCompression,
		get:         func(t *TopicOptions) Value { return StringValue(t.Compression.String()) },
		set: func(t *TopicOptions, v Value) {
			t.Compression = CompressionNone
			if string(v.Data) == "gzip" {
				t.Compression = CompressionGzip
			}
		},
	},
	{
		key: OptMessageExpiry, kind: KindUint64, updatable: true,
		description: "Age at which messages are removed, in microseconds or as text such as \"7 days\"",
		parse:       func(v Value) (Value, bool) { return parseU64(v, ParseExpiry) },
		get:         func(t *TopicOptions) Value { return Uint64Value(t.MessageExpiry) },
		set:         func(t *TopicOptions, v Value) { t.MessageExpiry = le.Uint64(v.Data) },
	},
	{
		key: OptMaxTopicSize, kind: KindUint64, updatable: true,
		description: "Size at which the oldest segments are removed, in bytes or as text such as \"10 GiB\"",
		parse:       func(v Value) (Value, bool) { return parseU64(v, ParseLimit) },
		get:         func(t *TopicOptions) Value { return Uint64Value(t.MaxTopicSize) },
		set:         func(t *TopicOptions, v Value) { t.MaxTopicSize = le.Uint64(v.Data) },
	},
	{
		key: OptSegmentSize, kind: KindUint64,
		description: "Size at which a segment is closed, a multiple of 512 from 1 MiB to 1 GiB",
		parse: func(v Value) (Value, bool) {
			v, ok := parseU64(v, ParseLimit)
			if !ok || v.Kind == 0 {
				return v, ok
			}
			n := le.Uint64(v.Data)
			return v, n >= MinSegmentSize && n <= MaxSegmentSize && n%SegmentSizeMultiple == 0
		},
		get: func(t *TopicOptions) Value { return Uint64Value(t.SegmentSize) },
		set: func(t *TopicOptions, v Value) { t.SegmentSize = le.Uint64(v.Data) },
	},
	{
		key: OptDurability, kind: KindString,
		description: "When a send is acknowledged: replicated to, or persisted by, a majority",
		parse:       parseDurability,
		get:         func(t *TopicOptions) Value { return StringValue(t.Durability.String()) },
		set:         func(t *TopicOptions, v Value) { t.Durability = durabilityOf(v) },
	},
	{
		key: OptConsumerOffsetDurability, kind: KindString,
		description: "When a stored offset is acknowledged: replicated to, or persisted by, a majority",
		parse:       parseDurability,
		get:         func(t *TopicOptions) Value { return StringValue(t.ConsumerOffsetDurability.String()) },
		set:         func(t *TopicOptions, v Value) { t.ConsumerOffsetDurability = durabilityOf(v) },
	},
	{
		key: OptMessagesRequiredToSave, kind: KindUint32,
		description: "Number of messages after which the log is written out",
		parse: func(v Value) (Value, bool) {
			n, err := v.AsUint32()
			if v.Kind == KindString {
				var n64 uint64
				n64, err = strconv.ParseUint(strings.TrimSpace(string(v.Data)), 10, 32)
				n = uint32(n64)
			}
			return Uint32Value(n), err == nil && n >= 1 && n <= MaxMessagesRequiredToSave
		},
		get: func(t *TopicOptions) Value { return Uint32Value(t.MessagesRequiredToSave) },
		set: func(t *TopicOptions, v Value) { t.MessagesRequiredToSave = le.Uint32(v.Data) },
	},
	{
		key: OptSizeRequiredToSave, kind: KindUint64,
		description: "Number of bytes after which the log is written out",
		parse: func(v Value) (Value, bool) {
			v, ok := parseU64(v, ParseLimit)
			if !ok || v.Kind == 0 {
				return v, ok
			}
			return v, le.Uint64(v.Data) <= MaxSizeRequiredToSave
		},
		get: func(t *TopicOptions) Value { return Uint64Value(t.SizeRequiredToSave) },
		set: func(t *TopicOptions, v Value) { t.SizeRequiredToSave = le.Uint64(v.Data) },
	},
	{
		key: OptPreallocateSegments, kind: KindBool,
		description: "Whether the space of a segment is reserved when it is opened",
		parse: func(v Value) (Value, bool) {
			on, err := v.AsBool()
			if v.Kind == KindString {
				on, err = string(v.Data) == "true", nil
				if !on && string(v.Data) != "false" {
					err = ErrInvalidBooleanValue
				}
			}
			return BoolValue(on), err == nil
		},
		get: func(t *TopicOptions) Value { return BoolValue(t.PreallocateSegments) },
		set: func(t *TopicOptions, v Value) { t.PreallocateSegments = v.Data[0] == 1 },
	},
}

func parseCompression(v Value) (Value, bool) {
	if v.Kind == KindUint8 && len(v.Data) == 1 {
		switch CompressionAlgorithm(v.Data[0]) {
		case CompressionNone, CompressionGzip:
			return StringValue(CompressionAlgorithm(v.Data[0]).String()), true
		}
		return Value{}, false
	}
	return parseChoice(v, "none", "gzip")
}

func parseDurability(v Value) (Value, bool) { return parseChoice(v, "replicated", "persisted") }

func durabilityOf(v Value) Durability {
	if string(v.Data) == "persisted" {
		return DurabilityPersisted
	}
	return DurabilityReplicated
}

func parseChoice(v Value, choices ...string) (Value, bool) {
	if v.Kind != KindString {
		return Value{}, false
	}
	s := strings.ToLower(string(v.Data))
	return StringValue(s), slices.Contains(choices, s)
}

// parseU64 reads a number or its text; 0 gives the empty value: as if absent.
func parseU64(v Value, text func(string) (uint64, error)) (Value, bool) {
	n, err := v.AsUint64()
	if v.Kind == KindString {
		n, err = text(string(v.Data))
	}
	if err != nil {
		return Value{}, false
	}
	if n == 0 {
		return Value{}, true
	}
	return Uint64Value(n), true
}

func findTopicOption(key string) *topicOption {
	for i := range topicCatalog {
		if topicCatalog[i].key == key {
			return &topicCatalog[i]
		}
	}
	return nil
}

// TopicCatalog is the answer to DescribeOptions for ScopeTopic under these
// defaults. The catalogs of streams and users are empty.
func TopicCatalog(defaults TopicOptions) OptionCatalog {
	c := OptionCatalog{Entries: make([]OptionSpec, len(topicCatalog))}
	for i := range topicCatalog {
		o := &topicCatalog[i]
		c.Entries[i] = OptionSpec{Key: o.key, Kind: o.kind, Default: o.get(&defaults).Data, Description: o.description}
	}
	return c
}

// ResolvedTopic is what a topic stores and what it means.
type ResolvedTopic struct {
	Explicit Options // set by the user
	Derived  Options // filled in with defaults, sorted by key
	Values   TopicOptions
}

// ResolveTopicOptions checks the options of a new topic and fills in the rest
// from the defaults. It depends on nothing but its arguments. Errors:
// ErrUnsupportedOptionKey, ErrInvalidOptionValue, ErrOptionsBlockTooLarge, and
// ErrInvalidTopicSize for an explicit max_topic_size below the segment size.
func ResolveTopicOptions(sent Options, partitions uint32, defaults TopicOptions) (ResolvedTopic, error) {
	r := ResolvedTopic{Values: defaults}
	if err := checkBlock(sent); err != nil {
		return ResolvedTopic{}, err
	}
	for i := range sent {
		o := findTopicOption(sent[i].Key)
		if o == nil {
			return ResolvedTopic{}, ErrUnsupportedOptionKey
		}
		v, ok := o.parse(sent[i].Value)
		if !ok {
			return ResolvedTopic{}, ErrInvalidOptionValue
		}
		if v.Kind != 0 {
			r.Explicit = r.Explicit.Set(o.key, v)
			o.set(&r.Values, v)
		}
	}
	slices.SortFunc(r.Explicit, compareOptions)
	if _, set := r.Explicit.Get(OptMaxTopicSize); set && r.Values.MaxTopicSize < r.Values.SegmentSize {
		return ResolvedTopic{}, ErrInvalidTopicSize
	}
	if r.Values.PreallocateSegments && r.Values.SegmentSize*uint64(partitions) > MaxPreallocation {
		return ResolvedTopic{}, ErrInvalidOptionValue
	}
	for i := range topicCatalog {
		o := &topicCatalog[i]
		if _, set := r.Explicit.Get(o.key); !set {
			r.Derived = append(r.Derived, Option{o.key, o.get(&r.Values)})
		}
	}
	slices.SortFunc(r.Derived, compareOptions)
	return r, nil
}

// UpdateTopicOptions applies a patch to the options that a topic stores: keys
// that are absent keep their value, a value of 0 or "default" goes back to the
// default. A value is kept in the kind that was sent. Keys that cannot change are
// ErrUnsupportedOptionKey; other errors as in ResolveTopicOptions. The arguments
// are not changed. Keys that this version does not know are kept.
func UpdateTopicOptions(explicit, derived, patch Options, defaults TopicOptions) (ResolvedTopic, error) {
	r := ResolvedTopic{Explicit: explicit.Clone(), Derived: derived.Clone()}
	if err := checkBlock(patch); err != nil {
		return ResolvedTopic{}, err
	}
	for i := range patch {
		o := findTopicOption(patch[i].Key)
		if o == nil || !o.updatable {
			return ResolvedTopic{}, ErrUnsupportedOptionKey
		}
		v, ok := o.parse(patch[i].Value)
		if !ok {
			return ResolvedTopic{}, ErrInvalidOptionValue
		}
		if v.Kind == 0 {
			r.Explicit = r.Explicit.Delete(o.key)
			r.Derived = r.Derived.Set(o.key, o.get(&defaults))
			continue
		}
		r.Explicit = r.Explicit.Set(o.key, patch[i].Value)
		r.Derived = r.Derived.Delete(o.key)
	}
	slices.SortFunc(r.Explicit, compareOptions)
	slices.SortFunc(r.Derived, compareOptions)
	r.Values = TopicOptionsOf(r.Explicit, r.Derived)
	if _, set := patch.Get(OptMaxTopicSize); set {
		if _, set := r.Explicit.Get(OptMaxTopicSize); set && r.Values.MaxTopicSize < r.Values.SegmentSize {
			return ResolvedTopic{}, ErrInvalidTopicSize
		}
	}
	return r, nil
}

// TopicOptionsOf reads the settings that stored options mean. It never fails:
// keys and values that this version does not understand are skipped.
func TopicOptionsOf(explicit, derived Options) TopicOptions {
	t := DefaultTopicOptions()
	for _, list := range [...]Options{derived, explicit} {
		for i := range list {
			if o := findTopicOption(list[i].Key); o != nil {
				if v, ok := o.parse(list[i].Value); ok && v.Kind != 0 {
					o.set(&t, v)
				}
			}
		}
	}
	return t
}

// CheckNoOptions is the check of the empty catalogs of streams and users: any
// option is ErrUnsupportedOptionKey.
func CheckNoOptions(sent Options) error {
	if len(sent) > 0 {
		return ErrUnsupportedOptionKey
	}
	return nil
}

func checkBlock(o Options) error {
	if len(o) > MaxOptions || o.Size() > MaxOptionsSize {
		return ErrOptionsBlockTooLarge
	}
	return nil
}
