package usage

import (
	"context"
	"fmt"
	"time"

	"billhook/internal/platform/store"
)

// PeriodsCollection has an immutable document for each event that told a billing period.
const PeriodsCollection = "subscriptionPeriods"

// The forms of the names of periods: of a calendar month, and of one that begins at a moment.
const (
	monthForm  = "2006-01"
	momentForm = "20060102T150405Z"
)

// Period is a span of time whose usage is counted together.
type Period struct {
	// ID is 2026-11 for a calendar month, and 20261102T101500Z, its first moment, for a billing period.
	ID string
	// Start is in the period. End is not; it is zero where no event has told it.
	Start, End time.Time
	// Plan is the id of the subscription's product; empty where it is not known.
	Plan string
	// settles is the time from which its usage is expected to be complete, late events aside.
	settles time.Time
}

// Month is the calendar month that holds a moment, in UTC.
func Month(at time.Time) Period {
	at = at.UTC()
	start := time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
	end := start.AddDate(0, 1, 0)
	return Period{ID: start.Format(monthForm), Start: start, End: end, settles: end}
}

// Told is a billing period as an event tells it.
type Told struct {
	Tenant, Subscription string
	// EventID is of the event, and At is when it happened.
	EventID string
	At      time.Time
	// Start and End are RFC 3339; either may be empty.
	Start, End string
	// Plan is the id of the subscription's product.
	Plan string
}

// period is a document of PeriodsCollection.
type period struct {
	Tenant       string    `store:"tenant"`
	Subscription string    `store:"subscription"`
	Start        time.Time `store:"start,required"`
	End          time.Time `store:"end,required"`
	Plan         string    `store:"plan"`
	EventID      string    `store:"event_id"`
	ToldAt       time.Time `store:"told_at"`
}

// Tell returns the write that keeps a period. ok is false where the event has no two bounds that follow.
func Tell(t Told) (write store.Write, ok bool) {
	start, startErr := time.Parse(time.RFC3339Nano, t.Start)
	end, endErr := time.Parse(time.RFC3339Nano, t.End)
	start, end = start.UTC().Truncate(time.Microsecond), end.UTC().Truncate(time.Microsecond)
	if startErr != nil || endErr != nil || !start.Before(end) || !storable(start) || !storable(end) {
		return store.Write{}, false
	}
	told := t.At.UTC()
	if !storable(told) {
		told = start // it decides among events that tell the same start alone
	}
	return store.Create(
		store.Key{Collection: PeriodsCollection, ID: subscriptionPrefix(t.Tenant, t.Subscription) + latestFirst(start) + "~" + latestFirst(told) + "~" + store.Path(t.EventID)},
		store.Encode(&period{
			Tenant: t.Tenant, Subscription: t.Subscription, Start: start, End: end, Plan: t.Plan, EventID: t.EventID, ToldAt: told,
		}),
	), true
}

// storable reports whether a time may stand in a document and in the name of a period.
func storable(at time.Time) bool { return at.Year() >= 1 && at.Year() <= 9999 }

// latestFirst is a time as a part of ids of which the latest is the first.
func latestFirst(at time.Time) string {
	const secondsBefore1970, last = 62_135_596_800, 999_999_999_999_999_999
	micros := (at.Unix()+secondsBefore1970)*1_000_000 + int64(at.Nanosecond())/1000
	return fmt.Sprintf("%018d", last-micros)
}

// PeriodAt returns the period of a subscription that holds a moment: of those that were told the one that
// began last before it, or the one that begins at that one's end, or else the calendar month. It reads one
// document at the most. The error wraps store.ErrUnreadable, or is the store's.
func PeriodAt(ctx context.Context, from store.Querier, tenant, subscription string, at time.Time) (Period, error) {
	at = at.UTC().Truncate(time.Microsecond)
	if !storable(at) {
		return Month(at), nil
	}
	prefix := subscriptionPrefix(tenant, subscription)
	page, err := from.Query(ctx, store.Query{Collection: PeriodsCollection, IDPrefix: prefix, After: store.Cursor{ID: prefix + latestFirst(at)}, Limit: 1})
	if err != nil {
		return Period{}, fmt.Errorf("usage: read period: %w", err)
	}
	if len(page.Documents) == 0 {
		return Month(at), nil
	}
	var told period
	if err := store.Decode(page.Documents[0].Fields, &told); err != nil {
		return Period{}, fmt.Errorf("usage: %s: %w", page.Documents[0].Key, err)
	}
	if at.Before(told.End) {
		return Period{ID: told.Start.Format(momentForm), Start: told.Start, End: told.End, Plan: told.Plan, settles: told.End}, nil
	}
	// It may last as long as the one before it, and so end as much later than the moment.
	return Period{ID: told.End.Format(momentForm), Start: told.End, Plan: told.Plan, settles: at.Add(told.End.Sub(told.Start))}, nil
}
