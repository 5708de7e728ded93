package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whippetmq/whippet/client"
)

// optionsOf gives the options of a client as a command line, WHIPPET_CONNECT and the active context say.
func optionsOf(t *testing.T, line, connect, context string) (client.Options, error) {
	t.Helper()
	dir := t.TempDir()
	if context != "" {
		for name, text := range map[string]string{"contexts.toml": "[ctx]\n" + context, ".active_context": "ctx"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	env := map[string]string{"IGGY_HOME": dir, connectVariable: connect}
	p := Process{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard, Getenv: func(k string) string { return env[k] }}
	g := &grammar{}
	parser, err := newParser(g, p)
	if err != nil {
		t.Fatal(err)
	}
	kctx, err := parser.Parse(expandShorts(parser.Model, strings.Fields(line)))
	if err != nil {
		return client.Options{}, err
	}
	inv := &invocation{Process: p, ctx: t.Context(), globals: &g.Globals}
	if err := inv.start(kctx); err != nil {
		return client.Options{}, err
	}
	return inv.options()
}

// The levels: command line, WHIPPET_CONNECT, active context, defaults; where the server is and who signs in are decided
// separately.
func TestConnectionLevels(t *testing.T) {
	const (
		env      = "iggy://env:env@env:1"
		separate = "username = \"ctx\"\npassword = \"ctx\"\ntcp_server_address = \"ctx:1\"\ntimeout = \"7s\"\n"
		text     = "connect = \"iggy://ctx:ctx@ctx:1?tls=true&tls_domain=d&tls_ca_file=f\"\ntimeout = \"7s\"\n"
	)
	for _, tt := range []struct {
		line, connect, context string
		want                   string // user:password or token @ address, then what is not the default
	}{
		{"me", "", "", "@127.0.0.1:8090"},
		{"me", env, "", "env:env@env:1"},
		{"me", "", separate, "ctx:ctx@ctx:1 7s"},
		{"me", "", text, "ctx:ctx@ctx:1 tls=d,f 7s"},
		{"me", env, separate, "env:env@env:1 7s"},
		{"me", env, separate + "tcp_tls_enabled = true\ntransport = \"quic\"\n", "env:env@env:1 7s"},
		{"me", env, text, "env:env@env:1 7s"},
		{"me", "", separate + text[:strings.Index(text, "timeout")] + "transport = \"quic\"\n", "ctx:ctx@ctx:1 tls=d,f 7s"},

		// The connection string of the command line decides both.
		{"me --connect iggy://a:b@c:1", env, text, "a:b@c:1 7s"},
		{"me --connect iggy://a:b@c:1", "", separate + "tcp_tls_enabled = true\n", "a:b@c:1 7s"},

		// Credentials replace all credentials and nothing else.
		{"me -u x -p y", env, "", "x:y@env:1"},
		{"me -u x -p y", "iggy://token@env:1", text, "x:y@env:1 7s"},
		{"me -u x -p y", "", text, "x:y@ctx:1 tls=d,f 7s"},
		{"me -u x -p y", "", "token = \"t\"\ntcp_server_address = \"ctx:1\"", "x:y@ctx:1"},
		{"me -t tok", env, "", "tok@env:1"},
		{"me -t tok", "", separate, "tok@ctx:1 7s"},

		// An address replaces the address.
		{"me --tcp-server-address x:2", env, "", "env:env@x:2"},
		{"me --tcp-server-address x:2", "", text, "ctx:ctx@x:2 tls=d,f 7s"},
		{"me --tcp-server-address x:2", "", separate, "ctx:ctx@x:2 7s"},
		{"me --tcp-server-address x:2 -u x -p y", env, text, "x:y@x:2 7s"},

		// The options of TLS leave the server as it is.
		{"me --tcp-tls-enabled", env, "", "env:env@env:1 tls=localhost,"},
		{"me --tcp-tls-enabled=false", "", text, "ctx:ctx@ctx:1 7s"},
		{"me --tcp-tls-domain=x", "", text, "ctx:ctx@ctx:1 tls=x,f 7s"},
		{"me --tcp-tls-domain=x", env, "", "env:env@env:1"},
		{"me --timeout 3s", env, separate, "env:env@env:1 3s"},
	} {
		o, err := optionsOf(t, tt.line, tt.connect, tt.context)
		if err != nil {
			t.Errorf("%q, %q, %q: %v", tt.line, tt.connect, tt.context, err)
			continue
		}
		got := o.Token
		if o.Username != "" {
			got = o.Username + ":" + o.Password
		}
		got += "@" + strings.Join(o.Addresses, ",")
		if o.TLS != nil {
			got += " tls=" + o.TLS.Domain + "," + o.TLS.CAFile
		}
		if s := o.RequestTimeout.String(); s != "30s" {
			got += " " + s
		}
		if got != tt.want {
			t.Errorf("%q, %q, %q:\n got %s\nwant %s", tt.line, tt.connect, tt.context, got, tt.want)
		}
	}
}

func TestConnectionRefusals(t *testing.T) {
	const full = "--connect iggy://a:b@c:1 me "
	for _, line := range []string{
		full + "-u x", full + "-p x", full + "-t x", full + "-n x", full + "--tcp-server-address x:1", full + "--tcp-tls-enabled",
		full + "--tcp-tls-domain x", full + "--transport tcp", "--connect= me", "me -p y", "me -u x -t y", "me --transport quic",
	} {
		_, err := optionsOf(t, line, "iggy://env:env@env:1", "")
		if ue := (*usageError)(nil); !errors.As(err, &ue) {
			t.Errorf("%q: %v", line, err)
		}
		if strings.HasPrefix(line, full) && !strings.Contains(err.Error(), "into the connection string") {
			t.Errorf("%q: %v", line, err)
		}
	}
}

// A number of retries and a pause on the command line win over those of WHIPPET_CONNECT.
func TestReconnectLevels(t *testing.T) {
	for line, want := range map[string]client.Reconnect{
		"me":                                  {Retries: 3, Interval: 2e9},
		"me --tcp-reconnection-max-retries 0": {Retries: -1, Interval: 2e9},
		"me --tcp-reconnection-max-retries unlimited --tcp-reconnection-interval 5s": {Interval: 5e9},
	} {
		o, err := optionsOf(t, line, "iggy://a:b@c:1?reconnection_retries=3&reconnection_interval=2s", "")
		if err != nil || o.Reconnect != want {
			t.Errorf("%q: %+v, %v", line, o.Reconnect, err)
		}
	}
}
