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

// isConnectionOption reports whether a global flag belongs into a context.
func isConnectionOption(f *kong.Flag) bool {
	return f.Group != nil && f.Group.Key == "connection" || f.Hidden
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
		case "password", "token", "encryption_key", "connect":
			v = "********"
		}
		rows = append(rows, []string{k, fmt.Sprint(v)})
		doc[k] = v
	}
	inv.out.Details("Property", "Value", rows, doc)
	return nil
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

// contextResolver gives the parser what the active context says about options that are not on the command line.
type contextResolver struct {
	getenv func(string) string
	loaded bool
	values contexts.Options
	err    error
}

// Validate has nothing to check.
func (r *contextResolver) Validate(*kong.Application) error { return nil }

// Resolve looks the option up in the active context. Commands that need no connection ignore contexts, so that a
// broken one can be repaired.
func (r *contextResolver) Resolve(ctx *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if !isConnectionOption(flag) || !usesConnection(ctx) || ctx.Model.Node.Flags == nil {
		return nil, nil
	}
	if !r.loaded {
		r.loaded = true
		r.values, r.err = r.load()
	}
	if r.err != nil {
		return nil, r.err
	}
	v, ok := r.values[strings.ReplaceAll(flag.Name, "-", "_")]
	if !ok || overridden(ctx, flag.Name) {
		return nil, nil
	}
	return fmt.Sprint(v), nil
}

func (r *contextResolver) load() (contexts.Options, error) {
	dir, err := contexts.Dir(r.getenv)
	if err != nil {
		return nil, nil // no home directory: no contexts
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

// overridden reports whether the command line decides what this option of a context would decide: credentials
// replace all credentials of the context, and an address its connection string.
func overridden(ctx *kong.Context, option string) bool {
	groups := [][]string{
		{"connect", "username", "password", "token", "token-name"},
		{"connect", "tcp-server-address", "transport"},
	}
	for _, g := range groups {
		in := false
		for _, name := range g {
			in = in || name == option
		}
		if !in {
			continue
		}
		for _, p := range ctx.Path {
			if p.Flag == nil || p.Resolved {
				continue
			}
			for _, name := range g {
				if p.Flag.Name == name {
					return true
				}
			}
		}
	}
	return false
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
