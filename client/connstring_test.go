package client

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/whippetmq/whippet/wire"
)

func TestParseConnectionString(t *testing.T) {
	base := Options{Addresses: []string{"localhost:8090"}, Username: "user", Password: "secret"}
	with := func(f func(*Options)) Options {
		o := base
		f(&o)
		return o
	}
	good := []struct {
		in   string
		want Options
	}{
		{"iggy://user:secret@localhost:8090", base},
		{"iggy+tcp://user:secret@localhost:8090", base},
		{"iggy://iggypat-1234567890abcdef@localhost:1", Options{Addresses: []string{"localhost:1"}, Token: "iggypat-1234567890abcdef"}},
		{"iggy://user:secret@localhost:8090?tls=true&tls_domain=example.com&tls_ca_file=/ca.pem", with(func(o *Options) {
			o.TLS = &TLSOptions{Domain: "example.com", CAFile: "/ca.pem"}
		})},
		{"iggy://user:secret@localhost:8090?tls=false&tls_domain=example.com", base},
		{"iggy://user:secret@localhost:8090?tls=TRUE", base},
		{"iggy://user:secret@localhost:8090?reconnection_retries=5", with(func(o *Options) { o.Reconnect.Retries = 5 })},
		{"iggy://user:secret@localhost:8090?reconnection_retries=0", with(func(o *Options) { o.Reconnect.Retries = -1 })},
		{"iggy://user:secret@localhost:8090?reconnection_retries=unlimited", base},
		{"iggy://user:secret@localhost:8090?reconnection_interval=2s&reestablish_after=1m 30s&heartbeat_interval=500ms", with(func(o *Options) {
			o.Reconnect.Interval, o.Reconnect.ReestablishAfter, o.HeartbeatInterval = 2*time.Second, 90*time.Second, 500*time.Millisecond
		})},
		{"iggy://user:secret@localhost:8090?nodelay=true", base},
		{"iggy://user:secret@localhost:8090?nodelay=false", with(func(o *Options) { o.Nagle = true })},
	}
	for _, tt := range good {
		t.Run(tt.in, func(t *testing.T) {
			got, err := ParseConnectionString(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Fatalf("got %+v\nwant %+v", got, tt.want)
			}
		})
	}
	bad := []struct {
		in   string
		want wire.ErrorCode
	}{
		{"", wire.ErrInvalidConnectionString},
		{"user:secret@localhost:8090", wire.ErrInvalidConnectionString},
		{"iggy:/user:secret@localhost:8090", wire.ErrInvalidConnectionString},
		{"invalid://user:secret@localhost:8090", wire.ErrInvalidConnectionString},
		{"iggy+invalid://user:secret@localhost:8090", wire.ErrInvalidConnectionString},
		{"iggy+quic://user:secret@localhost:8080", wire.ErrInvalidConnectionString},
		{"iggy://iggy://user:secret@localhost:8090", wire.ErrInvalidConnectionString},
		{"iggy://user:secret@@localhost:8090", wire.ErrInvalidConnectionString},
		{"iggy://user:secret@localhost:8090@x", wire.ErrInvalidConnectionString},
		{"iggy://user:secret", wire.ErrInvalidConnectionString},
		{"iggy://:secret@localhost:8090", wire.ErrInvalidConnectionString},
		{"iggy://user:@localhost:8090", wire.ErrInvalidConnectionString},
		{"iggy://user:a:b@localhost:8090", wire.ErrInvalidConnectionString},
		{"iggy://@localhost:8090", wire.ErrInvalidConnectionString},
		{"iggy://user:secret@", wire.ErrInvalidConnectionString},
		{"iggy://user:secret@localhost", wire.ErrInvalidConnectionString},
		{"iggy://user:secret@:8090", wire.ErrInvalidConnectionString},
		{"iggy://user:secret@localhost:", wire.ErrInvalidConnectionString},
		{"iggy://user:secret@localhost:0", wire.ErrInvalidConnectionString},
		{"iggy://user:secret@localhost:65536", wire.ErrInvalidConnectionString},
		{"iggy://user:secret@localhost:-1", wire.ErrInvalidConnectionString},
		{"iggy://user:secret@[::1]:8090", wire.ErrInvalidConnectionString},
		{"iggy://user:secret@localhost:8090?", wire.ErrInvalidConnectionString},
		{"iggy://user:secret@localhost:8090?tls", wire.ErrInvalidConnectionString},
		{"iggy://user:secret@localhost:8090?tls=true=x", wire.ErrInvalidConnectionString},
		{"iggy://user:secret@localhost:8090?tls=true?x=y", wire.ErrInvalidConnectionString},
		{"iggy://user:secret@localhost:8090?unknown=1", wire.ErrInvalidConnectionString},
		{"iggy://user:secret@localhost:8090?reconnection_interval=0s", wire.ErrInvalidConnectionString},
		{"iggy://user:secret@localhost:8090?heartbeat_interval=5", wire.ErrInvalidConnectionString},
		{"iggy://user:secret@localhost:8090?heartbeat_interval=", wire.ErrInvalidConnectionString},
		{"iggy://user:secret@localhost:8090?reconnection_retries=many", wire.ErrInvalidNumberValue},
		{"iggy://user:secret@localhost:8090?reconnection_retries=-1", wire.ErrInvalidNumberValue},
		{"iggy://user:secret@localhost:8090?reconnection_retries=4294967296", wire.ErrInvalidNumberValue},
	}
	for _, tt := range bad {
		t.Run("bad "+tt.in, func(t *testing.T) {
			if _, err := ParseConnectionString(tt.in); !errors.Is(err, tt.want) {
				t.Fatalf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestHumanDurations(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"5s": 5 * time.Second, "1h 30m": 90 * time.Minute, "1h30m": 90 * time.Minute, "2days": 48 * time.Hour, "7 days": 168 * time.Hour,
		"100us": 100 * time.Microsecond, "3 msec": 3 * time.Millisecond,
	} {
		if got, ok := parseHumanDuration(in); !ok || got != want {
			t.Errorf("%q: %v %v, want %v", in, got, ok, want)
		}
	}
	for _, in := range []string{"", "5", "s", "5 parsecs", "1h -3m", "99999999999999999999s", "9999999999 weeks"} {
		if got, ok := parseHumanDuration(in); ok {
			t.Errorf("%q: %v", in, got)
		}
	}
}
