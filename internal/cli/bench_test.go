package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/internal/bench"
	"github.com/whippetmq/whippet/whippettest"
	"github.com/whippetmq/whippet/wire"
)

// A server that dies under a benchmark leaves a result, which is printed, and an error.
func TestBenchOfServerThatDies(t *testing.T) {
	for _, form := range []string{"table", "json"} {
		t.Run(form, func(t *testing.T) {
			node := whippettest.Start(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			o, err := client.ParseConnectionString(node.ConnectionString())
			if err != nil {
				t.Fatal(err)
			}
			watcher, err := client.New(o)
			if err != nil {
				t.Fatal(err)
			}
			if err := watcher.Connect(ctx); err != nil {
				t.Fatal(err)
			}
			dies := make(chan error, 1)
			go func() {
				defer func() { _ = watcher.Close() }()
				tick := time.NewTicker(5 * time.Millisecond)
				defer tick.Stop()
				for ctx.Err() == nil {
					if topic, err := watcher.Topic(ctx, wire.Name("bench"), wire.Name("t")); err == nil && topic.MessagesCount > 0 {
						node.Stop()
						dies <- nil
						return
					}
					<-tick.C
				}
				dies <- ctx.Err()
			}()
			args := []string{"--connect", node.ConnectionString() + "?reconnection_retries=1", "bench", "produce", "--topic", "t", "--warm-up", "0s", "--duration", "1s"}
			if form == "json" {
				args = append([]string{"--json"}, args...)
			}
			stdout, stderr, code := run(t, args...)
			if err := <-dies; err != nil {
				t.Fatal(err)
			}
			if code != exitError || !regexp.MustCompile(`Error: [0-9]+ of [0-9]+ requests failed, the first: send: `).MatchString(stderr) {
				t.Errorf("exit code %d, stderr %q", code, stderr)
			}
			if form == "json" {
				var res struct{ Produce bench.Side }
				if err := json.Unmarshal([]byte(stdout), &res); err != nil || res.Produce.Messages == 0 || res.Produce.Failures == 0 {
					t.Errorf("%v in %s", err, stdout)
				}
			} else if !strings.Contains(stdout, "| produce | ") {
				t.Errorf("no result in %q", stdout)
			}
		})
	}
}

// Whether a report can be written shows before the minutes of measuring, and a report that cannot be written in the end
// takes nothing with it.
func TestBenchReportThatCannotBeWritten(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone", "report.html")
	for _, command := range []string{"produce", "consume", "mixed", "floor produce", "floor consume", "ratio", "split-primaries", "cluster"} {
		stdout, stderr, code := run(t, append(append([]string{"bench"}, strings.Fields(command)...), "--report", gone)...)
		if code != exitError || stdout != "" || !strings.Contains(stderr, "--report: nothing was measured, because the report cannot be written: open "+gone) {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", command, code, stdout, stderr)
		}
	}

	connect := whippettest.Start(t).ConnectionString()
	dir := filepath.Join(t.TempDir(), "there")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "report.html")
	if _, _, code := run(t, "--connect", connect, "bench", "produce", "--stream", strings.Repeat("s", 300), "--report", path); code != exitError {
		t.Error("a stream without a valid name is no error")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("nothing was measured, and this is left: %v, %v", left, err)
	}

	var stdout, stderr bytes.Buffer
	code := Run(t.Context(), Process{
		Args:   []string{"--connect", connect, "bench", "produce", "--messages", "1000", "--report", path},
		Stdin:  strings.NewReader(""),
		Stdout: writer(func(p []byte) (int, error) { _ = os.RemoveAll(dir); return stdout.Write(p) }),
		Stderr: &stderr,
		Getenv: func(string) string { return "" },
	})
	if code != exitError || !strings.Contains(stdout.String(), "| produce | 1000 ") || !strings.Contains(stderr.String(), "write the report: open "+path) {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, &stdout, &stderr)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// Polls are not paced: a rate would be claimed and not kept.
func TestBenchConsumeTakesNoRate(t *testing.T) {
	for _, command := range []string{"consume", "floor consume"} {
		args := append([]string{"bench"}, strings.Fields(command)...)
		if _, stderr, code := run(t, append(args, "--rate", "100")...); code != exitUsage || !strings.Contains(stderr, "--rate") {
			t.Errorf("%s: exit code %d, stderr %q", command, code, stderr)
		}
		if stdout, _, _ := run(t, append(args, "--help")...); strings.Contains(stdout, "--rate") {
			t.Errorf("%s: --rate is in the help:\n%s", command, stdout)
		}
	}
	for _, command := range []string{"produce", "mixed"} {
		if stdout, _, _ := run(t, "bench", command, "--help"); !strings.Contains(stdout, "--rate") {
			t.Errorf("%s: --rate is not in the help:\n%s", command, stdout)
		}
	}
}
