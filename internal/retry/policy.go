package retry

import (
	"math"
	"time"
)

// Policy says how long to wait before the next attempt: an explicit schedule, or
// a base that grows by a multiplier up to a cap, with jitter on top.
type Policy struct {
	Base       time.Duration
	Multiplier float64
	Max        time.Duration
	// Jitter is the most that is added at random; the sum stays within Max.
	Jitter time.Duration
	// Schedule, if not empty, is used instead: Schedule[n] is the wait before
	// attempt n+1, so the first is the wait before the first attempt. The last
	// one repeats.
	Schedule []time.Duration
}

// Wait returns how long to wait after the given failed attempt (1 is the first).
// dice, in [0,1), is the caller's randomness.
func (p Policy) Wait(failed int, dice float64) time.Duration {
	failed = max(failed, 1)
	if len(p.Schedule) > 0 {
		return p.Schedule[min(failed, len(p.Schedule)-1)]
	}
	wait := float64(p.Base) * math.Pow(max(p.Multiplier, 1), float64(failed-1))
	wait += dice * float64(p.Jitter)
	if p.Max > 0 && wait > float64(p.Max) {
		return p.Max
	}
	if wait > math.MaxInt64/2 {
		return math.MaxInt64 / 2
	}
	return time.Duration(wait)
}
