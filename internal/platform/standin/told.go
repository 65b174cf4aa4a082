package standin

import (
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"

	"billhook/internal/platform/serve"
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

// tell adds an order after those of earlier calls.
func (o *orders[M]) tell(lock sync.Locker, mode M, times int, id string, known []M) error {
	if !slices.Contains(known, mode) {
		return fmt.Errorf("standin: it can be told one of %v", known)
	}
	if times < 1 || times > maxTimes {
		return fmt.Errorf("standin: times must be 1 to %d", maxTimes)
	}
	lock.Lock()
	defer lock.Unlock()
	*o = append(*o, toldOrder[M]{mode, times, id})
	return nil
}

// toldBy answers a person who tells a stand-in something: tell does what was read into given.
func toldBy(w http.ResponseWriter, r *http.Request, given any, send string, tell func() error) {
	if err := json.UnmarshalRead(http.MaxBytesReader(w, r.Body, 1<<10), given, json.RejectUnknownMembers(true)); err != nil {
		serve.Refuse(http.StatusBadRequest, "malformed", send).Write(w)
		return
	}
	if err := tell(); err != nil {
		serve.Refuse(http.StatusUnprocessableEntity, "told", err.Error()).Write(w)
		return
	}
	w.WriteHeader(http.StatusNoContent)
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
