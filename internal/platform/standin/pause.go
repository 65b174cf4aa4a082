package standin

import (
	"context"
	"fmt"
	"time"

	"billhook/catalog"
	"billhook/internal/pipeline/pause"
)

var (
	_ pause.Viewer = (*Simulator)(nil)
	_ pause.Switch = (*Simulator)(nil)
)

// Standing implements pause.Viewer. A subscription of the simulator is never undone or unmarked.
func (s *Simulator) Standing(_ context.Context, q catalog.Queue) (pause.Standing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.subs[q.PushSubscription()]
	switch {
	case sub == nil:
		return pause.Missing, nil
	case sub.paused:
		return pause.Paused, nil
	default:
		return pause.Pushing, nil
	}
}

// Pause implements pause.Switch. A push that is under way ends as ever.
func (s *Simulator) Pause(_ context.Context, q catalog.Queue, _ time.Time) error {
	return s.setPaused(q, true)
}

// Resume implements pause.Switch.
func (s *Simulator) Resume(_ context.Context, q catalog.Queue) error { return s.setPaused(q, false) }

func (s *Simulator) setPaused(q catalog.Queue, paused bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.subs[q.PushSubscription()]
	if sub == nil {
		return fmt.Errorf("standin: no subscription %s", q.PushSubscription())
	}
	sub.paused = paused
	s.note(logged{Subscription: sub.ID, Paused: &paused})
	s.dispatch(sub)
	if s.logFailed != nil {
		return fmt.Errorf("standin: keep: %w", s.logFailed)
	}
	return nil
}
