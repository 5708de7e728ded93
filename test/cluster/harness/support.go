package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// RequireCluster skips a test while the binary refuses to run as one of three nodes. It asks the binary itself, once per
// process: it starts it with a roster of three and sees whether it opens its port for peers or ends with a refusal.
func RequireCluster(t testing.TB) {
	t.Helper()
	refusal, err := clusterRefusal()
	if err != nil {
		t.Fatalf("find out whether the binary runs clusters: %v", err)
	}
	if refusal != "" {
		t.Skipf("the binary does not run clusters: %s", refusal)
	}
}

// clusterRefusal is what the binary says to a roster of three; empty = it runs. Asked once per process, because the
// answer is a property of the binary.
var clusterRefusal = sync.OnceValues(func() (string, error) { //nolint:gochecknoglobals // see above
	dir, err := os.MkdirTemp("", "whippet-support-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	c, err := Prepare(Options{Nodes: 3, Dir: dir})
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	n := c.nodes[0]
	refusal := ""
	err = n.Start()
	if err == nil {
		err = Until(ctx, Patience, "a node of three to open its port for peers or to refuse", func(ctx context.Context) error {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.PeerAddr(0))
			if err == nil {
				return conn.Close()
			}
			if !n.Running() {
				refusal = lastLine(n.log)
				return nil
			}
			return err
		})
	}
	n.mu.Lock()
	n.died = nil // it may end
	n.mu.Unlock()
	_ = n.Kill()     // it has not done anything yet
	_ = c.Close(ctx) // likewise
	return refusal, err
})

func lastLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}

// Refusal starts one node that is expected to end by itself before it serves, and gives what it wrote. The node must not
// run.
func (n *Node) Refusal(ctx context.Context, limit time.Duration) (string, error) {
	from := n.LogEnd()
	if err := n.Start(); err != nil {
		return "", err
	}
	err := Until(ctx, limit, n.Name+" to refuse to run", func(context.Context) error {
		if n.Running() {
			return ErrNotYet
		}
		return nil
	})
	n.mu.Lock()
	died := n.died
	n.died = nil
	n.mu.Unlock()
	if err != nil {
		return "", errors.Join(err, n.Kill())
	}
	text := n.Log()[from:]
	if errors.Is(died, errEnded) {
		return text, fmt.Errorf("%s ended with exit code 0 in %s", n.Name, filepath.Base(n.log))
	}
	return text, nil
}
