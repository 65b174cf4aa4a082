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
func Moment(at time.Time) time.Time { return time.UnixMicro(ceil(at)).UTC() }

// ceil is Moment in microseconds since 1970. It rounds up to a whole microsecond first.
func ceil(at time.Time) int64 {
	micros := at.UnixMicro()
	if at.Nanosecond()%int(time.Microsecond) != 0 {
		micros++
	}
	const step = int64(Step / time.Microsecond)
	rest := micros % step
	if rest < 0 {
		rest += step
	}
	if rest == 0 {
		return micros
	}
	return micros + step - rest
}

// MaxAsked is how many moments an Asked holds. It is enough for every moment of an hour.
const MaxAsked = 1 << 14

// Asked is the set of requested moments that are still to come. The zero value is ready to use.
// It is not safe for concurrent use.
type Asked struct {
	// micros are the moments in microseconds since 1970, in order.
	micros []int64
}

// Has reports whether a moment is in the set.
func (a *Asked) Has(moment time.Time) bool {
	_, found := slices.BinarySearch(a.micros, moment.UnixMicro())
	return found
}

// Add adds a moment. It reports false where the set is full; the moment is then not in it.
func (a *Asked) Add(moment time.Time) bool {
	at, found := slices.BinarySearch(a.micros, moment.UnixMicro())
	if found {
		return true
	}
	if len(a.micros) >= MaxAsked {
		return false
	}
	a.micros = slices.Insert(a.micros, at, moment.UnixMicro())
	return true
}

// Past removes the moments that are not after now. It reports whether there were any.
func (a *Asked) Past(now time.Time) bool {
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
func (a *Asked) First() (moment time.Time, ok bool) {
	if len(a.micros) == 0 {
		return time.Time{}, false
	}
	return time.UnixMicro(a.micros[0]).UTC(), true
}
