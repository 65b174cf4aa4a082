package alarm

import (
	"context"
	"errors"
	"sync"
	"time"
)

// The errors of a Timer's At.
var (
	// ErrClosed: nothing is called any more.
	ErrClosed = errors.New("alarm: closed")
	// ErrFull: too many moments have been asked for; nothing was changed.
	ErrFull = errors.New("alarm: too many moments")
)

// AfterFunc is that of the machine's own clock, as a Timer takes it.
func AfterFunc(d time.Duration, f func()) (stop func()) {
	timer := time.AfterFunc(d, f)
	return func() { timer.Stop() }
}

// Config is what a Timer is made of. Every field is required.
type Config struct {
	// Call is what is done at each moment. Calls do not overlap: what becomes due during
	// one is called for once, after it. ctx ends with the Timer.
	Call func(ctx context.Context)
	Now  func() time.Time
	// AfterFunc calls f, never from within AfterFunc itself, when d has passed. stop
	// prevents the call if it has not been made yet, and may be called more than once.
	AfterFunc func(d time.Duration, f func()) (stop func())
}

// Timer is the alarm of one process: it lasts as long as that. It has no goroutine of
// its own, and one timer running at most. It is safe for concurrent use.
type Timer struct {
	config Config
	ctx    context.Context
	cancel context.CancelFunc

	mu    sync.Mutex
	asked Asked
	// last is when the last call was begun; a moment that is not after it is over.
	last time.Time
	// stop ends the timer that runs until the moment armed; nil: none runs.
	stop    func()
	armed   time.Time
	calling bool
	closed  bool
}

// NewTimer returns a Timer that has been asked for nothing.
func NewTimer(config Config) *Timer {
	t := &Timer{config: config}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// At asks for a call at the moment at or after the given time, or after now where that is
// later. What was committed before At is seen by the call. A moment that has been asked
// for already is not asked for again. The error is ErrClosed or ErrFull.
func (t *Timer) At(_ context.Context, at time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return ErrClosed
	}
	if now := t.config.Now(); at.Before(now) {
		at = now
	}
	moment := Moment(at)
	if !moment.After(t.last) { // its call may have looked before what it is asked for was there
		moment = Moment(t.last.Add(time.Microsecond))
	}
	if !t.asked.Add(moment) {
		return ErrFull
	}
	t.arm()
	return nil
}

// arm sets the timer for the earliest moment. While a call runs there is none: its end
// sets it.
func (t *Timer) arm() {
	first, ok := t.asked.First()
	if !ok || t.calling || t.closed || (t.stop != nil && !first.Before(t.armed)) {
		return
	}
	t.disarm()
	t.armed = first
	t.stop = t.config.AfterFunc(first.Sub(t.config.Now()), t.ring)
}

func (t *Timer) disarm() {
	if t.stop != nil {
		t.stop()
		t.stop = nil
	}
}

// ring calls for what is due, until nothing is.
func (t *Timer) ring() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calling { // a timer that could not be stopped any more
		return
	}
	t.disarm()
	for !t.closed {
		now := t.config.Now()
		if !t.asked.Past(now) {
			break
		}
		t.last = now
		t.call()
	}
	t.arm()
}

// call makes one call, without the lock.
func (t *Timer) call() {
	t.calling = true
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		t.calling = false
	}()
	t.config.Call(t.ctx)
}

// Close ends the timer. It waits for nothing: the ctx of a call that runs is done.
func (t *Timer) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.disarm()
	t.cancel()
}
