// Package contexts keeps named sets of connection options for the command line, in the files that the reference's
// tool uses: contexts.toml with one table per context, and .active_context with the name of the one in use.
//
// The context "default" always exists, is empty, and is active while nothing else was chosen. Files are written
// whole (temporary file, rename) with mode 0600, since they may hold passwords; keys that this version does not
// know are kept.
package contexts
