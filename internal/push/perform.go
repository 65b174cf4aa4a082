package push

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"billhook/internal/dedupe"
	"billhook/internal/failpoint"
	"billhook/internal/handler"
	"billhook/internal/lane"
	"billhook/internal/retry"
)

// perform is the third step. It calls the handler, and commits the effect with the record,
// once more with another effect where what the handler assumed is no longer so.
//
// A caller that leaves does not end a leased handler: the time is the handler's own, and half
// a call is worse than a whole one that nobody waits for.
func (s *Service) perform(ctx context.Context, w *attempt) verdict {
	leased := w.handler.Leased != nil
	if leased {
		ctx = context.WithoutCancel(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, w.policy.Timeout)
	if !w.until.IsZero() {
		cancel()
		limited, cancel = context.WithDeadline(ctx, w.until)
	}
	defer cancel()
	for {
		effect, err := s.effect(limited, w)
		over := limited.Err()
		var emitted lane.Emitted
		if err == nil {
			emitted, err = lane.Emit(s.config.Catalog, w.event, &effect, s.config.Now())
		}
		if leased {
			failpoint.Hit(failpoint.LeasedDone)
		}
		seen, unknown := dedupe.Fresh, false
		if err == nil {
			commit, done := limited, context.CancelFunc(func() {})
			if leased {
				commit, done = context.WithTimeout(ctx, bookkeeping)
			} else {
				failpoint.Hit(failpoint.TxCommit)
			}
			w.superseded = effect.Superseded
			seen, err = w.run.Conclude(commit, dedupe.Ending{Status: dedupe.Completed, Effect: effect, Emitted: emitted.IDs})
			done()
			if unknown = err != nil; unknown && !leased {
				over = limited.Err()
			}
			w.event.Attempt, w.event.Try = w.run.Attempt(), w.run.Try()
		}
		v := verdict{course: told, seen: seen, failure: err, attempt: w.event.Attempt}
		if err != nil {
			v.means = retry.Decide(err)
		}
		if err != nil && over != nil && !v.means.Class.Terminal() && (!leased || !unknown) {
			// Whatever the handler or the store made of it: the time was up, or the caller gone.
			v.means = retry.Decide(over)
		}
		shared := v.means.Scope != retry.OneMessage || over != nil
		switch {
		case err == nil && seen == dedupe.Own:
			if leased {
				failpoint.Hit(failpoint.LeasedCompleted)
			} else {
				failpoint.Hit(failpoint.TxCommitted)
			}
			w.lanes = emitted.Lanes
			return v
		case err == nil && !w.run.Lost(seen) && (seen == dedupe.Fresh || seen == dedupe.Claimed):
			continue // another effect, of another Try
		case err == nil:
			return v
		case leased && errors.As(err, new(abandonedError)):
			// It still runs, and nobody can stop it: no other attempt while the lease stands.
			s.config.Log.LogAttrs(ctx, slog.LevelError, "handler does not return", slog.String("queue", w.queue.ID),
				slog.String("event_id", w.event.ID), slog.String("event_type", w.event.Type))
			v.course = nacked
		case leased && unknown && !v.means.Class.Terminal() && (v.means.Counts || v.means.Scope != retry.OneMessage):
			v.course = nacked // the lease stands, and then Reconcile is asked
		case leased, v.means.Class.Terminal(), v.means.Counts:
			v.course = failed
		case shared:
			v.course = lost
		default:
			v.course = busy
		}
		return v
	}
}

// effect calls the handler. Of a leased one it first finds out what became of an earlier
// attempt, if there was one. An event whose workers died in every attempt gets no other one,
// but the question.
func (s *Service) effect(ctx context.Context, w *attempt) (handler.Effect, error) {
	event, h := w.event, w.handler
	if h.Leased == nil {
		effect, _, err := guarded(ctx, s.config.Log, event, 0, always(h.Tx))
		return declared(w, effect, err)
	}
	if (w.repeated || event.Try > 0) && h.Leased.Reconcile != nil {
		effect, done, err := guarded(ctx, s.config.Log, event, grace, h.Leased.Reconcile)
		failpoint.Hit(failpoint.LeasedReconciled)
		if err != nil || done {
			return declared(w, effect, err)
		}
	}
	if event.Attempt > w.allowed {
		return handler.Effect{}, retry.Permanent("attempts_exhausted", retry.Transient(dedupe.Begun, nil))
	}
	effect, _, err := guarded(ctx, s.config.Log, event, grace, always(h.Leased.Do))
	return declared(w, effect, err)
}

// declared refuses an effect that emits where the catalog does not let its handler: the
// grants are made from the catalog, and what it does not list would stay in the outbox for
// ever. That is no fault of the message, but of the release: it is tried again, since a
// rollback mends it; it counts, so that a release that stays makes dead letters to replay
// and does not hold up the key for ever.
func declared(w *attempt, effect handler.Effect, err error) (handler.Effect, error) {
	for _, emission := range effect.Emit {
		if err == nil && !slices.Contains(w.policy.Emits, emission.To) {
			// Without the topic's name, which the handler may have from the message.
			return handler.Effect{}, retry.Transient("emission_undeclared", nil)
		}
	}
	return effect, err
}

// grace is how long a leased handler may take to return after its deadline.
const grace = time.Second

// abandonedError is that of a handler that has not returned.
type abandonedError struct{ error }

func (e abandonedError) Unwrap() error { return e.error }

// call is what a handler is asked: to do its work, or whether it is done.
type call func(context.Context, handler.Event) (effect handler.Effect, done bool, err error)

// always makes a call of a function that does its work.
func always(do func(context.Context, handler.Event) (handler.Effect, error)) call {
	return func(ctx context.Context, event handler.Event) (handler.Effect, bool, error) {
		effect, err := do(ctx, event)
		return effect, true, err
	}
}

// guarded calls a handler so that neither a panic nor an ignored deadline ends the
// delivery. A call that has not returned when the grace has passed since its deadline is
// abandoned. An abandoned Tx handler changes nothing, since its writes are committed by the
// caller, which is gone. An abandoned leased handler goes on outside, and its lease must stand.
func guarded(ctx context.Context, log *slog.Logger, event handler.Event, grace time.Duration, ask call) (handler.Effect, bool, error) {
	type returned struct {
		effect handler.Effect
		done   bool
		err    error
	}
	done := make(chan returned, 1)
	go func() {
		defer func() {
			if value := recover(); value != nil {
				// The value may hold anything; its type and place are enough to find it.
				log.LogAttrs(ctx, slog.LevelError, "handler panic", slog.String("queue", event.Queue),
					slog.String("event_id", event.ID), slog.String("type", fmt.Sprintf("%T", value)), slog.String("stack", string(debug.Stack())))
				done <- returned{err: retry.Panicked()}
			}
		}()
		var r returned
		r.effect, r.done, r.err = ask(ctx, event)
		done <- r
	}()
	select {
	case r := <-done:
		return r.effect, r.done, r.err
	case <-ctx.Done():
	}
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case r := <-done:
		return r.effect, r.done, r.err
	case <-late.C:
		return handler.Effect{}, false, abandonedError{context.Cause(ctx)}
	}
}
