package push

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"billhook/catalog"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// answer is what a delivery is answered with.
type answer struct {
	Outcome retry.Outcome `json:"outcome"`
	// Status is the class of the outcome's table, also where the HTTP status acks.
	Status  int    `json:"status"`
	Reason  string `json:"reason"`
	EventID string `json:"event_id"`
	// Attempt is which of the event's attempts this was; 0 where it was none.
	Attempt int `json:"attempt"`
	// Delayed: the message is kept for a later attempt, and the broker is done with it.
	Delayed bool `json:"delayed,omitempty"`
	// Ref is the id of what the event made, now or before, such as an entry of the books.
	Ref string `json:"ref,omitempty"`

	// due is when a message that is kept is to be released; zero: no release is needed.
	due time.Time
	// hold: its lane is new, and may be unknown to an instance for calmFor. So long the acknowledgement waits, and the
	// broker holds back later messages of the key.
	hold bool
	// resume is when the attempt after this one is made in the same request; zero: it is not.
	resume time.Time
	// quiet: the message is acknowledged, also where its queue rejects.
	quiet bool

	// result is the handler's code for what was done, now or before.
	result string
	// cause says more about a failure, for the log.
	cause string
}

// httpStatus is the one place where an outcome becomes an HTTP status. Only 200 and 204 acknowledge: Google's emulator
// nacks 202, production nacks 203. A rejection beyond the queue's budget of nacks is acknowledged: its dead letter is
// confirmed either way.
func (a answer) httpStatus(q *queue, now time.Time) int {
	switch a.Outcome {
	case retry.Processed:
		return http.StatusOK
	case retry.Duplicate, retry.Expired, retry.Dropped, retry.Superseded:
		if a.Ref != "" {
			return http.StatusOK // an answer of 204 has no body to say it in
		}
		return http.StatusNoContent
	case retry.DeadLettered:
		if q.OnTerminal == catalog.Reject && !a.quiet && q.nacks.AllowN(now, 1) {
			return a.Status
		}
		return http.StatusOK
	case retry.Retry:
		if a.Delayed {
			return http.StatusOK
		}
		return a.Status
	}
	return http.StatusInternalServerError
}

// read turns a look at the record into the answer, or into the next step.
func (s *Service) read(w *attempt, v verdict) verdict {
	if w.run.Lost(v.seen) {
		v.seen = dedupe.Held // by another worker, or waiting for its next delivery
	}
	a := answer{Outcome: retry.Duplicate, Status: http.StatusNoContent}
	switch v.seen {
	case dedupe.Own:
		a = answer{Outcome: retry.Processed, Status: http.StatusOK, Reason: w.run.Result(), Attempt: w.run.Attempt(), Ref: w.run.Ref(), result: w.run.Result()}
		if w.superseded {
			a.Outcome, a.Status = retry.Superseded, http.StatusNoContent
		}
	case dedupe.Done:
		a.Reason, a.result, a.Ref = processedBefore, w.run.Result(), w.run.Ref()
	case dedupe.Gone:
		a.Reason = deadLetteredBefore
	case dedupe.Replaced:
		a.Reason = correctedBefore
	case dedupe.Waiting:
		// By a copy whose acknowledgement did not arrive: what comes behind it may come at once.
		a.Reason, a.hold = "delayed_before", w.calms
	case dedupe.Differs:
		// Under a record of its own, so that its redelivery is known and acked.
		w.run = w.run.Conflict()
		return verdict{course: failed, failure: retry.Conflicting("payload_conflict", nil)}
	case dedupe.Early:
		return verdict{course: early, failure: retry.Busy("not_due", nil), due: w.run.Due()}
	case dedupe.Held:
		return verdict{course: busy, failure: retry.Busy("lease_held", nil), due: w.run.Due()}
	case dedupe.Fresh, dedupe.Counted, dedupe.Claimed:
		return verdict{course: busy, failure: retry.Busy("undecided", nil)}
	}
	return verdict{course: final, answer: a}
}

// leave is the last step. It settles a replay that has ended without a commit. It publishes the emissions before the
// answer, so that they come before those of a next event of the key; the relay publishes what cannot be published now.
// Then it removes the message's lane, if that was its last: while a lane is left, each event of its queue costs a read.
func (s *Service) leave(ctx context.Context, w *attempt, a answer) answer {
	if err := s.settleReplay(ctx, w, a); err != nil {
		s.config.Log.LogAttrs(ctx, slog.LevelWarn, "end of a replay not written", about(w)...)
		return again(retry.Decide(err), err) // the redelivery comes by here again
	}
	ends := w.ends && !a.Delayed && w.name.OrderingKey != "" && (w.broken == nil || a.Outcome != retry.Retry)
	if len(w.lanes) == 0 && !ends {
		return a
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	if a.Outcome == retry.Processed || a.Outcome == retry.Superseded {
		for _, id := range w.lanes {
			if _, err := s.config.Outbox.Lane(ctx, id); err != nil {
				s.config.Log.LogAttrs(ctx, slog.LevelWarn, "outbox left to the relay", about(w, slog.String("lane", id), slog.String("cause", cause(err)))...)
			}
		}
	}
	if !ends {
		return a
	}
	place, err := w.place, error(nil)
	if !w.opened {
		place, err = lane.Open(ctx, s.config.Store, w.name)
	}
	if last, over := place.Over(w.delivery.message); err == nil && over {
		_, err = s.config.Store.Commit(ctx, []store.Write{last})
	}
	// Where this fails, the next message of the key takes the longer way, and ends it.
	if err != nil && !errors.Is(err, store.ErrStale) {
		s.config.Log.LogAttrs(ctx, slog.LevelWarn, "lane not removed", about(w)...)
	}
	return a
}

// wait waits for a time, and reports whether it came before the service drains and before ctx ends.
func (s *Service) wait(ctx context.Context, at time.Time) bool {
	wait := at.Sub(s.config.Now())
	if at.IsZero() || wait <= 0 {
		return true
	}
	c, stop := s.config.Timer(wait)
	defer stop()
	select {
	case <-c:
		return true
	case <-s.ended:
	case <-ctx.Done():
	}
	return false
}
