package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/whippetmq/whippet/internal/bench"
	"github.com/whippetmq/whippet/internal/cli/units"
)

// benchClusterCmd measures what a cluster does when things move and fail, and with many partitions.
type benchClusterCmd struct {
	Rounds   int      `name:"rounds" default:"3" placeholder:"N" help:"Runs of each comparison, in turns; medians are compared (${default})."`
	Duration string   `name:"duration" default:"4s" placeholder:"TIME" help:"Length of one run (${default})."`
	WarmUp   string   `name:"warm-up" default:"1s" placeholder:"TIME" help:"How long each runs before measuring (${default})."`
	Rate     float64  `name:"rate" default:"45000" placeholder:"N" help:"Messages per second offered while primaries move or a node dies (${default})."`
	InFlight int      `name:"in-flight" default:"1" placeholder:"N" help:"Unanswered requests per producer of the throughput rows (${default})."`
	Only     []string `name:"only" placeholder:"ROW,..." help:"Measure only these rows: transfer, kill, kill-1000, dead-node, in-flight, cpu, partitions, persisted, idle."`
	Data     string   `name:"data" placeholder:"DIR" help:"Directory for the files, which are removed at the end. Default: a temporary one."`
	Report   string   `name:"report" placeholder:"FILE" help:"Write an HTML report to FILE."`
}

// Run measures.
func (c *benchClusterCmd) Run(inv *invocation) error {
	length, err := units.ParseDuration(c.Duration)
	if err != nil || length == 0 {
		return badUsage("--duration %q is not a duration above zero, such as 4s", c.Duration)
	}
	warm, err := units.ParseDuration(c.WarmUp)
	if err != nil {
		return badUsage("--warm-up: %v", err)
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	var progress io.Writer = inv.Stderr
	if inv.globals.Quiet {
		progress = nil
	}
	f := &bench.ClusterFigures{
		Executable: exe, Dir: c.Data, Rounds: c.Rounds, Rate: c.Rate, InFlight: c.InFlight, Only: c.Only, Progress: progress,
		Length: time.Duration(length) * time.Microsecond, WarmUp: time.Duration(warm) * time.Microsecond,
	}
	if err := f.Check(); err != nil {
		return badUsage("%v", err)
	}
	file, err := openReport(c.Report)
	if err != nil {
		return err
	}
	defer file.close()
	inv.out.Executing("bench cluster: three nodes, %d rounds of %s", c.Rounds, units.Duration(length))
	figures, runErr := f.Run(inv.ctx)
	if len(figures) == 0 {
		return runErr
	}
	return errors.Join(runErr, file.figures(inv, "bench cluster", "Three nodes on one machine", bench.Figures(figures), figures))
}
