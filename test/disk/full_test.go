package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/test/cluster/harness"
	"github.com/whippetmq/whippet/wire"
)

const (
	diskSize   = "144m"      // above the ballast of a node
	fillerSize = 16 << 20    // what is deleted to make room
	batchSize  = 4           // messages of a send
	valueSize  = 256 << 10   // bytes of a message
	oneSend    = time.Minute // the most that a send may take
)

// smallDisk mounts a small file system for the test, or skips the test where that is not allowed.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+diskSize); err != nil {
		t.Skipf("a small file system cannot be mounted here (%v); internal/replica tests a full disk on a simulated one", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// fill makes a file of real bytes that takes room.
func fill(t *testing.T, path string, size int) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
}

// rig is a node on a small disk and a client with a history.
type rig struct {
	*harness.Cluster
	checker       *harness.Checker
	producer      uint32
	client        *client.Client
	stream, topic wire.Identifier
	filler        string
}

func newRig(t *testing.T, options ...wire.Option) *rig {
	disk := smallDisk(t)
	r := &rig{filler: filepath.Join(disk, "filler"), stream: wire.Name("s"), topic: wire.Name("t")}
	fill(t, r.filler, fillerSize)
	r.Cluster = harness.New(t, harness.Options{Data: map[int]string{0: filepath.Join(disk, "data")}})
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	if err := r.Topic(ctx, "s", "t", 1, options...); err != nil {
		t.Fatal(err)
	}
	r.checker = harness.NewChecker()
	r.producer = r.checker.Producer()
	r.client, _ = r.Client(t, 0)
	return r
}

// send sends one batch.
func (r *rig) send(t *testing.T) error {
	ctx, cancel := context.WithTimeout(t.Context(), oneSend)
	defer cancel()
	s := r.checker.Begin(r.producer, 0, batchSize, valueSize)
	conf, err := r.client.Send(ctx, r.stream, r.topic, wire.PartitionID(0), s.ClientMessages()...)
	s.Confirm(conf, err)
	return err
}

// sendUntilFull sends until the node refuses and gives the refusal.
func (r *rig) sendUntilFull(t *testing.T) error {
	t.Helper()
	for range 1000 {
		if err := r.send(t); err != nil {
			return err
		}
	}
	t.Fatal("a disk of " + diskSize + " took 1,000 MiB")
	return nil
}

func TestFullDisk(t *testing.T) {
	for _, durability := range []string{"replicated", "persisted"} {
		t.Run(durability, func(t *testing.T) {
			r := newRig(t, wire.Option{Key: wire.OptDurability, Value: wire.StringValue(durability)})
			err := r.sendUntilFull(t)
			if !errors.Is(err, wire.ErrCannotAppendMessage) {
				t.Fatalf("the refusal of a full disk is %v, want code 4010", err)
			}
			for range 5 { // it stays so, and each is told at once
				start := time.Now()
				if err := r.send(t); !errors.Is(err, wire.ErrCannotAppendMessage) {
					t.Fatalf("the next send: %v", err)
				}
				if took := time.Since(start); took > 5*time.Second {
					t.Errorf("a refusal took %v", took)
				}
			}
			r.checker.MustVerify(t, r.Cluster, r.stream, r.topic) // polls go on

			if err := os.Remove(r.filler); err != nil {
				t.Fatal(err)
			}
			harness.Eventually(t, harness.Patience, "sends to be taken again, without a restart", func(context.Context) error { return r.send(t) })
			r.checker.MustVerify(t, r.Cluster, r.stream, r.topic)
		})
	}
}

// TestNewSessionsOnAFullDisk: who signs in while the disk is full polls what is there, is refused what needs room, and
// makes room.
func TestNewSessionsOnAFullDisk(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	if err := r.Topic(ctx, "other", "t", 1); err != nil {
		t.Fatal(err)
	}
	if err := r.sendUntilFull(t); !errors.Is(err, wire.ErrCannotAppendMessage) {
		t.Fatal(err)
	}
	// Others take what room is left as well.
	leaveFree(t, filepath.Join(filepath.Dir(r.filler), "other"), 64<<10)

	c, err := r.ConnectTo(ctx, 0)
	if err != nil {
		t.Fatalf("sign in: %v", err)
	}
	defer c.Close()
	polled, err := c.Poll(ctx, client.PollRequest{Stream: r.stream, Topic: r.topic, Strategy: wire.FromFirst(), Count: batchSize})
	if err != nil || polled.Count != batchSize {
		t.Errorf("poll: %+v, %v", polled, err)
	}
	if _, err := c.CreateStream(ctx, "more"); !errors.Is(err, wire.ErrCannotWriteToFile) {
		t.Errorf("a stream made on a full disk: %v, want code 10006", err)
	}
	send := func(ctx context.Context) error {
		_, err := c.Send(ctx, wire.Name("other"), wire.Name("t"), wire.PartitionID(0), client.Message{Payload: []byte("x")})
		return err
	}
	if err := send(ctx); !errors.Is(err, wire.ErrCannotAppendMessage) {
		t.Errorf("a send: %v, want code 4010", err)
	}
	if err := c.DeleteTopic(ctx, r.stream, r.topic); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, harness.Patience, "sends to be taken again", send)
}

// leaveFree fills the disk that path is on until no more than so many bytes are free.
func leaveFree(t *testing.T, path string, bytes uint64) {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(filepath.Dir(path), &st); err != nil {
		t.Fatal(err)
	}
	if free := st.Bavail * uint64(st.Bsize); free > bytes {
		fill(t, path, int(free-bytes))
	}
}

// TestStartOnAFullDisk kills a node whose disk is full: it comes back, serves what it acknowledged, and takes sends as soon
// as there is room.
func TestStartOnAFullDisk(t *testing.T) {
	r := newRig(t)
	if err := r.sendUntilFull(t); !errors.Is(err, wire.ErrCannotAppendMessage) {
		t.Fatal(err)
	}
	n := r.Node(0)
	if err := n.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	if err := n.WaitReady(t.Context(), harness.Patience); err != nil {
		t.Fatal(err)
	}
	r.checker.MustVerify(t, r.Cluster, r.stream, r.topic)
	if err := os.Remove(r.filler); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, harness.Patience, "sends to be taken again", func(context.Context) error { return r.send(t) })
	r.checker.MustVerify(t, r.Cluster, r.stream, r.topic)
}
