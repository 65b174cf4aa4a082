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
		var lanes []string
		if err == nil {
			lanes, err = lane.Emit(s.config.Catalog, w.event, &effect, s.config.Now())
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
			seen, err = w.run.Conclude(commit, dedupe.Ending{Status: dedupe.Completed, Effect: effect})
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
			w.lanes = lanes
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
		effect, err := guarded(ctx, s.config.Log, event, 0, func(ctx context.Context) (handler.Effect, error) { return h.Tx(ctx, event) })
		return declared(w, effect, err)
	}
	type reconciled struct {
		effect handler.Effect
		done   bool
	}
	if (w.repeated || event.Try > 0) && h.Leased.Reconcile != nil {
		found, err := guarded(ctx, s.config.Log, event, parting, func(ctx context.Context) (r reconciled, err error) {
			r.effect, r.done, err = h.Leased.Reconcile(ctx, event)
			return r, err
		})
		failpoint.Hit(failpoint.LeasedReconciled)
		if err != nil || found.done {
			return declared(w, found.effect, err)
		}
	}
	if event.Attempt > w.allowed {
		return handler.Effect{}, retry.Permanent("attempts_exhausted", retry.Transient(dedupe.Begun, nil))
	}
	effect, err := guarded(ctx, s.config.Log, event, parting, func(ctx context.Context) (handler.Effect, error) { return h.Leased.Do(ctx, event) })
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

// parting is how long a leased handler may take to return after its deadline.
const parting = time.Second

// abandonedError is that of a handler that has not returned.
type abandonedError struct{ error }

func (e abandonedError) Unwrap() error { return e.error }

// guarded runs a handler's call so that neither a panic nor a call that ignores its
// deadline takes the delivery with it. What has not returned when parting has passed
// since its deadline is abandoned: of a Tx handler that is no matter, since its writes
// are committed by the caller, which is gone; a leased one goes on outside, and its
// lease must stand.
func guarded[T any](ctx context.Context, log *slog.Logger, event handler.Event, parting time.Duration, call func(context.Context) (T, error)) (T, error) {
	type returned struct {
		value T
		err   error
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
		value, err := call(ctx)
		done <- returned{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
	}
	late := time.NewTimer(parting)
	defer late.Stop()
	var none T
	select {
	case r := <-done:
		return r.value, r.err
	case <-late.C:
		return none, abandonedError{context.Cause(ctx)}
	}
}
