// Package retry decides what an error means and when to retry. It owns the outcomes that every log line,
// metric, record and answer uses, the functions that mark errors, the one that turns an error into a verdict,
// and the backoff policies. All functions are pure: callers pass time and randomness.
package retry

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"billhook/internal/pii"
)

// Outcome is the result of a delivery.
type Outcome string

// The outcomes, everywhere: Go, logs, metrics, dead-letter attributes, pages.
const (
	Processed    Outcome = "processed"     // its effect took place
	Duplicate    Outcome = "duplicate"     // it was handled before, and nothing was done
	Expired      Outcome = "expired"       // it was too old, and nothing was done
	Dropped      Outcome = "dropped"       // its queue does not take it, or keeps no dead letters
	Superseded   Outcome = "superseded"    // a later event was handled before, and nothing was done
	DeadLettered Outcome = "dead_lettered" // it waits for a person
	Retry        Outcome = "retry"         // it is tried again
)

// Class is why a delivery failed: a code of docs/reference/answers.md, which borrows HTTP's numbers.
type Class int

// The classes of failure. The first three are terminal, the others transient.
const (
	Malformed   Class = 400 // the message cannot be read, or names what does not exist
	Conflict    Class = 409 // the id was used before, with another payload
	Rejected    Class = 422 // the contract is broken, the handler refuses, or the attempts are used up
	Failed      Class = 500 // the handler failed
	Unavailable Class = 503 // a dependency is down or busy
	TimedOut    Class = 504 // the deadline passed
)

// Terminal reports whether a retry cannot succeed.
func (c Class) Terminal() bool { return c < 500 }

var classes = []Class{Malformed, Conflict, Rejected, Failed, Unavailable, TimedOut}

// Verdict is the meaning of an error for its message.
type Verdict struct {
	Class  Class
	Reason string // a code: lower case, words joined by underscores
	Counts bool   // whether the failure uses up one of the message's attempts
	Scope  Scope
}

// Scope says which messages a failure concerns.
type Scope int

// The scopes of a failure.
const (
	// OneMessage: other messages may still succeed.
	OneMessage Scope = iota
	// EveryMessage: all messages need the failed dependency, such as the database.
	EveryMessage
	// OtherEvent: the message waits for another event or for its time, and later messages may overtake it.
	OtherEvent
)

// An Error is a verdict with its cause. Its text holds no payload value.
type Error struct {
	Verdict  Verdict
	Subjects []string // the ids that the verdict is about; see BadRequest
	Err      error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return e.Verdict.Reason
	}
	return e.Verdict.Reason + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Permanent marks an error that a retry cannot repair. Here and below, cause may be nil.
func Permanent(reason string, cause error) error {
	return &Error{Verdict: Verdict{Class: Rejected, Reason: reason, Counts: true}, Err: cause}
}

// Unreadable marks a message that cannot be decoded.
func Unreadable(reason string, cause error) error {
	return &Error{Verdict: Verdict{Class: Malformed, Reason: reason, Counts: true}, Err: cause}
}

// Conflicting marks an id that was used before with another payload.
func Conflicting(reason string, cause error) error {
	return &Error{Verdict: Verdict{Class: Conflict, Reason: reason, Counts: true}, Err: cause}
}

// Transient marks a failure of the handler, with the handler's reason.
func Transient(reason string, cause error) error {
	return &Error{Verdict: Verdict{Class: Failed, Reason: reason, Counts: true}, Err: cause}
}

// Down marks a dependency that did not answer.
func Down(reason string, cause error) error {
	return &Error{Verdict: Verdict{Class: Unavailable, Reason: reason, Counts: true}, Err: cause}
}

// Outage marks the failure of a shared dependency, such as the database. It does not count as an attempt.
func Outage(reason string, cause error) error {
	return &Error{Verdict: Verdict{Class: Unavailable, Reason: reason, Scope: EveryMessage}, Err: cause}
}

// Missing marks an event that fails until another event has been handled. It counts as an attempt.
func Missing(reason string, cause error) error {
	return &Error{Verdict: Verdict{Class: Failed, Reason: reason, Counts: true, Scope: OtherEvent}, Err: cause}
}

// Busy marks a state that the message did not cause, such as a full queue. It does not count as an attempt.
func Busy(reason string, cause error) error {
	return &Error{Verdict: Verdict{Class: Unavailable, Reason: reason}, Err: cause}
}

// Early marks a message that is early by this wait. It uses up no attempt, and others may overtake it.
func Early(reason string, wait time.Duration, cause error) error {
	early := Verdict{Class: Unavailable, Reason: reason, Scope: OtherEvent}
	return After(wait, &Error{Verdict: early, Err: cause})
}

// Decide turns an error into its verdict. The outermost mark wins; an error without one is transient.
func Decide(err error) Verdict {
	var marked *Error
	switch {
	case errors.As(err, &marked) && slices.Contains(classes, marked.Verdict.Class):
		return marked.Verdict
	case errors.Is(err, context.DeadlineExceeded):
		return Verdict{Class: TimedOut, Reason: "handler_timeout", Counts: true}
	case errors.Is(err, context.Canceled):
		return Verdict{Class: Unavailable, Reason: "canceled"}
	default:
		return Verdict{Class: Failed, Reason: "handler_error", Counts: true}
	}
}

// HTTPStatus returns what the status of a called service means: nil for 2xx, else a marked error.
func HTTPStatus(status int) error {
	code := strconv.Itoa(status)
	switch {
	case status >= 200 && status < 300:
		return nil
	case status == 401 || status == 403 || status == 407:
		// Our own setup is wrong. If this were permanent, one bad rollout would dead-letter every message.
		return Down("callee_unauthorized_"+code, nil)
	case status == 408:
		return &Error{Verdict: Verdict{Class: TimedOut, Reason: "callee_timeout_408", Counts: true}}
	case status == 425 || status == 429:
		return Down("callee_busy_"+code, nil)
	case status >= 300 && status < 400:
		return Permanent("callee_redirects_"+code, nil)
	case status == 410:
		return Permanent("callee_gone_410", nil)
	case status >= 400 && status < 500:
		return Permanent("callee_refused_"+code, nil)
	case status >= 500 && status < 600:
		return Transient("callee_failed_"+code, nil)
	default:
		return Transient("callee_unclear_"+code, nil)
	}
}

// MaxAfter is the longest wait that a called service may request.
const MaxAfter = 24 * time.Hour

type noted struct {
	error
	wait time.Duration
	said string
}

func (e noted) Unwrap() error { return e.error }

// After adds the called service's requested wait, at most MaxAfter, to a failure; nil stays nil.
func After(wait time.Duration, failure error) error {
	if failure == nil || wait <= 0 {
		return failure
	}
	return noted{error: failure, wait: min(wait, MaxAfter), said: Said(failure)}
}

func noteOf(failure error) (found noted) {
	_ = errors.As(failure, &found) // if there is none, found stays zero
	return found
}

// RequestedWait returns the wait that After added; 0 if none.
func RequestedWait(failure error) time.Duration { return noteOf(failure).wait }

// Says adds a called service's text, not personal, to a failure, for dead letter and log; nil stays nil.
func Says(said string, failure error) error {
	if failure == nil || said == "" {
		return failure
	}
	return noted{error: failure, wait: RequestedWait(failure), said: said}
}

// Said returns the text that Says added; empty if none.
func Said(failure error) string { return noteOf(failure).said }

// Exhausted is the failure of a message whose attempts are used up. It keeps the failure's reason and scope.
func Exhausted(means Verdict, failure error) error {
	means.Class, means.Counts = Rejected, true
	return Says(Said(failure), &Error{Verdict: means, Err: Permanent("attempts_exhausted", nil)})
}

// MaxSubjects is the most subjects of a verdict.
const MaxSubjects = 5

// BadRequest marks a message whose subjects do not exist. It keeps at most MaxSubjects valid ids.
func BadRequest(reason string, cause error, subjects ...string) error {
	named := slices.DeleteFunc(slices.Clone(subjects), func(subject string) bool {
		return !pii.ID.Valid(subject)
	})
	return &Error{
		Verdict:  Verdict{Class: Malformed, Reason: reason, Counts: true},
		Subjects: named[:min(len(named), MaxSubjects)], Err: cause,
	}
}
