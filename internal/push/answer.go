package push

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/contract"
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

	// due is when a message that is kept is to be released, and hold how long its
	// acknowledgement waits; zero: not at all.
	due, hold time.Time
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

// again answers that the message is to be delivered again. attempt is 0 where the
// failure was no attempt of the event.
func again(verdict retry.Verdict, err error, attempt int) answer {
	return answer{Outcome: retry.Retry, Status: int(verdict.Class), Reason: verdict.Reason, Attempt: attempt, cause: cause(err)}
}

// detail is what a dead letter says beside its reason: the texts of our own errors,
// which hold codes, field paths and ids; never the text of a foreign one.
func detail(err error) string {
	var invalid *contract.Invalid
	if errors.As(err, &invalid) {
		return invalid.Error()
	}
	var said []string
	for first, marked := true, (*retry.Error)(nil); errors.As(err, &marked); first, err = false, marked.Err {
		if !first { // its reason stands beside it
			said = append(said, marked.Verdict.Reason)
		}
		if len(marked.Subjects) > 0 {
			said = append(said, strings.Join(marked.Subjects, " "))
		}
	}
	return strings.Join(said, ": ")
}

// cause is what the log says of a failure beside its reason: more than detail, in
// that it names the type of the error at the bottom, which may be a foreign one.
func cause(err error) string {
	if err == nil {
		return ""
	}
	root := err
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		root = inner
	}
	return strings.TrimPrefix(detail(err)+" "+fmt.Sprintf("%T", root), " ")
}

// waitedForOther reports whether a dead letter's reason is that the event waited in vain
// for another.
func waitedForOther(reason error) bool {
	for marked := (*retry.Error)(nil); errors.As(reason, &marked); reason = marked.Err {
		if marked.Verdict.Scope == retry.OtherEvent {
			return true
		}
	}
	return false
}

// workersDied reports whether a dead letter's reason is that attempts began and none ended.
func workersDied(reason error) bool {
	for marked := (*retry.Error)(nil); errors.As(reason, &marked); reason = marked.Err {
		if marked.Verdict.Reason == dedupe.Begun {
			return true
		}
	}
	return false
}
