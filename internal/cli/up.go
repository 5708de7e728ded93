package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/internal/cli/localnode"
	"github.com/whippetmq/whippet/wire"
)

// upCmd starts a working server, or a cluster of them, and says how to use it. Each node is a process of its own, which
// does not depend on this one living: when it dies, its nodes go on.
type upCmd struct {
	Nodes     int    `name:"nodes" default:"1" placeholder:"N" help:"How many nodes, each a process of its own (${default})."`
	Data      string `name:"data" default:"local_data" placeholder:"DIR" help:"Where the nodes keep their data (${default})."`
	BasePort  uint16 `name:"base-port" default:"8090" placeholder:"P" help:"TCP port of the first node (${default}); 0 takes any that is free. Node i of N uses P+i for clients and P+N+i for the other nodes."`
	ReadyFile string `name:"ready-file" placeholder:"F" help:"Write the nodes' addresses to F as JSON once all accept requests."`
}

// readyDocument is the ready file of up.
type readyDocument struct {
	Nodes []nodeInfo `json:"nodes"`
}

// The root user of nodes that up makes; they listen on loopback only.
const (
	upUser     = localnode.Username
	upPassword = localnode.Password
)

// Run starts the nodes and waits for Ctrl-C.
func (c *upCmd) Run(inv *invocation) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.ReadyFile != "" {
		// A file of an earlier run would tell who waits for it the wrong addresses. That of a run that goes on stays: check
		// has refused this one.
		if err := os.Remove(c.ReadyFile); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove the old ready file: %w", err)
		}
	}
	exe, err := c.executable()
	if err != nil {
		return err
	}
	if c.Nodes > 1 {
		return c.cluster(inv, exe)
	}
	node, err := localnode.Start(inv.ctx, localnode.Config{
		Executable: exe, Dir: c.Data, Name: localnode.NodeName(0), Address: fmt.Sprintf("127.0.0.1:%d", c.BasePort),
	})
	if err != nil {
		return err
	}
	info, err := c.describe(inv, node)
	if err == nil && c.ReadyFile != "" {
		err = writeJSONFile(c.ReadyFile, readyDocument{Nodes: []nodeInfo{info}})
	}
	if err != nil {
		return errors.Join(err, node.Stop())
	}
	c.tell(inv, info, node.Log())
	return c.wait(inv, []*localnode.Node{node})
}

// check looks at what can be known before anything is started.
func (c *upCmd) check() error {
	if c.Nodes < 1 || c.Nodes > localnode.MaxNodes {
		return badUsage("--nodes is %d: it must be 1 to %d", c.Nodes, localnode.MaxNodes)
	}
	if c.Data == "" {
		return badUsage("--data is empty: it takes a directory")
	}
	if last := localnode.LastPort(c.BasePort, c.Nodes); last > maxPort {
		return badUsage("--base-port is %d: %d nodes need the ports up to %d, and %d is the last there is", c.BasePort, c.Nodes, last, maxPort)
	}
	if fi, err := os.Stat(c.Data); err == nil && !fi.IsDir() {
		return fmt.Errorf("--data: %s is not a directory", c.Data)
	}
	if err := c.checkReadyFile(); err != nil {
		return err
	}
	held, err := localnode.Held(c.Data)
	if err != nil {
		return err
	}
	if held != 0 && held != c.Nodes {
		what := "that of a node on its own"
		if held > 1 {
			what = fmt.Sprintf("that of a cluster of %d nodes", held)
		}
		return fmt.Errorf("the data in %s is %s: start it with --nodes %d, or give another directory with --data", c.Data, what, held)
	}
	return localnode.Running(c.Data, held)
}

const maxPort = 1<<16 - 1

// checkReadyFile reports as an error that the ready file cannot be written.
func (c *upCmd) checkReadyFile() error {
	if c.ReadyFile == "" {
		return nil
	}
	if fi, err := os.Stat(c.ReadyFile); err == nil && fi.IsDir() {
		return fmt.Errorf("--ready-file: %s is a directory", c.ReadyFile)
	}
	f, err := os.CreateTemp(filepath.Dir(c.ReadyFile), filepath.Base(c.ReadyFile)+".*")
	if err != nil {
		return fmt.Errorf("--ready-file: %w", err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// executable is the program that nodes run. "go run" deletes what it built when this process ends, which nodes must
// survive: they get a copy beside their data.
func (c *upCmd) executable() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	if !builtByGoRun(exe) {
		return exe, nil
	}
	kept, err := filepath.Abs(filepath.Join(c.Data, "whippet"))
	if err == nil {
		err = copyProgram(exe, kept)
	}
	if err != nil {
		return "", fmt.Errorf("keep a copy of this program for the nodes: %w", err)
	}
	return kept, nil
}

// builtByGoRun reports whether a program is one that "go run" built and will delete.
func builtByGoRun(exe string) bool {
	return strings.Contains(exe, string(filepath.Separator)+"go-build")
}

// copyProgram puts a program in the place of another, which may be running.
func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // read only
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.CreateTemp(filepath.Dir(to), "whippet.*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(out.Name()) }() // gone already after the rename
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Chmod(0o755)
	}
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(out.Name(), to)
}

// describe signs in to the node, which proves that it accepts requests, and learns its name.
func (c *upCmd) describe(inv *invocation, node *localnode.Node) (nodeInfo, error) {
	info := nodeInfo{
		Name: "iggy-node", PID: node.PID(), TCP: node.Address(), Data: node.Data(), Restart: node.Restart(),
	}
	ctx, cancel := context.WithTimeout(inv.ctx, 30*time.Second)
	defer cancel()
	conn, err := client.New(client.Options{Addresses: []string{info.TCP}, Username: upUser, Password: upPassword})
	if err == nil {
		defer func() { _ = conn.Close() }() // only a look
		err = conn.Connect(ctx)
	}
	if errors.Is(err, wire.ErrInvalidCredentials) {
		_, _ = fmt.Fprintf(inv.Stderr, "Note: %s was made with another root password than %s; sign in with that one.\n", info.Data, upPassword)
		return info, nil
	}
	if err != nil {
		return info, fmt.Errorf("the node does not accept requests: %w", err)
	}
	roster, err := conn.ClusterMetadata(ctx)
	if err != nil {
		return info, fmt.Errorf("the node does not accept requests: %w", err)
	}
	if len(roster.Nodes) > 0 && roster.Nodes[0].Name != "" {
		info.Name = roster.Nodes[0].Name
	}
	return info, nil
}

// tell prints how to use the server.
func (c *upCmd) tell(inv *invocation, info nodeInfo, logFile string) {
	if inv.out.JSON {
		inv.out.Document(readyDocument{Nodes: []nodeInfo{info}})
		return
	}
	connect := fmt.Sprintf("iggy://%s:%s@%s", upUser, upPassword, info.TCP)
	w := invokedAs()
	inv.out.Line(`Whippet is running (process %d). Connection string:

    %s

Send a first message, and read it back:

    export WHIPPET_CONNECT=%s
    %s stream create demo
    %s topic create demo greetings 1
    %s message send demo greetings 'hello, world'
    %s message poll demo greetings 0 --first

Data is in %s, the log in %s. Ctrl-C stops the server.`, info.PID, connect, connect, w, w, w, w, info.Data, logFile)
}

// invokedAs is how the user would start this program again from the same shell.
func invokedAs() string {
	exe, err := os.Executable()
	if err != nil {
		return "whippet"
	}
	if builtByGoRun(exe) {
		return "go run ./cmd/whippet"
	}
	if found, err := exec.LookPath("whippet"); err == nil {
		if found, err = filepath.EvalSymlinks(found); err == nil && found == exe {
			return "whippet"
		}
	}
	return localnode.Quote(exe)
}

// wait returns when the user ends it, after the nodes have stopped.
func (c *upCmd) wait(inv *invocation, nodes []*localnode.Node) error {
	type end struct {
		node *localnode.Node
		err  error
	}
	ends := make(chan end, len(nodes))
	var watchers sync.WaitGroup
	for _, n := range nodes {
		watchers.Go(func() { // ends with the node, or with the command
			select {
			case err := <-n.Ended():
				ends <- end{n, err}
			case <-inv.ctx.Done():
			}
		})
	}
	for running := true; running; {
		select {
		case <-inv.ctx.Done():
			running = false
		case e := <-ends:
			_, _ = fmt.Fprintf(inv.Stderr, "%s ended (%v); its log is %s. Start it again with:\n\n    %s\n\nCtrl-C ends this command and the restarted node.\n",
				c.nodeTitle(e.node), e.err, e.node.Log(), e.node.Restart())
		}
	}
	watchers.Wait()
	errs := make([]error, len(nodes))
	var stops sync.WaitGroup
	for i, n := range nodes {
		stops.Go(func() { errs[i] = n.Stop() })
	}
	stops.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	inv.out.Line("Stopped.")
	return nil
}

func (c *upCmd) nodeTitle(n *localnode.Node) string {
	if c.Nodes == 1 {
		return "The node"
	}
	return n.Name()
}
