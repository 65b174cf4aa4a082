package store

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// ReadsAtOnce is how many reads one request has under way at the same time.
const ReadsAtOnce = 8

// AtOnce calls does with each number below n, ReadsAtOnce at the same time, and until one fails: that error it returns.
func AtOnce(ctx context.Context, n int, does func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(ReadsAtOnce)
	for i := range n {
		group.Go(func() error { return does(ctx, i) })
	}
	return group.Wait()
}
