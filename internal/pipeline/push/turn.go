package push

import (
	"context"
	"net/http"
	"time"

	"billhook/internal/contract"
	"billhook/internal/pipeline/lane"
	"billhook/internal/retry"
)

// calmFor is how long an instance assumes that no message of a queue waits in a lane, after it
// has read so. The first message of a new lane is acknowledged only after that time, so that
// messages behind it find its lane.
const calmFor = time.Second

// dropped is the end of a message that is not for the queue or is too old. It is the zero verdict
// for any other.
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

// turn is the second step. It drops a message that is not for the queue or is too old. It finds
// whether the message has to wait, for its time of delivery or behind others of its key.
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
	// Only the lane can tell whether a message of the key waits. The lane is read in a queue whose
	// messages wait by policy, and for a message that comes back from its lane. Elsewhere lanes
	// are rare, and one read tells for the whole queue that there is none.
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
