package embedded

import "time"

// Clock is the time that the simulator lives in.
type Clock interface {
	// Now is the present moment. It never goes back.
	Now() time.Time
	// AfterFunc calls f, from a goroutine of the clock and never from within
	// AfterFunc itself, when d has passed. stop prevents the call if it has not
	// been made yet, and may be called more than once.
	AfterFunc(d time.Duration, f func()) (stop func())
}

// SystemClock is the machine's own clock.
type SystemClock struct{}

var _ Clock = SystemClock{}

// Now implements Clock.
func (SystemClock) Now() time.Time { return time.Now() }

// AfterFunc implements Clock.
func (SystemClock) AfterFunc(d time.Duration, f func()) (stop func()) {
	timer := time.AfterFunc(d, f)
	return func() { timer.Stop() }
}
