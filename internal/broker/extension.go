package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"github.com/whippetmq/whippet/internal/cluster"
	"github.com/whippetmq/whippet/internal/credential"
	"github.com/whippetmq/whippet/internal/metadata"
	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/wire"
)

// What 9000 promises (extensions.md).
const (
	maxInFlight   = 16
	rememberedIDs = 64
)

func (c *conn) capabilities(h *wire.RequestHeader, _ *binding, body []byte) *Reply {
	var m wire.Capabilities
	if m.Decode(body) != nil {
		return c.deny(h, wire.ErrInvalidCommand)
	}
	c.link = c.link || m.Flags&wire.WantRoutingLink != 0
	c.fenced = c.fenced || m.Flags&wire.WantFence != 0
	flags := wire.CanFence | wire.CanRouteBySendRight | wire.CanTicket
	if c.b.clustered() && c.b.cfg.Forwarding {
		flags |= wire.CanForward
	}
	return c.answer(h, &wire.CapabilitiesReply{
		Version: wire.ExtensionVersion, Flags: flags,
		MaxInFlight: maxInFlight, RememberedIDs: rememberedIDs, MaxFrame: uint32(c.b.cfg.MaxFrame),
		ClusterID: c.b.cfg.ClusterID, NodeName: strings.Clone(c.b.cfg.NodeName),
	})
}

// ticket answers 9001: a token for further sign-ins of the same user.
func (c *conn) ticket(h *wire.RequestHeader, bound *binding, _ []byte) *Reply {
	cat := c.b.cfg.Metadata.Catalog()
	user := cat.UserByID(bound.user)
	if user == nil || !user.Active {
		return c.deny(h, wire.ErrUnauthorized)
	}
	t := credential.Ticket{User: user.ID, Revision: user.Revision, Expiry: c.b.cfg.Clock.Now() + uint64(credential.TicketValidity.Microseconds())}
	if _, err := rand.Read(t.Nonce[:]); err != nil {
		c.b.cfg.Logger.Error("no randomness for a ticket", "error", err)
		return c.deny(h, wire.ErrFeatureUnavailable)
	}
	return c.answer(h, &wire.TicketReply{
		Token: credential.IssueTicket(cat.TicketKey(), t), Valid: uint64(credential.TicketValidity.Microseconds()),
	})
}

// ticketOwner is the user whom a ticket signs in; nil = it is not good, or not any more.
func (c *conn) ticketOwner(cat *metadata.Catalog, token string) *metadata.User {
	t, err := credential.VerifyTicket(cat.TicketKey(), token, c.b.cfg.Clock.Now())
	if err != nil {
		return nil
	}
	user := cat.UserByID(t.User)
	if user == nil || !user.Active || user.Revision != t.Revision {
		return nil
	}
	return user
}

// transferLeader answers 9002. Its caller waits until the other node leads.
func (c *conn) transferLeader(h *wire.RequestHeader, bound *binding, body []byte) *Reply {
	var m wire.TransferLeader
	if m.Decode(body) != nil {
		return c.deny(h, wire.ErrInvalidCommand)
	}
	b := c.b
	cat := b.cfg.Metadata.Catalog()
	if !cat.Allows(bound.user, metadata.RuleManageServers, 0, 0) {
		return c.deny(h, wire.ErrUnauthorized)
	}
	var to uint64
	if m.Target != "" {
		if to = b.find(m.Target); to == 0 {
			return c.deny(h, wire.ErrResourceNotFound)
		}
	}
	ctx, cancel := context.WithTimeout(c.ctx, commitWait)
	defer cancel()
	id, g := replica.MetadataGroup, b.cfg.MetadataGroup
	var preferred metadata.SetPreferred
	if m.Kind == wire.TransferPartition {
		s, t := cat.Topic(m.Stream, m.Topic)
		switch {
		case s == nil:
			return c.deny(h, errNoStream)
		case t == nil:
			return c.deny(h, errNoTopic)
		}
		mp, ok := t.Partition(m.Partition)
		if !ok {
			return c.deny(h, errNoPartition)
		}
		part := b.cfg.Partitions.get(t, mp)
		if !part.wait(ctx, partitionWait) {
			return c.deny(h, wire.ErrTransientNotAccepted)
		}
		id, g = part.Group, part.group
		preferred = metadata.SetPreferred{Stream: t.Stream, Topic: t.ID, Partition: mp.ID, Created: mp.Created}
	}
	keep := func(node uint64) wire.ErrorCode {
		if m.Kind != wire.TransferPartition || !m.Keep {
			return 0
		}
		preferred.Replica = uint8(node - 1)
		res := b.Commit(ctx, &metadata.Command{Operation: metadata.OpSetPreferred, Body: preferred.Append(nil)})
		return res.Code()
	}
	// The preference first: else the balancer may bring the primary back at once.
	if to != 0 {
		if code := keep(to); code != 0 {
			return c.deny(h, code)
		}
	}
	node, term, code := b.moveLeader(ctx, id, g, to)
	if code == 0 && to == 0 {
		code = keep(node)
	}
	if code != 0 {
		return c.deny(h, code)
	}
	return c.answer(h, &wire.TransferLeaderReply{Term: term, Node: b.name(node)})
}

// find is the node of a name, 0 = there is none.
func (b *Broker) find(name string) uint64 {
	switch {
	case b.clustered():
		return b.cfg.Peers.Find(name)
	case name == b.cfg.NodeName:
		return aloneID
	}
	return 0
}

func (b *Broker) name(node uint64) string {
	if b.clustered() {
		return b.cfg.Peers.Name(node)
	}
	return b.cfg.NodeName
}

// moveLeader has a group handed over by whichever node leads it; to 0 = to any
// other. It gives the node that leads then, and its term.
func (b *Broker) moveLeader(ctx context.Context, id replica.GroupID, g *replica.Group, to uint64) (node, term uint64, code wire.ErrorCode) {
	if !b.clustered() {
		return b.self(), g.Status().Term, 0 // there is no other
	}
	var w way
	for {
		st := g.Status()
		leader := w.next(st.Leader, st.Term)
		switch {
		case leader == to && to != 0 && st.Leader == to:
			return to, st.Term, 0
		case leader == b.self():
			node, term, err := b.transfer(ctx, g, to)
			if err == nil {
				return node, term, 0
			}
			b.cfg.Logger.Debug("leadership not handed over", "group", id, "to", to, "error", err)
		case leader != 0 && b.cfg.Peers.Up(leader):
			reply, err := b.cfg.Peers.Ask(ctx, leader, &cluster.Request{
				Operation: wire.OpNonReplicated, Code: cluster.CodeTransfer, Group: id, Body: le.AppendUint64(nil, to),
			})
			switch code := callCode(reply, err); code {
			case 0:
				return reply.Op, reply.Commit, 0
			case wire.ErrTransientNotAccepted, wire.ErrTransientNotCommitted:
				if err == nil && w.learn(reply.Hint(), leader) {
					continue
				}
			default:
				return 0, 0, code
			}
		}
		if !w.pause(ctx) {
			return 0, 0, wire.ErrTransientNotAccepted
		}
	}
}

// Transfer has a group handed over to a node by the node that leads it; the
// balancer uses it.
func (b *Broker) Transfer(ctx context.Context, id replica.GroupID, to uint64) error {
	part := b.cfg.Partitions.find(id)
	if part == nil || !part.wait(ctx, partitionWait) {
		return replica.ErrUnknownGroup
	}
	if _, _, code := b.moveLeader(ctx, id, part.group, to); code != 0 {
		return code
	}
	return nil
}

// transfer hands a group over that this node leads; to 0 = to the node that has
// most of its log.
func (b *Broker) transfer(ctx context.Context, g *replica.Group, to uint64) (node, term uint64, err error) {
	if to == b.self() {
		st := g.Status()
		return to, st.Term, nil
	}
	if to == 0 {
		if to, err = b.heir(ctx, g); err != nil {
			return 0, 0, err
		}
	}
	for {
		err := g.TransferLeader(ctx, to)
		switch {
		case err == nil:
			return to, g.Status().Term, nil
		case errors.Is(err, replica.ErrBehind), errors.Is(err, replica.ErrBusy) && g.Status().Leader == b.self():
			// It catches up, or did not take over in time.
			if !new(way).pause(ctx) {
				return 0, 0, err
			}
		default:
			return 0, 0, err
		}
	}
}

var errNoHeir = errors.New("no other node can lead the group")

// heir is the node that is to lead a group instead of this one.
func (b *Broker) heir(ctx context.Context, g *replica.Group) (uint64, error) {
	ps, err := g.Progress(ctx)
	if err != nil {
		return 0, err
	}
	var best replica.Progress
	for _, p := range ps {
		if p.Node == b.self() || p.Learner || p.Suspect || !p.Active || b.clustered() && !b.cfg.Peers.Up(p.Node) {
			continue
		}
		if best.Node == 0 || p.Match > best.Match {
			best = p
		}
	}
	if best.Node == 0 {
		return 0, errNoHeir
	}
	return best.Node, nil
}

// serveTransfer hands a group over for another node.
func (b *Broker) serveTransfer(ctx context.Context, r *cluster.Request) *cluster.Reply {
	if len(r.Body) != 8 {
		return &cluster.Reply{Status: wire.ErrInvalidCommand}
	}
	g := b.cfg.MetadataGroup
	if r.Group != replica.MetadataGroup {
		part, refused := b.led(ctx, r)
		if refused != nil {
			return refused
		}
		g = part.group
	}
	node, term, err := b.transfer(ctx, g, le.Uint64(r.Body))
	if err != nil {
		b.cfg.Logger.Debug("leadership not handed over", "group", r.Group, "error", err)
		return refusal(g, wire.ErrTransientNotAccepted)
	}
	return &cluster.Reply{Op: node, Commit: term}
}
