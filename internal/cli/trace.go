package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// tracer writes what the client does to the file of --debug; it implements the client's hooks.
type tracer struct {
	file *os.File
	log  *slog.Logger
}

func openTrace(path string) (*tracer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the trace: %w", err)
	}
	return &tracer{file: f, log: slog.New(slog.NewTextHandler(f, &slog.HandlerOptions{Level: slog.LevelDebug}))}, nil
}

func (t *tracer) close() { _ = t.file.Close() }

// OnLinkDial logs a dial.
func (t *tracer) OnLinkDial(address, role string, took time.Duration, err error) {
	t.log.Debug("dial", "address", address, "role", role, "took", took, "err", err)
}

// OnLinkClose logs the end of a connection.
func (t *tracer) OnLinkClose(address, role string, err error) {
	t.log.Debug("connection closed", "address", address, "role", role, "err", err)
}

// OnRefusal logs a request that the server refused for now.
func (t *tracer) OnRefusal(address string, code uint32) {
	t.log.Debug("refused", "address", address, "code", code)
}

// patience tells, once, that the command waits for a server that does not answer yet.
type patience struct {
	w     io.Writer
	quiet bool
	once  sync.Once
}

// OnLinkDial notes the first dial that failed.
func (p *patience) OnLinkDial(address, _ string, _ time.Duration, err error) {
	var network net.Error
	if err == nil || p.quiet || errors.Is(err, context.Canceled) || !errors.As(err, &network) {
		return
	}
	p.once.Do(func() {
		_, _ = fmt.Fprintf(p.w, "No server answers at %s yet (%v); trying again.\n", address, err)
	})
}
