package serve

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// DefaultBodyBudget is a quarter of the memory that Terraform gives an instance, in bytes. A
// body exists at most four times: as it arrived, and in three forms that are made of it once
// its sender is known.
const DefaultBodyBudget = 128 << 20

// leastBody is the size of the first buffer, in which most bodies fit.
const leastBody = 4 << 10

// The errors of Body.Read. Any other is the sender's.
var (
	// ErrNoRoom: the bodies in flight use the whole budget. The sender can try again soon.
	ErrNoRoom = errors.New("serve: no room for another body")
	// ErrTooLarge: the body is larger than the limit.
	ErrTooLarge = errors.New("serve: body too large")
)

// Body is the body of a request. Its memory is claimed from a Budget before it is allocated.
// The zero value is ready to use. After Release it can be read into again.
type Body struct {
	bytes   []byte
	claimed int64
}

// Bytes returns the body.
func (b *Body) Bytes() []byte { return b.bytes }

// Read reads a body of at most limit bytes. It claims memory as bytes arrive: a request that
// announces a megabyte and sends nothing claims almost nothing. While a buffer grows, up to
// twice the limit is claimed. The error is ErrNoRoom, ErrTooLarge or the sender's.
// Release must follow in any case.
func (b *Body) Read(w http.ResponseWriter, r *http.Request, limit int64, budget *Budget) error {
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

// grow doubles the buffer, up to the largest possible body plus one byte, which is needed to
// read the end. During the copy both buffers are claimed.
func (b *Body) grow(most int64, budget *Budget) bool {
	old := int64(cap(b.bytes))
	size := 2 * old
	if most >= old {
		size = min(size, most+1)
	}
	size = max(size, leastBody)
	if !b.claim(budget, size) {
		return false
	}
	grown := make([]byte, len(b.bytes), size)
	copy(grown, b.bytes)
	b.bytes = grown
	budget.Release(old)
	b.claimed -= old
	return true
}

func (b *Body) claim(budget *Budget, bytes int64) bool {
	if !budget.Claim(bytes) {
		return false
	}
	b.claimed += bytes
	return true
}

// Release releases the claim. It leaves a buffer of more than keep bytes to the garbage
// collector and keeps a smaller one for the next Read.
func (b *Body) Release(budget *Budget, keep int) {
	budget.Release(b.claimed)
	b.claimed = 0
	if cap(b.bytes) > keep {
		b.bytes = nil
	}
}

// Budget bounds the bytes in the bodies of all requests in flight.
type Budget struct {
	bytes int64
	held  atomic.Int64
}

// NewBudget returns a budget of that many bytes.
func NewBudget(bytes int64) *Budget { return &Budget{bytes: bytes} }

// Claim claims bytes, or nothing if fewer are left. It reports whether it claimed them.
func (b *Budget) Claim(bytes int64) bool {
	for {
		held := b.held.Load()
		if bytes > b.bytes-held {
			return false
		}
		if b.held.CompareAndSwap(held, held+bytes) {
			return true
		}
	}
}

// Release releases claimed bytes.
func (b *Budget) Release(bytes int64) { b.held.Add(-bytes) }

// Held returns how many bytes are claimed now.
func (b *Budget) Held() int64 { return b.held.Load() }
