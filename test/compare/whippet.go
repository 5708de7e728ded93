package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// whippet runs benchmarks of the whippet program, which starts a server of its own for each.
type whippet struct {
	program string
	length  time.Duration
	// inFlight is how many requests of one connection may be unanswered, except where one message is sent at a time.
	inFlight int
}

// whippetResult is the part of the program's document that is compared.
type whippetResult struct {
	Produce *whippetSide `json:"produce"`
	Consume *whippetSide `json:"consume"`
}

type whippetSide struct {
	PerSecond float64 `json:"messages_per_second"`
	Failures  uint64  `json:"failures"`
	Latency   struct {
		P50 float64 `json:"p50_us"`
	} `json:"latency"`
}

func (w *whippet) bench(ctx context.Context, args ...string) (whippetResult, error) {
	args = append([]string{"--json", "--quiet", "bench"}, args...)
	args = append(args, "--duration", w.length.String(), "--warm-up", "1s")
	var r whippetResult
	cmd := exec.CommandContext(ctx, w.program, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("whippet %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return r, fmt.Errorf("whippet %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	for _, s := range []*whippetSide{r.Produce, r.Consume} {
		if s != nil && s.Failures > 0 {
			return r, fmt.Errorf("whippet %s: %d requests failed", strings.Join(args, " "), s.Failures)
		}
	}
	return r, nil
}

func (w *whippet) produce(ctx context.Context, size, producers, batch int, api string) (*whippetSide, error) {
	inFlight := w.inFlight
	if batch == 1 {
		inFlight = 1
	}
	r, err := w.bench(ctx, "produce", "--in-flight", strconv.Itoa(inFlight), "--message-size", strconv.Itoa(size), "--producers", strconv.Itoa(producers),
		"--batch-messages", strconv.Itoa(batch), "--partitions", "1", "--api", api)
	if err == nil && r.Produce == nil {
		err = errors.New("whippet bench produce printed no result")
	}
	return r.Produce, err
}

func (w *whippet) consume(ctx context.Context, size, messages int) (*whippetSide, error) {
	r, err := w.bench(ctx, "consume", "--message-size", strconv.Itoa(size), "--fill", strconv.Itoa(messages),
		"--batch-messages", strconv.Itoa(batchMessages), "--poll-messages", strconv.Itoa(batchMessages), "--partitions", "1",
		"--in-flight", strconv.Itoa(w.inFlight))
	if err == nil && r.Consume == nil {
		err = errors.New("whippet bench consume printed no result")
	}
	return r.Consume, err
}
