package push

import (
	"context"
	"errors"
	"log/slog"

	"billhook/catalog"
	"billhook/internal/deadletter"
	"billhook/internal/dedupe"
	"billhook/internal/delayed"
	"billhook/internal/handler"
	"billhook/internal/retry"
	"billhook/internal/store"
)

// parks reports whether a dead letter of the key holds up what comes after it.
func (q *queue) parks(orderingKey string) bool {
	return q.OnPoison == catalog.Park && orderingKey != ""
}

// replayed reports whether the delivery is that of a dead letter again: it is what its
// key waits for, and waits for nobody.
func (d delivery) replayed() bool { return d.message.Attributes[deadletter.AttrReplayOf] != "" }

// park stops the lane of a dead letter's key, where its queue wants that.
func (s *Service) park(ctx context.Context, q *queue, d delivery) error {
	key := q.orderingKey(d)
	if !q.parks(key) {
		return nil
	}
	return s.steer(ctx, delayed.Name{Queue: q.ID, OrderingKey: key}, func(l delayed.Lane) (store.Write, bool) { return l.Stop(s.config.Now()) })
}

// resume handles a dead letter that is replayed, or what corrects it, and lets its key go on where that is
// done. Where it fails for good, the key stays as it is.
func (s *Service) resume(ctx context.Context, q *queue, d delivery, event handler.Event, run *dedupe.Run, name delayed.Name) answer {
	a := s.handle(ctx, q, d, event, run, name)
	switch {
	case a.Reason == correctedBefore: // what corrects it lets the key go
		return a
	case a.Outcome == retry.Processed, a.Outcome == retry.Duplicate:
	default:
		return a
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	if err := s.steer(ctx, name, func(l delayed.Lane) (store.Write, bool) { return l.Go(s.config.Now()) }); err != nil {
		// The redelivery finds the event done, and comes by here again.
		s.config.Log.LogAttrs(ctx, slog.LevelWarn, "key not released", slog.String("queue", q.ID), slog.String("event_id", event.ID))
		return again(retry.Decide(err), err, 0)
	}
	return a
}

// steer writes to a lane what the function wants of it as it is.
func (s *Service) steer(ctx context.Context, name delayed.Name, want func(delayed.Lane) (store.Write, bool)) error {
	for range counting {
		lane, err := delayed.Open(ctx, s.config.Store, name)
		if err != nil {
			return retry.Down("store_unavailable", err)
		}
		write, ok := want(lane)
		if !ok {
			return nil
		}
		switch _, err = s.config.Store.Commit(ctx, []store.Write{write}); {
		case err == nil:
			return nil
		case !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrStale):
			return retry.Down("store_unavailable", err)
		}
	}
	return retry.Busy("contention", nil)
}
