package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/charmbracelet/x/term"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/internal/cli/output"
	"github.com/whippetmq/whippet/internal/cli/secrets"
	"github.com/whippetmq/whippet/internal/cli/units"
	"github.com/whippetmq/whippet/wire"
)

// invocation is one run of one command: what the process gave, the global options, the printer, and the connection,
// which is made when the command first asks for it.
type invocation struct {
	Process
	ctx     context.Context
	globals *Globals
	model   *kong.Application
	out     *output.Printer

	stdin *bufio.Reader  // shared by all that read standard input
	conn  *client.Client // nil until connect
	trace *tracer        // nil without --debug

	fromSession bool // the credentials are those of a login session
}

// start checks the global options after parsing.
func (inv *invocation) start(*kong.Context) error {
	inv.stdin = bufio.NewReaderSize(newInterruptible(inv.ctx, inv.Stdin), 64<<10)
	if inv.globals.Debug == "" {
		return nil
	}
	t, err := openTrace(inv.globals.Debug)
	if err != nil {
		return err
	}
	inv.trace = t
	return nil
}

// close ends the connection and the trace.
func (inv *invocation) close() {
	if inv.conn != nil {
		// The session ends with its connection; a failure to say goodbye is nobody's concern.
		_ = inv.conn.Close()
	}
	if inv.trace != nil {
		inv.trace.close()
	}
}

// connect signs in, once; the command's other calls get the same client.
func (inv *invocation) connect() (*client.Client, error) {
	if inv.conn != nil {
		return inv.conn, nil
	}
	o, err := inv.options()
	if err != nil {
		return nil, err
	}
	if o.Token == "" && o.Username == "" {
		return nil, errMissingCredentials
	}
	c, err := inv.dial(o)
	if inv.fromSession && errors.Is(err, wire.ErrInvalidPersonalAccessToken) {
		return nil, inv.expiredSession(o.Addresses[0])
	}
	return c, err
}

// connectAnonymous connects without signing in, for commands that need no session.
func (inv *invocation) connectAnonymous() (*client.Client, error) {
	if inv.conn != nil {
		return inv.conn, nil
	}
	o, err := inv.options()
	if err != nil {
		return nil, err
	}
	o.Username, o.Password, o.Token = "", "", ""
	return inv.dial(o)
}

func (inv *invocation) dial(o client.Options) (*client.Client, error) {
	o.Hooks = append(o.Hooks, &patience{w: inv.Stderr, quiet: inv.globals.Quiet || inv.globals.JSON || o.Reconnect.Retries < 0})
	c, err := client.New(o)
	if err == nil {
		if err = c.Connect(inv.ctx); err != nil {
			_ = c.Close() // it never connected
		}
	}
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", strings.Join(o.Addresses, ", "), err)
	}
	inv.conn = c
	return c, nil
}

var errMissingCredentials = errors.New("missing credentials")

// advice is what a user can do about an error, or nothing.
func advice(err error) string {
	var le *client.LinkError
	switch {
	case errors.Is(err, errMissingCredentials):
		return "Give a connection string (--connect iggy://user:password@host:port, or WHIPPET_CONNECT), --username and --password, --token,\n" +
			"or set IGGY_USERNAME and IGGY_PASSWORD. A server started by \"whippet up\" takes: --connect iggy://iggy:iggy@127.0.0.1:8090"
	case errors.Is(err, context.Canceled):
		return ""
	case errors.Is(err, wire.ErrInvalidCredentials):
		return "The server does not know this user name and password. A server started without configured root credentials logs a generated password once."
	case errors.Is(err, wire.ErrUnauthorized):
		return "The user lacks a permission for this; \"whippet user get NAME\" shows what it may do."
	case errors.Is(err, wire.ErrFeatureUnavailable):
		return "This server does not offer the command."
	case errors.Is(err, wire.ErrInvalidOptionValue), errors.Is(err, wire.ErrUnsupportedOptionKey):
		return "\"whippet options topic\" lists the options of a topic and what they take."
	case errors.As(err, &le) && le.Op == "dial":
		return "Is a server running there? Start one with \"whippet up\", or give its address with --connect or --tcp-server-address."
	}
	return ""
}

// options are the client's options. Credentials come in the order of the reference: those of a login session with the
// address, then explicit ones. A connection string brings its own and leaves sessions alone.
func (inv *invocation) options() (client.Options, error) {
	if inv.connectionString() == "" {
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

// connectionString is that of the command line, or else, when no credentials are given there, of the environment.
func (inv *invocation) connectionString() string {
	g := inv.globals
	if g.Connect == "" && g.Username == "" && g.Token == "" && g.TokenName == "" {
		return inv.Getenv("WHIPPET_CONNECT")
	}
	return g.Connect
}

// optionsWith takes the connection string, or the separate options with these credentials.
func (inv *invocation) optionsWith(credentials func(*client.Options) error) (client.Options, error) {
	g := inv.globals
	timeout, err := units.ParseDuration(g.Timeout)
	if err != nil {
		return client.Options{}, badUsage("--timeout: %v", err)
	}
	// A wrong key is an error of every command, not only of those that use it: contexts keep keys.
	if _, err := newSealer(g.EncryptionKey); err != nil {
		return client.Options{}, err
	}
	var o client.Options
	if connect := inv.connectionString(); connect != "" {
		if o, err = client.ParseConnectionString(connect); err != nil {
			return o, badUsage("the connection string: %v", err)
		}
	} else if o, err = inv.separateOptions(); err != nil {
		return o, err
	} else if err := credentials(&o); err != nil {
		return o, err
	}
	if o.Reconnect.Retries == 0 && g.TCPReconnectRetries != "unlimited" {
		// A command, other than a program, is not to wait for ever for a server that is not there.
		if o.Reconnect.Retries, err = retries(g.TCPReconnectRetries); err != nil {
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

func (inv *invocation) separateOptions() (client.Options, error) {
	g := inv.globals
	var o client.Options
	if g.Transport != "tcp" {
		return o, badUsage("the transport %s is not in this version: use tcp", g.Transport)
	}
	if _, _, err := net.SplitHostPort(g.TCPServerAddress); err != nil {
		return o, badUsage("--tcp-server-address %q is not HOST:PORT", g.TCPServerAddress)
	}
	o.Addresses = []string{g.TCPServerAddress}
	if g.TCPTLSEnabled {
		o.TLS = &client.TLSOptions{Domain: g.TCPTLSDomain}
	}
	interval, err := units.ParseDuration(g.TCPReconnectInterval)
	if err != nil || interval == 0 {
		return o, badUsage("--tcp-reconnection-interval %q is not a duration above zero, such as 1s", g.TCPReconnectInterval)
	}
	o.Reconnect.Interval = time.Duration(interval) * time.Microsecond
	return o, nil
}

// retries reads a number of retries into the form of the client's options, where 0 is unlimited.
func retries(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	switch {
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
	given := 0
	for _, s := range []string{g.Username, g.Token, g.TokenName} {
		if s != "" {
			given++
		}
	}
	if given > 1 {
		return badUsage("--username, --token and --token-name exclude each other")
	}
	if g.Password != "" && g.Username == "" {
		return badUsage("--password needs --username")
	}
	switch {
	case g.TokenName != "":
		store, err := inv.secrets()
		if err == nil {
			o.Token, err = store.Get(tokenService(g.TCPServerAddress), g.TokenName)
		}
		if errors.Is(err, secrets.ErrMissing) {
			return fmt.Errorf("no token named %q is kept for %s: make one with \"whippet pat create --store-token %s\"", g.TokenName, g.TCPServerAddress, g.TokenName)
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

// secret asks for a secret on a terminal without showing it, else takes the next line of standard input.
func (inv *invocation) secret(prompt string) (string, error) {
	if f, ok := inv.Stdin.(*os.File); ok && term.IsTerminal(f.Fd()) {
		_, _ = fmt.Fprint(inv.Stderr, prompt)
		b, err := term.ReadPassword(f.Fd())
		_, _ = fmt.Fprintln(inv.Stderr)
		return string(b), err
	}
	line, err := inv.stdin.ReadString('\n')
	if err != nil && (!errors.Is(err, io.EOF) || line == "") {
		return "", err
	}
	return strings.TrimRight(line, "\r\n"), nil
}

// interactive reports whether w is a terminal.
func interactive(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(f.Fd())
}
