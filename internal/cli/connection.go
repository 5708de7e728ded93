package cli

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/internal/cli/contexts"
	"github.com/whippetmq/whippet/internal/cli/secrets"
	"github.com/whippetmq/whippet/internal/cli/units"
)

// How the options of a connection combine.
//
// Two things are decided, where the server is and who signs in, on four levels: the command line, WHIPPET_CONNECT, the
// active context, the defaults. --connect on the command line decides both. Without it the first of the other levels that
// says anything is the base, and options on the command line replace their part of it: --tcp-server-address the address,
// the options of TLS what is said of TLS, and any of the credentials all credentials.
//
// The parser's resolver finds the base; invocation.place and invocation.options lay the command line over it.

// connectVariable is the variable with a connection string.
const connectVariable = "WHIPPET_CONNECT"

// Options that say where the server is and who signs in. A connection string (connect) says both.
var (
	whereOptions = []string{"tcp-server-address", "transport", "tcp-tls-enabled", "tcp-tls-domain"}
	whoOptions   = []string{"username", "password", "token", "token-name"}
)

// given are the names of the options that stand on the command line.
type given map[string]bool

func givenIn(ctx *kong.Context) given {
	g := given{}
	for _, p := range ctx.Path {
		if p.Flag != nil && !p.Resolved {
			g[p.Flag.Name] = true
		}
	}
	return g
}

// first is the first of these options that is given, or "".
func (g given) first(names []string) string {
	for _, n := range names {
		if g[n] {
			return n
		}
	}
	return ""
}

// check refuses what a connection string beside it would contradict.
func (g given) check() error {
	if other := g.first(slices.Concat(whoOptions, whereOptions)); g["connect"] && other != "" {
		return badUsage("--%s is given beside --connect: put it into the connection string, iggy://user:password@host:port?tls=true", other)
	}
	return nil
}

// baseResolver gives the parser the base: what WHIPPET_CONNECT or else the active context says about options that are not
// on the command line.
type baseResolver struct {
	getenv func(string) string
	stderr io.Writer
	loaded bool
	values contexts.Options
	err    error
}

// contextError tells that the active context cannot be read.
type contextError struct{ err error }

func (e *contextError) Error() string { return e.err.Error() }

// Validate has nothing to check.
func (r *baseResolver) Validate(*kong.Application) error { return nil }

// Resolve looks the option up. Commands that need no connection ignore the base, so that a broken context can be repaired.
func (r *baseResolver) Resolve(ctx *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if !isConnectionOption(flag) || !usesConnection(ctx) {
		return nil, nil
	}
	g, connect := givenIn(ctx), r.getenv(connectVariable)
	decided := g["connect"] || connect != "" // where and who
	if !r.loaded {
		r.loaded = true
		if r.values, r.err = r.load(); r.err != nil && decided {
			_, _ = fmt.Fprintf(r.stderr, "Note: no context is used: %v\n", r.err)
			r.err = nil
		}
	}
	switch who := slices.Contains(whoOptions, flag.Name); {
	case r.err != nil:
		return nil, &contextError{r.err}
	case flag.Name == "connect" && connect != "":
		return connect, nil
	case who || slices.Contains(whereOptions, flag.Name):
		if decided || r.value("connect") != nil || who && g.first(whoOptions) != "" {
			return nil, nil
		}
	}
	return r.value(flag.Name), nil
}

// value of an option in the active context, or nil.
func (r *baseResolver) value(option string) any {
	if v, ok := r.values[strings.ReplaceAll(option, "-", "_")]; ok && v != "" {
		return fmt.Sprint(v)
	}
	return nil
}

func (r *baseResolver) load() (contexts.Options, error) {
	dir, err := contexts.Dir(r.getenv)
	if err != nil {
		return nil, nil //nolint:nilerr // no home directory: no contexts
	}
	store := contexts.Store{Dir: dir}
	active, err := store.Active()
	if err != nil {
		return nil, err
	}
	o, err := store.Get(active)
	if errors.Is(err, contexts.ErrMissing) {
		return nil, fmt.Errorf("the active context %q does not exist: choose another one with \"whippet context use NAME\"", active)
	}
	return o, err
}

// isConnectionOption reports whether a global flag belongs into a context.
func isConnectionOption(f *kong.Flag) bool {
	return f.Group != nil && f.Group.Key == "connection" || f.Hidden
}

// usesConnection reports whether the selected command connects to a server.
func usesConnection(ctx *kong.Context) bool {
	n := ctx.Selected()
	for n != nil && n.Parent != nil && n.Parent.Parent != nil {
		n = n.Parent
	}
	if n == nil {
		return false
	}
	switch n.Name {
	case "context", "completion", "version", "server", "up", "debug":
		return false
	}
	return true
}

// options are the client's options. Without a connection string credentials come in the order of the reference: those of
// a login session with the address, then explicit ones. A connection string leaves sessions alone.
func (inv *invocation) options() (client.Options, error) {
	if inv.globals.Connect == "" {
		if token := inv.cachedSession(inv.globals.TCPServerAddress); token != "" {
			o, err := inv.optionsWith(func(o *client.Options) error {
				o.Token = token
				return nil
			})
			inv.fromSession = err == nil
			return o, err
		}
	}
	return inv.explicitOptions()
}

// explicitOptions take the first of: token by name, token, user name, the variables.
func (inv *invocation) explicitOptions() (client.Options, error) {
	return inv.optionsWith(inv.credentials)
}

// optionsWith takes these credentials, unless a connection string has some and the command line none.
func (inv *invocation) optionsWith(credentials func(*client.Options) error) (client.Options, error) {
	g := inv.globals
	timeout, err := units.ParseDuration(g.Timeout)
	if err != nil || timeout == 0 || timeout > math.MaxInt64/1000 {
		return client.Options{}, badUsage("--timeout %q is not a duration above zero, such as 30s", g.Timeout)
	}
	// A wrong key is an error of every command, not only of those that use it: contexts keep keys.
	if _, err := newSealer(g.EncryptionKey); err != nil {
		return client.Options{}, err
	}
	o, err := inv.place()
	if err != nil {
		return o, err
	}
	if g.Connect == "" || inv.given.first(whoOptions) != "" {
		o.Username, o.Password, o.Token = "", "", ""
		if err := credentials(&o); err != nil {
			return o, err
		}
	}
	o.RequestTimeout = time.Duration(timeout) * time.Microsecond
	o.Name = "whippet-cli"
	if inv.trace != nil {
		o.Hooks = append(o.Hooks, inv.trace)
	}
	return o, nil
}

// place says where the server is and how to get there, with the credentials of the connection string when there is one.
func (inv *invocation) place() (o client.Options, err error) {
	g := inv.globals
	if g.Connect != "" || inv.given["connect"] {
		if o, err = parseConnect(g.Connect); err != nil {
			return o, err
		}
	}
	if g.Transport != "tcp" {
		return o, badUsage("the transport %s is not in this version: use tcp", g.Transport)
	}
	if g.Connect == "" || inv.given["tcp-server-address"] {
		if _, _, err := net.SplitHostPort(g.TCPServerAddress); err != nil {
			return o, badUsage("--tcp-server-address %q is not HOST:PORT", g.TCPServerAddress)
		}
		o.Addresses = []string{g.TCPServerAddress}
	}
	tls := o.TLS != nil
	if g.Connect == "" || inv.given["tcp-tls-enabled"] {
		tls = g.TCPTLSEnabled
	}
	switch {
	case !tls:
		o.TLS = nil
	case o.TLS == nil:
		o.TLS = &client.TLSOptions{Domain: g.TCPTLSDomain}
	case inv.given["tcp-tls-domain"]:
		o.TLS.Domain = g.TCPTLSDomain
	}
	// A connection string without a number of retries means no bound, but a command, other than a program, is not to wait
	// for ever for a server that is not there.
	if o.Reconnect.Retries == 0 || inv.given["tcp-reconnection-max-retries"] {
		if o.Reconnect.Retries, err = retries(g.TCPReconnectRetries); err != nil {
			return o, err
		}
	}
	if o.Reconnect.Interval == 0 || inv.given["tcp-reconnection-interval"] {
		interval, err := units.ParseDuration(g.TCPReconnectInterval)
		if err != nil || interval == 0 {
			return o, badUsage("--tcp-reconnection-interval %q is not a duration above zero, such as 1s", g.TCPReconnectInterval)
		}
		o.Reconnect.Interval = time.Duration(interval) * time.Microsecond
	}
	return o, nil
}

func parseConnect(connect string) (client.Options, error) {
	o, err := client.ParseConnectionString(connect)
	if err != nil {
		return o, badUsage("the connection string: %v", err)
	}
	return o, nil
}

// retries reads a number of retries into the form of the client's options, where 0 is unlimited.
func retries(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	switch {
	case s == "unlimited":
		return 0, nil
	case err != nil:
		return 0, badUsage("--tcp-reconnection-max-retries %q is neither a number nor unlimited", s)
	case n == 0:
		return -1, nil
	}
	return int(n), nil
}

// credentials fills in the first kind of credentials that there is, or none.
func (inv *invocation) credentials(o *client.Options) error {
	g := inv.globals
	kinds := 0
	for _, s := range []string{g.Username, g.Token, g.TokenName} {
		if s != "" {
			kinds++
		}
	}
	if kinds > 1 {
		return badUsage("--username, --token and --token-name exclude each other")
	}
	if g.Password != "" && g.Username == "" {
		return badUsage("--password needs --username")
	}
	switch {
	case g.TokenName != "":
		address := o.Addresses[0]
		store, err := inv.secrets()
		if err == nil {
			o.Token, err = store.Get(tokenService(address), g.TokenName)
		}
		if errors.Is(err, secrets.ErrMissing) {
			return fmt.Errorf("no token named %q is kept for %s: make one with \"whippet pat create --store-token %s\"", g.TokenName, address, g.TokenName)
		}
		return err
	case g.Token != "":
		o.Token = g.Token
	case g.Username != "":
		o.Username, o.Password = g.Username, g.Password
		if g.Password == "" {
			p, err := inv.secret("Password: ")
			if err != nil {
				return fmt.Errorf("read the password: %w", err)
			}
			o.Password = p
		}
	default:
		o.Username, o.Password = inv.Getenv("IGGY_USERNAME"), inv.Getenv("IGGY_PASSWORD")
		if o.Username == "" || o.Password == "" {
			o.Username, o.Password = "", ""
		}
	}
	return nil
}
