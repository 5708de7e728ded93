package whippettest_test

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/server"
	"github.com/whippetmq/whippet/whippettest"
	"github.com/whippetmq/whippet/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connect(t *testing.T, srv *whippettest.Server) *client.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, err := client.Connect(ctx, srv.ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestStart(t *testing.T) {
	srv := whippettest.Start(t)
	c := connect(t, srv)
	if _, err := c.CreateStream(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateTopic(t.Context(), wire.Name("orders"), client.TopicConfig{Name: "eu", Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	conf, err := c.Send(t.Context(), wire.Name("orders"), wire.Name("eu"), wire.PartitionID(1), client.Message{Payload: []byte("hello")})
	if err != nil || conf.Partition != 1 {
		t.Fatal(conf, err)
	}
	// A second one beside it shares nothing.
	other := connect(t, whippettest.Start(t))
	streams, err := other.Streams(t.Context())
	if err != nil || len(streams) != 0 {
		t.Fatal(streams, err)
	}
}

func TestRestartAndDir(t *testing.T) {
	dir := t.TempDir()
	srv := whippettest.Start(t, whippettest.WithDir(dir), whippettest.WithLog())
	c := connect(t, srv)
	if _, err := c.CreateStream(t.Context(), "kept"); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	srv.Restart()
	c = connect(t, srv)
	streams, err := c.Streams(t.Context())
	if err != nil || len(streams) != 1 {
		t.Fatal(streams, err)
	}
	_ = c.Close()
	if _, err := os.Stat(filepath.Join(srv.Dir(), "metadata")); err != nil {
		t.Fatal(err)
	}
	addr := srv.Addr()
	srv.Stop()
	srv.Stop()
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Fatal("still listens")
	}
}

func TestWithConfig(t *testing.T) {
	srv := whippettest.Start(t, whippettest.WithConfig(func(c *server.Config) { c.Bus.MaxConnections = 1 }))
	if srv.Port() == 0 {
		t.Fatal("no port")
	}
	first, err := net.Dial("tcp", srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	second, err := net.Dial("tcp", srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Close() }()
	_ = second.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := second.Read(make([]byte, 1)); err != io.EOF {
		t.Fatal(err)
	}
}
