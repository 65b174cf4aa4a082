// Package usage counts what subscriptions use, per meter and billing period, and has somebody warned who
// comes near a quota. A total is the sum of its entries, one for each event. It refuses to change or remove
// an entry: a correction is an entry below 0. It refuses to price anything.
package usage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"billhook/internal/platform/store"
)

// The collections: a total per tenant, subscription, period and meter, and an entry per event.
const (
	Collection        = "usage"
	EntriesCollection = "usageEntries"
)

// Total is the usage of one meter of one subscription in one period.
type Total struct {
	Tenant       string `json:"tenant" store:"tenant,required"`
	Subscription string `json:"subscription" store:"subscription,required"`
	// Period is such as 2026-11 or 20261102T101500Z; see Period.
	Period string    `json:"period" store:"period,required"`
	Meter  string    `json:"meter" store:"meter,required"`
	Start  time.Time `json:"start" store:"start,required"`
	// End is absent while no event has told it.
	End time.Time `json:"end,omitzero" store:"end,omitzero"`
	// Used is the sum of the entries, and Entries their number. Corrections may take it below 0.
	Used    int64 `json:"used" store:"used,required"`
	Entries int64 `json:"entries" store:"entries,required"`
	// Plan and Quota are those by which the last entry was counted. A quota of 0 is none.
	Plan  string `json:"plan,omitempty" store:"plan,omitzero"`
	Quota int64  `json:"quota,omitzero" store:"quota,omitzero"`
	// Warned is the highest threshold that was crossed, in percent; it never falls. WarnedBy is the id of the
	// event whose usage crossed it: the warning was emitted in the commit that counted that.
	Warned   int64  `json:"warned,omitzero" store:"warned,omitzero"`
	WarnedBy string `json:"warned_by,omitempty" store:"warned_by,omitzero"`
	// CountedAt is when the last entry was counted.
	CountedAt time.Time `json:"counted_at" store:"counted_at,required"`
	// Month is "<tenant>~2026-11": the month in which the period begins.
	Month string `json:"-" store:"month"`
}

// Entry is the usage that one event has told. It never changes.
type Entry struct {
	Tenant       string `json:"tenant" store:"tenant,required"`
	Subscription string `json:"subscription" store:"subscription,required"`
	Period       string `json:"period" store:"period,required"`
	Meter        string `json:"meter" store:"meter,required"`
	EventID      string `json:"event_id" store:"event_id,required"`
	// Quantity is below 0 where it corrects.
	Quantity   int64     `json:"quantity" store:"quantity,required"`
	OccurredAt time.Time `json:"occurred_at" store:"occurred_at,required"`
	CountedAt  time.Time `json:"counted_at" store:"counted_at,required"`
	// Total is the id of the total that it is counted in.
	Total string `json:"-" store:"total"`
}

// subscriptionPrefix is what ids about a subscription begin with.
func subscriptionPrefix(tenant, subscription string) string {
	return store.ID(tenant, subscription) + "~"
}

// Key is the key of a total.
func Key(tenant, subscription, period, meter string) store.Key {
	return store.Key{Collection: Collection, ID: subscriptionPrefix(tenant, subscription) + store.Path(period, meter)}
}

// EntryKey is the key of an event's entry: without the period, so that the event stays in the one that it was
// counted in.
func EntryKey(tenant, subscription, eventID string) store.Key {
	return store.Key{Collection: EntriesCollection, ID: subscriptionPrefix(tenant, subscription) + store.Path(eventID)}
}

// Of selects the totals of a list.
type Of struct {
	Tenant string
	// Subscription and Period select by both, or by the subscription alone.
	Subscription, Period string
	// Month selects the periods that begin in a calendar month, of all subscriptions, where no
	// Subscription is given. It is such as 2026-11.
	Month string
}

// ErrOf: totals are of a subscription, or of a month.
var ErrOf = errors.New("usage: a list is of a subscription or of a month")

// Totals returns a page of the totals of a subscription, period after period, or of a month, behind the place
// after. next is empty on the last page.
func Totals(ctx context.Context, from store.Querier, of Of, after store.Cursor, limit int) (page []Total, next store.Cursor, err error) {
	query := store.Query{Collection: Collection, After: after, Limit: limit}
	switch {
	case of.Subscription != "":
		query.IDPrefix = subscriptionPrefix(of.Tenant, of.Subscription)
		if of.Period != "" {
			query.IDPrefix += store.Path(of.Period) + "~"
		}
	case of.Month != "":
		query.Equal = map[string]any{"month": of.Tenant + "~" + of.Month}
	default:
		return nil, next, ErrOf
	}
	return list[Total](ctx, from, query)
}

// Entries returns the entries of a total, by event id: a page as that of Totals.
func Entries(ctx context.Context, from store.Querier, total store.Key, after store.Cursor, limit int) (page []Entry, next store.Cursor, err error) {
	return list[Entry](ctx, from, store.Query{Collection: EntriesCollection, Equal: map[string]any{"total": total.ID}, After: after, Limit: limit})
}

func list[T any](ctx context.Context, from store.Querier, query store.Query) (page []T, next store.Cursor, err error) {
	return store.List(ctx, from, query, func(doc store.Document) (one T, err error) {
		if err := store.Decode(doc.Fields, &one); err != nil {
			return one, fmt.Errorf("usage: %s: %w", doc.Key, err)
		}
		return one, nil
	})
}
