package journal

import (
	"context"
	"time"

	"billhook/internal/apps/ledger"
	"billhook/internal/platform/cache"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

const (
	// believedFor is how long a read calendar is used. Notice is longer.
	believedFor = 5 * time.Second
	// readTime bounds one read, which callers share.
	readTime = 5 * time.Second
)

// Calendar caches which periods are closed, and reads the store at most every few seconds. It is safe for
// concurrent use.
type Calendar struct {
	store ledger.Reader
	now   func() time.Time
	known *cache.Cache[calendar]
	last  calendar // the last one that was read; only read uses it, one call at a time
}

// calendar has the time from which each period is closed, by the id of its document.
type calendar struct {
	closes  map[string]time.Time
	changes int64
}

// NewCalendar returns an empty calendar.
func NewCalendar(from store.Store, now func() time.Time) *Calendar {
	return &Calendar{store: from, now: now, known: cache.New[calendar](1, now)}
}

// Closed reports whether a period of a tenant takes no entries now. The error is an outage.
func (c *Calendar) Closed(ctx context.Context, tenant, period string) (bool, error) {
	known, err := c.known.Get(ctx, "", c.read)
	switch {
	case ctx.Err() != nil && err != nil:
		return false, ctx.Err()
	case err != nil:
		return false, retry.Outage("periods_unknown", err)
	}
	at, closes := known.closes[periodKey(tenant, period).ID]
	return closes && !c.now().Before(at), nil
}

// read reads the count of changes and, if that differs, the list of closed periods.
func (c *Calendar) read(ctx context.Context) (calendar, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	doc, err := store.Find(ctx, c.store, changesKey)
	if err != nil {
		return calendar{}, 0, err
	}
	changes, _ := doc.Fields[fieldChanges].(int64)
	if changes == c.last.changes { // 0: no period was ever closed
		return c.last, believedFor, nil
	}
	// The count was read first: a later change may be in the list already, and is certainly in the next count.
	closes := map[string]time.Time{}
	query := store.Query{
		Collection: PeriodsCollection, Equal: map[string]any{"closed": true}, Limit: store.MaxPage,
	}
	for doc, err := range store.Each(ctx, c.store, query) {
		if err != nil {
			return calendar{}, 0, err
		}
		at, _ := doc.Fields["closes_at"].(time.Time)
		closes[doc.Key.ID] = at // a period without a time is closed
	}
	c.last = calendar{closes: closes, changes: changes}
	return c.last, believedFor, nil
}
