package delayed

import (
	"context"
	"fmt"

	"billhook/internal/store"
)

// Querier answers a query; see the store package for the errors.
type Querier interface {
	Query(ctx context.Context, query store.Query) (store.Page, error)
}

// Calm reports whether no ordering key of a queue has a lane, so that no message of it can
// be behind another. It is one read.
func Calm(ctx context.Context, from Querier, queue string) (bool, error) {
	page, err := from.Query(ctx, store.Query{Collection: KeysCollection, Equal: map[string]any{"queue": queue}, Limit: 1})
	if err != nil {
		return false, fmt.Errorf("delayed: look for lanes: %w", err)
	}
	return len(page.Documents) == 0, nil
}
