package worker

import (
	"context"

	"github.com/google/uuid"

	"billhook/internal/apps/journal"
	"billhook/internal/console/ops"
)

// books gives the API what changes the books. relay publishes what waits in a lane of the outbox.
func (c Config) books(api *ops.API, relay func(ctx context.Context, lane string) error) {
	api.Periods = &journal.Periods{Store: c.lists(c.Store), Now: c.Now, NewID: uuid.NewString}
	api.Reverter = &journal.Reverter{
		Store: c.Store, Catalog: c.Catalog, Now: c.Now, NewID: uuid.NewString,
		Committed: func(ctx context.Context, lanes []string) {
			for _, id := range lanes {
				_ = relay(ctx, id) // what is left is published by the task
			}
		},
	}
}
