package push

import (
	"net/http"
	"time"

	"billhook/catalog"
	"billhook/internal/dedupe"
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
	// hold: its lane is new, and unknown to an instance that takes the queue for calm. The
	// acknowledgement waits for calmFor: meanwhile the broker holds back later messages of the key.
	hold bool
	// resume is when the attempt after this one is made, in the same request; zero: it is
	// not.
	resume time.Time
	// quiet: the message is acknowledged, also where its queue rejects.
	quiet bool

	// result is the handler's code for what was done, now or before.
	result string
	// cause says more about a failure, for the log.
	cause string
}

// httpStatus is the one place where an outcome becomes an HTTP status. Only 200
// and 204 acknowledge: Google's emulator nacks 202, production nacks 203.
// A rejection beyond the queue's budget of nacks is an acknowledgement: its dead letter is
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
