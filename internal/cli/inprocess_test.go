package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whippetmq/whippet/whippettest"
)

// lockedBuffer is read by a test while a command writes to it.
type lockedBuffer struct {
	mu  sync.Mutex
	b   bytes.Buffer
	got chan struct{} // a token after each write
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.b.Write(p)
	select {
	case l.got <- struct{}{}:
	default:
	}
	return n, err
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newLockedBuffer() *lockedBuffer { return &lockedBuffer{got: make(chan struct{}, 1)} }

// waitUntil waits for a text in the output.
func (l *lockedBuffer) waitUntil(ctx context.Context, t *testing.T, text string) {
	t.Helper()
	for !strings.Contains(l.String(), text) {
		select {
		case <-l.got:
		case <-ctx.Done():
			t.Fatalf("no %q in the output:\n%s", text, l.String())
		}
	}
}

// Lines that arrive slowly leave at once; a follower sees them as they come, and ends with its context.
func TestSendAndFollowAtTheSameTime(t *testing.T) {
	connect := whippettest.Start(t).ConnectionString()
	command := func(ctx context.Context, in io.Reader, out io.Writer, line string) int {
		return Run(ctx, Process{
			Args: append([]string{"--connect", connect}, strings.Fields(line)...), Stdin: in, Stdout: out, Stderr: out,
			Getenv: func(string) string { return "" },
		})
	}
	for _, line := range []string{"stream create s", "topic create s t 1"} {
		var out bytes.Buffer
		if code := command(t.Context(), strings.NewReader(""), &out, line); code != 0 {
			t.Fatalf("%s: exit code %d: %s", line, code, out.String())
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	followed, sent := newLockedBuffer(), newLockedBuffer()
	r, w := io.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() {
		if code := command(ctx, strings.NewReader(""), followed, "message poll s t 0 --follow --first"); code != 0 {
			t.Errorf("follow: exit code %d: %s", code, followed)
		}
	})
	wg.Go(func() {
		if code := command(t.Context(), r, sent, "message send s t"); code != 0 {
			t.Errorf("send: exit code %d: %s", code, sent)
		}
	})
	for i := range 3 {
		if _, err := fmt.Fprintf(w, "line %d\n", i); err != nil {
			t.Fatal(err)
		}
		followed.waitUntil(t.Context(), t, fmt.Sprintf("|line %d\n", i))
	}
	for i := range 5000 {
		if _, err := fmt.Fprintf(w, "bulk %d\n", i); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	followed.waitUntil(t.Context(), t, "|bulk 4999\n")
	stop()
	wg.Wait()
	if !strings.Contains(sent.String(), "Sent 5003 messages") {
		t.Errorf("send said: %s", sent)
	}
}

// endless is input that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = "y\n"[i&1]
	}
	return len(p) &^ 1, nil
}

// Ctrl-C ends a command while its input goes on, and while it waits for input; what was read is sent, and told.
func TestInterruptedSend(t *testing.T) {
	connect := whippettest.Start(t).ConnectionString()
	run := func(ctx context.Context, in io.Reader, stdout, stderr io.Writer, args ...string) int {
		return Run(ctx, Process{
			Args: append([]string{"--connect", connect}, args...), Stdin: in, Stdout: stdout, Stderr: stderr,
			Getenv: func(string) string { return "" },
		})
	}
	var out bytes.Buffer
	for _, args := range [][]string{{"stream", "create", "s"}, {"topic", "create", "s", "t", "1"}} {
		if code := run(t.Context(), nil, &out, &out, args...); code != 0 {
			t.Fatal(out.String())
		}
	}
	waiting, writer := io.Pipe()
	t.Cleanup(func() { _ = writer.Close() })
	go func() { _, _ = io.WriteString(writer, "one\ntwo\n") }()
	sent := uint64(0)
	for _, tt := range []struct {
		name string
		in   io.Reader
		from uint64 // messages that are acknowledged before the end
	}{{"waiting", waiting, 2}, {"endless", endless{}, 10_000}} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			errs := newLockedBuffer()
			done := make(chan int, 1)
			go func() { done <- run(ctx, tt.in, io.Discard, errs, "message", "send", "s", "t") }()
			count := func() uint64 {
				var doc struct {
					Messages uint64 `json:"messages_count"`
				}
				var out bytes.Buffer
				if code := run(t.Context(), nil, &out, &out, "--json", "topic", "get", "s", "t"); code != 0 {
					t.Fatal(out.String())
				}
				if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
					t.Fatal(err)
				}
				return doc.Messages
			}
			deadline := time.Now().Add(20 * time.Second)
			for count() < sent+tt.from {
				if time.Now().After(deadline) {
					t.Fatal("the messages do not arrive")
				}
			}
			interrupt()
			select {
			case code := <-done:
				if code != exitError {
					t.Errorf("exit code %d", code)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("the command goes on")
			}
			now := count()
			if want := fmt.Sprintf("interrupted (%d messages before were acknowledged)", now-sent); !strings.Contains(errs.String(), want) {
				t.Errorf("no %q in %q", want, errs.String())
			}
			sent = now
		})
	}
}

// Ctrl-C ends a row of pings with the statistics of those that were done.
func TestInterruptedPing(t *testing.T) {
	connect := whippettest.Start(t).ConnectionString()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out, done := newLockedBuffer(), make(chan int, 1)
	go func() {
		done <- Run(ctx, Process{
			Args: []string{"--connect", connect, "ping", "-c", "1000"}, Stdin: strings.NewReader(""), Stdout: out, Stderr: out,
			Getenv: func(string) string { return "" },
		})
	}()
	limit, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	out.waitUntil(limit, t, "Ping sequence id: 1 ")
	interrupt()
	if code := <-done; code != exitOK || !strings.Contains(out.String(), "Ping statistics for ") || strings.Contains(out.String(), "Error") {
		t.Errorf("exit code %d:\n%s", code, out.String())
	}
}
