package standin

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
)

// maxTimes bounds the times of one order, against a typing mistake.
const maxTimes = 1_000_000

// orders are what a stand-in does with its next requests in place of its work, the oldest order
// first. The lock of the stand-in is theirs too.
type orders[M ~string] []toldOrder[M]

// toldOrder is left for so many requests: of those with its id, or of any.
type toldOrder[M ~string] struct {
	mode M
	left int
	id   string
}

// checkTimes refuses a number of requests that no order is meant for.
func checkTimes(who string, times int) error {
	if times < 1 || times > maxTimes {
		return fmt.Errorf("standin: %s: times must be 1 to %d", who, maxTimes)
	}
	return nil
}

// next takes one request off the oldest order for one of its ids, or for any. It returns "" where
// there is none.
func (o *orders[M]) next(ids ...string) M {
	i := slices.IndexFunc(*o, func(t toldOrder[M]) bool { return t.id == "" || slices.Contains(ids, t.id) })
	if i < 0 {
		return ""
	}
	t := &(*o)[i]
	mode := t.mode
	if t.left--; t.left == 0 {
		*o = slices.Delete(*o, i, i+1)
	}
	return mode
}

// silence keeps requests waiting until it ends.
type silence struct {
	ended chan struct{}
	end   func()
}

func newSilence() silence {
	ended := make(chan struct{})
	return silence{ended, sync.OnceFunc(func() { close(ended) })}
}

// hang keeps a request until its sender gives up or the silence ends, and then cuts it off.
func (s silence) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-s.ended:
	}
	cut()
}

// cut ends a request without an answer. It does not return.
func cut() { panic(http.ErrAbortHandler) } // the only way to end without one
