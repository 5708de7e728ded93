package cluster

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/whippetmq/whippet/internal/bench"
	"github.com/whippetmq/whippet/test/cluster/harness"
)

// TestLoadOfTheBenchmark runs the Rust client's load as `whippet bench split-primaries --client` does: flags and fields must
// be those that both know, and the warm-up is not counted.
func TestLoadOfTheBenchmark(t *testing.T) {
	command := strings.Fields(os.Getenv("WHIPPET_INTEROP_RUST"))
	if len(command) == 0 {
		t.Skip("WHIPPET_INTEROP_RUST is not set: test/interop/cluster/run builds the client and sets it")
	}
	c := harness.New(t, harness.Options{Nodes: 1})
	if err := c.Topic(t.Context(), "load", "events", 2); err != nil {
		t.Fatal(err)
	}
	const rate = 2000.0
	p := bench.Plan{
		Stream: "load", Topic: "events", Producers: 4, BatchMessages: 10, MessageBytes: 100, Rate: rate,
		Duration: bench.Seconds(2 * time.Second), WarmUp: bench.Seconds(time.Second),
	}
	r, err := (&bench.Foreign{Command: append(command, "bench")}).Run(t.Context(), p, c.Node(0).Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", *r)
	if got := float64(r.Messages) / r.Seconds; r.Failures != 0 || r.SessionMoves != 0 || got < 0.9*rate || got > 1.1*rate {
		t.Errorf("%.0f messages/s of %.0f, %d failures, %d session moves", got, rate, r.Failures, r.SessionMoves)
	}
	if r.P50 <= 0 || r.P50 > r.P99 || r.P99 > r.Max {
		t.Errorf("latencies %+v", *r)
	}
}
