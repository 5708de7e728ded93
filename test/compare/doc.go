// Command compare measures Whippet against NATS JetStream with file storage, in turns within one run, each with its own
// benchmark client, and prints a table with the ratios.
//
//	go run . [-whippet PATH] [-rounds 3] [-only produce-1k-1,...] [-json FILE]
//
// It is a module of its own, so that what it needs never enters the product's. The NATS server and the nats tool are
// built from the versions that go.mod pins; Whippet is built from the checkout unless -whippet names a binary.
//
// Both sides get the same payload sizes and batches of 1000 messages. NATS publishes asynchronously with a batch
// outstanding ("async"), or with its batched publisher, which goes on while batches are acknowledged ("fast"); the
// faster one is compared. Whippet's producer leaves up to -in-flight batches unanswered. A consumer reads what is
// stored already; NATS's faster kind of consumer is compared. With one message per send, both wait for each answer.
package main
