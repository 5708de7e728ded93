package wire

// GetConsumerGroup asks for a group (600). Answer: GroupDetails, or an empty payload.
type GetConsumerGroup struct {
	Stream, Topic, Group Identifier
}

// Code is CodeGetConsumerGroup.
func (*GetConsumerGroup) Code() Code { return CodeGetConsumerGroup }

// Append encodes the body.
func (c *GetConsumerGroup) Append(dst []byte) []byte {
	return c.Group.Append(c.Topic.Append(c.Stream.Append(dst)))
}

// Decode reads the body.
func (c *GetConsumerGroup) Decode(src []byte) error {
	r := reader{b: src}
	*c = GetConsumerGroup{Stream: r.ident("stream id"), Topic: r.ident("topic id"), Group: r.ident("group id")}
	return r.err()
}

// GetConsumerGroups asks for the groups of a topic (601). Answer: Groups.
type GetConsumerGroups struct {
	Stream, Topic Identifier
}

// Code is CodeGetConsumerGroups.
func (*GetConsumerGroups) Code() Code { return CodeGetConsumerGroups }

// Append encodes the body.
func (c *GetConsumerGroups) Append(dst []byte) []byte { return c.Topic.Append(c.Stream.Append(dst)) }

// Decode reads the body.
func (c *GetConsumerGroups) Decode(src []byte) error {
	r := reader{b: src}
	*c = GetConsumerGroups{Stream: r.ident("stream id"), Topic: r.ident("topic id")}
	return r.err()
}

// DeleteConsumerGroup removes a group (603). Answer: Empty.
type DeleteConsumerGroup struct {
	Stream, Topic, Group Identifier
}

// Code is CodeDeleteConsumerGroup.
func (*DeleteConsumerGroup) Code() Code { return CodeDeleteConsumerGroup }

// Append encodes the body.
func (c *DeleteConsumerGroup) Append(dst []byte) []byte {
	return c.Group.Append(c.Topic.Append(c.Stream.Append(dst)))
}

// Decode reads the body.
func (c *DeleteConsumerGroup) Decode(src []byte) error {
	r := reader{b: src}
	*c = DeleteConsumerGroup{Stream: r.ident("stream id"), Topic: r.ident("topic id"), Group: r.ident("group id")}
	return r.err()
}

// JoinConsumerGroup makes the session a member (604). Answer: Empty.
type JoinConsumerGroup struct {
	Stream, Topic, Group Identifier
}

// Code is CodeJoinConsumerGroup.
func (*JoinConsumerGroup) Code() Code { return CodeJoinConsumerGroup }

// Append encodes the body.
func (c *JoinConsumerGroup) Append(dst []byte) []byte {
	return c.Group.Append(c.Topic.Append(c.Stream.Append(dst)))
}

// Decode reads the body.
func (c *JoinConsumerGroup) Decode(src []byte) error {
	r := reader{b: src}
	*c = JoinConsumerGroup{Stream: r.ident("stream id"), Topic: r.ident("topic id"), Group: r.ident("group id")}
	return r.err()
}

// LeaveConsumerGroup ends the membership (605). Answer: Empty.
type LeaveConsumerGroup struct {
	Stream, Topic, Group Identifier
}

// Code is CodeLeaveConsumerGroup.
func (*LeaveConsumerGroup) Code() Code { return CodeLeaveConsumerGroup }

// Append encodes the body.
func (c *LeaveConsumerGroup) Append(dst []byte) []byte {
	return c.Group.Append(c.Topic.Append(c.Stream.Append(dst)))
}

// Decode reads the body.
func (c *LeaveConsumerGroup) Decode(src []byte) error {
	r := reader{b: src}
	*c = LeaveConsumerGroup{Stream: r.ident("stream id"), Topic: r.ident("topic id"), Group: r.ident("group id")}
	return r.err()
}

// SyncConsumerGroup asks for the partitions of this member (606). Answer: GroupAssignment, or an empty
// payload when the session is not a member.
type SyncConsumerGroup struct {
	Stream, Topic, Group Identifier
}

// Code is CodeSyncConsumerGroup.
func (*SyncConsumerGroup) Code() Code { return CodeSyncConsumerGroup }

// Append encodes the body.
func (c *SyncConsumerGroup) Append(dst []byte) []byte {
	return c.Group.Append(c.Topic.Append(c.Stream.Append(dst)))
}

// Decode reads the body.
func (c *SyncConsumerGroup) Decode(src []byte) error {
	r := reader{b: src}
	*c = SyncConsumerGroup{Stream: r.ident("stream id"), Topic: r.ident("topic id"), Group: r.ident("group id")}
	return r.err()
}

// CreateConsumerGroup adds a group (602, commands §3.16). Answer: GroupDetails
// without members.
type CreateConsumerGroup struct {
	Stream, Topic Identifier
	Name          string
}

// Code is CodeCreateConsumerGroup.
func (*CreateConsumerGroup) Code() Code { return CodeCreateConsumerGroup }

// Append encodes the body.
func (c *CreateConsumerGroup) Append(dst []byte) []byte {
	return appendName(c.Topic.Append(c.Stream.Append(dst)), c.Name)
}

// Decode reads the body.
func (c *CreateConsumerGroup) Decode(src []byte) error {
	r := reader{b: src}
	*c = CreateConsumerGroup{Stream: r.ident("stream id"), Topic: r.ident("topic id"), Name: r.name("group name")}
	return r.err()
}

// Group is a consumer group entry.
type Group struct {
	ID              uint32
	PartitionsCount uint32
	MembersCount    uint32
	Name            string
}

// Append encodes the entry.
func (g *Group) Append(dst []byte) []byte {
	dst = le.AppendUint32(dst, g.ID)
	dst = le.AppendUint32(dst, g.PartitionsCount)
	dst = le.AppendUint32(dst, g.MembersCount)
	return appendName(dst, g.Name)
}

func (g *Group) decode(r *reader) {
	*g = Group{ID: r.u32(), PartitionsCount: r.u32(), MembersCount: r.u32(), Name: r.name("group name")}
}

// Member is a member of a group. Its id is the server's own small number, not
// the client id.
type Member struct {
	ID         uint32
	Partitions []uint32
}

// GroupDetails answers GetConsumerGroup and CreateConsumerGroup. Encoding writes
// the number of Members as MembersCount.
type GroupDetails struct {
	Group
	Members []Member
}

// Append encodes the payload.
func (g *GroupDetails) Append(dst []byte) []byte {
	e := g.Group
	e.MembersCount = uint32(len(g.Members))
	dst = e.Append(dst)
	for i := range g.Members {
		dst = le.AppendUint32(dst, g.Members[i].ID)
		dst = appendU32s(dst, g.Members[i].Partitions)
	}
	return dst
}

// Decode reads the payload.
func (g *GroupDetails) Decode(src []byte) error {
	r := reader{b: src}
	*g = GroupDetails{}
	g.decode(&r)
	n := g.MembersCount
	if r.fail == nil && uint64(n)*8 > uint64(r.left()) {
		return eof("members", r.off, int(uint64(n)*8), r.left())
	}
	if r.fail == nil && n > 0 {
		g.Members = make([]Member, n)
		for i := range g.Members {
			g.Members[i] = Member{ID: r.u32(), Partitions: r.u32s("member partitions")}
		}
	}
	return r.err()
}

// Groups answers GetConsumerGroups.
type Groups struct {
	Groups []Group
}

// Append encodes the payload.
func (g *Groups) Append(dst []byte) []byte {
	for i := range g.Groups {
		dst = g.Groups[i].Append(dst)
	}
	return dst
}

// Decode reads the payload.
func (g *Groups) Decode(src []byte) error {
	g.Groups = nil
	for r := (reader{b: src}); r.left() > 0; {
		var e Group
		e.decode(&r)
		if r.fail != nil {
			return r.fail
		}
		g.Groups = append(g.Groups, e)
	}
	return nil
}

// GroupAssignment answers SyncConsumerGroup. A member may own no partition.
type GroupAssignment struct {
	Generation uint64
	Partitions []uint32
}

// Append encodes the payload.
func (g *GroupAssignment) Append(dst []byte) []byte {
	return appendU32s(le.AppendUint64(dst, g.Generation), g.Partitions)
}

// Decode reads the payload.
func (g *GroupAssignment) Decode(src []byte) error {
	r := reader{b: src}
	*g = GroupAssignment{Generation: r.u64(), Partitions: r.u32s("assigned partitions")}
	return r.err()
}

func appendU32s(dst []byte, v []uint32) []byte {
	dst = le.AppendUint32(dst, uint32(len(v)))
	for _, n := range v {
		dst = le.AppendUint32(dst, n)
	}
	return dst
}

func (r *reader) u32s(what string) []uint32 {
	n := r.count(what, 4)
	if n == 0 {
		return nil
	}
	out := make([]uint32, n)
	for i := range out {
		out[i] = r.u32()
	}
	return out
}
