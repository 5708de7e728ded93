package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/whippetmq/whippet/internal/bench"
	"github.com/whippetmq/whippet/internal/cli/output"
	"github.com/whippetmq/whippet/internal/cli/units"
)

// benchNodeCmd measures what a node costs by itself.
type benchNodeCmd struct {
	Starts     int    `name:"starts" default:"5" placeholder:"N" help:"How often an empty node is started (${default})."`
	Idle       string `name:"idle" default:"10s" placeholder:"TIME" help:"How long an idle node is watched (${default})."`
	Partitions uint32 `name:"partitions" default:"1000" placeholder:"N" help:"Idle partitions to watch; 0 leaves the rows out (${default})."`
	Segments   string `name:"segments" default:"10GB" placeholder:"SIZE" help:"Messages in the node that is killed and restarted; 0 leaves the row out (${default})."`
	Data       string `name:"data" placeholder:"DIR" help:"Directory for the files, which are removed at the end. Default: a temporary one."`
}

// Run measures.
func (c *benchNodeCmd) Run(inv *invocation) error {
	idle, err := units.ParseDuration(c.Idle)
	if err != nil || idle == 0 {
		return badUsage("--idle %q is not a duration above zero, such as 10s", c.Idle)
	}
	segments, err := units.ParseSize(c.Segments)
	if err != nil {
		return badUsage("--segments: %v", err)
	}
	if c.Starts < 1 {
		return badUsage("--starts must be 1 or more")
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	var progress io.Writer = inv.Stderr
	if inv.globals.Quiet {
		progress = nil
	}
	inv.out.Executing("bench node")
	n := &bench.NodeCost{
		Executable: exe, Dir: c.Data, Starts: c.Starts, Idle: time.Duration(idle) * time.Microsecond, Partitions: c.Partitions,
		Segments: segments, Progress: progress,
	}
	rows, runErr := n.Run(inv.ctx)
	if len(rows) > 0 {
		t := bench.NodeTable(rows)
		inv.out.Sheet(output.Sheet{Header: t.Header, Rows: t.Rows, Doc: rows})
	}
	return runErr
}
