package cli

import (
	"fmt"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/whippetmq/whippet/internal/cli/output"
)

// helpFlag prints help where it is met and ends parsing. -h lists the command's own flags, --help also those of the
// connection.
type helpFlag bool

// IgnoreDefault keeps the hook from running when the flag was not given.
func (helpFlag) IgnoreDefault() {}

// BeforeReset is called by the parser as soon as it knows the command, before anything is checked.
func (helpFlag) BeforeReset(ctx *kong.Context, p *Process) error {
	if err := printHelp(ctx, slices.Contains(p.Args, "--help")); err != nil {
		return err
	}
	return errShown
}

// versionFlag prints the version and ends parsing.
type versionFlag bool

// IgnoreDefault keeps the hook from running when the flag was not given.
func (versionFlag) IgnoreDefault() {}

// BeforeReset is called by the parser when it has met the flag.
func (versionFlag) BeforeReset(ctx *kong.Context, p *Process) error {
	if givenIn(ctx)["json"] {
		(&output.Printer{W: p.Stdout, JSON: true}).Document(versionDocument(p.Version))
		return errShown
	}
	_, _ = fmt.Fprintf(p.Stdout, "whippet %s\n", p.Version)
	return errShown
}

func printHelp(ctx *kong.Context, long bool) error {
	selected := ctx.Selected()
	if !long && selected != nil {
		for _, f := range ctx.Model.Flags {
			if f.Group != nil {
				f.Hidden = true
			}
		}
	}
	// The letters of global options are shown where the command leaves them free.
	for _, f := range ctx.Model.Flags {
		for letter, name := range globalShorts {
			if f.Name == name && (selected == nil || flagShort(selected, letter) == nil) {
				f.Short = letter
			}
		}
	}
	return kong.DefaultHelpPrinter(kong.HelpOptions{
		Compact: true, NoExpandSubcommands: true, WrapUpperBound: 120, FlagsLast: true, ValueFormatter: plainHelp,
	}, ctx)
}

// plainHelp is the help text of a flag, with the variable that sets it.
func plainHelp(v *kong.Value) string {
	if len(v.Tag.Envs) == 0 {
		return v.Help
	}
	return fmt.Sprintf("%s ($%s)", v.Help, v.Tag.Envs[0])
}

// overview is what the command prints without arguments.
func overview(parser *kong.Kong, p Process) {
	_, _ = fmt.Fprint(p.Stdout, banner, "\n")
	if ctx, err := kong.Trace(parser, nil); err == nil {
		_ = printHelp(ctx, false)
	}
}

const banner = `
 __      __.__    .__                      __
/  \    /  \  |__ |__|_____ ______   _____/  |_
\   \/\/   /  |  \|  \____ \\____ \_/ __ \   __\
 \        /|   Y  \  |  |_> >  |_> >  ___/|  |
  \__/\  / |___|  /__|   __/|   __/ \___  >__|
       \/       \/   |__|   |__|        \/
`
