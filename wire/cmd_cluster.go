package wire

// GetClusterMetadata asks for the roster (12). Answer: Roster.
type GetClusterMetadata struct{}

// Code is CodeGetClusterMetadata.
func (*GetClusterMetadata) Code() Code { return CodeGetClusterMetadata }

// Append encodes the body.
func (*GetClusterMetadata) Append(dst []byte) []byte { return dst }

// Decode reads the body.
func (*GetClusterMetadata) Decode([]byte) error { return nil }

// NodeRole is a node's part in the metadata group.
type NodeRole uint8

// Roles.
const (
	RoleLeader   NodeRole = 0
	RoleFollower NodeRole = 1
)

// String names the role.
func (r NodeRole) String() string {
	switch r {
	case RoleLeader:
		return "leader"
	case RoleFollower:
		return "follower"
	}
	return "role(" + utoa(uint64(r)) + ")"
}

// NodeStatus is how a node is doing. Released clients refuse any other value,
// and the whole reply with it.
type NodeStatus uint8

// Statuses.
const (
	StatusHealthy     NodeStatus = 0
	StatusStarting    NodeStatus = 1
	StatusStopping    NodeStatus = 2
	StatusUnreachable NodeStatus = 3
	StatusMaintenance NodeStatus = 4
)

// String names the status.
func (s NodeStatus) String() string {
	switch s {
	case StatusHealthy:
		return "healthy"
	case StatusStarting:
		return "starting"
	case StatusStopping:
		return "stopping"
	case StatusUnreachable:
		return "unreachable"
	case StatusMaintenance:
		return "maintenance"
	}
	return "status(" + utoa(uint64(s)) + ")"
}

// Node is an entry of the roster (commands §2.10). Port 0 means that the node
// does not offer the transport.
type Node struct {
	Name, IP                   string
	TCP, QUIC, HTTP, WebSocket uint16
	Role                       NodeRole
	Status                     NodeStatus
}

// Append encodes the node.
func (n *Node) Append(dst []byte) []byte {
	dst = appendStr32(appendStr32(dst, n.Name), n.IP)
	dst = le.AppendUint16(dst, n.TCP)
	dst = le.AppendUint16(dst, n.QUIC)
	dst = le.AppendUint16(dst, n.HTTP)
	dst = le.AppendUint16(dst, n.WebSocket)
	return append(dst, byte(n.Role), byte(n.Status))
}

// nodeMinSize is the size of a node with empty texts.
const nodeMinSize = 18

func (n *Node) decode(r *reader) {
	*n = Node{
		Name: r.str32("node name"), IP: r.str32("node ip"),
		TCP: r.u16(), QUIC: r.u16(), HTTP: r.u16(), WebSocket: r.u16(),
		Role: NodeRole(r.u8()), Status: NodeStatus(r.u8()),
	}
	if r.fail == nil && n.Role > RoleFollower {
		r.unknown("node role", r.off-2, byte(n.Role))
	}
	if r.fail == nil && n.Status > StatusMaintenance {
		r.unknown("node status", r.off-1, byte(n.Status))
	}
}

// Roster answers GetClusterMetadata (commands §3.3).
type Roster struct {
	Name  string // of the cluster
	Nodes []Node // at least one
}

// Leader finds the healthy node with the role of leader, or nil.
func (c *Roster) Leader() *Node {
	for i := range c.Nodes {
		if c.Nodes[i].Role == RoleLeader && c.Nodes[i].Status == StatusHealthy {
			return &c.Nodes[i]
		}
	}
	return nil
}

// Append encodes the payload.
func (c *Roster) Append(dst []byte) []byte {
	dst = appendStr32(dst, c.Name)
	dst = le.AppendUint32(dst, uint32(len(c.Nodes)))
	for i := range c.Nodes {
		dst = c.Nodes[i].Append(dst)
	}
	return dst
}

// Decode reads the payload.
func (c *Roster) Decode(src []byte) error {
	r := reader{b: src}
	*c = Roster{Name: r.str32("cluster name")}
	if n := r.count("nodes", nodeMinSize); n > 0 {
		c.Nodes = make([]Node, n)
		for i := range c.Nodes {
			c.Nodes[i].decode(&r)
		}
	}
	return r.err()
}

// AttachmentSize is the size of an Attachment on the wire.
const AttachmentSize = 32

// Attachment names the session that a data connection works for (commands §2.11).
type Attachment struct {
	ClientID  U128
	Session   uint64
	Watermark uint64 // the metadata position that must have been applied
}

// Append encodes the 32 bytes.
func (a Attachment) Append(dst []byte) []byte {
	dst = AppendU128(dst, a.ClientID)
	dst = le.AppendUint64(dst, a.Session)
	return le.AppendUint64(dst, a.Watermark)
}

func (a *Attachment) decode(r *reader) {
	*a = Attachment{ClientID: r.u128(), Session: r.u64(), Watermark: r.u64()}
}

// AttachConsumerSession lets a data connection act for a session (14). Answer: Empty.
type AttachConsumerSession struct {
	Attachment
}

// Code is CodeAttachConsumerSession.
func (*AttachConsumerSession) Code() Code { return CodeAttachConsumerSession }

// Decode reads the body.
func (a *AttachConsumerSession) Decode(src []byte) error {
	r := reader{b: src}
	a.decode(&r)
	return r.err()
}

// Route answers GetPollRouting and GetConsumerOffsetRouting (commands §3.9).
type Route struct {
	Session Attachment // of the connection that asked
	Primary Node
}

// Append encodes the payload.
func (t *Route) Append(dst []byte) []byte { return t.Primary.Append(t.Session.Append(dst)) }

// Decode reads the payload.
func (t *Route) Decode(src []byte) error {
	r := reader{b: src}
	t.Session.decode(&r)
	t.Primary.decode(&r)
	return r.err()
}
