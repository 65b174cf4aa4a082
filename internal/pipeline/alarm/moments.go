// Package alarm owns the times at which kept messages are released: the set of requested times,
// and a timer that makes one call at each. It does not know what is released, and never waits
// for a call.
package alarm

import (
	"slices"
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
