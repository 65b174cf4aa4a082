// Command billhook is the command line of Billhook. It runs a whole Billhook in one process,
// sends signed webhooks, provisions Pub/Sub, and asks a running worker.
package main

import (
	"context"
	"os"

	"billhook/internal/serve"
)

func main() {
	serve.Main("billhook", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Getenv, os.Stdout) })
}
