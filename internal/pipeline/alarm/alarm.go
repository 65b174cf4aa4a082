// Package alarm owns the times at which kept messages are released: the set of requested times,
// and a timer that makes one call at each. It does not know what is released, and never waits
// for a call.
package alarm

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Step is the distance between moments. One call releases everything that is due within a step.
const Step = 250 * time.Millisecond

// Moment rounds a time up to the next moment.
func Moment(at time.Time) time.Time {
	moment := at.UTC().Truncate(Step)
	if moment.Before(at) {
		moment = moment.Add(Step)
	}
	return moment
}

// MaxMoments bounds a set. It is enough for every moment of an hour.
const MaxMoments = 1 << 14

// Moments is the set of requested moments that are still to come. The zero value is ready to use.
// It is not safe for concurrent use.
type Moments struct {
	// micros are the moments in microseconds since 1970, in order.
	micros []int64
}

// Has reports whether a moment is in the set.
func (a *Moments) Has(moment time.Time) bool {
	_, found := slices.BinarySearch(a.micros, moment.UnixMicro())
	return found
}

// Add adds a moment. It reports false where the set is full; the moment is then not in it.
func (a *Moments) Add(moment time.Time) bool {
	at, found := slices.BinarySearch(a.micros, moment.UnixMicro())
	if found {
		return true
	}
	if len(a.micros) >= MaxMoments {
		return false
	}
	a.micros = slices.Insert(a.micros, at, moment.UnixMicro())
	return true
}

// Past removes the moments that are not after now. It reports whether there were any.
func (a *Moments) Past(now time.Time) bool {
	// BinarySearch finds the first moment that is not before now. A moment in the same
	// microsecond as now is not after it, since moments are whole microseconds.
	count, found := slices.BinarySearch(a.micros, now.UnixMicro())
	if found {
		count++
	}
	a.micros = slices.Delete(a.micros, 0, count)
	return count > 0
}

// First returns the earliest moment. ok is false where the set is empty.
func (a *Moments) First() (moment time.Time, ok bool) {
	if len(a.micros) == 0 {
		return time.Time{}, false
	}
	return time.UnixMicro(a.micros[0]).UTC(), true
}

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
	// Call is called at each moment. Calls do not overlap: everything that becomes due during a
	// call gets one call after it. ctx ends with the Timer.
	Call func(ctx context.Context)
	Now  func() time.Time
	// AfterFunc has f called when d has passed, and does not call it itself. stop
	// prevents a call that has not been made yet. It may be called more than once.
	AfterFunc func(d time.Duration, f func()) (stop func())
}

// Timer is the alarm of one process and ends with it. It has no goroutine of its own, and at
// most one running timer. It is safe for concurrent use.
type Timer struct {
	config Config
	ctx    context.Context
	cancel context.CancelFunc

	mu        sync.Mutex
	requested Moments
	// last is the start of the last call. A moment that is not after it is over.
	last time.Time
	// stop ends the timer that runs until armed. It is nil where no timer runs.
	stop    func()
	armed   time.Time
	calling bool
	closed  bool
}

// NewTimer returns a Timer without any moment.
func NewTimer(config Config) *Timer {
	t := &Timer{config: config}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// At requests a call at the next moment from the given time on, or from now on where that is
// later. The call sees what was committed before At. A moment is requested once, however often
// At names it. The error is ErrClosed or ErrFull.
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
	if !moment.After(t.last) { // the call of that moment may have read before the caller's commit
		moment = Moment(t.last.Add(time.Microsecond))
	}
	if !t.requested.Add(moment) {
		return ErrFull
	}
	t.arm()
	return nil
}

// arm sets the timer for the earliest moment. During a call no timer runs; the end of the call
// sets it.
func (t *Timer) arm() {
	first, ok := t.requested.First()
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

func (t *Timer) ring() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calling { // the timer fired before it could be stopped
		return
	}
	t.disarm()
	for !t.closed {
		now := t.config.Now()
		if !t.requested.Past(now) {
			break
		}
		t.last = now
		t.call()
	}
	t.arm()
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
	t.closed = true
	t.disarm()
	t.cancel()
}
