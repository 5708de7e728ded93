// Package whippettest starts a Whippet node for a test in one line:
//
//	srv := whippettest.Start(t)
//	c, err := client.Connect(ctx, srv.ConnectionString())
//
// The node listens on a free port of the loopback, keeps its data in a temporary
// directory of the test and is closed when the test ends. It is a real node: the
// same code as `whippet server`, in the test's process.
package whippettest
