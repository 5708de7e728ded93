package metadata

import (
	"hash/maphash"
	"iter"
	"slices"

	"github.com/whippetmq/whippet/internal/credential"
	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/wire"
)

// Limits of the model (model.md §1).
const (
	maxStreams              = wire.MaxStreams
	maxTopicsPerStream      = wire.MaxTopicsPerStream
	maxPartitionsPerTopic   = wire.MaxPartitionsPerTopic
	maxPartitionsPerRequest = wire.MaxPartitionsPerRequest
	maxUsers                = 1 << 20 // ours; keeps the list of users bounded as that of streams is
)

// Catalog is the picture of everything in the metadata state but the sessions, at one log index. It never changes and may be read by
// any number of goroutines; nothing that its methods return may be changed. Look-ups do not allocate and do not keep the names they
// are asked for.
type Catalog struct {
	index        uint64
	time         uint64
	bootstrapped bool
	ticketKey    credential.TicketKey

	streams     vector[Stream]
	streamNames index[Stream]
	users       vector[User]
	userNames   index[User]
	tokens      index[Token] // by hash
	nodes       []NodeStart  // by replica id

	topicCount     int
	partitionCount int
	groupCount     int
}

func newCatalog() *Catalog {
	seed := maphash.MakeSeed()
	return &Catalog{streamNames: newIndex[Stream](seed), userNames: newIndex[User](seed), tokens: newIndex[Token](seed)}
}

// Index is the log index of the latest change.
func (c *Catalog) Index() uint64 { return c.index }

// Bootstrapped reports whether the root user and the ticket key exist. A node without them serves no logins (decisions 22).
func (c *Catalog) Bootstrapped() bool { return c.bootstrapped }

// TicketKey is the cluster's key for tickets; all zero before the bootstrap.
func (c *Catalog) TicketKey() *credential.TicketKey { return &c.ticketKey }

// Nodes lists the last recorded start of each node, by replica id.
func (c *Catalog) Nodes() []NodeStart { return c.nodes }

// StreamCount is the number of streams.
func (c *Catalog) StreamCount() int { return c.streams.len() }

// TopicCount is the number of topics in all streams.
func (c *Catalog) TopicCount() int { return c.topicCount }

// PartitionCount is the number of partitions in all topics.
func (c *Catalog) PartitionCount() int { return c.partitionCount }

// GroupCount is the number of consumer groups in all topics.
func (c *Catalog) GroupCount() int { return c.groupCount }

// Streams walks all streams in order of their ids.
func (c *Catalog) Streams() iter.Seq[*Stream] { return c.streams.all() }

// StreamByID finds a stream; nil when there is none.
func (c *Catalog) StreamByID(id uint32) *Stream { return c.streams.get(id) }

// Stream finds a stream by number or name; nil when there is none.
func (c *Catalog) Stream(id wire.Identifier) *Stream {
	if name, ok := id.Text(); ok {
		return c.streamNames.get(name)
	}
	n, _ := id.Number()
	return c.streams.get(n)
}

// Topic finds a topic and its stream. A stream that is found without the topic is returned alone.
func (c *Catalog) Topic(stream, topic wire.Identifier) (*Stream, *Topic) {
	s := c.Stream(stream)
	if s == nil {
		return nil, nil
	}
	return s, s.Topic(topic)
}

// Partition finds a partition by numbers.
func (c *Catalog) Partition(stream, topic, partition uint32) (Partition, bool) {
	s := c.streams.get(stream)
	if s == nil {
		return Partition{}, false
	}
	t := s.topics.get(topic)
	if t == nil {
		return Partition{}, false
	}
	return t.Partition(partition)
}

// Partitions walks every partition of every topic, in order of ids: what a node compares with the groups it runs.
func (c *Catalog) Partitions() iter.Seq2[*Topic, Partition] {
	return func(yield func(*Topic, Partition) bool) {
		for s := range c.streams.all() {
			for t := range s.topics.all() {
				for _, p := range t.Partitions {
					if !yield(t, p) {
						return
					}
				}
			}
		}
	}
}

// Users walks all users in order of their ids.
func (c *Catalog) Users() iter.Seq[*User] { return c.users.all() }

// UserCount is the number of users.
func (c *Catalog) UserCount() int { return c.users.len() }

// UserByID finds a user; nil when there is none.
func (c *Catalog) UserByID(id uint32) *User { return c.users.get(id) }

// UserByName finds a user; nil when there is none.
func (c *Catalog) UserByName(name string) *User { return c.userNames.get(name) }

// User finds a user by number or name; nil when there is none.
func (c *Catalog) User(id wire.Identifier) *User {
	if name, ok := id.Text(); ok {
		return c.userNames.get(name)
	}
	n, _ := id.Number()
	return c.users.get(n)
}

// TokenByHash finds a personal access token by [credential.HashToken] of its text; nil when there is none. Its expiry is the
// caller's to check.
func (c *Catalog) TokenByHash(hash string) *Token { return c.tokens.get(hash) }

// Allows reports whether a user may do what a rule stands for, on a stream and a topic as far as the rule looks at them; others are
// ignored. Root may do everything. Grants are a union (security.md §4). A user that does not exist may do nothing.
func (c *Catalog) Allows(user uint32, rule Rule, stream, topic uint32) bool {
	u := c.users.get(user)
	if u == nil {
		return false
	}
	return user == RootUser || u.permissions.allow(rule, stream, topic)
}

// Stream is one stream. Immutable.
type Stream struct {
	ID        uint32
	Name      string
	CreatedAt uint64 // µs since 1970
	// Created is the log index of its creation: it tells a stream from a later one with the same id.
	Created uint64

	topics     vector[Topic]
	topicNames index[Topic]
}

// Entry is the stream as replies show it, without its counters, which are not metadata.
func (s *Stream) Entry() wire.Stream {
	return wire.Stream{ID: s.ID, CreatedAt: s.CreatedAt, TopicsCount: uint32(s.topics.len()), Name: s.Name}
}

// TopicCount is the number of topics.
func (s *Stream) TopicCount() int { return s.topics.len() }

// Topics walks the topics in order of their ids.
func (s *Stream) Topics() iter.Seq[*Topic] { return s.topics.all() }

// TopicByID finds a topic; nil when there is none.
func (s *Stream) TopicByID(id uint32) *Topic { return s.topics.get(id) }

// Topic finds a topic by number or name; nil when there is none.
func (s *Stream) Topic(id wire.Identifier) *Topic {
	if name, ok := id.Text(); ok {
		return s.topicNames.get(name)
	}
	n, _ := id.Number()
	return s.topics.get(n)
}

// with returns the stream with a topic changed or added.
func (s *Stream) with(t *Topic) *Stream {
	next := *s
	if old := s.topics.get(t.ID); old != nil && old.Name != t.Name {
		next.topicNames = next.topicNames.remove(old.Name)
	}
	next.topics = next.topics.set(t.ID, t)
	next.topicNames = next.topicNames.set(t.Name, t)
	return &next
}

// without returns the stream without a topic.
func (s *Stream) without(t *Topic) *Stream {
	next := *s
	next.topics = next.topics.set(t.ID, nil)
	next.topicNames = next.topicNames.remove(t.Name)
	return &next
}

// Topic is one topic. Immutable.
type Topic struct {
	Stream    uint32
	ID        uint32
	Name      string
	CreatedAt uint64 // µs since 1970
	// Created is the log index of its creation.
	Created uint64
	// Config holds the values of all options.
	Config wire.TopicOptions
	// Explicit are the options that a client set, Derived all others, filled in at creation (commands §2.8); sorted by key.
	Explicit, Derived wire.Options
	// Purged is the log index of the last purge, 0 = never: each partition's purge generation (model.md §2).
	Purged uint64
	// Partitions by id: the id is the position.
	Partitions []Partition

	groups     []*Group // by id
	groupNames index[Group]
	nextGroup  uint32
}

// Entry is the topic as replies show it, without its counters, which are not metadata.
func (t *Topic) Entry() wire.Topic {
	return wire.Topic{ID: t.ID, CreatedAt: t.CreatedAt, PartitionsCount: uint32(len(t.Partitions)), MessageExpiry: t.Config.MessageExpiry,
		Compression: t.Config.Compression, MaxTopicSize: t.Config.MaxTopicSize, Name: t.Name, Options: t.Explicit, Derived: t.Derived}
}

// Partition finds a partition.
func (t *Topic) Partition(id uint32) (Partition, bool) {
	if uint64(id) >= uint64(len(t.Partitions)) {
		return Partition{}, false
	}
	return t.Partitions[id], true
}

// Groups lists the consumer groups in order of their ids.
func (t *Topic) Groups() []*Group { return t.groups }

// Group finds a consumer group by number or name; nil when there is none.
func (t *Topic) Group(id wire.Identifier) *Group {
	if name, ok := id.Text(); ok {
		return t.groupNames.get(name)
	}
	n, _ := id.Number()
	at, ok := slices.BinarySearchFunc(t.groups, n, func(g *Group, id uint32) int { return compareID(g.ID, id) })
	if !ok {
		return nil
	}
	return t.groups[at]
}

// Partition is one partition.
type Partition struct {
	ID        uint32
	CreatedAt uint64 // µs since 1970
	// Created is the log index of its creation.
	Created uint64
	// Frontier is the offset that DeleteSegments asked to delete below; 0 = nothing (observed.md 13).
	Frontier uint64
	// Preferred is the replica id of the preferred primary (decisions 6).
	Preferred uint8
	// Members are the replica ids of the nodes that hold the partition, lowest first. The list is shared.
	Members []uint8
}

// Group is the id of the partition's group of replicas. No other partition ever has it, nor had.
func (p Partition) Group() replica.GroupID { return replica.PartitionGroup(p.Created, p.ID) }

// RootUser is the id of the user that may do everything and cannot be deleted.
const RootUser uint32 = 0

// User is one account. Immutable.
type User struct {
	ID        uint32
	Name      string
	CreatedAt uint64 // µs since 1970; 1 for the root user
	// PasswordHash is the Argon2id PHC string.
	PasswordHash string
	// Active users may sign in.
	Active bool
	// Revision changes with the name, the password and the status: it is the log index of the latest such change. A ticket or a
	// checked password is valid only for the revision it was made or checked for.
	Revision uint64

	permissions *permissions
	tokens      []*Token // by name
}

// Entry is the user as replies show it.
func (u *User) Entry() wire.User {
	return wire.User{ID: u.ID, CreatedAt: u.CreatedAt, Status: u.Status(), Username: u.Name}
}

// Status is the status as the protocol numbers it.
func (u *User) Status() wire.UserStatus {
	if u.Active {
		return wire.UserActive
	}
	return wire.UserInactive
}

// Permissions makes a copy of the user's grants; nil when there is no record of them.
func (u *User) Permissions() *wire.Permissions { return u.permissions.wire() }

// Tokens lists the personal access tokens in order of their names.
func (u *User) Tokens() []*Token { return u.tokens }

// Token finds a personal access token by name; nil when there is none.
func (u *User) Token(name string) *Token {
	for _, t := range u.tokens {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// Token is a personal access token. Immutable.
type Token struct {
	User     uint32
	Name     string
	Hash     string // [credential.HashToken] of the text
	ExpiryAt uint64 // µs since 1970, 0 = never
}

// Expired reports whether the token's time is over at now (µs since 1970).
func (t *Token) Expired(now uint64) bool { return t.ExpiryAt != 0 && t.ExpiryAt <= now }

// Group is a consumer group of a topic. Immutable.
type Group struct {
	ID   uint32 // never used again within the topic
	Name string
	// Generation rises with every change of members or of the topic's partitions.
	Generation uint64
	// Members by member id, which is the position; nil = a free id.
	Members []*Member
}

// MemberCount is the number of members.
func (g *Group) MemberCount() int {
	n := 0
	for _, m := range g.Members {
		if m != nil {
			n++
		}
	}
	return n
}

// Member is the membership of one session in a group. Immutable.
type Member struct {
	Client      wire.U128
	Partitions  []uint32 // owned, pending revocation or not
	Revocations []Revocation
}

// Revocation is a partition that its owner may still commit and no longer poll, until it goes to another member (messages.md §7.2).
type Revocation struct {
	Partition uint32
	Target    uint32 // member id
	CreatedAt uint64 // µs since 1970
}
