package push

import (
	"context"
	"net/http"
	"time"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/failpoint"
	"billhook/internal/retry"
)

// calmFor is how long an instance assumes that no message of a queue waits in a lane, after it has read so.
const calmFor = time.Second

// dropped is the end of a message that is not for the queue or is too old, and the zero verdict for any other.
func (s *Service) dropped(w *attempt, now time.Time) verdict {
	q, d := w.queue, &w.delivery
	switch {
	case !q.Takes(d.message.Attributes):
		// The broker's filter, which an emulator does not apply.
		return verdict{course: final, answer: answer{Outcome: retry.Dropped, Status: http.StatusNoContent, Reason: "not_bound"}}
	case q.MessageTTL > 0 && !w.replayed && !w.published.IsZero() && now.Sub(w.published) > q.MessageTTL:
		w.ends = w.returned
		return verdict{course: final, answer: answer{Outcome: retry.Expired, Status: http.StatusNoContent, Reason: "message_ttl"}}
	}
	return verdict{}
}

// turn is the second step. It drops what is not to be handled, and finds whether the message has to wait, for its time of
// delivery or behind others of its key.
func (s *Service) turn(ctx context.Context, w *attempt) verdict {
	q, d, now := w.queue, &w.delivery, s.config.Now()
	w.waits, w.opened, w.ends, w.until = false, false, false, time.Time{}
	if v := s.dropped(w, now); v.course == final {
		return v
	}
	if s.begin(w); w.broken != nil {
		w.ends = w.returned
		return verdict{course: failed, failure: w.broken}
	}
	var due time.Time
	if wanted := d.message.Attributes[contract.AttrDeliverAt]; wanted != "" && !w.returned {
		// A message that comes back has waited for it already.
		if at, err := time.Parse(time.RFC3339Nano, wanted); err == nil && at.After(now) {
			due = at
		}
	}
	if w.name.OrderingKey == "" && due.IsZero() {
		return verdict{course: ready}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	// The lane is read where messages wait as a rule, and for a message that comes back from it. Elsewhere lanes are
	// rare, and one read tells for the whole queue that there is none.
	looks := q.waits || w.returned || !due.IsZero()
	if !looks {
		calm, err := q.calm.Get(ctx, "", func(ctx context.Context) (bool, time.Duration, error) {
			ctx, cancel := context.WithTimeout(ctx, bookkeeping)
			defer cancel()
			calm, err := lane.Calm(ctx, s.config.Store, q.ID)
			return calm, calmFor, err
		})
		if err != nil {
			return verdict{course: nacked, failure: retry.Outage("store_unavailable", err)}
		}
		looks = !calm
	}
	switch {
	case due.Sub(now) > contract.MaxAhead:
		return verdict{course: failed, failure: retry.Permanent("deliver_at_too_far", nil)}
	case looks:
		var err error
		if w.place, err = lane.Open(ctx, s.config.Store, w.name); err != nil {
			return verdict{course: nacked, failure: retry.Outage("store_unavailable", err)}
		}
		w.opened = true
		w.waits, w.due = !due.IsZero() || w.place.Behind(d.message), due
		w.ends = !w.waits
	}
	return verdict{course: ready}
}

// unexplained is how many deliveries of an event may have left no trace, by the broker's count, before its attempts are
// counted before they run: its workers seem to have died in them.
const unexplained = 3

// claim is the third step, and the first that reads the event's record. A message that has to wait is postponed, unless
// its event was handled before or is kept already. The event of a leased handler is claimed. That of a Tx handler is read
// only where it was delivered before.
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
