package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/whippetmq/whippet/test/cluster/harness"
	"github.com/whippetmq/whippet/wire"
)

// resident is how much memory a node's process holds, in bytes.
func resident(t *testing.T, n *harness.Node) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", n.PID()))
	must(t, err)
	pages, err := strconv.ParseInt(string(bytes.Fields(b)[1]), 10, 64)
	must(t, err)
	return pages * int64(os.Getpagesize())
}

// TestOverload: a session writes sends without reading answers, to a partition that cannot commit. The node slows it down
// or refuses, holds a bounded amount of memory, and answers every request in the end: nothing is dropped in silence.
func TestOverload(t *testing.T) {
	c := three(t)
	stream, tp := topic(t, c, 1)
	c.MustPlace(t, stream, tp, 0)
	checker := harness.NewChecker()
	r := login(t, c, 0)
	before := resident(t, c.Node(0))
	must(t, c.Node(1).Pause())
	must(t, c.Node(2).Pause())
	const size = 20_000
	n := harness.Scale(1500, 20_000)
	producer := checker.Producer()
	first := r.Next
	list := make([]*harness.Send, n)
	frames := make([][]byte, n)
	for i := range list {
		list[i] = checker.Begin(producer, 0, 1, size)
		req, err := harness.SendRequest(stream, tp, 0, list[i].Messages...)
		must(t, err)
		frames[i] = r.Frame(req)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	wrote := make(chan error, 1)
	go func() {
		for _, f := range frames {
			if err := r.Write(ctx, f); err != nil {
				wrote <- err
				return
			}
		}
		wrote <- nil
	}()
	// A while without a quorum, then it comes back.
	elapse(t, 2*time.Second)
	held := resident(t, c.Node(0)) - before
	must(t, c.Node(1).Resume())
	must(t, c.Node(2).Resume())
	answered := make([]bool, n)
	for range list {
		a, err := r.Read(bounded(t, harness.Patience))
		must(t, err)
		i := a.Header.Request - first
		if i >= uint64(n) || answered[i] {
			t.Fatalf("an answer to request %d, which was answered or never asked", a.Header.Request)
		}
		answered[i] = true
		payload, err := a.Payload()
		var conf wire.SendConfirmations
		switch {
		case err == nil && conf.Decode(payload) == nil && len(conf.Confirmations) == 1:
			list[i].End(harness.Acknowledged, true, conf.Confirmations[0].BaseOffset, nil)
		case errors.Is(err, wire.ErrTransientNotAccepted), errors.Is(err, wire.ErrTransientNotCommitted):
			list[i].End(harness.OutcomeOf(err), false, 0, err)
		default:
			t.Fatalf("request %d: %v", a.Header.Request, err)
		}
	}
	must(t, harness.Await(t, harness.Patience, "the end of the writes", wrote))
	t.Logf("the node held %d MiB more while nothing could be committed", held>>20)
	if bound := int64(400 << 20); held > bound {
		t.Errorf("the node held %d MiB more than before", held>>20)
	}
	settle(t, c, stream, tp, 1)
	checker.MustVerify(t, c, stream, tp)
}
