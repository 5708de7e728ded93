package client

import (
	"crypto/tls"
	"time"
)

// Defaults of [Options] (routing A.2; framing §3.1, §4.7).
const (
	DefaultAddress           = "127.0.0.1:8090"
	DefaultRequestTimeout    = 30 * time.Second
	DefaultDialTimeout       = 10 * time.Second
	DefaultHeartbeatInterval = 5 * time.Second
	DefaultReconnectInterval = time.Second
	DefaultMaxPending        = 256
	DefaultMaxUnanswered     = 8 << 20
	DefaultMaxReply          = 256 << 20
	DefaultInFlight          = 8
	DefaultMaxLinks          = 256
	DefaultMaxRoutes         = 16384
	DefaultAttemptTimeout    = 5 * time.Second
	DefaultIdleTimeout       = 5 * time.Minute

	// Name and Version are what the client tells the server about itself.
	Name    = "whippet-go"
	Version = "0.1.0"
)

// failoverDialTimeout bounds one dial while other addresses are known.
const failoverDialTimeout = 2 * time.Second

// Options configure a [Client]. The zero value of every field means its default.
type Options struct {
	// Addresses are "host:port"; the first is tried first. Default: DefaultAddress.
	Addresses []string

	// Username and Password, or Token (a personal access token), sign in after
	// every connect. With none of them the client connects without signing in:
	// then only [Client.Ping] and [Client.Login] work.
	Username, Password, Token string

	// TLS encrypts the connection when it is set.
	TLS *TLSOptions
	// Dialer opens the byte stream under a link. Default: TCP, with TLS when TLS
	// is set. A Dialer of the caller does its own TLS.
	Dialer Dialer
	// Nagle leaves Nagle's algorithm on (TCP_NODELAY off). The client writes whole
	// frames, so it is off by default.
	Nagle bool

	// DialTimeout bounds one dial, TLS handshake included; 2 s while several
	// addresses are known.
	DialTimeout time.Duration
	// RequestTimeout bounds one request, replays and reconnections included,
	// when the context has no earlier deadline.
	RequestTimeout time.Duration
	// HeartbeatInterval is the time between pings.
	HeartbeatInterval time.Duration
	// Reconnect says what happens when a connection is lost or cannot be made.
	Reconnect Reconnect

	// MaxPending and MaxUnanswered bound what is written and not answered on one
	// connection, in requests and in bytes. At the bound the caller waits.
	MaxPending    int
	MaxUnanswered int
	// MaxReply is the largest frame that is accepted, in bytes; a larger one ends
	// the connection.
	MaxReply int
	// InFlight is how many writes to one partition may be unanswered at a time,
	// at most 16. It applies to servers that declared the fence; others get one.
	InFlight int

	// NoRouting sends everything over the session, also in a cluster: a node that
	// does not lead a partition then forwards or refuses. The zero value routes: in
	// a cluster every partition's requests go to its primary over data links.
	NoRouting bool
	// MaxLinks and MaxRoutes bound the data links and the routes that are
	// remembered. At the bound things get slower, nothing fails.
	MaxLinks  int
	MaxRoutes int
	// AttemptTimeout is how long a data link may stay silent while it is asked,
	// before it is given up. IdleTimeout is when an unused data link is closed.
	AttemptTimeout time.Duration
	IdleTimeout    time.Duration

	// Hooks observe the client.
	Hooks []Hook

	// Name and Version are sent at sign-in. Default: Name and Version.
	Name, Version string
}

// Reconnect configures reconnection.
type Reconnect struct {
	// Disabled: a lost connection stays lost; requests fail.
	Disabled bool
	// Retries is how many passes over the addresses, an Interval apart, follow
	// the first one. 0 = unlimited, negative = none. The first pauses are
	// shorter: passes that this adds do not count.
	Retries int
	// Interval is the longest pause between two passes; pauses start short and
	// double, with jitter. Default 1 s.
	Interval time.Duration
	// ReestablishAfter, when it is not 0, is the least time between the starts of
	// two connections to one address.
	ReestablishAfter time.Duration
}

// TLSOptions configure TLS (framing §8.1).
type TLSOptions struct {
	// Domain is the server name to verify. Default: the host of the address.
	Domain string
	// CAFile is a PEM file with the roots to trust. Default: the system's roots.
	CAFile string
	// InsecureSkipVerify accepts any certificate. Only for tests.
	InsecureSkipVerify bool
	// Config, when set, is cloned and completed with the fields above.
	Config *tls.Config
}

// Option changes Options; see [Connect].
type Option func(*Options)

// WithHooks adds observers.
func WithHooks(h ...Hook) Option { return func(o *Options) { o.Hooks = append(o.Hooks, h...) } }

// WithDialer sets the dialer.
func WithDialer(d Dialer) Option { return func(o *Options) { o.Dialer = d } }

// WithRequestTimeout sets the time a request may take.
func WithRequestTimeout(d time.Duration) Option { return func(o *Options) { o.RequestTimeout = d } }

// WithReconnect sets what happens when a connection is lost.
func WithReconnect(r Reconnect) Option { return func(o *Options) { o.Reconnect = r } }

// WithCredentials sets user name and password.
func WithCredentials(username, password string) Option {
	return func(o *Options) { o.Username, o.Password, o.Token = username, password, "" }
}

// WithToken sets a personal access token.
func WithToken(token string) Option {
	return func(o *Options) { o.Username, o.Password, o.Token = "", "", token }
}

// WithAddresses sets the addresses to try.
func WithAddresses(addresses ...string) Option {
	return func(o *Options) { o.Addresses = addresses }
}

// WithRouting says whether requests for partitions go to their primaries (the
// default) or all over the session.
func WithRouting(on bool) Option { return func(o *Options) { o.NoRouting = !on } }

// With applies any change.
func With(f func(*Options)) Option { return f }

func (o *Options) withDefaults() Options {
	d := *o
	if len(d.Addresses) == 0 {
		d.Addresses = []string{DefaultAddress}
	}
	orDuration(&d.DialTimeout, DefaultDialTimeout)
	orDuration(&d.RequestTimeout, DefaultRequestTimeout)
	orDuration(&d.HeartbeatInterval, DefaultHeartbeatInterval)
	orDuration(&d.Reconnect.Interval, DefaultReconnectInterval)
	orInt(&d.MaxPending, DefaultMaxPending)
	orInt(&d.MaxUnanswered, DefaultMaxUnanswered)
	orInt(&d.MaxReply, DefaultMaxReply)
	orInt(&d.InFlight, DefaultInFlight)
	orInt(&d.MaxLinks, DefaultMaxLinks)
	orInt(&d.MaxRoutes, DefaultMaxRoutes)
	orDuration(&d.AttemptTimeout, DefaultAttemptTimeout)
	orDuration(&d.IdleTimeout, DefaultIdleTimeout)
	d.InFlight = min(d.InFlight, maxInFlight)
	if d.Name == "" {
		d.Name = Name
	}
	if d.Version == "" {
		d.Version = Version
	}
	return d
}

func orDuration(v *time.Duration, def time.Duration) {
	if *v <= 0 {
		*v = def
	}
}

func orInt(v *int, def int) {
	if *v <= 0 {
		*v = def
	}
}
