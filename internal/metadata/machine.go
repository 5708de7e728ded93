package metadata

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/wire"
)

// Placement is how preferred primaries of new partitions are chosen (routing.md G10).
type Placement uint8

// Placements.
const (
	// Spread puts them evenly over the nodes: fewest preferred partitions of the topic, then of all, then the lowest replica id.
	Spread Placement = iota
	// LeaderPlacement puts them on the node that leads the metadata group at that moment, as the released server does.
	LeaderPlacement
)

// DefaultClientsMax is the default limit of the client table, MaxClientsMax the largest one (framing §9).
const (
	DefaultClientsMax = 8192
	MaxClientsMax     = 65536
)

// Config of a [Machine].
type Config struct {
	// Replica is this node's replica id.
	Replica uint8
	// Nodes are the replica ids of all nodes: new partitions are held by each of them; empty = this node only.
	Nodes []uint8
	// Placement of the primaries of new partitions.
	Placement Placement
	// ClientsMax bounds the client table; 0 = [DefaultClientsMax], at most [MaxClientsMax]. What the leader is configured with counts:
	// it travels with each register.
	ClientsMax int
	// Defaults of topic options; nil = the protocol's. A topic keeps those it was created with.
	Defaults *wire.TopicOptions
	// TokensMax bounds the personal access tokens of one user; 0 = 100. Checked before the log.
	TokensMax int
}

// Machine is the state machine of the metadata group, a [replica.Machine]. The methods of that interface belong to the goroutine that
// runs the group; Catalog, Session, SessionCount, Sessions, Applied and Subscribe may be called from any.
type Machine struct {
	cfg        Config
	candidates []uint8 // for the primaries of new partitions, as a proposal of this node names them
	members    []uint8 // who holds new partitions, likewise
	defaults   wire.TopicOptions

	// Applied state. Changed by Apply and Restore only.
	current   *Catalog // what catalog holds, without the atomic load
	sessions  *sessions
	time      uint64      // of the newest entry: entries never go back
	preferred [256]uint32 // preferred partitions per replica id; follows from current

	// Admission, on the leader only. inFlight has the clients whose request is proposed and not applied: another of theirs could be
	// committed while the first is lost, and the watermark would then hide that it never was executed (framing §5.1).
	leading  bool
	inFlight map[wire.U128]struct{}

	catalog atomic.Pointer[Catalog]
	applied atomic.Uint64

	mu          sync.Mutex // guards subscribers
	subscribers []func(*Catalog)
}

var _ replica.Machine = (*Machine)(nil)

// New makes a machine with an empty state.
func New(cfg Config) *Machine {
	if cfg.ClientsMax <= 0 {
		cfg.ClientsMax = DefaultClientsMax
	}
	cfg.ClientsMax = min(cfg.ClientsMax, MaxClientsMax)
	if cfg.TokensMax <= 0 {
		cfg.TokensMax = 100
	}
	members := slices.Clone(cfg.Nodes)
	if len(members) == 0 {
		members = []uint8{cfg.Replica}
	}
	slices.Sort(members)
	members = slices.Compact(members)
	candidates := members
	if cfg.Placement == LeaderPlacement {
		candidates = []uint8{cfg.Replica}
	}
	m := &Machine{
		cfg:        cfg,
		defaults:   wire.DefaultTopicOptions(),
		candidates: candidates,
		members:    members,
		sessions:   newSessions(),
		inFlight:   make(map[wire.U128]struct{}),
	}
	if cfg.Defaults != nil {
		m.defaults = *cfg.Defaults
	}
	m.publish(newCatalog())
	return m
}

// Catalog is the newest picture of the applied state. It is never nil.
func (m *Machine) Catalog() *Catalog { return m.catalog.Load() }

// Applied is the log index of the newest entry that was applied or restored.
func (m *Machine) Applied() uint64 { return m.applied.Load() }

// Session looks up the session of a client id.
func (m *Machine) Session(client wire.U128) (Session, bool) { return m.sessions.lookup(client) }

// SessionEpoch rises each time a session ended or was replaced: by a logout, by a register of the same client id, because the table
// was full, because its user was deleted, or by a restore. It is raised after Session shows the change, so a caller that remembers
// the epoch from before a look-up need not look again while it stays. It is not replicated and starts anywhere.
func (m *Machine) SessionEpoch() uint64 { return m.sessions.epoch.Load() }

// SessionCount is the number of sessions.
func (m *Machine) SessionCount() int { return m.sessions.count() }

// Sessions copies the client table, the longest silent one first.
func (m *Machine) Sessions() []Session { return m.sessions.list() }

// Subscribe has fn called with each new catalog, on the goroutine that runs the group, before the outcome of the change is told: it
// must not block. What was published before is not repeated: call Catalog after Subscribe.
func (m *Machine) Subscribe(fn func(*Catalog)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.subscribers = append(m.subscribers, fn)
}

func (m *Machine) publish(c *Catalog) {
	m.current = c
	m.catalog.Store(c)
	m.mu.Lock()
	subscribers := m.subscribers
	m.mu.Unlock()
	for _, fn := range subscribers {
		fn(c)
	}
}

// Admit checks a command against the client table and translates it into an entry. What can be answered without the log is answered.
func (m *Machine) Admit(r replica.Request) []byte {
	cmd, ok := r.(*Command)
	if !ok || !m.leading {
		r.Fail(replica.ErrNotAdmitted)
		return nil
	}
	if res, proceed := m.admit(cmd); !proceed {
		if res.ReplyOperation == 0 {
			res.ReplyOperation = replyOperation(cmd.Operation)
		}
		cmd.done(res)
		return nil
	}
	body, err := m.translate(cmd)
	if err == nil {
		err = m.precheck(cmd, body)
	}
	if err != nil {
		cmd.done(Result{Err: err, ReplyOperation: replyOperation(cmd.Operation)})
		return nil
	}
	if remembered(cmd.Operation) {
		m.inFlight[cmd.Client] = struct{}{}
	}
	h := header{op: replyOperation(cmd.Operation), node: cmd.Node, user: cmd.User, client: cmd.Client, session: cmd.Session,
		request: cmd.Request, stamp: cmd.Stamp, now: cmd.Now}
	if cmd.Operation == wire.OpLogout {
		h.request = LogoutAtDisconnect
	}
	return appendEntry(&h, body, len(cmd.Body)+len(cmd.Secret.Hash))
}

// remembered reports whether an operation takes part in the rules of repeated requests.
func remembered(op wire.Operation) bool {
	return op != wire.OpRegister && op != wire.OpLogout && !serverOperation(op)
}

func (m *Machine) admit(cmd *Command) (res Result, proceed bool) {
	switch {
	case cmd.Client.IsZero() != serverOperation(cmd.Operation):
		return Result{Err: &StatusError{Code: wire.ErrInvalidCommand}}, false
	case serverOperation(cmd.Operation), cmd.Operation == wire.OpRegister:
		return Result{}, true
	}
	s := m.sessions.find(cmd.Client)
	if cmd.Operation == wire.OpLogout {
		// A logout passes what is in flight: it takes effect behind it. Its number does not matter.
		if s == nil {
			return Result{}, false // logged out already: success
		}
		return s.check(cmd.Session, LogoutAtDisconnect, wire.U128{})
	}
	if _, busy := m.inFlight[cmd.Client]; busy {
		return Result{Err: wire.ErrTransientNotCommitted}, false
	}
	return s.check(cmd.Session, cmd.Request, cmd.Stamp)
}

// Fold has nothing to do: no command is kept back.
func (m *Machine) Fold() ([]byte, []replica.Request) { return nil, nil }

// Rejected forgets commands that raft did not take.
func (m *Machine) Rejected(rs []replica.Request) {
	for _, r := range rs {
		m.settled(r)
	}
}

func (m *Machine) settled(r replica.Request) {
	if cmd, ok := r.(*Command); ok && remembered(cmd.Operation) {
		delete(m.inFlight, cmd.Client)
	}
}

// Lead begins and ends admission.
func (m *Machine) Lead(_ uint64, leading bool) {
	m.leading = leading
	clear(m.inFlight)
}

// Tick has nothing to do yet.
func (m *Machine) Tick(uint64) [][]byte { return nil }
