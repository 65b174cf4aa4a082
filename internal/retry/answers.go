package retry

import (
	"errors"
	"strconv"
	"time"
)

// The reasons that HTTPStatus gives are about the called service.
const (
	calleeUnauthorized = "callee_unauthorized"
	calleeBusy         = "callee_busy"
	calleeRedirects    = "callee_redirects"
	calleeRefused      = "callee_refused"
	calleeFailed       = "callee_failed"
	calleeUnclear      = "callee_unclear"
)

// HTTPStatus is what a status means that a called service has answered with: nil for
// 2xx, else a marked error whose reason names what happened and the status. Nothing
// else of an answer is ever repeated.
func HTTPStatus(status int) error {
	code := "_" + strconv.Itoa(status)
	switch {
	case status >= 200 && status < 300:
		return nil
	case status == 401 || status == 403 || status == 407:
		// Our secret, clock or proxy is set up wrongly, which is no message's fault: as a
		// refusal, one bad rollout would dead-letter all there is.
		return Down(calleeUnauthorized+code, nil)
	case status == 408 || status == 425 || status == 429:
		return Down(calleeBusy+code, nil)
	case status >= 300 && status < 400:
		return Permanent(calleeRedirects+code, nil)
	case status >= 400 && status < 500:
		return Permanent(calleeRefused+code, nil)
	case status >= 500 && status < 600:
		return Transient(calleeFailed+code, nil)
	default:
		return Transient(calleeUnclear+code, nil)
	}
}

// Panicked is what a panic of a handler means: a failure like any other, since the
// next attempt may find other circumstances. The value is not kept; it may hold anything.
func Panicked() error { return Transient("handler_panic", nil) }

// MaxAfter is the longest wait that a called service may ask for.
const MaxAfter = 24 * time.Hour

type afterError struct {
	error
	wait time.Duration
}

func (e afterError) Unwrap() error { return e.error }

// After adds to a failure that its callee asks not to be called again before wait has
// passed, MaxAfter at most. What the failure means stays as it is; nil stays nil.
func After(wait time.Duration, failure error) error {
	if failure == nil || wait <= 0 {
		return failure
	}
	return afterError{failure, min(wait, MaxAfter)}
}

// Asked returns the wait that an error's callee has asked for; 0 if none.
func Asked(failure error) time.Duration {
	var after afterError
	if errors.As(failure, &after) {
		return after.wait
	}
	return 0
}
