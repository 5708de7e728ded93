package cli

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/whippetmq/whippet/whippettest"
)

// TestMain makes the program available to the scripts, also to those that start it as a server: this very test binary,
// or, because a program under the race detector takes ten times as long to start and scripts start it hundreds of times,
// one that is built without it. What commands do at the same time is tested in process, in inprocess_test.go.
func TestMain(m *testing.M) {
	if raceEnabled {
		os.Exit(withPlainProgram(m))
	}
	testscript.Main(m, map[string]func(){"whippet": func() {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		code := Run(ctx, Process{
			Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Version: "test",
		})
		stop()
		os.Exit(code)
	}})
}

func withPlainProgram(m *testing.M) int {
	dir, err := os.MkdirTemp("", "whippet-cli-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	build := exec.Command("go", "build", "-ldflags=-X main.version=test", "-o", filepath.Join(dir, "whippet"), "github.com/whippetmq/whippet/cmd/whippet")
	if out, err := build.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build the program: %v\n%s", err, out))
	}
	if err := os.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH")); err != nil {
		panic(err)
	}
	return m.Run()
}

// TestScripts runs testdata/script: one file per group of commands, each against a node of its own.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			tb, ok := env.T().(testing.TB)
			if !ok {
				t.Fatal("testscript hands over no testing.TB")
			}
			connect := whippettest.Start(tb).ConnectionString()
			u, err := url.Parse(connect)
			if err != nil {
				return err
			}
			env.Setenv("WHIPPET_CONNECT", connect)
			env.Setenv("ADDRESS", u.Host)
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("TZ", "UTC")
			readme, err := filepath.Abs("../../README.md")
			env.Setenv("README", readme)
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"wait-for":   waitFor,
			"nodes":      nodesOf,
			"eventually": eventually,
		},
	})
}

// waitFor waits until a file exists: wait-for FILE. With a second argument, until it contains that text.
func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: wait-for file [text]")
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		b, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil && (len(args) == 1 || strings.Contains(string(b), args[1])) {
			return
		}
		<-tick.C
	}
	ts.Fatalf("%s did not appear, or does not contain what it should", args[0])
}
