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
	case !q.Takes(d.message.Attributes):
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
	var due time.Time
	if wished := d.message.Attributes[contract.AttrDeliverAt]; wished != "" && !w.returned {
		// A contract's time. What comes back has waited for it already.
		if at, err := time.Parse(time.RFC3339Nano, wished); err == nil && at.After(now) {
			due = at
		}
	}
	if w.frees || (w.name.OrderingKey == "" && due.IsZero()) {
		return verdict{course: ready}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	// Only its lane can tell whether one of its key waits. In a queue where messages wait by
	// policy, one always may, and what comes back has a lane. Elsewhere that is rare, and known
	// for the whole queue at once.
	looks := q.waits || w.returned || !due.IsZero()
	if !looks {
		calm, err := q.calm.holds(ctx, s.config.Now, func(ctx context.Context) (bool, error) {
			return lane.Calm(ctx, s.config.Store, q.ID)
		})
		if err != nil {
			return verdict{course: nacked, failure: retry.Outage("store_unavailable", err)}
		}
		looks = !calm
	}
	switch {
	case due.Sub(now) > maxAhead:
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
