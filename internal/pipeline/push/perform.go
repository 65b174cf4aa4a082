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

// perform calls the handler, again where its assumption no longer holds, and commits the effect with the
// record. A caller that leaves does not end a leased handler: half a call is worse than a whole one.
func (s *Service) perform(ctx context.Context, d *delivery, run *dedupe.Run) finding {
	if d.leased() {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, d.policy.Timeout)
	defer cancel()
	for {
		event := d.event
		event.Attempt, event.Try = run.Attempt(), run.Try()
		effect, err := d.effect(ctx, event, run.Repeated() || event.Try > 0)
		over, unknown, emitted, seen := ctx.Err(), false, lane.Emitted{}, dedupe.Fresh
		if err == nil {
			emitted, err = s.emit(event, d.policy.Emits, &effect)
		}
		if d.leased() {
			failpoint.Hit(failpoint.LeasedDone)
		}
		if err == nil {
			end := dedupe.Ending{Status: dedupe.Completed, Effect: effect, Emitted: emitted.Messages}
			seen, err = commit(ctx, run, d.leased(), end)
			over, unknown = ctx.Err(), true
		}
		switch {
		case err != nil:
			return d.unperformed(ctx, run.Attempt(), err, over, unknown)
		case !seen.Undecided():
			return finding{state: recorded, seen: seen, emitted: emitted}
		}
	}
}

// emit adds the writes of an effect's emissions. It refuses one that the catalog does not list for the
// handler: nothing is granted for it. The release is at fault, so the event is tried again, and that counts.
func (s *Service) emit(event handler.Event, listed []string, effect *handler.Effect) (lane.Emitted, error) {
	undeclared := func(emission handler.Emission) bool { return !slices.Contains(listed, emission.To) }
	if slices.ContainsFunc(effect.Emit, undeclared) {
		// Without the topic's name, which the handler may have from the message.
		return lane.Emitted{}, retry.Transient("emission_undeclared", nil)
	}
	return lane.Emit(s.config.Catalog, event, effect, s.config.Now())
}

// grace is how long a leased handler may take to return after its deadline.
const grace = time.Second

var errAbandoned = errors.New("push: the handler does not return")

// effect calls the handler so that neither a panic nor an ignored deadline ends the delivery. A call that has
// not returned when the grace has passed since its deadline is abandoned: a leased one goes on outside, and
// its lease must stand.
func (d *delivery) effect(ctx context.Context, event handler.Event, again bool) (handler.Effect, error) {
	type returned struct {
		effect handler.Effect
		err    error
	}
	end := make(chan returned, 1)
	go func() {
		var r returned
		defer func() {
			if value := recover(); value != nil {
				// The value may hold anything; its type and place are enough to find it.
				d.log.LogAttrs(ctx, slog.LevelError, "handler panic",
					slog.String("type", fmt.Sprintf("%T", value)), slog.String("stack", string(debug.Stack())))
				r = returned{err: retry.Panicked()}
			}
			end <- r
		}()
		r.effect, r.err = d.call(ctx, event, again)
	}()
	patience := time.Duration(0)
	if d.leased() {
		patience = grace
	}
	var late <-chan time.Time
	for over := ctx.Done(); ; {
		select {
		case r := <-end:
			return r.effect, r.err
		case <-over:
			late, over = time.After(patience), nil
		case <-late:
			return handler.Effect{}, errAbandoned
		}
	}
}

// call calls the handler. Before it calls a leased one again, it asks what became of the earlier attempt.
func (d *delivery) call(ctx context.Context, event handler.Event, again bool) (handler.Effect, error) {
	h := d.handler.Leased
	if h == nil {
		return d.handler.Tx(ctx, event)
	}
	if again && h.Reconcile != nil {
		effect, done, err := h.Reconcile(ctx, event)
		failpoint.Hit(failpoint.LeasedReconciled)
		if err != nil || done {
			return effect, err
		}
		if ctx.Err() != nil { // too late to begin
			return effect, ctx.Err()
		}
	}
	if event.Attempt > d.allowed {
		return handler.Effect{}, workerDied
	}
	return h.Do(ctx, event)
}
