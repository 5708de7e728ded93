package crash

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/whippetmq/whippet/client"
)

// binaryVariable names a program to test instead of one built from this tree.
const binaryVariable = "WHIPPET_BINARY"

const (
	user     = "crash"
	password = "crash-test"
)

// node is `whippet server` in a process of its own.
type node struct {
	t       testing.TB
	binary  string
	dir     string
	address string
	log     *os.File
	command *exec.Cmd
	exited  chan error
}

func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{t: t, dir: t.TempDir(), binary: os.Getenv(binaryVariable)}
	if n.binary == "" {
		n.binary = filepath.Join(t.TempDir(), "whippet")
		build := exec.CommandContext(t.Context(), "go", "build", "-o", n.binary, "github.com/whippetmq/whippet/cmd/whippet")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build: %v\n%s", err, out)
		}
	}
	// A port of our own for all starts: clients find the node where it was.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.address = l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if n.log, err = os.Create(filepath.Join(t.TempDir(), "node.log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.kill()
		if t.Failed() {
			n.showLog()
		}
		_ = n.log.Close()
	})
	return n
}

// showLog prints the end of what the node wrote.
func (n *node) showLog() {
	const most = 8 << 10
	b, err := os.ReadFile(n.log.Name())
	if err != nil {
		n.t.Log(err)
		return
	}
	n.t.Logf("end of the node's log:\n%s", b[max(0, len(b)-most):])
}

func (n *node) connection() string {
	return fmt.Sprintf("iggy://%s:%s@%s", user, password, n.address)
}

// launch runs the node without waiting for it.
func (n *node) launch() {
	n.t.Helper()
	n.command = exec.Command(n.binary, "server", "--data", filepath.Join(n.dir, "data"))
	n.command.Dir = n.dir // no configuration file of the caller's
	n.command.Env = append(os.Environ(), "IGGY_TCP_ADDRESS="+n.address, "IGGY_ROOT_USERNAME="+user, "IGGY_ROOT_PASSWORD="+password)
	n.command.Stdout, n.command.Stderr = n.log, n.log
	if err := n.command.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.exited = make(chan error, 1)
	go func(c *exec.Cmd, exited chan error) { exited <- c.Wait() }(n.command, n.exited)
}

// start runs the node and returns when it answers, with the time that took.
func (n *node) start() time.Duration {
	n.t.Helper()
	began := time.Now()
	n.launch()
	ctx, cancel := context.WithTimeout(n.t.Context(), 30*time.Second)
	defer cancel()
	c, err := client.Connect(ctx, n.connection())
	if err != nil {
		n.t.Fatalf("the node does not answer: %v", err)
	}
	if err := c.Close(); err != nil {
		n.t.Error(err)
	}
	return time.Since(began)
}

// kill ends the process with SIGKILL and waits until it is gone.
func (n *node) kill() {
	if n.exited == nil {
		return
	}
	_ = n.command.Process.Kill()
	<-n.exited
	n.exited = nil
}

// stop ends the process in an orderly way; anything but exit code 0 fails the test.
func (n *node) stop() {
	n.t.Helper()
	if err := n.command.Process.Signal(syscall.SIGTERM); err != nil {
		n.t.Error(err)
	}
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	select {
	case err := <-n.exited:
		n.exited = nil
		if err != nil {
			n.t.Errorf("orderly stop: %v", err)
		}
	case <-timer.C:
		n.t.Error(errors.New("the node does not stop"))
		n.kill()
	}
}
