package cli

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/whippetmq/whippet/internal/cli/contexts"
	"github.com/whippetmq/whippet/internal/cli/output"
)

// contextCmd keeps connection options under names.
type contextCmd struct {
	List   contextListCmd   `cmd:"" name:"list" aliases:"l" help:"List the contexts; the active one has a star."`
	Use    contextUseCmd    `cmd:"" name:"use" aliases:"u" help:"Make a context the active one."`
	Create contextCreateCmd `cmd:"" name:"create" aliases:"c" help:"Keep the connection options given with this command under a name."`
	Show   contextShowCmd   `cmd:"" name:"show" aliases:"s" help:"Show what a context sets."`
	Delete contextDeleteCmd `cmd:"" name:"delete" aliases:"d" help:"Delete a context."`
}

// listMode is the flag of every list.
type listMode struct {
	Mode string `name:"list-mode" short:"l" enum:"table,list" default:"table" help:"table, or list: one record a line, fields separated by |."`
}

func (l listMode) list() bool { return l.Mode == "list" }

func (inv *invocation) contexts() (contexts.Store, error) {
	dir, err := contexts.Dir(inv.Getenv)
	return contexts.Store{Dir: dir}, err
}

type contextListCmd struct {
	listMode `embed:""`
}

type contextView struct {
	Name   string `json:"name"`
	Active bool   `json:"active"`
}

// Run lists the contexts.
func (c *contextListCmd) Run(inv *invocation) error {
	store, err := inv.contexts()
	if err != nil {
		return err
	}
	names, err := store.Names()
	if err != nil {
		return err
	}
	active, err := store.Active()
	if err != nil {
		return err
	}
	inv.out.Executing("list contexts")
	sheet := output.Sheet{Header: []string{"Name"}, List: c.list()}
	views := make([]contextView, 0, len(names))
	for _, n := range names {
		views = append(views, contextView{Name: n, Active: n == active})
		sheet.Rows = append(sheet.Rows, []string{starred(n, active)})
	}
	sheet.Doc = views
	inv.out.Sheet(sheet)
	return nil
}

func starred(name, active string) string {
	if name == active {
		return name + "*"
	}
	return name
}

type contextUseCmd struct {
	Name string `arg:"" name:"name" help:"Name of the context."`
}

// Run makes the context active.
func (c *contextUseCmd) Run(inv *invocation) error {
	store, err := inv.contexts()
	if err != nil {
		return err
	}
	inv.out.Executing("use context %s", c.Name)
	if err := store.Use(c.Name); err != nil {
		return missingContext(err)
	}
	inv.out.Done(contextView{Name: c.Name, Active: true}, "Active context set to %s", c.Name)
	if inv.Getenv(connectVariable) != "" {
		_, _ = fmt.Fprintf(inv.Stderr, "Note: %s is set and wins over the context: unset it to connect as the context says.\n", connectVariable)
	}
	return nil
}

func missingContext(err error) error {
	if errors.Is(err, contexts.ErrMissing) {
		return fmt.Errorf("%w; \"whippet context list\" shows those that do", err)
	}
	return err
}

type contextCreateCmd struct {
	Name string `arg:"" name:"name" help:"Name of the context: letters, digits, - and _."`
}

// Help says which options are kept.
func (c *contextCreateCmd) Help() string {
	return "Every connection option on the command line (--connect, --username, --tcp-server-address, ...) is kept; those left out keep their defaults."
}

// Run keeps the options that were given.
func (c *contextCreateCmd) Run(inv *invocation, kctx *kong.Context) error {
	store, err := inv.contexts()
	if err != nil {
		return err
	}
	if inv.given["connect"] {
		if _, err := parseConnect(inv.globals.Connect); err != nil {
			return err // now, not when the context is used
		}
	}
	o := contexts.Options{}
	for _, p := range kctx.Path {
		if p.Flag != nil && !p.Resolved && isConnectionOption(p.Flag) {
			o[strings.ReplaceAll(p.Flag.Name, "-", "_")] = kctx.FlagValue(p.Flag)
		}
	}
	inv.out.Executing("create context %s", c.Name)
	if err := store.Create(c.Name, o); err != nil {
		return err
	}
	inv.out.Done(contextView{Name: c.Name}, "Context %s created", c.Name)
	return nil
}

type contextShowCmd struct {
	Name string `arg:"" name:"name" help:"Name of the context."`
}

// Run shows the context, secrets hidden.
func (c *contextShowCmd) Run(inv *invocation) error {
	store, err := inv.contexts()
	if err != nil {
		return err
	}
	o, err := store.Get(c.Name)
	if err != nil {
		return missingContext(err)
	}
	active, err := store.Active()
	if err != nil {
		return err
	}
	inv.out.Executing("show context %s", c.Name)
	rows := [][]string{{"Name", starred(c.Name, active)}}
	doc := map[string]any{"name": c.Name, "active": c.Name == active}
	keys := make([]string, 0, len(o))
	for k := range o {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		v := o[k]
		switch k {
		case "password", "token", "encryption_key":
			v = hidden
		case "connect":
			v = hideSecret(fmt.Sprint(v))
		}
		rows = append(rows, []string{k, fmt.Sprint(v)})
		doc[k] = v
	}
	inv.out.Details("Property", "Value", rows, doc)
	return nil
}

const hidden = "********"

// hideSecret hides the password or the token of a connection string, or all of what is none.
func hideSecret(connect string) string {
	scheme, rest, ok := strings.Cut(connect, "://")
	at := strings.LastIndexByte(rest, '@')
	if !ok || at < 0 {
		return hidden
	}
	login := hidden
	if user, _, isUser := strings.Cut(rest[:at], ":"); isUser {
		login = user + ":" + hidden
	}
	return scheme + "://" + login + rest[at:]
}

type contextDeleteCmd struct {
	Name string `arg:"" name:"name" help:"Name of the context."`
}

// Run deletes the context.
func (c *contextDeleteCmd) Run(inv *invocation) error {
	store, err := inv.contexts()
	if err != nil {
		return err
	}
	inv.out.Executing("delete context %s", c.Name)
	if err := store.Delete(c.Name); err != nil {
		return missingContext(err)
	}
	inv.out.Done(map[string]any{"deleted": true, "name": c.Name}, "Context %s deleted", c.Name)
	return nil
}
