package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/whippetmq/whippet/internal/vfs"
	"github.com/whippetmq/whippet/wire"
)

func TestRestartKeepsEverything(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startIn(t, dir)
	r := login(t, s)
	stream, topic := r.topic(3)
	for i := range 30 {
		r.send(stream, topic, wire.PartitionID(uint32(i%3)), fmt.Sprint(i))
	}
	r.must(&wire.StoreConsumerOffset{Consumer: wire.SingleConsumer(wire.ID(1)), Stream: stream, Topic: topic, Partition: wire.SomePartition(1), Offset: 4, Ack: 1}, nil)
	frame := r.frame(&wire.SendMessages{Stream: stream, Topic: topic, Partitioning: wire.PartitionID(0), Batch: batch(t, "dup")})
	r.write(frame)
	first := r.read()
	session := r.session
	stop(t, s)
	r.closed()

	for round := range 3 {
		s = startIn(t, dir)
		q := dial(t, s)
		q.client = r.client
		q.login("iggy", "iggy")
		if q.session <= session {
			t.Fatalf("session %d after %d", q.session, session)
		}
		session = q.session
		for p := range uint32(3) {
			got, _ := q.poll(pollRequest(stream, topic, p, 0, 100))
			if want := 10; len(got) < want || got[1] != fmt.Sprint(3+p) {
				t.Fatalf("partition %d: %q", p, got)
			}
		}
		var o wire.OffsetReply
		q.must(&wire.GetConsumerOffset{Consumer: wire.SingleConsumer(wire.ID(1)), Stream: stream, Topic: topic, Partition: wire.SomePartition(1)}, &o)
		if o.StoredOffset != 4 {
			t.Fatalf("offset %d", o.StoredOffset)
		}
		// The request identity outlives the restart.
		q.write(frame)
		if a := q.read(); a.code() != 0 || !bytes.Equal(a.body, first.body) {
			t.Fatalf("round %d: %x, was %x, %v", round, a.body, first.body, a.code())
		}
		q.request = uint64(1000 * (round + 1))
		if c := q.send(stream, topic, wire.PartitionID(2), "more"); c.BaseOffset != uint64(10+round) {
			t.Fatalf("offset %d", c.BaseOffset)
		}
		stop(t, s)
	}
}

// What was acknowledged is there after a kill, and offsets are not given twice.
func TestKillUnderLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startProcess(t, dir)
	r := loginAt(t, p.Addr())
	stream, topic := r.topic(2)
	acked := map[uint32]uint64{}
	for round := range 3 {
		if round > 0 {
			p = startProcess(t, dir)
		}
		stopAt := time.Now().Add(300 * time.Millisecond)
		var wg sync.WaitGroup
		var mu sync.Mutex
		for part := range uint32(2) {
			c := loginAt(t, p.Addr())
			wg.Go(func() {
				for i := 0; ; i++ {
					f := c.frame(&wire.SendMessages{Stream: stream, Topic: topic, Partitioning: wire.PartitionID(part), Batch: batch(t, fmt.Sprint(part))})
					if _, err := c.nc.Write(f); err != nil {
						return
					}
					a, err := c.tryRead(patience)
					if err != nil {
						return
					}
					var sc wire.SendConfirmations
					if a.code() != 0 || sc.Decode(a.body) != nil {
						t.Error(a.code())
						return
					}
					mu.Lock()
					if off := sc.Confirmations[0].BaseOffset; off < acked[part] {
						t.Errorf("offset %d of partition %d given twice", off, part)
					} else {
						acked[part] = off + 1
					}
					mu.Unlock()
				}
			})
		}
		timer := time.NewTimer(time.Until(stopAt))
		<-timer.C
		p.kill()
		wg.Wait()
	}
	p = startProcess(t, dir)
	r = loginAt(t, p.Addr())
	for part := range uint32(2) {
		var n uint64
		for {
			got, pm := r.poll(pollRequest(stream, topic, part, n, 1000))
			if len(got) == 0 {
				if n < acked[part] {
					t.Fatalf("partition %d: %d messages, %d acknowledged, current %d", part, n, acked[part], pm.CurrentOffset)
				}
				break
			}
			n += uint64(len(got))
		}
		t.Logf("partition %d: %d messages, %d acknowledged", part, n, acked[part])
	}
}

// Every write of the process survives a kill: a copy of the files taken while the
// node runs starts, and has what was acknowledged before.
func TestCopyOfARunningNodeStarts(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem(1)
	s := start(t, func(c *Config) { c.Path = "/node" }, withFS(mem))
	r := login(t, s)
	stream, topic := r.topic(2)
	for i := range 20 {
		r.send(stream, topic, wire.PartitionID(uint32(i%2)), fmt.Sprint(i))
		if i%5 != 4 {
			continue
		}
		clone := start(t, func(c *Config) { c.Path = "/node" }, withFS(mem.KillClone()))
		q := login(t, clone)
		for p := range uint32(2) {
			if got, _ := q.poll(pollRequest(stream, topic, p, 0, 100)); len(got) != (i+2-int(p))/2 {
				t.Fatalf("after %d sends partition %d has %q", i+1, p, got)
			}
		}
		q.send(stream, topic, wire.PartitionID(0), "more")
	}
}

// A durable topic outlives a power cut.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem(7)
	s := start(t, func(c *Config) { c.Path = "/node" }, withFS(mem))
	r := login(t, s)
	stream, topic := r.topic(1, wire.Option{Key: wire.OptDurability, Value: wire.StringValue("persisted")})
	for i := range 15 {
		r.send(stream, topic, wire.PartitionID(0), fmt.Sprint(i))
		if i%5 != 4 {
			continue
		}
		clone := start(t, func(c *Config) { c.Path = "/node" }, withFS(mem.CrashClone(uint64(i))))
		q := login(t, clone)
		if got, _ := q.poll(pollRequest(stream, topic, 0, 0, 100)); len(got) != i+1 {
			t.Fatalf("%d of %d messages", len(got), i+1)
		}
	}
}

func TestDeletedPartitionsLeaveNoFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startIn(t, dir)
	r := login(t, s)
	stream, topic := r.topic(2)
	r.send(stream, topic, wire.PartitionID(0), "old")
	r.must(&wire.DeleteTopic{Stream: stream, Topic: topic}, nil)
	// The same numbers again: nothing of the old topic shows.
	var td wire.TopicDetails
	r.must(&wire.CreateTopic{Stream: stream, PartitionsCount: 2, Name: "again"}, &td)
	if got, _ := r.poll(pollRequest(stream, wire.ID(td.ID), 0, 0, 10)); len(got) != 0 {
		t.Fatal(got)
	}
	if c := r.send(stream, wire.ID(td.ID), wire.PartitionID(0), "new"); c.BaseOffset != 0 {
		t.Fatal(c)
	}
	stop(t, s)
	// A leftover of a partition that nobody knows, and a directory that is not ours.
	leftover := filepath.Join(dir, "streams", "5", "topics", "5", "partitions", "0-2")
	foreign := filepath.Join(dir, "streams", "5", "topics", "5", "partitions", "notes")
	for _, d := range []string{leftover, foreign} {
		if err := os.MkdirAll(d, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	s = startIn(t, dir)
	eventually(t, func() bool { _, err := os.Stat(leftover); return os.IsNotExist(err) })
	if _, err := os.Stat(foreign); err != nil {
		t.Error("a foreign directory was removed")
	}
	if got, _ := login(t, s).poll(pollRequest(stream, wire.ID(td.ID), 0, 0, 10)); len(got) != 1 {
		t.Fatal(got)
	}
	stop(t, s)
}

func TestSecondNodeOnADirectory(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	_, err := tryStart(t, func(c *Config) { c.Path = s.cfg.Path })
	if err == nil || !strings.Contains(err.Error(), s.cfg.Path) || !strings.Contains(err.Error(), "another process") {
		t.Fatal(err)
	}
	_, err = tryStart(t, func(c *Config) { c.Path = s.cfg.Path; c.Fresh = true })
	if err == nil || !strings.Contains(err.Error(), s.cfg.Path) {
		t.Fatal(err)
	}
	login(t, s).must(&wire.GetStreams{}, nil)
}

func TestFresh(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startIn(t, dir)
	login(t, s).topic(1)
	stop(t, s)
	s = start(t, func(c *Config) { c.Path = dir; c.Fresh = true })
	var list wire.Streams
	login(t, s).must(&wire.GetStreams{}, &list)
	if len(list.Streams) != 0 {
		t.Fatal(list)
	}
}

// A directory that never was a node's keeps its files.
func TestFreshLeavesForeignFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mine := filepath.Join(dir, "sub", "mine.txt")
	if err := os.Mkdir(filepath.Dir(mine), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mine, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := tryStart(t, func(c *Config) { c.Path = dir; c.Fresh = true })
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "node.meta") {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(mine); err != nil || string(b) != "mine" {
		t.Fatal(string(b), err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
}

func TestWrongConfigurationOpensNothing(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = busy.Close() }()
	for name, tt := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"cluster of none":   {func(c *Config) { c.Cluster.Enabled = true }, "--replica-id"},
		"not in the roster": {func(c *Config) { clusterOf(c, "127.0.0.1"); c.ReplicaID = 1 }, "--replica-id"},
		"open to strangers": {func(c *Config) { clusterOf(c, "192.0.2.1") }, "cluster.auth.enabled"},
		"short secret":      {func(c *Config) { clusterOf(c, "192.0.2.1"); c.Cluster.AuthEnabled = true; c.Cluster.Secret = "short" }, "cluster.auth.shared_secret"},
		"root of a cluster": {func(c *Config) { clusterOf(c, "127.0.0.1"); c.Root.Default = false }, "IGGY_ROOT_USERNAME"},
		"encryption":        {func(c *Config) { c.Crypt.Enabled = true }, "encryption.enabled"},
		"no transport":      {func(c *Config) { c.TCP.Enabled = false }, "tcp.enabled"},
		"port taken":        {func(c *Config) { c.TCP.Address = busy.Addr().String() }, "tcp.address"},
		"no certificate":    {func(c *Config) { c.TCP.TLS.Enabled = true; c.TCP.TLS.SelfSigned = false; c.TCP.TLS.CertFile = "/none" }, "tcp.tls.cert_file"},
		"telemetry":         {func(c *Config) { c.Telemetry.Enabled = true }, "telemetry.enabled"},
		"no authority": {func(c *Config) {
			clusterOf(c, "127.0.0.1")
			c.Cluster.AuthEnabled, c.Cluster.Secret = true, strings.Repeat("x", 32)
			c.Cluster.TLS.Enabled = true
		}, "cluster.tls.ca_file"},
		"half a root":       {func(c *Config) { c.Root.Default = false; c.Root.Username = "admin" }, "IGGY_ROOT_PASSWORD"},
		"short root":        {func(c *Config) { c.Root.Username = "ad" }, "IGGY_ROOT_USERNAME"},
		"directory is file": {func(c *Config) { c.Path = "/dev/null/x" }, "/dev/null"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			_, err := tryStart(t, func(c *Config) { c.Path = dir; tt.change(c) })
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("%v lacks %s", err, tt.want)
			}
			if _, err := os.Stat(dir); err == nil {
				t.Error("data directory was made")
			}
		})
	}
}

func TestRuntimeConfiguration(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *Config) { c.Crypt.Key = "very-secret"; c.Cluster.Secret = "very-secret" })
	text, err := os.ReadFile(filepath.Join(s.cfg.Path, "runtime", "current_config.toml"))
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		TCP struct{ Address string }
	}
	if err := toml.Unmarshal(text, &m); err != nil || m.TCP.Address != s.Addr().String() || strings.Contains(string(text), "very-secret") {
		t.Fatalf("%v\n%s", err, text)
	}
}

func TestRandomRootPassword(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var log bytes.Buffer
	run := func() *Server {
		cfg := DefaultConfig()
		cfg.Path, cfg.TCP.Address = dir, "127.0.0.1:0"
		s, err := Start(t.Context(), cfg, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := run()
	_, rest, ok := strings.Cut(log.String(), "password=")
	password, _, _ := strings.Cut(rest, "\n")
	if !ok || !strings.Contains(log.String(), "level=WARN") || strings.Count(log.String(), "password=") != 1 {
		t.Fatal(log.String())
	}
	dial(t, s).login("iggy", password)
	stop(t, s)
	log.Reset()
	s = run()
	if strings.Contains(log.String(), "password") {
		t.Error("password logged again")
	}
	dial(t, s).login("iggy", password)
	stop(t, s)
}

func TestTLS(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *Config) { c.TCP.TLS.Enabled = true; c.TCP.TLS.CertFile = "/none" })
	nc, err := tls.Dial("tcp", s.Addr().String(), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a certificate made for this run
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	r := &raw{t: t, nc: nc, client: wire.NewID()}
	r.login("iggy", "iggy")
	stream, topic := r.topic(1)
	r.send(stream, topic, wire.PartitionID(0), "a", "b")
	if got, _ := r.poll(pollRequest(stream, topic, 0, 0, 10)); len(got) != 2 {
		t.Fatal(got)
	}
	plain := dial(t, s)
	plain.write(plain.frame(&wire.Ping{}))
	_ = plain.nc.SetReadDeadline(time.Now().Add(patience))
	if a, err := plain.tryRead(patience); err == nil {
		t.Fatalf("plain text answered: %+v", a.h)
	}
}

// A stop under load answers what it has read, keeps what it acknowledged, and is quick.
func TestCloseUnderLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := tryStart(t, func(c *Config) { c.Path = dir })
	if err != nil {
		t.Fatal(err)
	}
	setup := login(t, s)
	stream, topic := setup.topic(1)
	var mu sync.Mutex
	acked := 0
	var wg sync.WaitGroup
	for range 4 {
		c := login(t, s)
		wg.Go(func() {
			for {
				f := c.frame(&wire.SendMessages{Stream: stream, Topic: topic, Partitioning: wire.PartitionID(0), Batch: batch(t, "x")})
				if _, err := c.nc.Write(f); err != nil {
					return
				}
				a, err := c.tryRead(patience)
				if err != nil {
					return
				}
				if a.code() == 0 && a.eviction == 0 {
					mu.Lock()
					acked++
					mu.Unlock()
				}
			}
		})
	}
	eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return acked > 500 })
	began := time.Now()
	stop(t, s)
	if d := time.Since(began); d > 3*time.Second {
		t.Errorf("close took %v", d)
	}
	wg.Wait()
	s = start(t, func(c *Config) { c.Path = dir })
	_, pm := login(t, s).poll(pollRequest(stream, topic, 0, 0, 1))
	if int(pm.CurrentOffset)+1 < acked {
		t.Fatalf("%d messages, %d acknowledged", pm.CurrentOffset+1, acked)
	}
}

// On a full disk sends fail with a code that says so, polls go on, and sends work
// again when there is room.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem(3)
	mem.SetCapacity(24 << 20)
	s := start(t, func(c *Config) { c.Path = "/node" }, withFS(mem))
	r := login(t, s)
	stream, topic := r.topic(2)
	r.send(stream, topic, wire.PartitionID(1), "kept")
	payload := string(make([]byte, 256<<10))
	full := false
	for range 200 {
		a := r.do(&wire.SendMessages{Stream: stream, Topic: topic, Partitioning: wire.PartitionID(0), Batch: batch(t, payload)})
		if a.code() != 0 {
			if a.h.Status != wire.ErrCannotAppendMessage {
				t.Fatal(a.code())
			}
			full = true
			break
		}
	}
	if !full {
		t.Fatal("the disk did not fill up")
	}
	if got, _ := r.poll(pollRequest(stream, topic, 1, 0, 10)); len(got) != 1 || got[0] != "kept" {
		t.Fatal(got)
	}
	if got, _ := r.poll(pollRequest(stream, topic, 0, 0, 1)); len(got) != 1 {
		t.Fatal(len(got))
	}
	mem.SetCapacity(512 << 20)
	eventually(t, func() bool {
		a := r.do(&wire.SendMessages{Stream: stream, Topic: topic, Partitioning: wire.PartitionID(0), Batch: batch(t, payload)})
		return a.code() == 0
	})
	r.must(&wire.CreateStream{Name: "again"}, nil)
}

func TestCloseTwiceAndCancelledStart(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cfg := DefaultConfig()
	cfg.Path, cfg.TCP.Address = filepath.Join(t.TempDir(), "x"), "127.0.0.1:0"
	if _, err := Start(ctx, cfg, WithLogger(slog.New(slog.DiscardHandler))); err == nil {
		t.Fatal("started")
	}
}
