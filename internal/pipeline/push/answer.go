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

	next next
	// quiet: the message is acknowledged, also where its queue rejects.
	quiet bool
	// result is the handler's code for what was done, now or before.
	result string
	// cause says more about a failure, for the log.
	cause string
}

// next is what is done before an answer is sent, or in its place.
type next struct {
	// resume is when the attempt after this one is made in the same request; zero: it is not.
	resume time.Time
	// due is when a message that is kept is to be released; zero: no release is needed.
	due time.Time
	// hold: its lane is new, and may be unknown to an instance for noneWaitFor. So long the acknowledgement waits, and the
	// broker holds back later messages of the key.
	hold bool
}

// httpStatus is the one place where an outcome becomes an HTTP status. Only 200 and 204 acknowledge: Google's emulator
// nacks 202, production nacks 203. A rejection beyond the queue's budget of nacks is acknowledged: its dead letter is
// confirmed either way.
func (reply answer) httpStatus(q *queue, now time.Time) int {
	switch reply.Outcome {
	case retry.Processed:
		return http.StatusOK
	case retry.Duplicate, retry.Expired, retry.Dropped, retry.Superseded:
		if reply.Ref != "" {
			return http.StatusOK // an answer of 204 has no body to say it in
		}
		return http.StatusNoContent
	case retry.DeadLettered:
		if q.OnTerminal == catalog.Reject && !reply.quiet && q.nacks.AllowN(now, 1) {
			return reply.Status
		}
		return http.StatusOK
	case retry.Retry:
		if reply.Delayed {
			return http.StatusOK
		}
		return reply.Status
	}
	return http.StatusInternalServerError
}

// again answers that the message is to be delivered again.
func (f finding) again() answer {
	reply := answer{Outcome: retry.Retry, Status: int(f.means.Class), Reason: f.means.Reason, cause: cause(f.failure)}
	if f.state == unanswered || (f.state == failed && f.means.Counts) {
		reply.Attempt = f.attempt
	}
	return reply
}

// read turns a look at the record into the answer, or into why the message is not handled.
func (s *Service) read(a *attempt, seen dedupe.Seen) finding {
	if a.run.Lost(seen) {
		seen = dedupe.Held // by another worker, or waiting for its next delivery
	}
	reply := answer{Outcome: retry.Duplicate, Status: http.StatusNoContent}
	switch seen {
	case dedupe.Own:
		reply = answer{Outcome: retry.Processed, Status: http.StatusOK, Reason: a.run.Result(), Attempt: a.run.Attempt(), Ref: a.run.Ref(), result: a.run.Result()}
		if a.run.superseded {
			reply.Outcome, reply.Status = retry.Superseded, http.StatusNoContent
		}
	case dedupe.Done:
		reply.Reason, reply.result, reply.Ref = processedBefore, a.run.Result(), a.run.Ref()
	case dedupe.Gone:
		reply.Reason = deadLetteredBefore
	case dedupe.Replaced:
		reply.Reason = correctedBefore
	case dedupe.Waiting:
		// By a copy whose acknowledgement did not arrive: what comes behind it may come at once.
		reply.Reason, reply.next.hold = "delayed_before", a.mayMissLane
	case dedupe.Differs:
		// Under a record of its own, so that its redelivery is known and acked.
		a.run.Run = a.run.Conflict()
		return found(failed, retry.Conflicting("payload_conflict", nil))
	case dedupe.Early:
		f := found(early, retry.Busy("not_due", nil))
		f.due = a.run.Due()
		return f
	case dedupe.Held:
		f := found(held, retry.Busy("lease_held", nil))
		f.due = a.run.Due()
		return f
	default:
		return found(held, retry.Busy("undecided", nil))
	}
	return final(reply)
}

// leave is the last step. It settles a replay that has ended without a commit. It publishes the emissions before the
// answer, so that they come before those of a next event of the key; the relay publishes what cannot be published now.
// Then it removes the message's lane, if that was its last: while a lane is left, each event of its queue costs a read.
func (s *Service) leave(ctx context.Context, a *attempt, reply answer) answer {
	if err := s.settleReplay(ctx, a, reply); err != nil {
		s.warn(ctx, "end of a replay not written", a)
		return found(unanswered, err).again() // the redelivery comes by here again
	}
	ends := a.position.ends && !reply.Delayed && a.lane.OrderingKey != "" && (a.broken == nil || reply.Outcome != retry.Retry)
	if len(a.run.emitted.Lanes) == 0 && !ends {
		return reply
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	for _, id := range a.run.emitted.Lanes {
		if _, err := s.config.Outbox.Lane(ctx, id); err != nil {
			s.warn(ctx, "outbox left to the relay", a, slog.String("lane", id), slog.String("cause", cause(err)))
		}
	}
	if !ends {
		return reply
	}
	place, err := a.position.lane, error(nil)
	if !a.position.read {
		place, err = lane.Open(ctx, s.config.Store, a.lane)
	}
	if last, over := place.Over(a.message); err == nil && over {
		_, err = s.config.Store.Commit(ctx, []store.Write{last})
	}
	// Where this fails, the next message of the key takes the longer way, and ends it.
	if err != nil && !errors.Is(err, store.ErrStale) {
		s.warn(ctx, "lane not removed", a)
	}
	return reply
}
