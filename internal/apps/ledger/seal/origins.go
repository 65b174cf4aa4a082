package seal

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"billhook/internal/apps/ledger"
)

// Origins knows what stands behind the entries of the books. Both answers are read past every cache.
type Origins interface {
	// Vouched reports whether the record of the entry's event names the entry, or the audit its
	// author. Both are written in the entry's own commit. The error is that of reading.
	Vouched(ctx context.Context, entry ledger.Entry) (bool, error)
	// Closings returns the moment from which each closed month of a tenant takes no entries. The
	// error is that of reading.
	Closings(ctx context.Context, tenant string) (map[string]time.Time, error)
}

// asking is how many entries or accounts are asked about at once.
const asking = 16

// vouched reports which of the entries have an origin. The error is that of reading.
func vouched(ctx context.Context, origins Origins, entries []ledger.Entry) ([]bool, error) {
	return ask(ctx, entries, origins.Vouched)
}

// ask returns the answer to the question about each, of which asking are asked at once.
func ask[T any](ctx context.Context, all []T, question func(context.Context, T) (bool, error)) ([]bool, error) {
	answers := make([]bool, len(all))
	questions, ctx := errgroup.WithContext(ctx)
	questions.SetLimit(asking)
	for i, one := range all {
		questions.Go(func() (err error) {
			answers[i], err = question(ctx, one)
			return err
		})
	}
	return answers, questions.Wait()
}
