package server

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary is a node of its own when this variable names a data directory:
// for tests that kill a process.
const nodeVariable = "WHIPPET_TEST_NODE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(nodeVariable); dir != "" {
		os.Exit(runNode(dir))
	}
	goleak.VerifyTestMain(m)
}

// runNode serves until a signal. It prints its address on one line.
func runNode(dir string) int {
	began := time.Now()
	TuneRuntime()
	cfg := DefaultConfig()
	cfg.Path = dir
	cfg.TCP.Address = "127.0.0.1:0"
	if a := os.Getenv(nodeVariable + "_ADDRESS"); a != "" {
		cfg.TCP.Address = a
	}
	cfg.Root.Default = true
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	s, err := Start(ctx, cfg, WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("listening", s.Addr(), time.Since(began).Microseconds())
	<-ctx.Done()
	if err := s.Close(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// process is a node in a process of its own.
type process struct {
	cmd  *exec.Cmd
	addr net.Addr
}

// Addr of the listener.
func (p *process) Addr() net.Addr { return p.addr }

func startProcess(t testing.TB, dir string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), nodeVariable+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd}
	t.Cleanup(func() { p.kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("node did not start: %v", err)
	}
	f := strings.Fields(line)
	if p.addr, err = net.ResolveTCPAddr("tcp", f[1]); err != nil {
		t.Fatal(err)
	}
	return p
}

// kill ends the process without a chance to write anything.
func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}
