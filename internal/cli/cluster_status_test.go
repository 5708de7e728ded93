package cli

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/whippetmq/whippet/internal/cli/output"
	"github.com/whippetmq/whippet/wire"
)

// sampleStatus has a leader, a node that is down, and a partition without a primary.
func sampleStatus() *wire.ClusterStatusReply {
	return &wire.ClusterStatusReply{
		Nodes: []wire.NodeState{
			{Name: "node-0", Role: wire.RoleLeader, Reachable: true, StartCounter: 3},
			{Name: "node-1", Role: wire.RoleFollower, Reachable: true, StartCounter: 1},
			{Name: "node-2", Role: wire.RoleFollower, StartCounter: 7},
		},
		Groups: []wire.GroupState{
			{Primary: 1, Preferred: 0, Term: 4, Commit: 120, Followers: []wire.FollowerState{{Node: 0, Match: 118}, {Node: 2, Match: 20}}},
			{PartitionID: 1, Primary: wire.NoNode, Preferred: 2, Term: 9, Commit: 5},
			{StreamID: 4, TopicID: 2, PartitionID: 7, Primary: 0, Preferred: 0, Term: 1, Commit: 1, Followers: []wire.FollowerState{{Node: 1, Match: 1}}},
		},
	}
}

func TestStatusOutput(t *testing.T) {
	full := func() *clusterStatusView {
		v := statusView(sampleStatus())
		names := topicNames{streams: map[uint32]string{0: "demo"}, topics: map[[2]uint32]string{{0, 0}: "orders"}}
		for i := range v.Groups {
			if g := &v.Groups[i]; g.StreamID == 0 {
				s, topic := names.streams[0], names.topics[[2]uint32{0, 0}]
				g.Stream, g.Topic = &s, &topic
			}
		}
		return v
	}
	for name, c := range map[string]struct {
		view *clusterStatusView
		json bool
		want string
	}{
		"people": {full(), false, `+--------+----------+-----------+--------+-----------+
| Node   | Role     | Reachable | Starts | Primaries |
+--------+----------+-----------+--------+-----------+
| node-0 | leader   | yes       | 3      | 1         |
| node-1 | follower | yes       | 1      | 1         |
| node-2 | follower | no        | 7      | 0         |
+--------+----------+-----------+--------+-----------+
+---------------+---------+-----------+------+--------+-------------------------------+
| Partition     | Primary | Preferred | Term | Commit | Followers behind              |
+---------------+---------+-----------+------+--------+-------------------------------+
| demo/orders/0 | node-1  | node-0    | 4    | 120    | node-0: 2, node-2: 100 (down) |
| demo/orders/1 | none    | node-2    | 9    | 5      |                               |
| 4/2/7         | node-0  | node-0    | 1    | 1      | node-1: 0                     |
+---------------+---------+-----------+------+--------+-------------------------------+
1 partition without a primary: sends to it wait.
`},
		"programs": {full(), true, `{"nodes":[{"name":"node-0","role":"leader","reachable":true,"start_counter":3},{"name":"node-1","role":"follower","reachable":true,"start_counter":1},{"name":"node-2","role":"follower","reachable":false,"start_counter":7}],"groups":[{"stream_id":0,"stream":"demo","topic_id":0,"topic":"orders","partition_id":0,"primary":"node-1","preferred":"node-0","term":4,"commit":120,"followers":[{"node":"node-0","reachable":true,"match":118,"lag":2},{"node":"node-2","reachable":false,"match":20,"lag":100}]},{"stream_id":0,"stream":"demo","topic_id":0,"topic":"orders","partition_id":1,"primary":null,"preferred":"node-2","term":9,"commit":5,"followers":[]},{"stream_id":4,"stream":null,"topic_id":2,"topic":null,"partition_id":7,"primary":"node-0","preferred":"node-0","term":1,"commit":1,"followers":[{"node":"node-1","reachable":true,"match":1,"lag":0}]}]}
`},
		"a released server": {rosterStatus(&wire.Roster{Nodes: []wire.Node{
			{Name: "a", Role: wire.RoleFollower}, {Name: "b", Role: wire.RoleFollower, Status: wire.StatusUnreachable},
		}}), false, `+------+----------+-----------+--------+-----------+
| Node | Role     | Reachable | Starts | Primaries |
+------+----------+-----------+--------+-----------+
| a    | follower | yes       | -      | -         |
| b    | follower | no        | -      | -         |
+------+----------+-----------+--------+-----------+
The metadata has no leader at the moment: streams, topics and sessions cannot be made.
This server has no extension that tells the state of partitions.
`},
		"a released server, for programs": {rosterStatus(&wire.Roster{Nodes: []wire.Node{{Name: "a", Role: wire.RoleLeader}}}), true,
			`{"nodes":[{"name":"a","role":"leader","reachable":true,"start_counter":null}],"groups":null}` + "\n"},
		"nothing there yet": {statusView(&wire.ClusterStatusReply{Nodes: []wire.NodeState{{Name: "a", Role: wire.RoleLeader, Reachable: true, StartCounter: 1}}}), false,
			`+------+--------+-----------+--------+-----------+
| Node | Role   | Reachable | Starts | Primaries |
+------+--------+-----------+--------+-----------+
| a    | leader | yes       | 1      | 0         |
+------+--------+-----------+--------+-----------+
No partitions.
`},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			printStatus(&output.Printer{W: &b, JSON: c.json}, c.view)
			if b.String() != c.want {
				t.Errorf("got:\n%s\nwant:\n%s", b.String(), c.want)
			}
		})
	}
}

func TestTransferErrors(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		target string
		want   string
	}{
		"released server": {wire.ErrInvalidCommand, "n", "could not move it: this server has no such extension ("},
		"did not take":    {fmt.Errorf("asked: %w", wire.ErrTransientNotAccepted), "n", "could not move it: n did not take over, it is down or behind"},
		"nobody took":     {wire.ErrTransientNotAccepted, "", "could not move it: no other node took over, all are down or behind"},
		"no right":        {wire.ErrUnauthorized, "", "could not move it: "},
	} {
		t.Run(name, func(t *testing.T) {
			got := notMoved(c.err, "it", c.target)
			if !strings.HasPrefix(got.Error(), c.want) || !errors.Is(got, c.err) {
				t.Errorf("got %q", got)
			}
		})
	}
}
