package bench

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/internal/cli/units"
	"github.com/whippetmq/whippet/wire"
)

// NodeCost measures what a node costs while nobody asks anything of it, and how soon it answers after a start.
type NodeCost struct {
	Executable string
	Dir        string        // parent of the directories, "" = the system's temporary one
	Starts     int           // how often an empty node is started; the median counts
	Idle       time.Duration // how long CPU is watched
	Partitions uint32        // of the row with many idle partitions; 0 leaves it out
	Segments   uint64        // bytes of messages before the kill and restart; 0 leaves it out
	Progress   io.Writer     // nil = none
}

// NodeRow is one figure.
type NodeRow struct {
	Name   string  `json:"name"`
	What   string  `json:"what"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Target string  `json:"target"`
	Met    bool    `json:"met"`
}

func (c *NodeCost) say(format string, args ...any) {
	if c.Progress != nil {
		_, _ = fmt.Fprintf(c.Progress, format+"\n", args...)
	}
}

// Run measures all rows.
func (c *NodeCost) Run(ctx context.Context) (rows []NodeRow, err error) {
	add := func(name, what string, value, most float64, unit, target string) {
		rows = append(rows, NodeRow{Name: name, What: what, Value: value, Unit: unit, Target: "≤ " + target, Met: value <= most})
	}
	c.say("starting %d times on an empty directory", c.Starts)
	var starts []float64
	for range c.Starts {
		d, err := c.timeStart(ctx)
		if err != nil {
			return rows, err
		}
		starts = append(starts, float64(d)/float64(time.Millisecond))
	}
	add("start", "start to first accepted request, empty directory", median(starts), 100, "ms", "100 ms")

	own := &Own{Executable: c.Executable, Parent: c.Dir}
	defer func() {
		if serr := own.Stop(); err == nil {
			err = serr
		}
	}()
	t, err := own.Start(ctx)
	if err != nil {
		return rows, err
	}
	c.say("watching an idle node for %v", c.Idle)
	resident, cpu, err := c.watch(ctx, t.PID)
	if err != nil {
		return rows, err
	}
	add("idle-memory", "resident memory, idle", resident/1e6, 30, "MB", "30 MB")
	add("idle-cpu", "CPU, idle", 100*cpu, 0.2, "% of a core", "0.2 % of a core")

	if c.Partitions > 0 {
		c.say("making %d partitions, and watching them for %v", c.Partitions, c.Idle)
		if err := c.makePartitions(ctx, t); err != nil {
			return rows, err
		}
		many, cpu, err := c.watch(ctx, t.PID)
		if err != nil {
			return rows, err
		}
		add("partitions-cpu", fmt.Sprintf("CPU, %d idle partitions", c.Partitions), 100*cpu, 1, "% of a core", "1 % of a core")
		add("partitions-memory", fmt.Sprintf("memory of each of %d idle partitions", c.Partitions),
			max(many-resident, 0)/float64(c.Partitions)/1000, 20, "KB", "20 KB")
	}
	if c.Segments > 0 {
		d, err := c.timeRestart(ctx)
		if err != nil {
			return rows, err
		}
		add("restart", fmt.Sprintf("restart to first accepted request after kill -9, %s of segments", units.Size(c.Segments)),
			float64(d)/float64(time.Millisecond), 1000, "ms", "1 s")
	}
	return rows, nil
}

// timeStart starts a node on an empty directory.
func (c *NodeCost) timeStart(ctx context.Context) (d time.Duration, err error) {
	own := &Own{Executable: c.Executable, Parent: c.Dir}
	defer func() {
		if serr := own.Stop(); err == nil {
			err = serr
		}
	}()
	begin := time.Now()
	t, err := own.Start(ctx)
	if err != nil {
		return 0, err
	}
	return timePing(ctx, t, begin)
}

// timePing waits for the answer to a ping, which needs no session, and tells how long that is after begin.
func timePing(ctx context.Context, t Target, begin time.Time) (time.Duration, error) {
	o := t.Options
	o.Username, o.Password = "", ""
	conn, err := client.New(o)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }() // all answers are in
	if err := conn.Connect(ctx); err != nil {
		return 0, err
	}
	if _, err := conn.Ping(ctx); err != nil {
		return 0, err
	}
	return time.Since(begin), nil
}

// settleTime is after how long a node that became idle has given its memory back.
const settleTime = 22 * time.Second

// watch leaves a node alone for a moment, then tells its memory in bytes and the cores it used.
func (c *NodeCost) watch(ctx context.Context, pid int) (resident, cores float64, err error) {
	if err := pause(ctx, min(settleTime, 3*c.Idle)); err != nil { // what a start or new partitions leave behind is not idling
		return 0, 0, err
	}
	before, err := ReadUsage(pid)
	if err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	if err := pause(ctx, c.Idle); err != nil {
		return 0, 0, err
	}
	after, err := ReadUsage(pid)
	if err != nil {
		return 0, 0, err
	}
	return float64(after.Resident), (after.CPUSeconds - before.CPUSeconds) / time.Since(begin).Seconds(), nil
}

func (c *NodeCost) makePartitions(ctx context.Context, t Target) error {
	conn, err := client.New(t.Options)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // all answers are in
	if err := conn.Connect(ctx); err != nil {
		return err
	}
	if _, err := conn.CreateStream(ctx, "idle"); err != nil {
		return fmt.Errorf("create a stream: %w", err)
	}
	for left := c.Partitions; left > 0; {
		n := min(left, wire.MaxPartitionsPerRequest)
		left -= n
		if _, err := conn.CreateTopic(ctx, wire.Name("idle"), client.TopicConfig{Name: fmt.Sprintf("t%d", left), Partitions: n}); err != nil {
			return fmt.Errorf("create %d partitions: %w", n, err)
		}
	}
	return nil
}

// timeRestart fills a node, kills it without warning, and times its way back.
func (c *NodeCost) timeRestart(ctx context.Context) (d time.Duration, err error) {
	own := &Own{Executable: c.Executable, Parent: c.Dir}
	defer func() {
		if serr := own.Stop(); err == nil {
			err = serr
		}
	}()
	t, err := own.Start(ctx)
	if err != nil {
		return 0, err
	}
	const size, batch = 1000, 1000
	c.say("filling a node with %s", units.Size(c.Segments))
	p := Plan{
		Kind: Produce, Stream: "fill", Topic: "t", Partitions: 4, Producers: 4, BatchMessages: batch, MessageBytes: size, InFlight: 2,
		API: APIProducer, Messages: max(c.Segments/size, batch),
	}
	res, err := Run(ctx, p, t, c.Progress)
	if err == nil {
		err = res.Err() // a node with less in it is another figure
	}
	if err != nil {
		return 0, err
	}
	c.say("killing it, and starting it again")
	own.Kill()
	begin := time.Now()
	if t, err = own.Start(ctx); err != nil {
		return 0, err
	}
	return timePing(ctx, t, begin)
}

// NodeTable lays rows out for people.
func NodeTable(rows []NodeRow) Table {
	t := Table{Header: []string{"What", "Figure", "Target", ""}}
	for _, r := range rows {
		t.Rows = append(t.Rows, []string{r.What, fmt.Sprintf("%.2f %s", r.Value, r.Unit), r.Target, map[bool]string{true: "met", false: "missed"}[r.Met]})
	}
	return t
}
