package push

import (
	"context"

	"billhook/internal/dedupe"
	"billhook/internal/platform/failpoint"
)

// commit commits the effect with the record: that of a leased handler in a time of its own.
func commit(ctx context.Context, run *dedupe.Run, leased bool, end dedupe.Ending) (dedupe.Seen, error) {
	if leased {
		var cancel context.CancelFunc
		ctx, cancel = bounded(ctx)
		defer cancel()
	} else {
		failpoint.Hit(failpoint.TxCommit)
	}
	seen, err := run.Conclude(ctx, end)
	switch { // a name of a fail point that is no constant would be left in a release
	case seen == dedupe.Own && leased:
		failpoint.Hit(failpoint.LeasedCompleted)
	case seen == dedupe.Own:
		failpoint.Hit(failpoint.TxCommitted)
	}
	return seen, err
}

// release records what an attempt leaves, and releases a lease.
func release(
	ctx context.Context, run *dedupe.Run, leased bool, end dedupe.Ending, want dedupe.Seen,
) (seen dedupe.Seen, err error) {
	if leased {
		failpoint.Hit(failpoint.LeasedRelease)
		seen, err = run.Conclude(ctx, end)
		failpoint.Hit(failpoint.LeasedReleased)
		return seen, err
	}
	failpoint.Hit(failpoint.TxFail)
	if seen, err = run.Conclude(ctx, end); seen == want {
		failpoint.Hit(failpoint.TxFailed)
	}
	return seen, err
}
