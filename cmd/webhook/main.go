// Command webhook is the door: it takes signed webhooks from payment providers, minimizes them
// and publishes them to Pub/Sub. It answers once the publish is confirmed.
package main

import (
	"context"
	"os"

	"billhook/internal/serve"
)

func main() {
	serve.Main("webhook", func(ctx context.Context) error { return run(ctx, os.Getenv, os.Stdout) })
}
