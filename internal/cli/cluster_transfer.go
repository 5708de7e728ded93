package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/wire"
)

// transferLimit is how long a move may take; the server itself gives up earlier.
const transferLimit = 10 * time.Second

// movedView is the document of a move. Term is that under the new leader.
type movedView struct {
	Moved     bool    `json:"moved"`
	Kind      string  `json:"kind"` // metadata or partition
	Stream    *string `json:"stream,omitempty"`
	Topic     *string `json:"topic,omitempty"`
	Partition *uint32 `json:"partition_id,omitempty"`
	Node      string  `json:"node"`
	Term      uint64  `json:"term"`
	// Preferred tells that the node is the partition's preferred one from now on.
	Preferred bool `json:"preferred"`
}

type clusterTransferCmd struct {
	Metadata  bool    `name:"metadata" help:"Hand over the lead of the metadata instead of a partition."`
	To        string  `name:"to" placeholder:"NODE" help:"Name of the node that is to lead. Default: the follower that has most of the log."`
	Stream    string  `arg:"" optional:"" name:"stream" help:"Id or name of the stream."`
	Topic     string  `arg:"" optional:"" name:"topic" help:"Id or name of the topic."`
	Partition *uint32 `arg:"" optional:"" name:"partition" help:"Id of the partition."`
}

// Run hands over and leaves the preference as it is: the balancer may bring a primary back later.
func (c *clusterTransferCmd) Run(inv *invocation) error {
	if c.Metadata {
		if c.Stream != "" {
			return badUsage("--metadata and a partition exclude each other")
		}
		inv.out.Executing("transfer the lead of the metadata%s", toNode(c.To))
		reply, err := inv.transfer(wire.TransferLeader{Kind: wire.TransferMetadata, Target: c.To}, "the lead of the metadata")
		if err != nil {
			return err
		}
		inv.out.Done(movedView{Moved: true, Kind: "metadata", Node: reply.Node, Term: reply.Term},
			"%s leads the metadata now (term %d)", reply.Node, reply.Term)
		return nil
	}
	if c.Partition == nil {
		return badUsage("give a stream, a topic and a partition, or --metadata")
	}
	var args topicArgs
	if err := errors.Join(args.Stream.parse(c.Stream), args.Topic.parse(c.Topic)); err != nil {
		return badUsage("%v", err)
	}
	return inv.movePartition(args, *c.Partition, c.To, false)
}

type movePrimaryCmd struct {
	topicArgs `embed:""`
	Partition uint32 `arg:"" name:"partition" help:"Id of the partition."`
	Node      string `arg:"" optional:"" name:"node" help:"Name of the node. Default: the follower that has most of the log."`
}

// Run moves the primary and makes the node the partition's preferred one.
func (c *movePrimaryCmd) Run(inv *invocation) error {
	return inv.movePartition(c.topicArgs, c.Partition, c.Node, true)
}

func (inv *invocation) movePartition(t topicArgs, partition uint32, node string, keep bool) error {
	what := fmt.Sprintf("the primary of partition %d of %s", partition, t)
	inv.out.Executing("move %s%s", what, toNode(node))
	reply, err := inv.transfer(wire.TransferLeader{
		Kind: wire.TransferPartition, Stream: t.Stream.Identifier, Topic: t.Topic.Identifier, Partition: partition, Target: node, Keep: keep,
	}, what)
	if err != nil {
		return err
	}
	stream, topic := t.Stream.String(), t.Topic.String()
	doc := movedView{Moved: true, Kind: "partition", Stream: &stream, Topic: &topic, Partition: &partition, Node: reply.Node, Term: reply.Term, Preferred: keep}
	text := fmt.Sprintf("%s is at %s now (term %d)", what, reply.Node, reply.Term)
	if keep {
		text += " and belongs there"
	}
	inv.out.Done(doc, "%s", strings.ToUpper(text[:1])+text[1:])
	return nil
}

func toNode(name string) string {
	if name == "" {
		return ""
	}
	return " to " + name
}

// transfer asks for a move and explains why it did not happen.
func (inv *invocation) transfer(req wire.TransferLeader, what string) (*wire.TransferLeaderReply, error) {
	conn, err := inv.connect()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(inv.ctx, transferLimit)
	defer cancel()
	if req.Target != "" {
		if err := canLead(ctx, conn, req.Target); err != nil {
			return nil, err
		}
	}
	reply, err := conn.TransferLeader(ctx, req)
	if err != nil {
		return nil, notMoved(err, what, req.Target)
	}
	return reply, nil
}

// notMoved explains why a move did not happen.
func notMoved(err error, what, target string) error {
	switch {
	case noExtension(err):
		err = fmt.Errorf("this server has no such extension (%w)", err)
	case errors.Is(err, wire.ErrTransientNotAccepted):
		taker := "no other node took over, all are"
		if target != "" {
			taker = target + " did not take over, it is"
		}
		err = fmt.Errorf("%s down or behind (%w)", taker, err)
	}
	return failed(err, "move %s", what)
}

// canLead checks a node's name, and that the node is there: the server would only say that it did not take over.
func canLead(ctx context.Context, conn *client.Client, name string) error {
	roster, err := conn.ClusterMetadata(ctx)
	if err != nil {
		return failed(err, "get the cluster's nodes")
	}
	var names []string
	for _, n := range roster.Nodes {
		names = append(names, n.Name)
	}
	if !slices.Contains(names, name) {
		return fmt.Errorf("there is no node %q: the cluster has %s", name, strings.Join(names, ", "))
	}
	if status, err := conn.ClusterStatus(ctx, false); err == nil {
		for _, n := range status.Nodes {
			if n.Name == name && !n.Reachable {
				return fmt.Errorf("%s cannot be reached at the moment, so it cannot lead", name)
			}
		}
	}
	return nil
}
