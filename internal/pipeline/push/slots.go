package push

import (
	"context"
	"slices"
	"sync"
	"time"

	"billhook/internal/pipeline/handler"
)

// A broker has at most about 1,000 pushes of one subscription in progress (its documentation of push).
const (
	maxWaiting      = 1000
	maxWaitingBytes = 64 << 20
)

// waits ends every wait of a service when it begins to drain.
type waits struct {
	timer handler.Timer
	ended context.Context
	drain context.CancelFunc
}

// Draining reports whether Drain was called.
func (w *waits) Draining() bool { return w.ended.Err() != nil }

// wait reports whether the time has passed before other closes, the service drains or ctx ends.
func (w *waits) wait(ctx context.Context, d time.Duration, other <-chan struct{}) bool {
	c, stop := w.timer(d)
	defer stop()
	select {
	case <-c:
		return true
	case <-other:
	case <-w.ended.Done():
	case <-ctx.Done():
	}
	return false
}

// slots bounds how many messages of a queue are handled at once. Keys of waiting messages take turns.
type slots struct {
	*waits
	mu      sync.Mutex
	free    int
	waiting []*waiter // the longest first
	bytes   int       // of the waiting messages
	keys    []string  // of the waiting messages, the next in turn first
}

type waiter struct {
	key     string
	size    int
	granted chan struct{} // closed when it has its slot
}

// acquire reports whether it got a slot for a message before the service drains, patience is over, or ctx
// ends. If too many messages wait already, it fails at once.
func (s *slots) acquire(ctx context.Context, key string, size int, patience time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.Draining():
		return false
	case s.free > 0:
		s.free--
		return true
	case patience <= 0 || len(s.waiting) == maxWaiting || s.bytes+size > maxWaitingBytes:
		return false
	}
	w := &waiter{key: key, size: size, granted: make(chan struct{})}
	if !slices.Contains(s.keys, key) {
		s.keys = append(s.keys, key)
	}
	s.waiting, s.bytes = append(s.waiting, w), s.bytes+size
	s.mu.Unlock()
	s.wait(ctx, patience, w.granted)
	s.mu.Lock()
	switch granted := !slices.Contains(s.waiting, w); {
	case !granted:
		s.remove(w)
		return false
	case s.Draining():
		s.handOver()
		return false
	}
	return true
}

func (s *slots) remove(w *waiter) {
	s.waiting = slices.DeleteFunc(s.waiting, func(other *waiter) bool { return other == w })
	s.bytes -= w.size
	if !slices.ContainsFunc(s.waiting, func(other *waiter) bool { return other.key == w.key }) {
		s.keys = slices.DeleteFunc(s.keys, func(key string) bool { return key == w.key })
	}
}

func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handOver()
}

// handOver gives a slot to the next key, or frees it. The caller holds the lock.
func (s *slots) handOver() {
	if len(s.keys) == 0 {
		s.free++
		return
	}
	next := slices.IndexFunc(s.waiting, func(w *waiter) bool { return w.key == s.keys[0] })
	w := s.waiting[next]
	s.keys = append(s.keys[1:], w.key) // for its next message
	s.remove(w)
	close(w.granted)
}
