package usage

import (
	"context"
	"time"

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

func lists(from store.Querier, now func() time.Time) []console.Operation {
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
	}
}
