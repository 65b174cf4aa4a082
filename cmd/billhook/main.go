// Command billhook is everything a person types: a whole Billhook in one process,
// signed webhooks sent by hand, provisioning, and questions to a running worker.
package main

import (
	"context"
	"os"

	"billhook/internal/serve"
)

func main() {
	serve.Main("billhook", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Getenv, os.Stdout) })
}
