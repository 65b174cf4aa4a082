package push

import (
	"context"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/platform/failpoint"
	"billhook/internal/retry"
)

// claim claims the event of a leased handler. The record of a Tx handler's is read only where it was
// delivered before.
func (d *delivery) claim(ctx context.Context, run *dedupe.Run, delivered bool) finding {
	switch {
	case d.handler.Tx == nil && !d.leased():
		return found(failed, retry.Permanent(typeUnknown, nil))
	case d.handler.Tx != nil && !delivered:
		return finding{}
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	if d.leased() {
		return d.lease(ctx, run, delivered)
	}
	return d.recall(ctx, run)
}

// unexplained is how many deliveries may have left no trace before attempts are counted before they run.
const unexplained = 3

// recall reads the record of an event that was delivered before, and counts the attempt where its workers
// seem to die.
func (d *delivery) recall(ctx context.Context, run *dedupe.Run) finding {
	seen, err := run.Look(ctx)
	for tries := 0; err != nil || seen != dedupe.Counted; tries++ {
		few := d.number-(run.Attempt()-1-int(d.record.Attempts)) <= unexplained
		switch {
		case tries == maxRounds:
			return found(held, retry.Busy("contention", nil))
		case err != nil:
			return found(unanswered, err)
		case seen != dedupe.Fresh:
			return records(seen)
		case few:
			return finding{}
		case run.Attempt() > d.allowed:
			return found(failed, workerDied)
		}
		seen, err = run.Count(ctx)
	}
	return finding{}
}

func (d *delivery) lease(ctx context.Context, run *dedupe.Run, delivered bool) finding {
	var kept *contract.Message // for a sweep to publish it again
	if len(d.message.Data) <= contract.MaxKept {
		kept = &d.message
	}
	failpoint.Hit(failpoint.LeasedClaim)
	seen, err := run.Claim(ctx, d.queue.Lease, kept, delivered)
	means := retry.Decide(err)
	switch {
	case err != nil && means.Class.Terminal():
		return found(failed, err)
	case err != nil && means.Scope == retry.OneMessage && !means.Counts: // else the record cannot be read
		return found(held, err)
	case err != nil:
		return found(unanswered, err)
	case seen != dedupe.Claimed:
		return records(seen)
	}
	failpoint.Hit(failpoint.LeasedClaimed)
	return finding{}
}
