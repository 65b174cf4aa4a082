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
