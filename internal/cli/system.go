package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/internal/cli/output"
	"github.com/whippetmq/whippet/internal/cli/units"
	"github.com/whippetmq/whippet/wire"
)

// versionCmd prints the version.
type versionCmd struct{}

// Run prints the version.
func (c *versionCmd) Run(inv *invocation) error {
	inv.out.Done(versionDocument(inv.Version), "whippet %s, protocol %s", inv.Version, wire.CurrentVersion)
	return nil
}

func versionDocument(version string) map[string]string {
	return map[string]string{"version": version, "protocol": wire.CurrentVersion.String()}
}

// pingCmd measures round trips.
type pingCmd struct {
	Count uint32 `name:"count" short:"c" default:"1" placeholder:"N" help:"How many pings, one second apart."`
}

type pingView struct {
	Sequence uint32  `json:"sequence"`
	Micros   float64 `json:"time_us"`
}

type pingSummary struct {
	Count uint32  `json:"count"`
	Min   float64 `json:"min_us"`
	Avg   float64 `json:"avg_us"`
	Max   float64 `json:"max_us"`
	Mdev  float64 `json:"mdev_us"`
}

// Run pings the server; it needs no credentials. Ctrl-C ends it early, with the statistics so far.
func (c *pingCmd) Run(inv *invocation) error {
	if c.Count == 0 {
		return badUsage("--count is 0: it must be 1 or more")
	}
	inv.out.Executing("ping")
	conn, err := inv.connectAnonymous()
	if err != nil {
		return err
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var times []float64
	for i := uint32(1); i <= c.Count && inv.ctx.Err() == nil; i++ {
		d, err := conn.Ping(inv.ctx)
		if inv.ctx.Err() != nil {
			break
		}
		if err != nil {
			return failed(err, "ping the server")
		}
		us := float64(d) / float64(time.Microsecond)
		times = append(times, us)
		inv.out.Done(pingView{i, us}, "Ping sequence id: %d time: %.2f ms", i, us/1000)
		if i < c.Count {
			select {
			case <-inv.ctx.Done():
			case <-tick.C:
			}
		}
	}
	if len(times) == 0 {
		return errInterrupted
	}
	s := summarizePings(times)
	inv.out.Done(s, "\nPing statistics for %d ping commands\nmin/avg/max/mdev = %.3f/%.3f/%.3f/%.3f ms",
		s.Count, s.Min/1000, s.Avg/1000, s.Max/1000, s.Mdev/1000)
	return nil
}

func summarizePings(us []float64) pingSummary {
	s := pingSummary{Count: uint32(len(us)), Min: math.Inf(1)}
	var squares float64
	for _, t := range us {
		s.Min, s.Max = min(s.Min, t), max(s.Max, t)
		s.Avg += t / float64(len(us))
		squares += t * t / float64(len(us))
	}
	s.Mdev = math.Sqrt(max(squares-s.Avg*s.Avg, 0))
	return s
}

// meCmd shows this connection.
type meCmd struct{}

// Run shows the connection of the command itself.
func (c *meCmd) Run(inv *invocation) error {
	inv.out.Executing("me")
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	me, err := conn.Me(inv.ctx)
	if err != nil {
		return failed(err, "get this client")
	}
	inv.out.Details("Property", "Value", clientRows(me)[:4], viewClientDetails(me))
	return nil
}

func clientRows(c *wire.ClientDetails) [][]string {
	rows := [][]string{
		{"Client ID", strconv.FormatUint(uint64(c.ID), 10)},
		{"User ID", userText(c.UserID)},
		{"Address", c.Address},
		{"Transport", c.Transport.String()},
		{"Consumer Groups Count", strconv.Itoa(len(c.Groups))},
	}
	if len(c.Groups) > 0 {
		var groups [][]string
		for _, g := range c.Groups {
			groups = append(groups, []string{
				strconv.FormatUint(uint64(g.StreamID), 10), strconv.FormatUint(uint64(g.TopicID), 10), strconv.FormatUint(uint64(g.GroupID), 10),
			})
		}
		rows = append(rows, []string{"Consumer Groups Details", output.Nested([]string{"Stream ID", "Topic ID", "Consumer Group ID"}, groups)})
	}
	return rows
}

func userText(id uint32) string {
	if id == wire.NoUser {
		return "None"
	}
	return strconv.FormatUint(uint64(id), 10)
}

// clientCmd groups the commands about connections.
type clientCmd struct {
	Get  clientGetCmd  `cmd:"" name:"get" aliases:"g" help:"Show a connection."`
	List clientListCmd `cmd:"" name:"list" aliases:"l" help:"List the connections of the node."`
}

type clientGetCmd struct {
	ID uint32 `arg:"" name:"id" help:"Id of the connection, as in the list."`
}

// Run shows a connection.
func (c *clientGetCmd) Run(inv *invocation) error {
	inv.out.Executing("get client with ID: %d", c.ID)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	cl, err := conn.Client(inv.ctx, c.ID)
	if errors.Is(err, client.ErrNotFound) {
		inv.out.NotFound("Client with ID: %d was not found", c.ID)
		return nil
	}
	if err != nil {
		return failed(err, "get client %d", c.ID)
	}
	inv.out.Details("Property", "Value", clientRows(cl), viewClientDetails(cl))
	return nil
}

type clientListCmd struct {
	listMode `embed:""`
}

// Run lists the connections.
func (c *clientListCmd) Run(inv *invocation) error {
	inv.out.Executing("list clients in %s mode", c.Mode)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	clients, err := conn.Clients(inv.ctx)
	if err != nil {
		return failed(err, "list clients")
	}
	views := make([]clientView, 0, len(clients))
	var rows [][]string
	for _, cl := range clients {
		views = append(views, viewClient(cl))
		rows = append(rows, []string{
			strconv.FormatUint(uint64(cl.ID), 10), userText(cl.UserID), cl.Address, cl.Transport.String(),
			strconv.FormatUint(uint64(cl.ConsumerGroupsCount), 10),
		})
	}
	inv.out.Sheet(output.Sheet{
		Header: []string{"Client ID", "User ID", "Address", "Transport", "Consumer Groups"},
		Rows:   rows, Doc: views, List: c.list(), None: "No clients found!",
	})
	return nil
}

// statsCmd shows the server's statistics.
type statsCmd struct {
	Output string `name:"output" short:"o" enum:"table,list,json,toml" default:"table" help:"table, list, json or toml."`
}

// Run shows the statistics, also in quiet mode.
func (c *statsCmd) Run(inv *invocation) error {
	if c.Output == "table" || c.Output == "list" {
		inv.out.Executing("stats")
	}
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	s, err := conn.Stats(inv.ctx)
	if err != nil {
		return failed(err, "get the statistics")
	}
	view := viewStats(s)
	p := *inv.out
	p.Quiet = false
	switch {
	case c.Output == "json":
		p.JSON = true
		p.Document(view)
	case c.Output == "toml":
		b, err := toml.Marshal(view)
		if err != nil {
			return fmt.Errorf("encode the statistics: %w", err)
		}
		p.Always(string(b))
	default:
		p.Sheet(output.Sheet{Header: []string{"Server property", "Value"}, Rows: statsRows(s), Doc: view, List: c.Output == "list"})
	}
	return p.Err()
}

func statsRows(s *wire.Stats) [][]string {
	u32 := func(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
	return [][]string{
		{"Iggy Server PID", u32(s.ProcessID)},
		{"Iggy Server CPU Usage", fmt.Sprintf("%.2f%%", s.CPUUsage)},
		{"Total CPU Usage", fmt.Sprintf("%.2f%%", s.TotalCPUUsage)},
		{"Iggy Server Memory Usage", units.Size(s.MemoryUsage)},
		{"Total Memory (RAM)", units.Size(s.TotalMemory)},
		{"Available Memory (RAM)", units.Size(s.AvailableMemory)},
		{"Iggy Server Run Time", units.Duration(s.RunTime / 1e6 * 1e6)},
		{"Start Time (UTC)", units.TimeUTC(s.StartTime)},
		{"Read Bytes", units.Size(s.ReadBytes)},
		{"Written Bytes", units.Size(s.WrittenBytes)},
		{"Messages Size Bytes", units.Size(s.MessagesSizeBytes)},
		{"Streams Count", u32(s.StreamsCount)},
		{"Topics Count", u32(s.TopicsCount)},
		{"Partitions Count", u32(s.PartitionsCount)},
		{"Segments Count", u32(s.SegmentsCount)},
		{"Message Count", strconv.FormatUint(s.MessagesCount, 10)},
		{"Clients Count", u32(s.ClientsCount)},
		{"Consumer Groups Count", u32(s.ConsumerGroupsCount)},
		{"Threads Count", u32(s.ThreadsCount)},
		{"Free Disk Space", units.Size(s.FreeDiskSpace)},
		{"Total Disk Space", units.Size(s.TotalDiskSpace)},
		{"OS Name", s.OSName},
		{"OS Version", s.OSVersion},
		{"Kernel Version", s.KernelVersion},
	}
}

// optionsCmd lists a catalog of options.
type optionsCmd struct {
	Scope string `arg:"" name:"scope" enum:"topic,stream,user" help:"topic, stream or user."`
}

type optionSpecView struct {
	Key         string `json:"key"`
	Kind        string `json:"kind"`
	Default     any    `json:"default_value"`
	Description string `json:"description"`
}

// Run lists the options.
func (c *optionsCmd) Run(inv *invocation) error {
	inv.out.Executing("describe options of scope: %s", c.Scope)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	scope := map[string]wire.OptionScope{"topic": wire.ScopeTopic, "stream": wire.ScopeStream, "user": wire.ScopeUser}[c.Scope]
	catalog, err := conn.DescribeOptions(inv.ctx, scope)
	if err != nil {
		return failed(err, "describe the options of %ss", c.Scope)
	}
	views := make([]optionSpecView, 0, len(catalog.Entries))
	var rows [][]string
	for _, e := range catalog.Entries {
		view := optionSpecView{Key: e.Key, Kind: e.Kind.String(), Description: e.Description}
		text := "-"
		if len(e.Default) > 0 {
			v := wire.Value{Kind: e.Kind, Data: e.Default}
			view.Default, text = viewValue(v), v.String()
		}
		views = append(views, view)
		rows = append(rows, []string{e.Key, e.Kind.String(), text, e.Description})
	}
	inv.out.Sheet(output.Sheet{
		Header: []string{"Key", "Kind", "Default", "Description"}, Rows: rows, Doc: views,
		None: "No options are defined for " + c.Scope + "s.",
	})
	return nil
}
