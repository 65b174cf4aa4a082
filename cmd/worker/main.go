// Command worker is the push worker. Pub/Sub pushes billing events to it. It applies the effect
// of each event once, on Firestore, and answers with the outcome.
package main

import (
	"context"
	"os"

	"billhook/internal/serve"
)

func main() {
	serve.Main("worker", func(ctx context.Context) error { return run(ctx, os.Getenv, os.Stdout) })
}
