package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/internal/cli/output"
	"github.com/whippetmq/whippet/wire"
)

type clusterStatusCmd struct {
	Watch bool `name:"watch" short:"w" help:"Show it again every second, until Ctrl-C."`
}

type nodeStateView struct {
	Name      string `json:"name"`
	Role      string `json:"role"`
	Reachable bool   `json:"reachable"`
	// Starts is how often the node was started; null when the server does not tell.
	Starts *uint64 `json:"start_counter"`
}

type followerView struct {
	Node      string `json:"node"`
	Reachable bool   `json:"reachable"`
	Match     uint64 `json:"match"`
	Lag       uint64 `json:"lag"`
}

type groupStateView struct {
	StreamID  uint32         `json:"stream_id"`
	Stream    *string        `json:"stream"` // null: the user may not see its name
	TopicID   uint32         `json:"topic_id"`
	Topic     *string        `json:"topic"`
	Partition uint32         `json:"partition_id"`
	Primary   *string        `json:"primary"` // null: there is none at the moment
	Preferred *string        `json:"preferred"`
	Term      uint64         `json:"term"`
	Commit    uint64         `json:"commit"`
	Followers []followerView `json:"followers"`
}

// clusterStatusView is the document of "cluster status"; groups are null when the server does not tell about them.
type clusterStatusView struct {
	Nodes  []nodeStateView  `json:"nodes"`
	Groups []groupStateView `json:"groups"`
}

// How long one look may take, and the pause between two of --watch.
const (
	statusLimit = 10 * time.Second
	watchEvery  = time.Second
)

// clearScreen is what --watch sends to a terminal before each look.
const clearScreen = "\x1b[H\x1b[2J"

// Run shows the state of the cluster. A server without the status command still answers with its roster.
func (c *clusterStatusCmd) Run(inv *invocation) error {
	inv.out.Executing("get cluster status")
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	redraw := c.Watch && !inv.out.JSON && interactive(inv.Stdout)
	names := &topicNames{conn: conn}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		view, err := lookAtCluster(inv.ctx, conn, names)
		if redraw && !inv.out.Quiet {
			_, _ = io.WriteString(inv.Stdout, clearScreen) // what follows tells of a terminal that is gone
		}
		switch {
		case err == nil:
			printStatus(inv.out, view)
		case !c.Watch || inv.ctx.Err() != nil:
			if c.Watch {
				return nil
			}
			return failed(err, "get the cluster's status")
		default: // the next look may find another node
			_, _ = fmt.Fprintf(inv.Stderr, "No status at the moment: %s\n", output.Escape(err.Error()))
		}
		if !c.Watch || inv.out.Err() != nil {
			return nil
		}
		select {
		case <-inv.ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// lookAtCluster asks for the status, or for the roster where there is no such thing.
func lookAtCluster(ctx context.Context, conn *client.Client, names *topicNames) (*clusterStatusView, error) {
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	status, err := conn.ClusterStatus(ctx, true)
	if noExtension(err) {
		roster, err := conn.ClusterMetadata(ctx)
		if err != nil {
			return nil, err
		}
		return rosterStatus(roster), nil
	}
	if err != nil {
		return nil, err
	}
	view := statusView(status)
	names.fill(ctx, view)
	return view, nil
}

// noExtension reports whether a server does not know a command of Whippet's own.
func noExtension(err error) bool {
	return errors.Is(err, wire.ErrInvalidCommand) || errors.Is(err, wire.ErrFeatureUnavailable)
}

// rosterStatus is what is known of the nodes of a server that has no status command.
func rosterStatus(r *wire.Roster) *clusterStatusView {
	v := &clusterStatusView{Nodes: []nodeStateView{}}
	for _, n := range r.Nodes {
		v.Nodes = append(v.Nodes, nodeStateView{Name: n.Name, Role: n.Role.String(), Reachable: n.Status != wire.StatusUnreachable})
	}
	return v
}

func statusView(s *wire.ClusterStatusReply) *clusterStatusView {
	node := func(i uint32) *wire.NodeState {
		if int64(i) >= int64(len(s.Nodes)) {
			return nil
		}
		return &s.Nodes[i]
	}
	name := func(i uint32) *string {
		if n := node(i); n != nil {
			return &n.Name
		}
		return nil
	}
	v := &clusterStatusView{Nodes: []nodeStateView{}, Groups: []groupStateView{}}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		v.Nodes = append(v.Nodes, nodeStateView{Name: n.Name, Role: n.Role.String(), Reachable: n.Reachable, Starts: &n.StartCounter})
	}
	for _, g := range s.Groups {
		gv := groupStateView{
			StreamID: g.StreamID, TopicID: g.TopicID, Partition: g.PartitionID, Primary: name(g.Primary), Preferred: name(g.Preferred),
			Term: g.Term, Commit: g.Commit, Followers: []followerView{},
		}
		for _, f := range g.Followers {
			fv := followerView{Node: "unknown", Match: f.Match, Lag: g.Commit - min(g.Commit, f.Match)}
			if n := node(f.Node); n != nil {
				fv.Node, fv.Reachable = n.Name, n.Reachable
			}
			gv.Followers = append(gv.Followers, fv)
		}
		v.Groups = append(v.Groups, gv)
	}
	return v
}

// topicNames remembers what streams and topics are called; a status has only their ids.
type topicNames struct {
	conn    *client.Client
	streams map[uint32]string
	topics  map[[2]uint32]string
}

// fill puts the names in. It asks again when there is an id that it does not know; a user who may not see names gets ids.
func (t *topicNames) fill(ctx context.Context, v *clusterStatusView) {
	known := func() bool {
		for i := range v.Groups {
			if _, ok := t.topics[[2]uint32{v.Groups[i].StreamID, v.Groups[i].TopicID}]; !ok {
				return false
			}
		}
		return true
	}
	if !known() {
		t.read(ctx)
	}
	for i := range v.Groups {
		g := &v.Groups[i]
		if s, ok := t.streams[g.StreamID]; ok {
			g.Stream = &s
		}
		if s, ok := t.topics[[2]uint32{g.StreamID, g.TopicID}]; ok {
			g.Topic = &s
		}
	}
}

func (t *topicNames) read(ctx context.Context) {
	t.streams, t.topics = map[uint32]string{}, map[[2]uint32]string{}
	streams, err := t.conn.Streams(ctx)
	if err != nil {
		return
	}
	for _, s := range streams {
		t.streams[s.ID] = s.Name
		topics, err := t.conn.Topics(ctx, wire.ID(s.ID))
		if err != nil {
			continue // it may have been deleted just now
		}
		for _, topic := range topics {
			t.topics[[2]uint32{s.ID, topic.ID}] = topic.Name
		}
	}
}

func printStatus(p *output.Printer, v *clusterStatusView) {
	if p.JSON {
		p.Document(v)
		return
	}
	var nodes [][]string
	primaries := map[string]int{}
	headless := 0
	for _, g := range v.Groups {
		if g.Primary == nil {
			headless++
		} else {
			primaries[*g.Primary]++
		}
	}
	leader := false
	for _, n := range v.Nodes {
		starts, leads := "-", "-"
		if n.Starts != nil {
			starts, leads = strconv.FormatUint(*n.Starts, 10), strconv.Itoa(primaries[n.Name])
		}
		leader = leader || n.Role == wire.RoleLeader.String()
		nodes = append(nodes, []string{n.Name, n.Role, yesNo(n.Reachable), starts, leads})
	}
	p.Sheet(output.Sheet{Header: []string{"Node", "Role", "Reachable", "Starts", "Primaries"}, Rows: nodes, None: "No nodes."})
	if !leader {
		p.Line("The metadata has no leader at the moment: streams, topics and sessions cannot be made.")
	}
	if v.Groups == nil {
		p.Line("This server has no extension that tells the state of partitions.")
		return
	}
	p.Sheet(output.Sheet{
		Header: []string{"Partition", "Primary", "Preferred", "Term", "Commit", "Followers behind"}, Rows: groupRows(v), None: "No partitions.",
	})
	if headless > 0 {
		them := "them"
		if headless == 1 {
			them = "it"
		}
		p.Line("%s without a primary: sends to %s wait.", plural(uint32(headless), "partition"), them)
	}
}

func groupRows(v *clusterStatusView) [][]string {
	text := func(s *string, otherwise string) string {
		if s == nil {
			return otherwise
		}
		return *s
	}
	var rows [][]string
	for _, g := range v.Groups {
		var lags []string
		for _, f := range g.Followers {
			lag := fmt.Sprintf("%s: %d", f.Node, f.Lag)
			if !f.Reachable {
				lag += " (down)"
			}
			lags = append(lags, lag)
		}
		rows = append(rows, []string{
			fmt.Sprintf("%s/%s/%d", text(g.Stream, strconv.FormatUint(uint64(g.StreamID), 10)), text(g.Topic, strconv.FormatUint(uint64(g.TopicID), 10)), g.Partition),
			text(g.Primary, "none"), text(g.Preferred, "none"), strconv.FormatUint(g.Term, 10), strconv.FormatUint(g.Commit, 10), strings.Join(lags, ", "),
		})
	}
	return rows
}
