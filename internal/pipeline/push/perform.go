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
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/failpoint"
	"billhook/internal/retry"
)

// perform is the fourth step. It calls the handler, and commits the effect with the record. Where the handler's assumption
// no longer holds, it calls the handler again. A caller that leaves does not end a leased handler: half a call is worse
// than a whole one without a caller.
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
			emitted, err = s.emit(w, &effect)
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
			effect.Writes = append(slices.Clip(effect.Writes), s.replayEnds(w)...)
			seen, err = w.run.Conclude(commit, dedupe.Ending{Status: dedupe.Completed, Effect: effect, Emitted: emitted.Messages})
			done()
			if unknown = err != nil; unknown && !leased {
				over = limited.Err()
			}
			w.event.Attempt, w.event.Try = w.run.Attempt(), w.run.Try()
		}
		v := verdict{course: recorded, seen: seen, failure: err, attempt: w.event.Attempt}
		if err != nil {
			v.means = retry.Decide(err)
		}
		if err != nil && over != nil && !v.means.Class.Terminal() && (!leased || !unknown) {
			// The time was up, or the caller gone, whatever error the handler or the store returned.
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
			w.lanes, w.released = emitted.Lanes, emitted.Due
			return v
		case err == nil && !w.run.Lost(seen) && (seen == dedupe.Fresh || seen == dedupe.Claimed):
			continue // another effect, of another Try
		case err == nil:
			return v
		case leased && errors.As(err, new(abandonedError)):
			// It still runs and cannot be stopped: no other attempt while the lease stands.
			s.config.Log.LogAttrs(ctx, slog.LevelError, "handler does not return", slog.String("queue", w.queue.ID),
				slog.String("event_id", w.event.ID), slog.String("event_type", w.event.Type))
			v.course = nacked
		case leased && unknown && !v.means.Class.Terminal() && (v.means.Counts || v.means.Scope != retry.OneMessage):
			v.course = nacked // the lease stands, and then Reconcile is asked
		case leased, v.means.Class.Terminal(), v.means.Counts, v.means.Scope == retry.OtherEvent:
			v.course = failed
		case shared:
			v.course = uncertain
		default:
			v.course = busy
		}
		return v
	}
}

// effect calls the handler. Before it calls a leased one again, it asks what became of the earlier attempt. An event whose
// workers died in every attempt is asked about, and not tried.
func (s *Service) effect(ctx context.Context, w *attempt) (handler.Effect, error) {
	event, h := w.event, w.handler
	if h.Leased == nil {
		effect, _, err := guarded(ctx, s.config.Log, event, 0, always(h.Tx))
		return effect, err
	}
	if (w.repeated || event.Try > 0) && h.Leased.Reconcile != nil {
		effect, done, err := guarded(ctx, s.config.Log, event, grace, h.Leased.Reconcile)
		failpoint.Hit(failpoint.LeasedReconciled)
		if err != nil || done {
			return effect, err
		}
	}
	if event.Attempt > w.allowed {
		return handler.Effect{}, workerDied
	}
	effect, _, err := guarded(ctx, s.config.Log, event, grace, always(h.Leased.Do))
	return effect, err
}

// emit adds the writes of an effect's emissions. It refuses one that the catalog does not list for the handler: nothing
// is granted for it, and the message would stay in the outbox for ever. The release is at fault, so the event is tried
// again, and that counts.
func (s *Service) emit(w *attempt, effect *handler.Effect) (lane.Emitted, error) {
	for _, emission := range effect.Emit {
		if !slices.Contains(w.policy.Emits, emission.To) {
			// Without the topic's name, which the handler may have from the message.
			return lane.Emitted{}, retry.Transient("emission_undeclared", nil)
		}
	}
	return lane.Emit(s.config.Catalog, w.event, effect, s.config.Now())
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

// guarded calls a handler so that neither a panic nor an ignored deadline ends the delivery. A call that has not returned
// when the grace has passed since its deadline is abandoned. A Tx handler changes nothing then, since its caller commits
// its writes. A leased one goes on outside, and its lease must stand.
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
