package wire

import "math"

// Empty is the payload of commands that answer nothing but success.
type Empty struct{}

// Append appends nothing.
func (*Empty) Append(dst []byte) []byte { return dst }

// Decode accepts everything.
func (*Empty) Decode([]byte) error { return nil }

// DecodeOptional decodes a payload that may be empty for "not found" or "none"
// (commands §4): a stream, topic, group, user, client, offset or assignment.
func DecodeOptional(payload []byte, into Reply) (found bool, err error) {
	if len(payload) == 0 {
		return false, nil
	}
	return true, into.Decode(payload)
}

// Ping keeps a connection alive (1). Answer: Empty.
type Ping struct{}

// Code is CodePing.
func (*Ping) Code() Code { return CodePing }

// Append encodes the body.
func (*Ping) Append(dst []byte) []byte { return dst }

// Decode reads the body.
func (*Ping) Decode([]byte) error { return nil }

// GetStats asks for statistics of the server (10). Answer: Stats.
type GetStats struct{}

// Code is CodeGetStats.
func (*GetStats) Code() Code { return CodeGetStats }

// Append encodes the body.
func (*GetStats) Append(dst []byte) []byte { return dst }

// Decode reads the body.
func (*GetStats) Decode([]byte) error { return nil }

// CacheMetric is the cache use of one partition.
type CacheMetric struct {
	StreamID, TopicID, PartitionID uint32
	Hits, Misses                   uint64
	HitRatio                       float32
}

// Stats answers GetStats (commands §3.1). Times are in microseconds.
type Stats struct {
	ProcessID           uint32
	CPUUsage            float32
	TotalCPUUsage       float32
	MemoryUsage         uint64
	TotalMemory         uint64
	AvailableMemory     uint64
	RunTime             uint64
	StartTime           uint64
	ReadBytes           uint64
	WrittenBytes        uint64
	MessagesSizeBytes   uint64
	StreamsCount        uint32
	TopicsCount         uint32
	PartitionsCount     uint32
	SegmentsCount       uint32
	MessagesCount       uint64
	ClientsCount        uint32
	ConsumerGroupsCount uint32
	Hostname            string
	OSName              string
	OSVersion           string
	KernelVersion       string
	ServerVersion       string
	ServerSemver        uint32 // Version.Semver, 0 = none
	CacheMetrics        []CacheMetric
	ThreadsCount        uint32
	FreeDiskSpace       uint64
	TotalDiskSpace      uint64
}

// Append encodes the payload.
func (s *Stats) Append(dst []byte) []byte {
	dst = le.AppendUint32(dst, s.ProcessID)
	dst = le.AppendUint32(dst, math.Float32bits(s.CPUUsage))
	dst = le.AppendUint32(dst, math.Float32bits(s.TotalCPUUsage))
	dst = le.AppendUint64(dst, s.MemoryUsage)
	dst = le.AppendUint64(dst, s.TotalMemory)
	dst = le.AppendUint64(dst, s.AvailableMemory)
	dst = le.AppendUint64(dst, s.RunTime)
	dst = le.AppendUint64(dst, s.StartTime)
	dst = le.AppendUint64(dst, s.ReadBytes)
	dst = le.AppendUint64(dst, s.WrittenBytes)
	dst = le.AppendUint64(dst, s.MessagesSizeBytes)
	dst = le.AppendUint32(dst, s.StreamsCount)
	dst = le.AppendUint32(dst, s.TopicsCount)
	dst = le.AppendUint32(dst, s.PartitionsCount)
	dst = le.AppendUint32(dst, s.SegmentsCount)
	dst = le.AppendUint64(dst, s.MessagesCount)
	dst = le.AppendUint32(dst, s.ClientsCount)
	dst = le.AppendUint32(dst, s.ConsumerGroupsCount)
	dst = appendStr32(dst, s.Hostname)
	dst = appendStr32(dst, s.OSName)
	dst = appendStr32(dst, s.OSVersion)
	dst = appendStr32(dst, s.KernelVersion)
	dst = appendStr32(dst, s.ServerVersion)
	dst = le.AppendUint32(dst, s.ServerSemver)
	dst = le.AppendUint32(dst, uint32(len(s.CacheMetrics)))
	for i := range s.CacheMetrics {
		m := &s.CacheMetrics[i]
		dst = le.AppendUint32(dst, m.StreamID)
		dst = le.AppendUint32(dst, m.TopicID)
		dst = le.AppendUint32(dst, m.PartitionID)
		dst = le.AppendUint64(dst, m.Hits)
		dst = le.AppendUint64(dst, m.Misses)
		dst = le.AppendUint32(dst, math.Float32bits(m.HitRatio))
	}
	dst = le.AppendUint32(dst, s.ThreadsCount)
	dst = le.AppendUint64(dst, s.FreeDiskSpace)
	return le.AppendUint64(dst, s.TotalDiskSpace)
}

// Decode reads the payload.
func (s *Stats) Decode(src []byte) error {
	r := reader{b: src}
	*s = Stats{
		ProcessID: r.u32(), CPUUsage: r.f32(), TotalCPUUsage: r.f32(),
		MemoryUsage: r.u64(), TotalMemory: r.u64(), AvailableMemory: r.u64(),
		RunTime: r.u64(), StartTime: r.u64(), ReadBytes: r.u64(), WrittenBytes: r.u64(), MessagesSizeBytes: r.u64(),
		StreamsCount: r.u32(), TopicsCount: r.u32(), PartitionsCount: r.u32(), SegmentsCount: r.u32(),
		MessagesCount: r.u64(), ClientsCount: r.u32(), ConsumerGroupsCount: r.u32(),
		Hostname: r.str32("hostname"), OSName: r.str32("os name"), OSVersion: r.str32("os version"),
		KernelVersion: r.str32("kernel version"), ServerVersion: r.str32("server version"), ServerSemver: r.u32(),
	}
	if n := r.count("cache metrics", 32); n > 0 {
		s.CacheMetrics = make([]CacheMetric, n)
		for i := range s.CacheMetrics {
			s.CacheMetrics[i] = CacheMetric{
				StreamID: r.u32(), TopicID: r.u32(), PartitionID: r.u32(),
				Hits: r.u64(), Misses: r.u64(), HitRatio: r.f32(),
			}
		}
	}
	s.ThreadsCount, s.FreeDiskSpace, s.TotalDiskSpace = r.u32(), r.u64(), r.u64()
	return r.err()
}

// SnapshotCompression is how the files of a snapshot are packed.
type SnapshotCompression uint8

// Snapshot compressions.
const (
	SnapshotStored   SnapshotCompression = 1
	SnapshotDeflated SnapshotCompression = 2
	SnapshotBzip2    SnapshotCompression = 3
	SnapshotZstd     SnapshotCompression = 4
	SnapshotLzma     SnapshotCompression = 5
	SnapshotXz       SnapshotCompression = 6
)

// SnapshotType is a part of a snapshot.
type SnapshotType uint8

// Snapshot types.
const (
	SnapshotFilesystemOverview SnapshotType = 1
	SnapshotProcessList        SnapshotType = 2
	SnapshotResourceUsage      SnapshotType = 3
	SnapshotTest               SnapshotType = 4
	SnapshotServerLogs         SnapshotType = 5
	SnapshotServerConfig       SnapshotType = 6
	SnapshotAll                SnapshotType = 100
)

// GetSnapshot asks for a support archive (11, commands §3.2). Answer: Snapshot.
type GetSnapshot struct {
	Compression SnapshotCompression
	Types       []SnapshotType // at most 255
}

// Code is CodeGetSnapshot.
func (*GetSnapshot) Code() Code { return CodeGetSnapshot }

// Append encodes the body.
func (g *GetSnapshot) Append(dst []byte) []byte {
	types := g.Types[:min(len(g.Types), 255)]
	dst = append(dst, byte(g.Compression), byte(len(types)))
	for _, t := range types {
		dst = append(dst, byte(t))
	}
	return dst
}

// Decode reads the body.
func (g *GetSnapshot) Decode(src []byte) error {
	r := reader{b: src}
	*g = GetSnapshot{Compression: SnapshotCompression(r.u8())}
	if r.fail == nil && (g.Compression < SnapshotStored || g.Compression > SnapshotXz) {
		r.unknown("snapshot compression", 0, byte(g.Compression))
	}
	b := r.take("snapshot types", int(r.u8()))
	if len(b) > 0 {
		g.Types = make([]SnapshotType, len(b))
	}
	for i, v := range b {
		if v < byte(SnapshotFilesystemOverview) || v > byte(SnapshotServerConfig) && v != byte(SnapshotAll) {
			r.unknown("snapshot type", 2+i, v)
		}
		g.Types[i] = SnapshotType(v)
	}
	return r.err()
}

// Snapshot answers GetSnapshot. A decoded archive aliases its input.
type Snapshot struct {
	ZIP []byte
}

// Append encodes the payload.
func (s *Snapshot) Append(dst []byte) []byte { return append(dst, s.ZIP...) }

// Decode reads the payload.
func (s *Snapshot) Decode(src []byte) error {
	s.ZIP = src
	return nil
}

// OptionScope is what a catalog of options is for.
type OptionScope uint8

// Scopes.
const (
	ScopeTopic  OptionScope = 1
	ScopeStream OptionScope = 2
	ScopeUser   OptionScope = 3
)

// DescribeOptions asks for the catalog of a scope (13). Answer: OptionCatalog.
type DescribeOptions struct {
	Scope OptionScope
}

// Code is CodeDescribeOptions.
func (*DescribeOptions) Code() Code { return CodeDescribeOptions }

// Append encodes the body.
func (d *DescribeOptions) Append(dst []byte) []byte { return append(dst, byte(d.Scope)) }

// Decode reads the body.
func (d *DescribeOptions) Decode(src []byte) error {
	r := reader{b: src}
	d.Scope = OptionScope(r.u8())
	if r.fail == nil && (d.Scope < ScopeTopic || d.Scope > ScopeUser) {
		return invalid("unknown options scope: "+utoa(uint64(d.Scope)), 0)
	}
	return r.err()
}

// OptionSpec is an entry of a catalog. An empty default means none.
type OptionSpec struct {
	Key         string
	Kind        Kind
	Default     []byte
	Description string
}

// OptionCatalog answers DescribeOptions (commands §3.4).
type OptionCatalog struct {
	Entries []OptionSpec
}

// Append encodes the payload.
func (c *OptionCatalog) Append(dst []byte) []byte {
	dst = le.AppendUint32(dst, uint32(len(c.Entries)))
	for i := range c.Entries {
		e := &c.Entries[i]
		dst = append(appendName(dst, e.Key), byte(e.Kind))
		dst = le.AppendUint32(dst, uint32(len(e.Default)))
		dst = append(dst, e.Default...)
		dst = appendStr32(dst, e.Description)
	}
	return dst
}

// Decode reads the payload.
func (c *OptionCatalog) Decode(src []byte) error {
	r := reader{b: src}
	c.Entries = nil
	n := r.count("option entries", 11)
	if n > 0 {
		c.Entries = make([]OptionSpec, 0, n)
	}
	for range n {
		e := OptionSpec{Key: r.name("option key"), Kind: Kind(r.u8())}
		if b := r.bytes32("option default"); len(b) > 0 {
			e.Default = append([]byte(nil), b...)
		}
		e.Description = r.str32("option description")
		if r.fail != nil {
			return r.fail
		}
		c.Entries = append(c.Entries, e)
	}
	return r.err()
}

// FlushUnsavedBuffer is known and answered with ErrFeatureUnavailable (102).
type FlushUnsavedBuffer struct {
	Stream, Topic Identifier
	PartitionID   uint32
	Fsync         bool
}

// Code is CodeFlushUnsavedBuffer.
func (*FlushUnsavedBuffer) Code() Code { return CodeFlushUnsavedBuffer }

// Append encodes the body.
func (f *FlushUnsavedBuffer) Append(dst []byte) []byte {
	dst = f.Topic.Append(f.Stream.Append(dst))
	return appendBool(le.AppendUint32(dst, f.PartitionID), f.Fsync)
}

// Decode reads the body.
func (f *FlushUnsavedBuffer) Decode(src []byte) error {
	r := reader{b: src}
	*f = FlushUnsavedBuffer{Stream: r.ident("stream id"), Topic: r.ident("topic id"), PartitionID: r.u32(), Fsync: r.bool()}
	return r.err()
}
