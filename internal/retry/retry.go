// Package retry owns what an error means and when to try again: the outcomes that every log line, metric,
// record and answer uses, the marks of errors, the one function that turns an error into a verdict, and the
// waiting policies. It is pure functions alone; the caller brings the moment and the dice.
package retry

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"
)

// Outcome is what became of a delivery.
type Outcome string

// The outcomes, everywhere: Go, logs, metrics, dead-letter attributes, pages.
const (
	Processed    Outcome = "processed"
	Duplicate    Outcome = "duplicate"
	Expired      Outcome = "expired"
	Dropped      Outcome = "dropped"
	Superseded   Outcome = "superseded"
	DeadLettered Outcome = "dead_lettered"
	Retry        Outcome = "retry"
)

// Class is why a delivery ended as it did: the code of the table in docs/design.md, which borrows HTTP's numbers.
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

func (c Class) known() bool {
	return slices.Contains([]Class{Malformed, Conflict, Rejected, Failed, Unavailable, TimedOut}, c)
}

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
	// OtherEvent: the message has to wait for what another event brings, or for its time, and others go before it.
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

// Outage marks a failure of what every message needs, such as the database. It is no attempt. cause may be nil.
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

// Early marks what came a wait before its time. It is no attempt, and holds up nothing behind it. cause may be nil.
func Early(reason string, wait time.Duration, cause error) error {
	return After(wait, &Error{Verdict: Verdict{Class: Unavailable, Reason: reason, Scope: OtherEvent}, Err: cause})
}

// Decide turns an error into its verdict. The outermost mark wins; an error without one is transient.
func Decide(err error) Verdict {
	var marked *Error
	switch {
	case errors.As(err, &marked) && marked.Verdict.Class.known():
		return marked.Verdict
	case errors.Is(err, context.DeadlineExceeded):
		return Verdict{Class: TimedOut, Reason: "handler_timeout", Counts: true}
	case errors.Is(err, context.Canceled):
		return Verdict{Class: Unavailable, Reason: "canceled"}
	default:
		return Verdict{Class: Failed, Reason: "handler_error", Counts: true}
	}
}

// Policy says how long to wait before the next attempt.
type Policy struct {
	Base       time.Duration
	Multiplier float64
	Max        time.Duration
	// Jitter is the most that is added at random; the sum stays within Max.
	Jitter time.Duration
	// Schedule, if not empty, is used instead: Schedule[n] is the wait before attempt n+1, and the last one repeats.
	Schedule []time.Duration
}

// Wait returns how long to wait after a failed attempt, from 1 on. dice, in [0,1), is the caller's randomness.
func (p Policy) Wait(failed int, dice float64) time.Duration {
	failed = max(failed, 1)
	if len(p.Schedule) > 0 {
		return p.Schedule[min(failed, len(p.Schedule)-1)]
	}
	longest := p.Max
	if longest <= 0 {
		longest = math.MaxInt64 / 2 // so that adding it to a time does not overflow
	}
	// The factor is finite, since 0 times infinity would be no number at all.
	factor := min(math.Pow(max(p.Multiplier, 1), float64(failed-1)), math.MaxFloat64)
	wait := float64(p.Base)*factor + dice*float64(p.Jitter)
	if wait >= float64(longest) {
		return longest
	}
	return time.Duration(wait)
}
