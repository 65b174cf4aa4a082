package dedupetest

import (
	"context"

	"billhook/internal/dedupe"
	"billhook/internal/handler"
)

// Effect does what the worker does with a Tx handler: it commits what the handler returns with
// the record of its event, and calls it again where that met a conflict. With look true the
// record is read first.
func Effect(ctx context.Context, run *dedupe.Run, event handler.Event, look bool, h handler.Tx) (dedupe.Seen, error) {
	if look {
		if seen, err := run.Look(ctx); err != nil || seen != dedupe.Fresh {
			return seen, err
		}
	}
	for {
		event.Attempt, event.Try = run.Attempt(), run.Try()
		effect, err := h(ctx, event)
		if err != nil {
			return dedupe.Fresh, err
		}
		if seen, err := run.Conclude(ctx, dedupe.Ending{Status: dedupe.Completed, Effect: effect}); err != nil || seen != dedupe.Fresh {
			return seen, err
		}
	}
}
