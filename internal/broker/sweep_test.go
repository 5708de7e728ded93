package broker

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/whippetmq/whippet/internal/clock"
	"github.com/whippetmq/whippet/internal/metadata"
	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/internal/vfs"
)

// TestDeletedPartitionIsForgotten checks that nothing is kept of a partition that was deleted while the node could not remove
// its files. Power failed, so the start holds it for suspect, and no replica of it will ever be made sound: without a word the
// node would tell the others for good that its own word is in doubt.
func TestDeletedPartitionIsForgotten(t *testing.T) {
	const dir = "/node/streams/5/topics/5/partitions/0-1"
	deleted := replica.PartitionGroup(1, 0)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()

	disk := vfs.NewMem(1)
	host, err := replica.Open(ctx, replica.Config{FS: disk, Dir: "/node", NodeID: 1, BootID: "before", Clock: clock.System(nil), Shards: 1, BallastBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	g, err := host.StartGroup(ctx, replica.GroupConfig{ID: deleted, Dir: dir, Voters: []uint64{1}, Machine: metadata.New(metadata.Config{})})
	if err == nil {
		err = g.WaitReady(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	withFiles, withoutFiles := disk.KillClone(), disk.KillClone()
	if err := host.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := withoutFiles.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}

	for name, fs := range map[string]*vfs.Mem{"with its files": withFiles, "files gone before the crash": withoutFiles} {
		t.Run(name, func(t *testing.T) {
			r := newRigOn(t, fs, "after", metadata.Config{}, nil)
			until(t, "the group is forgotten", func() bool {
				return !slices.Contains(r.host.Remembered(), deleted) && !r.host.Self().Suspect
			})
			if _, err := fs.Stat(dir); !vfs.IsNotExist(err) {
				t.Errorf("the directory is still there: %v", err)
			}
			// The next start must not find it again, whether or not anything else changes meanwhile.
			until(t, "that is on the disk", func() bool {
				again, err := replica.Open(ctx, replica.Config{FS: fs.KillClone(), Dir: "/node", NodeID: 1, BootID: "after", Clock: clock.System(nil), Shards: 1, BallastBytes: -1})
				if err != nil {
					t.Fatal(err)
				}
				suspect := again.Self().Suspect
				if err := again.Close(ctx); err != nil {
					t.Fatal(err)
				}
				return !suspect
			})
		})
	}
}

// until waits for a condition that comes about in the background.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	limit := time.After(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}
