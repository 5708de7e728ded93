package localnode

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Config says what to start.
type Config struct {
	Executable string // the whippet program
	Dir        string // where the node's files are; it is made
	Name       string
	Address    string // host:port to listen on; port 0 takes a free one
	Settings   string // more lines for the configuration file
	// Command replaces the server's arguments, for other programs that serve the protocol: it is given data directory,
	// address and ready file, in this order, as the values of --data, --address and --ready-file.
	Command []string
	Flags   []string // more flags, behind all others
}

// How long a start and a stop may take. A start is long when there is much to recover.
const (
	startLimit = 5 * time.Minute
	stopLimit  = 60 * time.Second
	lookEvery  = 2 * time.Millisecond
)

// Node is a started process.
type Node struct {
	cfg     Config
	dir     string
	args    []string
	replica bool // of a cluster
	pid     int
	addr    string
	ended   chan error // closed when the process that Start made has ended; its error comes first
	done    chan struct{}
}

// ready is what the node itself writes; other fields are for other readers.
type ready struct {
	PID int    `json:"pid"`
	TCP string `json:"tcp"`
}

// Start starts the node and returns when it accepts requests.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	n, err := newNode(cfg)
	if err != nil {
		return nil, err
	}
	if err := n.free(); err != nil {
		return nil, err
	}
	if len(cfg.Command) > 0 {
		if err := os.MkdirAll(n.Data(), 0o755); err != nil {
			return nil, fmt.Errorf("start a node: %w", err)
		}
		n.args = append(n.args, cfg.Command...)
		n.args = append(n.args, "--data", n.Data(), "--address", cfg.Address, "--ready-file", n.path(".ready"))
	} else {
		if err := n.configure(cfg.Address); err != nil {
			return nil, err
		}
		n.args = []string{
			"server", "--config", n.path(".toml"), "--data", n.Data(), "--with-default-root-credentials",
			"--ready-file", n.path(".ready"),
		}
	}
	n.args = append(n.args, cfg.Flags...)
	if err := n.StartAgain(ctx); err != nil {
		return nil, err
	}
	if len(cfg.Command) == 0 && n.addr != cfg.Address {
		// A free port was taken: a restart must come back on the same one.
		if err := n.configure(n.addr); err != nil {
			return nil, errors.Join(err, n.Stop())
		}
	}
	return n, nil
}

// newNode prepares a node and its directory.
func newNode(cfg Config) (*Node, error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("start a node: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("start a node: %w", err)
	}
	return &Node{cfg: cfg, dir: dir}, nil
}

// free reports as an error that a process of an earlier start still runs.
func (n *Node) free() error {
	r, err := n.ready()
	if err != nil || r.PID <= 0 || !n.isOurs(r.PID) {
		return nil //nolint:nilerr // without a ready file nothing was started
	}
	return &RunningError{Name: n.cfg.Name, Dir: n.dir, PID: r.PID}
}

// Running reports as a RunningError that one of the nodes of a directory still runs.
func Running(dir string, nodes int) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("look for running nodes: %w", err)
	}
	for i := range nodes {
		n := &Node{cfg: Config{Name: NodeName(i)}, dir: dir}
		if err := n.free(); err != nil {
			return err
		}
	}
	return nil
}

// RunningError says that a node of an earlier start still runs.
type RunningError struct {
	Name, Dir string
	PID       int
}

// Error names the process and what to do.
func (e *RunningError) Error() string {
	return fmt.Sprintf("%s of %s runs already, as process %d: end it with \"kill %d\", or use another directory", e.Name, e.Dir, e.PID, e.PID)
}

// StartAgain starts the process anew, on the same data and address, after it has ended; it returns when the node accepts
// connections.
func (n *Node) StartAgain(ctx context.Context) error {
	if err := n.begin(); err != nil {
		return err
	}
	return n.await(ctx)
}

// begin starts the process and does not wait.
func (n *Node) begin() error {
	if err := os.Remove(n.path(".ready")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("start a node: %w", err)
	}
	n.ended, n.done = make(chan error, 1), make(chan struct{})
	return n.spawn()
}

// configure writes the configuration file.
func (n *Node) configure(address string) error {
	text := fmt.Sprintf("# Written at each start by the program that started this node.\n%s\n[tcp]\naddress = %q\n", n.cfg.Settings, address)
	if err := os.WriteFile(n.path(".toml"), []byte(text), 0o600); err != nil {
		return fmt.Errorf("start a node: %w", err)
	}
	return nil
}

func (n *Node) spawn() error {
	log, err := os.OpenFile(n.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start a node: %w", err)
	}
	defer func() { _ = log.Close() }() // the process has its own
	// Not bound to a context: the node outlives whoever started it, unless it is stopped.
	cmd := exec.Command(n.cfg.Executable, n.args...) //nolint:gosec,noctx // this program itself
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "IGGY_") {
			cmd.Env = append(cmd.Env, v) // a restart from another shell must find the same configuration
		}
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a node: %w", err)
	}
	n.pid = cmd.Process.Pid
	ended, done := n.ended, n.done
	go func() { // ends with the process
		err := cmd.Wait()
		if err == nil {
			err = errors.New("exit status 0")
		}
		ended <- err
		close(done)
	}()
	return nil
}

// await looks for the ready file.
func (n *Node) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if r, err := n.ready(); err == nil && r.PID == n.pid {
			n.addr = r.TCP
			return nil
		}
		select {
		case err := <-n.ended:
			return fmt.Errorf("%s did not start (%w):\n%s", n.name(), err, n.tail())
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("wait for %s to start: %w", n.name(), ctx.Err()), n.Stop())
		case <-tick.C:
		}
	}
}

func (n *Node) ready() (r ready, err error) {
	b, err := os.ReadFile(n.path(".ready"))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	return r, err
}

func (n *Node) path(suffix string) string { return filepath.Join(n.dir, n.cfg.Name+suffix) }

// Data is the node's data directory.
func (n *Node) Data() string { return n.path("") }

// Log is the file with what the node prints.
func (n *Node) Log() string { return n.path(".log") }

// name is how messages call the node.
func (n *Node) name() string {
	if n.replica {
		return n.cfg.Name
	}
	return "the node"
}

// Name is the node's name, in a cluster that of the roster.
func (n *Node) Name() string { return n.cfg.Name }

// PID is the process that Start made.
func (n *Node) PID() int { return n.pid }

// Address is where the node listens, "host:port".
func (n *Node) Address() string { return n.addr }

// Ended delivers how the process that Start made ended, once.
func (n *Node) Ended() <-chan error { return n.ended }

// Restart is one line for a shell that starts the node in the background, needs no environment, and prints the new
// process id last.
func (n *Node) Restart() string {
	var b strings.Builder
	b.WriteString("nohup " + Quote(n.cfg.Executable))
	for _, a := range n.args {
		b.WriteString(" " + Quote(a))
	}
	return b.String() + " >> " + Quote(n.Log()) + " 2>&1 < /dev/null & echo $!"
}

// Stop asks the node to end and waits for it, whether it is the process that Start made or one that was restarted since.
func (n *Node) Stop() error {
	pid := n.pid
	if r, err := n.ready(); err == nil && r.PID > 0 {
		pid = r.PID
	}
	if pid <= 0 {
		return nil // it was never started
	}
	own := pid == n.pid
	if own {
		select {
		case <-n.done:
			return nil // the number may belong to another process by now
		default:
		}
	} else if !n.isOurs(pid) {
		return nil
	}
	if err := signal(pid, syscall.SIGTERM); err != nil {
		return err
	}
	deadline := time.Now().Add(stopLimit)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for time.Now().Before(deadline) {
		if own {
			select {
			case <-n.done:
				return nil
			case <-tick.C:
			}
			continue
		}
		if !n.isOurs(pid) {
			return nil
		}
		<-tick.C
	}
	_ = signal(pid, syscall.SIGKILL) // it may have ended just now
	return fmt.Errorf("%s (process %d) did not stop within %v and was killed", n.name(), pid, stopLimit)
}

// Kill ends the process that Start made at once, as a power cut of the process would.
func (n *Node) Kill() {
	select {
	case <-n.done:
		return
	default:
	}
	_ = signal(n.pid, syscall.SIGKILL) // it may have ended just now
	<-n.done
}

// isOurs reports whether a process was started for this very node: its arguments name the ready file.
func (n *Node) isOurs(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && bytes.Contains(b, []byte(n.path(".ready")))
}

func signal(pid int, s syscall.Signal) error {
	if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal process %d: %w", pid, err)
	}
	return nil
}

// tail is the end of the log, to show why a node did not start.
func (n *Node) tail() string {
	f, err := os.Open(n.Log())
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // read only
	const most = 2000
	if st, err := f.Stat(); err == nil && st.Size() > most {
		if _, err := f.Seek(-most, io.SeekEnd); err != nil {
			return ""
		}
	}
	b, _ := io.ReadAll(f) // whatever there is
	return strings.TrimSpace(string(b))
}

// Quote makes one word of a shell line, left alone when it needs no quotes.
func Quote(s string) string {
	plain := s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=,+@%", r))
	}) < 0
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
