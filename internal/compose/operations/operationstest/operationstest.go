// Package operationstest runs all operations on a store, with a worker that processes every event and a third
// party that accepts every request.
package operationstest

import (
	"context"
	"log/slog"
	"time"

	"billhook/catalog"
	"billhook/internal/apps/customers"
	"billhook/internal/apps/endpoints"
	"billhook/internal/apps/journal"
	"billhook/internal/apps/orders"
	"billhook/internal/apps/products"
	"billhook/internal/compose/operations"
	"billhook/internal/inspect/bulk"
	"billhook/internal/inspect/events"
	"billhook/internal/inspect/pauses"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// Over returns the apps on a store. A hat is worth 250 points.
func Over(s store.Store, c *catalog.Catalog, now func() time.Time, newID func() string) operations.Apps {
	worth, secret := map[string]catalog.Product{"hat": {Points: 250}}, func() string {
		return "whsec_" + newID()
	}
	return operations.Apps{
		Store: s, Log: slog.New(slog.DiscardHandler), Reads: events.Reads{
			Store: s, Catalog: c, Now: now, NewID: newID,
			Worker: func(map[string]string) (dryrun.Worker, error) { return oracle{c}, nil },
		},
		Pauses:    &pauses.Operator{Store: s, Now: now, NewID: newID},
		Periods:   &journal.Periods{Store: s, Now: now, NewID: newID},
		Reverter:  &journal.Reverter{Store: s, Catalog: c, Now: now, NewID: newID},
		Customers: &customers.Operator{Store: s, Now: now, NewID: newID},
		Products:  &products.Editor{Store: s, Start: worth, Now: now, NewID: newID},
		Stock:     &orders.StockEditor{Store: s, Now: now, NewID: newID},
		Endpoints: &endpoints.Editor{
			Store: s, Poster: Partner{}, OldSecretFor: time.Hour, Now: now, NewID: newID, NewSecret: secret,
		},
		DeadLetters: &bulk.Operator{
			Store: s, Catalog: c, Now: now, NewID: newID, Relay: func(context.Context, string) error { return nil },
			Wait: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
		},
	}
}

// Partner is a third party with these answers; nil: it accepts every request.
type Partner struct {
	Answers func(context.Context) (int, error)
}

// Post answers.
func (p Partner) Post(ctx context.Context, _ endpoints.Address, _ string, _ []byte) (int, error) {
	if p.Answers == nil {
		return 204, nil
	}
	return p.Answers(ctx)
}

// Check accepts any address.
func (Partner) Check(context.Context, string) error { return nil }

// oracle is a worker that processes every event.
type oracle struct{ *catalog.Catalog }

func (o oracle) Try(_ context.Context, m dryrun.Message) (dryrun.Trial, error) {
	return dryrun.Trial{
		Tried:  dryrun.Tried{Queue: m.Queue, Tenant: "default", EventID: m.Attributes["event_id"]},
		End:    dryrun.End{Outcome: retry.Processed, Result: "credited"},
		Writes: []dryrun.Change{}, Emits: []dryrun.Emission{}, Calls: []handler.Call{},
	}, nil
}
