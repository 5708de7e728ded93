package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/whippetmq/whippet/internal/broker"
	"github.com/whippetmq/whippet/internal/clock"
	"github.com/whippetmq/whippet/internal/cluster"
	"github.com/whippetmq/whippet/internal/config"
	"github.com/whippetmq/whippet/internal/credential"
	"github.com/whippetmq/whippet/internal/gateway/tcp"
	"github.com/whippetmq/whippet/internal/metadata"
	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/internal/vfs"
	"github.com/whippetmq/whippet/wire"
)

// Version of this build; set by the linker in releases.
var Version = "0.11.0" //nolint:gochecknoglobals // set by the linker

const (
	// closeLimit bounds a graceful stop.
	closeLimit = 10 * time.Second
	// readyLimit bounds the recovery of the metadata.
	readyLimit = 30 * time.Second

	// What a node on its own calls itself (commands §3.3).
	standaloneCluster = "single-node"
	standaloneNode    = "iggy-node"

	metadataDir = "metadata"
)

// Option changes how Start runs a node.
type Option func(*options)

type options struct {
	log   *slog.Logger
	fs    vfs.FS
	clock clock.Clock

	// For tests: listeners that are there already, so that ports can be free ones, how nodes dial each other, how long requests wait for a primary, and the
	// balancer's pace.
	clients, peers net.Listener
	dial           func(ctx context.Context, address string) (net.Conn, error)
	hold           time.Duration
	hasher         credential.Config
	balance        func(*cluster.BalancerConfig)
}

// WithLogger has the node log there, and nowhere else. Without it the node logs
// as [logging] of the configuration says.
func WithLogger(log *slog.Logger) Option { return func(o *options) { o.log = log } }

// WithHasher changes how passwords are hashed, for whippettest: cheap hashes let a test start and sign in at once.
func WithHasher(c credential.Config) Option { return func(o *options) { o.hasher = c } }

// Server is a running node.
type Server struct {
	cfg   *Config
	log   *slog.Logger
	fs    vfs.FS
	clock clock.Clock

	hasher *credential.Hasher

	addr     net.Addr
	id       wire.U128     // of the cluster
	self     uint64        // node id
	link     *cluster.Link // nil on a node of its own
	duties   *duties       // nil on a node of its own
	logs     *logFiles     // nil = the caller's logger
	host     *replica.Host
	machine  *metadata.Machine
	metadata *replica.Group
	parts    *broker.Partitions
	broker   *broker.Broker
	gateway  *tcp.Gateway

	stop   chan struct{} // ends the housekeeper
	keeper sync.WaitGroup

	closing sync.Once
	closed  error
}

// Start runs a node and returns when clients can sign in. ctx bounds the start
// only. On an error nothing is left running, and when the configuration is wrong
// nothing was opened.
func Start(ctx context.Context, cfg *Config, opts ...Option) (_ *Server, err error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	if o.fs == nil {
		o.fs = vfs.OS()
	}
	c := *cfg
	s := &Server{cfg: &c, fs: o.fs, log: o.log, clock: o.clock, hasher: credential.NewHasher(o.hasher), stop: make(chan struct{}), self: cluster.NodeID(0)}
	if err := c.Usable(); err != nil {
		return nil, err
	}
	if err := s.identify(); err != nil {
		return nil, err
	}
	tls, err := tlsOf("tcp.tls", c.TCP.TLS)
	if err != nil {
		return nil, err
	}
	if c.Fresh || !s.initialised() {
		// Wrong credentials are to be told before anything is made.
		if _, _, _, err := c.Root.Credentials(c.Cluster.Enabled); err != nil {
			return nil, err
		}
	}
	ln := o.clients
	if ln == nil {
		if ln, err = net.Listen("tcp", c.TCP.Address); err != nil {
			return nil, fmt.Errorf("tcp.address: %w", err)
		}
	}
	defer func() {
		if err != nil {
			_ = ln.Close()
			s.abandon()
		}
	}()
	s.addr = ln.Addr()
	if err := s.open(ctx, o); err != nil {
		return nil, err
	}
	if tls != nil {
		ln = tlsListener(ln, tls)
	}
	s.gateway = tcp.Serve(ln, tcp.Config{
		Handler: s.broker, Logger: s.log, MaxFrame: int(c.Bus.MaxMessage), MaxConnections: maxConnections(c.Bus.MaxConnections),
		MaxRequests: int(c.Bus.ClientQueue), HeaderTimeout: c.Bus.HandshakeGrace, DrainTimeout: min(c.Sharding.DrainTimeout, closeLimit),
	})
	if s.link != nil {
		s.startDuties(o)
	} else if err := s.bootstrap(ctx); err != nil {
		return nil, err
	}
	if err := s.writeRuntime(); err != nil {
		return nil, err
	}
	s.keeper.Add(1)
	go s.housekeep()
	s.log.Info("node started", "version", Version, "tcp", s.Addr().String(), "path", c.Path, "tls", tls != nil)
	return s, nil
}

// initialised reports whether the data directory holds a node already.
func (s *Server) initialised() bool {
	_, err := s.fs.Stat(filepath.Join(s.cfg.Path, metadataDir))
	return err == nil
}

// open recovers what is on the disk and wires the node together.
func (s *Server) open(ctx context.Context, o options) error {
	c := s.cfg
	wiped := 0
	if c.Fresh {
		var err error
		if wiped, err = s.wipe(); err != nil { // first, since logs may be in the directory
			return err
		}
	}
	if s.log == nil {
		logs, err := openLogs(c)
		if err != nil {
			return err
		}
		s.logs, s.log = logs, logs.logger
	}
	if wiped > 0 {
		s.log.Info("data of an earlier node deleted (--fresh)", "path", c.Path, "entries", wiped)
	}
	if s.clock == nil {
		log := s.log
		s.clock = clock.System(func(behind time.Duration) { log.Warn("the wall clock was stepped", "behind", behind) })
	}
	rc := replica.Config{
		FS: s.fs, Dir: c.Path, NodeID: s.self, Clock: s.clock, Shards: c.Sharding.Shards, Logger: s.log, MaxOpenFiles: maxOpenFiles(),
	}
	wire.PutU128(rc.ClusterID[:], s.id)
	var peers net.Listener
	var err error
	if c.Cluster.Enabled {
		if peers, err = s.openLink(&rc, o); err != nil {
			return err
		}
		defer func() {
			if peers != nil {
				_ = peers.Close() // it was not handed over
			}
		}()
	}
	if s.host, err = replica.Open(ctx, rc); err != nil {
		if errors.Is(err, replica.ErrLocked) {
			return fmt.Errorf("path: %w", err)
		}
		return fmt.Errorf("open data directory %s: %w", c.Path, err)
	}
	s.machine = metadata.New(s.metadataConfig())
	dir := filepath.Join(c.Path, metadataDir)
	if err := s.orphaned(dir); err != nil {
		return err
	}
	if _, err := vfs.MakeDirs(s.fs, dir); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	// Flushed before it is acknowledged: a topic whose messages outlive a power cut must outlive it itself.
	s.metadata, err = s.host.StartGroup(ctx, replica.GroupConfig{
		ID: replica.MetadataGroup, Dir: dir, Voters: s.voters(), Persisted: true, Preferred: s.self == cluster.NodeID(0), Machine: s.machine,
	})
	if err != nil {
		return fmt.Errorf("recover metadata in %s: %w", dir, err)
	}
	if s.link == nil {
		ready, cancel := context.WithTimeout(ctx, readyLimit)
		defer cancel()
		if err := s.metadata.WaitReady(ready); err != nil {
			return fmt.Errorf("recover metadata in %s: %w", dir, err)
		}
	}
	pc := broker.PartitionsConfig{
		Host: s.host, Metadata: s.machine, FS: s.fs, Dir: c.Path, Clock: s.clock, Logger: s.log, Node: s.self,
		Clients: int(c.Partition.MaxDedupClients), OffsetKeys: int(c.Partition.MaxConsumerOffsets),
	}
	if s.link != nil {
		pc.Alive = s.link.Alive
	}
	s.parts = broker.NewPartitions(pc)
	heartbeat := c.Heartbeat.Interval
	if !c.Heartbeat.Enabled {
		heartbeat = 0
	}
	bc := broker.Config{
		Metadata: s.machine, MetadataGroup: s.metadata, Partitions: s.parts, Hasher: s.hasher,
		Clock: s.clock, Logger: s.log, ClusterID: s.id, NodeName: standaloneNode, Roster: s.roster,
		StartCounter: s.host.Identity().Starts, Version: Version, DataDir: c.Path, MaxFrame: int(c.Bus.MaxMessage), Heartbeat: heartbeat,
	}
	if s.link != nil {
		bc.Peers, bc.Forwarding, bc.Replica = s.link, c.Cluster.Forwarding, uint8(c.ReplicaID)
		bc.NodeName, bc.Roster, bc.Hold = s.link.Name(s.self), s.clusterRoster, o.hold
	}
	s.broker = broker.New(bc)
	if s.link == nil {
		return nil
	}
	s.link.Serve(s.broker)
	err = s.startLink(peers)
	if err == nil {
		peers = nil
	}
	return err
}

// roster of a node on its own.
func (s *Server) roster(client netip.Addr) wire.Roster {
	n := wire.Node{Name: standaloneNode, Role: wire.RoleLeader, Status: wire.StatusHealthy}
	if a, ok := s.addr.(*net.TCPAddr); ok {
		n.TCP = uint16(a.Port)
		n.IP = a.IP.String()
		if a.IP.IsUnspecified() && client.IsValid() && client.Unmap().IsLoopback() {
			n.IP = "127.0.0.1"
		}
	}
	if s.cfg.AdvertisedAddress != "" {
		n.IP = s.cfg.AdvertisedAddress
	}
	return wire.Roster{Name: standaloneCluster, Nodes: []wire.Node{n}}
}

// bootstrap makes the root user when there is none and records the start.
func (s *Server) bootstrap(ctx context.Context) error {
	if !s.machine.Catalog().Bootstrapped() {
		if err := s.makeRoot(ctx, s.command); err != nil {
			return err
		}
	}
	if err := s.command(ctx, metadata.OpNodeStarted, s.startRecord()); err != nil {
		return fmt.Errorf("record the start: %w", err)
	}
	return nil
}

// makeRoot makes the root user and the key of tickets. A password is hashed only for this.
func (s *Server) makeRoot(ctx context.Context, command func(context.Context, wire.Operation, []byte) error) error {
	user, password, generated, err := s.cfg.Root.Credentials(s.link != nil)
	if err != nil {
		return err
	}
	hash, err := s.hasher.Hash(ctx, password)
	if err != nil {
		return fmt.Errorf("hash the root password: %w", err)
	}
	b := metadata.Bootstrap{Username: user, PasswordHash: hash}
	if _, err := rand.Read(b.TicketKey[:]); err != nil {
		return fmt.Errorf("ticket key: %w", err)
	}
	if err := command(ctx, metadata.OpBootstrap, b.Append(nil)); err != nil {
		return fmt.Errorf("make the root user: %w", err)
	}
	if generated {
		s.log.Warn("root user made with a random password, shown only this once", "username", user, "password", password)
	} else {
		s.log.Info("root user made", "username", user)
	}
	// The hash took 19 MiB that nothing will need again soon.
	debug.FreeOSMemory()
	return nil
}

// startRecord is the body of the command that records this start.
func (s *Server) startRecord() []byte {
	id := s.host.Identity()
	start := metadata.NodeStart{Replica: uint8(s.self - 1), Directory: wire.GetU128(id.Directory[:]), Counter: id.Starts}
	return start.Append(nil)
}

// command commits a command of the node itself.
func (s *Server) command(ctx context.Context, op wire.Operation, body []byte) error {
	done := make(chan metadata.Result, 1)
	cmd := &metadata.Command{Operation: op, Body: body, Now: s.clock.Now(), Done: func(r metadata.Result) { done <- r }}
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	if err := s.metadata.Submit(ctx, cmd); err != nil {
		return err
	}
	select {
	case r := <-done:
		return r.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Addr is the address of the TCP listener, with the port that was bound.
func (s *Server) Addr() net.Addr { return s.addr }

// Close stops the node in an orderly way: no new connections, replies of what was
// read, checkpoints, the mark of a clean stop. It takes at most ten seconds, less
// when ctx ends before; what is open then is cut off. Every call returns when the
// node has stopped.
func (s *Server) Close(ctx context.Context) error {
	s.closing.Do(func() {
		ctx, cancel := context.WithTimeout(ctx, closeLimit)
		defer cancel()
		notify("STOPPING=1")
		s.log.Info("node stops")
		close(s.stop)
		s.keeper.Wait()
		s.leave(ctx)
		err := s.gateway.Close(ctx)
		s.parts.Close()
		s.broker.Close()
		// The host gets a second of its own when the connections used the time up:
		// without the checkpoints the next start takes longer.
		hctx, hcancel := context.WithTimeout(context.WithoutCancel(ctx), max(time.Second, until(ctx)))
		defer hcancel()
		if herr := s.host.Close(hctx); herr != nil {
			err = errors.Join(err, fmt.Errorf("close the logs: %w", herr))
		}
		if s.link != nil {
			s.link.Close()
		}
		s.log.Info("node stopped", "error", err)
		s.logs.close()
		s.closed = err
	})
	return s.closed
}

func until(ctx context.Context) time.Duration {
	d, ok := ctx.Deadline()
	if !ok {
		return closeLimit
	}
	return time.Until(d)
}

// abandon undoes a start that failed.
func (s *Server) abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	if s.duties != nil {
		s.duties.end()
	}
	if s.gateway != nil {
		_ = s.gateway.Close(ctx)
	}
	if s.parts != nil {
		s.parts.Close()
	}
	if s.broker != nil {
		s.broker.Close()
	}
	if s.host != nil {
		_ = s.host.Close(ctx)
	}
	if s.link != nil {
		s.link.Close()
	}
	s.logs.close()
}

// orphaned reports that there are partitions and no metadata that knows them: the metadata was lost. A node that went on
// would make new topics out of the files of old ones.
func (s *Server) orphaned(metadata string) error {
	known, err := s.fs.List(metadata)
	if err != nil && !vfs.IsNotExist(err) {
		return fmt.Errorf("look into %s: %w", metadata, err)
	}
	streams := filepath.Join(s.cfg.Path, broker.StreamsDir)
	left, err := s.fs.List(streams)
	if err != nil && !vfs.IsNotExist(err) {
		return fmt.Errorf("look into %s: %w", streams, err)
	}
	if len(known) > 0 || len(left) == 0 {
		return nil
	}
	return fmt.Errorf("%s has partitions, but their metadata in %s is missing: restore it from a copy, or move the whole data directory away to start with an empty one", streams, metadata)
}

// wipe empties the data directory (--fresh), under its lock, and tells how many entries it had. A directory that is not
// that of a node is refused: a mistyped --data must not cost anybody's files.
func (s *Server) wipe() (deleted int, err error) {
	dir := s.cfg.Path
	if _, err := s.fs.Stat(dir); err != nil {
		return 0, nil //nolint:nilerr // nothing there
	}
	entries, err := s.fs.List(dir)
	if err != nil {
		return 0, fmt.Errorf("--fresh: %w", err)
	}
	entries = slices.DeleteFunc(entries, func(e vfs.DirEntry) bool { return e.Name == replica.LockName })
	if len(entries) == 0 {
		return 0, nil
	}
	// The mark goes last, so that a wipe that was cut off can be done again.
	mark := slices.IndexFunc(entries, func(e vfs.DirEntry) bool { return e.Name == replica.NodeMetaName })
	if mark < 0 {
		return 0, fmt.Errorf("--fresh: %s is not empty and not the data directory of a node (it has no %s), so nothing in it was deleted: give another directory, or empty this one yourself", dir, replica.NodeMetaName)
	}
	last := len(entries) - 1
	entries[mark], entries[last] = entries[last], entries[mark]
	// The same lock as the host's: a running node must not lose its files.
	lock, err := s.fs.Lock(filepath.Join(dir, replica.LockName))
	if err != nil {
		return 0, fmt.Errorf("--fresh: data directory %s is used by another process: %w", dir, err)
	}
	defer func() { _ = lock.Close() }()
	for _, e := range entries {
		if err := s.fs.RemoveAll(filepath.Join(dir, e.Name)); err != nil {
			return 0, fmt.Errorf("--fresh: %w", err)
		}
	}
	return len(entries), nil
}

// writeRuntime writes current_config.toml with the ports that were bound.
func (s *Server) writeRuntime() error {
	text, err := s.cfg.Render(config.Bound{TCP: s.Addr().String()})
	if err != nil {
		return err
	}
	dir := s.cfg.RuntimePath()
	if _, err := vfs.MakeDirs(s.fs, dir); err != nil {
		return fmt.Errorf("runtime.path: %w", err)
	}
	name := filepath.Join(dir, "current_config.toml")
	f, err := s.fs.Create(name + ".tmp")
	if err != nil {
		return fmt.Errorf("runtime.path: %w", err)
	}
	_, err = f.WriteAt(text, 0)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = s.fs.Rename(name+".tmp", name)
	}
	if err == nil {
		err = s.fs.SyncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("runtime.path: write %s: %w", name, err)
	}
	notify("READY=1")
	return nil
}

// maxConnections resolves message_bus.connections_max.
func maxConnections(configured int64) int {
	if configured >= 0 {
		return int(configured)
	}
	return int(min(fileLimit()/2, 1<<24))
}

// maxOpenFiles is how many segment files may be open: a third of what the process may open, since connections may take
// a half. 0 = the default, where the limit is not known.
func maxOpenFiles() int { return int(min(fileLimit()/3, 1<<16)) }

// fileLimit is the soft limit of open files, 0 = not known.
func fileLimit() uint64 {
	var rl unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &rl) != nil {
		return 0
	}
	return rl.Cur
}
