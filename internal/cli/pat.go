package cli

import (
	"errors"
	"time"

	"github.com/whippetmq/whippet/internal/cli/output"
	"github.com/whippetmq/whippet/internal/cli/secrets"
	"github.com/whippetmq/whippet/internal/cli/units"
)

// patCmd groups the commands about personal access tokens.
type patCmd struct {
	Create patCreateCmd `cmd:"" name:"create" aliases:"c" help:"Create a token; its secret is shown once."`
	Delete patDeleteCmd `cmd:"" name:"delete" aliases:"d" help:"Delete a token."`
	List   patListCmd   `cmd:"" name:"list" aliases:"l" help:"List your tokens."`
}

type patCreateCmd struct {
	Name   string   `arg:"" name:"name" help:"Name of the token, 3 to 30 bytes."`
	Expiry []string `arg:"" optional:"" name:"expiry" help:"How long it is valid; words are added up (1day 2h). Default: unlimited."`
	Store  bool     `name:"store-token" short:"s" help:"Keep the token here for --token-name instead of printing it."`
}

// tokenPlace is where tokens of this server are kept.
func (inv *invocation) tokenPlace() (secrets.Store, string, error) {
	address, err := inv.address()
	if err != nil {
		return secrets.Store{}, "", err
	}
	store, err := inv.secrets()
	return store, address, err
}

type tokenView struct {
	Name     string  `json:"name"`
	Token    string  `json:"token,omitempty"`
	ExpiryAt *uint64 `json:"expiry_at"`
}

// Run creates the token; in quiet mode it prints the secret and nothing else.
func (c *patCreateCmd) Run(inv *invocation) error {
	if c.Store && len(c.Expiry) > 0 {
		return badUsage("--store-token and an expiry exclude each other: a token that is kept does not expire")
	}
	expiry, err := units.ParseExpiry(c.Expiry)
	if err != nil {
		return badUsage("%v", err)
	}
	if expiry == units.Unlimited {
		expiry = 0
	}
	inv.out.Executing("create personal access token with name: %s", c.Name)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	token, err := conn.CreateToken(inv.ctx, c.Name, time.Duration(expiry)*time.Microsecond)
	if err != nil {
		return failed(err, "create personal access token %q", c.Name)
	}
	if c.Store {
		store, address, err := inv.tokenPlace()
		if err == nil {
			err = store.Set(tokenService(address), c.Name, token)
		}
		if err != nil {
			return errors.Join(err, conn.DeleteToken(inv.ctx, c.Name))
		}
		inv.out.Done(tokenView{Name: c.Name}, "Personal access token with name: %s created and kept for --token-name", c.Name)
		return nil
	}
	if inv.out.Quiet && !inv.out.JSON {
		inv.out.Always(token)
		return nil
	}
	inv.out.Done(tokenView{Name: c.Name, Token: token}, "Personal access token with name: %s created\nToken: %s", c.Name, token)
	return nil
}

type patDeleteCmd struct {
	Name string `arg:"" name:"name" help:"Name of the token."`
}

// Run deletes the token.
func (c *patDeleteCmd) Run(inv *invocation) error {
	inv.out.Executing("delete personal access token with name: %s", c.Name)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	if err := conn.DeleteToken(inv.ctx, c.Name); err != nil {
		return failed(err, "delete personal access token %q", c.Name)
	}
	store, address, err := inv.tokenPlace()
	if err == nil {
		err = store.Delete(tokenService(address), c.Name)
	}
	if err != nil {
		return err
	}
	inv.out.Done(deleted{Deleted: true, Name: c.Name}, "Personal access token with name: %s deleted", c.Name)
	return nil
}

type patListCmd struct {
	listMode `embed:""`
}

// Run lists the caller's tokens.
func (c *patListCmd) Run(inv *invocation) error {
	inv.out.Executing("list personal access tokens in %s mode", c.Mode)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	tokens, err := conn.Tokens(inv.ctx)
	if err != nil {
		return failed(err, "list personal access tokens")
	}
	views := make([]tokenView, 0, len(tokens))
	var rows [][]string
	for _, t := range tokens {
		view, text := tokenView{Name: t.Name}, "unlimited"
		if t.ExpiryAt != 0 {
			view.ExpiryAt, text = &t.ExpiryAt, units.TimeLocal(t.ExpiryAt)
		}
		views = append(views, view)
		rows = append(rows, []string{t.Name, text})
	}
	inv.out.Sheet(output.Sheet{Header: []string{"Name", "Token Expiry Time"}, Rows: rows, Doc: views, List: c.list()})
	return nil
}
