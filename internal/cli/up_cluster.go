package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/whippetmq/whippet/internal/cli/localnode"
)

// cluster starts several nodes and waits for Ctrl-C.
func (c *upCmd) cluster(inv *invocation, exe string) error {
	started, err := localnode.StartCluster(inv.ctx, localnode.ClusterConfig{
		Executable: exe, Dir: c.Data, Nodes: c.Nodes, BasePort: c.BasePort,
	})
	if err != nil {
		return err
	}
	var doc readyDocument
	for _, n := range started.Nodes() {
		doc.Nodes = append(doc.Nodes, nodeInfo{
			Name: n.Name(), PID: n.PID(), TCP: n.Address(), Data: n.Data(), Restart: n.Restart(),
		})
	}
	if c.ReadyFile != "" {
		if err := writeJSONFile(c.ReadyFile, doc); err != nil {
			return errors.Join(fmt.Errorf("write the ready file: %w", err), started.Stop())
		}
	}
	if started.OtherPassword() {
		_, _ = fmt.Fprintf(inv.Stderr, "Note: %s was made with another root password than %s; sign in with that one.\n", c.Data, upPassword)
	}
	c.tellCluster(inv, doc)
	return c.wait(inv, started.Nodes())
}

// tellCluster prints how to use the cluster.
func (c *upCmd) tellCluster(inv *invocation, doc readyDocument) {
	if inv.out.JSON {
		inv.out.Document(doc)
		return
	}
	var nodes strings.Builder
	for _, n := range doc.Nodes {
		fmt.Fprintf(&nodes, "    %s   %s   process %-8d %s.log\n", n.Name, n.TCP, n.PID, n.Data)
	}
	connect := fmt.Sprintf("iggy://%s:%s@%s", upUser, upPassword, doc.Nodes[0].TCP)
	w := invokedAs()
	last := doc.Nodes[len(doc.Nodes)-1]
	inv.out.Line(`Whippet is running, a cluster of %[1]d nodes:

%[2]s
Connection string (any node will do, clients find the others):

    %[3]s

Send a first message, read it back, and see where the partitions' primaries are:

    export WHIPPET_CONNECT=%[3]s
    %[4]s stream create demo
    %[4]s topic create demo greetings 6
    %[4]s message send demo greetings -p 0 'hello, world'
    %[4]s message poll demo greetings 0 --first
    %[4]s cluster status

Take a node away, send and look again, and bring it back:

    kill -9 %[5]d
    %[6]s

Ctrl-C stops the cluster.`, len(doc.Nodes), nodes.String(), connect, w, last.PID, last.Restart)
}
