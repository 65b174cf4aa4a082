package serve

import "sync/atomic"

// Budget bounds the bytes that the bodies of all requests in flight hold together.
type Budget struct {
	bytes int64
	held  atomic.Int64
}

// NewBudget returns a budget of so many bytes.
func NewBudget(bytes int64) *Budget { return &Budget{bytes: bytes} }

// Claim takes bytes, or none where fewer are left, and reports whether it took them.
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

// Release gives back what was claimed.
func (b *Budget) Release(bytes int64) { b.held.Add(-bytes) }

// Held is how many bytes are claimed now.
func (b *Budget) Held() int64 { return b.held.Load() }
