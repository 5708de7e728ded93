// Command compare measures Whippet against NATS JetStream with file storage, in turns within one run, each with its own
// benchmark client, and prints a table with the ratios.
//
//	go run . [-whippet PATH] [-rounds 3] [-only produce-1k-1,...] [-json FILE]
//
// It is a module of its own, so that what it needs never enters the product's. The NATS server and the nats tool are
// built from the versions that go.mod pins; Whippet is built from the checkout unless -whippet names a binary.
//
// Both sides get the same payload sizes and as many messages unacknowledged as a batch holds (1000): NATS publishes
// asynchronously with that many outstanding, or in its batches, whichever is faster; Whippet sends one batch at a time.
// A consumer reads what is on disk or in memory already; NATS's fastest kind of consumer counts.
package main
