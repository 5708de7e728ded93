package harness

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
	"syscall"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// stopLimit bounds an orderly stop of a node; the server's own bound is 10 s and a little.
const stopLimit = 20 * time.Second

// Node is one node of a cluster: a process, its data directory and its log. Its methods may be called concurrently, but
// starting and stopping is the business of one goroutine.
type Node struct {
	Index int
	Name  string
	Dir   string // its data directory

	// Set has keys of this node's own configuration, over Options.Set; EditRoster changes what it believes of a node. They
	// hold from the next start on: for nodes that are configured wrong.
	Set        map[string]string
	EditRoster func(*RosterEntry)

	cluster *Cluster
	direct  string
	log     string // path

	mu      sync.Mutex
	process *process // nil = not running
	died    error    // the process ended although nobody told it to

	// adminMu guards admin, and is held while the node answers: mu is not, so that a node that does not answer can still
	// be killed.
	adminMu sync.Mutex
	admin   *Raw
}

// process is one life of a node.
type process struct {
	cmd    *exec.Cmd
	ended  chan struct{} // closed behind err
	err    error
	told   bool // it was told to end; guarded by the node's mutex
	paused bool // likewise
}

// Addr is what clients connect to: the node's proxy, or the node.
func (n *Node) Addr() string {
	if p := n.cluster.proxies; p != nil {
		return p[n.Index].Addr()
	}
	return n.direct
}

// Direct is the node's own address, behind its proxy.
func (n *Node) Direct() string { return n.direct }

// Proxy in front of the node; nil without Options.Proxies.
func (n *Node) Proxy() *Proxy {
	if n.cluster.proxies == nil {
		return nil
	}
	return n.cluster.proxies[n.Index]
}

// Start starts the node's process and does not wait until it is ready.
func (n *Node) Start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process != nil {
		return fmt.Errorf("%s runs already", n.Name)
	}
	config, err := n.cluster.writeConfig(n)
	if err != nil {
		return fmt.Errorf("configuration of %s: %w", n.Name, err)
	}
	args := []string{"server", "--config", config, "--data", n.Dir}
	if n.cluster.Options.Nodes > 1 {
		args = append(args, "--replica-id", fmt.Sprint(n.Index))
	}
	o := &n.cluster.Options
	cmd, log, err := command(o.build(), n.log, append(args, o.Args...), o.environment())
	if err != nil {
		return fmt.Errorf("start %s: %w", n.Name, err)
	}
	if err := cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", n.Name, err), log.Close())
	}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	n.process = p
	n.cluster.wg.Go(func() { n.watch(p, log) })
	return nil
}

// command prepares a process of the binary with a build tag that appends its output to a log.
func command(tag, path string, args, env []string) (*exec.Cmd, *os.File, error) {
	binary, err := Binary(tag)
	if err != nil {
		return nil, nil, err
	}
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, err
	}
	if _, err := fmt.Fprintf(log, "--- whippet %s\n", strings.Join(args, " ")); err != nil {
		return nil, nil, errors.Join(err, log.Close())
	}
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir(),
		"IGGY_ROOT_USERNAME=" + Username, "IGGY_ROOT_PASSWORD=" + Password,
	}, env...)
	// A test process that is killed must not leave nodes behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd, log, nil
}

// watch waits for the end of a process.
func (n *Node) watch(p *process, log *os.File) {
	err := p.cmd.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !p.told {
		n.died = fmt.Errorf("%s ended although nobody told it to: %w", n.Name, orEnded(err))
	}
	if n.process == p {
		n.process = nil
	}
	p.err = err
	_ = log.Close() // the process wrote through its own descriptor
	close(p.ended)
}

var errEnded = errors.New("exit code 0")

func orEnded(err error) error {
	if err == nil {
		return errEnded
	}
	return err
}

// Running reports whether the node's process lives, paused or not.
func (n *Node) Running() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process != nil
}

// Paused reports whether the process is stopped by Pause.
func (n *Node) Paused() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process != nil && n.process.paused
}

// PID of the process, 0 when there is none.
func (n *Node) PID() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process == nil {
		return 0
	}
	return n.process.cmd.Process.Pid
}

// signal sends a signal to the process, and notes what it means.
func (n *Node) signal(s syscall.Signal) (*process, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.process
	if p == nil {
		return nil, fmt.Errorf("%s does not run", n.Name)
	}
	switch s {
	case syscall.SIGKILL, syscall.SIGTERM:
		p.told = true
	case syscall.SIGSTOP:
		p.paused = true
	case syscall.SIGCONT:
		p.paused = false
	}
	if err := p.cmd.Process.Signal(s); err != nil {
		return nil, fmt.Errorf("signal %s: %w", n.Name, err)
	}
	return p, nil
}

// Kill ends the process at once (SIGKILL) and waits until it is gone. A node that does not run stays so.
func (n *Node) Kill() error {
	if !n.Running() {
		return nil
	}
	p, err := n.signal(syscall.SIGKILL)
	if err != nil {
		return err
	}
	<-p.ended // the kernel does not keep it waiting
	return nil
}

// Stop ends the process in an orderly way (SIGTERM) and waits; it must exit with 0.
func (n *Node) Stop(ctx context.Context) error {
	if !n.Running() {
		return nil
	}
	if n.Paused() {
		if err := n.Resume(); err != nil {
			return err
		}
	}
	p, err := n.signal(syscall.SIGTERM)
	if err != nil {
		return err
	}
	timer := time.NewTimer(stopLimit)
	defer timer.Stop()
	select {
	case <-p.ended:
		if p.err != nil {
			return fmt.Errorf("orderly stop of %s: %w", n.Name, p.err)
		}
		return nil
	case <-timer.C:
		err = fmt.Errorf("%s did not stop within %v of SIGTERM", n.Name, stopLimit)
	case <-ctx.Done():
		err = fmt.Errorf("%s did not stop in time: %w", n.Name, context.Cause(ctx))
	}
	// SIGQUIT has the process write where its goroutines are.
	_ = p.cmd.Process.Signal(syscall.SIGQUIT)
	quit := time.NewTimer(time.Second)
	defer quit.Stop()
	select {
	case <-p.ended:
	case <-quit.C:
		err = errors.Join(err, n.Kill())
	}
	return err
}

// Pause stops the process without ending it (SIGSTOP) and waits until each of its threads stands; Resume lets it go on.
func (n *Node) Pause() error {
	p, err := n.signal(syscall.SIGSTOP)
	if err != nil {
		return err
	}
	tasks := fmt.Sprintf("/proc/%d/task", p.cmd.Process.Pid)
	return Until(context.Background(), Patience, n.Name+" to stand still", func(context.Context) error {
		threads, err := os.ReadDir(tasks)
		if err != nil {
			return err
		}
		for _, thread := range threads {
			stat, err := os.ReadFile(filepath.Join(tasks, thread.Name(), "stat"))
			if err != nil {
				continue // it ended meanwhile
			}
			// "pid (name) state …"; the name may hold anything.
			if i := strings.LastIndex(string(stat), ") "); i < 0 || stat[i+2] != 'T' {
				return ErrNotYet
			}
		}
		return nil
	})
}

// Resume ends Pause.
func (n *Node) Resume() error {
	_, err := n.signal(syscall.SIGCONT)
	return err
}

// Wipe empties the data directory of a node that does not run.
func (n *Node) Wipe() error {
	if n.Running() {
		return fmt.Errorf("%s runs: its data stays", n.Name)
	}
	if err := os.RemoveAll(n.Dir); err != nil {
		return err
	}
	return os.MkdirAll(n.Dir, 0o700)
}

// Backup copies the data directory of a node that does not run, for Restore.
func (n *Node) Backup(name string) error {
	if n.Running() {
		return fmt.Errorf("%s runs: a copy of its data would be torn", n.Name)
	}
	return os.CopyFS(n.backup(name), os.DirFS(n.Dir))
}

// Restore puts a copy in the place of the data directory of a node that does not run.
func (n *Node) Restore(name string) error {
	if err := n.Wipe(); err != nil {
		return err
	}
	return os.CopyFS(n.Dir, os.DirFS(n.backup(name)))
}

func (n *Node) backup(name string) string {
	return filepath.Join(n.cluster.Options.Dir, n.Name+"-"+name)
}

// Log is what the node wrote so far, in all its lives.
func (n *Node) Log() string {
	b, err := os.ReadFile(n.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// LogEnd is the size of the log: a position for WaitLog.
func (n *Node) LogEnd() int {
	info, err := os.Stat(n.log)
	if err != nil {
		return 0 // nothing was written yet
	}
	return int(info.Size())
}

// WaitLog waits until the log has a text behind a position; it gives the position behind the text.
func (n *Node) WaitLog(ctx context.Context, limit time.Duration, from int, text string) (int, error) {
	var at int
	err := Until(ctx, limit, fmt.Sprintf("%q in the log of %s", text, n.Name), func(context.Context) error {
		log := n.Log()
		i := strings.Index(log[min(from, len(log)):], text)
		if i < 0 {
			return ErrNotYet
		}
		at = from + i + len(text)
		return nil
	})
	return at, err
}

// tail is the end of the log, for failures.
func (n *Node) tail(lines int) string {
	f, err := os.Open(n.log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	const most = 64 << 10
	if end, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, end-most), io.SeekStart) // at worst the tail is read from the end: nothing
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// alarms are what no log may have: the marks of a crash or of a data race.
var alarms = []string{"WARNING: DATA RACE", "panic: ", "fatal error: ", "goroutine stack exceeds"} //nolint:gochecknoglobals // a constant list

// Fault is what went wrong with the node whatever the test looked at.
func (n *Node) fault() error {
	n.mu.Lock()
	died := n.died
	n.mu.Unlock()
	log := n.Log()
	for _, a := range alarms {
		if i := strings.Index(log, a); i >= 0 {
			return errors.Join(died, fmt.Errorf("the log of %s has %q:\n%s", n.Name, a, log[i:min(len(log), i+6000)]))
		}
	}
	return died
}

// Call asks the node something as the root user, past its proxy. It is for questions and for commands that may be
// repeated: when the connection is lost it asks once more on a new one.
func (n *Node) Call(ctx context.Context, req wire.Request, into wire.Reply) error {
	n.adminMu.Lock()
	defer n.adminMu.Unlock()
	for attempt := 0; ; attempt++ {
		fresh := n.admin == nil
		if fresh {
			r, err := LoginRaw(ctx, n.direct)
			if err != nil {
				return fmt.Errorf("sign in to %s: %w", n.Name, err)
			}
			n.admin = r
		}
		err := n.admin.Call(ctx, req, into)
		var code wire.ErrorCode
		if err == nil || errors.As(err, &code) && code != wire.ErrUnauthenticated && code != wire.ErrStaleClient {
			return err
		}
		n.dropAdmin()
		if fresh || attempt > 0 || ctx.Err() != nil {
			return err
		}
	}
}

// dropAdmin ends the connection of Call. Caller holds adminMu.
func (n *Node) dropAdmin() {
	if n.admin != nil {
		n.admin.Close()
		n.admin = nil
	}
}
