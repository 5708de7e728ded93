package cli

import (
	"strconv"

	"github.com/whippetmq/whippet/internal/cli/output"
	"github.com/whippetmq/whippet/wire"
)

// clusterCmd groups the commands about the cluster.
type clusterCmd struct {
	Metadata clusterMetadataCmd `cmd:"" name:"metadata" aliases:"m" help:"List the nodes as clients see them."`
	Status   clusterStatusCmd   `cmd:"" name:"status" aliases:"s" help:"Show nodes, and the primary and lag of every partition."`
	Transfer clusterTransferCmd `cmd:"" name:"transfer" help:"Hand the lead of the metadata, or a partition's primary, to another node for now."`
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

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
