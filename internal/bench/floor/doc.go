// Package floor is the least a server can do for a client of the protocol: it reads each frame, checks each batch
// as a real server must, appends it to its file with one plain pwrite, serves a poll with one pread, and answers
// correctly. No log format, no replication, no group, no index on disk, no permissions, no recovery.
//
// What the same client reaches against it, over the same sockets with the same frames, is the most that any server
// can reach with this client; benchmarks give their figures as a ratio to it. It runs in a process of its own, as a
// real server does. Nothing here is ever part of a running node.
//
// Where a choice was left it was made in favour of the floor: frames are parsed in the buffer they were read into,
// replies of one read leave in one write, and a record's checksum is not recomputed after its three stamps (clients
// do not look at it), so that a ratio never flatters the real server.
package floor
