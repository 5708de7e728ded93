package wire

// ExtensionVersion is the version of our extension (extensions).
const ExtensionVersion uint32 = 1

// Flags of a Capabilities request.
const (
	// WantRoutingLink declares a routing link: sends for partitions led elsewhere
	// are refused with ErrTransientNotAccepted instead of forwarded.
	WantRoutingLink uint64 = 1
	// WantFence asks for the fence and allows several writes in flight per
	// partition.
	WantFence uint64 = 2
)

// Flags of a CapabilitiesReply.
const (
	CanFence            uint64 = 1
	CanForward          uint64 = 2
	CanRouteBySendRight uint64 = 4
	CanTicket           uint64 = 8
)

// Capabilities asks what the server can do beyond the released protocol (9000).
// A released server answers ErrInvalidCommand. Answer: CapabilitiesReply.
type Capabilities struct {
	Version uint32
	Flags   uint64
}

// Code is CodeCapabilities.
func (*Capabilities) Code() Code { return CodeCapabilities }

// Append encodes the body.
func (c *Capabilities) Append(dst []byte) []byte {
	return le.AppendUint64(le.AppendUint32(dst, c.Version), c.Flags)
}

// Decode reads the body.
func (c *Capabilities) Decode(src []byte) error {
	r := reader{b: src}
	*c = Capabilities{Version: r.u32(), Flags: r.u64()}
	return r.err()
}

// CapabilitiesReply answers Capabilities.
type CapabilitiesReply struct {
	Version       uint32
	Flags         uint64
	MaxInFlight   uint16
	RememberedIDs uint16
	MaxFrame      uint32
	ClusterID     U128
	NodeName      string
}

// Append encodes the payload.
func (c *CapabilitiesReply) Append(dst []byte) []byte {
	dst = le.AppendUint32(dst, c.Version)
	dst = le.AppendUint64(dst, c.Flags)
	dst = le.AppendUint16(dst, c.MaxInFlight)
	dst = le.AppendUint16(dst, c.RememberedIDs)
	dst = le.AppendUint32(dst, c.MaxFrame)
	return appendStr32(AppendU128(dst, c.ClusterID), c.NodeName)
}

// Decode reads the payload.
func (c *CapabilitiesReply) Decode(src []byte) error {
	r := reader{b: src}
	*c = CapabilitiesReply{
		Version: r.u32(), Flags: r.u64(), MaxInFlight: r.u16(), RememberedIDs: r.u16(), MaxFrame: r.u32(),
		ClusterID: r.u128(), NodeName: r.str32("node name"),
	}
	return r.err()
}

// Ticket asks for a short-lived token to sign data links in with (9001).
// Answer: TicketReply.
type Ticket struct{}

// Code is CodeTicket.
func (*Ticket) Code() Code { return CodeTicket }

// Append encodes the body.
func (*Ticket) Append(dst []byte) []byte { return dst }

// Decode reads the body.
func (*Ticket) Decode([]byte) error { return nil }

// TicketReply answers Ticket. The token goes into LoginRegisterWithPat.
type TicketReply struct {
	Token string
	Valid uint64 // microseconds
}

// Append encodes the payload.
func (t *TicketReply) Append(dst []byte) []byte {
	return le.AppendUint64(appendName(dst, t.Token), t.Valid)
}

// Decode reads the payload.
func (t *TicketReply) Decode(src []byte) error {
	r := reader{b: src}
	*t = TicketReply{Token: r.name("ticket"), Valid: r.u64()}
	return r.err()
}

// TransferKind says which group's leader is moved.
type TransferKind uint8

// Kinds of transfers.
const (
	TransferMetadata  TransferKind = 0
	TransferPartition TransferKind = 1
)

// TransferLeader moves the lead of a group to another node (9002). Stream, topic
// and partition are ignored for TransferMetadata. Answer: TransferLeaderReply.
type TransferLeader struct {
	Kind          TransferKind
	Stream, Topic Identifier
	Partition     uint32
	Target        string // node name, empty = any
	Keep          bool   // make the target the preferred primary
}

// Code is CodeTransferLeader.
func (*TransferLeader) Code() Code { return CodeTransferLeader }

// Append encodes the body.
func (t *TransferLeader) Append(dst []byte) []byte {
	dst = t.Topic.Append(t.Stream.Append(append(dst, byte(t.Kind))))
	dst = appendStr32(le.AppendUint32(dst, t.Partition), t.Target)
	return appendBool(dst, t.Keep)
}

// Decode reads the body.
func (t *TransferLeader) Decode(src []byte) error {
	r := reader{b: src}
	*t = TransferLeader{
		Kind: TransferKind(r.u8()), Stream: r.ident("stream id"), Topic: r.ident("topic id"), Partition: r.u32(),
		Target: r.str32("target node"), Keep: r.bool(),
	}
	if r.fail == nil && t.Kind > TransferPartition {
		r.unknown("transfer kind", 0, byte(t.Kind))
	}
	return r.err()
}

// TransferLeaderReply answers TransferLeader.
type TransferLeaderReply struct {
	Term uint64
	Node string
}

// Append encodes the payload.
func (t *TransferLeaderReply) Append(dst []byte) []byte {
	return appendStr32(le.AppendUint64(dst, t.Term), t.Node)
}

// Decode reads the payload.
func (t *TransferLeaderReply) Decode(src []byte) error {
	r := reader{b: src}
	*t = TransferLeaderReply{Term: r.u64(), Node: r.str32("node name")}
	return r.err()
}

// ClusterStatusGroups asks ClusterStatus for the groups too.
const ClusterStatusGroups uint8 = 1

// ClusterStatus asks for the state of nodes and groups (9003). Answer:
// ClusterStatusReply.
type ClusterStatus struct {
	Flags uint8
}

// Code is CodeClusterStatus.
func (*ClusterStatus) Code() Code { return CodeClusterStatus }

// Append encodes the body.
func (c *ClusterStatus) Append(dst []byte) []byte { return append(dst, c.Flags) }

// Decode reads the body.
func (c *ClusterStatus) Decode(src []byte) error {
	r := reader{b: src}
	c.Flags = r.u8()
	return r.err()
}

// NodeState is a node as the answering node sees it.
//
//	name str32, role u8, reachable bool, start_counter u64
type NodeState struct {
	Name         string
	Role         NodeRole
	Reachable    bool
	StartCounter uint64
}

// NoNode stands for "no node" where a node is named by its index.
const NoNode uint32 = 1<<32 - 1

// FollowerState is how far a follower of a group is.
type FollowerState struct {
	Node  uint32 // index into ClusterStatusReply.Nodes
	Match uint64
}

// GroupState is a partition's group. Primary and Preferred are indexes into
// ClusterStatusReply.Nodes, or NoNode.
//
//	stream u32, topic u32, partition u32, primary u32, preferred u32, term u64,
//	commit u64, followers: count u32, then node u32 and match u64 each
type GroupState struct {
	StreamID, TopicID, PartitionID uint32
	Primary, Preferred             uint32
	Term, Commit                   uint64
	Followers                      []FollowerState
}

// ClusterStatusReply answers ClusterStatus: count u32 and the nodes, then count
// u32 and the groups (none unless asked for).
type ClusterStatusReply struct {
	Nodes  []NodeState
	Groups []GroupState
}

// Append encodes the payload.
func (c *ClusterStatusReply) Append(dst []byte) []byte {
	dst = le.AppendUint32(dst, uint32(len(c.Nodes)))
	for i := range c.Nodes {
		n := &c.Nodes[i]
		dst = appendBool(append(appendStr32(dst, n.Name), byte(n.Role)), n.Reachable)
		dst = le.AppendUint64(dst, n.StartCounter)
	}
	dst = le.AppendUint32(dst, uint32(len(c.Groups)))
	for i := range c.Groups {
		g := &c.Groups[i]
		for _, v := range [...]uint32{g.StreamID, g.TopicID, g.PartitionID, g.Primary, g.Preferred} {
			dst = le.AppendUint32(dst, v)
		}
		dst = le.AppendUint64(le.AppendUint64(dst, g.Term), g.Commit)
		dst = le.AppendUint32(dst, uint32(len(g.Followers)))
		for _, f := range g.Followers {
			dst = le.AppendUint64(le.AppendUint32(dst, f.Node), f.Match)
		}
	}
	return dst
}

// Decode reads the payload.
func (c *ClusterStatusReply) Decode(src []byte) error {
	r := reader{b: src}
	*c = ClusterStatusReply{}
	if n := r.count("nodes", 14); n > 0 {
		c.Nodes = make([]NodeState, n)
		for i := range c.Nodes {
			c.Nodes[i] = NodeState{Name: r.str32("node name"), Role: NodeRole(r.u8()), Reachable: r.bool(), StartCounter: r.u64()}
		}
	}
	if n := r.count("groups", 40); n > 0 {
		c.Groups = make([]GroupState, n)
		for i := range c.Groups {
			g := &c.Groups[i]
			*g = GroupState{
				StreamID: r.u32(), TopicID: r.u32(), PartitionID: r.u32(), Primary: r.u32(), Preferred: r.u32(),
				Term: r.u64(), Commit: r.u64(),
			}
			if n := r.count("followers", 12); n > 0 {
				g.Followers = make([]FollowerState, n)
				for j := range g.Followers {
					g.Followers[j] = FollowerState{Node: r.u32(), Match: r.u64()}
				}
			}
		}
	}
	return r.err()
}
