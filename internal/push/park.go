package push

import (
	"context"
	"errors"
	"log/slog"

	"billhook/catalog"
	"billhook/internal/deadletter"
	delayed "billhook/internal/lane"
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
func (s *Service) park(ctx context.Context, w *attempt) error {
	key := w.queue.orderingKey(w.delivery)
	if !w.queue.parks(key) {
		return nil
	}
	return s.changeLane(ctx, delayed.Name{Queue: w.queue.ID, OrderingKey: key}, func(l delayed.Lane) (store.Write, bool) { return l.Stop(s.config.Now()) })
}

// letsGo reports whether the key of the attempt waits for just this message: the replay of
// its dead letter, or what corrects it. It waits behind nothing, nor behind itself.
func (w *attempt) letsGo() bool {
	return w.queue.parks(w.lane.OrderingKey) && (w.delivery.replayed() || w.run.Corrects())
}

// resume handles a dead letter that is replayed, or what corrects it, and lets its key go on where that is
// done. Where it fails for good, the key stays as it is.
func (s *Service) resume(ctx context.Context, w *attempt) answer {
	a := s.handle(ctx, w)
	switch {
	case a.Reason == correctedBefore: // what corrects it lets the key go
		return a
	case a.Outcome == retry.Processed, a.Outcome == retry.Duplicate:
	default:
		return a
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	if err := s.changeLane(ctx, w.lane, func(l delayed.Lane) (store.Write, bool) { return l.Go(s.config.Now()) }); err != nil {
		// The redelivery finds the event done, and comes by here again.
		s.config.Log.LogAttrs(ctx, slog.LevelWarn, "key not released", slog.String("queue", w.queue.ID), slog.String("event_id", w.event.ID))
		return again(retry.Decide(err), err, 0)
	}
	a.EventID = w.event.ID
	a.due = s.config.Now()
	s.ring(ctx, w.queue, a)
	return a
}

// changeLane writes to a lane what the function wants of it as it is.
func (s *Service) changeLane(ctx context.Context, name delayed.Name, want func(delayed.Lane) (store.Write, bool)) error {
	for range counting {
		lane, err := delayed.Open(ctx, s.config.Store, name)
		if err != nil {
			return retry.Outage("store_unavailable", err)
		}
		write, ok := want(lane)
		if !ok {
			return nil
		}
		switch _, err = s.config.Store.Commit(ctx, []store.Write{write}); {
		case err == nil:
			return nil
		case !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrStale):
			return retry.Outage("store_unavailable", err)
		}
	}
	return retry.Busy("contention", nil)
}
