package broker

import (
	"context"
	"sync"
	"time"

	"github.com/whippetmq/whippet/internal/cluster"
	"github.com/whippetmq/whippet/internal/metadata"
	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/wire"
)

// statusWait bounds the wait for the other nodes' part of a status.
const statusWait = time.Second

// clusterStatus answers 9003. What only a primary knows is asked of its node.
func (c *conn) clusterStatus(h *wire.RequestHeader, bound *binding, body []byte) *Reply {
	var m wire.ClusterStatus
	if m.Decode(body) != nil {
		return c.deny(h, wire.ErrInvalidCommand)
	}
	b := c.b
	cat := b.cfg.Metadata.Catalog()
	if !cat.Allows(bound.user, metadata.RuleReadServers, 0, 0) {
		return c.deny(h, wire.ErrUnauthorized)
	}
	var out wire.ClusterStatusReply
	leader := b.cfg.MetadataGroup.Status().Leader
	for i, n := range b.cfg.Roster(c.peer.Address.Addr()).Nodes {
		id := uint64(i) + 1
		st := wire.NodeState{Name: n.Name, Role: wire.RoleFollower, Reachable: true, StartCounter: b.cfg.StartCounter}
		if id != b.self() {
			st.Reachable, st.StartCounter = b.cfg.Peers.Alive(id), b.cfg.Peers.Starts(id)
		}
		if id == leader {
			st.Role = wire.RoleLeader
		}
		out.Nodes = append(out.Nodes, st)
	}
	if m.Flags&wire.ClusterStatusGroups != 0 {
		reports := b.gather(c.ctx)
		for t, mp := range cat.Partitions() {
			out.Groups = append(out.Groups, b.groupState(t, mp, reports))
		}
	}
	return c.answer(h, &out)
}

// groupState describes a partition's group: by its primary's report when there
// is one, else by what this node knows.
func (b *Broker) groupState(t *metadata.Topic, mp metadata.Partition, reports map[replica.GroupID]report) wire.GroupState {
	g := wire.GroupState{StreamID: t.Stream, TopicID: t.ID, PartitionID: mp.ID, Primary: wire.NoNode, Preferred: uint32(mp.Preferred)}
	if r, ok := reports[mp.Group()]; ok {
		g.Primary, g.Term, g.Commit, g.Followers = uint32(r.node-1), r.Term, r.Commit, r.Followers
		return g
	}
	if part := b.cfg.Partitions.get(t, mp); part.running() {
		st := part.group.Status()
		g.Term, g.Commit = st.Term, st.Commit
		if st.Leader != 0 {
			g.Primary = uint32(st.Leader - 1)
		}
	}
	return g
}

// report is what a primary told of its group.
type report struct {
	cluster.GroupReport

	node uint64
}

// gather asks all nodes for the groups that they lead. Of two that think so the
// one of the newer term counts.
func (b *Broker) gather(ctx context.Context) map[replica.GroupID]report {
	ctx, cancel := context.WithTimeout(ctx, statusWait)
	defer cancel()
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		all = map[replica.GroupID]report{}
	)
	add := func(node uint64, reports []cluster.GroupReport) {
		mu.Lock()
		defer mu.Unlock()
		for _, r := range reports {
			if old, ok := all[r.Group]; !ok || r.Term > old.Term {
				all[r.Group] = report{r, node}
			}
		}
	}
	if b.clustered() {
		for _, node := range b.cfg.Peers.Others() {
			if !b.cfg.Peers.Alive(node) {
				continue
			}
			wg.Go(func() {
				reply, err := b.cfg.Peers.Ask(ctx, node, &cluster.Request{Operation: wire.OpNonReplicated, Code: cluster.CodeGroups})
				if err != nil || reply.Status != 0 {
					return // what is known here is shown instead
				}
				if reports, err := cluster.DecodeReports(reply.Payload); err == nil {
					add(node, reports)
				}
			})
		}
	}
	add(b.self(), b.reports(ctx))
	wg.Wait()
	return all
}

// reports describes the partitions' groups that this node leads.
func (b *Broker) reports(ctx context.Context) []cluster.GroupReport {
	var out []cluster.GroupReport
	b.cfg.Partitions.each(func(part *Partition) {
		st := part.group.Status()
		if st.Leader != b.self() {
			return
		}
		ps, err := part.group.Progress(ctx)
		if err != nil {
			return // it has just lost it
		}
		r := cluster.GroupReport{Group: part.Group, Term: st.Term, Commit: st.Commit}
		for _, p := range ps {
			if p.Node != b.self() {
				r.Followers = append(r.Followers, wire.FollowerState{Node: uint32(p.Node - 1), Match: p.Match})
			}
		}
		out = append(out, r)
	})
	return out
}
