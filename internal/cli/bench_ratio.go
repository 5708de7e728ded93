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

// benchRatioCmd compares a server with the floor within one run.
type benchRatioCmd struct {
	Rounds   int      `name:"rounds" default:"3" placeholder:"N" help:"Runs of each, in turns; medians are compared (${default})."`
	Duration string   `name:"duration" default:"4s" placeholder:"TIME" help:"Length of one run (${default})."`
	WarmUp   string   `name:"warm-up" default:"1s" placeholder:"TIME" help:"How long each runs before measuring (${default})."`
	InFlight int      `name:"in-flight" default:"1" placeholder:"N" help:"Unanswered requests per connection of the throughput rows (${default})."`
	Only     []string `name:"only" placeholder:"ROW,..." help:"Measure only these rows: produce-10k, produce-1m, poll-warm, poll-cold, written, persisted, single-send."`
	Data     string   `name:"data" placeholder:"DIR" help:"Directory for the files, which are removed at the end. Default: a temporary one."`
	Report   string   `name:"report" placeholder:"FILE" help:"Write an HTML report to FILE."`
}

// Run measures.
func (c *benchRatioCmd) Run(inv *invocation) error {
	length, err := units.ParseDuration(c.Duration)
	if err != nil || length == 0 {
		return badUsage("--duration %q is not a duration above zero, such as 4s", c.Duration)
	}
	warm, err := units.ParseDuration(c.WarmUp)
	if err != nil {
		return badUsage("--warm-up: %v", err)
	}
	if c.Rounds < 1 || c.InFlight < 1 || c.InFlight > 16 {
		return badUsage("--rounds must be 1 or more, and --in-flight 1 to 16")
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	var progress io.Writer = inv.Stderr
	if inv.globals.Quiet {
		progress = nil
	}
	file, err := openReport(c.Report)
	if err != nil {
		return err
	}
	defer file.close()
	inv.out.Executing("bench ratio: server and floor in turns, %d rounds of %s", c.Rounds, units.Duration(length))
	r := &bench.Ratio{
		Executable: exe, Dir: c.Data, Rounds: c.Rounds, InFlight: c.InFlight, Only: c.Only, Progress: progress,
		Length: time.Duration(length) * time.Microsecond, WarmUp: time.Duration(warm) * time.Microsecond,
	}
	rows, runErr := r.Run(inv.ctx)
	if len(rows) == 0 {
		return runErr
	}
	return errors.Join(runErr, file.figures(inv, "bench ratio", "Server against the floor", bench.Ratios(rows), rows))
}
