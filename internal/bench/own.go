package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/internal/cli/localnode"
)

// Own starts a server, or the floor, as a process of its own in a directory of its own.
type Own struct {
	// Executable is the whippet program.
	Executable string
	// Floor starts the floor instead of a server.
	Floor bool
	// Dir holds data and logs; empty = a temporary directory that Stop removes.
	Dir string
	// Parent is where a temporary directory is made; empty = where the system keeps them.
	Parent string
	// Settings are more lines for the server's configuration file.
	Settings string

	// Profile is where the process writes a CPU profile when it ends, "" = none.
	Profile string

	temporary bool
	node      *localnode.Node
}

// Start starts the process and waits until it accepts requests.
func (o *Own) Start(ctx context.Context) (Target, error) {
	if o.Dir == "" {
		dir, err := os.MkdirTemp(o.Parent, "whippet-bench-")
		if err != nil {
			return Target{}, fmt.Errorf("directory for the benchmark: %w", err)
		}
		o.Dir, o.temporary = dir, true
	}
	cfg := localnode.Config{Executable: o.Executable, Dir: o.Dir, Name: o.name(), Address: "127.0.0.1:0", Settings: o.Settings}
	if o.Floor {
		cfg.Command = []string{"bench", "floor-server"}
	}
	if o.Profile != "" {
		cfg.Flags = append(cfg.Flags, "--cpu-profile", o.Profile)
	}
	node, err := localnode.Start(ctx, cfg)
	if err != nil {
		return Target{}, err
	}
	o.node = node
	return Target{
		Name: o.name(), PID: node.PID(), Data: node.Data(), Restart: o.restarter(),
		Options: client.Options{Addresses: []string{node.Address()}, Username: "iggy", Password: "iggy"},
	}, nil
}

func (o *Own) name() string {
	if o.Floor {
		return "floor"
	}
	return "server"
}

// restarter stops the process and starts it again on the same data. The floor keeps nothing in memory but where its
// records are, so it is not restarted.
func (o *Own) restarter() func(context.Context) (Target, error) {
	if o.Floor {
		return nil
	}
	return func(ctx context.Context) (Target, error) {
		if err := o.node.Stop(); err != nil {
			return Target{}, err
		}
		return o.Start(ctx)
	}
}

// Kill ends the process at once; Start starts it again on the same data.
func (o *Own) Kill() { o.node.Kill() }

// Stop ends the process and removes what was temporary.
func (o *Own) Stop() error {
	var err error
	if o.node != nil {
		err = o.node.Stop()
	}
	if o.temporary {
		if e := os.RemoveAll(o.Dir); err == nil {
			err = e
		}
	}
	return err
}

// logFiles are the files of messages in a data directory, of a server or of the floor.
func logFiles(dir string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".log") && !strings.Contains(path, string(filepath.Separator)+"metadata"+string(filepath.Separator)) {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for the files of messages: %w", err)
	}
	return out, nil
}
