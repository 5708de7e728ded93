package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/charmbracelet/x/term"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/internal/cli/output"
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

	given       given // options that stand on the command line
	fromSession bool  // the credentials are those of a login session
}

// start checks the global options after parsing.
func (inv *invocation) start(kctx *kong.Context) error {
	inv.given = givenIn(kctx)
	if err := inv.given.check(); err != nil {
		return err
	}
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
	case errors.Is(err, wire.ErrInvalidCredentials):
		return "The server does not know this user name and password. A server started without configured root credentials logs a generated password once."
	case errors.Is(err, wire.ErrUnauthorized):
		return "The user lacks a permission for this; \"whippet user get NAME\" shows what it may do."
	case errors.Is(err, wire.ErrInvalidOptionValue), errors.Is(err, wire.ErrUnsupportedOptionKey):
		return "\"whippet options topic\" lists the options of a topic and what they take."
	case errors.As(err, &le) && le.Op == "dial":
		return "Is a server running there? Start one with \"whippet up\", or give its address with --connect or --tcp-server-address."
	}
	return ""
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
