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

// perform calls the handler, and commits the effect with the record. Where the handler's assumption no longer holds, it
// calls the handler again. A caller that leaves does not end a leased handler: half a call is worse than a whole one
// without a caller.
func (s *Service) perform(ctx context.Context, a *attempt) finding {
	leased := a.handler.Leased != nil
	if leased {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), a.policy.Timeout)
		defer cancel()
	}
	for {
		event := a.numbered()
		effect, err := s.effect(ctx, a, event)
		over := ctx.Err()
		var emitted lane.Emitted
		if err == nil {
			emitted, err = s.emit(a, event, &effect)
		}
		if leased {
			failpoint.Hit(failpoint.LeasedDone)
		}
		if err != nil {
			return s.unperformed(ctx, a, err, over, false)
		}
		a.run.superseded = effect.Superseded
		effect.Writes = append(slices.Clip(effect.Writes), s.replayEnds(a)...)
		seen, err := s.commit(ctx, a, dedupe.Ending{Status: dedupe.Completed, Effect: effect, Emitted: emitted.Messages})
		switch {
		case err != nil && leased:
			return s.unperformed(ctx, a, err, over, true)
		case err != nil:
			return s.unperformed(ctx, a, err, ctx.Err(), true)
		case seen == dedupe.Own:
			a.run.emitted = emitted
			return s.read(a, seen)
		case !a.undecided(seen):
			return s.read(a, seen)
		}
	}
}

// commit commits the effect with the record: that of a leased handler in a time of its own.
func (s *Service) commit(ctx context.Context, a *attempt, end dedupe.Ending) (dedupe.Seen, error) {
	if a.handler.Leased == nil {
		failpoint.Hit(failpoint.TxCommit)
		seen, err := a.run.Conclude(ctx, end)
		if seen == dedupe.Own {
			failpoint.Hit(failpoint.TxCommitted)
		}
		return seen, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	seen, err := a.run.Conclude(ctx, end)
	if seen == dedupe.Own {
		failpoint.Hit(failpoint.LeasedCompleted)
	}
	return seen, err
}

// unperformed is what a failure of the handler or, where it is unknown whether the effect was committed, of the commit
// means. over is set where the time was up, or the caller gone.
func (s *Service) unperformed(ctx context.Context, a *attempt, err, over error, unknown bool) finding {
	leased, f := a.handler.Leased != nil, found(failed, err)
	f.attempt = a.run.Attempt()
	if over != nil && !f.means.Class.Terminal() && (!leased || !unknown) {
		f.means = retry.Decide(over) // whatever error the handler or the store returned
	}
	one := f.means.Scope == retry.OneMessage
	switch {
	case leased && errors.As(err, new(abandonedError)):
		// It still runs and cannot be stopped: no other attempt while the lease stands.
		s.config.Log.LogAttrs(ctx, slog.LevelError, "handler does not return", slog.String("queue", a.queue.ID),
			slog.String("event_id", a.event.ID), slog.String("event_type", a.event.Type))
		f.state = unanswered
	case leased && unknown && !f.means.Class.Terminal() && (f.means.Counts || !one):
		f.state = unanswered // the lease stands, and then Reconcile is asked
	case leased, f.means.Class.Terminal(), f.means.Counts, f.means.Scope == retry.OtherEvent:
	case over != nil, !one:
		f.state = uncertain
	default:
		f.state = held
	}
	return f
}

// effect calls the handler. Before it calls a leased one again, it asks what became of the earlier attempt. An event whose
// workers died in every attempt is asked about, and not tried.
func (s *Service) effect(ctx context.Context, a *attempt, event handler.Event) (handler.Effect, error) {
	h := a.handler
	if h.Leased == nil {
		effect, _, err := guarded(ctx, s.config.Log, event, 0, always(h.Tx))
		return effect, err
	}
	if (a.run.Repeated() || event.Try > 0) && h.Leased.Reconcile != nil {
		effect, done, err := guarded(ctx, s.config.Log, event, grace, h.Leased.Reconcile)
		failpoint.Hit(failpoint.LeasedReconciled)
		if err != nil || done {
			return effect, err
		}
	}
	if event.Attempt > a.allowed {
		return handler.Effect{}, workerDied
	}
	effect, _, err := guarded(ctx, s.config.Log, event, grace, always(h.Leased.Do))
	return effect, err
}

// emit adds the writes of an effect's emissions. It refuses one that the catalog does not list for the handler: nothing
// is granted for it, and the message would stay in the outbox for ever. The release is at fault, so the event is tried
// again, and that counts.
func (s *Service) emit(a *attempt, event handler.Event, effect *handler.Effect) (lane.Emitted, error) {
	for _, emission := range effect.Emit {
		if !slices.Contains(a.policy.Emits, emission.To) {
			// Without the topic's name, which the handler may have from the message.
			return lane.Emitted{}, retry.Transient("emission_undeclared", nil)
		}
	}
	return lane.Emit(s.config.Catalog, event, effect, s.config.Now())
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
