package deadletter

import (
	"context"
	"fmt"
	"time"

	"billhook/catalog"
	"billhook/internal/store"
)

// Standing is how many dead letters of a queue are open, and since when. One that has
// expired is counted until the database removes it.
type Standing struct {
	Open int64
	// More: there are more than Open; nobody has counted on.
	More bool
	// Oldest is since when the oldest of them is kept; zero where none is open.
	Oldest time.Time
}

// CountTo is where counting ends, or above the queue's alert if that is higher: a
// database charges for what it counts.
const CountTo = 10_000

// Look asks where a queue stands, in one query or, where something is open, in two,
// whatever the number of its dead letters.
func Look(ctx context.Context, from store.Querier, queue catalog.Queue, now time.Time) (Standing, error) {
	most := max(CountTo, queue.DeadLetter.AlertAbove+1)
	counted, err := from.Query(ctx, store.Query{
		Collection: Collection, Equal: map[string]any{"queue": queue.ID, "state": string(Open)}, Count: true, Limit: most + 1,
	})
	if err != nil {
		return Standing{}, fmt.Errorf("deadletter: count: %w", err)
	}
	if counted.Count == 0 {
		return Standing{}, nil
	}
	standing := Standing{Open: min(counted.Count, int64(most)), More: counted.Count > int64(most)}
	first, err := from.Query(ctx, store.Query{
		Collection: Collection, Equal: map[string]any{"queue": queue.ID, "state": string(Open)},
		// Another instance's clock may be ahead of this one's.
		Due: &store.Due{Field: "kept_at", Until: now.Add(time.Hour)}, Limit: 1,
	})
	if err != nil {
		return Standing{}, fmt.Errorf("deadletter: oldest: %w", err)
	}
	for _, doc := range first.Documents {
		standing.Oldest, _ = doc.Fields["kept_at"].(time.Time)
	}
	return standing, nil
}

// Age is how long the oldest has waited at a time, 0 where none is open.
func (s Standing) Age(now time.Time) time.Duration {
	if s.Oldest.IsZero() {
		return 0
	}
	return max(0, now.Sub(s.Oldest))
}
