package disk

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whippetmq/whippet/test/cluster/harness"
	"github.com/whippetmq/whippet/wire"
)

// TestFullDiskOfAFollower: of three nodes one has a full disk. Sends go on, since the others are a majority; when there is
// room again that node gets what it missed.
func TestFullDiskOfAFollower(t *testing.T) {
	disk := smallDisk(t)
	filler := filepath.Join(disk, "filler")
	fill(t, filler, 3*fillerSize)
	c := harness.New(t, harness.Options{Nodes: 3, Data: map[int]string{2: filepath.Join(disk, "data")}})
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	if err := c.Topic(ctx, "s", "t", 1); err != nil {
		t.Fatal(err)
	}
	stream, topic := wire.Name("s"), wire.Name("t")
	c.MustPlace(t, stream, topic, 0)
	checker := harness.NewChecker()
	cl, _ := c.Client(t, 1)
	load := harness.Load{Stream: stream, Topic: topic, Partitions: []uint32{0}, Batch: batchSize, Size: valueSize}.Start(checker, cl)
	// Until the small disk has no room, ballast included.
	for range 100 {
		load.MustFlow(t, oneSend, 8)
		if strings.Contains(c.Node(2).Log(), "a write found the disk full") {
			break
		}
	}
	load.MustFlow(t, oneSend, 40)
	load.MustStop(t)
	if s := checker.Summarise(nil); s.Acknowledged != s.Sends {
		t.Errorf("%s\n%s", s, checker.Failures(5))
	}
	if !strings.Contains(c.Node(2).Log(), "a write found the disk full") {
		t.Error("the small disk was never full")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	checker.MustVerify(t, c, stream, topic) // on all three, when the node has caught up
}
