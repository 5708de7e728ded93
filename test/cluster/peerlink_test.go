package cluster

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/test/cluster/harness"
	"github.com/whippetmq/whippet/wire"
)

// works fails the test unless the cluster takes a send and serves it.
func works(t *testing.T, c *harness.Cluster, stream, tp wire.Identifier) {
	t.Helper()
	cl, err := c.ConnectTo(patient(t), 0)
	must(t, err)
	defer cl.Close()
	_, err = cl.Send(patient(t), stream, tp, wire.PartitionID(0), client.Message{Payload: []byte("still works")})
	must(t, err)
}

// TestGarbageOnThePeerPort: strangers talk to the ports for peers. They are cut off with a word in the log; the links
// between the nodes stay as they are.
func TestGarbageOnThePeerPort(t *testing.T) {
	t.Parallel() // it waits more than it works
	c := three(t, peerProxies)
	stream, tp := topic(t, c, 1)
	settle(t, c, stream, tp, 1)
	before := links(c)
	random := make([]byte, 1<<20)
	_, err := rand.Read(random)
	must(t, err)
	hello := make([]byte, 96)
	copy(hello, "WPLK")
	for name, sent := range map[string][]byte{
		"an HTTP request":           []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n" + strings.Repeat("x", 300)),
		"random bytes":              random,
		"zeros":                     make([]byte, 1<<16),
		"a hello of version 0":      hello,
		"a request of a client":     (&harness.Raw{Client: wire.NewID()}).Frame(&wire.Ping{}),
		"half of a hello, then end": hello[:40],
	} {
		t.Run(name, func(t *testing.T) {
			n := c.Node(0)
			from := n.LogEnd()
			conn, err := new(net.Dialer).DialContext(patient(t), "tcp", c.PeerAddr(0))
			must(t, err)
			defer conn.Close()
			_, _ = conn.Write(sent) // it may be cut off on the way
			_ = conn.(*net.TCPConn).CloseWrite()
			must(t, conn.SetReadDeadline(time.Now().Add(harness.Patience)))
			if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
				t.Fatal("the connection stays open")
			}
			if _, err := n.WaitLog(t.Context(), harness.Patience, from, "peer link: refused"); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("a thousand silent connections", func(t *testing.T) {
		var conns []net.Conn
		for range 1000 {
			conn, err := new(net.Dialer).DialContext(patient(t), "tcp", c.PeerAddr(0))
			if err != nil {
				break // a bound is an answer too
			}
			conns = append(conns, conn)
		}
		works(t, c, stream, tp)
		for _, conn := range conns {
			_ = conn.Close()
		}
	})
	works(t, c, stream, tp)
	if after := links(c); after != before {
		t.Errorf("strangers cost links between nodes: %d connections before, %d after", before, after)
	}
}

// links is how many connections the nodes made to each other so far.
func links(c *harness.Cluster) int {
	n := 0
	for from := range c.Nodes() {
		for to := range c.Nodes() {
			if from != to {
				n += c.PeerProxy(from, to).Counts().Accepted
			}
		}
	}
	return n
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// TestWrongPeers: a node that is configured wrong joins nothing, both sides say why, and the others go on.
func TestWrongPeers(t *testing.T) {
	t.Parallel() // it waits more than it works
	c := three(t)
	stream, tp := topic(t, c, 1)
	settle(t, c, stream, tp, 1)
	odd := c.Node(2)
	must(t, odd.Stop(bounded(t, time.Minute)))
	right := func() {
		odd.Set, odd.EditRoster = nil, nil
	}
	cases := []struct {
		name  string
		set   map[string]string
		edit  func(*harness.RosterEntry)
		fresh bool
		want  string // in the log of some node
	}{
		{"another secret", map[string]string{"cluster.auth.shared_secret": `"this is not the secret that the others share"`}, nil, false, "does not know the cluster's secret"},
		{"no secret", map[string]string{"cluster.auth.enabled": "false"}, nil, false, "does not know the cluster's secret"},
		{"another cluster", map[string]string{"cluster.name": `"somebody-else"`}, nil, true, "another cluster"},
		{"hosts mixed up in the roster", nil, func(e *harness.RosterEntry) {
			switch e.ReplicaID {
			case 0:
				e.Replica++
			case 1:
				e.Replica--
			}
		}, false, "check the roster"},
		{"hosts that do not answer", nil, func(e *harness.RosterEntry) {
			if e.ReplicaID != 2 {
				e.IP = "127.9.9.9"
			}
		}, false, "connection refused"},
	}
	for _, k := range cases {
		t.Run(k.name, func(t *testing.T) {
			odd.Set, odd.EditRoster = k.set, k.edit
			defer right()
			if k.fresh {
				must(t, odd.Backup("aside"))
				must(t, odd.Wipe())
				defer func() { must(t, odd.Restore("aside")) }()
			}
			var from []int
			for _, n := range c.Nodes() {
				from = append(from, n.LogEnd())
			}
			must(t, odd.Start())
			defer func() { must(t, odd.Kill()) }()
			harness.Eventually(t, harness.Patience, fmt.Sprintf("%q in some log", k.want), inSomeLog(c, from, k.want))
			works(t, c, stream, tp)
		})
	}
	must(t, odd.Start())
	must(t, odd.WaitReady(t.Context(), harness.Patience))
	settle(t, c, stream, tp, 1)
}

// TestTwoNodesWithOneID: a second process runs as a node that lives already, with a directory of its own. It is refused by
// all, and the first goes on.
func TestTwoNodesWithOneID(t *testing.T) {
	t.Parallel() // it waits more than it works
	c := three(t)
	stream, tp := topic(t, c, 1)
	settle(t, c, stream, tp, 1)
	second, err := harness.Prepare(harness.Options{Nodes: 3, Dir: t.TempDir()})
	must(t, err)
	twin := second.Node(2)
	// Its own ports, the others' addresses.
	twin.EditRoster = func(e *harness.RosterEntry) {
		if e.ReplicaID != 2 {
			*e = c.RosterEntry(e.ReplicaID)
		}
	}
	var from []int
	for _, n := range c.Nodes() {
		from = append(from, n.LogEnd())
	}
	must(t, twin.Start())
	text := "a second process"
	harness.Eventually(t, harness.Patience, fmt.Sprintf("%q in some log", text), inSomeLog(c, from, text))
	works(t, c, stream, tp)
	must(t, twin.Kill())
	must(t, second.Close(patient(t)))
	works(t, c, stream, tp)
	for i, n := range c.Nodes() {
		if strings.Contains(n.Log()[from[i]:], "node stops") {
			t.Errorf("%s stopped", n.Name)
		}
	}
}
