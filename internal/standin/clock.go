package standin

import "time"

// Clock is the simulator's source of time.
type Clock interface {
	// Now returns the present time. It never goes back.
	Now() time.Time
	// AfterFunc has f called when d has passed, by a goroutine of the clock and not within
	// AfterFunc itself. stop prevents a call that has not been made yet. It may be called more
	// than once.
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
