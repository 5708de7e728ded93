package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/whippetmq/whippet/internal/vfs"
	"github.com/whippetmq/whippet/server"
)

// Bounds of a server's start and stop. The stop is bounded by the server itself; this is for a server that hangs.
const (
	startLimit = 5 * time.Minute // a node may have much to recover
	stopLimit  = 45 * time.Second
)

// serverCmd runs a node in this process.
type serverCmd struct {
	Config      string  `name:"config" placeholder:"FILE" help:"Configuration file; wins over IGGY_CONFIG_PATH. Default: whippet.toml in the working directory, when it is there."`
	Data        *string `name:"data" placeholder:"DIR" help:"Data directory; wins over the key path (local_data)."`
	ReplicaID   *int    `name:"replica-id" placeholder:"N" help:"Which entry of cluster.nodes this process is."`
	Fresh       bool    `name:"fresh" short:"f" help:"Delete the data of the node first; a directory that is not that of a node is refused."`
	DefaultRoot bool    `name:"with-default-root-credentials" help:"Make the root user iggy with the password iggy on an empty data directory, unless IGGY_ROOT_USERNAME and IGGY_ROOT_PASSWORD say otherwise."`
	ReadyFile   string  `name:"ready-file" hidden:"" placeholder:"FILE" help:"Write the node's addresses to FILE once it accepts requests."`
	Profile     string  `name:"cpu-profile" hidden:"" placeholder:"FILE" help:"Write a CPU profile to FILE at the end."`
}

// nodeInfo is a running node, as ready files describe it. Addresses are "host:port", empty for a transport that the node
// does not offer.
type nodeInfo struct {
	Name      string `json:"name"`
	PID       int    `json:"pid"`
	TCP       string `json:"tcp"`
	HTTP      string `json:"http"`
	QUIC      string `json:"quic"`
	WebSocket string `json:"websocket"`
	Data      string `json:"data"`
	// Restart is one shell line that starts this node in the background and prints its process id last.
	Restart string `json:"restart"`
}

// Run runs the node until the process is told to stop.
func (c *serverCmd) Run(inv *invocation) (err error) {
	if c.Data != nil && *c.Data == "" {
		// A variable of a script that is not set; the default directory is not what was meant, least of all with --fresh.
		return badUsage("--data is empty: it takes a directory")
	}
	stopProfile, err := startProfile(c.Profile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopProfile()) }()
	server.TuneRuntime()
	options := server.LoadOptions{File: c.Config, ReplicaID: c.ReplicaID, Fresh: c.Fresh, DefaultRoot: c.DefaultRoot}
	if c.Data != nil {
		options.Data = *c.Data
	}
	cfg, report, err := server.LoadConfig(options)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	report.Log(slog.New(slog.NewTextHandler(inv.Stdout, nil)))
	if v := inv.Getenv("IGGY_DISPLAY_CONFIG"); v == "1" || v == "true" {
		_, _ = fmt.Fprintln(inv.Stdout, cfg.Show())
	}
	startCtx, cancel := context.WithTimeout(inv.ctx, startLimit)
	defer cancel()
	srv, err := startServer(startCtx, cfg)
	if err != nil {
		if inv.ctx.Err() != nil {
			return nil // told to stop while it started
		}
		return fmt.Errorf("start the node: %w", err)
	}
	if c.ReadyFile != "" {
		data, err := filepath.Abs(cfg.Path)
		if err == nil {
			err = writeJSONFile(c.ReadyFile, nodeInfo{PID: os.Getpid(), TCP: srv.Addr().String(), Data: data})
		}
		if err != nil {
			return errors.Join(fmt.Errorf("write the ready file: %w", err), stop(srv))
		}
	}
	<-inv.ctx.Done()
	return stop(srv)
}

// takeOver is how long a start waits for address and directory while a process that was just killed still holds them:
// the kernel frees both a moment after the process is gone for others.
const takeOver = 2 * time.Second

func startServer(ctx context.Context, cfg *server.Config) (*server.Server, error) {
	deadline := time.Now().Add(takeOver)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		srv, err := server.Start(ctx, cfg)
		var locked *vfs.LockedError
		busy := errors.Is(err, syscall.EADDRINUSE) || errors.As(err, &locked)
		if !busy || time.Now().After(deadline) {
			return srv, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-tick.C:
		}
	}
}

func stop(srv *server.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if err := srv.Close(ctx); err != nil {
		return fmt.Errorf("stop the node: %w", err)
	}
	return nil
}

// writeJSONFile replaces a file by a JSON document, whole or not at all, so that who waits for it never reads half.
func writeJSONFile(path string, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone already after the rename
	_, err = f.Write(b.Bytes())
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
