// Package cli is the command line of Whippet: the grammar, the commands, and how their results are printed.
//
// Names, aliases, flags and outputs are those of the reference's tool; what is ours beside them (up, server,
// bench, debug, --json, --connect, offset as an alias, --follow, --lines) does not collide with it.
//
// Invariants:
//   - [Run] touches nothing global: arguments, environment and the three streams come in, an exit code goes out.
//   - Results go to stdout, everything else to stderr. Exit codes: 0 done (also for "was not found"), 1 failed,
//     2 wrong usage.
//   - A command is a struct of flags with one Run method; it gets everything it needs from an invocation.
package cli
