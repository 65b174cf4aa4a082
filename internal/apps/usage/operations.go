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

// ListUsage asks for the usage of a subscription, or of a month.
type ListUsage struct {
	console.Owned
	Subscription string `json:"-" query:"subscription" validate:"omitempty,id" help:"one subscription, period by period"`
	Month        string `json:"-" query:"month" help:"all subscriptions' periods that begin in this month, such as 2026-11"`
	console.Page
}

// ListEntries asks for the entries of a subscription's period.
type ListEntries struct {
	console.Owned
	Subscription string `json:"-" path:"subscription" validate:"required,id" help:"subscription"`
	Period       string `json:"-" query:"period" validate:"omitempty,id" help:"such as 2026-11; without it the one that is running"`
	Meter        string `json:"-" query:"meter" validate:"omitempty,id" help:"only those of this meter"`
	console.Page
}

// Operations are what people do with usage, which is to look at it.
func Operations(from store.Querier, now func() time.Time) []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "usage ls", Path: "GET /v1/ops/usage", Summary: "List the usage of one subscription, or of all periods that begin in a month (by default this one)",
			Empty: "No usage was recorded. Each usage_tracking event of a service adds to it.",
		}, func(ctx context.Context, _ audit.Author, in ListUsage) (console.List[Total], error) {
			switch _, err := time.Parse(monthForm, in.Month); {
			case in.Month != "" && in.Subscription != "":
				return console.List[Total]{}, console.Refuse(console.Malformed, "usage_of_what", "Say subscription= or month=, not both.")
			case in.Month != "" && err != nil:
				return console.List[Total]{}, console.Refuse(console.Malformed, "month_invalid", "The parameter month is such as 2026-11.")
			case in.Month == "" && in.Subscription == "":
				in.Month = Month(now()).ID
			}
			return console.Listed(Totals(ctx, from, Of{Tenant: in.Tenant, Subscription: in.Subscription, Month: in.Month}, in.After, in.Limit))
		}),
		console.New(console.Row{
			Name: "usage entries", Path: "GET /v1/ops/usage/{subscription}/entries", Summary: "List the usage events of a subscription in a period",
			Empty: "No usage event came in this period. Services send usage_tracking.",
		}, func(ctx context.Context, _ audit.Author, in ListEntries) (console.List[Entry], error) {
			if in.Period == "" {
				period, err := PeriodAt(ctx, from, in.Tenant, in.Subscription, now())
				if err != nil {
					return console.List[Entry]{}, err
				}
				in.Period = period.ID
			}
			of := Of{Tenant: in.Tenant, Subscription: in.Subscription, Period: in.Period, Meter: in.Meter}
			return console.Listed(Entries(ctx, from, of, in.After, in.Limit))
		}),
		console.New(console.Row{
			Name: "usage show", Path: "GET /v1/ops/usage/{subscription}", Summary: "Show what a subscription has used in a period, by meter",
		}, func(ctx context.Context, _ audit.Author, in PeriodOf) (Usage, error) {
			return show(ctx, from, in, now())
		}),
	}
}

// PeriodOf asks what a subscription has used in a period.
type PeriodOf struct {
	subscriptions.SubscriptionOf
	Period string `json:"-" query:"period" validate:"omitempty,id" help:"such as 2026-11, or 20261102T101500Z for one of the subscription's own; without it the one that is running"`
	After  string `json:"-" query:"page" help:"where to continue: next of the previous answer"`
}

// Usage is what a subscription has used in a period, by meter.
type Usage struct {
	Subscription string `json:"subscription" show:"Subscription" link:"subscriptions"`
	Tenant       string `json:"tenant"`
	Period       string `json:"period" show:"Period"`
	// Start and End bound the period where something was used in it; End is absent while no event has told it.
	Start  time.Time             `json:"start,omitzero" show:"From"`
	End    time.Time             `json:"end,omitzero" show:"To"`
	Meters map[string]MeterUsage `json:"meters"`
	Next   string                `json:"next,omitempty"`
}

// MeterUsage is the usage of one meter.
type MeterUsage struct {
	Used    int64 `json:"used"`
	Entries int64 `json:"entries"`
	// Quota is the allowance, and Percent the part of it that is used, rounded down.
	Quota   int64  `json:"quota,omitzero"`
	Percent *int64 `json:"percent,omitempty"`
	// Warned is the highest threshold that was crossed, in percent, and WarnedBy the event that emitted the warning.
	Warned    int64     `json:"warned,omitzero"`
	WarnedBy  string    `json:"warned_by,omitempty"`
	Plan      string    `json:"plan,omitempty"`
	CountedAt time.Time `json:"counted_at"`
}

// Join adds the meters of the parts before.
func (u *Usage) Join(before any) (page string) {
	if b, ok := before.(*Usage); ok && u.Meters != nil {
		maps.Copy(u.Meters, b.Meters)
	}
	return u.Next
}

// Notes say what was used of each meter.
func (u Usage) Notes() (notes []string) {
	for _, name := range slices.Sorted(maps.Keys(u.Meters)) {
		m := u.Meters[name]
		said := fmt.Sprintf("%s: %d used", name, m.Used)
		if m.Percent != nil {
			said += fmt.Sprintf(" of %d, %d %%", m.Quota, *m.Percent)
		}
		said += fmt.Sprintf(", in %d entries, the last counted %s", m.Entries, m.CountedAt.UTC().Format(time.RFC3339))
		if m.Warned > 0 {
			said += fmt.Sprintf("; warned at %d %% by event %s", m.Warned, m.WarnedBy)
		}
		notes = append(notes, said+".")
	}
	if len(u.Meters) == 0 {
		notes = append(notes, "Nothing was used in period "+u.Period+".")
	}
	if !u.Start.IsZero() && u.End.IsZero() {
		notes = append(notes, "No event has told when the period ends.")
	}
	return notes
}

func show(ctx context.Context, from store.Querier, in PeriodOf, at time.Time) (Usage, error) {
	shown := Usage{Tenant: in.Tenant, Subscription: in.ID, Period: in.Period, Meters: map[string]MeterUsage{}}
	if in.Period == "" {
		now, err := PeriodAt(ctx, from, in.Tenant, in.ID, at)
		if err != nil {
			return Usage{}, err
		}
		shown.Period, shown.Start, shown.End = now.ID, now.Start, now.End
	}
	of := Of{Tenant: in.Tenant, Subscription: in.ID, Period: shown.Period}
	totals, next, err := Totals(ctx, from, of, store.Cursor{ID: in.After}, store.MaxPage)
	if err != nil {
		return Usage{}, err
	}
	for _, t := range totals {
		shown.Start, shown.End = t.Start, t.End
		meter := MeterUsage{Used: t.Used, Entries: t.Entries, Quota: t.Quota, Warned: t.Warned, WarnedBy: t.WarnedBy, Plan: t.Plan, CountedAt: t.CountedAt}
		if t.Quota > 0 {
			percent := max(t.Used, 0) * 100 / t.Quota
			meter.Percent = &percent
		}
		shown.Meters[t.Meter] = meter
	}
	shown.Next = next.ID
	return shown, nil
}
