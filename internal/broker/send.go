package broker

import (
	"github.com/whippetmq/whippet/internal/metadata"
	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/wire"
)

type replicaGroupID = replica.GroupID

// send appends a batch to a partition (commands §3.10). Every refusal is a status.
func (c *conn) send(h *wire.RequestHeader, bound *binding, body *Buffer) *Reply {
	m := &c.sendBody
	if m.Decode(body.Bytes()) != nil {
		body.Release()
		return c.deny(h, wire.ErrInvalidCommand)
	}
	op := c.b.newSend()
	op.Batch = m.Batch
	code := wire.StatusOf(op.Verify())
	refused := wire.ErrTransientNotAccepted
	var part *Partition
	if c.caughtUp(c.watermark.Load()) {
		part, refused = c.sendTarget(c.b.cfg.Metadata.Catalog(), h, bound, m)
	}
	if part == nil {
		c.b.putSend(op)
		body.Release()
		if code != 0 {
			refused = code
		}
		return c.deny(h, refused)
	}
	if code == 0 {
		code = refused
	}
	op.Client, op.User, op.Request = bound.client, bound.user, h.Request
	op.Memory = body
	op.rh = h.Reply()
	op.rh.Op = bound.session
	op.body, op.cost, op.code = body, int(h.Size), code
	op.fenced, op.holds = c.fenced, c.holds()
	c.lane(part).enter(op)
	return nil
}

// sendTarget resolves and authorises a send. A code without a partition refuses
// at once; with one it refuses in the order of the partition's sends.
func (c *conn) sendTarget(cat *metadata.Catalog, h *wire.RequestHeader, bound *binding, m *wire.SendMessages) (*Partition, wire.ErrorCode) {
	_, t := cat.Topic(m.Stream, m.Topic)
	if t == nil {
		return nil, wire.ErrResourceNotFound
	}
	allowed := cat.Allows(bound.user, metadata.RuleSend, t.Stream, t.ID)
	id, ok := m.Partitioning.Resolve(uint32(len(t.Partitions)), func() uint32 { return balance(bound.client, h.Request) })
	mp, exists := t.Partition(id)
	switch {
	case !allowed && (!ok || !exists):
		return nil, wire.ErrUnauthorized
	case !ok || !exists:
		return nil, wire.ErrResourceNotFound
	}
	part := c.b.cfg.Partitions.get(t, mp)
	if !allowed {
		return part, wire.ErrUnauthorized
	}
	return part, 0
}

// balance spreads the requests of a client over partitions so that a request
// sent again names the same one (decisions 4).
func balance(client wire.U128, request uint64) uint32 {
	var id [16]byte
	wire.PutU128(id[:], client)
	return wire.XXH32(id[:]) + uint32(request)
}
