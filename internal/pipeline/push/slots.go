package push

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A broker has at most some 1,000 pushes of one subscription under way (Pub/Sub documentation: push subscriptions).
const (
	maxWaiting      = 1000
	maxWaitingBytes = 64 << 20
)

// slots bounds how many messages of a queue are handled at once. Those that wait are served round their ordering keys.
type slots struct {
	mu           sync.Mutex
	free         int
	timer        Timer
	end          <-chan struct{}      // closed where every wait ends
	keys         []string             // those of which messages wait, the next first
	waiting      map[string][]*waiter // by key, the longest first
	count, bytes int                  // of all messages that wait
}

type waiter struct {
	granted chan struct{} // closed when it has its slot
	size    int
}

func newSlots(n int, timer Timer, end <-chan struct{}) *slots {
	return &slots{free: n, timer: timer, end: end, waiting: map[string][]*waiter{}}
}

// acquire reports whether it got a slot for a message of the key before end is closed, patience is over, or ctx ends.
// Where too much waits already, it fails at once.
func (s *slots) acquire(ctx context.Context, key string, size int, patience time.Duration) bool {
	s.mu.Lock()
	switch {
	case s.free > 0:
		s.free--
		s.mu.Unlock()
		return s.unlessEnded()
	case patience <= 0 || s.count == maxWaiting || s.bytes+size > maxWaitingBytes:
		s.mu.Unlock()
		return false
	}
	w := &waiter{granted: make(chan struct{}), size: size}
	if len(s.waiting[key]) == 0 {
		s.keys = append(s.keys, key)
	}
	s.waiting[key] = append(s.waiting[key], w)
	s.count++
	s.bytes += size
	s.mu.Unlock()

	late, stop := s.timer(patience)
	defer stop()
	select {
	case <-w.granted:
		return s.unlessEnded()
	case <-late:
	case <-s.end:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.granted: // while it was leaving
		s.handOver()
	default:
		s.remove(key, w)
	}
	return false
}

// unlessEnded gives the slot just taken back where the service has ended.
func (s *slots) unlessEnded() bool {
	select {
	case <-s.end:
		s.release()
		return false
	default:
		return true
	}
}

func (s *slots) remove(key string, w *waiter) {
	s.waiting[key] = slices.DeleteFunc(s.waiting[key], func(other *waiter) bool { return other == w })
	if len(s.waiting[key]) == 0 {
		delete(s.waiting, key)
		s.keys = slices.DeleteFunc(s.keys, func(other string) bool { return other == key })
	}
	s.count--
	s.bytes -= w.size
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
	key := s.keys[0]
	w := s.waiting[key][0]
	s.keys = append(s.keys[1:], key) // for its next message
	s.remove(key, w)
	close(w.granted)
}
