package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/whippetmq/whippet/internal/bench"
	"github.com/whippetmq/whippet/internal/bench/floor"
	"github.com/whippetmq/whippet/internal/bench/report"
	"github.com/whippetmq/whippet/internal/cli/output"
	"github.com/whippetmq/whippet/internal/cli/units"
)

// benchCmd groups the benchmarks.
type benchCmd struct {
	Produce     benchProduceCmd `cmd:"" name:"produce" help:"Measure sends."`
	Consume     benchConsumeCmd `cmd:"" name:"consume" help:"Measure polls of messages that are there already."`
	Mixed       benchMixedCmd   `cmd:"" name:"mixed" help:"Measure sends, and polls of what is being sent, at the same time."`
	Floor       benchFloorCmd   `cmd:"" name:"floor" help:"Measure what the same client reaches against a handler that only checks and writes."`
	Ratio       benchRatioCmd   `cmd:"" name:"ratio" help:"Measure server and floor in turns, and print the ratios."`
	Node        benchNodeCmd    `cmd:"" name:"node" help:"Measure a node's start, its idle cost, and its restart after kill -9."`
	Split       benchSplitCmd   `cmd:"" name:"split-primaries" help:"Measure what it costs that a topic's primaries stand on several nodes, on a cluster of its own."`
	Cluster     benchClusterCmd `cmd:"" name:"cluster" help:"Measure what a cluster of its own does when primaries move, a node dies, and with many partitions."`
	FloorServer floorServerCmd  `cmd:"" name:"floor-server" hidden:"" help:"Be the floor."`
}

// benchFlags are common to all runs.
type benchFlags struct {
	Partitions uint32 `name:"partitions" default:"1" placeholder:"N" help:"Partitions of the topic (${default})."`
	Size       string `name:"message-size" default:"1000B" placeholder:"SIZE" help:"Payload of a message (${default})."`
	InFlight   int    `name:"in-flight" default:"1" placeholder:"N" help:"Unanswered requests per connection, at most 16 (${default})."`
	Duration   string `name:"duration" default:"10s" placeholder:"TIME" help:"How long to measure (${default})."`
	Messages   uint64 `name:"messages" placeholder:"N" help:"Measure N messages instead of a time."`
	WarmUp     string `name:"warm-up" default:"1s" placeholder:"TIME" help:"How long to run before measuring (${default})."`
	Durability string `name:"durability" enum:"replicated,persisted" default:"replicated" help:"Of the topic: replicated or persisted (${default})."`
	Stream     string `name:"stream" default:"bench" placeholder:"NAME" help:"Stream to use; made when it is not there (${default})."`
	Topic      string `name:"topic" placeholder:"NAME" help:"Topic to use; made when it is not there. Default: a new one."`
	Start      bool   `name:"start-server" help:"Start a server of its own, as a separate process (the default when nothing says where one is)."`
	Data       string `name:"data" placeholder:"DIR" help:"Directory for the files of that server. Default: a temporary one."`
	Report     string `name:"report" placeholder:"FILE" help:"Write an HTML report with plots to FILE."`
	Profile    string `name:"cpu-profile" placeholder:"FILE" help:"Write a CPU profile of the client to FILE, and of a server of its own to FILE.server (go tool pprof)."`
}

type produceFlags struct {
	Producers int     `name:"producers" aliases:"connections" default:"1" placeholder:"N" help:"Producers, each with a connection of its own (${default})."`
	Batch     int     `name:"batch-messages" aliases:"batch" default:"1000" placeholder:"N" help:"Messages per request (${default})."`
	Rate      float64 `name:"rate" placeholder:"N" help:"Offer N messages per second over all producers and measure latency from the time each was due; 0 sends as fast as it goes."`
	API       string  `name:"api" enum:"send,producer" default:"producer" help:"How the client sends: producer (messages through the batching producer) or send (one call per request)."`
}

func (f produceFlags) into(p *bench.Plan) {
	p.Producers, p.BatchMessages, p.Rate, p.API = f.Producers, f.Batch, f.Rate, f.API
}

type consumeFlags struct {
	Consumers int    `name:"consumers" default:"1" placeholder:"N" help:"Consumers, each with a connection of its own (${default})."`
	Poll      uint32 `name:"poll-messages" default:"1000" placeholder:"N" help:"Messages asked for by one poll (${default})."`
}

// fillFlags say what a consume run reads.
type fillFlags struct {
	Fill  uint64 `name:"fill" placeholder:"N" help:"Messages to put into the topic first. Default: 2,000,000, or as many as --messages; 0 with an existing --topic."`
	Batch int    `name:"batch-messages" aliases:"batch" default:"1000" placeholder:"N" help:"Messages per batch of what is put in (${default})."`
	Cold  bool   `name:"cold" help:"Restart the server and drop the files of messages from the page cache before reading."`
}

func (f benchFlags) plan(kind string) (bench.Plan, error) {
	p := bench.Plan{
		Kind: kind, Stream: f.Stream, Topic: f.Topic, Partitions: f.Partitions, Durability: f.Durability,
		InFlight: f.InFlight, Messages: f.Messages, BatchMessages: 1, API: bench.APIProducer,
	}
	size, err := units.ParseSize(f.Size)
	if err != nil {
		return p, badUsage("--message-size: %v", err)
	}
	duration, err := units.ParseDuration(f.Duration)
	if err != nil {
		return p, badUsage("--duration: %v", err)
	}
	warm, err := units.ParseDuration(f.WarmUp)
	if err != nil {
		return p, badUsage("--warm-up: %v", err)
	}
	p.MessageBytes = int(min(size, 1<<31))
	p.Duration = bench.Seconds(time.Duration(duration) * time.Microsecond)
	p.WarmUp = bench.Seconds(time.Duration(warm) * time.Microsecond)
	if p.Messages > 0 {
		p.Duration, p.WarmUp = 0, 0
	}
	if p.Topic == "" {
		p.Topic = fmt.Sprintf("%s-%d", kind, time.Now().UnixNano())
	}
	return p, nil
}

type benchProduceCmd struct {
	produceFlags `embed:""`
	benchFlags   `embed:""`
}

func (c *benchProduceCmd) plan() (bench.Plan, error) {
	p, err := c.benchFlags.plan(bench.Produce)
	c.produceFlags.into(&p)
	return p, err
}

// Run measures sends.
func (c *benchProduceCmd) Run(inv *invocation) error {
	p, err := c.plan()
	if err != nil {
		return err
	}
	return inv.bench(p, c.benchFlags, false)
}

type benchConsumeCmd struct {
	consumeFlags `embed:""`
	fillFlags    `embed:""`
	benchFlags   `embed:""`
}

func (c *benchConsumeCmd) plan() (bench.Plan, error) {
	p, err := c.benchFlags.plan(bench.Consume)
	p.Consumers, p.PollMessages, p.BatchMessages, p.Cold, p.Fill = c.Consumers, c.Poll, c.Batch, c.Cold, c.Fill
	if p.Fill == 0 && c.Topic == "" {
		if p.Fill = 2_000_000; p.Messages > 0 {
			p.Fill = p.Messages
		}
	}
	return p, err
}

// Run measures polls.
func (c *benchConsumeCmd) Run(inv *invocation) error {
	p, err := c.plan()
	if err != nil {
		return err
	}
	return inv.bench(p, c.benchFlags, false)
}

type benchMixedCmd struct {
	produceFlags `embed:""`
	consumeFlags `embed:""`
	benchFlags   `embed:""`
}

// Run measures both.
func (c *benchMixedCmd) Run(inv *invocation) error {
	p, err := c.benchFlags.plan(bench.Mixed)
	if err != nil {
		return err
	}
	c.produceFlags.into(&p)
	p.Consumers, p.PollMessages = c.Consumers, c.Poll
	return inv.bench(p, c.benchFlags, false)
}

// benchFloorCmd runs the same against the floor.
type benchFloorCmd struct {
	Produce floorProduceCmd `cmd:"" name:"produce" help:"Sends, each batch checked and written with one pwrite."`
	Consume floorConsumeCmd `cmd:"" name:"consume" help:"Polls, each answered with one pread."`
}

type floorProduceCmd struct {
	benchProduceCmd `embed:""`
}

// Run measures sends against the floor.
func (c *floorProduceCmd) Run(inv *invocation) error {
	p, err := c.plan()
	if err != nil {
		return err
	}
	return inv.bench(p, c.benchFlags, true)
}

type floorConsumeCmd struct {
	benchConsumeCmd `embed:""`
}

// Run measures polls against the floor.
func (c *floorConsumeCmd) Run(inv *invocation) error {
	p, err := c.plan()
	if err != nil {
		return err
	}
	return inv.bench(p, c.benchFlags, true)
}

// bench runs a plan against a server that is there, one of its own, or the floor.
func (inv *invocation) bench(p bench.Plan, f benchFlags, useFloor bool) (err error) {
	if err := p.Check(); err != nil {
		return badUsage("%v", err)
	}
	file, err := openReport(f.Report)
	if err != nil {
		return err
	}
	defer file.close()
	target, stop, err := inv.benchTarget(f, useFloor)
	if err != nil {
		return err
	}
	defer func() {
		if serr := stop(); err == nil {
			err = serr
		}
	}()
	var progress io.Writer = inv.Stderr
	if inv.globals.Quiet {
		progress = nil
	}
	stopProfile, err := startProfile(f.Profile)
	if err != nil {
		return err
	}
	defer func() {
		if perr := stopProfile(); err == nil {
			err = perr
		}
	}()
	inv.out.Executing("bench %s against %s: %s", p.Kind, target.Name, p.Summary())
	res, err := bench.Run(inv.ctx, p, target, progress)
	if err != nil {
		return failed(err, "run the benchmark")
	}
	t := res.Table()
	inv.out.Sheet(output.Sheet{Header: t.Header, Rows: t.Rows, Doc: res})
	for _, n := range res.Notes() {
		inv.out.Line("%s", n)
	}
	return errors.Join(res.Err(), file.write(inv, res.Page(commandLine(inv.Args))))
}

// benchTarget finds or starts what is measured.
func (inv *invocation) benchTarget(f benchFlags, useFloor bool) (t bench.Target, stop func() error, err error) {
	stop = func() error { return nil }
	elsewhere := inv.globals.Connect != "" || inv.given.first(slices.Concat(whereOptions, whoOptions)) != ""
	if elsewhere && !f.Start && !useFloor {
		o, err := inv.options()
		if err != nil {
			return t, stop, err
		}
		return bench.Target{Name: strings.Join(o.Addresses, ", "), Options: o}, stop, nil
	}
	exe, err := os.Executable()
	if err != nil {
		return t, stop, fmt.Errorf("find this program: %w", err)
	}
	own := &bench.Own{Executable: exe, Floor: useFloor, Dir: f.Data}
	if f.Profile != "" {
		if own.Profile, err = filepath.Abs(f.Profile + ".server"); err != nil {
			return t, stop, err
		}
	}
	t, err = own.Start(inv.ctx)
	if err != nil {
		return t, stop, errors.Join(err, own.Stop())
	}
	return t, own.Stop, nil
}

// reportFile is where the report of a run goes; nil = no report.
type reportFile struct {
	path  string
	empty bool // made by openReport, and nothing is in it yet
}

// openReport makes sure that a report can be written, before anything is measured: after it, minutes would be lost. A
// report that is there stays as it is until the new one is written.
func openReport(path string) (*reportFile, error) {
	if path == "" {
		return nil, nil
	}
	r := &reportFile{path: path, empty: true}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		r.empty = false
		f, err = os.OpenFile(path, os.O_WRONLY, 0)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("--report: nothing was measured, because the report cannot be written: %w", err)
	}
	return r, nil
}

// write writes the report and says where it is. The result is printed before it, so that it is not lost with the report.
func (r *reportFile) write(inv *invocation, page report.Page) error {
	if r == nil {
		return nil
	}
	f, err := os.Create(r.path)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	r.empty = false
	err = page.Write(f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	inv.out.Line("report: %s", r.path)
	return nil
}

// figures prints the one table of a command, or doc as JSON, and writes the report that has it.
func (r *reportFile) figures(inv *invocation, command, title string, t bench.Table, doc any) error {
	inv.out.Sheet(output.Sheet{Header: t.Header, Rows: t.Rows, Doc: doc})
	return r.write(inv, report.Page{
		Title: "whippet " + command, Subtitle: time.Now().Format(time.RFC3339), Footer: commandLine(inv.Args),
		Tables: []report.Table{{Title: title, Header: t.Header, Rows: t.Rows}},
	})
}

// close removes a file that was made for a report that was never written.
func (r *reportFile) close() {
	if r != nil && r.empty {
		_ = os.Remove(r.path)
	}
}

// commandLine is the command as it can be typed again, secrets left out.
func commandLine(args []string) string {
	out := []string{"whippet"}
	hide := false
	for _, a := range args {
		switch {
		case hide:
			a, hide = "********", false
		case a == "--password" || a == "-p" || a == "--token" || a == "-t" || a == "--connect":
			hide = true
		case strings.HasPrefix(a, "--password=") || strings.HasPrefix(a, "--token=") || strings.HasPrefix(a, "--connect="):
			a, _, _ = strings.Cut(a, "=")
			a += "=********"
		}
		out = append(out, a)
	}
	return strings.Join(out, " ")
}

// floorServerCmd is the floor's process.
type floorServerCmd struct {
	Data      string `name:"data" required:"" placeholder:"DIR" help:"Directory of its files."`
	Address   string `name:"address" default:"127.0.0.1:0" placeholder:"HOST:PORT" help:"Where to listen."`
	ReadyFile string `name:"ready-file" required:"" placeholder:"FILE" help:"Write the address to FILE once it accepts requests."`
	Profile   string `name:"cpu-profile" placeholder:"FILE" help:"Write a CPU profile to FILE at the end."`
}

// Run serves until the process is told to stop.
func (c *floorServerCmd) Run(inv *invocation) error {
	stopProfile, err := startProfile(c.Profile)
	if err != nil {
		return err
	}
	s, err := floor.Start(inv.ctx, c.Address, c.Data)
	if err != nil {
		return errors.Join(err, stopProfile())
	}
	if err := writeJSONFile(c.ReadyFile, nodeInfo{Name: "floor", PID: os.Getpid(), TCP: s.Address(), Data: c.Data}); err != nil {
		return errors.Join(fmt.Errorf("write the ready file: %w", err), s.Close())
	}
	<-inv.ctx.Done()
	return errors.Join(s.Close(), stopProfile())
}
