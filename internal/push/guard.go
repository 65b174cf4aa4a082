package push

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"

	"billhook/internal/handler"
	"billhook/internal/retry"
)

// guarded runs a handler so that neither a panic nor a handler that ignores its
// deadline takes the delivery with it. A handler that comes back too late has
// changed nothing: its writes are committed by the caller, which is gone.
func guarded(log *slog.Logger, h handler.Tx) handler.Tx {
	return func(ctx context.Context, event handler.Event) (handler.Effect, error) {
		type returned struct {
			effect handler.Effect
			err    error
		}
		done := make(chan returned, 1)
		go func() {
			defer func() {
				if value := recover(); value != nil {
					// The value may hold anything; its type and place are enough to find it.
					log.LogAttrs(ctx, slog.LevelError, "handler panic", slog.String("queue", event.Queue),
						slog.String("event_id", event.ID), slog.String("type", fmt.Sprintf("%T", value)), slog.String("stack", string(debug.Stack())))
					done <- returned{err: retry.Transient("handler_panic", nil)}
				}
			}()
			effect, err := h(ctx, event)
			done <- returned{effect, err}
		}()
		select {
		case r := <-done:
			return r.effect, r.err
		case <-ctx.Done():
			return handler.Effect{}, context.Cause(ctx)
		}
	}
}
