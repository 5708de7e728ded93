package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

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
