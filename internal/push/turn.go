package push

import (
	"context"
	"net/http"
	"time"

	"billhook/internal/contract"
	"billhook/internal/lane"
	"billhook/internal/retry"
)

// maxAhead is how far ahead a time of delivery may lie.
const maxAhead = 30 * 24 * time.Hour

// turn is the second step. It drops what is not for the queue or too old. It finds whether it
// is the message's turn: not before its time of delivery, and not before one of its key that
// waits.
func (s *Service) turn(ctx context.Context, w *attempt) verdict {
	q, d, now := w.queue, &w.delivery, s.config.Now()
	w.waits, w.opened, w.ends, w.until = false, false, false, time.Time{}
	w.frees = w.parks && w.replayed
	switch {
	case !q.binding.Match(d.message.Attributes):
		// The broker's filter, which an emulator does not apply.
		return verdict{course: final, answer: answer{Outcome: retry.Dropped, Status: http.StatusNoContent, Reason: "not_bound"}}
	case q.MessageTTL > 0 && !w.replayed && !w.published.IsZero() && now.Sub(w.published) > q.MessageTTL:
		w.ends = w.returned
		return verdict{course: final, answer: answer{Outcome: retry.Expired, Status: http.StatusNoContent, Reason: "message_ttl"}}
	}
	if s.begin(w); w.broken != nil {
		w.ends = w.returned
		return verdict{course: failed, failure: w.broken}
	}
	kept, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()

	var due time.Time
	if wished := d.message.Attributes[contract.AttrDeliverAt]; wished != "" && !w.returned {
		// A contract's time. What comes back has waited for it already.
		if at, err := time.Parse(time.RFC3339Nano, wished); err == nil && at.After(now) {
			due = at
		}
	}
	// Only its lane can tell whether one of its key waits. In a queue where messages wait by
	// policy, one always may, and what comes back has a lane. Elsewhere that is rare, and known
	// for the whole queue at once.
	looks := w.name.OrderingKey != "" && (q.waits || w.returned)
	if !looks && !w.frees && w.name.OrderingKey != "" {
		calm, err := q.calm.holds(kept, s.config.Now, func(ctx context.Context) (bool, error) {
			return lane.Calm(ctx, s.config.Store, q.ID)
		})
		if err != nil {
			return verdict{course: nacked, failure: retry.Outage("store_unavailable", err)}
		}
		looks = !calm
	}
	if !w.frees && (looks || !due.IsZero()) {
		if due.Sub(now) > maxAhead {
			return verdict{course: failed, failure: retry.Permanent("deliver_at_too_far", nil)}
		}
		var err error
		if w.place, err = lane.Open(kept, s.config.Store, w.name); err != nil {
			return verdict{course: nacked, failure: retry.Outage("store_unavailable", err)}
		}
		w.opened = true
		w.waits, w.due = !due.IsZero() || w.place.Behind(d.message), due
		w.ends = !w.waits
	}
	return verdict{course: ready}
}
