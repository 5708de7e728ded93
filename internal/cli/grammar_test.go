package cli

import (
	"bytes"
	"context"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// run runs a command line in this process.
func run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Run(t.Context(), Process{
		Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Version: "test",
		Getenv: func(string) string { return "" },
	})
	return out.String(), errs.String(), code
}

// commands lists every command with the arguments that lead to it.
func commands(t *testing.T) map[string]*kong.Node {
	t.Helper()
	parser, err := newParser(&grammar{}, Process{Stdout: io.Discard, Stderr: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*kong.Node{}
	var walk func(n *kong.Node, path []string)
	walk = func(n *kong.Node, path []string) {
		if len(path) > 0 {
			all[strings.Join(path, " ")] = n
		}
		for _, c := range n.Children {
			walk(c, append(slices.Clone(path), c.Name))
		}
	}
	walk(parser.Model.Node, nil)
	return all
}

func TestHelpOfEveryCommand(t *testing.T) {
	for name := range commands(t) {
		for _, flag := range []string{"-h", "--help"} {
			stdout, stderr, code := run(t, append(strings.Fields(name), flag)...)
			if code != 0 || stderr != "" || !strings.Contains(stdout, "Usage: whippet ") {
				t.Errorf("%s %s: exit code %d, stderr %q, stdout %q", name, flag, code, stderr, stdout)
			}
			if long := strings.Contains(stdout, "--tcp-reconnection-interval"); long != (flag == "--help") {
				t.Errorf("%s %s: connection options shown: %v", name, flag, long)
			}
		}
	}
}

func TestEveryCommandAndFlagExplainsItself(t *testing.T) {
	for name, n := range commands(t) {
		if n.Help == "" {
			t.Errorf("%s has no help", name)
		}
		for _, f := range n.Flags {
			if f.Help == "" {
				t.Errorf("%s: --%s has no help", name, f.Name)
			}
			// A name made from the field would change with the field.
			if !f.Tag.Has("name") {
				t.Errorf("%s: --%s has no explicit name", name, f.Name)
			}
		}
		for _, a := range n.Positional {
			if a.Help == "" || !a.Tag.Has("name") {
				t.Errorf("%s: argument %s has no help or no explicit name", name, a.Name)
			}
		}
	}
}

// The names and aliases of the reference's tool.
func TestReferenceNames(t *testing.T) {
	parser, err := newParser(&grammar{}, Process{Stdout: io.Discard, Stderr: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"stream create", "s c", "s d", "s u", "s g", "s l", "s p", "topic create", "t c", "t d", "t u", "t g", "t l", "t p",
		"partition create", "p c", "p d", "segment delete", "seg d", "message send", "m s", "m p", "m f",
		"consumer-offset get", "o g", "o s", "offset get", "consumer-group create", "g c", "g d", "g g", "g l",
		"user create", "u c", "u d", "u g", "u l", "u n", "u s", "u pwd", "u p", "pat create", "pat delete", "pat list",
		"client get", "c g", "c l", "cluster metadata", "cl m", "ping", "me", "stats", "options", "snapshot", "login", "li", "logout", "lo", "session status", "sess s",
		"context list", "ctx l", "ctx u", "ctx d", "ctx s", "ctx c",
	} {
		node := parser.Model.Node
		for word := range strings.FieldsSeq(line) {
			if node = childNamed(node, word); node == nil {
				t.Errorf("%q is not a command", line)
				break
			}
		}
	}
	for line, flags := range map[string]string{
		"message send": "p m H input-file lines", "message poll": "o f l n m a c s output-file follow", "message flush": "f",
		"consumer-offset get": "k", "consumer-offset set": "k", "topic create": "t m durability consumer-offset-durability set",
		"topic update": "m", "stream create": "s", "stream list": "l", "topic list": "l", "stats": "o", "ping": "c",
		"pat create": "s", "snapshot": "c s o", "user create": "u g s", "user permissions": "g s", "consumer-group create": "g",
		"server": "f fresh with-default-root-credentials replica-id config data",
		"up":     "nodes data base-port ready-file", "cluster metadata": "l", "client list": "l",
	} {
		node := parser.Model.Node
		for word := range strings.FieldsSeq(line) {
			node = childNamed(node, word)
		}
		for f := range strings.FieldsSeq(flags) {
			if len(f) == 1 && flagShort(node, rune(f[0])) == nil || len(f) > 1 && flagNamed(node, f) == nil {
				t.Errorf("%s has no flag %s", line, f)
			}
		}
	}
}

func TestExpandShorts(t *testing.T) {
	parser, err := newParser(&grammar{}, Process{Stdout: io.Discard, Stderr: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ in, want string }{
		{"-u iggy -p secret stream list", "--username iggy --password secret stream list"},
		{"-p secret message send s t -p 3 x", "--password secret message send s t -p 3 x"},
		{"message send s t -p 3 -u iggy", "message send s t -p 3 --username iggy"},
		{"-q stream list -l list", "--quiet stream list -l list"},
		{"-qu iggy me", "--quiet --username iggy me"},
		{"-uiggy me", "--username=iggy me"},
		{"-u=iggy me", "--username=iggy me"},
		{"message poll s t 0 -n -a", "message poll s t 0 -n -a"},
		{"message poll s t 0 -o5", "message poll s t 0 -o5"},
		{"--username -p me", "--username -p me"},
		{"stream create -- -q", "stream create -- -q"},
		{"-x me", "-x me"},
		{"me -", "me -"},
		{"-V", "-V"},
	} {
		got := strings.Join(expandShorts(parser.Model, strings.Fields(c.in)), " ")
		if got != c.want {
			t.Errorf("%q becomes %q, want %q", c.in, got, c.want)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	for _, line := range []string{
		"nonsense", "stream", "stream create", "stream list --list-mode xml", "ping --count x", "topic create s t many",
		"message send s t x --partition-id 1 --message-key k", "stats -o yaml", "partition create s t 0", "--json", "client get x",
		"--connect nonsense me", "--timeout x me", "--username a --token b me", "bench produce --message-size x", "user status u maybe",
	} {
		stdout, stderr, code := run(t, strings.Fields(line)...)
		if code != exitUsage || !strings.HasPrefix(stderr, "Error: ") || !strings.Contains(stderr, "--help") {
			t.Errorf("%q: exit code %d, stderr %q, stdout %q", line, code, stderr, stdout)
		}
	}
}

func TestCancelledCommand(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	code := Run(ctx, Process{
		Args: []string{"--connect", "iggy://a:b@127.0.0.1:1", "me"}, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
		Getenv: func(string) string { return "" },
	})
	if code != exitError || errs.String() != "Error: interrupted\n" {
		t.Errorf("exit code %d, stderr %q", code, errs.String())
	}
}

func TestCompletionScriptsParse(t *testing.T) {
	for shell, arg := range map[string]string{"bash": "-n", "zsh": "-n", "fish": "--no-execute"} {
		t.Run(shell, func(t *testing.T) {
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Skipf("no %s here", shell)
			}
			script, _, _ := run(t, "completion", shell)
			cmd := exec.CommandContext(t.Context(), path, arg)
			cmd.Stdin = strings.NewReader(script)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

func TestComplete(t *testing.T) {
	for _, c := range []struct {
		words string // "_" is the empty word
		want  string
	}{
		{"_", "up server bench debug version stream topic partition segment message consumer-offset consumer-group ping me stats client cluster snapshot options user pat login logout session context completion"},
		{"str", "stream"},
		{"s _", "create delete update get list purge"},
		{"-q -u name topic g", "get"},
		{"stats --output=", ""},
		{"stats -o t", "table toml"},
		{"options _", "topic stream user"},
		{"message poll --off", "--offset"},
		{"nonsense x", ""},
	} {
		var b strings.Builder
		parser, err := newParser(&grammar{}, Process{Stdout: io.Discard, Stderr: io.Discard})
		if err != nil {
			t.Fatal(err)
		}
		words := strings.Fields(c.words)
		for i, w := range words {
			if w == "_" {
				words[i] = ""
			}
		}
		complete(&b, parser.Model, words)
		var got []string
		for line := range strings.Lines(b.String()) {
			name, _, _ := strings.Cut(line, "\t")
			got = append(got, name)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("after %q: %q, want %q", c.words, strings.Join(got, " "), c.want)
		}
	}
}
