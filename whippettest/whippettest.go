package whippettest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/whippetmq/whippet/internal/credential"
	"github.com/whippetmq/whippet/server"
)

// Credentials of the root user of a test node.
const (
	Username = "iggy"
	Password = "iggy"
)

// Server is a running node.
type Server struct {
	t      testing.TB
	opts   options
	dir    string
	server *server.Server
}

// Option changes a test node.
type Option func(*options)

type options struct {
	dir    string
	log    bool
	change []func(*server.Config)
}

// WithConfig changes the configuration before the start.
func WithConfig(change func(*server.Config)) Option {
	return func(o *options) { o.change = append(o.change, change) }
}

// WithDir keeps the data in a directory of the caller's, which is not deleted:
// to start on the data of an earlier node.
func WithDir(dir string) Option { return func(o *options) { o.dir = dir } }

// WithLog shows the node's log in the test's output.
func WithLog() Option {
	return func(o *options) { o.log = true }
}

// Start runs a node until the test ends. When it cannot be started the test
// fails at once.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s := &Server{t: t}
	for _, o := range opts {
		o(&s.opts)
	}
	if s.dir = s.opts.dir; s.dir == "" {
		s.dir = t.TempDir()
	}
	s.start()
	t.Cleanup(func() { s.Stop() })
	return s
}

func (s *Server) start() {
	s.t.Helper()
	cfg := server.DefaultConfig()
	cfg.Path = s.dir
	cfg.TCP.Address = "127.0.0.1:0"
	cfg.Root.Username, cfg.Root.Password = Username, Password
	for _, change := range s.opts.change {
		change(cfg)
	}
	log := slog.New(slog.DiscardHandler)
	if s.opts.log {
		log = slog.New(slog.NewTextHandler(s.t.Output(), nil))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	srv, err := server.Start(ctx, cfg, server.WithLogger(log), server.WithHasher(credential.Config{Cheap: true}))
	if err != nil {
		s.t.Fatalf("whippettest: %v", err)
	}
	s.server = srv
}

// Stop closes the node in an orderly way before the test ends. A node that is
// stopped already stays so.
func (s *Server) Stop() {
	s.t.Helper()
	if s.server == nil {
		return
	}
	if err := s.server.Close(context.Background()); err != nil {
		s.t.Errorf("whippettest: %v", err)
	}
	s.server = nil
}

// Restart stops the node and starts it on the same data, on another free port.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	s.start()
}

// Addr is host:port of the TCP listener.
func (s *Server) Addr() string { return s.server.Addr().String() }

// Port of the TCP listener.
func (s *Server) Port() int { return s.server.Addr().(*net.TCPAddr).Port }

// Dir is the data directory.
func (s *Server) Dir() string { return s.dir }

// ConnectionString signs in as the root user, for any client of the protocol.
func (s *Server) ConnectionString() string {
	return fmt.Sprintf("iggy://%s:%s@%s", Username, Password, s.Addr())
}
