// Package cluster proves what a cluster promises, on real processes: that sends reach a partition's primary wherever it is
// without the session moving, and that nothing acknowledged is lost, doubled, altered or reordered whatever fails. The
// cases are those of the design's list of routing tests; each names its number.
//
// Bounds on time are those of the design where the nodes run at full speed, and wider under the race detector. The long
// versions run with WHIPPET_SLOW=1.
package cluster
