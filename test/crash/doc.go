// Package crash kills a real node with SIGKILL, again and again, while clients produce, consume, store offsets and create
// topics, and then checks what they were told against what the node has.
//
// The promises (ARCHITECTURE.md, invariants): what was acknowledged is there, at the offset that was told, once; offsets
// are dense; messages of one producer and partition are in the order of the calls; what a consumer has seen never
// changes; an acknowledged offset or topic is not forgotten; and a request that was cut off by a kill gets its true
// outcome, because the client asks again under the same identity.
//
// The process dies, the machine does not: written bytes survive. Power cuts are the business of internal/segment and
// internal/replica, on a simulated disk.
package crash
