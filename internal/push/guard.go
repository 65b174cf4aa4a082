package push

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"billhook/internal/handler"
	"billhook/internal/retry"
)

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
