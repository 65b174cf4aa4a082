package retry

import (
	"math"
	"time"
)

// Policy says how long to wait before the next attempt; the tags are the names in the catalog.
type Policy struct {
	Base       time.Duration   `json:"minimum_backoff"` // the wait before the second attempt
	Multiplier float64         `json:"multiplier"`      // of each later wait
	Max        time.Duration   `json:"maximum_backoff"` // the longest wait
	Jitter     time.Duration   `json:"jitter"`          // the most that is added at random, up to Max
	Schedule   []time.Duration `json:"schedule"`        // replaces the other fields; its last wait repeats
}

// Wait returns the wait after this number of failed attempts, from 1 on. dice is random, in [0,1).
func (p Policy) Wait(failed int, dice float64) time.Duration {
	failed = max(failed, 1)
	if len(p.Schedule) > 0 {
		return p.Schedule[min(failed, len(p.Schedule)-1)]
	}
	longest := p.Max
	if longest <= 0 {
		longest = math.MaxInt64 / 2 // so that adding it to a time does not overflow
	}
	// The factor stays finite, because 0 times infinity is not a number.
	factor := min(math.Pow(max(p.Multiplier, 1), float64(failed-1)), math.MaxFloat64)
	wait := float64(p.Base)*factor + dice*float64(p.Jitter)
	if wait >= float64(longest) {
		return longest
	}
	return time.Duration(wait)
}
