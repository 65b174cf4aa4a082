package push

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// maxResumes is how many attempts follow the first in one request.
const maxResumes = 5

// leave is the last step. It settles a replay that has ended without a commit. It publishes the
// emissions before the answer, so that they come before those of a next event of the key. Emissions
// are stored already: the relay publishes what cannot be published now. Then it ends the message's
// own lane. The lane is removed after the last of its messages: while a lane is left, each
// event of its queue costs a read.
func (s *Service) leave(ctx context.Context, w *attempt, a answer) answer {
	if err := s.settleReplay(ctx, w, a); err != nil {
		s.config.Log.LogAttrs(ctx, slog.LevelWarn, "end of a replay not written", about(w)...)
		return again(retry.Decide(err), err) // the redelivery comes by here again
	}
	ends := w.ends && !a.Delayed && w.name.OrderingKey != "" && (w.broken == nil || a.Outcome != retry.Retry)
	if len(w.lanes) == 0 && !ends {
		return a
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	if a.Outcome == retry.Processed || a.Outcome == retry.Superseded {
		for _, id := range w.lanes {
			if _, err := s.config.Outbox.Lane(ctx, id); err != nil {
				s.config.Log.LogAttrs(ctx, slog.LevelWarn, "outbox left to the relay", about(w, slog.String("lane", id), slog.String("cause", cause(err)))...)
			}
		}
	}
	if !ends {
		return a
	}
	place, err := w.place, error(nil)
	if !w.opened {
		place, err = lane.Open(ctx, s.config.Store, w.name)
	}
	if last, over := place.Over(w.delivery.message); err == nil && over {
		_, err = s.config.Store.Commit(ctx, []store.Write{last})
	}
	// Where this fails, the next message of the key takes the longer way, and ends it.
	if err != nil && !errors.Is(err, store.ErrStale) {
		s.config.Log.LogAttrs(ctx, slog.LevelWarn, "lane not removed", about(w)...)
	}
	return a
}

// wait waits for a time, without a slot, and reports whether it came before the service
// drains and before ctx ends.
func (s *Service) wait(ctx context.Context, at time.Time) bool {
	wait := at.Sub(s.config.Now())
	if at.IsZero() || wait <= 0 {
		return true
	}
	c, stop := s.config.Timer(wait)
	defer stop()
	select {
	case <-c:
		return true
	case <-s.ended:
	case <-ctx.Done():
	}
	return false
}
