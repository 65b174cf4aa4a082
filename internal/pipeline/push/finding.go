package push

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/retry"
)

// state is where a step leaves an attempt: it goes on, it is answered, or why its message is not handled now.
type state string

const (
	goesOn   state = "" // after its settling: from the beginning
	answered state = "it is answered"
	recorded state = "its record says what becomes of it"

	unanswered state = "the store did not answer, or the handler does not return"
	uncertain  state = "its effect may have been committed"
	waiting    state = "it comes behind another of its key, or before its time of delivery"
	early      state = "its next attempt is not due yet"
	held       state = "another worker has it"
	failed     state = "it failed"
)

// finding is what a step has found of the message.
type finding struct {
	state   state
	failure error
	means   retry.Verdict // what the failure means here
	attempt int           // which of the event's attempts has failed; 0: none
	due     time.Time     // when the message may be tried again, as far as known
	then    disposition
	seen    dedupe.Seen  // what is recorded
	emitted lane.Emitted // what was committed with that
	answer  answer
}

// found is a failure that means what its error says.
func found(state state, failure error) finding {
	return finding{state: state, failure: failure, means: retry.Decide(failure)}
}

func storeDown(err error) finding { return found(unanswered, retry.Outage("store_unavailable", err)) }

func records(seen dedupe.Seen) finding { return finding{state: recorded, seen: seen} }

func final(reply answer) finding { return finding{state: answered, answer: reply} }

func (f finding) dueAt(due time.Time) finding { f.due = due; return f }

// unperformed is what a failure of the handler means or, where unknown, of the commit. over: time or caller
// are gone.
func (d *delivery) unperformed(ctx context.Context, attempt int, err, over error, unknown bool) finding {
	f := found(failed, err)
	f.attempt = attempt
	if over != nil && !f.means.Class.Terminal() && (!d.leased() || !unknown) {
		f.means = retry.Decide(over) // whatever error the handler or the store returned
	}
	one := f.means.Scope == retry.OneMessage
	switch {
	case d.leased() && errors.Is(err, errAbandoned):
		// It still runs and cannot be stopped: no other attempt while the lease stands.
		d.log.LogAttrs(ctx, slog.LevelError, "handler does not return")
		f.state = unanswered
	case d.leased() && unknown && !f.means.Class.Terminal() && (f.means.Counts || !one):
		f.state = unanswered // the lease stands, and then Reconcile is asked
	case d.leased(), f.means.Class.Terminal(), f.means.Counts, f.means.Scope == retry.OtherEvent:
	case over != nil, !one:
		f.state = uncertain
	default:
		f.state = held
	}
	return f
}

// Reasons of duplicates.
const (
	processedBefore    = "processed_before"
	deadLetteredBefore = "dead_lettered_before"
	correctedBefore    = "corrected_before" // another payload has taken the place of its own
)

// again answers that the message is to be delivered again.
func (f finding) again() answer {
	reply := answer{Outcome: retry.Retry, Status: int(f.means.Class), Reason: f.means.Reason}
	reply.cause = cause(f.failure)
	if f.state == unanswered || (f.state == failed && f.means.Counts) {
		reply.Attempt = f.attempt
	}
	return reply
}

// read turns what a record says into the answer, or into why the message is not handled.
func (d *delivery) read(run *dedupe.Run, f finding) finding {
	reply := answer{Outcome: retry.Duplicate, Status: http.StatusNoContent}
	switch f.seen {
	case dedupe.Own:
		reply.Outcome, reply.Status = retry.Processed, http.StatusOK
		if run.Superseded() {
			reply.Outcome, reply.Status = retry.Superseded, http.StatusNoContent
		}
		reply.Reason, reply.result, reply.Ref, reply.Attempt = run.Result(), run.Result(), run.Ref(), run.Attempt()
		reply.next.due, reply.next.relay = f.emitted.Due, f.emitted.Lanes
	case dedupe.Done:
		reply.Reason, reply.result, reply.Ref = processedBefore, run.Result(), run.Ref()
	case dedupe.Gone:
		reply.Reason = deadLetteredBefore
		// Else the replay's own death is on its way.
		reply.next.reopen = d.broken == nil && !run.Buried(d.message.Attributes[deadletter.AttrReplayOf])
	case dedupe.Replaced:
		reply.Reason = correctedBefore
	case dedupe.Waiting:
		// By a copy whose acknowledgement did not arrive: what comes behind it may come at once.
		reply.Reason, reply.next.hold = "delayed_before", d.mayMissLane()
	case dedupe.Differs:
		// Under a record of its own, so that its redelivery is known and acked.
		run.Conflict()
		return found(failed, retry.Conflicting("payload_conflict", nil))
	case dedupe.Early:
		return found(early, retry.Busy("not_due", nil)).dueAt(run.Due())
	default: // by another worker, or waiting for its next delivery
		return found(held, retry.Busy("lease_held", nil)).dueAt(run.Due())
	}
	return final(reply)
}
