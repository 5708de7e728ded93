// Package cluster is a node's view of the other nodes: who they are (the
// roster), which of them can be reached, what nodes ask of each other, and the
// balancer that brings primaries back to where they belong.
//
// # Requests between nodes
//
// They travel as calls of the peer link, which numbers them and says how each
// ended. Little-endian:
//
//	request: deadline_us u32, hop u8 = 1, operation u8, code u32, client 16,
//	         user u32, session u64, request u64, metadata_position u64,
//	         stream u32, topic u32, partition u32, group u64, body
//	reply:   status u32, op u64, commit u64, timestamp u64, view u32, payload
//
// A client's request that is forwarded has its own operation and code and the
// body as it came. Operations of the metadata log carry what the metadata group
// needs beside the body (the broker's peer files). What only nodes ask has
// operation 2 and a code from 9100 on. A reply with status 58 was refused before
// any log; its payload, when there is one, is a Hint: who leads instead, as far
// as the refusing node knows.
//
// A request is never passed on again: whoever gets one serves it or refuses it.
//
// # Outcomes
//
// Call ends with a reply or with an error of the transport: ErrNotSent and
// ErrNotTaken mean that the other node did not look at the request, ErrLinkLost
// that it may have acted on it.
package cluster
