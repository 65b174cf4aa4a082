package standin

import (
	"context"
	"runtime"
	"time"
)

// Stats is the state of a subscription: its messages that are not acknowledged, those of them that are being
// pushed, its ordering keys in memory, how many pushes may be outstanding, and the pause after a failure.
type Stats struct {
	Backlog, Outstanding, Keys, Window int
	PushBackoff                        time.Duration
}

// Stats returns the state of a subscription.
func (s *Simulator) Stats(id string) Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.subs[id]
	return Stats{len(sub.waiting), sub.outstanding, len(sub.lanes), sub.window, sub.pushBackoff}
}

// Idle waits until no push subscription has a message left. The error is ctx's.
func (s *Simulator) Idle(ctx context.Context) error {
	return s.until(ctx, func(sub *subscription) bool { return len(sub.waiting) == 0 && sub.outstanding == 0 })
}

// Settled waits until nothing is being pushed: every message then waits for the clock or for PushTo.
func (s *Simulator) Settled(ctx context.Context) error {
	return s.until(ctx, func(sub *subscription) bool { return sub.outstanding == 0 })
}

func (s *Simulator) until(ctx context.Context, done func(*subscription) bool) error {
	for all := false; !all; runtime.Gosched() {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.mu.Lock()
		all = true
		for _, sub := range s.subs {
			all = all && done(sub)
		}
		s.mu.Unlock()
	}
	return nil
}
