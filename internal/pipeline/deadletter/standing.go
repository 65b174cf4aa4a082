package deadletter

import (
	"context"
	"time"

	"billhook/catalog"
	"billhook/internal/platform/store"
)

// Standing counts a queue's open dead letters, including expired ones that are not removed yet.
type Standing struct {
	Open   int64
	More   bool      // there are more than Open
	Oldest time.Time // when the oldest one was kept; zero if none is open
}

// CountTo is the number at which counting stops, unless the queue's alert is higher.
const CountTo = 10_000

// Look counts a queue's open dead letters, in two queries at most.
func Look(ctx context.Context, from store.Querier, queue catalog.Queue, now time.Time) (Standing, error) {
	most := max(CountTo, queue.DeadLetter.AlertAbove+1)
	// Both queries use one index. Another instance's clock may be ahead.
	query := store.Query{
		Collection: Collection, Equal: map[string]any{"queue": queue.ID, "state": string(Open)}, Limit: most + 1,
		Due: &store.Due{Field: "kept_at", Until: now.Add(time.Hour)},
	}
	open, err := store.Count(ctx, from, query)
	if err != nil || open == 0 {
		return Standing{}, err
	}
	query.Limit = 1
	oldest, _, err := store.List(ctx, from, query, ItemOf)
	standing := Standing{Open: min(open, int64(most)), More: open > int64(most)}
	if len(oldest) > 0 {
		standing.Oldest = oldest[0].Kept
	}
	return standing, err
}

// Age is how long the oldest has waited; 0 if none is open.
func (s Standing) Age(now time.Time) time.Duration {
	if s.Oldest.IsZero() {
		return 0
	}
	return max(0, now.Sub(s.Oldest))
}
