package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/whippetmq/whippet/test/cluster/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// programs are the released clients and the variables that name their programs.
var programs = []struct{ name, variable string }{ //nolint:gochecknoglobals // a constant list
	{"python", "WHIPPET_INTEROP_PYTHON"},
	{"rust", "WHIPPET_INTEROP_RUST"},
}

// eachClient runs a test with every client that there is.
func eachClient(t *testing.T, test func(t *testing.T, command []string)) {
	t.Helper()
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			command := strings.Fields(os.Getenv(p.variable))
			if len(command) == 0 {
				t.Skipf("%s is not set: test/interop/cluster/run builds the client and sets it", p.variable)
			}
			test(t, command)
		})
	}
}

// answerLimit bounds one send: what the released clients give a request, and a little.
const answerLimit = 40 * time.Second

// sender is a client's program that sends what it is told.
type sender struct {
	in    io.WriteCloser
	lines chan string
}

// answer is what the program says of one send.
type answer struct {
	Partition     uint32
	MS            float64
	Before, After string // empty when the client does not know
	Error         string
	Connected     string
}

// startSender starts the program and waits until it is signed in.
func startSender(t *testing.T, command []string, address, topic string) *sender {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, command[0], append(command[1:], "e1", address, topic)...)
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &sender{in: in, lines: make(chan string, 16)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		scanner := bufio.NewScanner(out)
		for scanner.Scan() {
			s.lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		_ = in.Close() // its end is the program's
		timer := time.AfterFunc(harness.Patience, cancel)
		defer timer.Stop()
		defer cancel()
		for done := false; !done; {
			select {
			case <-s.lines: // a failed test may leave some
			case <-read:
				done = true
			}
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", command[0], err)
		}
	})
	if a := s.answer(t); a.Connected == "" {
		t.Fatalf("the client does not say that it is connected: %+v", a)
	}
	return s
}

func (s *sender) answer(t *testing.T) answer {
	t.Helper()
	line := harness.Await(t, answerLimit, "an answer of the client", s.lines)
	var a answer
	if err := json.Unmarshal([]byte(line), &a); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return a
}

// send has the program send a text and gives its answer.
func (s *sender) send(t *testing.T, partition uint32, text string) answer {
	t.Helper()
	if _, err := fmt.Fprintf(s.in, "%d %s\n", partition, text); err != nil {
		t.Fatal(err)
	}
	return s.answer(t)
}

// result is what the program says of a load.
type result struct {
	Client     string
	Messages   uint64
	Requests   int
	Failures   int
	FirstError string `json:"first_error"`
	Seconds    float64
	Throughput float64 `json:"messages_per_second"`
	P50        float64 `json:"p50_us"`
	P99        float64 `json:"p99_us"`
	P999       float64 `json:"p99_9_us"`
	Max        float64 `json:"max_us"`
}

func (r result) String() string {
	return fmt.Sprintf("%s: %.0f messages/s, %d sends, %d failures %s, p50 %.1f ms, p99 %.1f ms, p99.9 %.1f ms, slowest %.1f ms",
		r.Client, r.Throughput, r.Requests, r.Failures, r.FirstError, r.P50/1e3, r.P99/1e3, r.P999/1e3, r.Max/1e3)
}

// load runs the program's load.
func load(t *testing.T, command []string, address, topic string, rate float64, lasting time.Duration) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lasting+2*time.Minute)
	defer cancel()
	args := append(command[1:], "bench", "--address", address, "--topic", topic, "--rate", fmt.Sprint(rate), "--seconds", fmt.Sprint(lasting.Seconds()))
	cmd := exec.CommandContext(ctx, command[0], args...)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(cmd.Args, " "), err)
	}
	var r result
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	return r
}
