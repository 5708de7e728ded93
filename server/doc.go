// Package server runs a Whippet node inside a process: what `whippet server`
// starts, and what a Go program can embed.
//
//	cfg := server.DefaultConfig()
//	cfg.Path = "/var/lib/whippet"
//	srv, err := server.Start(ctx, cfg)
//	if err != nil { … }
//	defer srv.Close(context.Background())
//
// Start returns when clients can sign in. Nothing process-wide is changed: no
// signal is caught, no global logger is set. TuneRuntime, which sets the garbage
// collector for a process that is a node and nothing else, is the caller's to
// call.
package server
