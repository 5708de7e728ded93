package metadata

import (
	"github.com/whippetmq/whippet/internal/credential"
	"github.com/whippetmq/whippet/wire"
)

// A log entry is a header and one operation's body, little-endian:
//
//	 0  1  format = 1
//	 1  1  operation: the protocol's value, or one of ours (OpBootstrap ...)
//	 2  1  replica id of the node that the client is connected to
//	 3  1  0
//	 4  4  user that signs in (Register), else 0
//	 8 16  client id, 0 = the server itself
//	24  8  session
//	32  8  request
//	40 16  stamp
//	56  8  node time at admission, µs
//	64     body, to the end
//
// Texts and byte strings have a u32 length in front. The bodies are what the append methods below write. CreateTopic and
// CreatePartitions are logged under 64 and 65, the values their replies carry, because they hold more than the client sent.
const (
	entryFormat = 1
	entryHeader = 64
)

type header struct {
	op      wire.Operation
	node    uint8
	user    uint32
	client  wire.U128
	session uint64
	request uint64
	stamp   wire.U128
	now     uint64
}

func (h *header) append(dst []byte) []byte {
	dst = append(dst, entryFormat, byte(h.op), h.node, 0)
	dst = le.AppendUint32(dst, h.user)
	dst = wire.AppendU128(dst, h.client)
	dst = le.AppendUint64(dst, h.session)
	dst = le.AppendUint64(dst, h.request)
	dst = wire.AppendU128(dst, h.stamp)
	return le.AppendUint64(dst, h.now)
}

func (h *header) decode(r *reader) {
	if v := r.u8(); v != entryFormat {
		r.fail("entry format %d", v)
	}
	h.op = wire.Operation(r.u8())
	h.node = r.u8()
	if v := r.u8(); v != 0 {
		r.fail("reserved byte is %d", v)
	}
	h.user = r.u32()
	h.client = r.u128()
	h.session = r.u64()
	h.request = r.u64()
	h.stamp = r.u128()
	h.now = r.u64()
	switch {
	case h.client.IsZero() != serverOperation(h.op):
		r.fail("operation %d of client %s", h.op, h.client.Hex())
	case h.op == wire.OpRegister:
	case h.client.IsZero():
	case h.session == 0, h.request == 0:
		r.fail("operation %d without session or request", h.op)
	}
}

// serverOperation tells the operations of no client.
func serverOperation(op wire.Operation) bool { return op >= OpBootstrap && op <= OpSetPreferred }

// operation is the body of an entry.
type operation interface {
	append(dst []byte) []byte
	decode(r *reader)
}

// newOperation makes the empty body of an operation of the log; nil for a value that no entry has.
func newOperation(op wire.Operation) operation {
	switch op {
	case OpBootstrap:
		return new(Bootstrap)
	case OpNodeStarted:
		return new(NodeStart)
	case OpSetPreferred:
		return new(SetPreferred)
	case wire.OpRegister:
		return new(register)
	case wire.OpLogout:
		return new(logout)
	case wire.OpCreateStream:
		return new(createStream)
	case wire.OpUpdateStream:
		return new(updateStream)
	case wire.OpDeleteStream:
		return new(deleteStream)
	case wire.OpPurgeStream:
		return new(purgeStream)
	case wire.OpCreateTopicWithAssignments:
		return new(createTopic)
	case wire.OpUpdateTopic:
		return new(updateTopic)
	case wire.OpDeleteTopic:
		return new(deleteTopic)
	case wire.OpPurgeTopic:
		return new(purgeTopic)
	case wire.OpCreatePartitionsWithAssignments:
		return new(createPartitions)
	case wire.OpDeletePartitions:
		return new(deletePartitions)
	case wire.OpTruncatePartition:
		return new(truncatePartition)
	case wire.OpCreateUser:
		return new(createUser)
	case wire.OpUpdateUser:
		return new(updateUser)
	case wire.OpDeleteUser:
		return new(deleteUser)
	case wire.OpUpdatePermissions:
		return new(updatePermissions)
	case wire.OpChangePassword:
		return new(changePassword)
	case wire.OpCreatePersonalAccessToken:
		return new(createToken)
	case wire.OpDeletePersonalAccessToken:
		return new(deleteToken)
	case wire.OpCreateConsumerGroup:
		return new(createGroup)
	case wire.OpDeleteConsumerGroup:
		return new(deleteGroup)
	}
	return nil
}

// decodeEntry reads an entry; the error is a *CorruptError.
func decodeEntry(index uint64, data []byte) (header, operation, error) {
	r := &reader{b: data}
	var h header
	h.decode(r)
	body := newOperation(h.op)
	if body == nil {
		r.fail("unknown operation %d", h.op)
	} else {
		body.decode(r)
	}
	r.end()
	return h, body, r.err(index)
}

// Bootstrap is the body of [OpBootstrap]: what the first start of a cluster decides.
type Bootstrap struct {
	// Username and PasswordHash (PHC string) are the root user's.
	Username     string
	PasswordHash string
	// TicketKey is 32 random bytes.
	TicketKey credential.TicketKey
}

// Append encodes the body of the command.
func (b *Bootstrap) Append(dst []byte) []byte { return b.append(dst) }

func (b *Bootstrap) append(dst []byte) []byte {
	dst = appendText(dst, b.Username)
	dst = appendText(dst, b.PasswordHash)
	return append(dst, b.TicketKey[:]...)
}

func (b *Bootstrap) decode(r *reader) {
	b.Username = r.name()
	b.PasswordHash = r.text()
	copy(b.TicketKey[:], r.take(len(b.TicketKey)))
}

// NodeStart is the body of [OpNodeStarted]: a node has started, under the directory and with the start counter of its node.meta
// (decisions 2). It is only recorded: sessions outlive a node, so that a request repeated after a restart is still recognised.
type NodeStart struct {
	// Replica is the node's replica id.
	Replica uint8
	// Directory is the id of its data directory.
	Directory wire.U128
	// Counter is its start counter.
	Counter uint64
}

// Append encodes the body of the command.
func (n *NodeStart) Append(dst []byte) []byte { return n.append(dst) }

func (n *NodeStart) append(dst []byte) []byte {
	dst = wire.AppendU128(append(dst, n.Replica), n.Directory)
	return le.AppendUint64(dst, n.Counter)
}

func (n *NodeStart) decode(r *reader) {
	n.Replica = r.u8()
	n.Directory = r.u128()
	n.Counter = r.u64()
}

// SetPreferred is the body of [OpSetPreferred]: from now on another of its members is the preferred primary of a partition (decisions 6).
type SetPreferred struct {
	// Stream, Topic and Partition name the partition.
	Stream, Topic, Partition uint32
	// Created is the log index of its creation: a later partition of the same name is another one.
	Created uint64
	// Replica is the replica id of the new preferred primary.
	Replica uint8
}

// Append encodes the body of the command.
func (p *SetPreferred) Append(dst []byte) []byte { return p.append(dst) }

func (p *SetPreferred) append(dst []byte) []byte {
	dst = le.AppendUint32(dst, p.Stream)
	dst = le.AppendUint32(dst, p.Topic)
	dst = le.AppendUint32(dst, p.Partition)
	return append(le.AppendUint64(dst, p.Created), p.Replica)
}

func (p *SetPreferred) decode(r *reader) {
	p.Stream = r.u32()
	p.Topic = r.u32()
	p.Partition = r.u32()
	p.Created = r.u64()
	p.Replica = r.u8()
}

type register struct {
	revision uint64 // of the credentials that were checked
	limit    uint32 // of the client table, as the proposer is configured
}

func (o *register) append(dst []byte) []byte {
	return le.AppendUint32(le.AppendUint64(dst, o.revision), o.limit)
}

func (o *register) decode(r *reader) {
	o.revision = r.u64()
	o.limit = r.u32()
	if o.limit == 0 || o.limit > MaxClientsMax {
		r.fail("client table of %d", o.limit)
	}
}

type logout struct{}

func (o *logout) append(dst []byte) []byte { return dst }
func (o *logout) decode(*reader)           {}

type createStream struct{ name string }

func (o *createStream) append(dst []byte) []byte { return appendText(dst, o.name) }
func (o *createStream) decode(r *reader)         { o.name = r.name() }

type updateStream struct {
	stream wire.Identifier
	name   string
}

func (o *updateStream) append(dst []byte) []byte {
	return appendText(appendIdent(dst, o.stream), o.name)
}

func (o *updateStream) decode(r *reader) {
	o.stream = r.ident()
	o.name = r.name()
}

// streamTarget is a body that only names a stream.
type streamTarget struct{ stream wire.Identifier }

func (o *streamTarget) append(dst []byte) []byte { return appendIdent(dst, o.stream) }
func (o *streamTarget) decode(r *reader)         { o.stream = r.ident() }

type (
	deleteStream struct{ streamTarget }
	purgeStream  struct{ streamTarget }
)

// topicTarget is a body that only names a topic, or the beginning of one that says more.
type topicTarget struct{ stream, topic wire.Identifier }

func (o *topicTarget) append(dst []byte) []byte {
	return appendIdent(appendIdent(dst, o.stream), o.topic)
}

func (o *topicTarget) decode(r *reader) {
	o.stream = r.ident()
	o.topic = r.ident()
}

type (
	deleteTopic struct{ topicTarget }
	purgeTopic  struct{ topicTarget }
)

type createTopic struct {
	stream     wire.Identifier
	name       string
	partitions uint32
	options    topicOptions
	candidates []uint8 // replica ids to choose preferred primaries from
	members    []uint8 // replica ids of the nodes that hold the partitions
}

func (o *createTopic) append(dst []byte) []byte {
	dst = appendText(appendIdent(dst, o.stream), o.name)
	dst = le.AppendUint32(dst, o.partitions)
	dst = o.options.append(dst)
	return appendBytes(appendBytes(dst, o.candidates), o.members)
}

func (o *createTopic) decode(r *reader) {
	o.stream = r.ident()
	o.name = r.name()
	o.partitions = r.partitions(0)
	o.options.decode(r)
	o.candidates = r.replicas("candidates")
	o.members = r.replicas("members")
}

type updateTopic struct {
	topicTarget
	name  string
	patch optionPatch
}

func (o *updateTopic) append(dst []byte) []byte {
	return o.patch.append(appendText(o.topicTarget.append(dst), o.name))
}

func (o *updateTopic) decode(r *reader) {
	o.topicTarget.decode(r)
	o.name = r.name()
	o.patch.decode(r)
}

type createPartitions struct {
	topicTarget
	count      uint32
	candidates []uint8
	members    []uint8
}

func (o *createPartitions) append(dst []byte) []byte {
	dst = le.AppendUint32(o.topicTarget.append(dst), o.count)
	return appendBytes(appendBytes(dst, o.candidates), o.members)
}

func (o *createPartitions) decode(r *reader) {
	o.topicTarget.decode(r)
	o.count = r.partitions(1)
	o.candidates = r.replicas("candidates")
	o.members = r.replicas("members")
}

type deletePartitions struct {
	topicTarget
	count uint32
}

func (o *deletePartitions) append(dst []byte) []byte {
	return le.AppendUint32(o.topicTarget.append(dst), o.count)
}

func (o *deletePartitions) decode(r *reader) {
	o.topicTarget.decode(r)
	o.count = r.partitions(1)
}

// truncatePartition is what DeleteSegments is resolved to on the partition's primary: delete sealed segments below offset.
type truncatePartition struct {
	topicTarget
	partition uint32
	offset    uint64
}

func (o *truncatePartition) append(dst []byte) []byte {
	dst = le.AppendUint32(o.topicTarget.append(dst), o.partition)
	return le.AppendUint64(dst, o.offset)
}

func (o *truncatePartition) decode(r *reader) {
	o.topicTarget.decode(r)
	o.partition = r.u32()
	o.offset = r.u64()
}

type createUser struct {
	name        string
	hash        string
	active      bool
	permissions *permissions // nil = none
}

func (o *createUser) append(dst []byte) []byte {
	dst = appendText(appendText(dst, o.name), o.hash)
	return appendPermissions(appendFlag(dst, o.active), o.permissions)
}

func (o *createUser) decode(r *reader) {
	o.name = r.text() // its length is judged at apply: 43 is a committed rejection
	o.hash = r.text()
	o.active = r.flag()
	o.permissions = r.permissions()
}

type updateUser struct {
	user      wire.Identifier
	hasName   bool
	name      string
	hasActive bool
	active    bool
}

func (o *updateUser) append(dst []byte) []byte {
	dst = appendText(appendFlag(appendIdent(dst, o.user), o.hasName), o.name)
	return appendFlag(appendFlag(dst, o.hasActive), o.active)
}

func (o *updateUser) decode(r *reader) {
	o.user = r.ident()
	o.hasName = r.flag()
	o.name = r.text()
	o.hasActive = r.flag()
	o.active = r.flag()
}

type deleteUser struct{ user wire.Identifier }

func (o *deleteUser) append(dst []byte) []byte { return appendIdent(dst, o.user) }
func (o *deleteUser) decode(r *reader)         { o.user = r.ident() }

type updatePermissions struct {
	user        wire.Identifier
	permissions *permissions
}

func (o *updatePermissions) append(dst []byte) []byte {
	return appendPermissions(appendIdent(dst, o.user), o.permissions)
}

func (o *updatePermissions) decode(r *reader) {
	o.user = r.ident()
	o.permissions = r.permissions()
}

type changePassword struct {
	user     wire.Identifier
	verified bool   // the current password was right
	revision uint64 // of the credentials it was checked against
	hash     string
}

func (o *changePassword) append(dst []byte) []byte {
	dst = appendFlag(appendIdent(dst, o.user), o.verified)
	return appendText(le.AppendUint64(dst, o.revision), o.hash)
}

func (o *changePassword) decode(r *reader) {
	o.user = r.ident()
	o.verified = r.flag()
	o.revision = r.u64()
	o.hash = r.text()
}

type createToken struct {
	name   string
	hash   string
	expiry uint64 // µs from the entry's time; 0 and u64 max = never
}

func (o *createToken) append(dst []byte) []byte {
	return le.AppendUint64(appendText(appendText(dst, o.name), o.hash), o.expiry)
}

func (o *createToken) decode(r *reader) {
	o.name = r.name()
	o.hash = r.name()
	o.expiry = r.u64()
}

type deleteToken struct{ name string }

func (o *deleteToken) append(dst []byte) []byte { return appendText(dst, o.name) }
func (o *deleteToken) decode(r *reader)         { o.name = r.name() }

type createGroup struct {
	topicTarget
	name string
}

func (o *createGroup) append(dst []byte) []byte {
	return appendText(o.topicTarget.append(dst), o.name)
}

func (o *createGroup) decode(r *reader) {
	o.topicTarget.decode(r)
	o.name = r.name()
}

type deleteGroup struct {
	topicTarget
	group wire.Identifier
}

func (o *deleteGroup) append(dst []byte) []byte {
	return appendIdent(o.topicTarget.append(dst), o.group)
}

func (o *deleteGroup) decode(r *reader) {
	o.topicTarget.decode(r)
	o.group = r.ident()
}

// partitions reads a number of partitions within the bounds of one request.
func (r *reader) partitions(low uint32) uint32 {
	n := r.u32()
	if n < low || n > maxPartitionsPerRequest {
		r.fail("%d partitions", n)
		return low
	}
	return n
}

// replicas reads a list of replica ids, lowest first and none twice; it is never empty.
func (r *reader) replicas(what string) []uint8 {
	ids := r.bytes()
	if r.ok() && len(ids) == 0 {
		r.fail("no %s", what)
	}
	for i := 1; i < len(ids); i++ {
		if ids[i] <= ids[i-1] {
			r.fail("%s out of order", what)
			return nil
		}
	}
	return ids
}
