package push

import (
	"context"
	"slices"
	"sync"
	"time"
)

// The bounds of what waits for a slot. A broker has at most some 1,000 pushes of one
// subscription under way (Pub/Sub documentation: push subscriptions, delivery rate).
const (
	maxWaiting      = 1000
	maxWaitingBytes = 64 << 20
)

// slots bounds how many messages of a queue are handled at once. A message beyond that waits its turn. Turns go round the
// ordering keys, so that a key with many messages does not hold up one with few.
type slots struct {
	mu   sync.Mutex
	free int
	// timer bounds a wait, and end is closed where every wait ends.
	timer Timer
	end   <-chan struct{}
	// keys are those of which messages wait, in the order of their turns.
	keys []string
	// waiting are the messages of a key that wait, the longest first.
	waiting map[string][]*waiter
	// count and bytes are those of all messages that wait.
	count, bytes int
}

// waiter is one message that waits. granted is closed when it has its slot.
type waiter struct {
	granted chan struct{}
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

// unlessEnded reports whether the slot just taken may be used. Where the service has ended, it is given back.
func (s *slots) unlessEnded() bool {
	select {
	case <-s.end:
		s.release()
		return false
	default:
		return true
	}
}

// remove takes a waiter of a key out, and the key with its last.
func (s *slots) remove(key string, w *waiter) {
	s.waiting[key] = slices.DeleteFunc(s.waiting[key], func(other *waiter) bool { return other == w })
	if len(s.waiting[key]) == 0 {
		delete(s.waiting, key)
		s.keys = slices.DeleteFunc(s.keys, func(other string) bool { return other == key })
	}
	s.count--
	s.bytes -= w.size
}

// release gives a slot back.
func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handOver()
}

// handOver gives a slot to the key whose turn it is, or frees it. The caller holds the lock.
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
