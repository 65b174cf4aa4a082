// Package clocktest holds a clock that a test moves, so that tests of waiting do not wait. It
// owns nothing else. It starts no goroutine: what is due runs in the goroutine that moves the
// clock.
package clocktest

import (
	"slices"
	"sync"
	"time"
)

// Clock is a clock that a test moves. It is safe for concurrent use.
type Clock struct {
	mu     sync.Mutex
	now    time.Time
	alarms []*alarm
}

type alarm struct {
	at time.Time
	f  func()
}

// New returns a clock that shows start.
func New(start time.Time) *Clock { return &Clock{now: start} }

// Now returns the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc has f called by the Next that reaches its time.
func (c *Clock) AfterFunc(d time.Duration, f func()) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	set := &alarm{at: c.now.Add(d), f: f}
	c.alarms = append(c.alarms, set)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.alarms = slices.DeleteFunc(c.alarms, func(a *alarm) bool { return a == set })
	}
}

// Next moves the clock to the next alarm within d, runs it and returns how far the clock moved.
// Without such an alarm it moves the clock by d and reports false. Alarms of one time run in
// the order in which they were set.
func (c *Clock) Next(d time.Duration) (moved time.Duration, rang bool) {
	c.mu.Lock()
	from, due := c.now, (*alarm)(nil)
	for _, a := range c.alarms {
		if !a.at.After(from.Add(d)) && (due == nil || a.at.Before(due.at)) {
			due = a
		}
	}
	if due == nil {
		c.now = from.Add(d)
		c.mu.Unlock()
		return d, false
	}
	if due.at.After(c.now) {
		c.now = due.at
	}
	c.alarms = slices.DeleteFunc(c.alarms, func(a *alarm) bool { return a == due })
	moved = c.now.Sub(from)
	c.mu.Unlock()
	due.f()
	return moved, true
}

// Pending returns how many alarms are set.
func (c *Clock) Pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.alarms)
}
