package push

import (
	"time"

	"billhook/internal/dedupe"
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

// again answers that the message is to be delivered again.
func (f finding) again() answer {
	reply := answer{Outcome: retry.Retry, Status: int(f.means.Class), Reason: f.means.Reason}
	reply.cause = cause(f.failure)
	if f.state == unanswered || (f.state == failed && f.means.Counts) {
		reply.Attempt = f.attempt
	}
	return reply
}
