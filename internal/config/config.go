package config

import (
	"net/netip"
	"path/filepath"
	"time"
)

// Config is the whole configuration of a node. Durations and sizes are parsed;
// zero means what defaults.toml says for the key. It is plain data: copy it
// freely, but do not change it while a server runs with it.
type Config struct {
	// Path is the data directory.
	Path string
	// RuntimeDir is where current_config.toml goes, relative to Path unless absolute.
	RuntimeDir string
	// AdvertisedAddress is the host a standalone node names to clients; empty = the bind address.
	AdvertisedAddress string

	TCP       TCP
	HTTP      HTTP
	QUIC      QUIC
	WebSocket WebSocket
	Bus       Bus
	Heartbeat Heartbeat
	Groups    Groups
	Cleaner   Cleaner
	Tokens    Tokens
	Metadata  Metadata
	Partition Partition
	Sharding  Sharding
	Logging   Logging
	Crypt     Encryption
	Telemetry Telemetry
	Cluster   Cluster

	// Root says with which credentials the root user is made on an empty data directory.
	Root Root
	// Fresh deletes the data directory before the start (--fresh).
	Fresh bool
	// ReplicaID is the entry of cluster.nodes this process is; -1 = not given.
	ReplicaID int

	origins map[string]Origin
}

// TLS of one listener.
type TLS struct {
	Enabled    bool
	SelfSigned bool
	CertFile   string
	KeyFile    string
}

// TCP is the binary protocol over TCP.
type TCP struct {
	Enabled bool
	Address string
	TLS     TLS
}

// HTTP is the JSON interface.
type HTTP struct {
	Enabled        bool
	Address        string
	MaxRequestSize ByteSize
	WebUI          bool
	CORS           CORS
	JWT            JWT
	MetricsEnabled bool
	MetricsPath    string
	TLS            TLS
}

// CORS of the HTTP interface.
type CORS struct {
	Enabled             bool
	AllowedMethods      []string
	AllowedOrigins      []string
	AllowedHeaders      []string
	ExposedHeaders      []string
	AllowCredentials    bool
	AllowPrivateNetwork bool
}

// JWT of the HTTP interface.
type JWT struct {
	Algorithm      string
	Issuer         string
	Audience       string
	ValidIssuers   []string
	ValidAudiences []string
	// AccessExpiry 0 = never.
	AccessExpiry    time.Duration
	ClockSkew       time.Duration
	NotBefore       time.Duration
	EncodingSecret  string
	DecodingSecret  string
	UseBase64Secret bool
	TrustedIssuers  []TrustedIssuer
}

// TrustedIssuer is a foreign issuer of tokens.
type TrustedIssuer struct {
	Issuer   string
	JWKSURL  string
	Audience string
	UserID   uint32
}

// QUIC is the binary protocol over QUIC.
type QUIC struct {
	Enabled             bool
	Address             string
	MaxStreams          int64
	InitialMTU          ByteSize
	SendWindow          ByteSize
	ReceiveWindow       ByteSize
	StreamReceiveWindow ByteSize
	KeepAlive           time.Duration
	MaxIdle             time.Duration
	SelfSigned          bool
	CertFile            string
	KeyFile             string
}

// WebSocket is the binary protocol over WebSocket.
type WebSocket struct {
	Enabled        bool
	Address        string
	ReadBuffer     ByteSize
	WriteBuffer    ByteSize
	MaxWriteBuffer ByteSize
	MaxMessage     ByteSize
	MaxFrame       ByteSize
	AcceptUnmasked bool
	TLS            TLS
}

// Bus is what all transports of the binary protocol share ([message_bus]).
type Bus struct {
	// MaxMessage is the largest frame, header and body.
	MaxMessage ByteSize
	// MaxConnections: 0 = no limit, -1 = half of the soft limit of open files.
	MaxConnections int64
	// ClientQueue bounds the answered frames of one connection that are not yet written.
	ClientQueue    int64
	HandshakeGrace time.Duration
	CloseGrace     time.Duration
	ClosePeer      time.Duration
	Reconnect      time.Duration
}

// Heartbeat rules of clients.
type Heartbeat struct {
	Enabled  bool
	Interval time.Duration
}

// Groups are the timings of consumer groups.
type Groups struct {
	RebalancingTimeout time.Duration
	SessionTimeout     time.Duration
	HeartbeatInterval  time.Duration
}

// Cleaner runs retention.
type Cleaner struct {
	Enabled  bool
	Interval time.Duration
}

// Tokens are personal access tokens.
type Tokens struct {
	MaxPerUser      int64
	CleanerEnabled  bool
	CleanerInterval time.Duration
}

// Metadata bounds the metadata state.
type Metadata struct {
	MaxClients    int64
	MaxPartitions int64
}

// Partition bounds one partition's state.
type Partition struct {
	ValidateChecksum   bool
	MaxConsumerOffsets int64
	MaxDedupClients    int64
}

// Sharding says how many worker shards run.
type Sharding struct {
	CPUAllocation string
	// Shards is CPUAllocation resolved; 0 = one per usable CPU.
	Shards       int
	DrainTimeout time.Duration
}

// Logging of the process.
type Logging struct {
	Path            string
	Level           string
	FileEnabled     bool
	MaxFileSize     ByteSize
	MaxTotalSize    ByteSize
	RotationCheck   time.Duration
	Retention       time.Duration
	SysinfoInterval time.Duration
}

// Encryption of messages at rest.
type Encryption struct {
	Enabled bool
	Key     string
}

// Telemetry export.
type Telemetry struct {
	Enabled         bool
	ServiceName     string
	LogsTransport   string
	LogsEndpoint    string
	TracesTransport string
	TracesEndpoint  string
}

// Cluster is the roster and the rules between nodes.
type Cluster struct {
	Enabled          bool
	Name             string
	HeartbeatTimeout time.Duration
	Forwarding       bool
	Placement        string
	Rebalance        bool
	Nodes            []Node
	AuthEnabled      bool
	Secret           string
	PreviousSecret   string
	TLS              ClusterTLS
}

// ClusterTLS of the link between nodes.
type ClusterTLS struct {
	Enabled    bool
	SelfSigned bool
	CertFile   string
	KeyFile    string
	CAFile     string
}

// Node is one entry of the roster, identical on every node.
type Node struct {
	Name      string
	IP        netip.Addr
	ReplicaID uint8
	Ports     Ports
	// Advertised is the host that clients are told; empty = IP.
	Advertised string
	// PerNetwork overrides Advertised for clients of a network; longest prefix wins.
	PerNetwork []Advertised
}

// Ports of a node; 0 = not offered.
type Ports struct {
	TCP       uint16
	QUIC      uint16
	HTTP      uint16
	WebSocket uint16
	Replica   uint16
}

// Advertised is the host told to the clients of one network.
type Advertised struct {
	Network netip.Prefix
	Address string
}

// Origin says where a value came from.
type Origin struct {
	// Source is "default", "file", "variable" or "flag".
	Source string
	// Where is the file and line, the variable's or the flag's name; empty for defaults.
	Where string
}

// Origin of the value of a key, named by its dotted path.
func (c *Config) Origin(key string) Origin {
	if o, ok := c.origins[key]; ok {
		return o
	}
	return Origin{Source: "default"}
}

// RuntimePath is the directory of current_config.toml.
func (c *Config) RuntimePath() string {
	if filepath.IsAbs(c.RuntimeDir) {
		return c.RuntimeDir
	}
	return filepath.Join(c.Path, c.RuntimeDir)
}

// HostFor is the host that a client at the given address is told for this node.
func (n Node) HostFor(client netip.Addr) string {
	best, host := -1, n.Advertised
	for _, a := range n.PerNetwork {
		if client.IsValid() && a.Network.Contains(client.Unmap()) && a.Network.Bits() > best {
			best, host = a.Network.Bits(), a.Address
		}
	}
	if host == "" {
		return n.IP.String()
	}
	return host
}
