// Package alarm calls a function at each of the times at which kept messages are to be released. It does not
// know what is released, and never waits for a call.
package alarm

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Step is the time between two moments. One call releases everything that is due within a step.
const Step = 250 * time.Millisecond

// Moment rounds a time up to the next moment.
func Moment(at time.Time) time.Time {
	moment := at.UTC().Truncate(Step)
	if moment.Before(at) {
		moment = moment.Add(Step)
	}
	return moment
}

// MaxMoments bounds how many moments are remembered: enough for every moment of an hour.
const MaxMoments = 1 << 14

var (
	// ErrClosed: the timer makes no more calls.
	ErrClosed = errors.New("alarm: closed")
	// ErrFull: too many moments are requested. Nothing was changed.
	ErrFull = errors.New("alarm: too many moments")
)

// AfterFunc is time.AfterFunc in the form that Config takes.
func AfterFunc(d time.Duration, f func()) (stop func()) {
	timer := time.AfterFunc(d, f)
	return func() { timer.Stop() }
}

// Config holds the parts of a Timer. Every field is required.
type Config struct {
	// Call is called at each moment. All moments during a call share one call after it. ctx ends with the Timer.
	Call func(ctx context.Context)
	Now  func() time.Time
	// AfterFunc calls f later, when d has passed. stop prevents that, and may be called more than once.
	AfterFunc func(d time.Duration, f func()) (stop func())
}

// Timer is the alarm of one process and ends with it. It is safe for concurrent use.
type Timer struct {
	config Config
	ctx    context.Context
	cancel context.CancelFunc

	mu sync.Mutex
	// requested has the moments to come, each with the function that stops its timer.
	requested map[time.Time]func()
	last      time.Time // the start of the last call; a moment up to it has passed
	fired     time.Time // the latest moment whose timer has fired, perhaps by a clock ahead of Now
	calling   bool
}

// NewTimer returns a Timer without any moment.
func NewTimer(config Config) *Timer {
	t := &Timer{config: config, requested: map[time.Time]func(){}}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// At requests a call at the next moment from the given time on, or from now on if that is later. The call
// sees what was committed before At. A repeated request changes nothing. The error is ErrClosed or ErrFull.
func (t *Timer) At(_ context.Context, at time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.config.Now()
	moment := Moment(latest(at, now))
	if !moment.After(t.last) { // the call of that moment may have read before the caller's commit
		moment = Moment(t.last.Add(time.Microsecond))
	}
	switch _, known := t.requested[moment]; {
	case t.ctx.Err() != nil:
		return ErrClosed
	case known:
		return nil
	case len(t.requested) == MaxMoments:
		return ErrFull
	}
	t.requested[moment] = t.config.AfterFunc(moment.Sub(now), func() { t.ring(moment) })
	return nil
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

func (t *Timer) ring(moment time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fired = latest(t.fired, moment)
	for !t.calling && t.ctx.Err() == nil && t.past() {
		t.call()
	}
}

// past removes the moments that have passed, and reports whether there were any.
func (t *Timer) past() (found bool) {
	now := latest(t.config.Now(), t.fired)
	for moment, stop := range t.requested {
		if !moment.After(now) {
			stop()
			delete(t.requested, moment)
			t.last, found = now, true
		}
	}
	return found
}

func (t *Timer) call() {
	t.calling = true
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		t.calling = false
	}()
	t.config.Call(t.ctx)
}

// Close ends the timer and cancels the context of a running call, without waiting for it.
func (t *Timer) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cancel()
	for _, stop := range t.requested {
		stop()
	}
}
