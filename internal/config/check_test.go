package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// One mistake is one problem: it names the key that was set, with the value as it was written, and nothing is said of
// other keys that would be right beside a right value.
func TestOneMistakeIsOneProblem(t *testing.T) {
	good, short := strings.Repeat("x", 32), strings.Repeat("x", 31)
	node := func(i, id, ip, auth string) string {
		return "[[cluster.nodes]]\nname = \"" + i + "\"\nip = " + ip + "\nreplica_id = " + id + "\nports = { tcp = 1, tcp_replica = 2 }\n" + auth
	}
	on := "[cluster]\nenabled = true\n"
	zero := 0
	for _, tt := range []struct {
		name, text string
		env        []string
		id         *int
		want       string
	}{
		{"window", "quic.receive_window = \"8 GiB\"", nil, nil, `quic.receive_window (whippet.toml:1): got "8 GiB", takes a size from 1 B to 4294967295 B, such as 64 MiB`},
		{"frame", "websocket.max_message_size = \"1 TiB\"", nil, nil, `websocket.max_message_size (whippet.toml:1): got "1 TiB", takes a size from 256 B to 256 MiB, such as 64 MiB`},
		{"bus", "websocket.max_message_size = \"1 MiB\"\nwebsocket.max_frame_size = \"1 MiB\"\nmessage_bus.max_message_size = \"x\"", nil, nil, `message_bus.max_message_size (whippet.toml:3): got "x", takes a size from 64 KiB to 256 MiB, such as 64 MiB`},
		{"total", "logging.max_total_size = \"-1\"", nil, nil, `logging.max_total_size (whippet.toml:1): got "-1", takes a size from 0 B to 1024 TiB, such as 64 MiB`},
		{"cleaner", "data_maintenance.messages.interval = 5", nil, nil, `data_maintenance.messages.interval (whippet.toml:1): got 5, takes a duration such as 10 s or 500 ms`},
		{"cleaner without a pause", "data_maintenance.messages.interval = \"0 m\"", nil, nil, `data_maintenance.messages.interval (whippet.toml:1): got "0 m", takes a duration above zero while the cleaner is enabled`},
		{"transport", "tcp.enabled = \"no\"", nil, nil, `tcp.enabled (whippet.toml:1): got "no", takes true or false`},
		{"self-signed", "tcp.tls.enabled = true\ntcp.tls.self_signed = \"yes\"", nil, nil, `tcp.tls.self_signed (whippet.toml:2): got "yes", takes true or false`},

		{"larger file", "logging.max_file_size = \"5 GB\"", nil, nil, `logging.max_file_size (whippet.toml:1): got "5 GB", takes at most logging.max_total_size (4 GB)`},
		{"smaller total", "", []string{"IGGY_LOGGING_MAX_TOTAL_SIZE=5 MB"}, nil, `logging.max_total_size (IGGY_LOGGING_MAX_TOTAL_SIZE): got "5 MB", takes at least logging.max_file_size (500 MB)`},
		{"both set", "logging.max_file_size = 7000000\nlogging.max_total_size = \"5 MB\"", nil, nil, `logging.max_file_size (whippet.toml:1): got 7000000, takes at most logging.max_total_size (5 MB)`},
		{"smaller window", "quic.receive_window = \"1 MiB\"", nil, nil, `quic.receive_window (whippet.toml:1): got "1 MiB", takes at least quic.stream_receive_window (64 MiB)`},
		{"larger stream window", "quic.stream_receive_window = \"65 MiB\"", nil, nil, `quic.stream_receive_window (whippet.toml:1): got "65 MiB", takes at most quic.receive_window (64 MiB)`},
		{"smaller message", "websocket.max_message_size = \"1 MiB\"", nil, nil, `websocket.max_message_size (whippet.toml:1): got "1 MiB", takes at least websocket.max_frame_size (16 MiB)`},
		{"late heartbeat", on + "heartbeat_timeout = \"40 s\"\n" + node("a", "0", `"127.0.0.1"`, ""), nil, &zero, `cluster.heartbeat_timeout (whippet.toml:3): got "40 s", takes less than consumer_group.session_timeout (30 s)`},

		{"key of what is off", "encryption.key = \"abc\"", nil, nil, `encryption.key (whippet.toml:1): got ******, takes base64 of 32 bytes`},
		{"key of what is off, variable", "", []string{"IGGY_ENCRYPTION_KEY=abc"}, nil, `encryption.key (IGGY_ENCRYPTION_KEY): got ******, takes base64 of 32 bytes`},
		{"secret of what is off", "cluster.auth.shared_secret = \"" + short + "\"", nil, nil, `cluster.auth.shared_secret (whippet.toml:1): got ******, takes at least 32 bytes`},
		{"secrets of what is off, variables", "", []string{"IGGY_CLUSTER_AUTH_SHARED_SECRET=" + good, "IGGY_CLUSTER_AUTH_PREVIOUS_SHARED_SECRET=" + short}, nil, `cluster.auth.previous_shared_secret (IGGY_CLUSTER_AUTH_PREVIOUS_SHARED_SECRET): got ******, takes at least 32 bytes`},
		{"short secret of a cluster", on + node("a", "0", `"10.0.0.1"`, "[cluster.auth]\nenabled = true\nshared_secret = \"abc\""), nil, &zero, `cluster.auth.shared_secret (whippet.toml:10): got ******, takes at least 32 bytes`},

		{"encryption", "encryption.enabled = true", nil, nil, `encryption.enabled (whippet.toml:1): got true, takes false: this version does not offer encryption at rest`},
		{"telemetry", "", []string{"IGGY_TELEMETRY_ENABLED=true"}, nil, `telemetry.enabled (IGGY_TELEMETRY_ENABLED): got true, takes false: this version does not offer telemetry export`},
		{"no transport", "[tcp]\nenabled = false", nil, nil, `tcp.enabled (whippet.toml:2): got false, takes true: TCP is the only transport of this version`},

		{"id", on + node("a", `"x"`, `"127.0.0.1"`, "") + node("b", "0", `"127.0.0.2"`, ""), nil, &zero, `cluster.nodes.0.replica_id (whippet.toml:6): got "x", takes a whole number from 0 to 254`},
		{"ip", on + node("a", "0", `"0.0.0.0"`, ""), nil, &zero, `cluster.nodes.0.ip (whippet.toml:5): got "0.0.0.0", takes a literal IP address of this node`},
		{"ip of another type", on + node("a", "0", "[1]", ""), nil, &zero, `cluster.nodes.0.ip (whippet.toml:5): got an array, takes a text`},
		{"ports", on + strings.Replace(node("a", "0", `"127.0.0.1"`, ""), "tcp = 1", "tcp = 0", 1), nil, &zero, `cluster.nodes.0.ports.tcp (whippet.toml:7): got 0, takes a whole number from 1 to 65535`},
		{"no name", on + strings.Replace(node("a", "0", `"127.0.0.1"`, ""), "name =", "nmae =", 1), nil, &zero, `cluster.nodes.0.name (whippet.toml:3): got nothing, takes a name that no other node has`},
		{"variables instead of a file", on + node("a", "0", `"127.0.0.1"`, ""), []string{
			"IGGY_CLUSTER_NODES_0_NAME=a", "IGGY_CLUSTER_NODES_0_IP=127.0.0.1", "IGGY_CLUSTER_NODES_0_REPLICA_ID=0", "IGGY_CLUSTER_NODES_0_PORTS_TCP=1",
		}, &zero, `cluster.nodes.0.ports.tcp_replica (IGGY_CLUSTER_NODES_*): got nothing, takes a whole number from 1 to 65535`},
		{"roster", "[cluster]\nenabled = true\nnodes = 5", nil, &zero, `cluster.nodes (whippet.toml:3): got 5, takes an array of tables, [[cluster.nodes]]`},
		{"authentication", on + node("a", "0", `"10.0.0.1"`, "[cluster.auth]\nenabled = 1\nshared_secret = \""+good+"\""), nil, &zero, `cluster.auth.enabled (whippet.toml:9): got 1, takes true or false`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, DefaultFile), []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, _, err := Load(Options{Dir: dir, Environ: append([]string{}, tt.env...), ReplicaID: tt.id})
			if err == nil || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

// TLS files that cannot be used are told with the key that names them, before anything is opened; a configuration made
// in code is told the same.
func TestFilesOfTLS(t *testing.T) {
	dir := t.TempDir()
	gone, junk := filepath.Join(dir, "gone.pem"), filepath.Join(dir, "junk.pem")
	if err := os.WriteFile(junk, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster := "[cluster]\nenabled = true\n[[cluster.nodes]]\nname = \"a\"\nip = \"127.0.0.1\"\nreplica_id = 0\nports = { tcp = 1, tcp_replica = 2 }\n" +
		"[cluster.auth]\nenabled = true\nshared_secret = \"" + strings.Repeat("x", 32) + "\"\n[cluster.tls]\nenabled = true\n"
	for _, tt := range []struct {
		name, text string
		want       []string // the problems, one a line; none = fine
	}{
		{"off", "[tcp.tls]\ncert_file = \"" + gone + "\"", nil},
		{"made at the start", "[tcp.tls]\nenabled = true\ncert_file = \"" + gone + "\"", nil},
		{"gone", "[tcp.tls]\nenabled = true\nself_signed = false\ncert_file = \"" + gone + "\"\nkey_file = \"" + gone + "\"", []string{
			`tcp.tls.cert_file (whippet.toml:4): got "` + gone + `", takes the file of a certificate (PEM) while tcp.tls.enabled is true: open ` + gone + `: no such`,
			`tcp.tls.key_file (whippet.toml:5): got "` + gone + `", takes the file of its private key (PEM) while tcp.tls.enabled is true: open ` + gone + `: no such`,
		}},
		{"junk", "[tcp.tls]\nenabled = true\ncert_file = \"" + junk + "\"\nkey_file = \"" + junk + "\"", []string{
			`tcp.tls.cert_file (whippet.toml:3): got "` + junk + `", takes the file of a certificate (PEM) whose private key is in tcp.tls.key_file ("` + junk + `"): tls: `,
		}},
		{"cluster, made at the start", cluster + "self_signed = true", nil},
		{"cluster, no authority", cluster + "cert_file = \"" + gone + "\"\nkey_file = \"" + junk + "\"", []string{
			`cluster.tls.ca_file: got nothing, takes the file of the authority (PEM) that signed cluster.tls.cert_file while cluster.tls.self_signed is false`,
			`cluster.tls.cert_file (whippet.toml:13): got "` + gone + `"`,
		}},
		{"cluster, authority gone", cluster + "self_signed = true\nca_file = \"" + gone + "\"", []string{
			`cluster.tls.ca_file (whippet.toml:14): got "` + gone + `", takes the file of the authority (PEM) that signed cluster.tls.cert_file: open ` + gone + `: no such`,
		}},
		{"cluster, authority is junk", cluster + "self_signed = true\nca_file = \"" + junk + "\"", []string{
			`cluster.tls.ca_file (whippet.toml:14): got "` + junk + `", takes the file of the authority (PEM) that signed cluster.tls.cert_file: it holds no certificate`,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, id := t.TempDir(), 0
			if err := os.WriteFile(filepath.Join(dir, DefaultFile), []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, _, err := Load(Options{Dir: dir, Environ: []string{}, ReplicaID: &id})
			if len(tt.want) == 0 {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil {
				t.Fatal("accepted")
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(tt.want) {
				t.Fatalf("%d problems, not %d:\n%v", len(lines), len(tt.want), err)
			}
			for i, w := range tt.want {
				if !strings.HasPrefix(lines[i], w) {
					t.Errorf("got  %s\nwant %s", lines[i], w)
				}
			}
		})
	}

	c := Default()
	c.TCP.TLS = TLS{Enabled: true, CertFile: junk, KeyFile: gone}
	var p *Problem
	if err := c.Usable(); !errors.As(err, &p) || p.Key != "tcp.tls.key_file" {
		t.Errorf("made in code: %v", err)
	}
	if err := Default().Usable(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}

// A size is shown as a person would write it, and reads back.
func TestSizesAsWritten(t *testing.T) {
	for _, want := range []string{"0 B", "1 B", "1200 B", "64 MiB", "500 MB", "4 GB", "4 GiB", "1024 TiB", "1000 KiB", "4294967295 B"} {
		b, err := ParseSize(want)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.String(); got != want {
			t.Errorf("%d is shown as %s, not as %s", int64(b), got, want)
		}
	}
}
