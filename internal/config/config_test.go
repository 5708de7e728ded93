package config

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// load runs Load in an empty directory with a file text and variables.
func load(t *testing.T, text string, env ...string) (*Config, *Report, error) {
	t.Helper()
	dir := t.TempDir()
	if text != "" {
		if err := os.WriteFile(filepath.Join(dir, DefaultFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if env == nil {
		env = []string{}
	}
	return Load(Options{Dir: dir, Environ: env})
}

func notes(r *Report) string {
	var b strings.Builder
	r.Log(slog.New(slog.NewTextHandler(&b, nil)))
	return b.String()
}

func TestDefaultsAreWhatTheReferenceHas(t *testing.T) {
	c := Default()
	if c.Path != "local_data" || c.TCP.Address != "127.0.0.1:8090" || !c.TCP.Enabled || c.Bus.MaxMessage != 64<<20 ||
		c.Heartbeat.Interval != 30*time.Second || c.Metadata.MaxClients != 8192 || c.Partition.MaxConsumerOffsets != 4096 ||
		c.Cluster.Enabled || c.Cluster.Name != "iggy-cluster" || c.Sharding.Shards != 0 || c.ReplicaID != -1 {
		t.Fatalf("unexpected defaults: %+v", c)
	}
	// Every key of the table has a default in the embedded text.
	var raw map[string]any
	if err := toml.Unmarshal(defaultsTOML, &raw); err != nil {
		t.Fatal(err)
	}
	l := &loader{}
	for _, k := range table() {
		if (element{l, "", raw}).get(k.path) == nil {
			t.Errorf("%s has no default in defaults.toml", k.path)
		}
	}
}

func TestOrderOfSources(t *testing.T) {
	text := "path = \"from-file\"\n[tcp]\naddress = \"127.0.0.1:1\"\n[heartbeat]\ninterval = \"7 s\"\n"
	dir := t.TempDir()
	file := filepath.Join(dir, "x.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".env"), []byte("# comment\nexport IGGY_METADATA_CLIENTS_TABLE_MAX=\"100\"\nIGGY_TCP_ADDRESS=127.0.0.1:9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, rep, err := Load(Options{Dir: dir, File: file, Data: "from-flag", Environ: []string{"IGGY_TCP_ADDRESS=127.0.0.1:2", "IGGY_PATH=from-env", "IGGY_CONFIG_PATH=/nowhere", "IGGY_HTTP_JWT_ENCODING_SECRET=hush-hush"}})
	if err != nil {
		t.Fatal(err)
	}
	if c.Path != "from-flag" || c.TCP.Address != "127.0.0.1:2" || c.Heartbeat.Interval != 7*time.Second || c.Metadata.MaxClients != 100 {
		t.Fatalf("wrong winner: %q %q %v %d", c.Path, c.TCP.Address, c.Heartbeat.Interval, c.Metadata.MaxClients)
	}
	for key, want := range map[string]Origin{
		"path": {"flag", "--data"}, "tcp.address": {"variable", "IGGY_TCP_ADDRESS"},
		"heartbeat.interval": {"file", file + ":5"}, "tcp.enabled": {"default", ""},
	} {
		if got := c.Origin(key); got != want {
			t.Errorf("origin of %s = %v, want %v", key, got, want)
		}
	}
	log := notes(rep)
	if strings.Contains(log, "hush") || !strings.Contains(log, "IGGY_HTTP_JWT_ENCODING_SECRET value=******") || !strings.Contains(log, "IGGY_TCP_ADDRESS value=127.0.0.1:2") {
		t.Errorf("overrides not logged as they should be:\n%s", log)
	}
	if strings.Contains(c.Show(), "hush") {
		t.Error("secret shown")
	}
}

func TestProblemsNameTheKey(t *testing.T) {
	tests := []struct {
		name, text string
		env        []string
		want       []string
	}{
		{"address", "[tcp]\naddress = \"nonsense\"", nil, []string{"tcp.address (whippet.toml:2)", `got "nonsense"`, "takes an address"}},
		{"bool", "[tcp]\nenabled = \"yes\"", nil, []string{"tcp.enabled", `got "yes"`, "true or false"}},
		{"duration without unit", "[heartbeat]\ninterval = 5", nil, []string{"heartbeat.interval", "got 5", "duration"}},
		{"zero duration", "[heartbeat]\ninterval = \"0 s\"", nil, []string{"heartbeat.interval", "above zero"}},
		{"size", "[message_bus]\nmax_message_size = \"1 GiB\"", nil, []string{"message_bus.max_message_size", "from 64 KiB to 256 MiB"}},
		{"variable", "", []string{"IGGY_METADATA_CLIENTS_TABLE_MAX=1"}, []string{"metadata.clients_table_max (IGGY_METADATA_CLIENTS_TABLE_MAX)", "from 2 to 65536"}},
		{"removed key", "[system.segment]\nsize = \"1 GiB\"", nil, []string{"system.segment.size (whippet.toml:2)", "no longer a key", "segment_size"}},
		{"removed variable", "", []string{"IGGY_SYSTEM_PARTITION_ENFORCE_FSYNC=true"}, []string{"system.partition.enforce_fsync", "durability"}},
		{"removed table", "[system.message_deduplication]\nenabled = true", nil, []string{"system.message_deduplication", "removed"}},
		{"promise not kept", "[system.segment]\narchive_expired = true", nil, []string{"system.segment.archive_expired", "takes false"}},
		{"two at once", "[tcp]\naddress = \"x\"\n[http]\naddress = \"y\"", nil, []string{"tcp.address", "http.address"}},
		{"secret is masked", "[encryption]\nenabled = true\nkey = \"tops3cret\"", nil, []string{"encryption.key", "******", "base64 of 32 bytes"}},
		{"not toml", "[tcp\n", nil, []string{"whippet.toml:1"}},
		{"shards", "[sharding]\ncpu_allocation = \"4..2\"", nil, []string{"sharding.cpu_allocation", "range"}},
		{"level", "[logging]\nlevel = \"loud\"", nil, []string{"logging.level", "trace"}},
		{"cluster without id", "[cluster]\nenabled = true", nil, []string{"--replica-id", "cluster.nodes"}},
		{"nodes not a table", "[cluster]\nnodes = 5", nil, []string{"cluster.nodes", "array of tables"}},
		{"wildcard later", "[http.cors]\nallowed_origins = [\"a\", \"*\"]", nil, []string{"http.cors.allowed_origins"}},
		{"duplicate key", "path = \"a\"\npath = \"b\"", nil, []string{"whippet.toml"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := load(t, tt.text, tt.env...)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q lacks %q", err, w)
				}
			}
			if strings.Contains(err.Error(), "tops3cret") {
				t.Error("secret in the error")
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	text := "[tcp]\nadress = \"127.0.0.1:1\"\n[memory_pool]\nenabled = true\nsize = \"4 GiB\"\n[system]\npath = \"older\"\n[system.logging]\nlevel = \"warn\"\n[[cluster.nodes]]\nname = \"a\"\nip = \"127.0.0.1\"\nreplica_id = 0\nports = { tcp = 1, tcp_replica = 2 }\nnmae = 1\n"
	c, rep, err := load(t, text, "IGGY_TCP_ADRESS=1", "IGGY_TEST_X=1", "IGGY_SYSTEM_SHARDING_PIN_CORES=true", "IGGY_METADATA_JOURNAL_SLOTS=1024")
	if err != nil {
		t.Fatal(err)
	}
	if c.Path != "older" || c.Logging.Level != "warn" {
		t.Errorf("older names not taken: %q %q", c.Path, c.Logging.Level)
	}
	log := notes(rep)
	for _, w := range []string{
		"key=tcp.adress where=whippet.toml:2 nearest=tcp.address",
		"variable=IGGY_TCP_ADRESS similar=\"IGGY_TCP_ADDRESS",
		"key=cluster.nodes.0.nmae where=whippet.toml:15 nearest=name",
		"memory_pool", "system.sharding.pin_cores", "metadata.journal_slots",
	} {
		if !strings.Contains(log, w) {
			t.Errorf("log lacks %q:\n%s", w, log)
		}
	}
	alone := 1
	if _, rep, err = Load(Options{Dir: t.TempDir(), Environ: []string{}, ReplicaID: &alone}); err != nil || !strings.Contains(notes(rep), "--replica-id has no effect") {
		t.Errorf("a number in a cluster that is off: %v:\n%s", err, notes(rep))
	}
	if strings.Contains(log, "IGGY_TEST_X") {
		t.Error("test variable reported")
	}
	if strings.Count(log, "have no effect") != 1 {
		t.Error("keys without effect are to be reported once")
	}
}

func TestRoster(t *testing.T) {
	env := []string{
		"IGGY_CLUSTER_ENABLED=true",
		"IGGY_CLUSTER_NODES_0_NAME=a", "IGGY_CLUSTER_NODES_0_IP=127.0.0.1", "IGGY_CLUSTER_NODES_0_REPLICA_ID=0",
		"IGGY_CLUSTER_NODES_0_PORTS_TCP=8090", "IGGY_CLUSTER_NODES_0_PORTS_TCP_REPLICA=9090",
		"IGGY_CLUSTER_NODES_1_NAME=b", "IGGY_CLUSTER_NODES_1_IP=127.0.0.1", "IGGY_CLUSTER_NODES_1_REPLICA_ID=1",
		"IGGY_CLUSTER_NODES_1_PORTS_TCP=8091", "IGGY_CLUSTER_NODES_1_PORTS_TCP_REPLICA=9091",
		"IGGY_CLUSTER_NODES_1_ADVERTISED_ADDRESSES_0_CLIENT_CIDR=10.0.0.0/8", "IGGY_CLUSTER_NODES_1_ADVERTISED_ADDRESSES_0_ADDRESS=inside.example",
	}
	one := 1
	c, _, err := Load(Options{Dir: t.TempDir(), Environ: env, ReplicaID: &one})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Cluster.Nodes) != 2 || c.Cluster.Nodes[1].Name != "b" || c.Cluster.Nodes[1].PerNetwork[0].Address != "inside.example" || c.Cluster.Nodes[0].Ports.TCP != 8090 {
		t.Fatalf("roster: %+v", c.Cluster.Nodes)
	}
	for _, tt := range []struct {
		name string
		env  []string
		id   int
		want string
	}{
		{"unknown id", env, 2, "--replica-id"},
		{"gap", append([]string{"IGGY_CLUSTER_NODES_3_NAME=d"}, env...), 1, "cluster.nodes.2.ip"},
		{"name twice", append(env[:len(env):len(env)], "IGGY_CLUSTER_NODES_1_NAME=a"), 1, "cluster.nodes.1.name"},
		{"port twice", append(env[:len(env):len(env)], "IGGY_CLUSTER_NODES_1_PORTS_TCP=8090"), 1, "cluster.nodes.1.ports.tcp"},
		{"open link", append(env[:len(env):len(env)], "IGGY_CLUSTER_NODES_1_IP=10.0.0.1"), 1, "cluster.auth.enabled"},
		{"short secret", append(env[:len(env):len(env)], "IGGY_CLUSTER_AUTH_ENABLED=true", "IGGY_CLUSTER_AUTH_SHARED_SECRET=short"), 1, "cluster.auth.shared_secret"},
		{"tls alone", append(env[:len(env):len(env)], "IGGY_CLUSTER_TLS_ENABLED=true"), 1, "cluster.tls.enabled"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := Load(Options{Dir: t.TempDir(), Environ: tt.env, ReplicaID: &tt.id})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("%v lacks %s", err, tt.want)
			}
			if strings.Contains(err.Error(), "\"short\"") {
				t.Error("secret in the error")
			}
		})
	}
}

func TestRootCredentials(t *testing.T) {
	long := strings.Repeat("x", 101)
	tests := []struct {
		name       string
		r          Root
		cluster    bool
		user, pass string
		generated  bool
		err        string
	}{
		{"given", Root{Username: "admin", Password: "secret"}, false, "admin", "secret", false, ""},
		{"one node, nothing", Root{}, false, "iggy", "", true, ""},
		{"cluster, nothing", Root{}, true, "", "", false, "IGGY_ROOT_USERNAME"},
		{"only user", Root{Username: "admin"}, false, "", "", false, "IGGY_ROOT_PASSWORD"},
		{"only password", Root{Password: "secret"}, false, "", "", false, "IGGY_ROOT_USERNAME"},
		{"default", Root{Default: true}, true, "iggy", "iggy", false, ""},
		{"default fills", Root{Default: true, Password: "secret"}, false, "iggy", "secret", false, ""},
		{"short user", Root{Username: "ab", Password: "secret"}, false, "", "", false, "IGGY_ROOT_USERNAME"},
		{"long password", Root{Username: "abc", Password: long}, false, "", "", false, "IGGY_ROOT_PASSWORD"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u, p, g, err := tt.r.Credentials(tt.cluster)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), long) {
					t.Fatalf("error %v", err)
				}
				return
			}
			if err != nil || u != tt.user || g != tt.generated || (!g && p != tt.pass) || (g && (len(p) < 20 || len(p) > 39)) {
				t.Fatalf("%q %d bytes %v %v", u, len(p), g, err)
			}
		})
	}
}

func TestDurationsAndSizes(t *testing.T) {
	for s, want := range map[string]time.Duration{"10 s": 10 * time.Second, "1h 30m": 90 * time.Minute, "500ms": 500 * time.Millisecond, "7 days": 168 * time.Hour, "none": 0, "1 m": time.Minute, "2min 3 sec": 123 * time.Second} {
		if got, err := ParseDuration(s); err != nil || got != want {
			t.Errorf("%q = %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "5", "s", "-1 s", "1 parsec", "99999999999999999999 s", "9999999 years"} {
		if got, err := ParseDuration(s); err == nil {
			t.Errorf("%q accepted as %v", s, got)
		}
	}
	for s, want := range map[string]ByteSize{"64 MiB": 64 << 20, "2 MB": 2e6, "1.5 KiB": 1536, "100": 100, "unlimited": 0, "1200 B": 1200} {
		if got, err := ParseSize(s); err != nil || got != want {
			t.Errorf("%q = %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "MiB", "-1", "1 XB", "99999999999999999999", "9999999999 GiB"} {
		if got, err := ParseSize(s); err == nil {
			t.Errorf("%q accepted as %v", s, got)
		}
	}
}

func TestRenderReadsBack(t *testing.T) {
	text := "[cluster]\nname = \"mine\"\n[cluster.auth]\nshared_secret = \"0123456789abcdef0123456789abcdef-secret\"\n[[cluster.nodes]]\nname = \"a\"\nip = \"127.0.0.1\"\nreplica_id = 0\n[cluster.nodes.ports]\ntcp = 1\ntcp_replica = 2\n"
	c, _, err := load(t, text)
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.Render(Bound{TCP: "127.0.0.1:45678"})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(out), "-secret") {
		t.Fatal("secret written")
	}
	d, rep, err := load(t, string(out))
	if err != nil {
		t.Fatal(err)
	}
	if d.TCP.Address != "127.0.0.1:45678" || d.Cluster.Name != "mine" || len(d.Cluster.Nodes) != 1 || d.Cluster.Nodes[0].Ports != c.Cluster.Nodes[0].Ports {
		t.Fatalf("read back: %+v", d.Cluster)
	}
	if s := notes(rep); strings.Contains(s, "unknown") {
		t.Fatal(s)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add("[tcp]\naddress = \"x\"")
	f.Add(string(defaultsTOML))
	f.Add("[[cluster.nodes]]\nadvertised_addresses = [{client_cidr = 1}, 2]\n[[cluster.nodes.advertised_addresses]]\n")
	f.Fuzz(func(t *testing.T, text string) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, DefaultFile), []byte(text), 0o600); err != nil {
			t.Skip()
		}
		_, _, _ = Load(Options{Dir: dir, Environ: []string{}})
	})
}
