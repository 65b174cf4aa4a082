package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

const (
	// lookAgain is the age at which what is known of the periods is asked for anew, behind the back
	// of those who go by it.
	lookAgain = 5 * time.Second
	// believedFor is how long what is known is gone by. Notice is longer.
	believedFor = 30 * time.Second
	// readTime bounds one reading, which callers share.
	readTime = 5 * time.Second
)

// Calendar knows which periods are closed, so that posting reads nothing. An instance that posts all
// the time asks every few seconds by one read, and lists the closed periods where they have changed.
// Only the first entry of an instance, and the first after half a minute without any, waits for it.
// It is safe for concurrent use.
type Calendar struct {
	store interface {
		store.Getter
		store.Querier
	}
	now func() time.Time

	reads singleflight.Group
	mu    sync.Mutex
	known calendar
}

// calendar is what was read: each moment from which a period is closed, by the id of its document.
type calendar struct {
	closes  map[string]time.Time
	changes int64
	// at is when the reading began; zero: nothing was read.
	at time.Time
}

// NewCalendar returns a calendar that has read nothing.
func NewCalendar(from store.Store, now func() time.Time) *Calendar {
	return &Calendar{store: from, now: now}
}

// Closed reports whether a period of a tenant takes no entries now. The error is an outage: what was
// known is too old, and cannot be read.
func (c *Calendar) Closed(ctx context.Context, tenant, period string) (bool, error) {
	c.mu.Lock()
	known := c.known
	c.mu.Unlock()
	if age := c.now().Sub(known.at); known.at.IsZero() || age >= lookAgain || age < 0 {
		read := c.reads.DoChan("", func() (any, error) { return nil, c.read(context.WithoutCancel(ctx)) })
		if known.at.IsZero() || age >= believedFor || age < 0 {
			select {
			case result := <-read:
				if result.Err != nil {
					return false, retry.Outage("periods_unknown", result.Err)
				}
			case <-ctx.Done():
				return false, ctx.Err()
			}
			c.mu.Lock()
			known = c.known
			c.mu.Unlock()
		}
	}
	at, closes := known.closes[periodKey(tenant, period).ID]
	return closes && !c.now().Before(at), nil
}

// read asks whether the periods have changed, and lists those that are closed where they have.
func (c *Calendar) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	c.mu.Lock()
	found := c.known
	c.mu.Unlock()
	first := found.at.IsZero()
	found.at = c.now()
	var changes int64
	switch doc, err := c.store.Get(ctx, changesKey); {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return fmt.Errorf("journal: read periods: %w", err)
	default:
		changes, _ = doc.Fields[fieldChanges].(int64)
	}
	// The count goes first: a change behind it is in the list perhaps, and in the next count surely.
	if changes != found.changes || (first && changes != 0) {
		closes := map[string]time.Time{}
		query := store.Query{Collection: PeriodsCollection, Equal: map[string]any{fieldClosed: true}, Limit: store.MaxPage}
		for {
			page, err := c.store.Query(ctx, query)
			if err != nil {
				return fmt.Errorf("journal: list periods: %w", err)
			}
			for _, doc := range page.Documents {
				at, _ := doc.Fields["closes_at"].(time.Time)
				closes[doc.Key.ID] = at // one without a moment is closed
			}
			if query.After = page.Next; page.Next == "" {
				break
			}
		}
		found.closes, found.changes = closes, changes
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = found
	return nil
}
