// Command whippet is a partitioned, replicated log server and the tools to work with it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/whippetmq/whippet/internal/cli"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second signal does not wait for a command to end well
	code := cli.Run(ctx, cli.Process{
		Args:    os.Args[1:],
		Stdin:   os.Stdin,
		Stdout:  os.Stdout,
		Stderr:  os.Stderr,
		Getenv:  os.Getenv,
		Version: version,
	})
	stop()
	os.Exit(code)
}
