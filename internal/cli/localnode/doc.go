// Package localnode starts a server as a separate process on this machine, waits until it accepts requests, and stops
// it. "whippet up" and the benchmarks use it.
//
// A node's directory holds four things beside each other: NAME (its data), NAME.toml (its configuration), NAME.log
// (what it prints) and NAME.ready (its addresses and process id, written by the node itself at each start). The process
// leads a session of its own: it is not touched by Ctrl-C in the terminal, and goes on when its starter dies. Everything
// it needs is in its arguments and its configuration, so that one shell line restarts it.
//
// A cluster is several such nodes with one configuration, cluster.toml, and a secret that they know each other by,
// peer.secret; both are readable by their owner only. See ClusterConfig for its ports.
package localnode
