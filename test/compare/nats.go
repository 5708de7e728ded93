package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// natsServer is a running NATS server with JetStream.
type natsServer struct {
	tool string // the nats program
	url  string
	cmd  *exec.Cmd
	log  *os.File
}

// build compiles a package that go.mod pins.
func build(ctx context.Context, dir, pkg, out string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", out, pkg)
	cmd.Dir = dir
	if b, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, b)
	}
	return nil
}

// startNATS starts the server in dir and waits until it accepts connections.
func startNATS(ctx context.Context, server, tool, dir string) (*natsServer, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	_, port, err := net.SplitHostPort(address)
	if cerr := l.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "nats.log"))
	if err != nil {
		return nil, err
	}
	n := &natsServer{tool: tool, url: "nats://" + address, log: log}
	n.cmd = exec.CommandContext(ctx, server, "-js", "-sd", filepath.Join(dir, "jetstream"), "-a", "127.0.0.1", "-p", port)
	n.cmd.Stdout, n.cmd.Stderr = log, log
	if err := n.cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-tick.C {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			return n, c.Close()
		}
	}
	return nil, errors.Join(fmt.Errorf("the NATS server does not accept connections; its log is %s", log.Name()), n.stop())
}

func (n *natsServer) stop() error {
	err := n.cmd.Process.Signal(syscall.SIGTERM)
	if werr := n.cmd.Wait(); err == nil && werr != nil && n.cmd.ProcessState.ExitCode() > 1 {
		err = werr // it ends with 1 when a signal stopped it
	}
	return errors.Join(err, n.log.Close())
}

// natsResult is what the tool prints about a run.
type natsResult struct {
	perSecond float64 // messages
	p50       float64 // microseconds, 0 = not told
}

var (
	ratePattern = regexp.MustCompile(`stats: ([\d,]+) msgs/sec`)
	p50Pattern  = regexp.MustCompile(`P50: ([\d,.]+)us`)
)

// parseStats reads the last line of statistics: with several clients, that of all of them.
func parseStats(out string) (natsResult, error) {
	var r natsResult
	all := ratePattern.FindAllStringSubmatch(out, -1)
	if len(all) == 0 {
		return r, fmt.Errorf("no statistics in the output of nats bench:\n%s", out)
	}
	number := func(s string) (float64, error) { return strconv.ParseFloat(strings.ReplaceAll(s, ",", ""), 64) }
	var err error
	if r.perSecond, err = number(all[len(all)-1][1]); err != nil {
		return r, err
	}
	if p := p50Pattern.FindAllStringSubmatch(out, -1); len(p) > 0 {
		r.p50, err = number(p[len(p)-1][1])
	}
	return r, err
}

// bench runs the tool's benchmark.
func (n *natsServer) bench(ctx context.Context, args ...string) (natsResult, error) {
	args = append([]string{"-s", n.url, "--no-context", "bench", "js"}, args...)
	out, err := exec.CommandContext(ctx, n.tool, append(args, "--no-progress")...).CombinedOutput()
	if err != nil {
		return natsResult{}, fmt.Errorf("nats %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return parseStats(string(out))
}

const (
	natsSubject = "benchsubject"
	natsStream  = "benchstream"
)

// publish measures one way to publish, into an emptied stream on file storage.
func (n *natsServer) publish(ctx context.Context, how string, size, clients, messages int) (natsResult, error) {
	args := []string{
		"pub", how, natsSubject, "--stream", natsStream, "--create", "--purge", "--storage", "file", "--maxbytes", "4GB",
		"--size", strconv.Itoa(size), "--msgs", strconv.Itoa(messages), "--clients", strconv.Itoa(clients),
	}
	if how != "sync" {
		args = append(args, "--batch", strconv.Itoa(batchMessages))
	}
	return n.bench(ctx, args...)
}

// produce measures the asynchronous and the batched publisher; figures are by the name of the client.
func (n *natsServer) produce(ctx context.Context, size, clients, messages int) (map[string]float64, error) {
	by := map[string]float64{}
	for _, how := range []string{"async", "fast"} {
		r, err := n.publish(ctx, how, size, clients, messages)
		if err != nil {
			return nil, err
		}
		by[how] = r.perSecond
	}
	return by, nil
}

// consume fills the stream and reads it with each kind of consumer.
func (n *natsServer) consume(ctx context.Context, size, messages int) (map[string]float64, error) {
	if _, err := n.publish(ctx, "async", size, 1, messages); err != nil {
		return nil, err
	}
	by := map[string]float64{}
	for _, how := range []string{"ordered", "fetch"} {
		r, err := n.bench(ctx, how, "--stream", natsStream, "--size", strconv.Itoa(size), "--msgs", strconv.Itoa(messages), "--batch", strconv.Itoa(batchMessages))
		if err != nil {
			return nil, err
		}
		by[how] = r.perSecond
	}
	return by, nil
}
