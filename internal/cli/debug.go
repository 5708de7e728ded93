package cli

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/internal/vfs"
)

// debugCmd groups the commands that look into a node's files.
type debugCmd struct {
	Dump debugDumpCmd `cmd:"" name:"dump" help:"Print the log of a partition or of the metadata."`
}

type debugDumpCmd struct {
	Dir string `arg:"" name:"directory" type:"path" help:"Directory of the log, such as DATA/streams/0/topics/0/partitions/0-7."`
}

// Run prints the log; it only reads, and may run beside the server. Damage is an error, after all is printed.
func (c *debugDumpCmd) Run(inv *invocation) error {
	if st, err := os.Stat(c.Dir); err != nil {
		return fmt.Errorf("dump the log: %w", err)
	} else if !st.IsDir() {
		return fmt.Errorf("dump the log: %s is not a directory", c.Dir)
	}
	if _, err := os.Stat(filepath.Join(c.Dir, replica.NodeMetaName)); err == nil {
		return fmt.Errorf("%s is the data directory of a node: name one of its logs, %s or such as %s", c.Dir,
			filepath.Join(c.Dir, "metadata"), filepath.Join(c.Dir, "streams/0/topics/0/partitions/0-7"))
	}
	// A log can be long: it is written as it is read, with --json a document a line.
	buffered := bufio.NewWriterSize(inv.out.W, 64<<10)
	inv.out.W = buffered
	items, damaged := 0, uint32(0)
	err := segment.Dump(vfs.OS(), c.Dir, func(i segment.DumpItem) error {
		items++
		if i.Damaged() {
			damaged++
		}
		inv.out.Done(i, "%s", i)
		return errors.Join(inv.out.Err(), inv.ctx.Err())
	})
	if err := errors.Join(err, buffered.Flush()); err != nil {
		return fmt.Errorf("dump %s: %w", c.Dir, err)
	}
	if damaged > 0 {
		return fmt.Errorf("%s is damaged in %s", c.Dir, plural(damaged, "place"))
	}
	if items == 0 {
		return fmt.Errorf("%s has no segments: it is not the directory of a log", c.Dir)
	}
	return nil
}
