package metadata

import (
	"fmt"

	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/wire"
)

// change is one entry on its way into the state.
type change struct {
	header
	index uint64
	time  uint64
	// catalog is a copy to be changed; it becomes the state when the operation succeeds.
	catalog Catalog
	// changed says that catalog differs from the state's.
	changed bool
	// payload of the reply, and how many entries of fresh partitions follow it.
	payload    []byte
	partitions uint32
	// deleted is the user that the operation removed.
	deleted uint32
}

// appendEntry builds the data of a log entry.
func appendEntry(h *header, body operation, size int) []byte {
	dst := segment.AppendControl(make([]byte, 0, 8+entryHeader+size+512), segment.KindMetadata, nil)
	return body.append(h.append(dst))
}

// Apply applies a committed entry and completes the command that proposed it, when that came from here. An error is a *CorruptError:
// nothing was changed and rs was not completed.
func (m *Machine) Apply(e segment.Entry, rs []replica.Request) error {
	kind, data, ok := segment.ParseControl(e.Data)
	if !ok || kind != segment.KindMetadata {
		return &CorruptError{Index: e.Index, What: fmt.Sprintf("kind %v", segment.KindOf(e.Data))}
	}
	if applied := m.applied.Load(); e.Index <= applied {
		return &CorruptError{Index: e.Index, What: fmt.Sprintf("comes after entry %d", applied)}
	}
	h, body, err := decodeEntry(e.Index, data)
	if err != nil {
		return err
	}
	res := m.apply(e.Index, &h, body)
	m.applied.Store(e.Index)
	for _, r := range rs {
		m.settled(r)
		if cmd, ok := r.(*Command); ok {
			cmd.done(res)
		}
	}
	return nil
}

// apply executes an entry. From here on nothing can fail but the operation itself, whose refusal is its outcome.
func (m *Machine) apply(index uint64, h *header, body operation) Result {
	m.time = max(m.time, h.now)
	c := &change{header: *h, index: index, time: m.time, catalog: *m.current}
	switch body := body.(type) {
	case *Bootstrap:
		return m.finish(c, bootstrap(c, body))
	case *NodeStart:
		return m.finish(c, nodeStarted(c, body))
	case *SetPreferred:
		return m.finish(c, c.setPreferred(body, &m.preferred))
	case *register:
		return m.register(c, body)
	}

	s := m.sessions.find(h.client)
	if _, ok := body.(*logout); ok {
		return m.logout(c, s)
	}
	res, proceed := s.check(h.session, h.request, h.stamp)
	if !proceed {
		if res.ReplyOperation == 0 {
			res.ReplyOperation = h.op
		}
		return res
	}
	c.user = s.User
	code := m.execute(c, body)
	res = m.finish(c, code)
	r := reply{request: h.request, stamp: h.stamp, operation: h.op, code: code, index: index, time: c.time}
	if code == 0 {
		r.payload, r.partitions = c.payload, c.partitions
	}
	m.sessions.answered(s, r)
	return res
}

// finish makes a change the state, or drops it when the operation was refused.
func (m *Machine) finish(c *change, code wire.ErrorCode) Result {
	if code != 0 {
		return Result{Err: code, Index: c.index, Timestamp: c.time, ReplyOperation: c.op}
	}
	if c.changed {
		next := c.catalog
		next.index, next.time = c.index, c.time
		m.publish(&next)
	}
	r := reply{operation: c.op, index: c.index, time: c.time, payload: c.payload, partitions: c.partitions}
	return r.result()
}

// execute runs an operation of a session. It either succeeds, or returns a code and has no effect.
func (m *Machine) execute(c *change, body operation) wire.ErrorCode {
	switch body := body.(type) {
	case *createStream:
		return c.createStream(body)
	case *updateStream:
		return c.updateStream(body)
	case *deleteStream:
		return c.deleteStream(body, &m.preferred)
	case *purgeStream:
		return c.purgeStream(body)
	case *createTopic:
		return c.createTopic(body, &m.preferred)
	case *updateTopic:
		return c.updateTopic(body)
	case *deleteTopic:
		return c.deleteTopic(body, &m.preferred)
	case *purgeTopic:
		return c.purgeTopic(body)
	case *createPartitions:
		return c.createPartitions(body, &m.preferred)
	case *deletePartitions:
		return c.deletePartitions(body, &m.preferred)
	case *truncatePartition:
		return c.truncatePartition(body)
	case *createUser:
		return c.createUser(body)
	case *updateUser:
		return c.updateUser(body)
	case *deleteUser:
		code := c.deleteUser(body)
		if code == 0 {
			m.sessions.orphan(c.deleted)
		}
		return code
	case *updatePermissions:
		return c.updatePermissions(body)
	case *changePassword:
		return c.changePassword(body)
	case *createToken:
		return c.createToken(body)
	case *deleteToken:
		return c.deleteToken(body)
	case *createGroup:
		return c.createGroup(body)
	case *deleteGroup:
		return c.deleteGroup(body)
	}
	// newOperation makes no other body.
	return wire.ErrFeatureUnavailable
}

// allows checks a permission once more, against the state at this entry (security.md §4).
func (c *change) allows(rule Rule, stream, topic uint32) bool {
	return c.catalog.Allows(c.user, rule, stream, topic)
}

func (m *Machine) register(c *change, o *register) Result {
	evict := func(reason wire.EvictionReason) Result {
		return Result{Err: &EvictionError{Reason: reason}, Index: c.index, Timestamp: c.time, ReplyOperation: c.op}
	}
	u := c.catalog.users.get(c.user)
	if u == nil || !u.Active || u.Revision != o.revision {
		// Deleted, renamed, switched off or given another password since the credentials were checked.
		return evict(wire.EvictInvalidCredentials)
	}
	if s := m.sessions.find(c.client); s != nil && s.User != c.user {
		return evict(wire.EvictSessionError)
	}
	m.sessions.register(c.client, c.user, c.node, c.index, int(o.limit))
	return Result{Index: c.index, Timestamp: c.time, ReplyOperation: c.op, Session: c.index, User: c.user}
}

// logout removes a session. Without an entry it was logged out before, which is what was asked for. A younger session of the same
// client id stays: this logout is an older connection's.
func (m *Machine) logout(c *change, s *session) Result {
	res := Result{Index: c.index, Timestamp: c.time, ReplyOperation: c.op}
	if s == nil {
		return res
	}
	if refused, proceed := s.check(c.session, LogoutAtDisconnect, wire.U128{}); !proceed {
		refused.ReplyOperation = c.op
		return refused
	}
	m.sessions.remove(c.client)
	return res
}

// bootstrap makes the root user. The second one changes nothing and says so.
func bootstrap(c *change, b *Bootstrap) wire.ErrorCode {
	if c.catalog.bootstrapped {
		return wire.ErrUserAlreadyExists
	}
	// The root's creation time is fixed, so that no replica can differ (security.md §1).
	root := &User{ID: RootUser, Name: b.Username, CreatedAt: 1, PasswordHash: b.PasswordHash, Active: true, Revision: c.index,
		permissions: &permissions{global: globalFlags}}
	c.catalog.bootstrapped = true
	c.catalog.ticketKey = b.TicketKey
	c.putUser(root)
	return 0
}

func nodeStarted(c *change, n *NodeStart) wire.ErrorCode {
	nodes := make([]NodeStart, 0, len(c.catalog.nodes)+1)
	at := 0
	for at < len(c.catalog.nodes) && c.catalog.nodes[at].Replica < n.Replica {
		at++
	}
	nodes = append(nodes, c.catalog.nodes[:at]...)
	nodes = append(nodes, *n)
	if at < len(c.catalog.nodes) && c.catalog.nodes[at].Replica == n.Replica {
		at++
	}
	c.catalog.nodes = append(nodes, c.catalog.nodes[at:]...)
	c.changed = true
	return 0
}
