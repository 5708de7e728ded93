package metadata

import (
	"slices"

	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/wire"
)

// A checkpoint is the whole state, little-endian; texts and lists have a u32 in front. Equal states give equal bytes: every list has
// one order (ids, names, age), and what can be computed is left out. A later version adds fields; this one reads its own only.
//
//	magic "WPMETA" and version u16 = 1
//	time u64; index of the latest change u64; bootstrapped flag; ticket key 32
//	nodes: replica u8, directory 16, counter u64                            by replica id
//	users: id u32, name, created u64, hash, active flag, revision u64, permissions (entry.go), tokens    by id
//	  token: name, hash, expiry u64                                         by name
//	streams: id u32, name, created at u64, created u64, topics              by id
//	  topic: id u32, name, created at u64, created u64, explicit and derived options, purged u64, next group u32,
//	         partitions, groups                                             by id
//	    partition: created at u64, created u64, frontier u64, preferred u8, members    the id is the position
//	    group: id u32, name, generation u64, members                        by id
//	      member slot: flag; client 16, partitions u32 each, revocations (partition u32, target u32, created u64)
//	sessions: client 16, user u32, number u64, watermark u64, node u8, latest u64, replies    oldest latest reply first
//	  reply: request u64, stamp 16, operation u8, code u32, index u64, time u64, partitions u32, dropped flag, payload
const (
	snapshotMagic   = "WPMETA"
	snapshotVersion = 1
)

// Checkpoint appends the applied state to dst.
func (m *Machine) Checkpoint(dst []byte) []byte {
	c := m.current
	dst = append(dst, snapshotMagic...)
	dst = le.AppendUint16(dst, snapshotVersion)
	dst = le.AppendUint64(dst, m.time)
	dst = le.AppendUint64(dst, c.index)
	dst = appendFlag(dst, c.bootstrapped)
	dst = append(dst, c.ticketKey[:]...)

	dst = le.AppendUint32(dst, uint32(len(c.nodes)))
	for i := range c.nodes {
		dst = c.nodes[i].append(dst)
	}
	dst = le.AppendUint32(dst, uint32(c.users.len()))
	for u := range c.users.all() {
		dst = appendUser(dst, u)
	}
	dst = le.AppendUint32(dst, uint32(c.streams.len()))
	for s := range c.streams.all() {
		dst = le.AppendUint32(dst, s.ID)
		dst = appendText(dst, s.Name)
		dst = le.AppendUint64(dst, s.CreatedAt)
		dst = le.AppendUint64(dst, s.Created)
		dst = le.AppendUint32(dst, uint32(s.topics.len()))
		for t := range s.topics.all() {
			dst = appendTopic(dst, t)
		}
	}
	dst = le.AppendUint32(dst, uint32(len(m.sessions.byClient)))
	for s := m.sessions.oldest; s != nil; s = s.next {
		dst = appendSession(dst, s)
	}
	return dst
}

// Restore sets the state to a checkpoint that holds everything up to index; nil is the empty state. An error is a *CorruptError and
// leaves the state as it was. The log is not needed.
func (m *Machine) Restore(_ *segment.Log, checkpoint []byte, index uint64) error {
	var d restored
	if checkpoint == nil {
		d.catalog, d.sessions = newCatalog(), newSessions()
	} else if err := d.decode(checkpoint, index); err != nil {
		return err
	}
	m.time, m.preferred = d.time, d.preferred
	// The table is replaced under its own lock, because others may be looking things up.
	m.sessions.replace(d.sessions)
	clear(m.inFlight)
	m.applied.Store(index)
	m.publish(d.catalog)
	return nil
}

func appendUser(dst []byte, u *User) []byte {
	dst = le.AppendUint32(dst, u.ID)
	dst = appendText(dst, u.Name)
	dst = le.AppendUint64(dst, u.CreatedAt)
	dst = appendText(dst, u.PasswordHash)
	dst = appendFlag(dst, u.Active)
	dst = le.AppendUint64(dst, u.Revision)
	dst = appendPermissions(dst, u.permissions)
	dst = le.AppendUint32(dst, uint32(len(u.tokens)))
	for _, t := range u.tokens {
		dst = appendText(dst, t.Name)
		dst = appendText(dst, t.Hash)
		dst = le.AppendUint64(dst, t.ExpiryAt)
	}
	return dst
}

func appendTopic(dst []byte, t *Topic) []byte {
	dst = le.AppendUint32(dst, t.ID)
	dst = appendText(dst, t.Name)
	dst = le.AppendUint64(dst, t.CreatedAt)
	dst = le.AppendUint64(dst, t.Created)
	dst = appendOptions(dst, t.Explicit)
	dst = appendOptions(dst, t.Derived)
	dst = le.AppendUint64(dst, t.Purged)
	dst = le.AppendUint32(dst, t.nextGroup)
	dst = le.AppendUint32(dst, uint32(len(t.Partitions)))
	for i := range t.Partitions {
		p := &t.Partitions[i]
		dst = le.AppendUint64(dst, p.CreatedAt)
		dst = le.AppendUint64(dst, p.Created)
		dst = le.AppendUint64(dst, p.Frontier)
		dst = appendBytes(append(dst, p.Preferred), p.Members)
	}
	dst = le.AppendUint32(dst, uint32(len(t.groups)))
	for _, g := range t.groups {
		dst = le.AppendUint32(dst, g.ID)
		dst = appendText(dst, g.Name)
		dst = le.AppendUint64(dst, g.Generation)
		dst = le.AppendUint32(dst, uint32(len(g.Members)))
		for _, member := range g.Members {
			dst = appendMember(dst, member)
		}
	}
	return dst
}

func appendMember(dst []byte, member *Member) []byte {
	if member == nil {
		return append(dst, 0)
	}
	dst = wire.AppendU128(append(dst, 1), member.Client)
	dst = le.AppendUint32(dst, uint32(len(member.Partitions)))
	for _, p := range member.Partitions {
		dst = le.AppendUint32(dst, p)
	}
	dst = le.AppendUint32(dst, uint32(len(member.Revocations)))
	for _, v := range member.Revocations {
		dst = le.AppendUint32(dst, v.Partition)
		dst = le.AppendUint32(dst, v.Target)
		dst = le.AppendUint64(dst, v.CreatedAt)
	}
	return dst
}

func appendSession(dst []byte, s *session) []byte {
	dst = wire.AppendU128(dst, s.Client)
	dst = le.AppendUint32(dst, s.User)
	dst = le.AppendUint64(dst, s.ID)
	dst = le.AppendUint64(dst, s.Watermark)
	dst = append(dst, s.Node)
	dst = le.AppendUint64(dst, s.latest)
	dst = le.AppendUint32(dst, uint32(len(s.replies)))
	for i := range s.replies {
		r := &s.replies[i]
		dst = le.AppendUint64(dst, r.request)
		dst = wire.AppendU128(dst, r.stamp)
		dst = append(dst, byte(r.operation))
		dst = le.AppendUint32(dst, uint32(r.code))
		dst = le.AppendUint64(dst, r.index)
		dst = le.AppendUint64(dst, r.time)
		dst = le.AppendUint32(dst, r.partitions)
		dst = appendFlag(dst, r.dropped)
		dst = appendBytes(dst, r.payload)
	}
	return dst
}

// restored is a state that is read from a checkpoint. Every rule that applying relies on is checked: a checkpoint that breaks one was
// not written by this package.
type restored struct {
	time      uint64
	index     uint64 // of the checkpoint
	catalog   *Catalog
	sessions  *sessions
	preferred [256]uint32
}

func (d *restored) decode(b []byte, index uint64) error {
	r := &reader{b: b}
	if magic := string(r.take(len(snapshotMagic))); r.ok() && magic != snapshotMagic {
		r.fail("magic %q", magic)
	}
	if v := r.take(2); v != nil && le.Uint16(v) != snapshotVersion {
		r.fail("version %d", le.Uint16(v))
	}
	c := newCatalog()
	d.catalog, d.index = c, index
	d.time = r.u64()
	c.index = d.entry(r, r.u64())
	c.time = d.time
	c.bootstrapped = r.flag()
	copy(c.ticketKey[:], r.take(len(c.ticketKey)))
	for i, n := 0, r.count(25); i < n && r.ok(); i++ {
		var node NodeStart
		node.decode(r)
		if i > 0 && node.Replica <= c.nodes[i-1].Replica {
			r.fail("nodes out of order")
		}
		c.nodes = append(c.nodes, node)
	}
	d.users(r)
	d.streams(r)
	d.table(r)
	r.end()
	return r.err(0)
}

// entry checks a log index: nothing can come from behind the checkpoint.
func (d *restored) entry(r *reader, index uint64) uint64 {
	if index > d.index {
		r.fail("index %d is behind the checkpoint's %d", index, d.index)
	}
	return index
}

func (d *restored) users(r *reader) {
	c := d.catalog
	last := int64(-1)
	for i, n := 0, r.count(4); i < n && r.ok(); i++ {
		u := &User{ID: r.u32(), Name: r.name(), CreatedAt: r.u64(), PasswordHash: r.text(), Active: r.flag(), Revision: d.entry(r, r.u64()),
			permissions: r.permissions()}
		for k, m := 0, r.count(16); k < m && r.ok(); k++ {
			t := &Token{User: u.ID, Name: r.name(), Hash: r.name(), ExpiryAt: r.u64()}
			if k > 0 && t.Name <= u.tokens[k-1].Name || c.tokens.get(t.Hash) != nil {
				r.fail("token %q out of order or twice", t.Name)
			}
			u.tokens = append(u.tokens, t)
			c.tokens = c.tokens.set(t.Hash, t)
		}
		d.ascending(r, "user", u.ID, &last, maxUsers)
		if c.userNames.get(u.Name) != nil {
			r.fail("user name %q twice", u.Name)
		}
		if !r.ok() {
			return
		}
		c.users.push(u.ID, u)
		c.userNames = c.userNames.set(u.Name, u)
	}
}

// ascending checks that an id is larger than the one before and below its limit: a damaged number must not make an absurd list.
func (d *restored) ascending(r *reader, what string, id uint32, last *int64, limit uint32) {
	if int64(id) <= *last || id >= limit {
		r.fail("%s %d out of order or range", what, id)
	}
	*last = int64(id)
}

func (d *restored) streams(r *reader) {
	c := d.catalog
	last := int64(-1)
	for i, n := 0, r.count(4); i < n && r.ok(); i++ {
		s := &Stream{ID: r.u32(), Name: r.name(), CreatedAt: r.u64(), Created: d.entry(r, r.u64()),
			topicNames: newIndex[Topic](c.streamNames.seed)}
		d.ascending(r, "stream", s.ID, &last, maxStreams)
		lastTopic := int64(-1)
		for k, m := 0, r.count(4); k < m && r.ok(); k++ {
			t := d.topic(r, s.ID)
			d.ascending(r, "topic", t.ID, &lastTopic, maxTopicsPerStream)
			if s.topicNames.get(t.Name) != nil {
				r.fail("topic name %q twice", t.Name)
			}
			if !r.ok() {
				return
			}
			s.topics.push(t.ID, t)
			s.topicNames = s.topicNames.set(t.Name, t)
			c.topicCount++
			c.partitionCount += len(t.Partitions)
			c.groupCount += len(t.groups)
		}
		if c.streamNames.get(s.Name) != nil {
			r.fail("stream name %q twice", s.Name)
		}
		if !r.ok() {
			return
		}
		c.streams.push(s.ID, s)
		c.streamNames = c.streamNames.set(s.Name, s)
	}
}

func (d *restored) topic(r *reader, stream uint32) *Topic {
	t := &Topic{Stream: stream, ID: r.u32(), Name: r.name(), CreatedAt: r.u64(), Created: d.entry(r, r.u64()),
		groupNames: newIndex[Group](d.catalog.streamNames.seed)}
	var o topicOptions
	o.decode(r)
	t.Explicit, t.Derived = o.explicit, o.derived
	t.Config = wire.TopicOptionsOf(t.Explicit, t.Derived)
	t.Purged = d.entry(r, r.u64())
	t.nextGroup = r.u32()
	n := r.count(30)
	if n > maxPartitionsPerTopic {
		r.fail("%d partitions", n)
		return t
	}
	if n > 0 {
		t.Partitions = make([]Partition, n)
	}
	for i := range t.Partitions {
		p := Partition{ID: uint32(i), CreatedAt: r.u64(), Created: d.entry(r, r.u64()), Frontier: r.u64(), Preferred: r.u8(), Members: r.replicas("members")}
		if i > 0 && slices.Equal(p.Members, t.Partitions[i-1].Members) {
			p.Members = t.Partitions[i-1].Members // partitions made together share one list
		}
		t.Partitions[i] = p
		d.preferred[p.Preferred]++
	}
	for i, n := 0, r.count(21); i < n && r.ok(); i++ {
		g := &Group{ID: r.u32(), Name: r.name(), Generation: r.u64()}
		for k, m := 0, r.count(1); k < m && r.ok(); k++ {
			g.Members = append(g.Members, d.member(r))
		}
		if i > 0 && g.ID <= t.groups[i-1].ID || g.ID >= t.nextGroup || t.groupNames.get(g.Name) != nil {
			r.fail("group %d out of order or range, or its name twice", g.ID)
		}
		t.groups = append(t.groups, g)
		t.groupNames = t.groupNames.set(g.Name, g)
	}
	return t
}

func (d *restored) member(r *reader) *Member {
	if !r.flag() {
		return nil
	}
	member := &Member{Client: r.u128()}
	for i, n := 0, r.count(4); i < n && r.ok(); i++ {
		member.Partitions = append(member.Partitions, r.u32())
	}
	for i, n := 0, r.count(16); i < n && r.ok(); i++ {
		member.Revocations = append(member.Revocations, Revocation{Partition: r.u32(), Target: r.u32(), CreatedAt: r.u64()})
	}
	return member
}

func (d *restored) table(r *reader) {
	t := newSessions()
	d.sessions = t
	for i, n := 0, r.count(49); i < n && r.ok(); i++ {
		s := &session{Session: Session{Client: r.u128(), User: r.u32(), ID: d.entry(r, r.u64()), Watermark: r.u64(), Node: r.u8()},
			latest: d.entry(r, r.u64())}
		if s.Client.IsZero() || s.ID == 0 || t.byClient[s.Client] != nil || t.newest != nil && s.latest <= t.newest.latest || s.latest < s.ID {
			r.fail("session of client %s", s.Client.Hex())
			return
		}
		for k, m := 0, r.count(54); k < m && r.ok(); k++ {
			p := reply{request: r.u64(), stamp: r.u128(), operation: wire.Operation(r.u8()), code: wire.ErrorCode(r.u32()),
				index: d.entry(r, r.u64()), time: r.u64(), partitions: r.partitions(0), dropped: r.flag(), payload: r.bytes()}
			if p.request > s.Watermark || k > 0 && p.request <= s.replies[k-1].request || k >= keptReplies || p.index > s.latest ||
				len(p.payload) > maxKeptPayload {
				r.fail("reply %d of client %s", p.request, s.Client.Hex())
			}
			s.replies = append(s.replies, p)
		}
		if !r.ok() {
			return
		}
		t.byClient[s.Client] = s
		t.link(s)
	}
}

// appendOptions writes a block with its length in front.
func appendOptions(dst []byte, o wire.Options) []byte {
	dst = le.AppendUint32(dst, uint32(o.Size()))
	return o.Append(dst)
}

// options reads what appendOptions wrote: sorted by key, none twice.
func (r *reader) options() wire.Options {
	b := r.take(r.count(1))
	if len(b) == 0 {
		return nil
	}
	var o wire.Options
	if err := o.Decode(b); err != nil {
		r.fail("options: %v", err)
		return nil
	}
	for i := 1; i < len(o); i++ {
		if o[i].Key <= o[i-1].Key {
			r.fail("options out of order")
			return nil
		}
	}
	return o
}
