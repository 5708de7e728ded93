package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/whippetmq/whippet/test/cluster/harness"
	"github.com/whippetmq/whippet/wire"
)

// The timings of the released 0.11.0 SDK.
const (
	replayEvery    = 50 * time.Millisecond
	windowLength   = 2 * time.Second
	requestTimeout = 30 * time.Second
)

// released is a model of the released client's send, frame by frame: one connection, a request that is refused with 58 is
// replayed every 50 ms for 2 s, twice, then the session moves: to the leader that the roster marks, or, from there, to the
// next node of the roster. It is the control of the tests of routing: what happens to a client that cannot route. The
// released clients themselves run under test/interop.
type released struct {
	conn  *harness.Raw
	moves int
}

func connectReleased(ctx context.Context, address string) (*released, error) {
	conn, err := harness.LoginRaw(ctx, address)
	if err != nil {
		return nil, err
	}
	return &released{conn: conn}, nil
}

func (r *released) close() { r.conn.Close() }

// send appends one message and tells its offset.
func (r *released) send(ctx context.Context, stream, topic wire.Identifier, partition uint32, m wire.Message) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	visited := map[string]bool{r.conn.Address: true}
	for first := true; ; first = false {
		windows := 1
		if first {
			windows = 2 // the lock was just taken: somebody else may have moved the client
		}
		req, err := harness.SendRequest(stream, topic, partition, m)
		if err != nil {
			return 0, err
		}
		frame := r.conn.Frame(req)
		for range windows {
			offset, err := r.window(ctx, frame)
			if !errors.Is(err, wire.ErrTransientNotAccepted) {
				return offset, err
			}
		}
		if err := r.move(ctx, visited); err != nil {
			return 0, err
		}
	}
}

// window replays a frame until it is taken or the window ends.
func (r *released) window(ctx context.Context, frame []byte) (uint64, error) {
	end := time.NewTimer(windowLength)
	defer end.Stop()
	tick := time.NewTicker(replayEvery)
	defer tick.Stop()
	for {
		a, err := r.conn.Exchange(ctx, frame)
		if err != nil {
			return 0, err
		}
		payload, err := a.Payload()
		if err == nil {
			var c wire.SendConfirmations
			if err := c.Decode(payload); err != nil || len(c.Confirmations) != 1 {
				return 0, fmt.Errorf("%d confirmations: %w", len(c.Confirmations), err)
			}
			return c.Confirmations[0].BaseOffset, nil
		}
		if !errors.Is(err, wire.ErrTransientNotAccepted) {
			return 0, err
		}
		select {
		case <-end.C:
			return 0, err
		case <-tick.C:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// move takes the session to the leader, or from the leader to the next node of the roster that was not tried yet.
func (r *released) move(ctx context.Context, visited map[string]bool) error {
	var roster wire.Roster
	if err := r.conn.Call(ctx, &wire.GetClusterMetadata{}, &roster); err != nil {
		return err
	}
	address := func(n *wire.Node) string { return fmt.Sprintf("%s:%d", n.IP, n.TCP) }
	to := ""
	if l := roster.Leader(); l != nil && address(l) != r.conn.Address {
		to = address(l)
	} else {
		at := 0
		for i := range roster.Nodes {
			if address(&roster.Nodes[i]) == r.conn.Address {
				at = i
			}
		}
		for i := range roster.Nodes {
			if n := &roster.Nodes[(at+1+i)%len(roster.Nodes)]; !visited[address(n)] {
				to = address(n)
				break
			}
		}
	}
	if to == "" {
		return wire.ErrTransientNotAccepted
	}
	visited[to] = true
	r.conn.Close()
	conn, err := harness.LoginRaw(ctx, to) // under a new client id, as released clients do
	if err != nil {
		return err
	}
	r.conn = conn
	r.moves++
	return nil
}
