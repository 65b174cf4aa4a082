package serve

import (
	"errors"
	"io"
	"math/bits"
	"net/http"
	"sync"

	"golang.org/x/sync/semaphore"
)

// DefaultBodyBudget is a quarter of an instance's memory, since a body is in memory at most four times.
const DefaultBodyBudget = 128 << 20

const leastBody = 4 << 10

// spares has released buffers by the bit length of their size. Powers of two have separate pools, because a
// buffer that is taken and does not fit is lost.
var spares [2][64]sync.Pool

func spareOf(size int) *sync.Pool { return &spares[min(1, size&(size-1))][bits.Len(uint(size))] }

// The errors of Body.Read. Any other error comes from reading the sender's request.
var (
	// ErrNoRoom: the bodies in flight use the whole budget. The sender can retry soon.
	ErrNoRoom = errors.New("serve: no room for another body")
	// ErrTooLarge: the body is larger than the limit.
	ErrTooLarge = errors.New("serve: body too large")
)

// Body is the body of a request. It claims its memory from a budget of bytes before it allocates it. The zero
// value is ready to use. After Release it can be used again.
type Body struct {
	bytes   []byte
	claimed int64
}

// Bytes returns the body.
func (b *Body) Bytes() []byte { return b.bytes }

// Read reads a body of at most limit bytes. It claims memory as bytes arrive, not by Content-Length, and for
// both buffers while one grows. The error is ErrNoRoom, ErrTooLarge or the sender's. Release must follow.
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

// grow doubles the buffer, up to the largest possible body plus one byte, which is needed to see the end.
func (b *Body) grow(most int64, budget *semaphore.Weighted) bool {
	old := int64(cap(b.bytes))
	size := 2 * old
	if most >= old {
		size = min(size, most+1)
	}
	size = max(size, leastBody)
	var larger []byte
	spare, _ := spareOf(int(size)).Get().(*[]byte)
	if spare != nil && int64(cap(*spare)) >= size && int64(cap(*spare)) <= size+size/8 {
		larger = (*spare)[:0]
	}
	if !b.claim(budget, max(size, int64(cap(larger)))) {
		return false
	}
	if larger == nil {
		larger = make([]byte, 0, size)
	}
	larger = append(larger, b.bytes...)
	if old > 0 {
		put(b.bytes)
	}
	b.bytes = larger
	budget.Release(old)
	b.claimed -= old
	return true
}

func put(buffer []byte) { spareOf(cap(buffer)).Put(&buffer) }

func (b *Body) claim(budget *semaphore.Weighted, bytes int64) bool {
	if !budget.TryAcquire(bytes) {
		return false
	}
	b.claimed += bytes
	return true
}

// Release releases the claim. It keeps a buffer of up to keep bytes, and gives a larger one to the pool.
func (b *Body) Release(budget *semaphore.Weighted, keep int) {
	budget.Release(b.claimed)
	b.claimed = 0
	if cap(b.bytes) <= keep {
		return
	}
	put(b.bytes)
	b.bytes = nil
}
