package segment

import (
	"io"

	"github.com/whippetmq/whippet/internal/vfs"
)

// Dump prints the segment headers of a log directory and one line per record,
// and marks damage. It only reads, and works beside a running server.
func Dump(w io.Writer, fs vfs.FS, dir string) error { return errTodo }
