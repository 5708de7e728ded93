package cli

import (
	"encoding/base64"
	"fmt"

	"github.com/whippetmq/whippet/wire"
)

// The documents of --json. Names and shapes are those of the HTTP API; times are microseconds since 1970 and sizes
// bytes, as numbers.

type streamView struct {
	ID        uint32         `json:"id"`
	CreatedAt uint64         `json:"created_at"`
	Name      string         `json:"name"`
	Size      uint64         `json:"size"`
	Messages  uint64         `json:"messages_count"`
	Topics    uint32         `json:"topics_count"`
	Options   map[string]any `json:"options,omitempty"`
}

func viewStream(s wire.Stream) streamView {
	return streamView{
		ID: s.ID, CreatedAt: s.CreatedAt, Name: s.Name, Size: s.SizeBytes, Messages: s.MessagesCount,
		Topics: s.TopicsCount, Options: viewOptions(s.Options),
	}
}

type streamDetailsView struct {
	streamView
	Topics []topicView `json:"topics"`
}

func viewStreamDetails(s *wire.StreamDetails) streamDetailsView {
	v := streamDetailsView{streamView: viewStream(s.Stream), Topics: []topicView{}}
	for _, t := range s.Topics {
		v.Topics = append(v.Topics, viewTopic(t))
	}
	return v
}

type topicView struct {
	ID            uint32         `json:"id"`
	CreatedAt     uint64         `json:"created_at"`
	Name          string         `json:"name"`
	Size          uint64         `json:"size"`
	MessageExpiry uint64         `json:"message_expiry"`
	Compression   string         `json:"compression_algorithm"`
	MaxSize       uint64         `json:"max_topic_size"`
	Messages      uint64         `json:"messages_count"`
	Partitions    uint32         `json:"partitions_count"`
	Options       map[string]any `json:"options,omitempty"`
}

func viewTopic(t wire.Topic) topicView {
	return topicView{
		ID: t.ID, CreatedAt: t.CreatedAt, Name: t.Name, Size: t.SizeBytes, MessageExpiry: t.MessageExpiry,
		Compression: t.Compression.String(), MaxSize: t.MaxTopicSize, Messages: t.MessagesCount,
		Partitions: t.PartitionsCount, Options: viewOptions(t.Options),
	}
}

type partitionView struct {
	ID            uint32 `json:"id"`
	CreatedAt     uint64 `json:"created_at"`
	Segments      uint32 `json:"segments_count"`
	CurrentOffset uint64 `json:"current_offset"`
	Size          uint64 `json:"size"`
	Messages      uint64 `json:"messages_count"`
}

type topicDetailsView struct {
	topicView
	Partitions []partitionView `json:"partitions"`
}

func viewTopicDetails(t *wire.TopicDetails) topicDetailsView {
	v := topicDetailsView{topicView: viewTopic(t.Topic), Partitions: []partitionView{}}
	for _, p := range t.Partitions {
		v.Partitions = append(v.Partitions, partitionView{
			ID: p.ID, CreatedAt: p.CreatedAt, Segments: p.SegmentsCount, CurrentOffset: p.CurrentOffset,
			Size: p.SizeBytes, Messages: p.MessagesCount,
		})
	}
	return v
}

func viewOptions(o wire.Options) map[string]any {
	if len(o) == 0 {
		return nil
	}
	m := make(map[string]any, len(o))
	for _, e := range o {
		m[e.Key] = viewValue(e.Value)
	}
	return m
}

// viewValue gives a value as JSON wants it: numbers and truth values as such, texts as texts, bytes in base64.
func viewValue(v wire.Value) any {
	if v.Check() != nil || !v.Kind.Known() {
		return base64.StdEncoding.EncodeToString(v.Data)
	}
	switch v.Kind {
	case wire.KindRaw:
		return base64.StdEncoding.EncodeToString(v.Data)
	case wire.KindBool:
		b, _ := v.AsBool() // checked above
		return b
	case wire.KindString, wire.KindInt128, wire.KindUint128, wire.KindFloat32, wire.KindFloat64:
		return v.String() // no JSON number holds 128 bits, infinities or "not a number"
	default:
		return jsonNumber(v.String())
	}
}

// jsonNumber is text that is a JSON number already.
type jsonNumber string

// MarshalJSON writes the digits as they are.
func (n jsonNumber) MarshalJSON() ([]byte, error) { return []byte(n), nil }

type clientView struct {
	ID        uint32  `json:"client_id"`
	UserID    *uint32 `json:"user_id"`
	Address   string  `json:"address"`
	Transport string  `json:"transport"`
	Groups    uint32  `json:"consumer_groups_count"`
}

func viewClient(c wire.Client) clientView {
	v := clientView{ID: c.ID, Address: c.Address, Transport: c.Transport.String(), Groups: c.ConsumerGroupsCount}
	if c.UserID != wire.NoUser {
		v.UserID = &c.UserID
	}
	return v
}

type membershipView struct {
	Stream uint32 `json:"stream_id"`
	Topic  uint32 `json:"topic_id"`
	Group  uint32 `json:"group_id"`
}

type clientDetailsView struct {
	clientView
	Memberships []membershipView `json:"consumer_groups"`
}

func viewClientDetails(c *wire.ClientDetails) clientDetailsView {
	v := clientDetailsView{clientView: viewClient(c.Client), Memberships: []membershipView{}}
	v.Groups = uint32(len(c.Groups))
	for _, m := range c.Groups {
		v.Memberships = append(v.Memberships, membershipView{m.StreamID, m.TopicID, m.GroupID})
	}
	return v
}

type endpointsView struct {
	TCP       uint16 `json:"tcp"`
	QUIC      uint16 `json:"quic"`
	HTTP      uint16 `json:"http"`
	WebSocket uint16 `json:"websocket"`
}

type nodeView struct {
	Name      string        `json:"name"`
	IP        string        `json:"ip"`
	Endpoints endpointsView `json:"endpoints"`
	Role      string        `json:"role"`
	Status    string        `json:"status"`
}

type clusterView struct {
	Name  string     `json:"name"`
	Nodes []nodeView `json:"nodes"`
}

func viewCluster(r *wire.Roster) clusterView {
	v := clusterView{Name: r.Name, Nodes: []nodeView{}}
	for _, n := range r.Nodes {
		v.Nodes = append(v.Nodes, nodeView{
			Name: n.Name, IP: n.IP, Endpoints: endpointsView{n.TCP, n.QUIC, n.HTTP, n.WebSocket},
			Role: n.Role.String(), Status: n.Status.String(),
		})
	}
	return v
}

type offsetView struct {
	Partition     uint32 `json:"partition_id"`
	CurrentOffset uint64 `json:"current_offset"`
	StoredOffset  uint64 `json:"stored_offset"`
}

type groupView struct {
	ID         uint32 `json:"id"`
	Name       string `json:"name"`
	Partitions uint32 `json:"partitions_count"`
	Members    uint32 `json:"members_count"`
}

func viewGroup(g wire.Group) groupView {
	return groupView{ID: g.ID, Name: g.Name, Partitions: g.PartitionsCount, Members: g.MembersCount}
}

type memberView struct {
	ID         uint32   `json:"id"`
	Count      uint32   `json:"partitions_count"`
	Partitions []uint32 `json:"partitions"`
}

type groupDetailsView struct {
	groupView
	Members []memberView `json:"members"`
}

func viewGroupDetails(g *wire.GroupDetails) groupDetailsView {
	v := groupDetailsView{groupView: viewGroup(g.Group), Members: []memberView{}}
	for _, m := range g.Members {
		v.Members = append(v.Members, memberView{ID: m.ID, Count: uint32(len(m.Partitions)), Partitions: append([]uint32{}, m.Partitions...)})
	}
	return v
}

// statsView are the statistics under the names of the HTTP API.
type statsView struct {
	ProcessID           uint32         `json:"process_id" toml:"process_id"`
	CPUUsage            float32        `json:"cpu_usage" toml:"cpu_usage"`
	TotalCPUUsage       float32        `json:"total_cpu_usage" toml:"total_cpu_usage"`
	MemoryUsage         uint64         `json:"memory_usage" toml:"memory_usage"`
	TotalMemory         uint64         `json:"total_memory" toml:"total_memory"`
	AvailableMemory     uint64         `json:"available_memory" toml:"available_memory"`
	RunTime             uint64         `json:"run_time" toml:"run_time"`
	StartTime           uint64         `json:"start_time" toml:"start_time"`
	ReadBytes           uint64         `json:"read_bytes" toml:"read_bytes"`
	WrittenBytes        uint64         `json:"written_bytes" toml:"written_bytes"`
	MessagesSizeBytes   uint64         `json:"messages_size_bytes" toml:"messages_size_bytes"`
	StreamsCount        uint32         `json:"streams_count" toml:"streams_count"`
	TopicsCount         uint32         `json:"topics_count" toml:"topics_count"`
	PartitionsCount     uint32         `json:"partitions_count" toml:"partitions_count"`
	SegmentsCount       uint32         `json:"segments_count" toml:"segments_count"`
	MessagesCount       uint64         `json:"messages_count" toml:"messages_count"`
	ClientsCount        uint32         `json:"clients_count" toml:"clients_count"`
	ConsumerGroupsCount uint32         `json:"consumer_groups_count" toml:"consumer_groups_count"`
	Hostname            string         `json:"hostname" toml:"hostname"`
	OSName              string         `json:"os_name" toml:"os_name"`
	OSVersion           string         `json:"os_version" toml:"os_version"`
	KernelVersion       string         `json:"kernel_version" toml:"kernel_version"`
	ServerVersion       string         `json:"iggy_server_version" toml:"iggy_server_version"`
	ServerSemver        *uint32        `json:"iggy_server_semver" toml:"iggy_server_semver,omitempty"`
	CacheMetrics        map[string]any `json:"cache_metrics" toml:"cache_metrics"`
	ThreadsCount        uint32         `json:"threads_count" toml:"threads_count"`
	FreeDiskSpace       uint64         `json:"free_disk_space" toml:"free_disk_space"`
	TotalDiskSpace      uint64         `json:"total_disk_space" toml:"total_disk_space"`
}

func viewStats(s *wire.Stats) statsView {
	v := statsView{
		ProcessID: s.ProcessID, CPUUsage: s.CPUUsage, TotalCPUUsage: s.TotalCPUUsage, MemoryUsage: s.MemoryUsage,
		TotalMemory: s.TotalMemory, AvailableMemory: s.AvailableMemory, RunTime: s.RunTime, StartTime: s.StartTime,
		ReadBytes: s.ReadBytes, WrittenBytes: s.WrittenBytes, MessagesSizeBytes: s.MessagesSizeBytes,
		StreamsCount: s.StreamsCount, TopicsCount: s.TopicsCount, PartitionsCount: s.PartitionsCount,
		SegmentsCount: s.SegmentsCount, MessagesCount: s.MessagesCount, ClientsCount: s.ClientsCount,
		ConsumerGroupsCount: s.ConsumerGroupsCount, Hostname: s.Hostname, OSName: s.OSName, OSVersion: s.OSVersion,
		KernelVersion: s.KernelVersion, ServerVersion: s.ServerVersion, CacheMetrics: map[string]any{},
		ThreadsCount: s.ThreadsCount, FreeDiskSpace: s.FreeDiskSpace, TotalDiskSpace: s.TotalDiskSpace,
	}
	if s.ServerSemver != 0 {
		v.ServerSemver = &s.ServerSemver
	}
	for _, c := range s.CacheMetrics {
		v.CacheMetrics[fmt.Sprintf("%d-%d-%d", c.StreamID, c.TopicID, c.PartitionID)] = map[string]any{
			"hits": c.Hits, "misses": c.Misses, "hit_ratio": c.HitRatio,
		}
	}
	return v
}
