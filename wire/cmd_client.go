package wire

// GetMe asks for the connection that asks (20). Answer: ClientDetails.
type GetMe struct{}

// Code is CodeGetMe.
func (*GetMe) Code() Code { return CodeGetMe }

// Append encodes the body.
func (*GetMe) Append(dst []byte) []byte { return dst }

// Decode reads the body.
func (*GetMe) Decode([]byte) error { return nil }

// GetClients asks for all connections (22). Answer: Clients.
type GetClients struct{}

// Code is CodeGetClients.
func (*GetClients) Code() Code { return CodeGetClients }

// Append encodes the body.
func (*GetClients) Append(dst []byte) []byte { return dst }

// Decode reads the body.
func (*GetClients) Decode([]byte) error { return nil }

// GetClient asks for a connection (21). Answer: ClientDetails, or an empty payload.
type GetClient struct {
	ClientID uint32
}

// Code is CodeGetClient.
func (*GetClient) Code() Code { return CodeGetClient }

// Append encodes the body.
func (c *GetClient) Append(dst []byte) []byte { return le.AppendUint32(dst, c.ClientID) }

// Decode reads the body.
func (c *GetClient) Decode(src []byte) error {
	r := reader{b: src}
	c.ClientID = r.u32()
	return r.err()
}

// Transport is how a client is connected; TLS is reported as its base.
type Transport uint8

// Transports.
const (
	TransportTCP       Transport = 1
	TransportQUIC      Transport = 2
	TransportHTTP      Transport = 3
	TransportWebSocket Transport = 4
)

// String names the transport.
func (t Transport) String() string {
	switch t {
	case TransportTCP:
		return "TCP"
	case TransportQUIC:
		return "QUIC"
	case TransportHTTP:
		return "HTTP"
	case TransportWebSocket:
		return "WebSocket"
	}
	return "transport(" + utoa(uint64(t)) + ")"
}

// NoUser is the user id of a connection that is not signed in.
const NoUser uint32 = 1<<32 - 1

// Client is a connection (commands §3.17). Its id is unrelated to the 128-bit
// client id of frames.
type Client struct {
	ID                  uint32
	UserID              uint32 // or NoUser
	Transport           Transport
	Address             string // host:port
	ConsumerGroupsCount uint32
}

// Append encodes the entry.
func (c *Client) Append(dst []byte) []byte {
	dst = le.AppendUint32(dst, c.ID)
	dst = le.AppendUint32(dst, c.UserID)
	dst = appendStr32(append(dst, byte(c.Transport)), c.Address)
	return le.AppendUint32(dst, c.ConsumerGroupsCount)
}

func (c *Client) decode(r *reader) {
	*c = Client{
		ID: r.u32(), UserID: r.u32(), Transport: Transport(r.u8()),
		Address: r.str32("client address"), ConsumerGroupsCount: r.u32(),
	}
}

// Membership is a group that a client is a member of.
type Membership struct {
	StreamID, TopicID, GroupID uint32
}

// ClientDetails answers GetMe and GetClient. Encoding writes the number of
// Groups as ConsumerGroupsCount.
type ClientDetails struct {
	Client
	Groups []Membership
}

// Append encodes the payload.
func (c *ClientDetails) Append(dst []byte) []byte {
	e := c.Client
	e.ConsumerGroupsCount = uint32(len(c.Groups))
	dst = e.Append(dst)
	for _, g := range c.Groups {
		dst = le.AppendUint32(dst, g.StreamID)
		dst = le.AppendUint32(dst, g.TopicID)
		dst = le.AppendUint32(dst, g.GroupID)
	}
	return dst
}

// Decode reads the payload.
func (c *ClientDetails) Decode(src []byte) error {
	r := reader{b: src}
	*c = ClientDetails{}
	c.decode(&r)
	n := c.ConsumerGroupsCount
	if r.fail == nil && uint64(n)*12 > uint64(r.left()) {
		return eof("client groups", r.off, int(uint64(n)*12), r.left())
	}
	if r.fail == nil && n > 0 {
		c.Groups = make([]Membership, n)
		for i := range c.Groups {
			c.Groups[i] = Membership{StreamID: r.u32(), TopicID: r.u32(), GroupID: r.u32()}
		}
	}
	return r.err()
}

// Clients answers GetClients.
type Clients struct {
	Clients []Client
}

// Append encodes the payload.
func (c *Clients) Append(dst []byte) []byte {
	for i := range c.Clients {
		dst = c.Clients[i].Append(dst)
	}
	return dst
}

// Decode reads the payload.
func (c *Clients) Decode(src []byte) error {
	c.Clients = nil
	for r := (reader{b: src}); r.left() > 0; {
		var e Client
		e.decode(&r)
		if r.fail != nil {
			return r.fail
		}
		c.Clients = append(c.Clients, e)
	}
	return nil
}
