// Package harness runs clusters of real processes for tests: `whippet server` per node, with a TCP proxy in front of each
// node and between the nodes, control over leadership, and a checker of what was acknowledged.
//
//	c := harness.New(t, harness.Options{Nodes: 3, Proxies: true})
//	split := c.SplitPrimaries(t)
//	…
//	checker.Verify(t, c, stream, topic)
//
// # Rules
//
//   - Every wait has a bound and a name; the name is in the failure.
//   - A node that ends by itself, a data race or a panic in its log fails the test that ran it, whatever else the test saw.
//   - The harness speaks the protocol by itself (Raw) where a client's own behaviour must not hide the server's.
//   - Addresses: node i listens on 127.0.0.1, its proxy on the same port of 127.2.0.(i+1), which is what the roster
//     advertises; what node i says to node j goes to 127.1.(i+1).(j+1) where a proxy stands between them. Every address of
//     127/8 is loopback on Linux, which is what these tests need.
package harness
