package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/whippetmq/whippet/internal/cli/output"
	"github.com/whippetmq/whippet/wire"
)

// clusterCmd groups the commands about the cluster.
type clusterCmd struct {
	Metadata clusterMetadataCmd `cmd:"" name:"metadata" aliases:"m" help:"List the nodes as clients see them."`
	Status   clusterStatusCmd   `cmd:"" name:"status" aliases:"s" help:"Show nodes, and the primary and lag of every partition."`
}

type clusterMetadataCmd struct {
	listMode `embed:""`
}

// Run lists the roster.
func (c *clusterMetadataCmd) Run(inv *invocation) error {
	inv.out.Executing("get cluster metadata in %s mode", c.Mode)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	roster, err := conn.ClusterMetadata(inv.ctx)
	if err != nil {
		return failed(err, "get the cluster's metadata")
	}
	inv.out.Line("Cluster name: %s", roster.Name)
	inv.out.Sheet(rosterSheet(roster, c.list()))
	return nil
}

func rosterSheet(r *wire.Roster, list bool) output.Sheet {
	port := func(p uint16) string {
		if p == 0 {
			return "-"
		}
		return strconv.Itoa(int(p))
	}
	s := output.Sheet{
		Header: []string{"Name", "IP", "TCP", "QUIC", "HTTP", "WebSocket", "Role", "Status"},
		Doc:    viewCluster(r), List: list, None: "No cluster nodes found!",
	}
	for _, n := range r.Nodes {
		s.Rows = append(s.Rows, []string{
			n.Name, n.IP, port(n.TCP), port(n.QUIC), port(n.HTTP), port(n.WebSocket), n.Role.String(), n.Status.String(),
		})
	}
	return s
}

type clusterStatusCmd struct {
	Watch bool `name:"watch" help:"Show it again every second, until Ctrl-C."`
}

type nodeStateView struct {
	Name      string `json:"name"`
	Role      string `json:"role"`
	Reachable bool   `json:"reachable"`
	Starts    uint64 `json:"start_counter"`
}

type followerView struct {
	Node  string `json:"node"`
	Match uint64 `json:"match"`
	Lag   uint64 `json:"lag"`
}

type groupStateView struct {
	Stream    uint32         `json:"stream_id"`
	Topic     uint32         `json:"topic_id"`
	Partition uint32         `json:"partition_id"`
	Primary   *string        `json:"primary"`
	Preferred *string        `json:"preferred"`
	Term      uint64         `json:"term"`
	Commit    uint64         `json:"commit"`
	Followers []followerView `json:"followers"`
}

type clusterStatusView struct {
	Nodes  []nodeStateView  `json:"nodes"`
	Groups []groupStateView `json:"groups"`
}

// Run shows the state of the cluster. A server without the status command still answers with its roster.
func (c *clusterStatusCmd) Run(inv *invocation) error {
	inv.out.Executing("get cluster status")
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		status, err := conn.ClusterStatus(inv.ctx, true)
		switch {
		case errors.Is(err, wire.ErrFeatureUnavailable), errors.Is(err, wire.ErrInvalidCommand):
			roster, err := conn.ClusterMetadata(inv.ctx)
			if err != nil {
				return failed(err, "get the cluster's metadata")
			}
			inv.out.Line("This server does not report the state of partitions; cluster name: %s", roster.Name)
			inv.out.Sheet(rosterSheet(roster, false))
		case err != nil:
			return failed(err, "get the cluster's status")
		default:
			printStatus(inv.out, status)
		}
		if !c.Watch {
			return nil
		}
		select {
		case <-inv.ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func printStatus(p *output.Printer, s *wire.ClusterStatusReply) {
	name := func(i uint32) *string {
		if int64(i) >= int64(len(s.Nodes)) {
			return nil
		}
		return &s.Nodes[i].Name
	}
	text := func(s *string) string {
		if s == nil {
			return "none"
		}
		return *s
	}
	view := clusterStatusView{Nodes: []nodeStateView{}, Groups: []groupStateView{}}
	var nodes, groups [][]string
	for _, n := range s.Nodes {
		view.Nodes = append(view.Nodes, nodeStateView{n.Name, n.Role.String(), n.Reachable, n.StartCounter})
		nodes = append(nodes, []string{n.Name, n.Role.String(), yesNo(n.Reachable), strconv.FormatUint(n.StartCounter, 10)})
	}
	for _, g := range s.Groups {
		v := groupStateView{
			Stream: g.StreamID, Topic: g.TopicID, Partition: g.PartitionID, Primary: name(g.Primary), Preferred: name(g.Preferred),
			Term: g.Term, Commit: g.Commit, Followers: []followerView{},
		}
		var lags []string
		for _, f := range g.Followers {
			lag := g.Commit - min(g.Commit, f.Match)
			v.Followers = append(v.Followers, followerView{Node: text(name(f.Node)), Match: f.Match, Lag: lag})
			lags = append(lags, fmt.Sprintf("%s -%d", text(name(f.Node)), lag))
		}
		view.Groups = append(view.Groups, v)
		groups = append(groups, []string{
			fmt.Sprintf("%d/%d/%d", g.StreamID, g.TopicID, g.PartitionID), text(v.Primary), text(v.Preferred),
			strconv.FormatUint(g.Term, 10), strconv.FormatUint(g.Commit, 10), strings.Join(lags, ", "),
		})
	}
	if p.JSON {
		p.Document(view)
		return
	}
	p.Sheet(output.Sheet{Header: []string{"Node", "Role", "Reachable", "Starts"}, Rows: nodes})
	p.Sheet(output.Sheet{
		Header: []string{"Partition", "Primary", "Preferred", "Term", "Commit", "Followers"}, Rows: groups, None: "No partitions.",
	})
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
