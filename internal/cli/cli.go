package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/whippetmq/whippet/internal/cli/output"
)

// Exit codes.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

// Process is what a command line gets from its process.
type Process struct {
	Args    []string // without the program's name
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	Getenv  func(string) string
	Version string // of the build, "dev" when empty
}

// Run parses the arguments, runs the command and returns the exit code. The context ends a command early (Ctrl-C);
// commands that run until then, such as up, treat its end as the normal way to stop.
func Run(ctx context.Context, p Process) int {
	if p.Version == "" {
		p.Version = "dev"
	}
	if p.Getenv == nil {
		p.Getenv = os.Getenv
	}
	if len(p.Args) > 0 && p.Args[0] == "help" {
		p.Args = append(slices.Clone(p.Args[1:]), "--help")
	}
	g := &grammar{}
	parser, err := newParser(g, p)
	if err != nil { // a mistake in the grammar itself: a test parses it
		return fail(p.Stderr, err)
	}
	switch {
	case len(p.Args) == 0:
		overview(parser, p)
		return exitOK
	case p.Args[0] == completeCommand:
		complete(p.Stdout, parser.Model, p.Args[1:])
		return exitOK
	}
	kctx, err := parser.Parse(expandShorts(parser.Model, p.Args))
	var broken *contextError
	switch {
	case errors.Is(err, errShown):
		return exitOK
	case errors.As(err, &broken):
		return fail(p.Stderr, broken.err) // without what the parser says in front of it
	case err != nil:
		var node *kong.Node
		if pe := (*kong.ParseError)(nil); errors.As(err, &pe) && pe.Context != nil {
			node = pe.Context.Selected()
		}
		return usage(p.Stderr, node, aboutNumbers(err))
	}

	inv := &invocation{
		Process: p,
		ctx:     ctx,
		globals: &g.Globals,
		model:   parser.Model,
		out:     &output.Printer{W: p.Stdout, Quiet: g.Quiet, JSON: g.JSON},
	}
	defer inv.close()
	if err := inv.start(kctx); err != nil {
		return finish(p.Stderr, kctx.Selected(), err)
	}
	err = kctx.Run(inv)
	switch {
	case err == nil:
		err = inv.out.Err()
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		err = errInterrupted // whatever it was doing then
	}
	return finish(p.Stderr, kctx.Selected(), err)
}

// finish reports how the command of node ended.
func finish(stderr io.Writer, node *kong.Node, err error) int {
	var ue *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &ue):
		return usage(stderr, node, err)
	}
	return fail(stderr, err)
}

func fail(stderr io.Writer, err error) int {
	_, _ = fmt.Fprintf(stderr, "Error: %s\n", output.Escape(err.Error()))
	if hint := advice(err); hint != "" {
		_, _ = fmt.Fprintf(stderr, "%s\n", hint)
	}
	return exitError
}

// usage reports a mistake in the arguments of the command of node, or of no command that is known.
func usage(stderr io.Writer, node *kong.Node, err error) int {
	_, _ = fmt.Fprintf(stderr, "Error: %s\n", output.Escape(err.Error()))
	_, _ = fmt.Fprintf(stderr, "Run \"%s --help\" for the arguments and flags.\n", pathOf(node))
	return exitUsage
}

// aboutNumbers explains what the parser says of a number that begins with a minus: it takes it for flags.
func aboutNumbers(err error) error {
	const about = "unknown flag -"
	if text := err.Error(); len(text) > len(about) && strings.HasPrefix(text, about) && '0' <= text[len(about)] && text[len(about)] <= '9' {
		value, _, _ := strings.Cut(text[len(about)-1:], ",")
		return badUsage("%s looks like a flag: put \"--\" before arguments that begin with a minus", value)
	}
	return err
}

// pathOf is what a user types to reach the command of node. Kong's own path has the aliases in it, in brackets, which
// a shell refuses.
func pathOf(node *kong.Node) string {
	var words []string
	for n := node; n != nil && n.Type == kong.CommandNode; n = n.Parent {
		words = append(words, n.Name)
	}
	words = append(words, "whippet")
	slices.Reverse(words)
	return strings.Join(words, " ")
}

// usageError is a mistake in the arguments that the grammar cannot see.
type usageError struct{ msg string }

func (e *usageError) Error() string { return e.msg }

func badUsage(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }
