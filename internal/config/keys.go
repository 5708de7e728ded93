package config

import (
	"encoding/base64"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// key is one row of the table of known keys.
type key struct {
	path string
	// old are the names of the older layout that mean the same.
	old []string
	// takes ends the sentence "… takes" of an error.
	takes string
	// secret values are masked in logs and left out of current_config.toml.
	secret bool
	// set converts and stores; nil for a key without effect here.
	set func(c *Config, v any) error
	// get renders the value for current_config.toml and for display.
	get func(c *Config) any
}

// mask is shown instead of a secret.
const mask = "******"

type rule[T any] struct {
	takes string
	ok    func(T) bool
}

func row[T any](path, takes string, conv func(any) (T, error), show func(T) any, field func(*Config) *T, rules ...rule[T]) key {
	for _, r := range rules {
		takes = r.takes
	}
	return key{
		path: path, takes: takes,
		set: func(c *Config, v any) error {
			x, err := conv(v)
			if err != nil {
				return err
			}
			for _, r := range rules {
				if !r.ok(x) {
					return fmt.Errorf("out of bounds")
				}
			}
			*field(c) = x
			return nil
		},
		get: func(c *Config) any { return show(*field(c)) },
	}
}

func same[T any](v T) any { return v }

func str(path, takes string, f func(*Config) *string, rules ...rule[string]) key {
	return row(path, takes, toString, same, f, rules...)
}

func flag(path string, f func(*Config) *bool) key {
	return row(path, "true or false", toBool, same, f)
}

func num(path string, f func(*Config) *int64, lo, hi int64) key {
	takes := fmt.Sprintf("a whole number from %d to %d", lo, hi)
	return row(path, takes, toInt, same, f, rule[int64]{takes, func(v int64) bool { return v >= lo && v <= hi }})
}

func dur(path string, f func(*Config) *time.Duration, rules ...rule[time.Duration]) key {
	return row(path, "a duration such as 10 s or 500 ms", toDuration, func(d time.Duration) any { return FormatDuration(d) }, f, rules...)
}

func above() rule[time.Duration] {
	return rule[time.Duration]{"a duration above zero, such as 10 s or 500 ms", func(d time.Duration) bool { return d > 0 }}
}

func atLeast(min time.Duration) rule[time.Duration] {
	return rule[time.Duration]{"a duration of at least " + FormatDuration(min), func(d time.Duration) bool { return d >= min }}
}

func size(path string, f func(*Config) *ByteSize, lo, hi ByteSize) key {
	takes := fmt.Sprintf("a size from %s to %s, such as 64 MiB", lo, hi)
	return row(path, takes, toSize, func(b ByteSize) any { return b.String() }, f, rule[ByteSize]{takes, func(v ByteSize) bool { return v >= lo && v <= hi }})
}

func list(path, takes string, f func(*Config) *[]string) key {
	return row(path, takes, toList, func(v []string) any {
		if v == nil {
			return []string{}
		}
		return v
	}, f)
}

func oneOf(words ...string) rule[string] {
	takes := "one of " + strings.Join(words, ", ")
	return rule[string]{takes, func(s string) bool { return slices.Contains(words, s) }}
}

func notEmpty() rule[string] {
	return rule[string]{"a text that is not empty", func(s string) bool { return strings.TrimSpace(s) != "" }}
}

// address accepts host:port with a literal IP, localhost or an empty host.
func address() rule[string] {
	return rule[string]{"an address such as 127.0.0.1:8090 (port 0 = any free port)", func(s string) bool {
		host, port, err := net.SplitHostPort(s)
		if err != nil {
			return false
		}
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return false
		}
		return host == "" || host == "localhost" || net.ParseIP(strings.Split(host, "%")[0]) != nil
	}}
}

// Secrets that are given must be good ones even while nothing uses them: they would fail on the day they are needed.

func encryptionKey() rule[string] {
	return rule[string]{"base64 of 32 bytes", func(s string) bool {
		k, err := base64.StdEncoding.DecodeString(s)
		return s == "" || err == nil && len(k) == 32
	}}
}

func sharedSecret() rule[string] {
	return rule[string]{"at least 32 bytes", func(s string) bool { return s == "" || len(s) >= 32 }}
}

func (k key) secretly() key            { k.secret = true; return k }
func (k key) formerly(o ...string) key { k.old = append(k.old, o...); return k }

// unlimited is the upper bound of sizes that have none of their own.
const unlimited ByteSize = 1 << 50

// table lists every key with an effect. Order is the order of current_config.toml.
func table() []key {
	var ks []key
	add := func(k ...key) { ks = append(ks, k...) }
	add(
		str("path", "a directory", func(c *Config) *string { return &c.Path }, notEmpty()).formerly("system.path"),
		str("runtime.path", "a directory, relative to path", func(c *Config) *string { return &c.RuntimeDir }, notEmpty()).formerly("system.runtime.path"),
		str("node.advertised_address", "an IP address or a DNS name without a port", func(c *Config) *string { return &c.AdvertisedAddress },
			rule[string]{"an IP address or a DNS name without a port, not 0.0.0.0 or ::", func(s string) bool { return s == "" || advertisable(s) }}),

		flag("tcp.enabled", func(c *Config) *bool { return &c.TCP.Enabled }),
		str("tcp.address", "", func(c *Config) *string { return &c.TCP.Address }, address()),
	)
	add(tlsKeys("tcp.tls", func(c *Config) *TLS { return &c.TCP.TLS }, true)...)
	add(
		flag("http.enabled", func(c *Config) *bool { return &c.HTTP.Enabled }),
		str("http.address", "", func(c *Config) *string { return &c.HTTP.Address }, address()),
		size("http.max_request_size", func(c *Config) *ByteSize { return &c.HTTP.MaxRequestSize }, 1, 256<<20),
		flag("http.web_ui", func(c *Config) *bool { return &c.HTTP.WebUI }),
		flag("http.cors.enabled", func(c *Config) *bool { return &c.HTTP.CORS.Enabled }),
		list("http.cors.allowed_methods", "a list of methods", func(c *Config) *[]string { return &c.HTTP.CORS.AllowedMethods }),
		list("http.cors.allowed_origins", "a list of origins, or [\"*\"]", func(c *Config) *[]string { return &c.HTTP.CORS.AllowedOrigins }),
		list("http.cors.allowed_headers", "a list of header names", func(c *Config) *[]string { return &c.HTTP.CORS.AllowedHeaders }),
		list("http.cors.exposed_headers", "a list of header names", func(c *Config) *[]string { return &c.HTTP.CORS.ExposedHeaders }),
		flag("http.cors.allow_credentials", func(c *Config) *bool { return &c.HTTP.CORS.AllowCredentials }),
		flag("http.cors.allow_private_network", func(c *Config) *bool { return &c.HTTP.CORS.AllowPrivateNetwork }),
		str("http.jwt.algorithm", "", func(c *Config) *string { return &c.HTTP.JWT.Algorithm }, oneOf("HS256", "HS384", "HS512")),
		str("http.jwt.issuer", "a text", func(c *Config) *string { return &c.HTTP.JWT.Issuer }),
		str("http.jwt.audience", "a text", func(c *Config) *string { return &c.HTTP.JWT.Audience }),
		list("http.jwt.valid_issuers", "a list of issuers", func(c *Config) *[]string { return &c.HTTP.JWT.ValidIssuers }),
		list("http.jwt.valid_audiences", "a list of audiences", func(c *Config) *[]string { return &c.HTTP.JWT.ValidAudiences }),
		jwtExpiry(),
		dur("http.jwt.clock_skew", func(c *Config) *time.Duration { return &c.HTTP.JWT.ClockSkew }),
		dur("http.jwt.not_before", func(c *Config) *time.Duration { return &c.HTTP.JWT.NotBefore }),
		str("http.jwt.encoding_secret", "a text", func(c *Config) *string { return &c.HTTP.JWT.EncodingSecret }).secretly(),
		str("http.jwt.decoding_secret", "a text", func(c *Config) *string { return &c.HTTP.JWT.DecodingSecret }).secretly(),
		flag("http.jwt.use_base64_secret", func(c *Config) *bool { return &c.HTTP.JWT.UseBase64Secret }),
		flag("http.metrics.enabled", func(c *Config) *bool { return &c.HTTP.MetricsEnabled }),
		str("http.metrics.endpoint", "", func(c *Config) *string { return &c.HTTP.MetricsPath },
			rule[string]{"a path that starts with /", func(s string) bool { return strings.HasPrefix(s, "/") }}),
	)
	add(tlsKeys("http.tls", func(c *Config) *TLS { return &c.HTTP.TLS }, false)...)
	add(
		flag("quic.enabled", func(c *Config) *bool { return &c.QUIC.Enabled }),
		str("quic.address", "", func(c *Config) *string { return &c.QUIC.Address }, address()),
		num("quic.max_concurrent_bidi_streams", func(c *Config) *int64 { return &c.QUIC.MaxStreams }, 1, 65536),
		size("quic.initial_mtu", func(c *Config) *ByteSize { return &c.QUIC.InitialMTU }, 1200, 65535),
		size("quic.send_window", func(c *Config) *ByteSize { return &c.QUIC.SendWindow }, 1, unlimited),
		size("quic.receive_window", func(c *Config) *ByteSize { return &c.QUIC.ReceiveWindow }, 1, 4<<30-1),
		size("quic.stream_receive_window", func(c *Config) *ByteSize { return &c.QUIC.StreamReceiveWindow }, 1, 4<<30-1),
		dur("quic.keep_alive_interval", func(c *Config) *time.Duration { return &c.QUIC.KeepAlive }),
		dur("quic.max_idle_timeout", func(c *Config) *time.Duration { return &c.QUIC.MaxIdle }),
		flag("quic.certificate.self_signed", func(c *Config) *bool { return &c.QUIC.SelfSigned }),
		str("quic.certificate.cert_file", "a file", func(c *Config) *string { return &c.QUIC.CertFile }),
		str("quic.certificate.key_file", "a file", func(c *Config) *string { return &c.QUIC.KeyFile }),
		flag("websocket.enabled", func(c *Config) *bool { return &c.WebSocket.Enabled }),
		str("websocket.address", "", func(c *Config) *string { return &c.WebSocket.Address }, address()),
		size("websocket.read_buffer_size", func(c *Config) *ByteSize { return &c.WebSocket.ReadBuffer }, 1, 1<<30),
		size("websocket.write_buffer_size", func(c *Config) *ByteSize { return &c.WebSocket.WriteBuffer }, 1, 1<<30),
		size("websocket.max_write_buffer_size", func(c *Config) *ByteSize { return &c.WebSocket.MaxWriteBuffer }, 0, unlimited),
		size("websocket.max_message_size", func(c *Config) *ByteSize { return &c.WebSocket.MaxMessage }, 256, 256<<20),
		size("websocket.max_frame_size", func(c *Config) *ByteSize { return &c.WebSocket.MaxFrame }, 256, 256<<20),
		flag("websocket.accept_unmasked_frames", func(c *Config) *bool { return &c.WebSocket.AcceptUnmasked }),
	)
	add(tlsKeys("websocket.tls", func(c *Config) *TLS { return &c.WebSocket.TLS }, true)...)
	add(
		size("message_bus.max_message_size", func(c *Config) *ByteSize { return &c.Bus.MaxMessage }, 64<<10, 256<<20),
		num("message_bus.connections_max", func(c *Config) *int64 { return &c.Bus.MaxConnections }, -1, 1<<24),
		num("message_bus.client_queue_capacity", func(c *Config) *int64 { return &c.Bus.ClientQueue }, 1, 1<<20),
		dur("message_bus.handshake_grace", func(c *Config) *time.Duration { return &c.Bus.HandshakeGrace }, above()),
		dur("message_bus.close_grace", func(c *Config) *time.Duration { return &c.Bus.CloseGrace }, above()),
		dur("message_bus.close_peer_timeout", func(c *Config) *time.Duration { return &c.Bus.ClosePeer }, above()),
		dur("message_bus.reconnect_period", func(c *Config) *time.Duration { return &c.Bus.Reconnect }, above()),
		flag("heartbeat.enabled", func(c *Config) *bool { return &c.Heartbeat.Enabled }),
		dur("heartbeat.interval", func(c *Config) *time.Duration { return &c.Heartbeat.Interval }, above()),
		dur("consumer_group.rebalancing_timeout", func(c *Config) *time.Duration { return &c.Groups.RebalancingTimeout }, above()),
		dur("consumer_group.session_timeout", func(c *Config) *time.Duration { return &c.Groups.SessionTimeout }, above()),
		dur("consumer_group.heartbeat_interval", func(c *Config) *time.Duration { return &c.Groups.HeartbeatInterval }, above()),
		flag("data_maintenance.messages.cleaner_enabled", func(c *Config) *bool { return &c.Cleaner.Enabled }),
		dur("data_maintenance.messages.interval", func(c *Config) *time.Duration { return &c.Cleaner.Interval }),
		num("personal_access_token.max_tokens_per_user", func(c *Config) *int64 { return &c.Tokens.MaxPerUser }, 1, 1<<20),
		flag("personal_access_token.cleaner.enabled", func(c *Config) *bool { return &c.Tokens.CleanerEnabled }),
		dur("personal_access_token.cleaner.interval", func(c *Config) *time.Duration { return &c.Tokens.CleanerInterval }),
		num("metadata.clients_table_max", func(c *Config) *int64 { return &c.Metadata.MaxClients }, 2, 65536),
		num("metadata.partitions_max", func(c *Config) *int64 { return &c.Metadata.MaxPartitions }, 0, 1<<30),
		flag("partition.validate_checksum", func(c *Config) *bool { return &c.Partition.ValidateChecksum }).formerly("system.partition.validate_checksum"),
		num("partition.consumer_offsets_max", func(c *Config) *int64 { return &c.Partition.MaxConsumerOffsets }, 1, 262144),
		num("partition.dedup_clients_max", func(c *Config) *int64 { return &c.Partition.MaxDedupClients }, 1, 65536),
		cpuAllocation().formerly("system.sharding.cpu_allocation"),
		dur("sharding.shutdown_drain_timeout", func(c *Config) *time.Duration { return &c.Sharding.DrainTimeout }, above()).formerly("system.sharding.shutdown_drain_timeout"),

		str("logging.path", "a directory, relative to path", func(c *Config) *string { return &c.Logging.Path }, notEmpty()).formerly("system.logging.path"),
		logLevel().formerly("system.logging.level"),
		flag("logging.file_enabled", func(c *Config) *bool { return &c.Logging.FileEnabled }).formerly("system.logging.file_enabled"),
		size("logging.max_file_size", func(c *Config) *ByteSize { return &c.Logging.MaxFileSize }, 0, unlimited).formerly("system.logging.max_file_size"),
		size("logging.max_total_size", func(c *Config) *ByteSize { return &c.Logging.MaxTotalSize }, 0, unlimited).formerly("system.logging.max_total_size"),
		dur("logging.rotation_check_interval", func(c *Config) *time.Duration { return &c.Logging.RotationCheck }, atLeast(time.Second)).formerly("system.logging.rotation_check_interval"),
		dur("logging.retention", func(c *Config) *time.Duration { return &c.Logging.Retention }).formerly("system.logging.retention"),
		dur("logging.sysinfo_print_interval", func(c *Config) *time.Duration { return &c.Logging.SysinfoInterval }).formerly("system.logging.sysinfo_print_interval"),
		flag("encryption.enabled", func(c *Config) *bool { return &c.Crypt.Enabled }).formerly("system.encryption.enabled"),
		str("encryption.key", "", func(c *Config) *string { return &c.Crypt.Key }, encryptionKey()).secretly().formerly("system.encryption.key"),
		flag("telemetry.enabled", func(c *Config) *bool { return &c.Telemetry.Enabled }),
		str("telemetry.service_name", "a text", func(c *Config) *string { return &c.Telemetry.ServiceName }),
		str("telemetry.logs.transport", "", func(c *Config) *string { return &c.Telemetry.LogsTransport }, oneOf("grpc", "http")),
		str("telemetry.logs.endpoint", "a URL", func(c *Config) *string { return &c.Telemetry.LogsEndpoint }),
		str("telemetry.traces.transport", "", func(c *Config) *string { return &c.Telemetry.TracesTransport }, oneOf("grpc", "http")),
		str("telemetry.traces.endpoint", "a URL", func(c *Config) *string { return &c.Telemetry.TracesEndpoint }),

		flag("cluster.enabled", func(c *Config) *bool { return &c.Cluster.Enabled }),
		str("cluster.name", "", func(c *Config) *string { return &c.Cluster.Name }, notEmpty()),
		dur("cluster.heartbeat_timeout", func(c *Config) *time.Duration { return &c.Cluster.HeartbeatTimeout }, atLeast(100*time.Millisecond)),
		flag("cluster.forwarding", func(c *Config) *bool { return &c.Cluster.Forwarding }),
		str("cluster.placement", "", func(c *Config) *string { return &c.Cluster.Placement }, oneOf("spread", "leader")),
		flag("cluster.rebalance", func(c *Config) *bool { return &c.Cluster.Rebalance }),
		flag("cluster.auth.enabled", func(c *Config) *bool { return &c.Cluster.AuthEnabled }),
		str("cluster.auth.shared_secret", "", func(c *Config) *string { return &c.Cluster.Secret }, sharedSecret()).secretly(),
		str("cluster.auth.previous_shared_secret", "", func(c *Config) *string { return &c.Cluster.PreviousSecret }, sharedSecret()).secretly(),
		flag("cluster.tls.enabled", func(c *Config) *bool { return &c.Cluster.TLS.Enabled }),
		flag("cluster.tls.self_signed", func(c *Config) *bool { return &c.Cluster.TLS.SelfSigned }),
		str("cluster.tls.cert_file", "a file", func(c *Config) *string { return &c.Cluster.TLS.CertFile }),
		str("cluster.tls.key_file", "a file", func(c *Config) *string { return &c.Cluster.TLS.KeyFile }),
		str("cluster.tls.ca_file", "a file", func(c *Config) *string { return &c.Cluster.TLS.CAFile }),
	)
	return ks
}

func tlsKeys(prefix string, f func(*Config) *TLS, selfSigned bool) []key {
	ks := []key{
		flag(prefix+".enabled", func(c *Config) *bool { return &f(c).Enabled }),
		str(prefix+".cert_file", "a file", func(c *Config) *string { return &f(c).CertFile }),
		str(prefix+".key_file", "a file", func(c *Config) *string { return &f(c).KeyFile }),
	}
	if selfSigned {
		ks = append(ks, flag(prefix+".self_signed", func(c *Config) *bool { return &f(c).SelfSigned }))
	}
	return ks
}

// jwtExpiry also takes "never".
func jwtExpiry() key {
	k := dur("http.jwt.access_token_expiry", func(c *Config) *time.Duration { return &c.HTTP.JWT.AccessExpiry })
	k.takes = "a duration such as 1 h, or never"
	set := k.set
	k.set = func(c *Config, v any) error {
		if s, ok := v.(string); ok {
			switch strings.ToLower(strings.TrimSpace(s)) {
			case "never", "never_expire":
				c.HTTP.JWT.AccessExpiry = 0
				return nil
			case "default", "server_default", "0":
				return errNotDuration
			}
		}
		return set(c, v)
	}
	k.get = func(c *Config) any {
		if c.HTTP.JWT.AccessExpiry == 0 {
			return "never"
		}
		return FormatDuration(c.HTTP.JWT.AccessExpiry)
	}
	return k
}

// cpuAllocation resolves the number of shards; pinning has no meaning here.
func cpuAllocation() key {
	k := str("sharding.cpu_allocation", "", func(c *Config) *string { return &c.Sharding.CPUAllocation })
	k.takes = "all, a number of shards from 1 to 1024, a range such as 0..4, or numa:auto"
	k.set = func(c *Config, v any) error {
		s, err := toString(v)
		if err != nil {
			return err
		}
		n, err := shards(strings.TrimSpace(s))
		if err != nil {
			return err
		}
		c.Sharding.CPUAllocation, c.Sharding.Shards = s, n
		return nil
	}
	return k
}

func shards(s string) (int, error) {
	if s == "all" || strings.HasPrefix(s, "numa:") {
		return 0, nil
	}
	lo, hi, isRange := strings.Cut(s, "..")
	if !isRange {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > 1024 {
			return 0, errNotCount
		}
		return n, nil
	}
	a, err1 := strconv.Atoi(lo)
	b, err2 := strconv.Atoi(hi)
	if err1 != nil || err2 != nil || a < 0 || b <= a || b-a > 1024 {
		return 0, errNotCount
	}
	return b - a, nil
}

var errNotCount = fmt.Errorf("not a number of shards")

func logLevel() key {
	k := str("logging.level", "", func(c *Config) *string { return &c.Logging.Level })
	k.takes = "one of trace, debug, info, warn, error, off"
	k.set = func(c *Config, v any) error {
		s, err := toString(v)
		if err != nil {
			return err
		}
		s = strings.ToLower(strings.TrimSpace(s))
		if !slices.Contains([]string{"trace", "debug", "info", "warn", "error", "off"}, s) {
			return fmt.Errorf("not a level")
		}
		c.Logging.Level = s
		return nil
	}
	return k
}

// inert are keys of the reference's own engine: accepted, without effect.
// A name that ends in a dot stands for everything below it.
var inert = []string{
	"memory_pool.", "system.memory_pool.",
	"sharding.pin_cores", "sharding.inbox_capacity", "sharding.reply_inbox_capacity", "sharding.shutdown_poll_interval",
	"sharding.shutdown_join_timeout", "sharding.reconcile_periodic_interval",
	"system.sharding.pin_cores", "system.sharding.inbox_capacity", "system.sharding.reply_inbox_capacity",
	"system.sharding.shutdown_poll_interval", "system.sharding.shutdown_join_timeout", "system.sharding.reconcile_periodic_interval",
	"system.stream.path", "system.topic.path", "system.partition.path", "system.state.", "system.backup.", "system.compression.",
	"system.segment.archive_expired", "system.recovery.recreate_missing_state", "system.segment.cache_indexes",
	"metadata.prepare_queue_depth", "metadata.journal_slots",
	"partition.prepare_queue_depth", "partition.wal_bytes_max", "partition.wal_group_commit_delay_micros",
	"partition.offset_reservation_lease", "partition.evicted_ring_capacity", "partition.evicted_ring_bytes_max",
	"partition.transfer_served_cache_bytes_max", "partition.transfer_artifact_bytes_max",
	"message_bus.max_batch", "message_bus.peer_queue_capacity", "message_bus.replica_read_buffer_size",
	"cluster.commit_broadcast_interval", "cluster.prepare_retransmit_interval", "cluster.view_change_retransmit_interval",
	"cluster.view_change_status_timeout", "cluster.request_start_view_retransmit_interval", "cluster.view_probe_attempts_max",
	"cluster.repair_retry_interval", "cluster.repair_gap_debounce_interval", "cluster.repair_chunk_max",
	"cluster.superblock_wedged_fatal_timeout", "cluster.coordinator.",
	"tcp.socket.", "tcp.socket_migration", "tcp.ipv6",
}

// removed keys refuse the start; the value is the hint.
var removed = map[string]string{
	"system.topic.max_size":                              "it is the option max_topic_size of a topic now",
	"system.topic.message_expiry":                        "it is the option message_expiry of a topic now",
	"system.partition.enforce_fsync":                     "it is the option durability = \"persisted\" of a topic now",
	"system.partition.messages_required_to_save":         "it is the option messages_required_to_save of a topic now",
	"system.partition.size_of_messages_required_to_save": "it is the option size_of_messages_required_to_save of a topic now",
	"system.segment.size":                                "it is the option segment_size of a topic now",
	"system.segment.preallocate":                         "it is the option preallocate_segments of a topic now",
	"system.message_deduplication":                       "it was removed: sends are deduplicated by their request identity",
	"system.message_deduplication.enabled":               "it was removed: sends are deduplicated by their request identity",
	"system.message_deduplication.max_entries":           "it was removed: sends are deduplicated by their request identity",
	"system.message_deduplication.expiry":                "it was removed: sends are deduplicated by their request identity",
}

// mustBeFalse are inert keys whose true would promise what does not happen.
var mustBeFalse = []string{"system.segment.archive_expired", "system.recovery.recreate_missing_state"}

// notConfiguration are IGGY_* variables that are no keys.
var notConfiguration = []string{"IGGY_CONFIG_PATH", "IGGY_ENV_PATH", "IGGY_ROOT_USERNAME", "IGGY_ROOT_PASSWORD", "IGGY_SHARD_RUNTIME_CAPACITY", "IGGY_DISPLAY_CONFIG", "IGGY_CI_BUILD"}

var notConfigurationPrefixes = []string{"IGGY_TEST_", "IGGY_CONNECTORS_", "IGGY_MCP_"}

func isInert(path string) bool {
	for _, p := range inert {
		if path == p || strings.HasSuffix(p, ".") && (strings.HasPrefix(path, p) || path == strings.TrimSuffix(p, ".")) {
			return true
		}
	}
	return false
}

// envName of a dotted path.
func envName(path string) string {
	return "IGGY_" + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// advertisable: an IP that is not unspecified, or a name of RFC 1123 without a port.
func advertisable(s string) bool {
	if ip := net.ParseIP(s); ip != nil {
		return !ip.IsUnspecified()
	}
	if len(s) > 253 || s == "" {
		return false
	}
	labels := strings.Split(strings.TrimSuffix(s, "."), ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' {
			return false
		}
		for _, r := range l {
			if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' {
				return false
			}
		}
	}
	// Only digits and dots is a mistyped address, not a name.
	return strings.ContainsFunc(s, func(r rune) bool { return r > '9' })
}
