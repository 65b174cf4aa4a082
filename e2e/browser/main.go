// Command browser looks at the operations pages in a headless Chromium, as people see them.
package main

import (
	"context"
	"fmt"
	"os"

	"billhook/internal/serve"
)

func main() {
	serve.Main("browser", func(ctx context.Context) error { return run0(ctx) })
}

func run0(ctx context.Context) error {
	s, err := openShop(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.fill(ctx); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, s.WorkerURL)
	<-ctx.Done()
	return nil
}
