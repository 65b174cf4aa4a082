// Command worker is the push worker: Pub/Sub pushes it billing events, it does
// each event's effect once, on Firestore, and answers with what became of it.
package main

import (
	"context"
	"os"

	"billhook/internal/serve"
)

func main() {
	serve.Main("worker", func(ctx context.Context) error { return run(ctx, os.Getenv, os.Stdout) })
}
