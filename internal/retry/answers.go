package retry

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"billhook/internal/pii"
)

// HTTPStatus is the meaning of the status of a called service: nil for 2xx, else a marked error that names it.
func HTTPStatus(status int) error {
	code := strconv.Itoa(status)
	switch {
	case status >= 200 && status < 300:
		return nil
	case status == 401 || status == 403 || status == 407:
		// Our setup is wrong, which is no message's fault: as a refusal, one bad rollout would dead-letter all there is.
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

// Panicked is what a panic of a handler means. Its value is not kept: it may hold anything.
func Panicked() error { return Transient("handler_panic", nil) }

// MaxAfter is the longest wait that a called service may ask for.
const MaxAfter = 24 * time.Hour

type noted struct {
	error
	wait time.Duration
	said string
}

func (e noted) Unwrap() error { return e.error }

// After adds to a failure that its callee asks not to be called before wait has passed, MaxAfter at most; nil stays nil.
func After(wait time.Duration, failure error) error {
	if failure == nil || wait <= 0 {
		return failure
	}
	return noted{error: failure, wait: min(wait, MaxAfter), said: Said(failure)}
}

// Asked returns the wait that an error's callee has asked for; 0 if none.
func Asked(failure error) time.Duration {
	var found noted
	_ = errors.As(failure, &found) // else it is zero
	return found.wait
}

// Says adds to a failure what its callee says of it, for dead letter and log: nothing personal. nil stays nil.
func Says(said string, failure error) error {
	if failure == nil || said == "" {
		return failure
	}
	return noted{error: failure, wait: Asked(failure), said: said}
}

// Said returns what an error's callee says of it; empty where it says nothing.
func Said(failure error) string {
	var found noted
	_ = errors.As(failure, &found) // else it is empty
	return found.said
}

const attemptsExhausted = "attempts_exhausted"

// Exhausted is a failure of a message whose attempts are used up. Its reason stays that of the failure.
func Exhausted(means Verdict, failure error) error {
	last := &Error{Verdict: Verdict{Class: Rejected, Reason: attemptsExhausted, Counts: true, Scope: means.Scope}}
	return Says(Said(failure), &Error{Verdict: Verdict{Class: Rejected, Reason: means.Reason, Counts: true}, Err: last})
}

// MaxSubjects is how many subjects a verdict names at most.
const MaxSubjects = 5

// BadRequest marks a message that names what does not exist: the subjects, of which MaxSubjects ids are kept at most.
func BadRequest(reason string, cause error, subjects ...string) error {
	named := slices.DeleteFunc(slices.Clone(subjects), func(subject string) bool { return !pii.ID.Valid(subject) })
	return &Error{
		Verdict:  Verdict{Class: Malformed, Reason: reason, Counts: true},
		Subjects: named[:min(len(named), MaxSubjects)], Err: cause,
	}
}
