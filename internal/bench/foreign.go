package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Foreign is a load generator of another client: a program that is told what to do by its flags and prints what it
// measured as one line of JSON, its last. Its flags are --address, --topic (STREAM/TOPIC, which is there), --producers, --batch,
// --size, --rate (messages per second over all producers, 0 = as fast as it goes), --seconds, and --warm-up (seconds before
// those, whose sends and moves it does not count). It signs in as iggy with the password iggy; each producer has a connection of its own, one batch in flight, and takes the partitions in turn.
// The program of the released Rust client is under test/interop/rust.
type Foreign struct {
	Command []string // the program, and what comes before the flags
}

// ForeignResult is what it prints. Latencies count from the time a batch was due, or from its send when the rate is 0.
type ForeignResult struct {
	Messages     uint64  `json:"messages"`
	Seconds      float64 `json:"seconds"`
	P50          float64 `json:"p50_us"`
	P99          float64 `json:"p99_us"`
	P999         float64 `json:"p99_9_us"`
	Max          float64 `json:"max_us"`
	Failures     uint64  `json:"failures"`
	SessionMoves uint64  `json:"session_moves"` // how often a producer's connection was at another address than before
}

// foreignFields are what a result must have.
var foreignFields = []string{"messages", "seconds", "p50_us", "p99_us", "p99_9_us", "max_us", "failures", "session_moves"}

// foreignGrace is how long the program may take on top of what it is told.
const foreignGrace = 2 * time.Minute

// Run runs the program against one address.
func (f *Foreign) Run(ctx context.Context, p Plan, address string) (*ForeignResult, error) {
	length, warm := time.Duration(p.Duration), time.Duration(p.WarmUp)
	ctx, cancel := context.WithTimeout(ctx, warm+length+foreignGrace)
	defer cancel()
	args := append([]string{}, f.Command[1:]...)
	args = append(args, "--address", address, "--topic", p.Stream+"/"+p.Topic, "--producers", strconv.Itoa(p.Producers),
		"--batch", strconv.Itoa(p.BatchMessages), "--size", strconv.Itoa(p.MessageBytes),
		"--rate", strconv.FormatFloat(p.Rate, 'f', -1, 64), "--seconds", strconv.FormatFloat(length.Seconds(), 'f', -1, 64),
		"--warm-up", strconv.FormatFloat(warm.Seconds(), 'f', -1, 64))
	cmd := exec.CommandContext(ctx, f.Command[0], args...) //nolint:gosec // the user's own command
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("run %s: %w\n%s", f.Command[0], errors.Join(err, context.Cause(ctx)), lastLines(stderr.String()))
	}
	line := strings.TrimSpace(stdout.String())
	line = line[strings.LastIndexByte(line, '\n')+1:]
	r := &ForeignResult{}
	if err := json.Unmarshal([]byte(line), r); err != nil {
		return nil, fmt.Errorf("%s printed no result: %w\n%s", f.Command[0], err, lastLines(stdout.String()))
	}
	// A field under another name would pass for 0: a program without failures, or one that stays on its node.
	var there map[string]json.RawMessage
	_ = json.Unmarshal([]byte(line), &there) // it was an object before
	for _, name := range foreignFields {
		if _, ok := there[name]; !ok {
			return nil, fmt.Errorf("%s printed a result without %q: %s", f.Command[0], name, line)
		}
	}
	if r.Messages > 0 && r.Seconds <= 0 {
		return nil, fmt.Errorf("%s printed a result without a time: %s", f.Command[0], line)
	}
	return r, nil
}

// lastLines keeps the end of a program's output.
func lastLines(s string) string {
	const most = 2000
	s = strings.TrimSpace(s)
	return s[max(0, len(s)-most):]
}
