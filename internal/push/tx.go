package push

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"billhook/catalog"
	"billhook/internal/dedupe"
	"billhook/internal/failpoint"
	"billhook/internal/handler"
	"billhook/internal/outbox"
	"billhook/internal/retry"
)

// unexplained is how many deliveries of an event may have left nothing in its record, by
// the broker's count, before its attempts are counted before they run.
const unexplained = 3

// tx runs a Tx handler, whose effect and messages are committed with the record, and
// decides what follows. What it has emitted is published before the answer, so that
// a next event of the same key comes after it; where that fails, the relay does it.
func (s *Service) tx(ctx context.Context, w *attempt, h handler.Tx) answer {
	limited, cancel := context.WithTimeout(ctx, w.spec().Timeout)
	defer cancel()
	if w.known {
		if a, done := s.prepare(limited, w); done {
			return a
		}
	}
	var lanes []string
	seen, err := w.run.Effect(limited, w.event, false, func(ctx context.Context, event handler.Event) (handler.Effect, error) {
		effect, err := guarded(ctx, s.config.Log, event, 0, func(ctx context.Context) (handler.Effect, error) { return h(ctx, event) })
		if err != nil {
			return handler.Effect{}, err
		}
		if err := declared(w.spec(), effect); err != nil {
			return handler.Effect{}, err
		}
		if lanes, err = outbox.Add(s.config.Contracts, event, &effect, s.config.Now()); err != nil {
			return handler.Effect{}, err
		}
		failpoint.Hit(failpoint.TxCommit)
		return effect, nil
	})
	if err == nil {
		if seen == dedupe.Own {
			failpoint.Hit(failpoint.TxCommitted)
			s.relay(ctx, w.event, lanes)
		}
		return s.settle(ctx, w, seen)
	}
	verdict := retry.Decide(err)
	if over := limited.Err(); over != nil && !verdict.Class.Terminal() {
		// Whatever the handler or the store made of it: the time was up, or the caller gone.
		verdict = retry.Decide(over)
	}
	switch {
	case verdict.Class.Terminal():
		return s.bury(ctx, w, err)
	case verdict.Counts:
		return s.failed(ctx, w, verdict, err)
	case verdict.Scope == retry.OneMessage && limited.Err() == nil:
		s.uncount(ctx, w, verdict)
		return s.busy(ctx, w, err, time.Time{})
	}
	// A commit whose answer was lost is recognized, where the store answers again.
	look, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	if seen, unread := w.run.Look(look); unread == nil && seen != dedupe.Fresh {
		return s.settle(ctx, w, seen)
	}
	s.uncount(ctx, w, verdict)
	return again(verdict, err, 0)
}

// uncount takes back what prepare has counted: the attempt has ended, and was none of the
// event's own. Where that cannot be written it stays counted, as if its worker had died.
func (s *Service) uncount(ctx context.Context, w *attempt, verdict retry.Verdict) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	if _, err := w.run.Uncount(ctx, verdict.Reason); err != nil {
		s.config.Log.LogAttrs(ctx, slog.LevelWarn, "attempt not taken back", slog.String("queue", w.queue.ID),
			slog.String("event_id", w.event.ID), slog.String("message_id", w.delivery.messageID), slog.String("reason", verdict.Reason))
	}
}

// prepare reads the record of an event that was delivered before, and counts this attempt
// before it runs where workers seem to have died in those before: the broker has counted
// more deliveries than the record accounts for. done says that the answer is decided.
func (s *Service) prepare(ctx context.Context, w *attempt) (a answer, done bool) {
	seen, err := w.run.Look(ctx)
	for range counting {
		switch {
		case err != nil:
			return again(retry.Decide(err), err, 0), true
		case seen == dedupe.Counted:
			return answer{}, false
		case seen != dedupe.Fresh:
			return s.settle(ctx, w, seen), true
		case w.delivery.attempt-(w.run.Attempt()-1) <= unexplained:
			return answer{}, false
		case w.run.Attempt() > w.allowed():
			return s.bury(ctx, w, retry.Permanent("attempts_exhausted", retry.Transient(dedupe.Begun, nil))), true
		}
		seen, err = w.run.Count(ctx)
	}
	return s.busy(ctx, w, retry.Busy("contention", nil), time.Time{}), true
}

// declared refuses an effect that emits where the catalog does not let its handler: the
// grants are made from the catalog, and what it does not list would stay in the outbox for
// ever. That is no fault of the message, but of the release: it is tried again, since a
// rollback mends it; it counts, so that a release that stays makes dead letters to replay
// and does not hold up the key for ever.
func declared(spec catalog.Handler, effect handler.Effect) error {
	for _, emission := range effect.Emit {
		if !slices.Contains(spec.Emits, emission.Topic) {
			// Without the topic's name, which the handler may have from the message.
			return retry.Transient("emission_undeclared", nil)
		}
	}
	return nil
}

// relay publishes what an effect has emitted. That it is stored is enough for the
// answer: what cannot be published now is published later.
func (s *Service) relay(ctx context.Context, event handler.Event, lanes []string) {
	if len(lanes) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	for _, lane := range lanes {
		if _, err := s.config.Outbox.Lane(ctx, lane); err != nil {
			s.config.Log.LogAttrs(ctx, slog.LevelWarn, "outbox left to the relay", slog.String("queue", event.Queue),
				slog.String("event_id", event.ID), slog.String("lane", lane), slog.String("cause", cause(err)))
		}
	}
}

// counting is how often a failure is decided anew because the record was not what it
// was thought to be. Once is usual where the broker does not say that it delivers again.
const counting = 3

// failed counts a failed attempt, or buries the message where it was the last. Where
// the attempt cannot be written down it is not counted, and the answer stays what it
// is: the message comes back either way.
func (s *Service) failed(ctx context.Context, w *attempt, verdict retry.Verdict, failure error) answer {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	for range counting {
		failed := w.run.Attempt()
		if failed >= w.allowed() {
			return s.bury(ctx, w, retry.Permanent("attempts_exhausted", &retry.Error{Verdict: verdict}))
		}
		due, how := s.next(ctx, w, failed, verdict, failure)
		failpoint.Hit(failpoint.TxFail)
		seen, err := w.run.Fail(ctx, verdict.Reason, due)
		switch {
		case err != nil:
			s.config.Log.LogAttrs(ctx, slog.LevelWarn, "attempt not counted", slog.String("queue", w.queue.ID),
				slog.String("event_id", w.event.ID), slog.String("message_id", w.delivery.messageID), slog.String("reason", verdict.Reason))
			return again(verdict, failure, failed)
		case seen == dedupe.Counted:
			failpoint.Hit(failpoint.TxFailed)
			return s.follow(w, verdict, failure, failed, due, how)
		case seen != dedupe.Fresh:
			return s.settle(ctx, w, seen)
		}
	}
	return again(verdict, failure, w.run.Attempt())
}
