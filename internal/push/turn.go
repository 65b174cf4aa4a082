package push

import (
	"context"
	"net/http"
	"time"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/lane"
	"billhook/internal/retry"
)

// maxAhead is how far ahead a time of delivery may lie.
const maxAhead = 30 * 24 * time.Hour

// course is how an attempt goes on.
type course int

const (
	// told: by what its record was seen to say.
	told course = iota
	// ready: it is its turn, and the event is claimed or counted where it has to be.
	ready
	// nacked: the broker delivers it again, and nothing is written.
	nacked
	// busy: somebody else has to let go of it, at the time due or soon.
	busy
	// aside: it is kept, until the time due or behind those of its key.
	aside
	// early: its next attempt is due at the time due.
	early
	// failed: it is counted, or dead-lettered.
	failed
	// lost: nobody knows whether its effect was committed.
	lost
	// moved: its lane was not what it was thought to be.
	moved
	// final: it is answered.
	final
)

// verdict is what a step of an attempt has come to.
type verdict struct {
	course course
	// seen is what the record was seen to say.
	seen dedupe.Seen
	// failure is why the event is not handled, and means what that means, where it does not say
	// so itself.
	failure error
	means   retry.Verdict
	// attempt is which of the event's attempts has failed; 0: none.
	attempt int
	due     time.Time
	answer  answer
}

// turn is the second step. It drops what is not for the queue or too old. It finds whether it
// is the message's turn: not before its time of delivery, and not before one of its key that
// waits. And it claims an event whose effect is outside, and reads and counts one that was
// delivered before.
func (s *Service) turn(ctx context.Context, w *attempt) verdict {
	q, d, now := w.queue, &w.delivery, s.config.Now()
	switch {
	case !q.binding.Match(d.message.Attributes):
		// The broker's filter, which an emulator does not apply.
		return verdict{course: final, answer: answer{Outcome: retry.Dropped, Status: http.StatusNoContent, Reason: "not_bound"}}
	case q.MessageTTL > 0 && !w.replayed && !w.published.IsZero() && now.Sub(w.published) > q.MessageTTL:
		w.ends = w.returned
		return verdict{course: final, answer: answer{Outcome: retry.Expired, Status: http.StatusNoContent, Reason: "message_ttl"}}
	case w.broken != nil:
		w.ends = w.returned
		s.begin(w)
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
	w.frees = w.parks && w.replayed
	// Only its lane can tell whether one of its key waits. In a queue where messages wait by
	// policy, one always may, and what comes back has a lane. Elsewhere that is rare, and known
	// for the whole queue at once.
	looks := !w.frees && w.name.OrderingKey != "" && (q.waits || w.returned)
	if !w.frees && w.name.OrderingKey != "" && !looks {
		calm, err := q.calm.holds(kept, s.config.Now, func(ctx context.Context) (bool, error) {
			return lane.Calm(ctx, s.config.Store, q.ID)
		})
		if err != nil {
			return verdict{course: nacked, failure: retry.Outage("store_unavailable", err)}
		}
		looks = !calm
	}
	waits := false
	if !w.frees && (looks || !due.IsZero()) {
		if due.Sub(now) > maxAhead {
			s.begin(w)
			return verdict{course: failed, failure: retry.Permanent("deliver_at_too_far", nil)}
		}
		var err error
		if w.place, err = lane.Open(kept, s.config.Store, w.name); err != nil {
			return verdict{course: nacked, failure: retry.Outage("store_unavailable", err)}
		}
		w.opened = true
		waits = !due.IsZero() || w.place.Behind(d.message)
		w.ends = !waits
	}
	s.begin(w)
	if waits {
		// What was handled before, or is kept already, needs no place in line; nor does what
		// corrects the dead letter that holds its key up.
		seen, err := w.run.Look(kept)
		w.frees = w.parks && w.run.Corrects()
		switch {
		case err != nil:
			return verdict{course: nacked, failure: err}
		case !w.frees && seen != dedupe.Fresh:
			return verdict{course: told, seen: seen}
		case !w.frees:
			reason := "deliver_at"
			if due.IsZero() {
				reason = "behind_delayed" // or behind a dead letter
			}
			return verdict{course: aside, failure: retry.Busy(reason, nil), due: due}
		}
	}
	return s.claim(ctx, w)
}
