package push

import (
	"context"

	"billhook/internal/dedupe"
	"billhook/internal/platform/failpoint"
	"billhook/internal/retry"
)

// unexplained is how many deliveries of an event may have left nothing in its record, by
// the broker's count, before its attempts are counted before they run.
const unexplained = 3

// claim is the third step, and the first that reads the event's record. A message that has to
// wait is postponed, unless its event was handled before or is kept already. The event of a
// leased handler is claimed. That of a Tx handler is read only where it was delivered before.
// Where the broker has counted more deliveries than the record accounts for, workers seem to
// have died in them; then the attempt is counted before it runs.
func (s *Service) claim(ctx context.Context, w *attempt) verdict {
	if w.waits {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
		defer cancel()
		seen, err := w.run.Look(within)
		switch {
		case err != nil:
			return verdict{course: nacked, failure: err}
		case seen != dedupe.Fresh:
			return verdict{course: recorded, seen: seen}
		case w.due.IsZero():
			return verdict{course: postponed, failure: retry.Busy("behind_delayed", nil)}
		default:
			return verdict{course: postponed, failure: retry.Busy("deliver_at", nil), due: w.due}
		}
	}
	switch {
	case !w.found:
		return verdict{course: failed, failure: retry.Permanent(typeUnknown, nil)}
	case w.handler.Leased != nil:
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
		defer cancel()
		failpoint.Hit(failpoint.LeasedClaim)
		seen, err := w.run.Claim(within, w.queue.Lease, w.republished, w.known)
		means := retry.Decide(err)
		switch {
		case err != nil && means.Class.Terminal():
			return verdict{course: failed, failure: err}
		case err != nil && means.Scope == retry.OneMessage && !means.Counts: // else the record cannot be read
			return verdict{course: busy, failure: err}
		case err != nil:
			return verdict{course: nacked, failure: err} // nothing was tried
		case seen != dedupe.Claimed:
			return verdict{course: recorded, seen: seen}
		}
		failpoint.Hit(failpoint.LeasedClaimed)
		w.repeated = w.run.Repeated()
	case w.known:
		within, cancel := context.WithTimeout(ctx, w.policy.Timeout)
		defer cancel()
		w.until, _ = within.Deadline()
		seen, err := w.run.Look(within)
		for tries := 0; err != nil || seen != dedupe.Counted; tries++ {
			few := w.delivery.attempt-(w.run.Attempt()-1-w.before) <= unexplained
			switch {
			case tries == maxRounds:
				return verdict{course: busy, failure: retry.Busy("contention", nil)}
			case err != nil:
				return verdict{course: nacked, failure: err}
			case seen != dedupe.Fresh:
				return verdict{course: recorded, seen: seen}
			case !few && w.run.Attempt() > w.allowed:
				return verdict{course: failed, failure: workerDied}
			}
			if few {
				break
			}
			seen, err = w.run.Count(within)
		}
	}
	w.event.Attempt, w.event.Try = w.run.Attempt(), 0
	return verdict{course: claimed}
}
