package push

import (
	"context"
	"log/slog"
	"slices"

	"billhook/catalog"
	"billhook/internal/dedupe"
	"billhook/internal/delayed"
	"billhook/internal/failpoint"
	"billhook/internal/handler"
	"billhook/internal/outbox"
	"billhook/internal/retry"
)

// tx runs a Tx handler, whose effect and messages are committed with the record, and
// decides what follows. What it has emitted is published before the answer, so that
// a next event of the same key comes after it; where that fails, the relay does it.
func (s *Service) tx(ctx context.Context, q *queue, d delivery, event handler.Event, run *dedupe.Run, name delayed.Name, h handler.Tx) answer {
	limited, cancel := context.WithTimeout(ctx, q.Handlers[event.Type].Timeout)
	defer cancel()
	var lanes []string
	seen, err := run.Effect(limited, event, d.redelivered(), func(ctx context.Context, event handler.Event) (handler.Effect, error) {
		effect, err := guarded(ctx, s.config.Log, event, 0, func(ctx context.Context) (handler.Effect, error) { return h(ctx, event) })
		if err != nil {
			return handler.Effect{}, err
		}
		if err := declared(q.Handlers[event.Type], effect); err != nil {
			return handler.Effect{}, err
		}
		if lanes, err = outbox.Add(event, &effect, s.config.Now()); err != nil {
			return handler.Effect{}, err
		}
		failpoint.Hit(failpoint.TxCommit)
		return effect, nil
	})
	if err == nil {
		if seen == dedupe.Own {
			failpoint.Hit(failpoint.TxCommitted)
			s.relay(ctx, event, lanes)
		}
		return s.met(ctx, q, d, run, seen)
	}
	verdict := retry.Decide(err)
	if over := limited.Err(); over != nil && !verdict.Class.Terminal() {
		// Whatever the handler or the store made of it: the time was up, or the caller gone.
		verdict = retry.Decide(over)
	}
	switch {
	case verdict.Class.Terminal():
		return s.bury(ctx, q, d, run, err)
	case !verdict.Counts:
		return again(verdict, err, 0)
	default:
		return s.failed(ctx, q, d, event, run, name, verdict, err)
	}
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
func (s *Service) failed(ctx context.Context, q *queue, d delivery, event handler.Event, run *dedupe.Run, name delayed.Name, verdict retry.Verdict, failure error) answer {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	spec := q.Handlers[event.Type]
	for range counting {
		attempt := run.Attempt()
		if attempt >= allowed(spec, event) {
			return s.bury(ctx, q, d, run, retry.Permanent("attempts_exhausted", &retry.Error{Verdict: verdict}))
		}
		next, kept := s.next(ctx, q, d, event, run, name, attempt, failure)
		failpoint.Hit(failpoint.TxFail)
		seen, err := run.Fail(ctx, verdict.Reason, next)
		switch {
		case err != nil:
			s.config.Log.LogAttrs(ctx, slog.LevelWarn, "attempt not counted", slog.String("queue", q.ID),
				slog.String("event_id", event.ID), slog.String("message_id", d.messageID), slog.String("reason", verdict.Reason))
			return again(verdict, failure, attempt)
		case seen == dedupe.Counted:
			failpoint.Hit(failpoint.TxFailed)
			a := again(verdict, failure, attempt)
			a.Delayed = kept
			return a
		case seen != dedupe.Fresh:
			return s.met(ctx, q, d, run, seen)
		}
	}
	return again(verdict, failure, run.Attempt())
}
