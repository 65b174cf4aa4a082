package serve

import "sync/atomic"

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
