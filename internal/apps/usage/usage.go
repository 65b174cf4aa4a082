// Package usage counts what subscriptions use, for each meter and billing period, and emits a warning near a
// quota. A total is the sum of its entries, one for each event. Entries are never changed or removed: a
// correction is a negative entry. The package has no prices.
package usage

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"billhook/internal/apps/subscriptions"
	"billhook/internal/console"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// The collections: a total per tenant, subscription, period and meter, and an entry per event.
const (
	Collection        = "usage"
	EntriesCollection = "usageEntries"
)

// Total is the usage of one meter of one subscription in one period.
type Total struct {
	Tenant       string `json:"tenant" store:"tenant,required" show:"Tenant,detail"`
	Subscription string `json:"subscription" store:"subscription,required" show:"Subscription" link:"subscriptions"`
	// Period is such as 2026-11 or 20261102T101500Z; see Period.
	Period string    `json:"period" store:"period,required" show:"Period"`
	Meter  string    `json:"meter" store:"meter,required" show:"Meter"`
	Start  time.Time `json:"start" store:"start,required" show:"From,detail"`
	End    time.Time `json:"end,omitzero" store:"end,omitzero" show:"To,detail"` // absent while it is unknown
	// Used is the sum of the entries, and Entries their number. Corrections may make it negative.
	Used    int64 `json:"used" store:"used,required" show:"Used"`
	Entries int64 `json:"entries" store:"entries,required" show:"Entries,less" link:"usage/{subscription}/entries?period={period}&meter={meter}"`
	// Plan and Quota are the last entry's. A Quota of 0 is none.
	Plan  string `json:"plan,omitempty" store:"plan,omitzero" show:"Plan,detail"`
	Quota int64  `json:"quota,omitzero" store:"quota,omitzero" show:"Quota,less"`
	// Warned is the highest threshold that was crossed, in percent; it never falls. WarnedBy is the id of the
	// event that crossed it.
	Warned    int64     `json:"warned,omitzero" store:"warned,omitzero" show:"Warned at %,less"`
	WarnedBy  string    `json:"warned_by,omitempty" store:"warned_by,omitzero"`
	CountedAt time.Time `json:"counted_at" store:"counted_at,required" show:"Counted,less"`
	Month     string    `json:"-" store:"month"` // "<tenant>~2026-11": the month in which the period begins
}

// Entry is the usage of one event. It never changes.
type Entry struct {
	Tenant       string `json:"tenant" store:"tenant,required" show:"Tenant,detail"`
	Subscription string `json:"subscription" store:"subscription,required" show:"Subscription,detail"`
	Period       string `json:"period" store:"period,required" show:"Period"`
	Meter        string `json:"meter" store:"meter,required" show:"Meter"`
	EventID      string `json:"event_id" store:"event_id,required" show:"Event" link:"events"`
	// Quantity is negative in a correction.
	Quantity   int64     `json:"quantity" store:"quantity,required" show:"Quantity"`
	OccurredAt time.Time `json:"occurred_at" store:"occurred_at,required" show:"Occurred"`
	CountedAt  time.Time `json:"counted_at" store:"counted_at,required" show:"Counted"`
	Total      string    `json:"-" store:"total"`
}

func subscriptionPrefix(tenant, subscription string) string {
	return store.ID(tenant, subscription) + "~"
}

// Key is the key of a total.
func Key(tenant, subscription, period, meter string) store.Key {
	id := subscriptionPrefix(tenant, subscription) + store.Path(period, meter)
	return store.Key{Collection: Collection, ID: id}
}

// EntryKey is the key of an event's entry. It leaves out the period, so that a repeated event cannot count in
// another one.
func EntryKey(tenant, subscription, eventID string) store.Key {
	id := subscriptionPrefix(tenant, subscription) + store.Path(eventID)
	return store.Key{Collection: EntriesCollection, ID: id}
}

// Totals returns a page of the totals of a subscription, period by period, of a month, or of all.
func Totals(ctx context.Context, from store.Querier, of ListUsage) ([]Total, store.Cursor, error) {
	query := store.Query{Collection: Collection, After: of.After, Limit: of.Limit}
	switch {
	case of.Month != "":
		query.Equal = map[string]any{"month": of.Tenant + "~" + of.Month}
	case of.Subscription == "":
		query.Equal = map[string]any{"tenant": of.Tenant}
	default:
		query.IDPrefix = subscriptionPrefix(of.Tenant, of.Subscription)
	}
	if of.Period != "" {
		query.IDPrefix += store.Path(of.Period) + "~"
	}
	return store.List(ctx, from, query, decoded[Total])
}

// Entries returns a page of the entries of a subscription's period, by event id.
func Entries(ctx context.Context, from store.Querier, of ListEntries) ([]Entry, store.Cursor, error) {
	equal := map[string]any{"tenant": of.Tenant, "subscription": of.Subscription, "period": of.Period}
	if of.Meter != "" {
		equal = map[string]any{"total": Key(of.Tenant, of.Subscription, of.Period, of.Meter).ID}
	}
	query := store.Query{Collection: EntriesCollection, Equal: equal, After: of.After, Limit: of.Limit}
	return store.List(ctx, from, query, decoded[Entry])
}

func decoded[T any](doc store.Document) (one T, err error) {
	if err = store.Decode(doc.Fields, &one); err != nil {
		err = fmt.Errorf("usage: %s: %w", doc.Key, err)
	}
	return one, err
}

// PeriodsCollection has an immutable document for each event with a billing period.
const PeriodsCollection = "subscriptionPeriods"

// The formats of the ids of periods: of a calendar month, and of a period that begins at any time.
const (
	monthForm  = "2006-01"
	momentForm = "20060102T150405Z"
)

// Period is a span of time whose usage is counted together.
type Period struct {
	ID string // 2026-11 for a calendar month, and 20261102T101500Z, its first moment, for a billing period
	// Start is in the period. End is not; it is zero while it is unknown.
	Start   time.Time `store:"start,required"`
	End     time.Time `store:"end,required"`
	Plan    string    `store:"plan"` // the id of the subscription's product; empty: unknown
	settles time.Time // when its usage is expected to be complete, except for late events
}

type period struct {
	Tenant       string `store:"tenant"`
	Subscription string `store:"subscription"`
	Period       `store:",inline"`
	EventID      string    `store:"event_id"`
	ReportedAt   time.Time `store:"told_at"`
}

// PeriodWrite returns the write that stores the period of an event. ok is false unless its start is before
// its end.
func PeriodWrite(e subscriptions.Event) (write store.Write, ok bool) {
	start, startErr := time.Parse(time.RFC3339Nano, e.PeriodStart)
	end, endErr := time.Parse(time.RFC3339Nano, e.PeriodEnd)
	start, end = start.UTC().Truncate(time.Microsecond), end.UTC().Truncate(time.Microsecond)
	if startErr != nil || endErr != nil || !start.Before(end) || !storable(start) || !storable(end) {
		return store.Write{}, false
	}
	occurred, _ := time.Parse(time.RFC3339Nano, e.OccurredAt) // checked by its contract
	if occurred = occurred.UTC(); !storable(occurred) {
		occurred = start // it only orders periods with the same start
	}
	id := subscriptionPrefix(e.Tenant, e.Subscription) + latestFirst(start) + "~" + latestFirst(occurred) + "~" +
		store.Path(e.EventID)
	p := period{Tenant: e.Tenant, Subscription: e.Subscription, EventID: e.EventID, ReportedAt: occurred}
	p.Period = Period{Start: start, End: end, Plan: e.Product}
	return store.Create(store.Key{Collection: PeriodsCollection, ID: id}, store.Encode(&p)), true
}

// storable reports whether a document and a period's id can hold a time.
func storable(at time.Time) bool { return at.Year() >= 1 && at.Year() <= 9999 }

// latestFirst returns a part of an id that sorts the latest time first.
func latestFirst(at time.Time) string {
	const secondsBefore1970, last = 62_135_596_800, 999_999_999_999_999_999
	micros := (at.Unix()+secondsBefore1970)*1_000_000 + int64(at.Nanosecond())/1000
	return fmt.Sprintf("%018d", last-micros)
}

// PeriodAt returns the period of a subscription that contains a time: the last known one that began before
// it, or the one after that, or else the calendar month. It reads at most one document. The error wraps
// store.ErrUnreadable, or is the store's.
func PeriodAt(ctx context.Context, from store.Querier, tenant, id string, at time.Time) (Period, error) {
	at = at.UTC().Truncate(time.Microsecond)
	query := store.Query{Collection: PeriodsCollection, IDPrefix: subscriptionPrefix(tenant, id), Limit: 1}
	query.After.ID = query.IDPrefix + latestFirst(at)
	periods, _, err := store.List(ctx, from, query, decoded[period])
	if err != nil || len(periods) == 0 {
		start := time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
		end := start.AddDate(0, 1, 0)
		return Period{ID: start.Format(monthForm), Start: start, End: end, settles: end}, err
	}
	last := periods[0].Period
	if at.Before(last.End) {
		last.ID, last.settles = last.Start.Format(momentForm), last.End
		return last, nil
	}
	// The next period is expected to last as long as the last one, so it ends that long after the given time at
	// the latest.
	next := Period{ID: last.End.Format(momentForm), Start: last.End, Plan: last.Plan}
	next.settles = at.Add(last.End.Sub(last.Start))
	return next, nil
}

// ListUsage requests the usage of a subscription, or of a month.
type ListUsage struct {
	console.Owned
	Subscription string `json:"-" query:"subscription" validate:"omitempty,id" help:"one subscription, period by period"`
	Month        string `json:"-" query:"month" validate:"omitempty,month" help:"all subscriptions' periods that begin in this month, such as 2026-11"`
	console.Page

	Period string `json:"-"` // one period of the subscription; empty: all
}

// ListEntries requests the entries of a subscription's period.
type ListEntries struct {
	console.Owned
	Subscription string `json:"-" path:"subscription" validate:"required,id" help:"subscription"`
	Period       string `json:"-" query:"period" validate:"omitempty,id" help:"such as 2026-11; without it the one that is running"`
	Meter        string `json:"-" query:"meter" validate:"omitempty,id" help:"only those of this meter"`
	console.Page
}

// Operations are what people do with usage: read it.
func Operations(from store.Querier, now func() time.Time) []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "usage ls", Path: "GET /v1/ops/usage",
			Summary: "List usage: all, of one subscription, or of the periods that begin in a month",
			Empty:   "No usage was recorded. Each usage_tracking event of a service adds to it.",
		}, func(ctx context.Context, _ audit.Author, in ListUsage) (console.List[Total], error) {
			if in.Month != "" && in.Subscription != "" {
				return console.List[Total]{}, console.Refuse(console.Malformed, "usage_of_what",
					"Say subscription= or month=, not both.")
			}
			return console.Listed(Totals(ctx, from, in))
		}),
		console.New(console.Row{
			Name: "usage entries", Path: "GET /v1/ops/usage/{subscription}/entries",
			Summary: "List the usage events of a subscription in a period",
			Empty:   "No usage event came in this period. Services send usage_tracking.",
		}, func(ctx context.Context, _ audit.Author, in ListEntries) (console.List[Entry], error) {
			if in.Period == "" {
				period, err := PeriodAt(ctx, from, in.Tenant, in.Subscription, now())
				if err != nil {
					return console.List[Entry]{}, err
				}
				in.Period = period.ID
			}
			return console.Listed(Entries(ctx, from, in))
		}),
		console.New(console.Row{
			Name: "usage show", Path: "GET /v1/ops/usage/{subscription}",
			Summary: "Show what a subscription has used in a period, by meter",
		}, func(ctx context.Context, _ audit.Author, in PeriodOf) (Usage, error) {
			shown := Usage{Tenant: in.Tenant, Subscription: in.ID, Period: in.Period, Meters: map[string]MeterUsage{}}
			if in.Period == "" {
				running, err := PeriodAt(ctx, from, in.Tenant, in.ID, now())
				if err != nil {
					return Usage{}, err
				}
				shown.Period, shown.Start, shown.End = running.ID, running.Start, running.End
			}
			of := ListUsage{Owned: in.Owned, Subscription: in.ID, Period: shown.Period}
			of.After.ID, of.Limit = in.After, store.MaxPage
			totals, next, err := Totals(ctx, from, of)
			if err != nil {
				return Usage{}, err
			}
			for _, t := range totals {
				shown.Start, shown.End = t.Start, t.End
				meter := MeterUsage{
					Used: t.Used, Entries: t.Entries, Quota: t.Quota, Warned: t.Warned, WarnedBy: t.WarnedBy,
					Plan: t.Plan, CountedAt: t.CountedAt,
				}
				if t.Quota > 0 {
					percent := max(t.Used, 0) * 100 / t.Quota
					meter.Percent = &percent
				}
				shown.Meters[t.Meter] = meter
			}
			shown.Next = next.ID
			return shown, nil
		}),
	}
}

// PeriodOf names the usage of a subscription in a period.
type PeriodOf struct {
	subscriptions.SubscriptionOf
	Period string `json:"-" query:"period" validate:"omitempty,id" help:"such as 2026-11, or 20261102T101500Z for one of the subscription's own; without it the one that is running"`
	After  string `json:"-" query:"page" help:"where to continue: next of the previous answer"`
}

// Usage is the usage of a subscription in a period, by meter.
type Usage struct {
	Subscription string `json:"subscription" show:"Subscription" link:"subscriptions"`
	Tenant       string `json:"tenant"`
	Period       string `json:"period" show:"Period"`
	// Start and End bound the period if it has usage; End is absent while it is unknown.
	Start  time.Time             `json:"start,omitzero" show:"From"`
	End    time.Time             `json:"end,omitzero" show:"To"`
	Meters map[string]MeterUsage `json:"meters"`
	Next   string                `json:"next,omitempty"`
}

// MeterUsage is the usage of one meter.
type MeterUsage struct {
	Used    int64 `json:"used"`
	Entries int64 `json:"entries"`
	// Percent is the used part of Quota, rounded down.
	Quota   int64  `json:"quota,omitzero"`
	Percent *int64 `json:"percent,omitempty"`
	// Warned is the highest threshold that was crossed, in percent, and WarnedBy the event that crossed it.
	Warned    int64     `json:"warned,omitzero"`
	WarnedBy  string    `json:"warned_by,omitempty"`
	Plan      string    `json:"plan,omitempty"`
	CountedAt time.Time `json:"counted_at"`
}

// Join adds the meters of earlier pages.
func (u *Usage) Join(before any) (page string) {
	if b, ok := before.(*Usage); ok && u.Meters != nil {
		maps.Copy(u.Meters, b.Meters)
	}
	return u.Next
}

// Notes says what was used of each meter.
func (u Usage) Notes() (notes []string) {
	for _, name := range slices.Sorted(maps.Keys(u.Meters)) {
		m := u.Meters[name]
		said := fmt.Sprintf("%s: %d used", name, m.Used)
		if m.Percent != nil {
			said += fmt.Sprintf(" of %d, %d %%", m.Quota, *m.Percent)
		}
		last := m.CountedAt.UTC().Format(time.RFC3339)
		said += fmt.Sprintf(", in %d entries, the last counted %s", m.Entries, last)
		if m.Warned > 0 {
			said += fmt.Sprintf("; warned at %d %% by event %s", m.Warned, m.WarnedBy)
		}
		notes = append(notes, said+".")
	}
	if len(u.Meters) == 0 {
		notes = append(notes, "Nothing was used in period "+u.Period+".")
	}
	if !u.Start.IsZero() && u.End.IsZero() {
		notes = append(notes, "No event says when the period ends.")
	}
	return notes
}
