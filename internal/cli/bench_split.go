package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/whippetmq/whippet/internal/bench"
	"github.com/whippetmq/whippet/internal/cli/output"
	"github.com/whippetmq/whippet/internal/cli/units"
)

// benchSplitCmd measures what it costs that primaries stand on several nodes.
type benchSplitCmd struct {
	Rounds    int     `name:"rounds" default:"3" placeholder:"N" help:"Runs of each row, in turns; medians are compared (${default})."`
	Duration  string  `name:"duration" default:"5s" placeholder:"TIME" help:"Length of one run (${default})."`
	WarmUp    string  `name:"warm-up" default:"1s" placeholder:"TIME" help:"How long each runs before measuring (${default})."`
	Rate      float64 `name:"rate" default:"45000" placeholder:"N" help:"Messages per second offered; every row is also measured as fast as it goes (${default})."`
	Producers int     `name:"producers" default:"12" placeholder:"N" help:"Producers, each with a client of its own (${default})."`
	Batch     int     `name:"batch-messages" aliases:"batch" default:"100" placeholder:"N" help:"Messages per request (${default})."`
	Size      string  `name:"message-size" default:"100B" placeholder:"SIZE" help:"Payload of a message (${default})."`
	InFlight  int     `name:"in-flight" default:"1" placeholder:"N" help:"Unanswered requests per producer, at most 16; released clients have one (${default})."`
	Client    string  `name:"client" placeholder:"CMD" help:"Load generator of a released client, measured with forwarding on and off: a program that takes --address, --topic STREAM/TOPIC, --producers, --batch, --size, --rate and --seconds, and prints one line of JSON (test/interop/rust: whippet-interop bench)."`
	Data      string  `name:"data" placeholder:"DIR" help:"Directory for the files, which are removed at the end. Default: a temporary one."`
	Report    string  `name:"report" placeholder:"FILE" help:"Write an HTML report to FILE."`
}

// Run measures.
func (c *benchSplitCmd) Run(inv *invocation) error {
	length, err := units.ParseDuration(c.Duration)
	if err != nil || length == 0 {
		return badUsage("--duration %q is not a duration above zero, such as 5s", c.Duration)
	}
	warm, err := units.ParseDuration(c.WarmUp)
	if err != nil {
		return badUsage("--warm-up: %v", err)
	}
	size, err := units.ParseSize(c.Size)
	if err != nil {
		return badUsage("--message-size: %v", err)
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	var progress io.Writer = inv.Stderr
	if inv.globals.Quiet {
		progress = nil
	}
	s := &bench.Split{
		Executable: exe, Dir: c.Data, Rounds: c.Rounds, Rate: c.Rate, Producers: c.Producers, Batch: c.Batch, MessageBytes: int(min(size, 1<<31)),
		InFlight: c.InFlight, Length: time.Duration(length) * time.Microsecond, WarmUp: time.Duration(warm) * time.Microsecond, Progress: progress,
	}
	if words := strings.Fields(c.Client); len(words) > 0 {
		s.ForeignClient = &bench.Foreign{Command: words}
	}
	if err := s.Check(); err != nil {
		return badUsage("%v", err)
	}
	file, err := openReport(c.Report)
	if err != nil {
		return err
	}
	defer file.close()
	inv.out.Executing("bench split-primaries: three nodes, %d producers, %d rounds of %s", c.Producers, c.Rounds, units.Duration(length))
	res, runErr := s.Run(inv.ctx)
	if res == nil || len(res.Rows) == 0 {
		return runErr
	}
	if inv.out.JSON {
		inv.out.Document(res)
	} else {
		rows, figures := res.Table(), bench.Figures(res.Figures)
		inv.out.Line("%s", res.Summary())
		inv.out.Sheet(output.Sheet{Header: rows.Header, Rows: rows.Rows})
		inv.out.Sheet(output.Sheet{Header: figures.Header, Rows: figures.Rows})
		for _, n := range res.Notes {
			inv.out.Line("%s", n)
		}
	}
	return errors.Join(runErr, file.write(inv, res.Page(commandLine(inv.Args))))
}
