// Package retry owns what an error means and when to try again: the outcomes that every log line, metric,
// record and answer uses, the marks of errors, the one function that turns an error into a verdict, and the
// waiting policies. It is pure functions alone; the caller brings the moment and the dice.
package retry

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"billhook/internal/pii"
)

// Outcome is what became of a delivery.
type Outcome string

// The outcomes, everywhere: Go, logs, metrics, dead-letter attributes, pages.
const (
	Processed    Outcome = "processed"     // its effect took place
	Duplicate    Outcome = "duplicate"     // it came before, and nothing was done
	Expired      Outcome = "expired"       // it was too old, and nothing was done
	Dropped      Outcome = "dropped"       // its queue does not take it, or keeps no dead letters
	Superseded   Outcome = "superseded"    // what it is about had gone further, and nothing was done
	DeadLettered Outcome = "dead_lettered" // it waits for a person
	Retry        Outcome = "retry"         // it is tried again
)

// Class is why a delivery ended as it did: the code of the table in docs/reference/answers.md, which borrows
// HTTP's numbers.
type Class int

// The classes of failure. The first three are terminal, the others transient.
const (
	Malformed   Class = 400 // the message cannot be read, or names what does not exist
	Conflict    Class = 409 // the id was used before, with another payload
	Rejected    Class = 422 // the contract is broken, the handler refuses, or the attempts are used up
	Failed      Class = 500 // the handler failed
	Unavailable Class = 503 // a dependency is down, or there is no room now
	TimedOut    Class = 504 // the deadline passed
)

// Terminal reports whether trying again cannot help.
func (c Class) Terminal() bool { return c < 500 }

var classes = []Class{Malformed, Conflict, Rejected, Failed, Unavailable, TimedOut}

// Verdict is what an error means.
type Verdict struct {
	Class Class
	// Reason is a code: lower case, words joined by underscores.
	Reason string
	// Counts reports whether the failure uses up one of the message's attempts.
	Counts bool
	// Scope is what else the failure is about.
	Scope Scope
}

// Scope is what a failure is about beside the one message that met it.
type Scope int

// The scopes of a failure.
const (
	// OneMessage: other messages may well succeed.
	OneMessage Scope = iota
	// EveryMessage: what failed is shared by all messages, such as the database.
	EveryMessage
	// OtherEvent: the message has to wait for what another event brings, or for its time, and others go before
	// it.
	OtherEvent
)

// An Error carries a verdict with its cause. Its text is that of both, and holds no payload value.
type Error struct {
	Verdict Verdict
	// Subjects are the ids of what the verdict is about; see BadRequest.
	Subjects []string
	Err      error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return e.Verdict.Reason
	}
	return e.Verdict.Reason + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Permanent marks an error that trying again cannot mend. cause may be nil.
func Permanent(reason string, cause error) error {
	return &Error{Verdict: Verdict{Class: Rejected, Reason: reason, Counts: true}, Err: cause}
}

// Unreadable marks a message that cannot be decoded. cause may be nil.
func Unreadable(reason string, cause error) error {
	return &Error{Verdict: Verdict{Class: Malformed, Reason: reason, Counts: true}, Err: cause}
}

// Conflicting marks an id that was used before with another payload. cause may be nil.
func Conflicting(reason string, cause error) error {
	return &Error{Verdict: Verdict{Class: Conflict, Reason: reason, Counts: true}, Err: cause}
}

// Transient marks a failure of the handler that has a name. cause may be nil.
func Transient(reason string, cause error) error {
	return &Error{Verdict: Verdict{Class: Failed, Reason: reason, Counts: true}, Err: cause}
}

// Down marks a dependency that did not answer. cause may be nil.
func Down(reason string, cause error) error {
	return &Error{Verdict: Verdict{Class: Unavailable, Reason: reason, Counts: true}, Err: cause}
}

// Outage marks a failure of what every message needs, such as the database. It is no attempt. cause may be
// nil.
func Outage(reason string, cause error) error {
	return &Error{Verdict: Verdict{Class: Unavailable, Reason: reason, Scope: EveryMessage}, Err: cause}
}

// Missing marks what fails until another event has been handled. It counts as an attempt. cause may be nil.
func Missing(reason string, cause error) error {
	return &Error{Verdict: Verdict{Class: Failed, Reason: reason, Counts: true, Scope: OtherEvent}, Err: cause}
}

// Busy marks what is no fault of the message, such as a full queue. It is no attempt. cause may be nil.
func Busy(reason string, cause error) error {
	return &Error{Verdict: Verdict{Class: Unavailable, Reason: reason}, Err: cause}
}

// Early marks what came a wait before its time. It is no attempt, and holds up nothing behind it. cause may
// be nil.
func Early(reason string, wait time.Duration, cause error) error {
	return After(wait,
		&Error{Verdict: Verdict{Class: Unavailable, Reason: reason, Scope: OtherEvent}, Err: cause})
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

// HTTPStatus is the meaning of the status of a called service: nil for 2xx, else a marked error that names
// it.
func HTTPStatus(status int) error {
	code := strconv.Itoa(status)
	switch {
	case status >= 200 && status < 300:
		return nil
	case status == 401 || status == 403 || status == 407:
		// Our setup is wrong, which is no message's fault: as a refusal, one bad rollout would dead-letter all
		// there is.
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

// MaxAfter is the longest wait that a called service may ask for.
const MaxAfter = 24 * time.Hour

type noted struct {
	error
	wait time.Duration
	said string
}

func (e noted) Unwrap() error { return e.error }

// After adds to a failure that its callee asks not to be called before wait has passed, MaxAfter at most; nil
// stays nil.
func After(wait time.Duration, failure error) error {
	if failure == nil || wait <= 0 {
		return failure
	}
	return noted{error: failure, wait: min(wait, MaxAfter), said: Said(failure)}
}

func noteOf(failure error) (found noted) {
	_ = errors.As(failure, &found) // else it is zero
	return found
}

// Asked returns the wait that an error's callee has asked for; 0 if none.
func Asked(failure error) time.Duration { return noteOf(failure).wait }

// Says adds to a failure what its callee says of it, for dead letter and log: nothing personal. nil stays
// nil.
func Says(said string, failure error) error {
	if failure == nil || said == "" {
		return failure
	}
	return noted{error: failure, wait: Asked(failure), said: said}
}

// Said returns what an error's callee says of it; empty where it says nothing.
func Said(failure error) string { return noteOf(failure).said }

// Exhausted is a failure of a message whose attempts are used up. Its reason and its scope stay those of the
// failure.
func Exhausted(means Verdict, failure error) error {
	last := &Error{Verdict: Verdict{Class: Rejected, Reason: "attempts_exhausted", Counts: true}}
	return Says(Said(failure), &Error{
		Verdict: Verdict{Class: Rejected, Reason: means.Reason, Counts: true, Scope: means.Scope}, Err: last,
	})
}

// MaxSubjects is how many subjects a verdict names at most.
const MaxSubjects = 5

// BadRequest marks a message that names what does not exist: the subjects, of which MaxSubjects ids are kept
// at most.
func BadRequest(reason string, cause error, subjects ...string) error {
	named := slices.DeleteFunc(slices.Clone(subjects), func(subject string) bool {
		return !pii.ID.Valid(subject)
	})
	return &Error{
		Verdict:  Verdict{Class: Malformed, Reason: reason, Counts: true},
		Subjects: named[:min(len(named), MaxSubjects)], Err: cause,
	}
}
