package serve

import (
	"errors"
	"io"
	"net/http"

	"golang.org/x/sync/semaphore"
)

// DefaultBodyBudget is a quarter of an instance's memory: a body exists at most four times.
const DefaultBodyBudget = 128 << 20

const leastBody = 4 << 10

// The errors of Body.Read. Any other is the sender's.
var (
	// ErrNoRoom: the bodies in flight use the whole budget. The sender can try again soon.
	ErrNoRoom = errors.New("serve: no room for another body")
	// ErrTooLarge: the body is larger than the limit.
	ErrTooLarge = errors.New("serve: body too large")
)

// Body is the body of a request. Its memory is claimed from a budget of bytes before it is allocated.
// The zero value is ready to use. After Release it can be read into again.
type Body struct {
	bytes   []byte
	claimed int64
}

// Bytes returns the body.
func (b *Body) Bytes() []byte { return b.bytes }

// Read reads a body of at most limit bytes, and claims memory as they arrive, up to twice the limit while a buffer
// grows: what is announced claims nothing. The error is ErrNoRoom, ErrTooLarge or the sender's. Release must follow.
func (b *Body) Read(w http.ResponseWriter, r *http.Request, limit int64, budget *semaphore.Weighted) error {
	most := limit
	if r.ContentLength > limit {
		return ErrTooLarge
	}
	if r.ContentLength >= 0 {
		most = r.ContentLength
	}
	b.bytes = b.bytes[:0]
	if !b.claim(budget, int64(cap(b.bytes))) {
		return ErrNoRoom
	}
	limited := http.MaxBytesReader(w, r.Body, limit)
	for {
		if len(b.bytes) == cap(b.bytes) && !b.grow(most, budget) {
			return ErrNoRoom
		}
		n, err := limited.Read(b.bytes[len(b.bytes):cap(b.bytes)])
		b.bytes = b.bytes[:len(b.bytes)+n]
		if errors.Is(err, io.EOF) {
			return nil
		}
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			return ErrTooLarge
		}
		if err != nil {
			return err
		}
	}
}

// grow doubles the buffer, up to the largest possible body plus the byte that is needed to read the end.
func (b *Body) grow(most int64, budget *semaphore.Weighted) bool {
	old := int64(cap(b.bytes))
	size := 2 * old
	if most >= old {
		size = min(size, most+1)
	}
	size = max(size, leastBody)
	if !b.claim(budget, size) {
		return false
	}
	b.bytes = append(make([]byte, 0, size), b.bytes...)
	budget.Release(old)
	b.claimed -= old
	return true
}

func (b *Body) claim(budget *semaphore.Weighted, bytes int64) bool {
	if !budget.TryAcquire(bytes) {
		return false
	}
	b.claimed += bytes
	return true
}

// Release releases the claim. It leaves a buffer of more than keep bytes to the garbage
// collector and keeps a smaller one for the next Read.
func (b *Body) Release(budget *semaphore.Weighted, keep int) {
	budget.Release(b.claimed)
	b.claimed = 0
	if cap(b.bytes) > keep {
		b.bytes = nil
	}
}
