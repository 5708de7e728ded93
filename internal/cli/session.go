package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/whippetmq/whippet/internal/cli/contexts"
	"github.com/whippetmq/whippet/internal/cli/secrets"
	"github.com/whippetmq/whippet/internal/cli/units"
	"github.com/whippetmq/whippet/wire"
)

// A login session is a personal access token of this name on the server, kept here between commands.
const (
	sessionToken  = "iggy-cli-session"
	sessionExpiry = 15 * time.Minute
)

func sessionService(address string) string { return sessionToken + ":" + address }

func tokenService(address string) string { return "iggy:" + address }

// secrets are the tokens that are kept between commands.
func (inv *invocation) secrets() (secrets.Store, error) {
	dir, err := contexts.Dir(inv.Getenv)
	return secrets.Store{Dir: dir}, err
}

// cachedSession is the token of the login session with an address, or "".
func (inv *invocation) cachedSession(address string) string {
	store, err := inv.secrets()
	if err != nil {
		return ""
	}
	token, err := store.Get(sessionService(address), sessionToken)
	if err != nil && !errors.Is(err, secrets.ErrMissing) {
		_, _ = fmt.Fprintf(inv.Stderr, "Note: %v\n", err)
	}
	return token
}

// expiredSession forgets a login session that the server no longer takes, and says so.
func (inv *invocation) expiredSession(address string) error {
	store, err := inv.secrets()
	if err == nil {
		err = store.Delete(sessionService(address), sessionToken)
	}
	return errors.Join(fmt.Errorf("the login session with %s has expired: log in again with \"whippet login\"", address), err)
}

// loginCmd keeps a session on the server for the next commands.
type loginCmd struct {
	Expiry []string `arg:"" optional:"" name:"expiry" help:"How long the session is valid (15 minutes); words are added up. none: it never ends."`
}

type sessionView struct {
	Address string `json:"server_address"`
	Active  bool   `json:"active"`
}

// Run signs in and keeps a token.
func (c *loginCmd) Run(inv *invocation) error {
	expiry := sessionExpiry
	if len(c.Expiry) > 0 {
		us, err := units.ParseExpiry(c.Expiry)
		if err != nil {
			return badUsage("%v", err)
		}
		if us == units.Unlimited {
			us = 0
		}
		expiry = time.Duration(us) * time.Microsecond
	}
	store, err := inv.secrets()
	if err != nil {
		return err
	}
	inv.out.Executing("login command")
	o, err := inv.explicitOptions()
	if err != nil {
		return err
	}
	address := o.Addresses[0]
	if token := inv.cachedSession(address); token != "" {
		again := o
		again.Username, again.Password, again.Token = "", "", token
		if _, err := inv.dial(again); err == nil {
			inv.out.Done(sessionView{address, true}, "Already logged into %s; \"whippet logout\" ends the session", address)
			return nil
		}
	}
	if o.Token == "" && o.Username == "" {
		return errMissingCredentials
	}
	conn, err := inv.dial(o)
	if err != nil {
		return err
	}
	token, err := conn.CreateToken(inv.ctx, sessionToken, expiry)
	if errors.Is(err, wire.ErrPersonalAccessTokenAlreadyExists) {
		// The token of an earlier session whose secret is lost here.
		if err = conn.DeleteToken(inv.ctx, sessionToken); err == nil {
			token, err = conn.CreateToken(inv.ctx, sessionToken, expiry)
		}
	}
	if err != nil {
		return failed(err, "log in to %s", address)
	}
	if err := store.Set(sessionService(address), sessionToken, token); err != nil {
		return errors.Join(err, conn.DeleteToken(inv.ctx, sessionToken))
	}
	inv.out.Done(sessionView{address, true}, "Successfully logged into %s", address)
	return nil
}

// logoutCmd ends the session that login made.
type logoutCmd struct{}

// Run deletes the token on the server and here.
func (c *logoutCmd) Run(inv *invocation) error {
	store, err := inv.secrets()
	if err != nil {
		return err
	}
	inv.out.Executing("logout command")
	address, err := inv.address()
	if err != nil {
		return err
	}
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	if err := conn.DeleteToken(inv.ctx, sessionToken); err != nil && !errors.Is(err, wire.ErrResourceNotFound) {
		return failed(err, "log out of %s", address)
	}
	if err := store.Delete(sessionService(address), sessionToken); err != nil {
		return err
	}
	inv.out.Done(sessionView{address, false}, "Successfully logged out from %s", address)
	return nil
}

// sessionCmd groups the commands about the login session.
type sessionCmd struct {
	Status sessionStatusCmd `cmd:"" name:"status" aliases:"s" help:"Tell whether a login session is kept for the server."`
}

type sessionStatusCmd struct{}

// Run looks for a kept token; it does not ask the server.
func (c *sessionStatusCmd) Run(inv *invocation) error {
	address, err := inv.address()
	if err != nil {
		return err
	}
	inv.out.Executing("session status command")
	active := inv.cachedSession(address) != ""
	text := "No"
	if active {
		text = "Yes (token presence only, the server was not asked)"
	}
	inv.out.Details("Property", "Value", [][]string{{"Server Address", address}, {"Session Active", text}}, sessionView{address, active})
	return nil
}

// address is where the options say that the server is.
func (inv *invocation) address() (string, error) {
	o, err := inv.place()
	if err != nil {
		return "", err
	}
	return o.Addresses[0], nil
}
