// Package alarm owns when what is kept is released: which moments have been asked for,
// and a timer that makes one call at each of them. It refuses to know what is released,
// and to wait for it.
package alarm

import (
	"slices"
	"time"
)

// Step is how far moments lie apart: what is kept for about the same time is released by
// one call.
const Step = 250 * time.Millisecond

// Moment is the first moment at or after the given time.
func Moment(at time.Time) time.Time { return time.UnixMicro(ceil(at)).UTC() }

// ceil is Moment in microseconds since 1970. A part of one counts as a whole.
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

// MaxAsked is how many moments an Asked holds: those of more than an hour of which none
// is left out.
const MaxAsked = 1 << 14

// Asked is the moments that have been asked for and are still to come. The zero value is
// ready to use. It is not safe for concurrent use.
type Asked struct {
	// micros since 1970, in order.
	micros []int64
}

// Has reports whether a moment has been asked for.
func (a *Asked) Has(moment time.Time) bool {
	_, found := slices.BinarySearch(a.micros, moment.UnixMicro())
	return found
}

// Add notes a moment. It reports whether there was room: what it could not note is not
// known to have been asked for.
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

// Past forgets the moments that have come, and reports whether there were any.
func (a *Asked) Past(now time.Time) bool {
	// The first that is after now: of two times within a microsecond the moment, which is
	// a whole one, is not after.
	count, found := slices.BinarySearch(a.micros, now.UnixMicro())
	if found {
		count++
	}
	a.micros = slices.Delete(a.micros, 0, count)
	return count > 0
}

// First is the earliest moment; ok is false where there is none.
func (a *Asked) First() (moment time.Time, ok bool) {
	if len(a.micros) == 0 {
		return time.Time{}, false
	}
	return time.UnixMicro(a.micros[0]).UTC(), true
}
