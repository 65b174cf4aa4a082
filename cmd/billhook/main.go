// Command billhook is everything a person types: a whole Billhook in one process,
// signed webhooks sent by hand, provisioning, and questions to a running worker.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "billhook:", err)
		os.Exit(1)
	}
}
